"""Tables, one row per transition: .csv and .parquet files, and pandas, polars and pyarrow tables in memory.

    columns = {"observation": ["age", "pressure", "ward"], "action": "treatment", "reward": "outcome",
               "episode": "stay", "step": "hour", "terminated": "died", "cluster": "patient"}

Without a map, columns are found by name (guesses.py), and what was guessed is said. Everything that is wrong
with a table is said at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
from numpy.typing import NDArray

from bcrl.data.build.arrays import LoggedArrays, from_arrays
from bcrl.data.dataset import LABELS, Array, Dataset, Ends
from bcrl.data.layout import FrameKind, Layout, frame_kind
from bcrl.data.sources.cells import Cells, Known, Missing, cells, is_text, word_codes
from bcrl.data.sources.guesses import VECTORS, WORDS, by_name
from bcrl.errors import BadInput, Gaps, did_you_mean
from bcrl.opening import plain_file

IN_ORDER = "Rows were put in order by"
_FLAGS = ("terminated", "truncated")
Columns = Mapping[str, Any]


def load_table(
    source: Any,  # noqa: ANN401 - a path or a table
    columns: Columns | None = None,
    num_actions: int | None = None,
    cluster: str | None = None,
    ends: Ends | None = None,
    missing: Missing = "refuse",
    cohort: str | None = None,
) -> Dataset:
    """Read one table.

    Args:
        source: a .csv or .parquet file, or a pandas, polars or pyarrow table.
        columns: our word -> column name, or a list of them for `observation`, `action`, `next_observation`.
            What is left out and needed is found by its name.
        num_actions: number of discrete actions; None takes the largest one seen plus one.
        cluster: the column that says what is independent; the same as columns["cluster"].
        ends: as in `Dataset.from_arrays`.
        missing: what to do about observations that are not there: "refuse"; "forward" carries the episode's
            last value forward (the column's mean where there is none); "mean" takes the column's mean. Both
            add a column that says where.
        cohort: a column of groups to look at one by one; the same as columns["cohort"].
    """
    if missing not in get_args(Missing):
        raise BadInput(f"missing is {missing!r}; expected 'refuse', 'forward' or 'mean'.")
    place = str(source) if isinstance(source, str | Path) else f"the {frame_kind(source)} table"
    table = _read(source) if isinstance(source, str | Path) else in_memory(source)
    if table.num_rows == 0:
        raise BadInput(f"{place} has no rows; expected one per transition.")
    wanted, guessed = chosen_columns(place, table, columns, cluster, cohort)
    reading = Reading(place, table, wanted, missing, frame_kind(source))
    dataset = reading.dataset(num_actions, ends)
    return replace(dataset, notes=(*told(guessed, wanted), *dataset.notes))


def chosen_columns(
    place: str,
    table: Any,  # noqa: ANN401 - pyarrow's, or one that gives a column when it is asked for
    columns: Columns | None,
    cluster: str | None,
    cohort: str | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Column names by our words, and which of them are guesses; the arguments are those of `load_table`."""
    names = _names(place, table)
    if columns is not None and not isinstance(columns, Mapping):
        raise BadInput(f"columns is {columns!r}; expected a mapping, e.g. {{'action': 'treatment'}}.")
    own = dict(columns or {})
    said = {word: name for word, name in (("cluster", cluster), ("cohort", cohort)) if name is not None}
    if "cohort" in own and len(own) == 1:  # who only names groups leaves all else to be guessed
        said |= own
        own = {}
    given = own | said if own else None
    _check_given(place, given or said, names)
    wanted, guessed = by_name(table, given)
    return wanted | said, guessed


def in_memory(source: Any) -> Any:  # noqa: ANN401 - any table
    """A pandas, polars or pyarrow table as a pyarrow one. A pandas index that has a name is a column."""
    if isinstance(source, pa.Table):
        return source
    if frame_kind(source) == "pandas" and any(name is not None for name in source.index.names):
        source = source.reset_index()
    try:
        if frame_kind(source) == "pandas":
            return pa.Table.from_pandas(source, preserve_index=False)
        return _simple(pa.table(source))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadInput(f"The table cannot be read: {error}. Give every column one type.") from error


def _simple(table: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
    """The table with words of the plain kind: pyarrow cannot sort polars' views."""
    fields = []
    for field in table.schema:
        kind = field.type
        if pa.types.is_string_view(kind):
            kind = pa.large_string()
        elif pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
            kind = pa.dictionary(kind.index_type, pa.large_string())
        fields.append(pa.field(field.name, kind))
    return table.cast(pa.schema(fields))


class Reading:
    """One table on its way: every column is looked at before anything is refused.

    Args:
        place: the table, for messages.
        table: a pyarrow table.
        wanted: our word -> column name, or names.
        missing: what to do about observations that are not there.
        kind: whose table it is.
        known: what whole columns are like, where the table is a part of a longer one.
    """

    def __init__(
        self,
        place: str,
        table: Any,  # noqa: ANN401 - pyarrow has no types
        wanted: Columns,
        missing: Missing,
        kind: FrameKind,
        known: Mapping[str, Known] | None = None,
    ) -> None:
        self.place, self.table, self.wanted, self.missing, self.kind = place, table, wanted, missing, kind
        self.known = known or {}
        self.gaps: list[str] = []
        self.notes: list[str] = []

    def dataset(self, num_actions: int | None, ends: Ends | None) -> Dataset:
        given, layout, labels = self.logged(num_actions, ends)
        return replace(from_arrays(given), action_labels=labels, table=layout, notes=tuple(self.notes))

    def logged(
        self, num_actions: int | None, ends: Ends | None
    ) -> tuple[LoggedArrays, Layout, tuple[str, ...] | None]:
        """The table's columns as arrays, how observations lie in them, and the names of discrete actions."""
        self.needed()
        self._sort()
        observed = self._cells("observation")
        following = self._cells("next_observation")
        actions, labels = self._actions(num_actions)
        given: dict[str, Any] = {"actions": actions}
        for word in ("reward", "log_prob", "propensity", *_FLAGS):
            if word in self.wanted:
                given[{"reward": "rewards", "propensity": "log_prob"}.get(word, word)] = self._whole(word)
        for word in ("episode", *LABELS):
            if word in self.wanted:
                given[word] = self._labels(str(self.wanted[word]))
        if self.gaps:
            raise Gaps(self.place, self.gaps)
        begins = _begins(given, self.table.num_rows)
        given["observations"], layout = self._array(observed, begins)
        if following:
            given["next_observations"] = np.concatenate([part.values for part in following], axis=1)
        given.setdefault("terminated", np.zeros(self.table.num_rows, dtype=np.bool_))
        arrays = LoggedArrays(**given, num_actions=num_actions, ends=ends, source=self.place)
        return arrays, layout, labels

    def needed(self) -> None:
        """Refuse a table without the columns that an evaluation cannot do without."""
        names = ", ".join(self.table.column_names[:20])
        for word in ("observation", "action", "reward"):
            if word not in self.wanted or not self.wanted[word]:
                self.gaps.append(f"no column for {word!r} among {names}. Pass columns={{{word!r}: ...}}")
        if not {*_FLAGS, "episode"} & set(self.wanted):
            self.gaps.append(
                "nothing says where episodes end. Pass columns with 'episode', 'terminated' or 'truncated'"
            )
        if self.gaps:
            raise Gaps(self.place, self.gaps)

    def _sort(self) -> None:
        """Rows by episode and step, where a column says which step a row is."""
        step = self.wanted.get("step")
        if step is None or "episode" not in self.wanted:
            return
        column = self.table[step]
        if is_text(column.type):
            try:
                column = column.cast(pa.timestamp("us"))
            except pa.ArrowException:
                self.gaps.append(f"column {step!r} (step) holds words; expected numbers or dates")
                return
        if column.null_count:
            self.gaps.append(f"column {step!r} (step) is empty in {column.null_count} rows")
            return
        episodes, _ = word_codes(self.table[self.wanted["episode"]].cast(pa.string()))
        _, first = np.unique(episodes, return_index=True)
        times = cells(step, column).values[:, 0]
        order = np.lexsort((times, first[np.maximum(episodes, 0)]))
        same = (np.diff(times[order]) == 0) & (np.diff(episodes[order]) == 0)
        if same.any():
            row = order[int(np.argmax(same)) + 1]
            self.gaps.append(
                f"row {row} has the same episode and {step!r} as another ({int(same.sum())} such rows): "
                "which came first? Name another step column, or leave doubles out"
            )
        if (order != np.arange(len(order))).any():
            self.table = self.table.take(pa.array(order))
            self.notes.append(f"{IN_ORDER} {self.wanted['episode']!r} and {step!r}.")

    def _cells(self, word: str) -> list[Cells]:
        """The columns of a word, as numbers; what is wrong with each joins the gaps."""
        found = []
        for name in listed(self.wanted.get(word, ())):
            try:
                part = cells(name, self.table[name], self.known.get(name))
            except BadInput as error:
                self.gaps.append(str(error))
                continue
            if part.gaps and (self.missing == "refuse" or word != "observation"):
                self.gaps.append(self._hole(part) + (_REMEDY if word == "observation" else ""))
            found.append(part)
        return found

    def _hole(self, part: Cells) -> str:
        return (
            f"column {part.name!r} is empty at row {part.first_gap} and in {part.gaps} of "
            f"{part.rows} rows ({part.gaps / part.rows:.0%})"
        )

    def _array(self, observed: Sequence[Cells], begins: NDArray[np.bool_]) -> tuple[Array, Layout]:
        """All observations side by side, each column with gaps followed by its mark."""
        parts, columns, first = [], [], 0
        for one in observed:
            columns.append(one.column(first))
            parts.append(one.filled(self.missing, begins))
            if one.gaps:
                parts.append(one.missing[:, None].astype(np.float64))
                share = one.gaps / one.rows
                how = "carried forward" if self.missing == "forward" else "took the column's mean"
                told = f"{one.name!r} was missing in {one.gaps} rows ({share:.0%})"
                self.notes.append(f"{told}: {how}, and a column says where.")
            first = sum(part.shape[1] for part in parts)
        return np.concatenate(parts, axis=1), Layout(tuple(columns), self.kind)

    def _actions(self, num_actions: int | None) -> tuple[Array, tuple[str, ...] | None]:
        names = listed(self.wanted["action"])
        column = self.table[names[0]]
        if len(names) == 1 and is_text(column.type):
            known = self.known.get(names[0])
            codes, labels = word_codes(column, None if known is None else known.labels)
            if (codes < 0).any():
                self.gaps.append(f"column {names[0]!r} (action) is empty in {int((codes < 0).sum())} rows")
            if num_actions is not None and num_actions < len(labels):
                self.gaps.append(f"num_actions is {num_actions}, and the table has {len(labels)} actions")
            return codes, labels
        parts = [self._numbers(name, "action") for name in names]
        if len(names) > 1:
            return np.stack([part.astype(np.float64) for part in parts], axis=1), None
        thin = parts[0].dtype.kind == "f" and num_actions is None
        return parts[0][:, None] if thin else parts[0], None

    def _whole(self, word: str) -> Array:
        """A column in which nothing may be missing; propensities as log probabilities."""
        values = self._numbers(str(self.wanted[word]), word)
        if word != "propensity" or not len(values):
            return values
        values = values.astype(np.float64)
        off = ~((values > 0.0) & (values <= 1.0))
        if off.any():
            row = int(off.argmax())
            self.gaps.append(
                f"column {self.wanted[word]!r} (propensity) is {values[row]:g} at row {row}; expected the "
                "probability of the logged action, above 0 and at most 1"
            )
        return np.log(np.where(off, 1.0, values))

    def _numbers(self, name: str, word: str) -> Array:
        column = self.table[name]
        if is_text(column.type):
            self.gaps.append(f"column {name!r} ({word}) holds words; expected numbers")
            return np.zeros(self.table.num_rows)
        try:
            part = cells(name, column, self.known.get(name))
        except BadInput as error:
            self.gaps.append(str(error))
            return np.zeros(self.table.num_rows)
        if part.gaps:
            self.gaps.append(f"{self._hole(part)}; fill it in or leave those episodes out")
        return column.to_numpy() if part.kind in "biuf" and not part.gaps else part.values[:, 0]

    def _labels(self, name: str) -> Array:
        column = self.table[name]
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy()))
            self.gaps.append(f"column {name!r} is empty at row {row}; every row needs its label")
        if pa.types.is_binary(column.type):
            self.gaps.append(f"column {name!r} is not UTF-8; save the table as UTF-8")
            return np.zeros(self.table.num_rows, dtype=np.int64)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        values: Array = column.to_numpy()
        return values if values.dtype.kind in "biuf" else np.asarray([str(v) for v in column.to_pylist()])


