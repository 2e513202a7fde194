"""FQE on an exact world, as its tests run it: small critics that take seconds."""

import dataclasses

import numpy as np

from bcrl.estimators.fqe import FQE, Flat, TargetNetwork
from bcrl.question import starts_of
from bcrl.training import Run
from bcrl_bench.asking import ask
from bcrl_bench.worlds import chain

QUICK = FQE(
    hidden=(64, 64),
    lr=1e-3,
    batch_size=128,
    members=1,
    steps=3000,
    flat=Flat(least_steps=1000, check_every=50),
    target_network=TargetNetwork(tau=0.02),
)


def estimate(dataset, policy, *, discount, method=QUICK, seed=0, horizon=None, run=None, starts=None):
    """One policy by FQE."""
    answers = ask(
        method,
        dataset,
        {"target": policy},
        discount=discount,
        horizon=horizon,
        starts=starts_of(dataset, starts),
        seed=seed,
        run=run or Run(device="cpu"),
    )
    return answers["target"]


def on(world, num, length, *, method=QUICK, seed=0, horizon=None, run=None):
    """FQE on fresh data of a world."""
    data = world.dataset(num, length, seed)
    return estimate(
        data, world.target, discount=world.discount, method=method, seed=seed, horizon=horizon, run=run
    )


def ending_chain():
    """The chain, ended by the world at its last state, whose record then shows the first state again."""
    ends = np.zeros((6, 2))
    ends[-1] = 1.0
    return dataclasses.replace(chain(), ends=ends)
