"""The design terms: what they do to the spectrum of Sigma, as weights and as the constraint of the theory."""

import dataclasses

import pytest

from bcrl.estimators.lspe.method import LSPE
from bcrl.networks import Head
from bcrl.representations.bellman_complete import BellmanComplete, Design
from bcrl_bench.asking import ask
from bcrl_bench.worlds import lqr

# The paper's loss with ||phi|| = 1, as the theory has it: nothing but the design opposes a collapse of
# directions.
PLAIN = BellmanComplete(
    dim=8,
    head=Head(32, 2, norm="sphere"),
    batch_size=512,
    steps=200,
    lr=3e-3,
    evaluations=3,
    metric="plain",
    completeness_weight=1.0,
    value_weight=0.0,
)
BETA = 0.05


def evaluated(recipe):
    world = lqr()
    dataset = world.dataset(100, 30, 0)
    return ask(LSPE(recipe), dataset, {"target": world.target}, discount=world.discount)["target"]


@pytest.fixture(scope="module")
def without():
    return evaluated(PLAIN)


@pytest.mark.parametrize(("design", "weight"), [("D", 0.1), ("E", 30.0)])
def test_design_improves_the_condition_number_tenfold(without, design, weight):
    """Measured: 10,600 without, 296 with D, 115 with E."""
    better = evaluated(dataclasses.replace(PLAIN, design=Design(design, weight)))
    assert better.stats["condition_number"] * 10.0 < without.stats["condition_number"]
    assert better.stats["lambda_min"] > without.stats["lambda_min"]


def test_the_constraint_holds_on_held_out_data(without):
    """R_E >= beta/2 in training gives lambda_min >= beta/4 on episodes that training never saw."""
    bound = evaluated(dataclasses.replace(PLAIN, design=Design("E", constraint=BETA, multiplier_lr=0.05)))
    assert bound.curves["train/design"][-1] >= BETA / 2.0
    assert bound.curves["train/lambda_min"][-1] >= BETA / 4.0
    assert max(bound.curves["train/multiplier"]) > 0.0
    assert without.curves["train/lambda_min"][-1] < BETA / 4.0
