"""What the log hints at without showing it: ends that nothing explains, and groups that no column names.

Both can only be hints. An end that looks random may be the world's, and groups may hide without a trace; see
docs/promises.md for what no log can tell.
"""

from collections.abc import Iterator

import numpy as np

from bcrl.data.dataset import Array, Dataset, deviation
from bcrl.doctor.findings import Bearing, Finding
from bcrl.doctor.predicting import FloatArray, Sample

LEAST_ENDS, LEAST_EPISODES = 200, 40
# Standard errors below which a held-out prediction of the end is no better than none.
_PREDICTS = 2.5
# Neighbours in the log are alike: their correlation, and its standard errors.
_ALIKE, _SURE = 0.3, 6.0


def random_ends(dataset: Dataset) -> Iterator[Finding]:
    """Ends of the world that neither state, action, reward nor what follows tells apart from steps."""
    sample = Sample.of(dataset)
    ended = dataset.terminated[sample.transitions]
    if not sample.enough or ended.sum() < LEAST_ENDS or ended.mean() > 0.9 or not _has_vectors(dataset):
        return
    inputs = [sample.states(), sample.actions(), dataset.rewards[sample.transitions, None]]
    now, then = inputs[0][ended], sample.states(following=True)
    # Where the observation after the end was not given, the last one is repeated, which would give it away.
    if (now != then[ended]).any(axis=1).mean() > 0.5:
        inputs.append(then - inputs[0])
    flags = ended.astype(np.float64)
    for predicted in sample.predictions(np.concatenate(inputs, axis=1), flags[:, None]):
        product, error = sample.mean_and_error((predicted[:, 0] - flags.mean()) * (flags - flags.mean()))
        if product > _PREDICTS * error:
            return
    lengths = dataset.lengths[dataset.terminated[dataset.offsets[1:] - 1]]
    what = (
        f"{len(lengths)} episodes are marked terminated, after {lengths.min()} to {lengths.max()} steps, and "
        "nothing in the log tells these ends from other steps: they look like records that were cut."
    )
    do = "Mark them truncated if the world went on; every value misses what came afterwards."
    bears = Bearing("ends look random", beyond=int(np.quantile(lengths, 0.1)))
    yield Finding("warning", what, "last rows of episodes", do, bears)


def hidden_groups(dataset: Dataset) -> Iterator[Finding]:
    """Episodes whose rewards have a level that no column explains, shared by neighbours."""
    sample = Sample.of(dataset)
    if not _has_vectors(dataset) or len(sample.episodes) < LEAST_EPISODES:
        return
    level, noise = _levels(sample)
    size = float(deviation(dataset.rewards))
    if level.std() <= 1e-3 * size or level.var() < 3.0 * np.square(noise).mean():
        return
    near = np.diff(sample.episodes) == 1
    alike = float(np.corrcoef(level[:-1][near], level[1:][near])[0, 1]) if near.sum() > 20 else 0.0
    if alike < max(_ALIKE, _SURE / np.sqrt(max(near.sum(), 1))):
        return
    what = (
        "Rewards differ from episode to episode by more than observations and actions explain, and "
        f"neighbours in the log are alike (correlation {alike:.2f}): they seem to share a patient, a machine "
        "or a day."
    )
    do = "Pass cluster= with what they share, or the observation that is missing; the interval is too narrow."
    yield Finding("warning", what, "episodes", do, Bearing("hidden groups"))


def _levels(sample: Sample) -> tuple[FloatArray, FloatArray]:
    """Each episode's mean reward beyond what is predicted, around its logging policy's; and its noise."""
    dataset, rows = sample.dataset, sample.transitions
    states = sample.states()
    inputs = np.concatenate([states, sample.actions(), sample.states(following=True) - states], axis=1)
    rewards = dataset.rewards[rows]
    residual = rewards - sample.predict(inputs, rewards[:, None])[:, 0]
    number = np.searchsorted(sample.episodes, sample.episode)
    count = np.bincount(number)
    level = np.bincount(number, weights=residual) / count
    within = np.bincount(number, weights=np.square(residual - level[number]))
    noise = np.sqrt(within / np.maximum(count - 1, 1) / count)
    return level - _means(level, dataset.behaviour, sample.episodes), noise


def _means(level: FloatArray, behaviour: Array | None, episodes: Array) -> FloatArray:
    """The mean level of each episode's logging policy."""
    if behaviour is None:
        return np.full(len(level), level.mean())
    own = np.unique(np.asarray(behaviour)[episodes], return_inverse=True)[1]
    return np.asarray((np.bincount(own, weights=level) / np.bincount(own))[own])


def _has_vectors(dataset: Dataset) -> bool:
    return any(value.ndim <= 2 for value in dataset.observations.values())