_REMEDY = "; fill it in, or pass missing='forward' or missing='mean'"


def _begins(given: Mapping[str, Any], count: int) -> NDArray[np.bool_]:
    """Rows that begin an episode."""
    begins = np.zeros(count, dtype=np.bool_)
    begins[0] = True
    if "episode" in given:
        begins[1:] |= given["episode"][1:] != given["episode"][:-1]
    for word in _FLAGS:
        if word in given:
            begins[1:] |= given[word][:-1].astype(np.bool_)
    return begins


def told(guessed: Columns, wanted: Columns) -> list[str]:
    """What was guessed, and which of our own words were read beside it."""
    if not guessed:
        return []
    shown = ", ".join(f"{word} = {', '.join(listed(names))}" for word, names in guessed.items())
    own = [word for word in wanted if word not in guessed and listed(wanted[word]) == [word]]
    read = f" Read by their own names: {', '.join(own)}." if own else ""
    return [
        f"Guessed from the columns' names: {shown}. Pass columns={dict(guessed)!r} to say so yourself.{read}"
    ]


def listed(names: Any) -> list[str]:  # noqa: ANN401 - one name or several
    return [names] if isinstance(names, str) else list(names)


def _read(path: str | Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    path = Path(path)
    try:
        if path.is_dir():
            return parquet_folder(path).to_table()
        if path.suffix.lower() == ".csv":
            return pyarrow.csv.read_csv(path, convert_options=pyarrow.csv.ConvertOptions(**CONVERT))
        return pyarrow.parquet.read_table(path, partitioning=None)  # folder names are no columns
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as a table ({error}).") from error


# An empty cell among words is no word.
CONVERT = {"strings_can_be_null": True, "quoted_strings_can_be_null": False}


def parquet_folder(folder: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    """The .parquet files below a folder as one pyarrow dataset, in the order of their paths; folders called
    NAME=VALUE are columns.
    """
    files = sorted(folder.rglob("*.parquet"))
    for file in files:
        plain_file(file, folder)
    return pyarrow.dataset.dataset(
        [str(file) for file in files], format="parquet", partitioning="hive", partition_base_dir=str(folder)
    )


def _names(place: str, table: Any) -> list[str]:  # noqa: ANN401 - pyarrow has no types
    try:
        return list(table.column_names)
    except UnicodeDecodeError as error:
        raise BadInput(f"{place} is not UTF-8 ({error}); save the table as UTF-8.") from None


def _check_given(place: str, wanted: Columns, names: Sequence[str]) -> None:
    """What the user said about the columns."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"{place} has the column {twice[0]!r} twice; which one is meant? Rename one of them.")
    for word, value in wanted.items():
        if word not in WORDS:
            raise BadInput(f"columns has the key {word!r}. {did_you_mean(str(word), WORDS)}")
        if not isinstance(value, str | list | tuple) or (word not in VECTORS and not isinstance(value, str)):
            raise BadInput(f"columns[{word!r}] is {value!r}; expected the name of a column.")
        for name in listed(value):
            if name not in names:
                raise BadInput(
                    f"{place} has no column {name!r} (columns[{word!r}]). {did_you_mean(str(name), names)}"
                )
