"""What an evaluation gives back: a value, an interval, and the checks that say whether to believe it.

Everything here is plain data. An `Estimate` survives a trip through JSON; the function behind `value_at` is
kept in memory only and is stored apart (`bcrl.saved`).
"""

import dataclasses
import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save
from scipy import stats

from bcrl import display
from bcrl.conform import conform
from bcrl.data.storage.template import template_spec
from bcrl.errors import BadInput
from bcrl.opening import parse_json
from bcrl.sealed import seal_folder
from bcrl.writing import make_folder, writing_into

FloatArray = NDArray[np.float64]
Observations = NDArray[Any] | Mapping[str, NDArray[Any]]
Verdict = Literal["trust", "caution", "distrust"]
_ORDER: dict[Verdict, int] = {"trust": 0, "caution": 1, "distrust": 2}


class Status(StrEnum):
    """How the computation ended. The text after the name is what a report prints."""

    CONVERGED = "converged"
    HORIZON = "horizon"
    LIMIT = "limit"
    DIVERGED = "diverged"
    DEGENERATE = "degenerate"

    @classmethod
    def _missing_(cls, value: object) -> "Status | None":
        return cls.LIMIT if value == "budget" else None  # its name in files of 0.1

    @property
    def meaning(self) -> str:
        return {
            "converged": "The computation finished.",
            "horizon": "The computation covers the horizon that was asked for.",
            "limit": "The step limit was reached before the value was flat: the value may still move.",
            "diverged": "The iteration blew up: the number is not a value.",
            "degenerate": "The method's weights or features collapsed: the number rests on almost no data.",
        }[self.value]


@dataclass(frozen=True)
class Interval:
    """Lower and upper end, the level that they promise, and the degrees of freedom of its t quantile (None:
    normal).
    """

    low: float
    high: float
    level: float = 0.95
    degrees_of_freedom: float | None = None

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Check:
    """One reason to believe or to doubt: a measured value, its threshold, and a sentence for a person.

    Attributes:
        binding: the estimate's verdict is never better than this check's. Where there is a budget only the
            log's own faults bind; a method's diagnostics are shown beside it.
    """

    name: str
    value: float | None
    threshold: float | None
    verdict: Verdict
    meaning: str
    binding: bool = True


@dataclass(frozen=True)
class NextStep:
    """One thing that can be said or done where a value is not trusted (docs/next_steps.md).

    Attributes:
        name: bounds, followed, guarded, blend or trial.
        text: for a person.
        numbers: for machines; None for what does not exist.
        verdict: of a guarded policy's value.
    """

    name: str
    text: str
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    verdict: Verdict | None = None


# The rules of the verdict: the honest interval's half width, as a share of max(|value|, scale).
TRUST_WIDTH, DISTRUST_WIDTH = 0.10, 0.30


@dataclass(frozen=True)
class Entry:
    """One line of the error budget.

    Attributes:
        name: what may be wrong.
        amount: by how much, in the reward's own unit, the budget's multiplier included.
        meaning: what was measured, for a person.
        remedy: what would make it smaller.
    """

    name: str
    amount: float
    meaning: str
    remedy: str


@dataclass(frozen=True)
class Budget:
    """All that can make a value wrong, added up (docs/verdict.md).

    Attributes:
        entries: largest first; their amounts add up to the honest interval's half width.
        honest: value +- that sum.
        scale: the log's mean discounted sum of |reward|.
        multiplier: what the plain sum of the entries was multiplied by, from the proving ground.
    """

    entries: tuple[Entry, ...]
    honest: Interval
    scale: float
    multiplier: float

    @property
    def half(self) -> float:
        """Half the honest 95 % interval, whatever level was asked for: verdicts do not depend on it."""
        asked = (self.honest.high - self.honest.low) / 2.0
        if self.honest.level == 0.95:
            return asked
        return asked * float(stats.norm.ppf(0.975) / stats.norm.ppf(0.5 + self.honest.level / 2.0))

    def width(self, value: float) -> float:
        """The honest 95 % interval's half width as a share of max(|value|, scale)."""
        size = max(abs(value), self.scale)
        return self.half / size if size > 0.0 else math.inf

    def verdict(self, value: float) -> Verdict:
        """Trust, caution or distrust, from the width alone."""
        return verdict_at(self.width(value))


