"""Truth against brute force: returns past the limit, ends of the world, stopping rule, cache."""

import numpy as np
import pytest

from bcrl.errors import BadInput
from bcrl_bench.policies.shipped import shipped_actor
from bcrl_bench.rollouts import Behaviour
from bcrl_bench.tasks import ControlTask
from bcrl_bench.truth import TruthQuestion, discounted_returns, load_truth, simulate, true_value


def small(**changes):
    fields = {"discount": 0.9, "visited": 20, "keep_every": 5, "minimum": 4, "maximum": 4, "cut": 1e-4}
    return TruthQuestion(
        "cheetah-run", Behaviour(shipped_actor("cheetah-run", "100"), noise=0.0), **(fields | changes)
    )


def test_discounted_returns_are_the_sums_they_say():
    rewards = np.random.default_rng(0).normal(size=30)
    got = discounted_returns(rewards, 0.8, visited=10, tail=12)
    wanted = [sum(0.8**k * rewards[t + k] for k in range(12)) for t in range(10)]
    np.testing.assert_allclose(got, wanted)


def test_an_ended_episode_pays_nothing_more_and_has_no_later_steps():
    got = discounted_returns(np.array([1.0, 2.0]), 0.5, visited=4, tail=50)
    np.testing.assert_allclose(got, [2.0, 2.0, np.nan, np.nan])


def test_truth_equals_brute_force_step_by_step():
    question = small()
    truth = simulate(question, processes=1)
    task, policy = ControlTask("cheetah-run", pixels=None, limit=None), question.behaviour.policy
    for rollout in range(2):
        generator = np.random.default_rng(question.episode_seed(rollout))
        observation, _ = task.reset(seed=int(generator.integers(2**31)))
        rewards = []
        for step in range(120):
            if step == 15:
                np.testing.assert_array_equal(observation["state"], truth.states[rollout, 3])
            observation, reward, *_ = task.step(policy.act(observation["state"][None])[0])
            rewards.append(reward)
        for step in (0, 7, 19):
            wanted = sum(0.9**k * rewards[step + k] for k in range(100))
            assert abs(truth.returns_to_go[rollout, step] - wanted) <= truth.left_out + 1e-4 * abs(wanted)
    np.testing.assert_allclose(truth.per_step[0], truth.value)
    np.testing.assert_allclose(truth.per_step_error[0], truth.standard_error)
    np.testing.assert_allclose(truth.standard_error, truth.returns_to_go[:, 0].std(ddof=1) / 2)


def test_the_last_visited_step_is_followed_past_the_limit():
    truth = simulate(small(), processes=1)
    # the cheetah is faster at step 19 than at step 0, so a return cut at the limit (one reward) would be far
    # lower
    assert truth.per_step[19] > truth.per_step[0]


def test_rollouts_go_on_until_the_error_is_small():
    loose = simulate(small(minimum=3, maximum=12, precision=10.0), processes=1)
    strict = simulate(small(minimum=3, maximum=12, precision=1e-9), processes=1)
    assert (loose.rollouts, strict.rollouts) == (3, 12)
    np.testing.assert_array_equal(loose.returns_to_go, strict.returns_to_go[:3])


def test_processes_do_not_change_the_answer_and_the_cache_is_read(tmp_path):
    one = true_value(small(), cache=tmp_path, processes=1)
    two = simulate(small(), processes=2)
    np.testing.assert_array_equal(one.returns_to_go, two.returns_to_go)
    kept = load_truth(tmp_path, small().key())
    assert kept.value == one.value and kept.rollouts == 4
    np.testing.assert_array_equal(kept.states, one.states)
    # a changed cache file comes back as it is: proof that nothing was simulated
    path = tmp_path / f"{small().key()}.json"
    path.write_text(path.read_text().replace('"rollouts": 4', '"rollouts": 5'))
    assert true_value(small(), cache=tmp_path, processes=1).rollouts == 5


def test_the_key_knows_what_matters():
    other = Behaviour(shipped_actor("cheetah-run", "075"), noise=0.0)
    noisy = Behaviour(shipped_actor("cheetah-run", "100"), noise=0.1)
    questions = [small(), small(discount=0.8), small(seed=1), small(horizon=5)]
    questions += [TruthQuestion("cheetah-run", behaviour, 0.9) for behaviour in (other, noisy)]
    assert len({question.key() for question in questions}) == len(questions)


def test_occupancy_weights_are_discounted_and_sum_to_one():
    truth = simulate(small(), processes=1)
    states, actions, weights = truth.occupancy()
    assert len(states) == len(actions) == len(weights) == 4 * 4
    np.testing.assert_allclose(weights.sum(), 1.0)
    np.testing.assert_allclose(weights[1] / weights[0], 0.9**5)
    np.testing.assert_array_equal(states[4], truth.states[1, 0])


def test_given_start_seeds_are_the_start_states():
    truth = simulate(small(start_seeds=((5, 0), (5, 1), (5, 0))), processes=1)
    assert truth.rollouts == 3
    assert truth.returns_to_go[0, 0] == truth.returns_to_go[2, 0] != truth.returns_to_go[1, 0]


def test_a_discount_of_one_needs_a_horizon():
    with pytest.raises(BadInput, match="horizon"):
        small(discount=1.0).tail()
    truth = simulate(small(discount=1.0, horizon=10, maximum=2, minimum=2), processes=1)
    assert truth.left_out == 0.0
