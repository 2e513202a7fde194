"""Minari datasets: read from the local store by id or from a path, and written.

Only the stored spaces and episodes are read. A dataset that names its environment without storing the spaces
is refused: Minari would then build the environment, which runs whatever code its file names.
"""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL.Image import DecompressionBombError

from bcrl.data.build.episodes import from_episodes
from bcrl.data.dataset import LABELS, Array, Dataset
from bcrl.data.sources.hdf5 import open_hdf5
from bcrl.data.storage.writer import Writer
from bcrl.errors import BadInput
from bcrl.opening import parse_json, plain_file, read_json

# Where `to_minari` keeps what Minari has no place for.
_OURS = "bcrl"
# What Minari raises, by way of HDF5, arrow, pillow and its own asserts, at a dataset that is damaged.
_DAMAGE = (
    OSError, LookupError, AssertionError, AttributeError, TypeError, ValueError, RuntimeError, MemoryError,
    DecompressionBombError,
)  # fmt: skip


def load_minari(place: str | Path, stack: int | None = None, into: str | Path | None = None) -> Dataset:
    """Read a Minari dataset.

    Args:
        place: an id in the local store (`D4RL/door/human-v2`), or the path of a dataset.
        stack: frames to stack when a batch is taken.
        into: write a bcrl folder on the way instead of holding everything in memory.
    """
    from minari.dataset.minari_storage import MinariStorage

    folder = _folder(place)
    _refuse_outside(folder)
    metadata = _metadata(folder)
    try:
        storage = MinariStorage.read(folder)
    except _DAMAGE as error:
        raise BadInput(
            f"{folder} is no readable Minari dataset ({type(error).__name__}: {error})."
        ) from error
    num_actions = _num_actions(folder, storage.action_space)
    ours = metadata.get(_OURS, {})
    frames = ours.get("stack", 1) if stack is None else stack
    episodes = _episodes(folder, storage, ours)
    if into is None:
        return from_episodes(
            episodes, stack=frames, num_actions=num_actions, source=f"minari:{metadata['dataset_id']}"
        )
    about = {"source": f"minari:{metadata['dataset_id']}"}
    return Writer(into, stack=frames, num_actions=num_actions, block=20, about=about).finish(episodes)


def to_minari(dataset: Dataset, dataset_id: str, **metadata: Any) -> Path:  # noqa: ANN401
    """Write a dataset into Minari's local store, images without loss; returns its path.

    Args:
        dataset: ordered episodes.
        dataset_id: `name-v0`, or `namespace/name-v0`.
        **metadata: passed on to Minari: author, description, env, ...
    """
    import minari
    from minari.data_collector import EpisodeBuffer

    dataset.require_order("Minari")
    buffers = [EpisodeBuffer(**_buffer(dataset, number)) for number in range(dataset.num_episodes)]
    with warnings.catch_warnings():
        # Minari warns for each remark (author, code link) that was not given.
        warnings.simplefilter("ignore", UserWarning)
        try:
            written = minari.create_dataset_from_buffers(
                dataset_id,
                buffers,
                observation_space=_observation_space(dataset),
                action_space=_action_space(dataset),
                jpeg_encoding=False,
                **metadata,
            )
        except ValueError as error:
            raise BadInput(f"Minari refused {dataset_id!r}: {error}") from error
    extra: dict[str, Any] = {
        "stack": dataset.stack,
        "single": dataset.single,
        "keys": list(dataset.observations),
    }
    extra |= {name: getattr(dataset, name).tolist() for name in LABELS if getattr(dataset, name) is not None}
    written.storage.update_metadata({_OURS: extra})
    return Path(written.storage.data_path)


def _folder(place: str | Path) -> Path:
    if isinstance(place, Path):
        return place / "data" if (place / "data" / "metadata.json").exists() else place
    from minari.storage.datasets_root_dir import get_dataset_path

    if Path(place).is_absolute() or ".." in Path(place).parts:
        raise BadInput(f"minari:{place} leads out of the local store; pass the path of the folder instead.")
    folder = Path(get_dataset_path(place)) / "data"
    if not place or not (folder / "metadata.json").exists():
        raise BadInput(
            f"minari:{place} is not in the local store ({get_dataset_path()}). Run: minari download {place}"
        )
    return folder


def _metadata(folder: Path) -> dict[str, Any]:
    path = folder / "metadata.json"
    metadata = read_json(path, "Minari metadata", folder)
    if not isinstance(metadata, dict):
        raise BadInput(f"{path} is no Minari metadata: expected a JSON object.")
    for name in ("observation_space", "action_space", "data_format", "total_episodes"):
        if name not in metadata:
            raise BadInput(
                f"{path} lacks {name!r}; reading it would build the environment, which can run code."
            )
    for name in ("observation_space", "action_space"):
        if isinstance(metadata[name], str):  # JSON within JSON, which Minari parses; anything else it refuses
            parse_json(metadata[name], f"{path}: {name}", "a space")
    ours = metadata.get(_OURS, {})
    labels = {name: ours.get(name) or [] for name in ("keys", *LABELS)} if isinstance(ours, dict) else {}
    if not labels or not all(isinstance(value, list) for value in labels.values()):
        raise BadInput(f"{path}: {_OURS!r} is not what bcrl writes there. Is the file damaged?")
    return {"dataset_id": str(folder)} | metadata


