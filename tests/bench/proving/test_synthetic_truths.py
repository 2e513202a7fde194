"""Every synthetic family's truth, found a second way: exact solves against rollouts, tables made by hand, and
plain loops over one episode.
"""

import math

import numpy as np
import pytest
from scipy import stats

from bcrl_bench.proving.family import load_family
from bcrl_bench.proving.regimes import cases_of, policy_of
from bcrl_bench.proving.truth import returns
from bcrl_bench.proving.world import play

HORIZON = 12


def simulated(family, world, policy, *, discount, horizon=HORIZON, num=3_000):
    """Mean return and its standard error over fresh rollouts."""
    rewards, rng = np.zeros((num, horizon)), np.random.default_rng(1)

    def visit(step):
        rewards[step.alive, step.time] = step.rewards

    play(world, policy, world.start(num, rng), horizon, rng, visit=visit)
    found = returns(rewards, discount, None)
    return found.mean(), found.std() / math.sqrt(num)


def agrees(family, words, value, **question):
    world = family.make(3)
    mean, error = simulated(family, world, policy_of(family, world, words), **question)
    assert abs(mean - value) < 4.5 * error + 1e-9
    return abs(value)


@pytest.mark.parametrize("name", ["tabular", "low_rank", "chain", "lqr", "heavy_tails"])
@pytest.mark.parametrize("words", ["good", "noisy medium"])
def test_exact_values_are_what_rollouts_earn(name, words):
    family = load_family(name)
    world = family.make(3)
    policy = policy_of(family, world, words)
    horizon = 40 if name == "chain" else HORIZON
    agrees(family, words, world.exact_value(policy, 0.95, horizon), discount=0.95, horizon=horizon)


@pytest.mark.parametrize("name", ["tabular", "low_rank", "chain", "lqr", "heavy_tails"])
def test_a_long_horizon_is_the_whole_future(name):
    family = load_family(name)
    world = family.make(2)
    policy = policy_of(family, world, "medium")
    whole, long = (world.exact_value(policy, 0.9, horizon) for horizon in (None, 300))
    assert whole == pytest.approx(long, rel=1e-9)
    starts = world.observe(world.start(5, np.random.default_rng(0)))
    values = [world.exact_v(policy, starts, 0.9, horizon) for horizon in (None, 300)]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-6)


def table_value(starts, step, discount):
    """Value over `HORIZON` steps by plain recursion: step(state) lists (probability, reward, next state)."""
    values = {}
    for _ in range(HORIZON):
        values = {
            state: sum(p * (r + discount * values.get(onward, 0.0)) for p, r, onward in step(state))
            for state in starts
        }
    return values


def test_inventory_by_a_table_made_by_hand():
    family = load_family("inventory")
    world = family.make(3)
    policy = policy_of(family, world, "good")

    def step(state):
        stock, month = state
        order = int(policy.act(world.observe(np.array([state])))[0])
        there = min(stock + order, 30)
        rate = world.demand * (1.0 + world.swing * math.sin(2.0 * math.pi * month / 12))
        for sold in range(there + 1):
            chance = stats.poisson.pmf(sold, rate) if sold < there else stats.poisson.sf(there - 1, rate)
            reward = 2.0 * sold - order - (order > 0) - 0.12 * (there - sold)
            yield chance, reward, (there - sold, (month + 1) % 12)

    everywhere = [(stock, month) for stock in range(31) for month in range(12)]
    outcomes = {state: list(step(state)) for state in everywhere}
    values = table_value(everywhere, outcomes.__getitem__, 0.95)
    expected = np.mean([values[stock, month] for stock in range(15) for month in range(12)])
    assert agrees(family, "good", expected, discount=0.95) > 1.0


def test_queue_by_a_table_made_by_hand():
    family = load_family("queue")
    world = family.make(3)
    policy = policy_of(family, world, "medium")
    arrivals = {0: world.calm, 1: world.busy}

    def step(state):
        waiting, burst = state
        speed = int(policy.act(world.observe(np.array([state])))[0])
        for served in range(waiting + 1):
            last = served == waiting
            chance = stats.poisson.sf(served - 1, speed) if last else stats.poisson.pmf(served, speed)
            for come in range(25):
                there = waiting - served + come
                reward = 0.6 * served - 0.04 * waiting - 0.12 * speed**1.5 - max(there - 40, 0)
                both = chance * pmf[burst][come]
                for flip, share in ((0, 0.94), (1, 0.06)):
                    yield both * share, reward, (min(there, 40), burst ^ flip)

    pmf = {burst: stats.poisson.pmf(np.arange(25), rate) for burst, rate in arrivals.items()}
    everywhere = [(waiting, burst) for waiting in range(41) for burst in (0, 1)]
    outcomes = {state: list(step(state)) for state in everywhere}
    values = table_value(everywhere, outcomes.__getitem__, 0.95)
    expected = np.mean([values[waiting, burst] for waiting in range(10) for burst in (0, 1)])
    assert agrees(family, "medium", expected, discount=0.95) > 0.5


class Recorded:
    """A generator that keeps the standard normals it gave, so that a plain loop can use the same."""

    def __init__(self):
        self.source, self.given = np.random.default_rng(4), []

    def standard_normal(self, size):
        self.given.append(self.source.standard_normal(size))
        return self.given[-1]