def verdict_at(width: float) -> Verdict:
    """The verdict's rule: from the honest half width as a share of max(|value|, scale)."""
    return "trust" if width <= TRUST_WIDTH else "caution" if width <= DISTRUST_WIDTH else "distrust"


@dataclass(frozen=True)
class Theorem:
    """The right-hand side of one of the paper's theorems.

    Attributes:
        name: which one.
        terms: by name, in the reward's unit; None where something is unknown.
        largest: what a bound must stay below to say anything.
        vacuous: it does not, or the theorem's condition on the number of rows fails.
    """

    name: str
    terms: Mapping[str, float | None]
    largest: float
    vacuous: bool

    @property
    def line(self) -> str:
        """For a person."""
        known = sum(term for term in self.terms.values() if term is not None)
        missing = [name for name, term in self.terms.items() if term is None]
        least = f"at least {known:.3g} (unknown: {', '.join(missing)})" if missing else f"{known:.3g}"
        said = (
            "vacuous" if self.vacuous else "not vacuous, as far as it is known" if missing else "not vacuous"
        )
        return f"{self.name}: {least}; {said}: below {self.largest:.3g} it would say something."


@dataclass(frozen=True)
class Theory:
    """What the paper's theory says with rollouts of the policy at hand (docs/paper.md).

    Attributes:
        rollouts: how many.
        kappa: relative condition number of the start distribution, equation 1.
        mean_leverage: between kappa / d and kappa, times d.
        density_ratio: largest d^pi / nu, infinite where the log lacks what the policy does; None: no table.
        theorems: right-hand sides, with probability 95 %.
    """

    rollouts: int
    kappa: float
    mean_leverage: float
    density_ratio: float | None
    theorems: tuple[Theorem, ...]

    @property
    def lines(self) -> list[str]:
        """For the terminal and the page."""
        ratio = "unknown (no table)" if self.density_ratio is None else f"{self.density_ratio:.3g}"
        first = f"kappa(p0) {self.kappa:.3g}, largest density ratio {ratio}, from {self.rollouts} rollouts."
        return [first, *(theorem.line for theorem in self.theorems)]


def worst(verdicts: "list[Verdict]") -> Verdict:
    """The least favourable of several verdicts; without any evidence the answer is caution."""
    return max(verdicts, key=_ORDER.__getitem__, default="caution")


class ValueFunction(Protocol):
    """V(s) of the evaluated policy, anywhere; standard errors where the method has them."""

    def value(self, observations: Mapping[str, NDArray[Any]]) -> FloatArray: ...

    def standard_error(self, observations: Mapping[str, NDArray[Any]]) -> FloatArray | None: ...

    @property
    def template(self) -> Any: ...  # noqa: ANN401 - a Dataset of no rows; plain data knows no datasets

    def tensors(self) -> dict[str, NDArray[Any]]: ...

    def spec(self) -> dict[str, Any]: ...


