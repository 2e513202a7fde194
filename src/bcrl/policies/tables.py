"""Policies for tables: scikit-learn estimators and pipelines, functions of a DataFrame, lookup tables.

What each answers depends on the log's own columns and action names, so it becomes a policy when it meets the
log (`bind`). No library is imported: an estimator is known by `predict`, a table by its columns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Dataset
from bcrl.data.layout import FrameKind, frame_kind
from bcrl.errors import BadInput, did_you_mean
from bcrl.policies.kinds import MISTAKES, Deterministic, Discrete
from bcrl.policies.policy import AnyPolicy, Options, Reads, by_label

Answer = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class EstimatorPolicy:
    """A fitted estimator or pipeline; its actions are what it predicts.

    `predict` is the policy, as it is when an estimator decides. With `stochastic=True` or
    `output="probabilities"` an action is drawn as `predict_proba` says.
    """

    model: Any
    options: Options

    @property
    def reads(self) -> Reads:
        return None

    @property
    def drawn(self) -> bool:
        """Whether actions are drawn by their probabilities."""
        return self.options.stochastic or self.options.output == "probabilities"

    def bind(self, dataset: Dataset) -> AnyPolicy:
        """The policy on this log."""
        name, see = type(self.model).__name__, _Seen.of(self.model, dataset, self.options.reads)
        source: dict[str, Any] = {**self.options.source(), "notes": self._notes(dataset)}
        if self.drawn:
            ask = self._ask("predict_proba", name)
            places = _places(self.model, dataset, name)
            fitted = see.fitting(ask)
            return Discrete(respond=lambda seen: _spread(ask(fitted(seen)), places, dataset), **source)
        ask = self._ask("predict", name)
        fitted = see.fitting(ask)
        return Deterministic(respond=lambda seen: numbered(ask(fitted(seen)), dataset), **source)

    def _ask(self, method: str, name: str) -> Answer:
        found: Answer | None = getattr(self.model, method, None)
        if found is None:
            raise BadInput(f"{name} has no {method}; leave stochastic=True or output= out, or take another.")
        return found

    def _notes(self, dataset: Dataset) -> tuple[str, ...]:
        if self.drawn or not dataset.discrete or not hasattr(self.model, "predict_proba"):
            return ()
        return (
            "The policy takes the action that the classifier predicts. If it is meant to draw actions by "
            "predict_proba, load it with bcrl.load_policy(model, stochastic=True).",
        )


@dataclass(frozen=True, eq=False)
class LookupPolicy:
    """A table of decisions: observation -> action, or -> {action: probability}.

    Keys are values of one column, or tuples of several, those that `reads` names; for a log that is no table,
    the observation's own numbers.
    """

    entries: Mapping[Any, Any]
    columns: tuple[str, ...] | None
    options: Options

    @property
    def reads(self) -> Reads:
        return None

    def bind(self, dataset: Dataset) -> AnyPolicy:
        """The policy on this log."""
        columns = self.columns or _as_tuple(self.options.reads)
        rows = _keys_of(dataset, columns)
        source = self.options.source()
        if any(isinstance(answer, Mapping) for answer in self.entries.values()):
            return Discrete(respond=lambda seen: self._mixed(rows(seen), dataset), **source)
        return Deterministic(
            respond=lambda seen: numbered(np.asarray([self._at(key) for key in rows(seen)]), dataset),
            **source,
        )

    def _at(self, key: Any) -> Any:  # noqa: ANN401 - whatever the table holds
        if key not in self.entries:
            known = ", ".join(map(str, list(self.entries)[:5]))
            raise BadInput(f"The lookup table has no entry for {key!r}; it has {known}, ... Add one for it.")
        return self.entries[key]

    def _mixed(self, keys: list[Any], dataset: Dataset) -> NDArray[np.float64]:
        table = np.zeros((len(keys), dataset.action_dim))
        for row, key in enumerate(keys):
            found = self._at(key)
            shares = found if isinstance(found, Mapping) else {found: 1.0}
            for action, share in shares.items():
                table[row, int(numbered(np.asarray([action]), dataset)[0])] = float(share)
        return table


@dataclass(frozen=True, eq=False)
class _Seen:
    """What an estimator is shown of the log's observations.

    Attributes:
        names: the columns that it was fitted on; None where it was fitted on arrays, which it then gets.
    """

    dataset: Dataset
    names: tuple[str, ...] | None
    kind: FrameKind | None

    @classmethod
    def of(cls, model: Any, dataset: Dataset, reads: Reads) -> "_Seen":  # noqa: ANN401
        fitted = getattr(model, "feature_names_in_", None)
        names = tuple(map(str, fitted)) if fitted is not None else _as_tuple(reads)
        if names is None or dataset.table is None:
            if names is not None and fitted is not None:
                raise BadInput(
                    f"{type(model).__name__} was fitted on the columns {', '.join(names[:8])}, and this log "
                    "is no table. Pass the table itself as the dataset, or a function that calls the model."
                )
            return cls(dataset, None, None)
        lacking = [name for name in names if name not in dataset.table.names]
        if lacking:
            raise BadInput(
                f"{type(model).__name__} reads {', '.join(map(repr, lacking))}, which {_are(lacking)} among "
                f"the log's observations. {did_you_mean(lacking[0], dataset.table.names)} Add "
                "columns={'observation': [...]} with every column that it reads."
            )
        return cls(dataset, names, "pandas" if frame_kind(None) == "pandas" else None)

    def fitting(self, ask: Answer) -> Answer:
        """Observations as the model takes them: with gaps where the data had them, if it takes gaps."""
        layout = self.dataset.table
        if layout is None:
            return lambda seen: seen
        if self.names is None:
            wide = len(layout.columns)
            plain = all(column.width == 1 for column in layout.columns)
            if not plain:
                return lambda seen: seen
            places = [column.first for column in layout.columns]
            return lambda seen: np.asarray(seen)[:, places] if np.asarray(seen).shape[1] != wide else seen
        shown = self._frames(gaps=True)
        if layout.gapped and not self._takes_gaps(ask, shown):
            return self._frames(gaps=False)
        return shown

    def _frames(self, gaps: bool) -> Answer:
        layout = self.dataset.table
        assert layout is not None
        return lambda seen: layout.frame(seen, gaps=gaps, names=self.names, kind=self.kind)

    def _takes_gaps(self, ask: Answer, shown: Answer) -> bool:
        """Whether the model answers about two rows, in one of which all that can be missing is."""
        layout = self.dataset.table
        assert layout is not None
        rows = np.repeat(
            np.asarray(self.dataset.observations["observation"][:1], dtype=np.float64), 2, axis=0
        )
        for place in (column.gap for column in layout.columns if column.gap is not None):
            rows[:, place] = (0.0, 1.0)
        try:
            ask(shown(rows))
        except MISTAKES:
            return False
        return True


def frame_function(function: Answer, dataset: Dataset, options: Options) -> AnyPolicy | None:
    """The policy that a function of a table is; None where it does not answer about this log as a table."""
    layout = dataset.table
    if layout is None:
        return None
    few = np.asarray(dataset.observations["observation"][:2])
    try:
        answer = np.asarray(function(layout.frame(few)))
    except (*MISTAKES, BadInput):
        return None
    if answer.ndim == 0 or len(answer) != len(few):
        return None
    source: dict[str, Any] = options.source()
    if options.output == "probabilities":
        return Discrete(respond=lambda seen: np.asarray(function(layout.frame(seen))), **source)
    return Deterministic(respond=lambda seen: numbered(function(layout.frame(seen)), dataset), **source)


def lookup(source: Any, options: Options) -> LookupPolicy:  # noqa: ANN401 - a mapping or a table
    """A lookup policy from a dict, or from a table with an `action` column (and a `probability` column)."""
    if isinstance(source, Mapping):
        if not source:
            raise BadInput("The lookup table is empty; expected {observation: action}.")
        return LookupPolicy(dict(source), None, options)
    from bcrl.data.sources.tables import in_memory

    table = in_memory(source)
    names = [name for name in table.column_names if name not in ("action", "probability")]
    if "action" not in table.column_names or not names:
        raise BadInput(
            f"A table of decisions needs an 'action' column beside the columns that it reads; it has "
            f"{', '.join(table.column_names)}."
        )
    columns = [table[name].to_pylist() for name in names]
    keys = list(zip(*columns, strict=True)) if len(names) > 1 else columns[0]
    actions = table["action"].to_pylist()
    if "probability" not in table.column_names:
        return LookupPolicy(dict(zip(keys, actions, strict=True)), tuple(names), options)
    entries: dict[Any, dict[Any, float]] = {}
    for key, action, share in zip(keys, actions, table["probability"].to_pylist(), strict=True):
        entries.setdefault(key, {})[action] = share
    return LookupPolicy(entries, tuple(names), options)


def numbered(actions: Any, dataset: Dataset) -> Array:  # noqa: ANN401 - whatever the user's code returned
    """Actions as the log numbers them: names become numbers, where the log has names."""
    given = np.asarray(actions)
    if dataset.num_actions is None:
        return given.reshape(len(given), *dataset.actions.shape[1:])
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    return by_label(dataset, given)


def _places(model: Any, dataset: Dataset, name: str) -> NDArray[np.int64]:  # noqa: ANN401
    """The log's number of each of the classifier's classes."""
    classes = getattr(model, "classes_", None)
    if classes is None or not dataset.discrete:
        raise BadInput(f"{name} has no classes_, or the logged actions are no classes; is it for other data?")
    places = numbered(np.asarray(classes), dataset).astype(np.int64)
    if places.min() < 0 or places.max() >= dataset.action_dim:
        raise BadInput(
            f"{name} knows the actions {list(classes)[:8]}; the log has {dataset.num_actions}, numbered from "
            "0. Pass num_actions= with the data if the log lacks some."
        )
    return places


def _spread(scores: Any, places: NDArray[np.int64], dataset: Dataset) -> NDArray[np.float64]:  # noqa: ANN401
    """Probabilities of the classes, at the log's numbers of the actions."""
    given = np.asarray(scores, dtype=np.float64)
    table = np.zeros((len(given), dataset.action_dim))
    table[:, places] = given
    return table