def one_step(name, plain, actions_scale=0.5):
    """Rewards and next states of a family's step, and those of a plain function of one state."""
    world = load_family(name).make(1)
    state = world.start(7, np.random.default_rng(2))
    actions = actions_scale * np.random.default_rng(3).standard_normal((7, 2))
    rng = Recorded()
    rewards, following, ended = world.step(state.copy(), actions, rng)
    for i in range(7):
        noise = rng.given[0][i] if rng.given else None
        reward, onward, end = plain(
            world, [float(x) for x in state[i]], [float(a) for a in actions[i]], noise
        )
        assert rewards[i] == pytest.approx(reward)
        np.testing.assert_allclose(following[i], onward, rtol=1e-9, atol=1e-12)
        assert bool(ended[i]) == end


def test_nonlinear_lqr_by_a_plain_loop():
    def plain(world, s, a, noise):
        reward = -math.log(1.0 + sum(x * x for x in s[:4]) + 0.2 * sum(u * u for u in a))
        onward = [
            sum(world.a[i, j] * s[j] for j in range(4))
            + sum(world.b[i, k] * math.tanh(a[k]) for k in range(2))
            + 0.2 * math.sin(2.0 * s[i])
            + 0.1 * noise[i]
            for i in range(4)
        ]
        keep = world.keeps
        onward += [keep[j] * s[4 + j] + math.sqrt(1.0 - keep[j] ** 2) * noise[4 + j] for j in range(6)]
        return reward, onward, False

    one_step("nonlinear_lqr", plain)


def test_the_mover_by_a_plain_loop():
    def plain(world, s, a, noise):
        phase, speed = s
        off = (a[0] - 0.6 * math.sin(phase)) ** 2 + (a[1] - 0.6 * math.sin(phase + world.swing)) ** 2
        turned = (phase + world.turn * (1.0 + 0.2 * speed)) % (2.0 * math.pi)
        return speed, [turned, 0.9 * speed + 0.1 * math.exp(-4.0 * off) + 0.005 * noise], False

    one_step("noise_slowed", plain)


def test_the_oscillators_by_a_plain_loop():
    def plain(world, s, a, noise):
        x, y, u, v = s
        (k, m), c = world.stiff, world.coupling
        held = 0.5 * (u * u + v * v + k * x * x + m * y * y + c * (x - y) ** 2)
        reward = 1.0 / (1.0 + 2.0 * (held - 1.0) ** 2) + 0.3 * x - 0.05 * (a[0] ** 2 + a[1] ** 2)
        push = [min(max(one, -1.0), 1.0) for one in a]
        u += 0.15 * (-k * x - c * (x - y) + push[0])
        v += 0.15 * (-m * y - c * (y - x) + push[1])
        return reward, [x + 0.15 * u, y + 0.15 * v, u, v], False

    one_step("oscillator", plain, actions_scale=1.0)


def test_the_hopper_by_a_plain_loop():
    def plain(world, s, a, noise):
        height, rise, tilt, rate, speed = s
        thrust, torque = (min(max(one, -1.0), 1.0) for one in a)
        ground = height < 0.0
        reward = 1.0 + speed - 0.05 * (thrust**2 + torque**2)
        lift = -world.spring * height - 1.5 * rise + 4.0 * max(thrust, 0.0) if ground else 0.0
        rise += 0.05 * (lift - 5.0)
        rate += 0.05 * (world.topple * math.sin(tilt) + (8.0 if ground else 3.0) * torque) + 0.04 * noise
        speed += 0.05 * ((12.0 * tilt * (0.5 + thrust) if ground else 0.0) - 0.6 * speed)
        tilt += 0.05 * rate
        return reward, [height + 0.05 * rise, rise, tilt, rate, speed], abs(tilt) > 0.45

    one_step("hopper_toy", plain)


def test_the_hopper_falls():
    family = load_family("hopper_toy")
    world, fallen, rng = family.make(0), [], np.random.default_rng(0)
    policy = policy_of(family, world, "loud poor")
    play(
        world, policy, world.start(50, rng), 200, rng, visit=lambda step: fallen.append(step.terminated.sum())
    )
    assert sum(fallen) > 10


def test_an_oscillator_left_alone_keeps_its_energy():
    world = load_family("oscillator").make(0)
    module = __import__("bcrl_bench.proving.families.oscillator", fromlist=["energy"])
    state = world.start(20, np.random.default_rng(0))
    before = module.energy(state, world.stiff, world.coupling)
    for _ in range(2_000):
        _, state, _ = world.step(state, np.zeros((20, 2)), np.random.default_rng(0))
    after = module.energy(state, world.stiff, world.coupling)
    assert np.abs(after / before - 1.0).max() < 0.3


def test_noise_slows_the_mover(tmp_path):
    """Without its noise a policy earns 1.4 times as much as with it, and more than any logged episode."""
    from bcrl.inference.contrast import discounted_returns
    from bcrl_bench.proving.ground import prepare

    cases = [c for c in cases_of(load_family("noise_slowed")) if c.target == "greedy" and c.horizon == 80]
    assert {case.regime for case in cases} >= {"noisy"}
    for case in [c for c in cases if c.regime in ("noisy", "good")][:2]:
        one = prepare(case, tmp_path)
        logged = discounted_returns(one.dataset, case.discount, case.horizon)
        assert one.truth.value > 1.4 * logged.mean() and one.truth.value > logged.max()
        assert one.mark["mark"] != "covered"