@dataclass(frozen=True, repr=False)
class Estimate:
    """The answer for one policy by one method.

    Attributes:
        value: discounted return from the start states, in the reward's own unit.
        method: the method's text form, e.g. ``LSPE(BellmanComplete())``.
        discount: discount of the value.
        horizon: number of steps that the value covers; None for the whole future.
        interval: confidence interval of `value` for the sampling of data and start states; None where the
            method has none.
        standard_error: standard error behind the interval.
        per_start: V(s0) at every start state, shape (n0,).
        influence: contribution of each independent unit (cluster, else episode) to the error of `value`,
            shape (units,); their squares add up to the variance, so differences between policies can be
            paired. A method that trains several times adds the part of each training, shape (units +
            trainings,).
        budget: all that can make the value wrong, and the honest interval; None where nobody made it.
        theory: kappa(p0) and the theorems' bounds, where rollouts of the policy were given.
        status: how the computation ended.
        checks: the log's faults and the method's own diagnostics.
        curves: named series for plots (LSPE value per iteration, singular values, training losses).
        stats: named numbers for machines.
        timings: seconds by stage.
        provenance: versions, seed, hashes, method.
        next_steps: what can be said and done where the value is not trusted.
        value_function: V(s) anywhere; in memory only.
    """

    value: float
    method: str
    discount: float
    horizon: int | None = None
    interval: Interval | None = None
    standard_error: float | None = None
    per_start: FloatArray = field(default_factory=lambda: np.zeros(0))
    influence: FloatArray | None = None
    budget: Budget | None = None
    theory: Theory | None = None
    status: Status = Status.CONVERGED
    checks: tuple[Check, ...] = ()
    curves: Mapping[str, list[float]] = field(default_factory=dict)
    stats: Mapping[str, float] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    next_steps: tuple[NextStep, ...] = ()
    value_function: ValueFunction | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        return display.line_of(self)

    def _repr_html_(self) -> str:
        return display.html([display.row_of(self)])

    def to_frame(self) -> Any:  # noqa: ANN401 - a pandas table
        """One row: value, both intervals, verdict, first reason. Needs pandas."""
        return display.frame([display.row_of(self)])

    def plot(self, ax: Any = None) -> Any:  # noqa: ANN401 - matplotlib's axes
        """Value and intervals, drawn; gives matplotlib's axes back."""
        return display.draw([("policy", self)], ax)

    @property
    def verdict(self) -> Verdict:
        """From the honest interval's width, never better than a check that binds.

        Without a budget the worst of the checks; a value that is not finite is never trusted.
        """
        if not math.isfinite(self.value) or self.status in (Status.DIVERGED, Status.DEGENERATE):
            return "distrust"
        checked = [check.verdict for check in self.checks if check.binding]
        return worst(checked if self.budget is None else [self.budget.verdict(self.value), *checked])

    @property
    def reasons(self) -> list[str]:
        """Why the verdict is not better, worst first; for a trusted value, what was checked."""
        doubts = [c for c in self.checks if c.verdict != "trust" and c.binding] or list(self.checks)
        ranked = sorted(doubts, key=lambda c: -_ORDER[c.verdict])
        said = [] if self.status in (Status.CONVERGED, Status.HORIZON) else [self.status.meaning]
        if self.budget is None:
            return said + [check.meaning for check in ranked]
        faults = [check.meaning for check in ranked if check.binding and check.verdict != "trust"]
        return said + faults + [f"{one.meaning} {one.remedy}" for one in self.budget.entries[:3]]

    def value_at(
        self, observations: Observations, interval: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray, FloatArray]:
        """V(s) at any observations, shape (n,); with `interval` also the lower and upper ends.

        Args:
            observations: one array, or a dict of arrays with the dataset's keys (pixels already stacked).
            interval: also return the ends of each state's own confidence interval.
        """
        if self.value_function is None:
            raise BadInput(
                f"{self.method} gives one number and no value function, or this estimate was read from JSON "
                "alone. "
                "Use a method with V(s) (LSPE, FQE), or load the saved folder with bcrl.load_estimate."
            )
        keyed = observations if isinstance(observations, Mapping) else {"": observations}
        values = self.value_function.value(keyed)
        if not interval:
            return values
        error = self.value_function.standard_error(keyed)
        if error is None:
            raise BadInput(f"{self.method} has no per-state interval; call value_at without interval=True.")
        reach = self._reach()
        return values, values - reach * error, values + reach * error

    def _reach(self) -> float:
        """Standard errors that the value's interval reaches to either side, for those of single states."""
        known = Interval(0.0, 0.0) if self.interval is None else self.interval
        if known.degrees_of_freedom is None and self.interval is not None and self.standard_error:
            return (self.interval.high - self.value) / self.standard_error  # written by 0.1, which kept none
        degrees = math.inf if known.degrees_of_freedom is None else known.degrees_of_freedom
        return float(stats.t.ppf(0.5 + known.level / 2.0, degrees))

    def to_json(self) -> str:
        """The estimate as JSON text; `value_function` is left out."""
        record = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "value_function"
        }
        record["verdict"], record["reasons"] = self.verdict, self.reasons
        return json.dumps(record, default=plain, allow_nan=True)

    def save(self, folder: str | Path) -> Path:
        """Write the estimate and its value function into a folder, which appears whole or not at all.

        `bcrl.load_estimate` reads it back. Nothing in it runs code, so a policy that came as a callable is
        not in it.
        """
        folder = Path(folder)
        aside = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(aside, ignore_errors=True)
        make_folder(aside)
        with writing_into(aside):
            self._write(aside)
            shutil.rmtree(folder, ignore_errors=True)
            aside.rename(folder)
        return folder

    def _write(self, aside: Path) -> None:
        (aside / "estimate.json").write_text(self.to_json(), encoding="utf-8")
        if self.value_function is not None:
            function = self.value_function
            kept = {"template": template_spec(function.template), "policy": _copy_policy(function, aside)}
            (aside / "value.json").write_text(json.dumps(function.spec() | kept), encoding="utf-8")
            tensors = {name: np.ascontiguousarray(value) for name, value in function.tensors().items()}
            (aside / "value.safetensors").write_bytes(save(tensors))
        seal_folder(aside, [path.name for path in aside.iterdir()])

    @classmethod
    def from_json(cls, text: str) -> "Estimate":
        """The estimate that `to_json` wrote, without its value function."""
        return cls.from_record(parse_json(text, "The text", "an estimate that bcrl wrote"), "The estimate")

    @classmethod
    def from_record(cls, record: Any, where: str) -> "Estimate":  # noqa: ANN401 - JSON's own type
        """The estimate of a JSON object; `where` names it in messages."""
        hints = {f.name for f in dataclasses.fields(cls)} - {"value_function"} | {"verdict", "reasons"}
        if not isinstance(record, dict) or not set(record) <= hints:
            raise BadInput(f"{where} is not an estimate that bcrl wrote. Was it edited, or is it damaged?")
        kept = {name: value for name, value in record.items() if name not in ("verdict", "reasons")}
        estimate: Estimate = conform(kept, cls, where)
        _check_ranges(estimate, where)
        return estimate


