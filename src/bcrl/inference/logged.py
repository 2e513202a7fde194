"""The logging policy's own value, from its returns: the row that every comparison has."""

import numpy as np

from bcrl.data.dataset import Dataset
from bcrl.estimate import Check, Estimate, FloatArray, Status, Verdict
from bcrl.inference.influence import Influence, start_influence
from bcrl.inference.intervals import interval


def discounted_returns(dataset: Dataset, discount: float, horizon: int | None = None) -> FloatArray:
    """sum_t discount^t r_t of each episode as far as it was recorded, shape (E,)."""
    steps = np.arange(len(dataset)) - dataset.offsets[:-1][dataset.episode_of]
    weights = np.power(float(discount), steps)
    if horizon is not None:
        weights = weights * (steps < horizon)
    discounted = weights * dataset.rewards
    return np.asarray(np.bincount(dataset.episode_of, weights=discounted, minlength=dataset.num_episodes))


def logged_value(
    dataset: Dataset, *, discount: float, horizon: int | None, level: float = 0.95
) -> Estimate | None:
    """Mean discounted return of the logged episodes, with its interval; None for unordered transitions."""
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


def _unseen_tail(dataset: Dataset, discount: float, horizon: int | None) -> Check:
    """How much of the return may come after the end of records that stop while the world goes on."""
    cut = ~dataset.terminated[dataset.offsets[1:] - 1]
    lengths = dataset.lengths[cut]
    if horizon is not None:
        lengths = lengths[lengths < horizon]
    remaining = np.power(float(discount), lengths) if len(lengths) else np.zeros(0)
    share = float(remaining.sum()) / dataset.num_episodes
    verdict: Verdict = "trust" if share < 0.02 else "caution"
    meaning = (
        "Logged episodes show (nearly) the whole discounted return."
        if verdict == "trust"
        else f"{len(lengths)} of {dataset.num_episodes} logged episodes stop while the world goes on; "
        f"a share of about {share:.0%} of the discounted future lies beyond their end and is missing "
        "from the logged value."
    )
    return Check("logged tail", share, 0.02, verdict, meaning)
