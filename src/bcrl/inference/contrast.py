"""Estimates compared: with the log's own value, with each other, and one method's with another's.

Estimates from the same episodes err together. Each carries its influence (intervals.py), so the error of a
difference is that of the difference of influences.
"""

import math
from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bcrl import salts
from bcrl.comparison import Difference
from bcrl.data.dataset import Dataset
from bcrl.estimate import Check, Estimate, FloatArray, Status, Verdict
from bcrl.inference import checks
from bcrl.inference.intervals import Influence, interval, interval_around, paired, quantile, start_influence
from bcrl.policies.policy import DiscretePolicy, StochasticPolicy
from bcrl.question import Question, Target, starts_of

# Rows at which a policy is asked whether it made the log.
_SAMPLE = 512
# Of the discounted steps: less than this behind the records' end does not matter.
_NEGLIGIBLE = 0.02


def discounted_returns(dataset: Dataset, discount: float, horizon: int | None = None) -> FloatArray:
    """sum_t discount^t r_t of each episode as far as it was recorded, shape (E,)."""
    steps = np.arange(len(dataset)) - dataset.offsets[:-1][dataset.episode_of]
    weights = np.power(float(discount), steps)
    if horizon is not None:
        weights = weights * (steps < horizon)
    discounted = weights * dataset.rewards
    return np.asarray(np.bincount(dataset.episode_of, weights=discounted, minlength=dataset.num_episodes))


def possible_returns(dataset: Dataset, discount: float, horizon: int | None) -> tuple[float, float]:
    """The least and the most that an episode can earn whose rewards lie in the logged ranges.

    Steps that go on and steps that end the world have ranges of their own: where only the end pays, it pays
    once.
    """
    on, ending = (dataset.rewards[flag] for flag in (~dataset.terminated, dataset.terminated))
    ends = []
    for extreme in (np.min, np.max):
        last = float(extreme(ending)) if len(ending) else None
        step = float(extreme(on)) if len(on) else 0.0
        # An episode that ends after T steps lies between one that ends at once and the longest one.
        found = [] if last is None else [last]
        if len(on):
            found.append(step * discounted_steps(discount, horizon))
        if last is not None and horizon is not None:
            before = step * discounted_steps(discount, horizon - 1)
            found.append(before + discount ** (horizon - 1) * last)
        ends.append(float(extreme(found)))
    return ends[0], ends[1]


def discounted_steps(discount: float, horizon: int | None) -> float:
    """1 + discount + discount^2 + ..., so many terms."""
    if discount == 1.0:
        return float(horizon or 0)
    return (1.0 - (0.0 if horizon is None else discount**horizon)) / (1.0 - discount)


def logged_value(
    dataset: Dataset, *, discount: float, horizon: int | None, level: float = 0.95
) -> Estimate | None:
    """The logging policy's own value, the row that every comparison has: its mean discounted return.

    With its interval; None for unordered transitions.
    """
    if not dataset.ordered:
        return None
    returns = discounted_returns(dataset, discount, horizon)
    value, units = float(returns.mean()), dataset.num_units
    influence = start_influence(returns, dataset.units, units)
    error, around = interval(value, Influence(influence), level=level) if units > 1 else (None, None)
    return Estimate(
        value=value,
        method="logged returns",
        discount=discount,
        horizon=horizon,
        interval=around,
        standard_error=error,
        per_start=returns,
        influence=influence if units > 1 else None,
        status=Status.CONVERGED,
        checks=(_unseen_tail(dataset, discount, horizon),),
    )


def returns_to_go(
    rewards: FloatArray,
    last: NDArray[np.int64],
    lengths: NDArray[np.int64],
    closing: FloatArray,
    discount: float,
    *,
    ahead: FloatArray | None = None,
    trace: float = 1.0,
) -> FloatArray:
    """G_t = r_t + discount ((1 - trace) ahead_t + trace G_{t+1}) along each record, 0 outside, shape (n,).

    Args:
        rewards: of transitions in the order of their records, shape (n,).
        last: places of the records' last transitions, shape (e,).
        lengths: of the records, shape (e,).
        closing: G of each last transition: its reward where the world ended; where the record was merely cut,
            something stands for what came after, shape (e,).
        discount: of the value.
        ahead: a value of each next state, shape (n,); needed with a trace below 1.
        trace: how much of G is logged.
    """
    to_go = np.zeros(len(rewards))
    to_go[last] = closing
    for back in range(1, int(lengths.max(initial=1))):
        here = last[lengths > back] - back
        following = to_go[here + 1]
        if ahead is not None:
            following = (1.0 - trace) * ahead[here] + trace * following
        to_go[here] = rewards[here] + discount * following
    return to_go


