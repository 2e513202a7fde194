"""Every method says how much data it needs and refuses less, before anything is trained (F14).

Seen on 1cdf397: `ModelBased` of 5 steps on the two transitions below says 1.77, "trust", without an interval.
"""

import numpy as np
import pytest

import bcrl
from bcrl_bench.worlds.findings import f14_two_transitions

METHODS = {
    "bcrl": bcrl.LSPE(),
    "random": bcrl.LSPE(bcrl.RandomFeatures()),
    "fqe": bcrl.FQE(),
    "dice": bcrl.FlowDICE(),
    "is": bcrl.ImportanceSampling(bandwidth=0.1),
    "dr": bcrl.DoublyRobust(bandwidth=0.1),
    "model": bcrl.ModelBased(),
}


@pytest.mark.parametrize("name", list(METHODS))
def test_two_transitions_are_refused_by_every_method(name):
    case, method = f14_two_transitions(), METHODS[name]
    with pytest.raises(bcrl.BadInput, match=f"needs at least {method.least_transitions} transitions.* 2"):
        bcrl.evaluate(bcrl.Dataset.from_arrays(**case.arrays), case.policy, discount=0.9, method=method)


def test_one_method_that_needs_more_stops_the_comparison_before_any_training():
    rng, count, told = np.random.default_rng(0), 15, []
    data = bcrl.Dataset.from_arrays(
        rng.normal(size=(count, 1)),
        rng.normal(size=(count, 1)),
        rng.normal(size=count),
        np.arange(count) % 5 == 4,
    )
    methods = {"is": bcrl.ImportanceSampling(bandwidth=0.5), "model": bcrl.ModelBased()}
    with pytest.raises(bcrl.BadInput, match="model needs at least"):
        bcrl.compare(data, {"p": lambda x: 0 * x}, discount=0.9, methods=methods, show=told.append)
    assert not told


def test_a_method_of_ones_own_needs_no_minimum():
    class Zero:
        def estimate(self, question, run):
            return {name: bcrl.Estimate(0.0, "zero", question.discount) for name in question.targets}

    case = f14_two_transitions()
    data = bcrl.Dataset.from_arrays(**case.arrays)
    assert bcrl.evaluate(data, case.policy, discount=0.9, method=Zero()).verdict != "trust"
