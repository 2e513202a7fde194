"""Several trainings of one representation: the median is kept, their spread is in the interval."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

from bcrl.errors import BadInput
from bcrl.estimators.lspe.answer import Training, counting, median_training
from bcrl.estimators.lspe.method import LSPE
from bcrl.inference.contrast import difference_to, episodes_to_halve
from bcrl.inference.intervals import Influence
from bcrl.networks import Head
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.fixed import RandomFeatures
from bcrl.training import Run
from bcrl_bench.asking import ask
from bcrl_bench.worlds import lqr, pixel_lqr

SMALL = BellmanComplete(dim=8, steps=10, batch_size=256, head=Head(16, 2), evaluations=2)
WORLD = lqr()
DATA = WORLD.dataset(30, 20, 0)


@dataclass(frozen=True)
class Drawn:
    """Random features as if they were learned; keeps the seeds that it was given."""

    seeds: list

    def fit(self, dataset, targets, *, discount, seed, run):
        self.seeds.append(seed)
        return RandomFeatures(dim=12).fit(dataset, targets, discount=discount, seed=seed, run=run)


@dataclass(frozen=True)
class Grows:
    """One feature, three times as large where the target acts: no LSPE on it converges."""

    dim: int = 1

    def encode(self, observations):
        return WORLD.target.act(observations["observation"])

    def features(self, z, actions):
        own = np.isclose(z, actions, atol=1e-5).all(axis=1)
        return np.where(own, 3.0, 1.0)[:, None]

    def tensors(self):
        return {}

    def spec(self):
        return {"kind": "grows"}

    @property
    def metrics(self):
        return {}


@dataclass(frozen=True)
class Astray(Drawn):
    """The second of three trainings goes wrong."""

    def fit(self, dataset, targets, *, discount, seed, run):
        found = super().fit(dataset, targets, discount=discount, seed=seed, run=run)
        return Grows() if len(self.seeds) == 2 else found


def evaluate(method, seed=0, dataset=DATA):
    policies = {"target": WORLD.target, "behaviour": WORLD.behaviour}
    return ask(method, dataset, policies, discount=WORLD.discount, seed=seed)


def test_the_median_training_is_kept_and_the_spread_widens_the_interval():
    seeds = []
    kept = evaluate(LSPE(Drawn(seeds)))["target"]
    alone = [evaluate(LSPE(RandomFeatures(dim=12)), seed)["target"] for seed in seeds]
    values = np.array([one.value for one in alone])
    middle = alone[int(np.argsort(values)[1])]
    assert len(set(seeds)) == 3
    assert kept.value == middle.value and np.ptp(values) > 0
    assert kept.stats["training_error"] == pytest.approx(values.std(ddof=1) * np.sqrt(np.pi / 2 / 3))
    units = kept.influence[: DATA.num_episodes]
    np.testing.assert_array_equal(units, middle.influence)
    assert kept.standard_error == pytest.approx(np.hypot(middle.standard_error, kept.stats["training_error"]))
    at = DATA.start_observations()
    np.testing.assert_array_equal(kept.value_function.value(at), middle.value_function.value(at))


def test_one_training_astray_is_outvoted_and_said():
    estimate = evaluate(LSPE(Astray([])))["target"]
    assert estimate.status.value == "converged" and np.isfinite(estimate.value)
    assert estimate.stats["diverged_trainings"] == 1
    said = next(check for check in estimate.checks if check.name == "trainings")
    assert said.verdict == "caution" and "1 of 3 trainings" in said.meaning
    assert estimate.verdict != "trust"


class Ended(Training):
    """A training that ended at a value, or diverged."""

    def __init__(self, value):
        super().__init__([], {})
        object.__setattr__(self, "at", value)

    @property
    def value(self):
        return self.at


def test_a_diverged_training_leaves_out_the_last_one_not_the_larger():
    low, high, gone = Ended(1.0), Ended(2.0), Ended(np.inf)
    assert median_training(counting([low, high, Ended(3.0)])) is high
    assert median_training(counting([low, gone, high])) is low
    assert median_training(counting([high, gone, low])) is high
    assert median_training(counting([gone, low, gone])) is gone


class StoodIn(Ended):
    """A training whose iteration blew up, and which a stand-in gave a value."""

    steady = False


def test_stand_ins_count_only_where_most_trainings_blew_up():
    low, high, other, last = Ended(1.0), Ended(2.0), StoodIn(5.0), StoodIn(7.0)
    assert counting([low, other, high]) == [low, high]
    assert median_training(counting([low, other, last])) is other
    assert median_training(counting([other, Ended(np.inf), last])) is other


def test_more_episodes_do_not_help_against_the_luck_of_training():
    estimate = evaluate(LSPE(Drawn([])))["target"]
    luck = {"training_error": 0.8 * estimate.standard_error}
    assert episodes_to_halve(replace(estimate, stats={**estimate.stats, **luck}), 30) is None
    assert episodes_to_halve(replace(estimate, stats={"training_error": 0.0}), 30) == 120


def test_trainings_of_two_user_seeds_have_nothing_in_common():
    seeds = [[], []]
    for seed, kept in enumerate(seeds):
        evaluate(LSPE(Drawn(kept)), seed)
    assert not set(seeds[0]) & set(seeds[1])


def test_three_trainings_of_vectors_one_of_fixed_features():
    assert evaluate(LSPE(SMALL))["target"].stats["trainings"] == 3
    assert evaluate(LSPE(SMALL, repeats=1))["target"].stats["trainings"] == 0
    assert evaluate(LSPE(RandomFeatures(dim=12)))["target"].stats["trainings"] == 0
    world = pixel_lqr()
    pixels = world.dataset(8, 6, 0)
    for reads, trainings in ((None, 0), ("state", 3)):
        method = LSPE(replace(SMALL, reads=reads, steps=1, batch_size=32))
        assert ask(method, pixels, {"t": world.target}, discount=0.9)["t"].stats["trainings"] == trainings
    with pytest.raises(BadInput, match="expected an odd number"):
        LSPE(SMALL, repeats=2)


def test_difference_between_policies_pairs_their_trainings():
    """Both policies share phi, so what a training does to both alike leaves their difference alone."""
    both = evaluate(LSPE(Drawn([])))
    found = difference_to(both["target"], both["behaviour"])
    gap = Influence.of(both["target"]) - Influence.of(both["behaviour"])
    assert found.paired and (len(gap.units), len(gap.trainings)) == (DATA.num_episodes, 3)
    quantile = stats.t.ppf(0.975, gap.degrees_of_freedom)
    assert found.interval.high - found.value == pytest.approx(quantile * np.sqrt(gap.variance))
    apart = np.hypot(both["target"].standard_error, both["behaviour"].standard_error)
    assert np.sqrt(gap.variance) < 0.9 * apart
    once = evaluate(LSPE(RandomFeatures(dim=12)))["behaviour"]
    mixed = difference_to(both["target"], once)
    left = both["target"].influence
    alone = np.hypot(np.linalg.norm(left[:-3] - once.influence), np.linalg.norm(left[-3:]))
    assert mixed.paired
    assert mixed.interval.high - mixed.value > 1.9 * alone
    fewer = WORLD.dataset(33, 20, 1)  # 33 units are 30 units and 3 trainings in length only
    other = evaluate(LSPE(RandomFeatures(dim=12)), dataset=fewer)["behaviour"]
    assert not difference_to(both["target"], other).paired


def test_progress_tells_the_trainings_apart():
    stages = []
    run = Run(show=lambda news: stages.append(news["stage"]))
    ask(LSPE(SMALL), DATA, {"target": WORLD.target}, discount=WORLD.discount, run=run)
    assert [f"BellmanComplete, training {k} of 3" in stages for k in (1, 2, 3)] == [True] * 3


def test_cross_fitting_repeats_whole_rounds():
    seeds = []
    estimate = evaluate(LSPE(Drawn(seeds), split="cross", repeats=3))["target"]
    assert len(set(seeds)) == 6 and estimate.stats["trainings"] == 3
    assert np.isfinite(estimate.value_function.standard_error(DATA.start_observations())).all()
