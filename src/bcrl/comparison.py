"""What `compare` gives back: every policy by every method beside the logged policy, as plain data.

A `Comparison` holds all that the report shows, so a page can be rebuilt from its JSON with no dataset, policy
or network. NaN and infinity are written as Python's JSON writes them (``NaN``, ``Infinity``) and survive the
trip.
"""

import base64
import dataclasses
import json
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from bcrl import display
from bcrl.conform import conform
from bcrl.errors import BadInput
from bcrl.estimate import Check, Estimate, Interval, NextStep, Verdict, plain, worst
from bcrl.opening import parse_json, plain_file
from bcrl.sealed import sealed_json, unsealed_json
from bcrl.writing import atomic_write

_EXPECTED = "what bcrl compare wrote"
_RANK: dict[Verdict, int] = {"trust": 0, "caution": 1, "distrust": 2}


Decision = Literal["better", "worse", "cannot tell"]


@dataclass(frozen=True)
class Difference:
    """A policy's value minus the logged policy's, or minus another policy's.

    Attributes:
        value: the difference, in the reward's own unit.
        interval: two-sided confidence interval of the difference, for sampling alone.
        lower_bound: one-sided lower bound, for sampling alone: the difference is above it with the confidence
            that is the interval's level.
        probability_better: probability that the difference is positive, for sampling alone.
        paired: the interval used that both values come from the same episodes.
        decision: better or worse where zero lies outside `honest`; None where there is no honest interval.
        probability: probability that the difference is positive, by the honest intervals of both values.
        honest: 95 % interval of the difference from the honest intervals, wide enough to hold for all of the
            compared policies together (docs/verdict.md).
    """

    value: float
    interval: Interval | None = None
    lower_bound: float | None = None
    probability_better: float | None = None
    paired: bool = False
    decision: Decision | None = None
    probability: float | None = None
    honest: Interval | None = None


@dataclass(frozen=True)
class Choice:
    """The policy with the highest value by one method, and what it is worth after having been chosen.

    Attributes:
        winner: that policy.
        value: its value less `surplus`.
        surplus: by how much the highest of these values is too high on average, because it was chosen.
        lower_bound: of the winner's value; it holds whichever of the policies wins.
        best: by policy: probability of the highest value, by the honest intervals.
        pairs: by policy, then by each policy of a lower value: the difference of the two, with its decision.
    """

    winner: str
    value: float
    surplus: float
    lower_bound: float
    best: Mapping[str, float]
    pairs: Mapping[str, Mapping[str, Difference]]


@dataclass(frozen=True)
class Cohort:
    """One policy in one group of episodes, from that group's episodes alone.

    Attributes:
        name: of the group.
        policy: which policy.
        episodes: how many the group has.
        value: the policy's value there; None where the group is too small.
        interval: the honest one.
        verdict: on that value.
        logged: what the group's own episodes earned; None where that cannot be compared.
        difference: value minus logged, with a decision that holds for all groups and policies together.
        reason: the first reason for the verdict.
    """

    name: str
    policy: str
    episodes: int
    value: float | None = None
    interval: Interval | None = None
    verdict: Verdict = "caution"
    logged: float | None = None
    difference: Difference | None = None
    reason: str = ""


class FindingRecord(TypedDict, total=False):
    """What the doctor found, as the page shows it."""

    level: str
    what: str
    where: str
    do: str


class Summary(TypedDict, total=False):
    """What the page says about the dataset; every entry may be absent."""

    name: str
    episodes: int
    transitions: int
    longest_episode: int
    keys: dict[str, list[int]]
    reward_range: list[float]
    hash: str
    actions: list[str]
    findings: list[FindingRecord]
    frames: list[str]