def unseen_share(dataset: Dataset, discount: float, horizon: int | None) -> float:
    """Share of the discounted steps that lie behind the end of records that stop while the world goes on."""
    stopped = ~dataset.terminated[dataset.offsets[1:] - 1]
    lengths = dataset.lengths.astype(np.float64)
    if horizon is None:
        left = discount**lengths
    elif discount == 1.0:
        left = np.maximum(horizon - lengths, 0.0) / horizon
    else:
        left = np.maximum(discount**lengths - discount**horizon, 0.0) / (1.0 - discount**horizon)
    return float(np.where(stopped, left, 0.0).mean())


def _unseen_tail(dataset: Dataset, discount: float, horizon: int | None) -> Check:
    """How much of the return may come after the end of records that stop while the world goes on."""
    share = unseen_share(dataset, discount, horizon)
    verdict: Verdict = "trust" if share < _NEGLIGIBLE else "caution"
    stopped = ~dataset.terminated[dataset.offsets[1:] - 1]
    meaning = (
        "Logged episodes show (nearly) the whole discounted return."
        if verdict == "trust"
        else f"{stopped.sum()} of {dataset.num_episodes} logged episodes stop while the world goes on; "
        f"a share of about {share:.0%} of the discounted future lies beyond their end and is missing "
        "from the logged value."
    )
    return Check("logged tail", share, _NEGLIGIBLE, verdict, meaning)


def not_alike(question: Question) -> str:
    """Why the log's own returns cannot be compared with the policies' values; empty where they can.

    The values count what comes after the records' end and begin at the question's start states; the log's
    returns do neither.
    """
    dataset, starts = question.dataset, question.starts
    if not dataset.ordered:
        return ""
    tail = _unseen_tail(dataset, question.discount, question.horizon)
    if tail.verdict != "trust":
        longest = int(dataset.lengths.max())
        return (
            f"No difference to the logged policy is given: {tail.meaning} The policies' values count it. Ask "
            f"for a horizon that the records cover (the longest has {longest} steps)."
        )
    own = starts_of(dataset)
    if starts.unit is None and starts.digest != own.digest:
        return (
            "No difference to the logged policy is given: the policies are valued from the start states that "
            "were passed in, and the logged returns begin elsewhere."
        )
    return ""


def difference_to(estimate: Estimate, base: Estimate, level: float = 0.95) -> Difference:
    """`estimate` minus `base`, paired where both know the same units, else as if independent.

    `level` is that of the two-sided interval and of the one-sided lower bound.
    """
    value = estimate.value - base.value
    both = paired([Influence.of(estimate), Influence.of(base)])
    if both is not None:
        gap = both[0] - both[1]
        error: float | None = math.sqrt(gap.variance)
        degrees = gap.degrees_of_freedom
    elif estimate.standard_error is not None and base.standard_error is not None:
        error = math.hypot(estimate.standard_error, base.standard_error)
        degrees = _degrees(base)
    else:
        error, degrees = None, 1
    if error is None or not math.isfinite(error) or not math.isfinite(value):
        return Difference(value, paired=both is not None)
    one_sided = float(stats.t.ppf(level, degrees))
    return Difference(
        value=value,
        interval=interval_around(value, error, degrees, level),
        lower_bound=value - one_sided * error,
        probability_better=float(stats.t.cdf(value / error, degrees)) if error > 0.0 else float(value > 0.0),
        paired=both is not None,
    )


