"""The self-check: the logging policy, whose returns are known, evaluated by the same features."""

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.estimate import FloatArray
from bcrl.inference.contrast import discounted_returns
from bcrl.linear import lspe
from bcrl.question import Question
from bcrl.representations.features import Encoded

# With fewer rows for each feature, the features can fit anything.
_ROWS_PER_FEATURE = 20


def self_check(encoded: Encoded, question: Question, ridge: float) -> dict[str, float]:
    """Gap between value and logged returns, its standard error, and the returns' size, by name for `stats`.

    Empty where the log has no order or no next actions. If the log says which policy made each episode, each
    policy is checked on its own episodes and the worst answer counts: the mean return of several policies is
    not the value of any policy that sees the state alone.
    """
    dataset = encoded.dataset
    if not dataset.ordered or len(dataset) <= dataset.num_episodes:
        return {}
    answers = []
    for episodes in _by_logging_policy(dataset, _ROWS_PER_FEATURE * encoded.fitted.dim):
        pair = _logged_values(encoded, episodes, question, ridge)
        if pair is None or len(pair[1]) < 2:
            continue
        values, returns = pair
        gap, scale = values - returns, float(max(abs(returns.mean()), returns.std()))
        answers.append((float(gap.mean()), float(np.std(gap, ddof=1) / np.sqrt(len(gap))), scale))
    if not answers:
        return {}
    worst = max(answers, key=lambda one: (abs(one[0]) - 2.0 * one[1]) / max(one[2], 1e-300))
    return dict(zip(("self_check_gap", "self_check_error", "self_check_scale"), worst, strict=True))


def _by_logging_policy(dataset: Dataset, least_rows: int) -> list[NDArray[np.int64]]:
    """Episodes of each logging policy that made enough rows; else all episodes as one group."""
    if dataset.behaviour is not None:
        maker = np.unique(dataset.behaviour, return_inverse=True)[1]
        large = np.flatnonzero(np.bincount(maker, weights=dataset.lengths) >= least_rows)
        if len(large):
            return [np.flatnonzero(maker == one) for one in large]
    return [np.arange(dataset.num_episodes)]


def _logged_values(
    encoded: Encoded, episodes: NDArray[np.int64], question: Question, ridge: float
) -> tuple[FloatArray, FloatArray] | None:
    """Value at these episodes' starts of the policy that made them, and their returns; None without a value.

    A record that was cut off is closed with the estimate's own value of its last logged decision, so that the
    comparison is fair for episodes of any length. With a horizon, only episodes that were recorded up to the
    horizon (or to their end) count.
    """
    dataset, discount, horizon = encoded.dataset, question.discount, question.horizon
    last, first = dataset.offsets[1:][episodes] - 1, dataset.offsets[:-1][episodes]
    usable = np.isin(dataset.episode_of, episodes)
    usable[last] = dataset.terminated[last]  # where a record stops, the next action is not in the log
    if not usable.any():
        return None
    moments = encoded.behaviour_moments(np.flatnonzero(usable))
    closed = dataset.terminated[last]
    if horizon is None:
        theta = lspe(moments, discount, iterations=1, ridge=ridge).lstd
        if theta is None:
            return None
        closing = np.where(closed, 0.0, encoded.logged(last) @ theta - dataset.rewards[last])
        rest = np.power(discount, dataset.lengths[episodes] - 1.0) * closing
        return encoded.logged(first) @ theta, discounted_returns(dataset, discount)[episodes] + rest
    theta = lspe(moments, discount, horizon=horizon, ridge=ridge).theta
    seen = closed | (dataset.lengths[episodes] >= horizon)
    returns = discounted_returns(dataset, discount, horizon)[episodes]
    return encoded.logged(first[seen]) @ theta, returns[seen]