@dataclass(frozen=True, repr=False)
class Comparison:
    """Policies by methods, with the logged policy beside them.

    Attributes:
        estimates: by policy name, then by method name; the first method listed is the one the user put first.
        logged: value of the policy that made the data, from its own returns; None when nobody computed it.
        differences: policy minus logged policy, by policy, then method.
        withheld: why there are no differences, where the logged returns are not comparable; else empty.
        probability_best: by method, then policy: probability that this policy has the highest value.
        episodes_to_halve: by policy, then method: episodes needed in all for an interval of half the width.
        checks: by policy: methods that disagree beyond their intervals.
        choices: by method: the winner of several policies; absent where fewer than two have a budget. Its
            probabilities count everything, those of `probability_best` sampling alone.
        next_steps: by policy whose value is not trusted, or not decided: what can be said and done.
        cohorts: every policy in every group of episodes, worst first; empty for a log without groups.
        truth: by policy, where known: ``{"value": ..., "standard_error": ...}``.
        dataset: summary: ``name, episodes, transitions, keys {key: shape}, reward_range [low, high], hash,
            findings [{level, what, where, do}], frames [base64 PNG]``; every entry may be absent.
        discount: discount of all values.
        horizon: steps that the values cover; None for the whole future.
        level: what the intervals promise.
        command: the command or call that made this.
        title: of the page; empty for the data's name.
        versions: package name to version.
        seed: the one seed that all randomness came from.
    """

    estimates: Mapping[str, Mapping[str, Estimate]]
    logged: Estimate | None = None
    differences: Mapping[str, Mapping[str, Difference]] = field(default_factory=dict)
    withheld: str = ""
    probability_best: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    episodes_to_halve: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    checks: Mapping[str, tuple[Check, ...]] = field(default_factory=dict)
    choices: Mapping[str, Choice] = field(default_factory=dict)
    next_steps: Mapping[str, tuple[NextStep, ...]] = field(default_factory=dict)
    cohorts: tuple[Cohort, ...] = ()
    truth: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    dataset: Mapping[str, Any] = field(default_factory=dict)
    discount: float | None = None
    horizon: int | None = None
    level: float = 0.95
    command: str = ""
    title: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None

    @classmethod
    def of(cls, estimate: Estimate, *, policy: str = "policy", method: str | None = None) -> "Comparison":
        """A single answer of `evaluate` in the form that the report reads."""
        return cls(
            estimates={policy: {method if method is not None else estimate.method: estimate}},
            next_steps={policy: estimate.next_steps} if estimate.next_steps else {},
            discount=estimate.discount,
            horizon=estimate.horizon,
            level=0.95 if estimate.interval is None else estimate.interval.level,
            seed=estimate.provenance.get("seed"),
        )

    def __repr__(self) -> str:
        return "\n".join(display.line_of(e, f"{p} by {m}: ") for p, m, e in self._rows())

    def _repr_html_(self) -> str:
        return display.html([display.row_of(e, policy=p, method=m) for p, m, e in self._rows()])

    def to_frame(self) -> Any:  # noqa: ANN401 - a pandas table
        """One row for each policy and method, the best policy first. Needs pandas."""
        rows = []
        for policy, method, estimate in self._rows():
            row = display.row_of(estimate, policy=policy, method=method)
            difference = self.differences.get(policy, {}).get(method)
            choice = self.choices.get(method)
            row["against log"] = None if difference is None else difference.value
            row["decision"] = None if difference is None else difference.decision
            row["probability best"] = None if choice is None else choice.best.get(policy)
            rows.append(row)
        return display.frame(rows)

    def plot(self, ax: Any = None) -> Any:  # noqa: ANN401 - matplotlib's axes
        """Values and intervals of all policies and methods, and the logged policy; gives the axes back."""
        return display.draw([(f"{p} by {m}", e) for p, m, e in self._rows()], ax, self.logged)

    def _rows(self) -> list[tuple[str, str, Estimate]]:
        order = self.ranking()[1]
        return [(p, m, self.estimates[p][m]) for p in order for m in self.methods if m in self.estimates[p]]

    def ranking(self) -> tuple[str, list[str]]:
        """The one method by which all policies are ranked, and the policies, best first.

        The method is the one whose worst verdict over the policies is best; the earlier one on a tie. Values
        that are not finite come last.
        """
        shared = [m for m in self.methods if all(m in row for row in self.estimates.values())]
        method = min(
            shared or self.methods,
            key=lambda m: max(_RANK[row[m].verdict] for row in self.estimates.values() if m in row),
        )
        values = {p: row[method].value if method in row else math.nan for p, row in self.estimates.items()}
        return method, sorted(values, key=lambda p: -values[p] if math.isfinite(values[p]) else math.inf)

    @property
    def policies(self) -> list[str]:
        return list(self.estimates)

    @property
    def methods(self) -> list[str]:
        """Method names in the order in which they first appear."""
        return list(dict.fromkeys(method for row in self.estimates.values() for method in row))

    def headline(self, policy: str) -> tuple[str, Verdict]:
        """The method that speaks for this policy and the verdict on it.

        The best supported method speaks, the earlier one on a tie; methods that disagree with one another
        beyond their intervals weaken the verdict.
        """
        row = self.estimates[policy]
        method = min(row, key=lambda name: _RANK[row[name].verdict])
        doubts = [check.verdict for check in self.checks.get(policy, ())]
        return method, worst([row[method].verdict, *doubts])

    def to_json(self) -> str:
        """The comparison as JSON text; value functions are left out."""
        record = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return json.dumps({"kind": "comparison", **record}, default=_plain)

    @classmethod
    def from_json(cls, text: str) -> "Comparison":
        """The comparison that `to_json` wrote. The JSON of a single estimate is taken as well."""
        return cls._read(parse_json(text, "The text", _EXPECTED))

    @classmethod
    def _read(cls, record: Any) -> "Comparison":  # noqa: ANN401 - JSON's own type
        if not isinstance(record, dict) or not {"estimates", "per_start"} & set(record):
            raise BadInput("This JSON holds no comparison and no estimate; expected what bcrl compare wrote.")
        try:
            if "estimates" not in record:
                return cls.of(Estimate.from_record(record, "The estimate"))
            return _comparison({name: value for name, value in record.items() if name != "kind"})
        except BadInput as error:
            raise BadInput(
                f"This JSON is not a complete comparison: {error} "
                "Was it edited, or written by another version of bcrl? Run bcrl compare again."
            ) from error

    def save(self, path: str | Path) -> Path:
        """Write the JSON, whole or not at all."""
        path = Path(path)
        with atomic_write(path) as file:
            file.write(sealed_json(self.to_json()).encode())
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Comparison":
        """The comparison in a file that `save` wrote."""
        path = Path(path)
        content = plain_file(path).read_bytes()
        try:
            return cls._read(unsealed_json(content.decode("utf-8"), "The file", _EXPECTED))
        except UnicodeDecodeError as error:
            raise BadInput(f"{str(path)!r} is not text. Expected the JSON of bcrl compare.") from error
        except BadInput as error:
            raise BadInput(f"{str(path)!r}: {error}") from error