def _keys_of(dataset: Dataset, columns: tuple[str, ...] | None) -> Callable[[Any], list[Any]]:
    """Observations as keys of a lookup table."""
    layout = dataset.table
    if layout is not None:
        names = columns or tuple(layout.names)
        lacking = [name for name in names if name not in layout.names]
        if lacking:
            raise BadInput(
                f"The lookup table reads {lacking[0]!r}, which is not among the log's observations. "
                f"{did_you_mean(lacking[0], layout.names)}"
            )
        known = {column.name: column for column in layout.columns}

        def by_column(seen: Any) -> list[Any]:  # noqa: ANN401 - one array
            wide = np.asarray(seen, dtype=np.float64)
            parts = [known[name].values(wide, True).tolist() for name in names]
            return list(zip(*parts, strict=True)) if len(parts) > 1 else parts[0]

        return by_column

    def by_number(seen: Any) -> list[Any]:  # noqa: ANN401 - one array
        flat = np.asarray(seen).reshape(len(seen), -1)
        return flat[:, 0].tolist() if flat.shape[1] == 1 else [tuple(row) for row in flat.tolist()]

    return by_number


def _as_tuple(reads: Reads) -> tuple[str, ...] | None:
    return (reads,) if isinstance(reads, str) else reads


def _are(names: list[str]) -> str:
    return "is not" if len(names) == 1 else "are not"
