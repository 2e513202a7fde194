"""Every combination of discount and horizon is answered, or refused by a message that helps (F44)."""

import numpy as np
import pytest

import bcrl
from bcrl.errors import BadInput
from bcrl.inference.intervals import affine_power
from bcrl.linear import Moments, lspe
from bcrl.question import LONGEST_HORIZON

EPISODES, LENGTH = 12, 6
METHODS = {
    "random": "LSPE(RandomFeatures(dim=10))",
    "ball": "LSPE(RandomFeatures(dim=10), solver='ball', radius=100.0)",
    "bcrl": "LSPE(BellmanComplete(steps=2, dim=4, batch_size=32), repeats=1)",
    "fqe": "FQE(steps=4, hidden=(4,), flat=Flat(check_every=2))",
    "is": "ImportanceSampling(bandwidth=0.5, behaviour=BehaviourCloning(steps=3))",
    "model": "ModelBased(one_step=OneStep(steps=3), num_rollouts=12)",
}
QUESTIONS = [(0.9, 1), (0.9, 4 * LENGTH), (1, 3), (1.0, 4 * LENGTH), (0.0, None), (0.0, 3)]


def log(*, discrete, terminated):
    rng = np.random.default_rng(0)
    count = EPISODES * LENGTH
    end = np.arange(count) % LENGTH == LENGTH - 1
    x = rng.normal(size=(count, 2))
    return bcrl.Dataset.from_arrays(
        observations=x,
        actions=rng.integers(0, 2, size=count) if discrete else rng.normal(size=(count, 1)),
        rewards=rng.normal(size=count),
        next_observations=np.where(end[:, None], rng.normal(size=x.shape), np.roll(x, -1, axis=0)),
        terminated=end & terminated,
        truncated=end & (not terminated),
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("discrete", [False, True], ids=["continuous", "discrete"])
@pytest.mark.parametrize("terminated", [False, True], ids=["cut off", "ended"])
def test_every_question_has_an_answer(method, discrete, terminated):
    dataset = log(discrete=discrete, terminated=terminated)
    policy = (lambda x: (x[:, 0] > 0).astype(int)) if discrete else (lambda x: -0.5 * x[:, :1])
    for discount, horizon in QUESTIONS:
        estimate = bcrl.evaluate(dataset, policy, discount=discount, horizon=horizon, method=METHODS[method])
        assert estimate.horizon == horizon
        assert np.isfinite(estimate.value) or estimate.verdict == "distrust"


@pytest.mark.parametrize("method", ["DoublyRobust(bandwidth=0.5)", "BestDICE()", "FlowDICE()"])
def test_methods_of_the_whole_future_refuse_a_horizon(method):
    with pytest.raises(BadInput, match="Leave horizon out"):
        bcrl.evaluate(
            log(discrete=False, terminated=False),
            lambda x: -0.5 * x[:, :1],
            discount=0.9,
            horizon=5,
            method=method,
        )


@pytest.mark.parametrize("discount", [0.9, 1.0])
@pytest.mark.parametrize("method", ["random", "model", "fqe"])
def test_a_long_horizon_comes_back(method, discount):
    dataset = log(discrete=False, terminated=True)
    estimate = bcrl.evaluate(
        dataset,
        lambda x: -0.5 * x[:, :1],
        discount=discount,
        horizon=2_000 if method == "model" and discount == 1.0 else LONGEST_HORIZON,
        method=METHODS[method],
    )
    assert np.isfinite(estimate.value) or estimate.verdict == "distrust"


@pytest.mark.parametrize("horizon", [0, -1, 10**6, 10**30, 2.0, True, "9"])
def test_a_horizon_that_nobody_could_see_is_refused(horizon):
    with pytest.raises(BadInput, match=r"horizon is .+ Leave it out for the whole future"):
        bcrl.evaluate(
            log(discrete=False, terminated=False), lambda x: x[:, :1], discount=0.9, horizon=horizon
        )


@pytest.mark.parametrize("seed", [-1, 1.5, 2**63, "0"])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(BadInput, match="seed is"):
        bcrl.evaluate(log(discrete=False, terminated=False), lambda x: x[:, :1], discount=0.9, seed=seed)


def test_the_rest_of_a_horizon_is_left_out_only_where_it_changes_nothing():
    rng = np.random.default_rng(1)
    phi = rng.normal(size=(200, 3))
    following = 0.9 * phi + 0.1 * rng.normal(size=phi.shape)
    moments = Moments.from_features(phi, following, rng.normal(size=200), np.zeros(200, bool))
    for horizon in (40, 3_000):
        solution = lspe(moments, 0.9, horizon=horizon)
        theta = np.zeros(3)
        weights = np.linalg.solve(solution.whitening.matrix.T, np.eye(solution.whitening.matrix.shape[1]))
        operator = solution.whitening.matrix @ solution.operator @ weights.T
        constant = solution.whitening.matrix @ solution.constant
        for _ in range(horizon):
            theta = constant + operator @ theta
        assert solution.theta == pytest.approx(theta, rel=1e-9)
        assert solution.iterations == (40 if horizon == 40 else solution.iterations) < 1_000


def test_repeated_squaring_is_the_iteration():
    rng = np.random.default_rng(2)
    operator, constant, theta = 0.3 * rng.normal(size=(4, 4)), rng.normal(size=4), np.zeros(4)
    for _ in range(77):
        theta = constant + operator @ theta
    assert affine_power(operator, constant, 77) == pytest.approx(theta, rel=1e-10)
