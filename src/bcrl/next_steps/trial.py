"""The next trial: how many episodes settle the question, and a comparison that may be looked at any time.

Bounded returns: betting (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting",
2024): a mean m is ruled out once the wealth of a gambler against it has reached 1 / alpha. Others: the
asymptotic confidence sequence of Waudby-Smith et al. (2024, Theorem 2.2),

    mean_t +- sd_t sqrt( (2 (t rho^2 + 1) / (t^2 rho^2)) log( sqrt(t rho^2 + 1) / alpha ) )

Both hold at all times at once, so the trial may be stopped whenever it has decided.
"""

import math
from dataclasses import dataclass

import numpy as np

from bcrl.comparison import Decision
from bcrl.errors import BadInput
from bcrl.estimate import FloatArray, Interval

_GRID = 401  # means that are bet against
_FIRST = 20  # episodes before an asymptotic sequence says anything
_BEST_AT = 100  # episodes at which it is narrowest


@dataclass(frozen=True)
class TrialState:
    """Where a trial stands.

    Attributes:
        episodes: of the new policy so far.
        mean: of their returns.
        interval: of the new policy's value, valid at any time.
        difference: of the new policy's value less the other's, valid at any time.
        decision: better or worse as soon as 0 lies outside `difference`.
    """

    episodes: int
    mean: float
    interval: Interval
    difference: Interval
    decision: Decision


def trial(
    returns: FloatArray,
    against: FloatArray,
    *,
    bounds: tuple[float, float] | None = None,
    concurrent: bool = False,
    level: float = 0.95,
) -> TrialState:
    """Where a trial stands after these returns.

    Args:
        returns: discounted returns of the new policy's episodes, in the order in which they came.
        against: those of the log, or of an arm that runs at the same time.
        bounds: least and most that an episode can return; None where that is unknown.
        concurrent: `against` grows too, so it gets a sequence of its own; a log gets a fixed interval.
        level: of all that is said, at all times together.
    """
    if len(returns) < 1 or len(against) < 2:
        raise BadInput(
            f"A trial needs returns of both sides; got {len(returns)} of the new policy, {len(against)} to "
            "compare with; expected at least 1 and 2."
        )
    half = 1.0 - (1.0 - level) / 2.0  # each side may be wrong half of the time that is allowed
    new = running_interval(returns, bounds, half)
    old = running_interval(against, bounds, half) if concurrent else _fixed(against, half)
    gap = Interval(new.low - old.high, new.high - old.low, level)
    decision: Decision = "better" if gap.low > 0.0 else "worse" if gap.high < 0.0 else "cannot tell"
    return TrialState(len(returns), float(np.mean(returns)), new, gap, decision)


def running_interval(returns: FloatArray, bounds: tuple[float, float] | None, level: float) -> Interval:
    """Of the mean, valid at every number of episodes at once."""
    values = np.asarray(returns, dtype=np.float64)
    if bounds is None:
        return _asymptotic(values, level)
    low, high = bounds
    if not (low < high and low <= values.min() and values.max() <= high):
        raise BadInput(
            f"bounds=({low:g}, {high:g}) do not hold the returns, {values.min():g} to {values.max():g}. Pass "
            "the least and the most that an episode can return, or leave them out."
        )
    ends = _betting((values - low) / (high - low), level)
    return Interval(low + (high - low) * ends[0], low + (high - low) * ends[1], level)


def _betting(x: FloatArray, level: float) -> tuple[float, float]:
    """Hedged capital on a grid of means, the bets from earlier returns alone."""
    alpha, t = 1.0 - level, np.arange(1, len(x) + 1)
    mean = (0.5 + np.cumsum(x)) / (t + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (t + 1)
    before = np.append(0.25, variance[:-1])
    bet = np.sqrt(2.0 * math.log(2.0 / alpha) / (before * t * np.log(t + 1)))
    grid = np.linspace(0.0, 1.0, _GRID)
    inside = np.ones(_GRID, dtype=bool)
    for at, m in enumerate(grid):
        up, down = np.minimum(bet, 0.5 / max(m, 1e-9)), np.minimum(bet, 0.5 / max(1.0 - m, 1e-9))
        wealth = np.logaddexp(
            np.cumsum(np.log1p(up * (x - m))) + math.log(0.5),
            np.cumsum(np.log1p(-down * (x - m))) + math.log(0.5),
        )
        inside[at] = wealth.max() < math.log(1.0 / alpha)
    kept = grid[inside]
    step = 1.0 / (_GRID - 1)  # the grid's own width is added, so that rounding never narrows it
    if not len(kept):
        return float(x.mean()), float(x.mean())
    return max(float(kept[0]) - step, 0.0), min(float(kept[-1]) + step, 1.0)


def _asymptotic(x: FloatArray, level: float) -> Interval:
    """Of all times so far the narrowest that is still inside every other: their intersection."""
    alpha, low, high = 1.0 - level, -math.inf, math.inf
    rho = math.sqrt((-2.0 * math.log(alpha) + math.log(-2.0 * math.log(alpha) + 1.0)) / _BEST_AT)
    t = np.arange(1, len(x) + 1)
    mean = np.cumsum(x) / t
    spread = np.sqrt(np.maximum(np.cumsum(x**2) / t - mean**2, 0.0) * t / np.maximum(t - 1, 1))
    reach = t * rho**2 + 1.0
    half = spread * np.sqrt(2.0 * reach / (t**2 * rho**2) * np.log(np.sqrt(reach) / alpha))
    if len(x) >= _FIRST:
        low, high = float((mean - half)[_FIRST - 1 :].max()), float((mean + half)[_FIRST - 1 :].min())
    return Interval(low, high, level)


def _fixed(x: FloatArray, level: float) -> Interval:
    from bcrl.inference.intervals import quantile

    half = quantile(level, len(x) - 1) * float(np.std(x, ddof=1)) / math.sqrt(len(x))
    return Interval(float(np.mean(x)) - half, float(np.mean(x)) + half, level)


def episodes_to_settle(spread: float, wanted: float, level: float = 0.95) -> int:
    """Episodes after which a sequence of returns of this spread is `wanted` wide to either side.

    Args:
        spread: standard deviation of an episode's return.
        wanted: half width: a tenth of the scale for trust, the difference to the log for a decision.
        level: of the sequence.
    """
    if not wanted > 0.0:
        raise BadInput(f"wanted is {wanted}; expected a half width above 0.")
    alpha, few, many = 1.0 - level, _FIRST, 10**9
    rho = math.sqrt((-2.0 * math.log(alpha) + math.log(-2.0 * math.log(alpha) + 1.0)) / _BEST_AT)

    def half(t: int) -> float:
        reach = t * rho**2 + 1.0
        return spread * math.sqrt(2.0 * reach / (t**2 * rho**2) * math.log(math.sqrt(reach) / alpha))

    while few < many:
        middle = (few + many) // 2
        few, many = (few, middle) if half(middle) <= wanted else (middle + 1, many)
    return few