def _check_ranges(estimate: Estimate, where: str) -> None:
    """Numbers that could not come out of any evaluation."""
    level = 0.5 if estimate.interval is None else estimate.interval.level
    if not 0.0 < level < 1.0 or not 0.0 <= estimate.discount <= 1.0 or (estimate.horizon or 1) < 1:
        raise BadInput(
            f"{where} says discount {estimate.discount}, horizon {estimate.horizon}, level {level}, which no "
            "evaluation has. Was it edited, or is it damaged?"
        )


def _copy_policy(function: ValueFunction, folder: Path) -> dict[str, Any] | None:
    """Copy the policy's file into the folder where it has one that cannot run code; its name there and how
    to load it.
    """
    policy = getattr(function, "policy", None)
    path, told = getattr(policy, "path", None), dict(getattr(policy, "loaded_with", {}))
    if path is None or Path(path).suffix.lower() not in (".onnx", ".safetensors") or "stats" in told:
        return None
    content = Path(path).read_bytes()
    if hashlib.sha256(content).hexdigest() != getattr(policy, "digest", None):
        raise BadInput(
            f"{path} has changed since the policy was loaded from it; the estimate is about the old file."
        )
    name = f"policy{Path(path).suffix.lower()}"
    (folder / name).write_bytes(content)
    return {"file": name, "options": told}


def plain(value: object) -> Any:  # noqa: ANN401 - JSON's own type
    """What JSON has no word for, in words it has: arrays, numpy numbers, mappings, dataclasses."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


def short_call(recipe: Any) -> str:  # noqa: ANN401 - any dataclass of settings
    """`Name(field=value)` with the fields that differ from their defaults; bcrl/methods.py reads such text.

    A recipe that a recipe begins with is always shown, without its name: `LSPE(BellmanComplete(dim=64))`.
    """
    shown = []
    for number, one in enumerate(dataclasses.fields(recipe)):
        value = getattr(recipe, one.name)
        if number == 0 and dataclasses.is_dataclass(value):
            shown.append(repr(value))
        elif one.default_factory is not dataclasses.MISSING and value == one.default_factory():
            continue
        elif value != one.default:
            shown.append(f"{one.name}={value!r}")
    return f"{type(recipe).__name__}({', '.join(shown)})"
