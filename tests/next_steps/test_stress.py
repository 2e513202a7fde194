"""Stress tests: each fires where it must and stays silent where there is nothing."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

import bcrl
from bcrl.cli import main
from bcrl.data.storage.folder import save
from bcrl.errors import BadInput
from bcrl.estimators.consensus import Consensus
from bcrl.next_steps.stress import placebo_rewards, stress


def bandit_log(effect=1.0, hidden=0.0, rounds=600, seed=0):
    """Two arms; arm 1 pays `effect` more. A hidden cause pays 1 and makes arm 1 likelier."""
    rng = np.random.default_rng(seed)
    x, cause = rng.normal(size=rounds), rng.random(rounds) < 0.5
    odds = np.where(cause, 1.0 + hidden, 1.0 / (1.0 + hidden))
    arm = (rng.random(rounds) < odds / (1.0 + odds)).astype(int)
    paid = 2.0 + effect * arm + 1.0 * cause + 0.1 * rng.normal(size=rounds)
    ended = np.ones(rounds, bool)
    return bcrl.Dataset.from_arrays(
        observations=x[:, None], actions=arm, rewards=paid, next_observations=x[:, None],
        terminated=ended, truncated=~ended, num_actions=2,
        log_prob=np.full(rounds, np.log(0.5)),
    )  # fmt: skip


def steps_log(episodes=80, steps=10, usual=1.0, last=1.0, seed=0):
    """Two actions by lot; action 1 pays `usual` more, and `last` more in the last sixth of the log."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(episodes):
        x, a = rng.uniform(-1.0, 1.0, size=(steps + 1, 1)), rng.integers(0, 2, steps)
        worth = last if number >= episodes * 5 // 6 else usual
        end = np.arange(steps) == steps - 1
        made.append({"observations": x, "actions": a, "rewards": worth * a + 0.3 * rng.normal(size=steps),
                     "terminated": np.zeros(steps, bool), "truncated": end})  # fmt: skip
    return bcrl.Dataset.from_episodes(made, num_actions=2)


def arm_one(x):
    return np.ones(len(x), dtype=int)


def by_name(found):
    return {one.name: one for one in found.tests}


@dataclass(frozen=True)
class Overstating:
    """Adds half of the log's return to every value, and promises to be exact."""

    def estimate(self, question, run):
        found = Consensus().estimate(question, run)
        extra = 0.5 * float(np.abs(question.dataset.rewards).sum()) / question.dataset.num_episodes
        return {name: replace(one, value=one.value + extra) for name, one in found.items()}


@pytest.fixture(scope="module")
def sound():
    return stress(steps_log(), arm_one, discount=0.9, horizon=3)


def test_a_sound_answer_stands(sound):
    found = by_name(sound)
    assert sound.difference.decision == "better"
    assert [found[name].fired for name in ("placebo reward", "shuffled actions", "left out")] == [False] * 3
    assert found["hidden confounder"].fired is None and "memoryless" in found["hidden confounder"].text
    assert sound.verdict == "trust"


def test_a_method_that_finds_something_in_nothing_is_caught():
    found = stress(steps_log(episodes=40), arm_one, discount=0.9, horizon=3, method=Overstating())
    assert by_name(found)["placebo reward"].fired and by_name(found)["shuffled actions"].fired
    assert found.verdict == "distrust"


def test_a_decision_that_one_cohort_makes_is_caught():
    log = steps_log(episodes=240, steps=4, usual=0.0, last=3.0)
    whole = stress(log, arm_one, discount=0.9, horizon=3)
    found = by_name(whole)["left out"]
    assert whole.difference.decision == "better"
    assert found.fired and "part 6" in found.text


def test_the_strength_of_a_hidden_cause_that_turns_the_decision():
    """Nothing but the hidden cause makes arm 1 look better: its own strength must be enough to turn it."""
    confounded = by_name(stress(bandit_log(effect=0.0, hidden=2.0), arm_one, discount=0.9))
    strong = by_name(stress(bandit_log(effect=3.0), arm_one, discount=0.9))
    assert 1.0 < confounded["hidden confounder"].number < 3.0
    assert strong["hidden confounder"].number > 20.0 and not strong["hidden confounder"].fired
    weak = by_name(stress(bandit_log(effect=0.0, hidden=0.4, rounds=3_000), arm_one, discount=0.9))
    assert weak["hidden confounder"].fired


def test_placebo_rewards_keep_what_each_step_paid_and_nothing_else():
    log = steps_log(episodes=30)
    rewards, dealt = placebo_rewards(log, np.random.default_rng(0))
    assert dealt == 30
    per_step = rewards.reshape(30, 10).mean(axis=0)
    np.testing.assert_allclose(per_step, log.rewards.mean(), atol=1e-9)
    assert abs(np.corrcoef(rewards, log.actions.reshape(-1))[0, 1]) < 0.2
    assert np.corrcoef(log.rewards, log.actions.reshape(-1))[0, 1] > 0.7


def test_the_command_says_one_verdict(tmp_path, capsys):
    import torch

    from bcrl.policies.actor_file import save_actor
    from bcrl.policies.actors import StateActor

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x, ended = rng.normal(size=(300, 1)), np.ones(300, bool)
    u = rng.normal(size=(300, 1))
    log = bcrl.Dataset.from_arrays(
        observations=x,
        actions=u,
        rewards=-(u[:, 0] ** 2),
        next_observations=x,
        terminated=ended,
        truncated=~ended,
    )
    save_actor(tmp_path / "new.safetensors", StateActor(1, 1, (8,)), {})
    save(log, tmp_path / "log")
    words = ["stress", str(tmp_path / "log"), str(tmp_path / "new.safetensors"), "--discount", "0.9"]
    assert main(words) == 0
    assert "Stress tests: " in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] in ("trust", "caution", "distrust")
    with pytest.raises(BadInput, match="one for each of 300"):
        stress(log, lambda x: 0.0 * x, discount=0.9, cohorts=["a"])
