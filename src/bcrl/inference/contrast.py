"""Estimates beside one another: differences, the best of several, agreement between methods.

Estimates from the same episodes share their luck. Each carries its influence, the contribution of every independent
unit to its error, whose squares add up to its variance: the error of a difference is that of the difference of influences.
"""

import math
from collections.abc import Mapping
from itertools import combinations

import numpy as np
from scipy import stats

from bcrl import salts
from bcrl.comparison import Difference
from bcrl.estimate import Check, Estimate, FloatArray, Interval
from bcrl.inference.intervals import degrees_of_freedom, interval_around


def difference_to(estimate: Estimate, base: Estimate, level: float = 0.95) -> Difference:
    """`estimate` minus `base`, paired where both know the same units, else as if independent.

    `level` is that of the two-sided interval and of the one-sided lower bound.
    """
    value = estimate.value - base.value
    shared, trainings = _aligned([estimate, base]), max(_trainings(estimate), _trainings(base))
    paired = shared is not None
    if shared is not None:
        gap = shared[0] - shared[1]
        error: float | None = float(np.linalg.norm(gap))
        degrees = degrees_of_freedom(gap, trainings)
    elif estimate.standard_error is not None and base.standard_error is not None:
        error = math.hypot(estimate.standard_error, base.standard_error)
        degrees = _degrees(base)
    else:
        error, degrees = None, 1
    if error is None or not math.isfinite(error) or not math.isfinite(value):
        return Difference(value, paired=paired)
    one_sided = float(stats.t.ppf(level, degrees))
    return Difference(
        value=value,
        interval=interval_around(value, error, degrees, level),
        lower_bound=value - one_sided * error,
        probability_better=float(stats.t.cdf(value / error, degrees)) if error > 0.0 else float(value > 0.0),
        paired=paired,
    )


def probability_best(estimates: Mapping[str, Estimate], seed: int, draws: int = 20_000) -> dict[str, float]:
    """Share of draws from the estimates' joint normal error in which each policy has the highest value.

    Diverged values take no part; a value without an error counts as known.
    """
    names = [name for name, estimate in estimates.items() if math.isfinite(estimate.value)]
    if not names:
        return {}
    values = np.array([estimates[name].value for name in names])
    generator = np.random.default_rng([seed, salts.CONTRAST])
    samples = values + _errors([estimates[name] for name in names], draws, generator)
    wins = np.bincount(samples.argmax(axis=1), minlength=len(names)) / draws
    return {name: float(wins[names.index(name)]) if name in names else 0.0 for name in estimates}


def _errors(estimates: list[Estimate], draws: int, generator: np.random.Generator) -> FloatArray:
    """Draws of the joint error, shape (draws, policies): shared units through their influences, the rest apart."""
    influence = _aligned(estimates)
    if influence is not None:
        eigenvalues, vectors = np.linalg.eigh(influence @ influence.T)
        root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
        return np.asarray(generator.standard_normal((draws, len(estimates))) @ root.T)
    scales = np.array([e.standard_error if e.standard_error is not None else 0.0 for e in estimates])
    return np.asarray(generator.standard_normal((draws, len(estimates))) * scales)


def _degrees(base: Estimate) -> float:
    """Degrees of freedom of an unpaired difference: those of the base, whose units are known."""
    if base.influence is not None:
        return max(len(base.influence) - _trainings(base) - 1, 1)
    known = None if base.interval is None else base.interval.degrees_of_freedom
    return math.inf if known is None else known


def _trainings(estimate: Estimate) -> int:
    """Entries of the influence that belong to trainings."""
    return int(estimate.stats.get("trainings", 0))


def _aligned(estimates: list[Estimate]) -> FloatArray | None:
    """Influences one under another, shape (estimates, units + trainings); None where they do not know the same units.

    A method that trains several times adds an entry for each training behind the units'; for others these are zero.
    """
    influences = [e.influence for e in estimates if e.influence is not None]
    if len(influences) < len(estimates):
        return None
    units = {len(influence) - _trainings(e) for influence, e in zip(influences, estimates, strict=True)}
    if len(units) > 1:
        return None
    width = max(map(len, influences))
    return np.stack([np.pad(influence, (0, width - len(influence))) for influence in influences])


def episodes_to_halve(estimate: Estimate, episodes: int) -> int | None:
    """Episodes in all for half the interval; None where more episodes cannot do it.

    The data's share of the variance falls like 1 / episodes; start states that the user gave and the luck of training stay.
    """
    if estimate.standard_error is None or not math.isfinite(estimate.standard_error):
        return None
    total = estimate.standard_error**2
    fixed = float(estimate.stats.get("variance_of_given_starts", 0.0))
    fixed += float(estimate.stats.get("training_error", 0.0)) ** 2
    if total == 0.0 or fixed >= total / 4.0:
        return None
    needed = episodes * (total - fixed) / (total / 4.0 - fixed)
    return math.ceil(needed * (1.0 - 1e-12))  # a rounding error is no episode


def agreement(estimates: Mapping[str, Estimate]) -> tuple[Check, ...]:
    """Pairs of methods whose values differ by more than their intervals allow; methods already distrusted stay out."""
    believed = {
        name: e for name, e in estimates.items() if e.interval is not None and e.verdict != "distrust"
    }
    checks = []
    for (left, a), (right, b) in combinations(believed.items(), 2):
        assert a.interval is not None and b.interval is not None
        allowed = math.hypot(_half(a.interval), _half(b.interval))
        gap = abs(a.value - b.value)
        agree = gap <= allowed
        checks.append(
            Check(
                name=f"{left} and {right} agree",
                value=gap,
                threshold=allowed,
                verdict="trust" if agree else "caution",
                meaning=f"{left} says {a.value:.4g} and {right} says {b.value:.4g}: "
                + ("a difference that their intervals allow." if agree else "more apart than their intervals allow; "
                   "at least one of them is biased."),
            )
        )  # fmt: skip
    return tuple(checks)


def _half(interval: Interval) -> float:
    return (interval.high - interval.low) / 2.0