def picture(frame: NDArray[np.uint8]) -> str:
    """A uint8 image, (height, width) or (height, width, 1 or 3), as base64 PNG text for the report."""
    image = frame[..., None] if frame.ndim == 2 else frame
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3):
        raise BadInput(f"A picture is uint8 (height, width, 1 or 3); got {frame.dtype} {frame.shape}.")
    height, width, channels = image.shape
    # Column 0 is PNG's filter of the row; 0 means none.
    rows = np.zeros((height, 1 + width * channels), dtype=np.uint8)
    rows[:, 1:] = image.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode("ascii")


def _comparison(record: dict[str, Any]) -> Comparison:
    estimates = conform(record["estimates"], dict[str, dict[str, Any]], "estimates")
    rest = {name: value for name, value in record.items() if name not in ("estimates", "logged")}
    table: Comparison = conform({**rest, "estimates": {}}, Comparison, "The comparison")
    logged = record.get("logged")
    if not 0.0 < table.level < 1.0:
        raise BadInput(f"The comparison says level {table.level}; expected a number between 0 and 1.")
    summary: Summary = conform(dict(table.dataset), Summary, "dataset")
    if len(summary.get("reward_range", (0, 0))) not in (0, 2):
        raise BadInput("dataset.reward_range is no pair of numbers.")
    return dataclasses.replace(
        table,
        dataset=dict(summary),
        estimates={
            policy: {
                method: Estimate.from_record(one, f"estimates.{policy}.{method}")
                for method, one in row.items()
            }
            for policy, row in estimates.items()
        },
        logged=None if logged is None else Estimate.from_record(logged, "logged"),
    )


def _plain(value: object) -> Any:  # noqa: ANN401 - JSON's own type
    return json.loads(value.to_json()) if isinstance(value, Estimate) else plain(value)
