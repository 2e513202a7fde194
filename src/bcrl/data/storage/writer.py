"""Append episodes to a dataset folder without holding them in memory; a killed writer goes on where it was.

Arrays grow at their end. After each block of episodes the files are synced and `progress.json` says how far
they count; what a kill left beyond that is cut off when the folder is opened again. `close` writes the
header, and the folder is a dataset.
"""

import fcntl
import json
import os
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from bcrl.data.build.episodes import from_episodes
from bcrl.data.build.inputs import frame_stack
from bcrl.data.dataset import LABELS, Array, Dataset
from bcrl.data.storage.contents import content_hash, header_of, named_arrays
from bcrl.data.storage.folder import (
    HEADER,
    PROGRESS,
    array_path,
    assemble,
    open_folder,
    write_json,
)
from bcrl.errors import BadInput
from bcrl.opening import plain_file
from bcrl.sealed import sealed_json, set_aside, unsealed_json
from bcrl.writing import atomic_write, sync_folder, writable_folder

# Room for the .npy header, which is written again when the number of rows is known (bytes).
ROOM = 256


class Writer:
    """`with Writer("logs/", stack=3) as writer: writer.append(episode)`; see `Dataset.from_episodes` for an
    episode.

    Args:
        folder: the dataset's folder; one that a killed writer left is continued.
        stack: frames to stack when a batch is taken.
        num_actions: number of discrete actions; None takes the largest one seen plus one.
        block: episodes between two marks of progress; a kill loses at most this many.
        about: JSON-able remarks (task, seeds) kept in the header; continuing with other remarks is refused.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        stack: int = 1,
        num_actions: int | None = None,
        block: int = 1,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder, self.block = Path(folder), block
        self._settings: dict[str, Any] = {
            "stack": frame_stack(stack),
            "num_actions": num_actions,
            "about": dict(about or {}),
        }
        if (self.folder / HEADER).exists():
            raise BadInput(f"{self.folder} already holds a finished dataset; choose another folder.")
        saved = self._saved()
        writable_folder(self.folder)
        self._let_go = weakref.finalize(self, os.close, held(self.folder))
        self._state = self._resume(saved)
        self._mark()  # a kill before the first block must leave a folder that can go on

    @property
    def episodes(self) -> int:
        """Episodes in the folder, those not yet marked included. After a restart: how many are complete."""
        return int(self._state["episodes"])

    def append(self, episode: Mapping[str, Any]) -> None:
        """Add one episode at the end."""
        single = from_episodes([_one_label(episode)], self._settings["stack"], self._settings["num_actions"])
        arrays = {n: a for n, a in named_arrays(single).items() if n not in ("offsets", *LABELS)}
        arrays["lengths"] = single.lengths
        kinds = {n: {"dtype": a.dtype.str, "shape": list(a.shape[1:])} for n, a in arrays.items()}
        labelled = [name for name in LABELS if getattr(single, name) is not None]
        if self.episodes and (kinds, labelled, single.single) != (
            self._state["kinds"],
            self._state["labelled"],
            self._state["single"],
        ):
            raise BadInput(
                f"episode {self.episodes} does not fit the ones before: it has {kinds} and the labels "
                f"{labelled}, they have {self._state['kinds']} and {self._state['labelled']}."
            )
        for name, array in arrays.items():
            with self._file(name).open("ab") as file:
                if file.tell() == 0:
                    file.write(bytes(ROOM))
                file.write(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
        state = self._state
        self._state = state | {
            "episodes": state["episodes"] + 1,
            "kinds": kinds,
            "labelled": labelled,
            "single": single.single,
            "num_actions": max(state["num_actions"] or 0, single.num_actions) if single.num_actions else None,
            "rows": {n: state["rows"].get(n, 0) + len(a) for n, a in arrays.items()},
            **{name: [*state[name], *getattr(single, name).tolist()] for name in labelled},
        }
        self._pending += 1
        if self._pending >= self.block:
            self._mark()

    def close(self) -> Dataset:
        """Finish the folder and open it as a dataset."""
        if self.episodes == 0:
            raise BadInput(f"{self.folder}: no episode was appended; a dataset needs at least one.")
        self._mark()
        lengths = self._finished("lengths")
        names = [name for name in self._state["kinds"] if name != "lengths"]
        arrays: dict[str, Array] = {name: self._finished(name) for name in names}
        arrays["offsets"] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        np.save(self.folder / "offsets.npy", arrays["offsets"])
        for name in self._state["labelled"]:
            arrays[name] = np.asarray(self._state[name])
            np.save(self.folder / f"{name}.npy", arrays[name])
        settings = {"stack": self._settings["stack"], "num_actions": self._state["num_actions"]}
        dataset = assemble(settings | {"single": self._state["single"]}, arrays, str(self.folder))
        header = header_of(dataset) | {"hash": content_hash(dataset), "about": self._settings["about"]}
        write_json(self.folder / HEADER, header)
        self._file("lengths").unlink()
        (self.folder / PROGRESS).unlink()
        sync_folder(self.folder)
        self._let_go()
        return open_folder(self.folder)

    def finish(self, episodes: Iterable[Mapping[str, Any]]) -> Dataset:
        """Append all episodes of a sequence, leaving out those that an
        earlier run already wrote, and close."""
        for number, episode in enumerate(episodes):
            if number >= self.episodes:
                self.append(episode)
        return self.close()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    def _file(self, name: str) -> Path:
        path = array_path(self.folder, name) if name != "lengths" else self.folder / "lengths.growing"
        path.parent.mkdir(exist_ok=True)
        return path

    def _saved(self) -> dict[str, Any] | None:
        """What the last mark recorded; if it is damaged, the folder is set aside and an empty one begun."""
        path = self.folder / PROGRESS
        if not os.path.lexists(path):
            return None
        try:
            text = plain_file(path, self.folder).read_bytes().decode("utf-8", "replace")
            saved = _upgraded(unsealed_json(text, str(path), "a collection's progress"))
            for name, rows in saved["rows"].items():
                if os.path.getsize(self._file(name)) < ROOM + rows * row_bytes(saved["kinds"][name]):
                    raise BadInput(f"{self._file(name)} holds less than {PROGRESS} says: it is damaged.")
            return saved
        except BadInput as error:
            set_aside(self.folder, str(error))
            return None

    def _resume(self, saved: dict[str, Any] | None) -> dict[str, Any]:
        """The state that the last mark recorded, with the files cut back to it."""
        if saved is None:
            if any(self.folder.iterdir()):
                raise BadInput(
                    f"{self.folder} is not empty and holds no unfinished dataset; choose another folder."
                )
            return {
                "episodes": 0,
                "rows": {},
                "kinds": {},
                **{name: [] for name in LABELS},
                "num_actions": None,
                "labelled": [],
            }
        if saved["settings"] != json.loads(json.dumps(self._settings)):
            raise BadInput(
                f"{self.folder} was begun with {saved['settings']}; got {self._settings}. "
                "Go on with the same settings, or choose another folder."
            )
        for leftover in [*self.folder.rglob("*.npy"), *self.folder.glob("*.growing")]:
            if leftover not in {self._file(name) for name in saved["rows"]}:
                leftover.unlink()
        for name, rows in saved["rows"].items():
            os.truncate(self._file(name), ROOM + rows * row_bytes(saved["kinds"][name]))
        return {key: value for key, value in saved.items() if key != "settings"}

    def _mark(self) -> None:
        """Sync the files, then record how far they count."""
        for name in self._state["rows"]:
            with self._file(name).open("rb+") as file:
                os.fsync(file.fileno())
        with atomic_write(self.folder / PROGRESS) as file:
            text = json.dumps(self._state | {"settings": self._settings}, indent=1)
            file.write(sealed_json(text).encode())
        self._pending = 0

    def _finished(self, name: str) -> Array:
        """Write the .npy header in the room that was left for it, and map the array."""
        kind, rows = self._state["kinds"][name], self._state["rows"][name]
        with self._file(name).open("rb+") as file:
            file.write(npy_header(kind, rows))
            file.flush()
            os.fsync(file.fileno())
        mapped: Array = np.load(self._file(name), mmap_mode="r", allow_pickle=False)
        return np.asarray(mapped)


def npy_header(kind: Mapping[str, Any], rows: int) -> bytes:
    """The header of an .npy file, `ROOM` bytes long."""
    shape = (rows, *kind["shape"])
    text = repr({"descr": kind["dtype"], "fortran_order": False, "shape": shape})
    start = np.lib.format.magic(1, 0) + (ROOM - 10).to_bytes(2, "little")
    return start + text.encode("latin1").ljust(ROOM - 11) + b"\n"


def held(folder: Path) -> int:
    """The folder, open and locked: two writers would lay their episodes over each other's."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise BadInput(
            f"{folder} is being written by another process; wait for it, or stop it first."
        ) from None
    return handle


def _upgraded(saved: dict[str, Any]) -> dict[str, Any]:
    """Progress as it is kept now; until version 0.1.0 of 2026-11-16 `labelled` told of clusters alone."""
    needed = {"settings", "episodes", "rows", "kinds", "labelled"}
    if not needed <= set(saved) <= {*needed, "num_actions", "single", *LABELS}:
        raise BadInput("A collection's progress.json lacks entries, or has others: it is damaged.")
    labelled = saved["labelled"]
    names = labelled if isinstance(labelled, list) else ["cluster"] if labelled else []
    return {name: [] for name in LABELS} | saved | {"labelled": names}


def row_bytes(kind: Mapping[str, Any]) -> int:
    return int(np.dtype(kind["dtype"]).itemsize * np.prod(kind["shape"], dtype=np.int64))


def _one_label(episode: Mapping[str, Any]) -> dict[str, Any]:
    """Numpy scalars as plain labels, so that progress can be written as JSON."""
    given = {name: episode.get(name) for name in LABELS}
    return dict(episode) | {
        name: label.item() if isinstance(label, np.generic) else label for name, label in given.items()
    }
