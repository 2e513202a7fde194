"""LeRobot datasets of format v3.0: robots' recordings, many episodes a file.

    meta/info.json               features, frames a second, how files are called
    meta/episodes/**/*.parquet   of each episode: its rows, the file that holds them, its place in each video
    data/**/*.parquet            one row a frame
    videos/KEY/**/*.mp4          one camera

Whole episodes are read by these offsets, a file's at a time. Rewards are the feature `next.reward`, or 1 at
the end of an episode that a flag of success marks, and 0 elsewhere: demonstrations without either cannot be
judged.
Videos need the package `av` (pip install 'bcrl[lerobot]').
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from bcrl.data.build.arrays import LoggedArrays, build_block, from_arrays
from bcrl.data.build.inputs import frame_stack
from bcrl.data.dataset import LABELS, Array, Dataset, Ends
from bcrl.data.storage.blocks import BlockWriter
from bcrl.errors import BadInput, did_you_mean
from bcrl.opening import plain_file, read_json

_USUAL = {
    "action": ("action",),
    "reward": ("next.reward", "reward"),
    "success": ("next.success", "success"),
}
_WORDS = ("observation", *_USUAL, "terminated", "log_prob", *LABELS)
_ROWS, _BYTES = 1 << 16, 1 << 26  # of a block: rows, and bytes of frames
_PLACE = ("episode_index", "length", "dataset_from_index", "data/chunk_index", "data/file_index")


def load_lerobot(
    folder: Path,
    columns: Mapping[str, Any] | None = None,
    num_actions: int | None = None,
    ends: Ends | None = None,
    stack: int = 1,
    into: str | Path | None = None,
) -> Dataset:
    """Read all episodes.

    Args:
        folder: the dataset's.
        columns: our word -> feature: `observation` (one or a list; all that begin with "observation." if left
            out), `action`, `reward` or `success`, `terminated`, `log_prob`, `cluster`, `behaviour`, `cohort`.
        num_actions: as in `Dataset.from_arrays`.
        ends: as in `Dataset.from_arrays`; successes end the world, of other ends nothing is known.
        stack: frames to stack when a batch is taken.
        into: write a bcrl folder on the way instead of holding everything in memory.
    """
    recording = Recording(folder, columns, num_actions, ends, stack)
    if into is None:
        return from_arrays(recording.rows(range(recording.count)))
    made_of = {
        "source": str(folder.resolve()),
        "info": recording.info,
        "options": [columns, num_actions, ends],
    }
    return recording.write(BlockWriter(into, made_of))


@dataclass(frozen=True, eq=False)
class Recording:
    """A dataset folder, whose rows are read where they are asked for; the arguments of `load_lerobot`."""

    folder: Path
    columns: Mapping[str, Any] | None
    num_actions: int | None = None
    ends: Ends | None = None
    stack: int = 1

    @cached_property
    def info(self) -> dict[str, Any]:
        path = self.folder / "meta" / "info.json"
        info = read_json(path, "a LeRobot dataset's description", self.folder)
        if not isinstance(info, dict) or not isinstance(info.get("features"), dict):
            raise BadInput(f"{path} is no description of a LeRobot dataset: it lists no features.")
        version = str(info.get("codebase_version", ""))
        if not version.startswith("v3."):
            raise BadInput(
                f"{self.folder} is of LeRobot's format {version or '(none)'}; expected v3.0. Convert it: "
                "python -m lerobot.datasets.v30.convert_dataset_v21_to_v30."
            )
        for name, about in info["features"].items():
            shape = about.get("shape") if isinstance(about, dict) else None
            if not isinstance(shape, list) or not all(isinstance(size, int) for size in shape):
                raise BadInput(
                    f"{path}: the feature {name!r} has no shape; expected a list of whole numbers."
                )
        if not isinstance(info.get("fps"), int | float) or not info["fps"] > 0:
            raise BadInput(f"{path} says fps = {info.get('fps')!r}; expected frames a second.")
        return info

    @cached_property
    def named(self) -> dict[str, Any]:
        """Feature by our word; observations by the key that they get."""
        features, given = self.info["features"], dict(self.columns or {})
        for word, value in given.items():
            if word not in _WORDS:
                raise BadInput(f"columns has the key {word!r}. {did_you_mean(word, _WORDS)}")
            for name in [value] if isinstance(value, str) else value:
                if name not in features:
                    hint = did_you_mean(str(name), features)
                    raise BadInput(f"{self.folder} has no feature {name!r} (columns[{word!r}]). {hint}")
        seen = given.pop("observation", [name for name in features if name.startswith("observation")])
        seen = [seen] if isinstance(seen, str) else list(seen)
        for word, usual in _USUAL.items():
            if word == "success" and "reward" in given:
                continue
            found = next((name for name in usual if name in features), None)
            if word not in given and found is not None and not (word == "reward" and "success" in given):
                given[word] = found
        if not seen or "action" not in given:
            raise BadInput(
                f"{self.folder} has no {'action' if seen else 'observation'} among {list(features)}."
            )
        if not {"reward", "success"} & set(given):
            raise BadInput(
                f"{self.folder} has neither rewards (next.reward) nor a flag of success (next.success) among "
                f"{list(features)}: nothing says what a policy would earn. Add one, or name it with columns=."
            )
        if "reward" in given:
            given.pop("success", None)
        return given | {"observation": {name.removeprefix("observation."): name for name in seen}}

    @cached_property
    def episodes(self) -> dict[str, NDArray[Any]]:
        """What meta/episodes says, by column, in the order of the episodes."""
        paths = sorted((self.folder / "meta" / "episodes").rglob("*.parquet"))
        if not paths:
            raise BadInput(f"{self.folder} has no meta/episodes/**/*.parquet. Is the folder whole?")
        wanted = [*_PLACE]
        for name in self.named["observation"].values():
            if self._is_video(name):
                wanted += [
                    f"videos/{name}/{part}" for part in ("chunk_index", "file_index", "from_timestamp")
                ]
        tables = [self._table(path, wanted) for path in paths]
        table = pa.concat_tables(tables).sort_by("episode_index")
        found = {name: table[name].to_numpy() for name in wanted}
        if not len(table) or (found["length"] < 1).any() or any(table[name].null_count for name in wanted):
            raise BadInput(f"{self.folder}/meta/episodes lists no episode, or one without rows.")
        return found

    @property
    def count(self) -> int:
        return len(self.episodes["length"])

    def blocks(self) -> Iterator[range]:
        """Episodes that are read together: of one file, of so many rows and bytes of frames."""
        most = _ROWS
        for name in self.named["observation"].values():
            if self._is_video(name):
                most = min(most, _BYTES // max(1, int(np.prod(self.info["features"][name]["shape"]))))
        lengths, file = self.episodes["length"], self._files
        first = 0
        for stop in range(1, self.count + 1):
            full = stop < self.count and int(lengths[first : stop + 1].sum()) > most
            if stop == self.count or full or (file[stop] != file[first]).any():
                yield range(first, stop)
                first = stop

    def write(self, writer: BlockWriter, tell: Any = lambda done, size: None) -> Dataset:  # noqa: ANN401
        """All episodes into a folder, a block at a time; what an earlier run wrote is not read again."""
        stops = np.cumsum(self.episodes["length"])
        for block in self.blocks():
            stop = int(stops[block.stop - 1])
            if stop > writer.position:
                writer.append(*build_block(self.rows(block)), stop)
            tell(stop, int(stops[-1]))
        return writer.close(str(self.folder), {})

    def rows(self, block: range) -> LoggedArrays:
        """These episodes' rows."""
        features, lengths = self.named, self.episodes["length"][block.start : block.stop]
        pixels = {key: name for key, name in features["observation"].items() if self._is_video(name)}
        plain = [name for name in features["observation"].values() if name not in pixels.values()]
        others = [name for word, name in features.items() if word != "observation"]
        columns = self._columns(block, list(dict.fromkeys([*plain, *others])))
        seen = {
            key: self._frames(block, name) if key in pixels else columns[name]
            for key, name in features["observation"].items()
        }
        last = np.cumsum(lengths) - 1
        given: dict[str, Any] = {
            word: columns[features[word]] for word in ("log_prob", "terminated", *LABELS) if word in features
        }
        if "reward" in features:
            rewards = columns[features["reward"]].astype(np.float64)
            given.setdefault("terminated", np.zeros(len(rewards), dtype=np.bool_))
        else:
            flag = columns[features["success"]].astype(np.bool_)
            rewards = np.zeros(len(flag))
            rewards[last] = np.logical_or.reduceat(flag, np.cumsum(lengths) - lengths)
            given.setdefault("terminated", rewards > 0.0)
        return LoggedArrays(
            observations=next(iter(seen.values())) if len(seen) == 1 else seen,
            actions=columns[features["action"]],
            rewards=rewards,
            episode=np.repeat(self.episodes["episode_index"][block.start : block.stop], lengths),
            num_actions=self.num_actions,
            ends=self.ends,
            stack=frame_stack(self.stack),
            source=str(self.folder),
            **given,
        )

    @property
    def _files(self) -> NDArray[np.int64]:
        return np.stack([self.episodes["data/chunk_index"], self.episodes["data/file_index"]], axis=1)

    def _is_video(self, name: str) -> bool:
        kind = self.info["features"][name].get("dtype")
        if kind in ("image", "string"):
            raise BadInput(
                f"{self.folder}: the feature {name!r} is of type {kind}; bcrl reads numbers and videos. "
                "Leave it out with columns={'observation': [...]}."
            )
        return bool(kind == "video")

    def _columns(self, block: range, names: list[str]) -> dict[str, Array]:
        """Features as arrays, one row a frame."""
        files, parts = self._files, []
        place = block.start
        while place < block.stop:
            stop = place + 1
            while stop < block.stop and (files[stop] == files[place]).all():
                stop += 1
            parts.append(self._part(range(place, stop), names))
            place = stop
        return {name: np.concatenate([part[name] for part in parts]) for name in names}

    def _part(self, block: range, names: list[str]) -> dict[str, Array]:
        """The same of episodes in one file, which stand there one after another."""
        chunk, file = self._files[block.start].tolist()
        path = self._path("data_path", chunk_index=chunk, file_index=file)
        table = self._table(path, [*names, "index", "episode_index"])
        first = int(self.episodes["dataset_from_index"][block.start])
        first -= int(table["index"][0].as_py()) if len(table) else 0
        numbers = self.episodes["episode_index"][block.start : block.stop]
        wanted = np.repeat(numbers, self.episodes["length"][block.start : block.stop])
        table = table.slice(max(first, 0), len(wanted))
        if first < 0 or not np.array_equal(table["episode_index"].to_numpy(), wanted):
            raise BadInput(
                f"{path} does not hold episodes {numbers[0]} to {numbers[-1]} where meta/episodes says. Is "
                "the folder whole?"
            )
        return {name: self._array(path, name, table[name]) for name in names}

    def _array(self, path: Path, name: str, column: Any) -> Array:  # noqa: ANN401 - pyarrow has no types
        shape = tuple(self.info["features"][name]["shape"])
        column = column.combine_chunks()
        while hasattr(column.type, "value_type"):
            column = column.flatten()
        if column.null_count:
            raise BadInput(f"{path}: the feature {name!r} is empty in {column.null_count} rows; fill it in.")
        values = column.to_numpy(zero_copy_only=False)
        return np.asarray(values if shape in ((), (1,)) else values.reshape(-1, *shape))

    def _frames(self, block: range, name: str) -> Array:
        """A camera's frames, (n, height, width, 3)."""
        parts = []
        for number in block:
            at = {
                word: self.episodes[f"videos/{name}/{word}"][number] for word in ("chunk_index", "file_index")
            }
            path = self._path(
                "video_path", video_key=name, **{word: int(value) for word, value in at.items()}
            )
            begin = float(self.episodes[f"videos/{name}/from_timestamp"][number])
            parts.append(decoded(path, begin, int(self.episodes["length"][number]), float(self.info["fps"])))
        return np.concatenate(parts)

    def _path(self, kind: str, **numbers: Any) -> Path:  # noqa: ANN401 - what the pattern asks for
        try:
            path = self.folder / str(self.info[kind]).format(**numbers)
        except (LookupError, ValueError, AttributeError) as error:
            raise BadInput(
                f"{self.folder}/meta/info.json: {kind} is no pattern of files ({error})."
            ) from None
        return plain_file(path, self.folder)

    def _table(self, path: Path, names: list[str]) -> Any:  # noqa: ANN401 - pyarrow has no types
        try:
            return pyarrow.parquet.read_table(plain_file(path, self.folder), columns=names).select(names)
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(f"{path} cannot be read ({' '.join(str(error).split())[:200]}).") from None


def decoded(path: Path, begin: float, count: int, rate: float) -> NDArray[np.uint8]:
    """So many frames of a video from a time on, (count, height, width, 3)."""
    try:
        import av
    except ImportError as error:
        raise BadInput("Videos need the package av: pip install 'bcrl[lerobot]'.") from error
    found: list[NDArray[np.uint8]] = []
    try:
        with av.open(str(path)) as file:
            stream = file.streams.video[0]
            file.seek(int(begin / stream.time_base), stream=stream)  # to the key frame before
            for frame in file.decode(stream):
                if frame.time is not None and frame.time >= begin - 0.5 / rate:
                    found.append(frame.to_ndarray(format="rgb24"))
                if len(found) == count:
                    break
    except (av.FFmpegError, IndexError, OSError) as error:
        raise BadInput(f"{path} cannot be decoded ({error}).") from error
    if len(found) < count:
        raise BadInput(f"{path} has {len(found)} frames from {begin:g} s on; expected {count}.")
    return np.stack(found)
