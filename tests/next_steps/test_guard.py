"""The guarded policy: what it does, what it is worth, and that it lives on in a file."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import bcrl
from bcrl.errors import BadInput
from bcrl.estimate import Estimate
from bcrl.estimators.lspe.method import LSPE
from bcrl.inference.budget import stretch
from bcrl.next_steps.guard import Setting, _chosen, _together
from bcrl.policies.actor_file import save_actor
from bcrl.policies.actors import StateActor
from bcrl.policies.local import LocalLog
from bcrl.policies.policy import StochasticPolicy
from bcrl.representations.fixed import RandomFeatures

CHEAP = LSPE(RandomFeatures(dim=60, widths=(1.0,)))


def point_log(episodes=60, steps=30, gain=-0.3, noise=0.2, seed=0, wave=0.0):
    """A noisy controller pushes a point to the origin."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=episodes)
    seen, done, paid = [x], [], []
    for _ in range(steps):
        u = gain * x + wave * np.sin(8.0 * x) + noise * rng.normal(size=episodes)
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
    return bcrl.guard(point_log(), wild, discount=0.9, method=CHEAP, thresholds=(0.25, 0.5, 1.0))


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


def answer(influence):
    return Estimate(value=1.0, method="m", discount=0.9, influence=np.asarray(influence, dtype=float))


def test_settings_that_err_alike_need_hardly_more_than_one_and_strangers_need_more():
    alike = [answer([0.1, -0.2, 0.3]) for _ in range(3)]
    assert _together(alike, 0) == pytest.approx(1.0, abs=0.01)
    strangers = [answer(row) for row in np.eye(3)]
    assert _together(strangers, 0) == pytest.approx(2.388 / 1.960, abs=0.02)  # 1 - 0.05 = (1 - p)^3
    unknown = [replace(alike[0], influence=None), *alike[1:]]
    assert _together(unknown, 0) == stretch(3)  # nothing is known of how they err together


def test_the_dial_follows_the_policy_at_growing_shares_of_the_steps():
    found = bcrl.guard(point_log(), lambda x: -0.3 * x + np.sin(4.0 * x), discount=0.9)
    shares = [one.followed for one in found.dial]
    assert shares == sorted(shares)
    assert 0.2 < shares[0] < 0.5  # asked for: 0.3 of the logged steps
    assert shares[-2] - shares[0] > 0.2
    assert all(one.threshold <= 1.0 for one in found.dial[:-1])
    assert found.chosen.estimate.method == "Consensus()"


def test_what_no_setting_makes_trusted_stays_as_careful_as_it_can_be():
    def setting(threshold, verdict):
        return Setting(threshold, 0.5, answer([1.0]), None, verdict, None)

    plain = setting(np.inf, "caution")
    assert _chosen([setting(0.2, "trust"), setting(0.5, "caution"), plain]).threshold == 0.2
    assert _chosen([setting(0.2, "caution"), setting(0.5, "caution"), plain]).threshold == 0.5
    assert _chosen([setting(0.2, "caution"), setting(0.5, "distrust"), plain]).threshold == 0.2
    assert _chosen([setting(0.2, "distrust"), setting(0.5, "distrust"), plain]).threshold == 0.2
    assert np.isinf(_chosen([setting(0.2, "trust"), setting(np.inf, "trust")]).threshold)


def test_the_clone_looks_at_as_many_neighbours_as_the_log_bears():
    straight, bent = LocalLog.of(point_log()), LocalLog.of(point_log(gain=0.0, noise=0.02, wave=1.0))
    assert straight.fitted > bent.fitted  # a line everywhere, and one that turns every few tenths
    x = np.linspace(-0.8, 0.8, 40)[:, None]
    for log, mean in ((straight, -0.3 * x), (bent, np.sin(8.0 * x))):
        drawn = log.draws(log.codes(x), np.random.default_rng(0), 400)
        assert np.abs(drawn.mean(axis=1) - mean).mean() < 0.06


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
