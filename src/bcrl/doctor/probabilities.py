"""Is `log_prob` what the logged actions say it is?

For the true b(a|s) and any q(a|s) that sums to 1 over the actions that b takes, E[q(a|s) / b(a|s)] = 1. Here
q is predicted from the log on held-out units, so the mean differs from 1 only where `log_prob` is wrong. And
no q can have a higher mean logarithm than b. Rows of probability below e make up at most e times the number
of actions (continuous: the volume of the logged actions' range).
"""

from collections.abc import Iterator

import numpy as np
from scipy import stats

from bcrl.data.dataset import Dataset
from bcrl.doctor.findings import Bearing, Finding
from bcrl.doctor.predicting import FloatArray, Sample

# So many standard errors, and at least this share, before a difference counts.
_ERRORS, _SHARE = 5.0, 0.08
# Predicted probabilities below this are set to 0: q should not lie on actions that b never takes.
_LEAST = 0.02


def examine_probabilities(dataset: Dataset, log_prob: FloatArray) -> Iterator[Finding]:
    """Findings about finite `log_prob`: too many improbable rows, else how it fits the logged actions."""
    near = list(_near_zero(dataset, log_prob))
    yield from near or _contradicted(dataset, log_prob)


def _near_zero(dataset: Dataset, log_prob: FloatArray) -> Iterator[Finding]:
    """Rows whose action was so improbable that there should hardly be one of them."""
    if log_prob.min() >= -3.0 * np.log(10.0):
        return
    for exponent in range(12, 2, -1):
        few = np.flatnonzero(log_prob < -exponent * np.log(10.0))
        expected = len(dataset) * _volume(dataset) * 10.0**-exponent
        if len(few) >= 5 and len(few) > 10.0 * expected:
            what = (
                f"{len(few)} of {len(dataset)} logged actions have a probability below 1e-{exponent} by "
                f"log_prob; if that were right, there would be {expected:.1g} of them."
            )
            do = "Are these rows decisions of the logging policy? Leave out rows behind the world's end."
            bears = Bearing("log_prob", "distrust", log_prob=True)
            where = f"transition {few[0]} (episode {dataset.episodes_at(few)[0]})"
            yield Finding("warning", what, where, do, bears)
            return


def _volume(dataset: Dataset) -> float:
    if dataset.num_actions is not None:
        return float(dataset.num_actions)
    actions = np.asarray(dataset.actions).reshape(len(dataset), -1)
    return float(np.prod(np.ptp(actions, axis=0).astype(np.float64)))


def _contradicted(dataset: Dataset, log_prob: FloatArray) -> Iterator[Finding]:
    sample = Sample.of(dataset)
    if not sample.enough:
        return
    claimed = np.asarray(log_prob[sample.transitions], dtype=np.float64)
    log_q = _log_choice(sample) if dataset.discrete else _log_density(sample)
    with np.errstate(over="ignore"):
        ratios = np.exp(np.minimum(log_q - claimed, 700.0))
    ratio, error = sample.mean_and_error(ratios)
    # Rare and huge ratios make the mean look small; then nothing is known.
    known = np.square(ratios.sum()) / max(float(np.square(ratios).sum()), 1e-300) > 0.1 * len(ratios)
    seen = np.isfinite(log_q)
    gain, doubt = sample.mean_and_error(np.where(seen, np.where(seen, log_q, 0.0) - claimed, 0.0))
    if known and abs(ratio - 1.0) > max(_SHARE, _ERRORS * error):
        what = (
            f"log_prob does not fit the logged actions: probabilities estimated from the log are {ratio:.2f} "
            "times as large on average, and should be once."
        )
    elif gain > max(_SHARE, _ERRORS * doubt) and seen.mean() > 0.99:
        what = (
            "log_prob does not fit the logged actions: a regression on other episodes predicts them better, "
            f"by {gain:.2g} in the mean logarithm."
        )
    else:
        return
    do = "Pass natural logarithms of what the logging policy itself gave its actions, or leave log_prob out."
    yield Finding("warning", what, "log_prob", do, Bearing("log_prob", "distrust", log_prob=True))


def _log_choice(sample: Sample) -> FloatArray:
    """log q of the logged action; -inf where it is predicted never."""
    actions = sample.actions()
    q = sample.predict(sample.states(), actions)
    q = np.where(q < _LEAST, 0.0, q)
    q = q / np.maximum(q.sum(axis=1, keepdims=True), 1e-12)
    taken = (q * actions).sum(axis=1)
    return np.asarray(np.log(taken, out=np.full(len(taken), -np.inf), where=taken > 0.0))


def _log_density(sample: Sample) -> FloatArray:
    """log q of a Gaussian around the predicted action, cut off at the logged range; -inf at its edges,
    where actions pile up that were clipped."""
    actions = sample.actions()
    mean = sample.predict(sample.states(), actions)
    spread = np.maximum(np.sqrt(np.square(actions - mean).mean(axis=0)), 1e-12)
    low, high = actions.min(axis=0), actions.max(axis=0)
    margin = 1e-6 * (high - low)
    piled = [(np.abs(actions - edge) <= margin).sum(axis=0) > 5 for edge in (low, high)]
    inside = ~(piled[0] & (actions <= low + margin)) & ~(piled[1] & (actions >= high - margin))
    ends = [stats.norm.cdf((edge - mean) / spread) for edge in (low, high)]
    kept = np.maximum(ends[1] - ends[0], 1e-12)
    log_q = stats.norm.logpdf(actions, mean, spread) - np.log(kept)
    return np.where(inside.all(axis=1), log_q.sum(axis=1), -np.inf)
