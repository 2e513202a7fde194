"""The inherent Bellman error of a class (F26) against brute force, and the comparison with FQE by it."""

import numpy as np
import pytest
from scipy.optimize import minimize

from bcrl.errors import BadInput
from bcrl.linear import Candidate, inherent_bellman_error
from bcrl_bench.studies.one_good_phi import (
    CLASS,
    DISCOUNT,
    TRUTH,
    comparison,
    fqe_over_the_class,
    value_by_lspe,
)


def brute_force(candidates, rewards, radius, shares):
    """max over w on a grid of the ball of two dimensions, min over answers by a solver."""
    angles, lengths = np.linspace(0.0, 2.0 * np.pi, 49), (0.4, 0.7, 1.0)
    worst = 0.0
    for backed in candidates.values():
        for length in lengths:
            for angle in angles:
                w = radius * length * np.array([np.cos(angle), np.sin(angle)])
                target = rewards + DISCOUNT * backed.ahead @ w
                errors = []
                for answer in candidates.values():

                    def loss(v, answer=answer, target=target):
                        return float(shares @ (answer.phi @ v - target) ** 2)

                    inside = {"type": "ineq", "fun": lambda v: radius**2 - v @ v}
                    errors.append(
                        minimize(loss, np.zeros(2), constraints=inside, options={"ftol": 1e-12}).fun
                    )
                worst = max(worst, min(errors))
    return worst


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("radius", [0.5, 3.0])
def test_the_bracket_holds_the_max_min_of_the_definition(seed, radius):
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(5), size=5)
    rewards, shares = rng.normal(size=5), rng.dirichlet(np.ones(5))
    maps = {str(k): rng.normal(size=(5, 2)) for k in range(3)}
    candidates = {name: Candidate(phi, transition @ phi) for name, phi in maps.items()}
    found = inherent_bellman_error(candidates, rewards, discount=DISCOUNT, radius=radius, weights=shares)
    exact = brute_force(candidates, rewards, radius, shares)
    assert found.upper >= exact * (1.0 - 1e-6)
    assert found.lower >= exact * (1.0 - 1e-3)  # the search is no worse than a grid
    assert found.lower <= found.upper


def test_one_representation_is_definition_1():
    rng = np.random.default_rng(1)
    phi = rng.normal(size=(6, 3))
    candidate = {"only": Candidate(phi, rng.dirichlet(np.ones(6), size=6) @ phi)}
    found = inherent_bellman_error(candidate, rng.normal(size=6), discount=DISCOUNT, radius=1.0)
    assert found.lower == pytest.approx(found.own["only"].lower ** 2)
    assert found.upper == pytest.approx(found.own["only"].upper ** 2)


@pytest.mark.parametrize("radius", [10.0, 100.0])
def test_large_for_fqe_and_zero_for_the_phi_of_bcrl(radius):
    """A complete map beside the constant, whose backups leave the class."""
    found = comparison(radius)
    # T(w) = (1 + 0.9 w, 0.9 w): the nearest constant is 0.5 away in either state.
    assert found.lower == pytest.approx(0.25) and found.upper == pytest.approx(0.25)
    assert found.worst[0] == "constant"
    assert found.own["good"].upper < 1e-7 * radius
    # FQE can end where that error lets it: 5 for a state that is worth 1.8; LSPE on the good map cannot.
    assert fqe_over_the_class(10.0 * CLASS["constant"])[0][0] == pytest.approx(5.0)
    assert fqe_over_the_class(np.zeros(2))[0] == pytest.approx(TRUTH)  # the worst case, not every case
    assert value_by_lspe(CLASS["good"]) == pytest.approx(TRUTH[0])


def test_every_map_of_the_class_may_answer():
    """F26: what one map misses of its own backups is not the class's error."""
    transition = np.array([[0.5, 0.5], [0.0, 1.0]])
    maps = {"constant": np.ones((2, 1)), "all": np.eye(2)}
    candidates = {name: Candidate(phi, transition @ phi) for name, phi in maps.items()}
    found = inherent_bellman_error(candidates, np.array([1.0, 0.0]), discount=0.5, radius=10.0)
    assert found.own["constant"].lower == pytest.approx(0.5)  # r = (1, 0) is half off
    assert found.lower <= found.upper < 1e-12


def test_no_class_is_refused():
    with pytest.raises(BadInput, match="candidates is empty"):
        inherent_bellman_error({}, np.zeros(2), discount=0.9, radius=1.0)
