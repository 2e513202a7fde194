"""What whole columns are like, found in one pass: words, first dates, gaps and means."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bcrl.data.convert.streams import TableStream
from bcrl.data.sources.cells import Cells, Known, cells, is_text


def column_facts(stream: TableStream, names: Sequence[str]) -> dict[str, Known]:
    """What is known of each of these columns once all rows have been seen."""
    facts = {name: _Facts(name) for name in dict.fromkeys(names)}
    for batch in stream.batches(list(facts)):
        for name, one in facts.items():
            one.see(pa.chunked_array([batch.column(name)]))
    return {name: one.known() for name, one in facts.items()}


def needs_facts(stream: TableStream, names: Iterable[str]) -> bool:
    """Whether a column of words or dates is among them: its words, its first day, must be known first."""
    kinds = [stream.schema.field(name).type for name in names]
    return any(is_text(kind) or pa.types.is_temporal(kind) or pa.types.is_null(kind) for kind in kinds)


class _Facts:
    """One column, a batch at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows = self.gaps = 0
        self.first_gap = 0
        self.origin: float | None = None
        self.sums: dict[str | None, float] = {}
        self.ordered: list[str] | None = None

    def see(self, column: Any) -> None:  # noqa: ANN401 - pyarrow has no types
        if pa.types.is_null(column.type):
            column = column.cast(pa.float64())
        part = cells(self.name, column, part=True)
        if part.gaps and not self.gaps:
            self.first_gap = self.rows + part.first_gap
        self.rows, self.gaps = self.rows + len(part.missing), self.gaps + part.gaps
        if pa.types.is_dictionary(column.type):
            self.ordered = list(dict.fromkeys([*(self.ordered or []), *part.labels]))
        there = ~part.missing
        if part.labels:
            for label, count in zip(part.labels, part.values[there].sum(axis=0), strict=True):
                self.sums[label] = self.sums.get(label, 0.0) + float(count)
        elif there.any():
            self._number(part, there)

    def _number(self, part: Cells, there: Any) -> None:  # noqa: ANN401 - flags
        if part.kind == "M":
            self.origin = part.origin if self.origin is None else min(self.origin, part.origin)
        total = float((part.values[there, 0] + part.origin).sum())
        self.sums[None] = self.sums.get(None, 0.0) + total

    def known(self) -> Known:
        labels = tuple(self.ordered if self.ordered is not None else sorted(w for w in self.sums if w))
        origin = self.origin or 0.0
        count = max(1, self.rows - self.gaps)
        each = [self.sums[label] / count for label in labels] or [self.sums.get(None, 0.0) / count - origin]
        return Known(self.rows, self.gaps, self.first_gap, labels, origin, tuple(np.asarray(each).tolist()))