def _refuse_outside(folder: Path) -> None:
    """Minari opens what it finds in the folder; every file there must be a plain one inside it."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            plain_file(path, folder)
    if (folder / "main_data.hdf5").exists():
        with open_hdf5(folder / "main_data.hdf5", folder):
            pass  # looked through, and closed: Minari opens it itself


def _num_actions(folder: Path, space: Any) -> int | None:  # noqa: ANN401 - a gymnasium space
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        return None
    if isinstance(space, spaces.Discrete) and int(space.start) == 0:
        return int(space.n)
    raise BadInput(f"{folder} has the action space {space}; expected Box, or Discrete that starts at 0.")


def _episodes(
    folder: Path,
    storage: Any,  # noqa: ANN401 - Minari has no types
    ours: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    for number, episode in enumerate(_stored(folder, storage)):
        observations = _flat(folder, episode["observations"], "")
        if ours.get("keys"):
            lacking = [key for key in ours["keys"] if _stored_key(str(key)) not in observations]
            if lacking:
                raise BadInput(f"{folder} is damaged: episode {number} lacks the observation {lacking[0]!r}.")
            observations = {key: observations[_stored_key(key)] for key in ours["keys"]}
        single = ours.get("single", not isinstance(episode["observations"], dict | tuple))
        actions = np.asarray(episode["actions"])
        if actions.dtype.kind not in "fc" and _num_actions(folder, storage.action_space) is None:
            actions = actions.astype(np.float64)
        read = {
            "observations": next(iter(observations.values())) if single else observations,
            "actions": actions,
            "rewards": episode["rewards"],
            "terminated": episode["terminations"],
            "truncated": episode["truncations"],
        }
        if "bcrl_log_prob" in (episode["infos"] or {}):
            read["log_prob"] = episode["infos"]["bcrl_log_prob"]
        for name in LABELS:
            if ours.get(name) is not None:
                if number >= len(ours[name]):
                    raise BadInput(f"{folder} is damaged: {name} has no label for episode {number}.")
                read[name] = ours[name][number]
        yield read


def _stored(folder: Path, storage: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - Minari has no types
    try:
        yield from storage.get_episodes(range(storage.total_episodes))
    except _DAMAGE as error:
        raise BadInput(
            f"{folder} is damaged: an episode cannot be read ({type(error).__name__}: {error})."
        ) from error


def _flat(folder: Path, value: Any, prefix: str) -> dict[str, Array]:  # noqa: ANN401 - nested as the space is
    """Nested dicts and tuples by path: `camera/left`, `0`."""
    if isinstance(value, np.ndarray):
        return {prefix or "observation": value}
    if isinstance(value, dict | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        parts = [_flat(folder, item, f"{prefix}/{key}" if prefix else str(key)) for key, item in items]
        return {key: array for part in parts for key, array in part.items()}
    raise BadInput(
        f"{folder}: observation {prefix or '(whole)'} is a {type(value).__name__}; expected numbers."
    )


def _stored_key(key: str) -> str:
    """HDF5 reads a slash as a folder, so keys are quoted; plain ones stay as they are."""
    return quote(key, safe=" ", errors="surrogateescape")


def _buffer(dataset: Dataset, number: int) -> dict[str, Any]:
    steps, rows = dataset.episode_slices(number)
    observations = {_stored_key(key): np.asarray(value[rows]) for key, value in dataset.observations.items()}
    infos = {} if dataset.log_prob is None else {"bcrl_log_prob": dataset.log_prob[steps]}
    return {
        "observations": dataset.natural(observations),
        "actions": dataset.actions[steps],
        "rewards": dataset.rewards[steps],
        "terminations": dataset.terminated[steps],
        "truncations": dataset.truncated[steps],
        "infos": infos,
    }


def _observation_space(dataset: Dataset) -> Any:  # noqa: ANN401 - a gymnasium space
    from gymnasium import spaces

    parts = {_stored_key(key): _box(value) for key, value in dataset.observations.items()}
    return next(iter(parts.values())) if dataset.single else spaces.Dict(parts)


def _action_space(dataset: Dataset) -> Any:  # noqa: ANN401 - a gymnasium space
    from gymnasium import spaces

    return _box(dataset.actions) if dataset.num_actions is None else spaces.Discrete(dataset.num_actions)


def _box(array: Array) -> Any:  # noqa: ANN401 - a gymnasium space
    from gymnasium import spaces

    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        return spaces.Box(limits.min, limits.max, array.shape[1:], array.dtype.type)
    if array.dtype.kind == "b":
        return spaces.Box(0, 1, array.shape[1:], np.bool_)
    return spaces.Box(-np.inf, np.inf, array.shape[1:], array.dtype.type)
