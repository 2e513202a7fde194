"""The guarded policy: what it does, what it is worth, and that it lives on in a file."""

import numpy as np
import pytest
import torch

import bcrl
from bcrl.errors import BadInput
from bcrl.estimators.lspe.method import LSPE
from bcrl.policies.actor_file import save_actor
from bcrl.policies.actors import StateActor
from bcrl.policies.local import LocalLog
from bcrl.policies.policy import StochasticPolicy
from bcrl.representations.fixed import RandomFeatures

CHEAP = LSPE(RandomFeatures(dim=60, widths=(1.0,)))


def point_log(episodes=60, steps=30, gain=-0.3, noise=0.2, seed=0):
    """A noisy controller pushes a point to the origin."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=episodes)
    seen, done, paid = [x], [], []
    for _ in range(steps):
        u = gain * x + noise * rng.normal(size=episodes)
        done.append(u)
        paid.append(-(x**2))
        x = x + u + 0.05 * rng.normal(size=episodes)
        seen.append(x)
    whole = np.zeros(steps, bool)
    whole[-1] = True
    return bcrl.Dataset.from_episodes(
        [
            {
                "observations": np.stack(seen, 1)[i][:, None],
                "actions": np.stack(done, 1)[i][:, None],
                "rewards": np.stack(paid, 1)[i],
                "terminated": np.zeros(steps, bool),
                "truncated": whole,
            }
            for i in range(episodes)
        ]
    )


def wild(x):
    """Like the log left of 0.5, far from it on the right."""
    return np.where(x < 0.5, -0.3 * x, 4.0)


@pytest.fixture(scope="module")
def found():
    return bcrl.guard(point_log(), wild, discount=0.9, method=CHEAP)


def test_the_new_policy_acts_where_it_is_supported_and_the_clone_elsewhere(found):
    x = np.array([[-0.4], [0.2], [0.8], [1.2]], dtype=np.float32)
    assert isinstance(found.policy, StochasticPolicy)
    drawn = np.stack([found.policy.sample(x, np.random.default_rng(i))[:, 0] for i in range(200)])
    np.testing.assert_allclose(drawn[:, :2], np.tile(-0.3 * x[:2, 0], (200, 1)), atol=1e-5)
    assert drawn[:, 2:].max() < 1.0  # never the wild 4
    np.testing.assert_allclose(drawn[:, 2:].mean(axis=0), -0.3 * x[2:, 0], atol=0.12)
    np.testing.assert_allclose(drawn[:, 2].std(), 0.2, atol=0.08)  # the log's noise is kept


def test_it_is_valued_like_any_policy_and_near_what_it_truly_earns(found):
    rng = np.random.default_rng(5)
    log = point_log()
    x, total = rng.choice(log.observe(log.start_rows)["observation"][:, 0], size=4_000), 0.0
    for step in range(60):
        total += 0.9**step * -(x**2).mean()
        u = found.policy.sample(x[:, None].astype(np.float32), rng)[:, 0]
        x = x + u + 0.05 * rng.normal(size=4_000)
    assert found.chosen.estimate.value == pytest.approx(total, abs=0.12 * abs(total))
    assert 0.5 < found.chosen.followed < 0.99
    assert found.dial[-1].followed == 1.0


def test_the_dial_is_simultaneous_and_the_plain_policy_is_worse_known(found):
    alone = found.chosen.estimate.budget.half
    together = (found.chosen.honest.high - found.chosen.honest.low) / 2.0
    assert together > 1.1 * alone
    widths = [(one.honest.high - one.honest.low) for one in found.dial]
    assert widths[-1] > widths[0]
    assert found.bounds.low < found.bounds.high
    assert any("guarded policy" in line for line in found.sentences)


def test_a_function_cannot_be_stored_and_the_message_says_what_to_do(found, tmp_path):
    with pytest.raises(BadInput, match="Export it to ONNX"):
        found.save(tmp_path / "guarded.safetensors")


def test_the_file_runs_without_the_log_and_is_itself_a_valid_policy(tmp_path):
    torch.manual_seed(0)
    save_actor(tmp_path / "new.safetensors", StateActor(1, 1, (8,)), {})
    result = bcrl.guard(
        point_log(episodes=20), tmp_path / "new.safetensors", discount=0.9, method=CHEAP, thresholds=(1.0,)
    )
    stored = bcrl.load_policy(result.save(tmp_path / "guarded.safetensors"))
    x = np.linspace(-3.0, 3.0, 50, dtype=np.float32)[:, None]
    expected = result.policy.sample(x, np.random.default_rng(1))
    np.testing.assert_array_equal(stored.sample(x, np.random.default_rng(1)), expected)
    again = bcrl.evaluate(point_log(episodes=20, seed=3), stored, discount=0.9, method=CHEAP)
    assert np.isfinite(again.value)
    broken = (tmp_path / "guarded.safetensors").read_bytes().replace(b"threshold", b"thresholt")
    (tmp_path / "broken.safetensors").write_bytes(broken)
    with pytest.raises(BadInput, match="no whole guarded policy"):
        bcrl.load_policy(tmp_path / "broken.safetensors")


def test_own_rows_do_not_vouch_for_themselves():
    dataset = point_log(episodes=5)
    log = LocalLog.of(dataset)
    rows = log.states[:20].astype(np.float64)
    near, distance = log.neighbours(rows, log.unit[:20])
    assert not (log.unit[near] == log.unit[:20, None]).any()
    assert (log.neighbours(rows)[1] < 1e-3).all()
    assert distance.max() > 1e-3
