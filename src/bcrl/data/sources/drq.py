"""A folder of DrQ-v2 episodes (Yarats et al. 2021), one .npz each, as that code's replay buffer writes them.

    # row              :   0      1      2     ...   T
    # observation      :   o0     o1     o2          oT        stacks of 3 frames, (9, 84, 84) uint8
    # action, reward   :   dummy  a0,r0  a1,r1       a(T-1)    row 0 is a dummy: it came with the reset
    # discount         :   dummy  1      1           1 or 0    0 at the end: the world ended

Stacks are taken apart again: the last frame of each is stored once, and `Dataset.stack` remembers how many
there were.
"""

from pathlib import Path
from typing import Any

import numpy as np

from bcrl.data.build.episodes import from_episodes
from bcrl.data.dataset import Array, Dataset
from bcrl.data.sources.npz import open_npz, read_member
from bcrl.data.storage.writer import Writer
from bcrl.errors import BadInput

_NEEDED = ("observation", "action", "reward", "discount")


def load_drq(folder: Path, frame_channels: int = 3, into: str | Path | None = None) -> Dataset:
    """Read all episodes, in the order in which they were recorded.

    Args:
        folder: where the *.npz files lie.
        frame_channels: channels of one frame: 3 for colour, 1 for grey.
        into: write a bcrl folder on the way instead of holding everything in memory (100k frames are 2.1 GB).
    """
    paths = sorted(folder.glob("*.npz"), key=_order)
    key, stack = _kind(paths[0], frame_channels)
    episodes = (_read(path, key, stack) for path in paths)
    if into is None:
        return from_episodes(episodes, stack=stack, source=str(folder))
    return Writer(into, stack=stack, block=20, about={"source": str(folder)}).finish(episodes)


def _order(path: Path) -> tuple[int, str]:
    """DrQ-v2 names a file TIME_NUMBER_LENGTH.npz; by number, not by text."""
    parts = path.stem.split("_")
    return (int(parts[1]), path.name) if len(parts) == 3 and parts[1].isdigit() else (0, path.name)


def _kind(path: Path, frame_channels: int) -> tuple[str, int]:
    """Key of the observations and number of stacked frames."""
    observation = _arrays(path)["observation"]
    if observation.dtype != np.uint8 or observation.ndim != 4:
        return "state", 1
    if frame_channels < 1 or observation.shape[1] % frame_channels:
        raise BadInput(
            f"{path}: observation has {observation.shape[1]} channels, no multiple of "
            f"frame_channels={frame_channels}."
        )
    return "pixels", observation.shape[1] // frame_channels


def _arrays(path: Path) -> dict[str, Array]:
    with open_npz(path, path.parent) as file:
        for name in _NEEDED:
            if name not in file.files:
                raise BadInput(f"{path} lacks {name!r}; expected a DrQ-v2 episode with {', '.join(_NEEDED)}.")
        arrays = {name: read_member(path, file, name) for name in _NEEDED}
    for name, array in arrays.items():
        if array.ndim == 0 or len(array) != len(arrays["observation"]) or len(array) < 2:
            raise BadInput(
                f"{path}: {name} has shape {array.shape}; expected as many rows as observation, at least 2 "
                f"({arrays['observation'].shape})."
            )
    for name in ("reward", "discount"):
        if arrays[name].size != len(arrays[name]) or arrays[name].dtype.kind not in "fiub":
            kind = f"shape {arrays[name].shape} and type {arrays[name].dtype}"
            raise BadInput(f"{path}: {name} has {kind}; expected one number a row.")
    return arrays


def _read(path: Path, key: str, stack: int) -> dict[str, Any]:
    arrays = _arrays(path)
    discount = arrays["discount"][1:].reshape(-1)
    if (discount[:-1] == 0).any():
        raise BadInput(
            f"{path}: discount is 0 at row {1 + int(np.argmax(discount == 0))}, before the episode's end."
        )
    observation = arrays["observation"]
    return {
        "observations": {key: single_frames(path, observation, stack) if key == "pixels" else observation},
        "actions": arrays["action"][1:],
        "rewards": arrays["reward"][1:].reshape(-1),
        "terminated": bool(discount[-1] == 0),
    }


def single_frames(path: Path, stacked: Array, stack: int) -> Array:
    """The newest frame of each stack, height x width x channels;
    stacks that are no running window are refused."""
    channels = stacked.shape[1] // stack
    frames = stacked[:, -channels:]
    for back in range(1, stack):
        older = stacked[:, -(back + 1) * channels : stacked.shape[1] - back * channels]
        expected = frames[np.maximum(np.arange(len(frames)) - back, 0)]
        if not np.array_equal(older, expected):
            row = int(np.argmax((older != expected).reshape(len(frames), -1).any(axis=1)))
            raise BadInput(
                f"{path}: row {row} of observation is no stack of the {stack} latest frames, oldest first. "
                "Pass frame_channels with the channels of one frame, or all of them to keep rows as they are."
            )
    return np.ascontiguousarray(np.moveaxis(frames, 1, -1))
