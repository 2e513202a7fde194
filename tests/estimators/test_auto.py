"""Auto: the quick answer where it is sure enough, learned features where they may say more."""

from dataclasses import dataclass, field, replace

import numpy as np

import bcrl
from bcrl.estimate import Estimate
from bcrl.estimators.auto import Auto
from bcrl_bench.worlds import lqr

WORLD = lqr()
SHORT = bcrl.LSPE(bcrl.BellmanComplete(steps=60, dim=16, batch_size=128), repeats=1)


@dataclass
class Watched:
    """A method that remembers which policies it was asked about."""

    method: bcrl.LSPE = SHORT
    asked: list[list[str]] = field(default_factory=list)

    def estimate(self, question, run):
        self.asked.append(list(question.targets))
        return self.method.estimate(question, run)


def log(episodes, seed=1):
    return WORLD.dataset(episodes, 30, seed=seed)


def test_a_narrow_answer_trains_nothing():
    learned = Watched()
    answer = bcrl.evaluate(log(400), WORLD.target, discount=WORLD.discount, method=Auto(learned))
    assert learned.asked == []
    assert answer.verdict == "trust" and answer.method == "Consensus()"


def test_it_is_the_default():
    answer = bcrl.compare(log(400), {"p": WORLD.target}, discount=WORLD.discount)
    assert list(answer.estimates["p"]) == ["auto"]
    assert answer.estimates["p"]["auto"].method == "Consensus()"


def wide(share):
    """An answer whose views disagree by this share of the scale."""
    data = log(40)
    answer = bcrl.evaluate(data, WORLD.target, discount=WORLD.discount, method="consensus", next_steps=None)
    entries = tuple(
        replace(entry, amount=share * answer.budget.scale) if entry.name == "other views" else entry
        for entry in answer.budget.entries
    )
    half = sum(entry.amount for entry in entries)
    honest = replace(answer.budget.honest, low=answer.value - half, high=answer.value + half)
    return replace(answer, budget=replace(answer.budget, entries=entries, honest=honest))


def test_only_what_features_can_mend_is_worth_a_training():
    from bcrl.estimators.auto import may_learn_more

    answer = wide(0.5)
    assert answer.budget.verdict(answer.value) == "distrust" and may_learn_more(answer)
    moved = tuple(
        replace(entry, name="unlike actions") if entry.name == "other views" else entry
        for entry in answer.budget.entries
    )
    assert not may_learn_more(replace(answer, budget=replace(answer.budget, entries=moved)))
    assert may_learn_more(None) and may_learn_more(
        Estimate(value=float("nan"), method="Consensus()", discount=0.9)
    )


def test_only_the_policies_that_need_it_are_trained_for_and_the_narrower_answer_stays():
    """Few episodes: the near policy's interval is narrow, the far one's is not."""
    data = log(60)
    learned = Watched()
    policies = {"target": WORLD.target, "loud": lambda x: 1.5 * WORLD.target.act(x)}
    table = bcrl.compare(
        data, policies, discount=WORLD.discount, methods={"auto": Auto(learned), "quick": "consensus"}
    )
    asked = learned.asked[0] if learned.asked else []
    for name in policies:
        auto, quick = (table.estimates[name][method] for method in ("auto", "quick"))
        assert auto.budget.width(auto.value) <= quick.budget.width(quick.value)
        if name not in asked:
            assert auto.value == quick.value and auto.budget == quick.budget
    assert asked != list(policies)


def test_a_killed_run_goes_on_with_the_same_policies(tmp_path):
    asked = {"discount": WORLD.discount, "method": Auto(SHORT), "folder": tmp_path}
    first = bcrl.evaluate(log(12), WORLD.target, **asked)
    again = bcrl.evaluate(log(12), WORLD.target, **asked)
    assert first.value == again.value and first.interval == again.interval


def test_pixels_are_learned_at_once():
    rng = np.random.default_rng(0)
    data = bcrl.Dataset.from_arrays(
        observations=rng.integers(0, 255, (60, 16, 16, 1), dtype=np.uint8),
        actions=rng.normal(size=(60, 1)),
        rewards=rng.normal(size=60),
        terminated=np.arange(60) % 20 == 19,
    )
    learned = Watched(bcrl.LSPE(bcrl.RandomFeatures(dim=8), repeats=1))
    policy = bcrl.load_policy(lambda o: np.zeros((len(o), 1)))
    answer = bcrl.evaluate(data, policy, discount=0.9, method=Auto(learned))
    assert learned.asked == [["policy"]] and answer.method.startswith("LSPE(RandomFeatures")
