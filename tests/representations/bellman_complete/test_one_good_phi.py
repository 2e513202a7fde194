"""Where one feature map of a class is complete, but the class is not: FQE over the class can stay wrong, BCRL
cannot (src/bcrl_bench/studies/one_good_phi.py).
"""

import numpy as np
import pytest
import torch

import bcrl
from bcrl import FQE, LSPE, BellmanComplete, Dataset
from bcrl.estimate import Status
from bcrl.estimators.fqe import TargetNetwork
from bcrl.networks import Head
from bcrl.representations.bellman_complete.objective import (
    closed_form,
    completeness_loss,
    moments_of,
    reward_loss,
)
from bcrl_bench.studies.one_good_phi import (
    CLASS,
    DISCOUNT,
    REWARD,
    TRANSITION,
    TRUTH,
    backup,
    fqe_over_the_class,
    project,
    samples,
    value_by_lspe,
)


def objective(phi):
    """BCRL's loss of this map with its best M and rho, E[phi' | s] for phi' as the correction has it."""
    here, _ = samples()
    mean_ahead = (TRANSITION @ phi)[here]
    one = torch.from_numpy(phi[here][:, None])
    moments = moments_of(one, [torch.from_numpy(mean_ahead[:, None])], torch.from_numpy(REWARD[here]))
    m, rho = closed_form(moments, DISCOUNT, ridge=0.0)
    complete = completeness_loss(moments, m, DISCOUNT, metric="whitened", ridge=0.0)
    return float(complete + reward_loss(moments, rho))


def test_fqe_over_the_class_keeps_an_inherent_bellman_error():
    f, error = fqe_over_the_class(10.0 * CLASS["constant"])
    assert error == pytest.approx(0.5)
    assert f == pytest.approx(0.5 / (1.0 - DISCOUNT))
    assert abs(f[0] / TRUTH[0] - 1.0) > 1.0


def test_backups_of_the_good_map_stay_in_the_class():
    for w in (-3.0, 1.0, 20.0):
        assert project(backup(w * CLASS["good"]))[1] == pytest.approx(0.0, abs=1e-12)


def test_bcrl_finds_the_good_map_and_the_value():
    losses = {name: objective(phi) for name, phi in CLASS.items()}
    assert losses["good"] == pytest.approx(0.0, abs=1e-12) and losses["constant"] > 0.1
    best = min(losses, key=losses.get)
    assert value_by_lspe(CLASS[best]) == pytest.approx(TRUTH[0], rel=1e-5)
    assert value_by_lspe(CLASS["constant"]) == pytest.approx(5.0, rel=1e-5)


def squares_world(seed=0, count=4000):
    """x1 decays and is the reward; x2 doubles, crookedly, and matters to nobody: x1 is complete, x1 and x2
    are not.
    """
    generator = np.random.default_rng(seed)
    x, drift = generator.standard_normal((count, 2)), 0.1 * generator.standard_normal(count)
    ahead = np.stack([0.8 * x[:, 0] + drift, 2.0 * x[:, 1] + 0.5 * (x[:, 1] ** 2 - 1.0)], axis=1)
    actions = generator.uniform(-1.0, 1.0, (count, 1))
    dataset = Dataset.from_transitions(
        x, actions, 1.0 + x[:, 0], ahead, np.zeros(count, dtype=bool), start_observations=x[:500]
    )
    return dataset, 1.0 / (1.0 - DISCOUNT) + x[:500, 0] / (1.0 - 0.8 * DISCOUNT)


def root_mean_square(estimate, truth):
    return float(np.sqrt(np.mean((estimate.per_start - truth) ** 2)))


def test_our_fqe_goes_wrong_over_a_class_in_which_bcrl_finds_the_value():
    """Both search the linear functions of the observation; FQE keeps whatever it began with along x2, and it
    grows.
    """
    dataset, truth = squares_world()
    asked = {"policy": lambda x: np.zeros((len(x), 1)), "discount": DISCOUNT, "seed": 0}
    quick = {"steps": 4000, "lr": 1e-3, "target_network": TargetNetwork(tau=1.0, every=50)}
    fqe = bcrl.evaluate(dataset, method=FQE(hidden=(), members=1, **quick), **asked)
    assert fqe.status is not Status.CONVERGED and fqe.verdict == "distrust"
    assert root_mean_square(fqe, truth) > 3.0 * truth.std()
    weights = {"value_weight": 0.0, "completeness_weight": 1.0}
    line = BellmanComplete(dim=2, head=Head(layers=1), steps=300, batch_size=512, lr=2e-2, **weights)
    ours = bcrl.evaluate(dataset, method=LSPE(line, repeats=1), **asked)
    assert ours.status is Status.CONVERGED
    assert root_mean_square(ours, truth) < 0.1 * truth.std()