def known_value(estimate: Estimate, target: Target, logged: Estimate) -> Check | None:
    """A policy that gives the logged actions the probabilities that the log gives them made the log, and its
    value is known; None for other policies.
    """
    claimed, policy = target.dataset.log_prob, target.policy
    if claimed is None or not isinstance(policy, DiscretePolicy | StochasticPolicy):
        return None
    some = np.linspace(0, len(claimed) - 1, min(_SAMPLE, len(claimed))).astype(np.int64)
    with np.errstate(invalid="ignore"):
        same = np.abs(target.log_prob_at(some) - claimed[some]) < 0.01
    if same.mean() < 0.99:
        return None
    gap = difference_to(estimate, logged)
    error = 0.0 if gap.interval is None else (gap.interval.high - gap.interval.low) / 2.0
    return checks.known_value(abs(gap.value), error, max(abs(logged.value), float(np.std(logged.per_start))))


def _degrees(base: Estimate) -> float:
    """Degrees of freedom of an unpaired difference: those of the base, whose units are known."""
    influence = Influence.of(base)
    if influence is not None:
        return max(len(influence.units) - 1, 1)
    known = None if base.interval is None else base.interval.degrees_of_freedom
    return math.inf if known is None else known


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
    """Draws of the joint error, (draws, policies): through influences where units are shared, else apart."""
    normal = generator.standard_normal((draws, len(estimates)))
    known = paired([Influence.of(estimate) for estimate in estimates])
    if known is not None:
        influence = np.stack([one.array for one in known])
        eigenvalues, vectors = np.linalg.eigh(influence @ influence.T)
        return np.asarray(normal @ (vectors * np.sqrt(np.maximum(eigenvalues, 0.0))).T)
    scales = [0.0 if estimate.standard_error is None else estimate.standard_error for estimate in estimates]
    return np.asarray(normal * scales)


def episodes_to_halve(estimate: Estimate, episodes: int) -> int | None:
    """Total number of episodes that would halve the interval; None where more episodes cannot halve it.

    The data's share of the variance falls like 1 / episodes; start states that the user gave and the
    spread of trainings stay.
    """
    if estimate.standard_error is None or not math.isfinite(estimate.standard_error):
        return None
    total = estimate.standard_error**2
    fixed = float(estimate.stats.get("variance_of_given_starts", 0.0))
    fixed += float(estimate.stats.get("training_error", 0.0)) ** 2
    if total == 0.0 or fixed >= total / 4.0:
        return None
    needed = episodes * (total - fixed) / (total / 4.0 - fixed)
    return math.ceil(needed * (1.0 - 1e-12))  # so that a rounding error does not count as one more episode


def agreement(estimates: Mapping[str, Estimate]) -> tuple[Check, ...]:
    """Whether each two methods differ by more than their intervals allow; distrusted ones are left out.

    Honest intervals where there are budgets, else those of sampling.
    """
    believed = {
        name: (e, half)
        for name, e in estimates.items()
        if (half := half_width(e)) is not None and e.verdict != "distrust"
    }
    found = []
    for (left, (a, reach)), (right, (b, other)) in combinations(believed.items(), 2):
        allowed = math.hypot(reach, other)
        gap = abs(a.value - b.value)
        agree = gap <= allowed
        ending = (
            "a difference that their intervals allow."
            if agree
            else "further apart than their intervals allow; at least one of them is biased."
        )
        found.append(
            Check(
                name=f"{left} and {right} agree",
                value=gap,
                threshold=allowed,
                verdict="trust" if agree else "caution",
                meaning=f"{left} says {a.value:.4g} and {right} says {b.value:.4g}: {ending}",
            )
        )
    return tuple(found)


def half_width(estimate: Estimate) -> float | None:
    """Half the 95 % interval, whatever level was asked for: a verdict does not depend on it.

    The honest one where there is a budget, else that of sampling; None where there is neither.
    """
    if estimate.budget is not None:
        return estimate.budget.half
    around = estimate.interval
    if around is None:
        return None
    if around.level == 0.95 or around.degrees_of_freedom is None or estimate.standard_error is None:
        return (around.high - around.low) / 2.0
    return quantile(0.95, around.degrees_of_freedom) * estimate.standard_error
