"""A dataset folder that grows by blocks of many episodes and can be killed at any time.

Arrays grow at their ends, under the names that they keep. Now and then the files are synced and
progress.json says how far they count; what a kill left beyond that is cut off when the folder is opened
again. Where the blocks were cut leaves no trace: the same rows give the same bytes.
"""

import hashlib
import json
import os
import shutil
import weakref
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.data.build.ends import Lost
from bcrl.data.dataset import Array, Dataset
from bcrl.data.storage.contents import combined_hash, header_of, named_arrays
from bcrl.data.storage.folder import HEADER, PROGRESS, array_path, assemble, open_folder, write_json
from bcrl.data.storage.npy import open_npy
from bcrl.data.storage.writer import ROOM, held, npy_header
from bcrl.errors import BadInput
from bcrl.opening import read_json
from bcrl.writing import make_folder, sync_folder, writable_folder, writing_into

_MARK_EVERY = 1 << 26  # bytes between two marks
_AT_ONCE = 1 << 22  # bytes read at a time


class BlockWriter:
    """Args:
    folder: the dataset's folder; one that a killed writer left with the same `made_of` is continued.
    made_of: what the conversion is of, as JSON; continuing with anything else is refused.
    """

    def __init__(self, folder: str | Path, made_of: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self.made_of: dict[str, Any] = json.loads(json.dumps(made_of))
        if (self.folder / HEADER).exists():
            raise BadInput(f"{self.folder} already holds a finished dataset; choose another folder.")
        writable_folder(self.folder)
        self._let_go = weakref.finalize(self, os.close, held(self.folder))
        saved = self._saved()
        # How the source has to be read (which passes it needs), found out while it is read.
        self.plan: dict[str, Any] = {} if saved is None else saved["plan"]
        self._begin({} if saved is None else saved["state"])

    def start_again(self, plan: Mapping[str, Any]) -> None:
        """Forget every block: the source has to be read in another way."""
        self.plan = dict(plan)
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._begin({})

    def abandon(self) -> None:
        """Leave nothing: the source is refused, and what was read of it is of no use."""
        self.start_again({})
        (self.folder / PROGRESS).unlink()
        self.folder.rmdir()
        self._let_go()

    @property
    def position(self) -> int:
        """Rows of the source that are dealt with."""
        return int(self._state["position"])

    @property
    def side_room(self) -> Path:
        """A folder for what the conversion needs on the side; gone when it is finished."""
        return self.folder / ".aside"

    def append(self, dataset: Dataset | None, lost: Lost, position: int) -> None:
        """Add whole episodes at the end; `position`: rows of the source that are dealt with then."""
        state = self._state
        if dataset is not None:
            arrays = {n: a for n, a in named_arrays(dataset).items() if n != "offsets"}
            arrays["offsets"] = self._transitions() + dataset.offsets[0 if not state["kinds"] else 1 :]
            self._require_same_kind(dataset, arrays)
            with writing_into(self.folder):
                for name, array in arrays.items():
                    self._grow(name, array)
            state["num_actions"] = max(state["num_actions"] or 0, dataset.num_actions or 0) or None
            state["rows"] = {n: state["rows"].get(n, 0) + len(a) for n, a in arrays.items()}
        state["lost"] = asdict(Lost(**state["lost"]) + lost)
        state["position"] = position
        if self._pending > _MARK_EVERY:
            self._mark()

    def close(self, source: str, about: Mapping[str, Any]) -> Dataset:
        """Finish the folder and open it; `about` is kept in its header."""
        state, lost = self._state, Lost(**self._state["lost"])
        if not state["kinds"]:
            raise BadInput(
                f"No transition is left: all {lost.rows} rows end an unfinished episode and have no next "
                "observation. Pass next_observations."
            )
        self._mark()
        with writing_into(self.folder):
            arrays = {name: self._finished(name) for name in state["kinds"]}
        settings = state["settings"] | {"num_actions": state["num_actions"]}
        settings |= {"dropped": lost.rows, "dropped_reward": lost.reward}
        dataset = assemble(settings, arrays, source)
        digests = {name: digest.hexdigest() for name, digest in self._digests.items()}
        header = header_of(dataset) | {"hash": combined_hash(dataset, digests), "about": dict(about)}
        shutil.rmtree(self.side_room, ignore_errors=True)
        write_json(self.folder / HEADER, header)
        for leftover in [self.folder / PROGRESS, *self.folder.glob("*.growing")]:
            leftover.unlink()
        sync_folder(self.folder)
        self._let_go()
        return open_folder(self.folder)

    def _transitions(self) -> int:
        return int(self._state["rows"].get("rewards", 0))

    def _require_same_kind(self, dataset: Dataset, arrays: Mapping[str, Array]) -> None:
        kinds = {n: {"dtype": _kind(a), "shape": list(a.shape[1:])} for n, a in arrays.items()}
        settings = {"stack": dataset.stack, "ordered": dataset.ordered, "single": dataset.single}
        if not self._state["kinds"]:
            self._state |= {"kinds": kinds, "settings": settings}
            return
        if (kinds, settings) != (self._state["kinds"], self._state["settings"]):
            raise BadInput(
                f"{self.folder}: rows from {self.position} on do not fit those before: they give {kinds}, "
                f"those before {self._state['kinds']}."
            )

    def _grow(self, name: str, array: Array) -> None:
        path, text = self._path(name), array.dtype.kind == "U"
        lines = "".join(f"{json.dumps(word)}\n" for word in array.tolist()).encode() if text else b""
        own = (
            np.frombuffer(lines, np.uint8) if text else np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        )
        make_folder(path.parent)
        with path.open("ab") as file:
            if file.tell() == 0:
                file.write(bytes(ROOM))
            file.write(own.data)
        self._state["bytes"] = self._state["bytes"] | {name: self._state["bytes"].get(name, 0) + own.nbytes}
        if not text:
            self._digests.setdefault(name, hashlib.sha256()).update(own.data)
        self._pending += own.nbytes

    def _path(self, name: str) -> Path:
        """Where an array grows. How wide words are is known at the end: until then they are lines of JSON."""
        text = self._state["kinds"][name]["dtype"] == "U"
        return self.folder / f"{name}.growing" if text else array_path(self.folder, name)

    def _finished(self, name: str) -> Array:
        """The array, whole and synced."""
        path, kind = array_path(self.folder, name), self._state["kinds"][name]
        if kind["dtype"] == "U":
            lines = self._path(name).read_bytes()[ROOM:].decode().splitlines()
            words = np.asarray([json.loads(line) for line in lines])
            with path.open("wb") as file:
                np.save(file, words)
                os.fsync(file.fileno())
            self._digests[name] = hashlib.sha256(words.tobytes())
        else:
            with path.open("rb+") as file:
                file.write(npy_header(kind, self._state["rows"][name]))
                file.flush()
                os.fsync(file.fileno())
        return open_npy(path, self.folder)

    def _saved(self) -> dict[str, Any] | None:
        """What the last mark recorded; None in an empty folder."""
        if not (self.folder / PROGRESS).exists():
            if any(path.name != self.side_room.name for path in self.folder.iterdir()):
                raise BadInput(
                    f"{self.folder} is not empty and holds no unfinished conversion; choose another."
                )
            return None
        saved = read_json(self.folder / PROGRESS, "a conversion's progress", self.folder)
        if not isinstance(saved, dict) or not {"made_of", "plan", "state"} <= set(saved):
            raise BadInput(f"{self.folder} holds another unfinished work; choose another folder.")
        if saved["made_of"] != self.made_of:
            raise BadInput(
                f"{self.folder} was begun with {saved['made_of']}; got {self.made_of}. Go on with the same "
                "source and options, or choose another folder."
            )
        return saved

    def _begin(self, saved: dict[str, Any]) -> None:
        """The state that the last mark recorded, with the files cut back to it."""
        new: dict[str, Any] = {
            "position": 0,
            "rows": {},
            "bytes": {},
            "kinds": {},
            "settings": {},
            "num_actions": None,
        }
        self._state = saved or new | {"lost": asdict(Lost())}
        self._digests: dict[str, Any] = {}
        growing = {self._path(name): name for name in self._state["kinds"]}
        for path in [*self.folder.rglob("*.npy"), *self.folder.glob("*.growing")]:
            if path not in growing:
                path.unlink()
        for path, name in growing.items():
            size = ROOM + self._state["bytes"][name]
            if not path.exists() or path.stat().st_size < size:
                raise BadInput(
                    f"{path} holds less than {PROGRESS} says; remove the folder and convert again."
                )
            os.truncate(path, size)
            if path.suffix == ".npy":
                self._digests[name] = _digest(path)
        self._mark()

    def _mark(self) -> None:
        """Sync the files, then record how far they count."""
        for name in self._state["rows"]:
            with self._path(name).open("rb+") as file:
                os.fsync(file.fileno())
        episodes = max(0, self._state["rows"].get("offsets", 0) - 1)
        state = {"episodes": episodes, "made_of": self.made_of, "plan": self.plan, "state": self._state}
        write_json(self.folder / PROGRESS, state)
        self._pending = 0


def _kind(array: Array) -> str:
    return "U" if array.dtype.kind == "U" else array.dtype.str


def _digest(path: Path) -> Any:  # noqa: ANN401 - hashlib has no name for it
    """The hash of a growing file's numbers so far."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(ROOM)
        while chunk := file.read(_AT_ONCE):
            digest.update(chunk)
    return digest
