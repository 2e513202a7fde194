"""Several trainings of one representation: their mean is the value, their spread is in the interval, pairing stays right."""

from dataclasses import dataclass

import numpy as np
import pytest
from worlds import lqr

from bcrl.contrast import difference_to
from bcrl.data.starts import starts_of
from bcrl.errors import BadInput
from bcrl.estimators.linear import LSPE
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.fixed import RandomFeatures
from bcrl.training import Run

SMALL = BellmanComplete(dim=8, steps=10, batch_size=256, hidden=16, head_layers=2, evaluations=2)
WORLD = lqr()
DATA = WORLD.dataset(30, 20, 0)


@dataclass(frozen=True)
class Drawn:
    """Random features as if they were learned; keeps the seeds that it was given."""

    seeds: list

    def fit(self, dataset, targets, *, discount, seed, run):
        self.seeds.append(seed)
        return RandomFeatures(dim=12).fit(dataset, targets, discount=discount, seed=seed, run=run)


def evaluate(method, seed=0, dataset=DATA):
    return method.estimate(
        dataset,
        {"target": WORLD.target, "behaviour": WORLD.behaviour},
        discount=WORLD.discount,
        horizon=None,
        starts=starts_of(dataset),
        seed=seed,
        run=Run(),
    )


def test_value_is_the_mean_of_trainings_and_their_spread_widens_the_interval():
    seeds = []
    mean = evaluate(LSPE(Drawn(seeds)))["target"]
    alone = [evaluate(LSPE(RandomFeatures(dim=12)), seed)["target"] for seed in seeds]
    values = np.array([one.value for one in alone])
    assert len(set(seeds)) == 3
    assert mean.value == pytest.approx(values.mean(), rel=1e-12)
    assert mean.stats["training_error"] == pytest.approx(values.std(ddof=1) / np.sqrt(3), rel=1e-9)
    units = mean.influence[: DATA.num_episodes]
    np.testing.assert_allclose(
        units, np.mean([one.influence for one in alone], axis=0), rtol=1e-9, atol=1e-12
    )
    assert mean.standard_error == pytest.approx(np.hypot(np.linalg.norm(units), mean.stats["training_error"]))
    at = DATA.start_observations()
    per_state = np.stack([one.value_function.value(at) for one in alone])
    np.testing.assert_allclose(mean.value_function.value(at), per_state.mean(axis=0), rtol=1e-9)
    luck = per_state.var(axis=0, ddof=1) / 3
    data = np.mean([one.value_function.standard_error(at) ** 2 for one in alone], axis=0)
    np.testing.assert_allclose(mean.value_function.standard_error(at), np.sqrt(data + luck), rtol=1e-9)


def test_trainings_of_two_user_seeds_have_nothing_in_common():
    seeds = [[], []]
    for seed, kept in enumerate(seeds):
        evaluate(LSPE(Drawn(kept)), seed)
    assert not set(seeds[0]) & set(seeds[1])


def test_three_trainings_of_vectors_one_of_fixed_features():
    assert evaluate(LSPE(SMALL))["target"].stats["trainings"] == 3
    assert evaluate(LSPE(SMALL, repeats=1))["target"].stats["trainings"] == 0
    assert evaluate(LSPE(RandomFeatures(dim=12)))["target"].stats["trainings"] == 0
    with pytest.raises(BadInput, match="repeats must be 1 or more; got 0"):
        evaluate(LSPE(SMALL, repeats=0))


def test_difference_between_policies_pairs_their_trainings():
    """Both policies share phi, so the luck of a training that moves both alike leaves their difference alone."""
    both = evaluate(LSPE(Drawn([])))
    found = difference_to(both["target"], both["behaviour"])
    gap = both["target"].influence - both["behaviour"].influence
    assert found.paired and len(gap) == DATA.num_episodes + 3
    once = evaluate(LSPE(RandomFeatures(dim=12)))["behaviour"]
    mixed = difference_to(both["target"], once)
    assert mixed.paired and np.isfinite(mixed.interval.low)
    fewer = WORLD.dataset(33, 20, 1)  # 33 units are 30 units and 3 trainings in length only
    other = evaluate(LSPE(RandomFeatures(dim=12)), dataset=fewer)["behaviour"]
    assert not difference_to(both["target"], other).paired


def test_cross_fitting_repeats_whole_rounds():
    seeds = []
    estimate = evaluate(LSPE(Drawn(seeds), split="cross", repeats=2))["target"]
    assert len(set(seeds)) == 4 and estimate.stats["trainings"] == 2
    assert np.isfinite(estimate.value_function.standard_error(DATA.start_observations())).all()
