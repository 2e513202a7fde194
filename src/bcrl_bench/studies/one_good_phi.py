"""The paper's comparison with FQE: a class of two representations, one of which is complete.

    python -m bcrl_bench.studies.one_good_phi

Two states; in state 0 the reward is 1 and the world moves on with probability 1 - STAY, in state 1 it stays
for ever without reward. The class has two maps of one feature: 1[s = 0], which is complete (M = discount
STAY, rho = 1), and the constant, whose backups r + discount w leave the class. FQE that starts at a constant
(a network too starts somewhere in its class) stays with the constants, because each of its targets is nearer
to a constant than to a multiple of the good map. FQE that starts at 0 would stay with the good map: eps_ibe
is a worst case over the class.
"""

import numpy as np

from bcrl.estimate import FloatArray
from bcrl.linear import Candidate, InherentBellmanError, Moments, inherent_bellman_error, lspe

DISCOUNT, STAY = 0.9, 0.5
REWARD = np.array([1.0, 0.0])
TRANSITION = np.array([[STAY, 1.0 - STAY], [0.0, 1.0]])
TRUTH = np.linalg.solve(np.eye(2) - DISCOUNT * TRANSITION, REWARD)
CLASS = {"good": np.array([1.0, 0.0]), "constant": np.array([1.0, 1.0])}


def backup(f: FloatArray) -> FloatArray:
    """T f."""
    return np.asarray(REWARD + DISCOUNT * TRANSITION @ f)


def project(target: FloatArray) -> tuple[FloatArray, float]:
    """The nearest function of the whole class, both states weighing the same, and how far it is."""
    fits = [phi * (phi @ target) / (phi @ phi) for phi in CLASS.values()]
    errors = [float(np.sqrt(np.mean((fit - target) ** 2))) for fit in fits]
    return fits[int(np.argmin(errors))], min(errors)


def fqe_over_the_class(start: FloatArray, iterations: int = 500) -> tuple[FloatArray, float]:
    """FQE with infinite data from this first function: its last one, and that one's error of projection."""
    f, error = start, 0.0
    for _ in range(iterations):
        f, error = project(backup(f))
    return f, error


def comparison(radius: float) -> InherentBellmanError:
    """eps_ibe of the class and eps_nu of each of its maps."""
    candidates = {name: Candidate(phi[:, None], (TRANSITION @ phi)[:, None]) for name, phi in CLASS.items()}
    return inherent_bellman_error(candidates, REWARD, discount=DISCOUNT, radius=radius)


def samples() -> tuple[FloatArray, FloatArray]:
    """States and next states in exactly their proportions: 0 goes to 0 and to 1, 1 stays (twice, for equal
    weight).
    """
    return np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])


def value_by_lspe(phi: FloatArray) -> float:
    """V(state 0) by Algorithm 1 on one map."""
    here, there = samples()
    moments = Moments.from_features(
        phi[here][:, None], phi[there][:, None], REWARD[here], np.zeros(4, dtype=bool)
    )
    return float(phi[0] * lspe(moments, DISCOUNT, iterations=500).theta[0])


def main() -> None:
    found = comparison(radius=100.0)
    print(f"true value of state 0: {TRUTH[0]:.3f}")
    print(f"eps_ibe of the class: {found.lower:.3f} to {found.upper:.3f}, at a backup of {found.worst[0]}")
    print(
        f"FQE over the class from the constant 10: {fqe_over_the_class(10.0 * CLASS['constant'])[0][0]:.3f}"
    )
    print(f"FQE over the class from 0: {fqe_over_the_class(np.zeros(2))[0][0]:.3f}")
    for name, phi in CLASS.items():
        print(f"{name}: eps_nu {found.own[name].upper:.3g}, LSPE says {value_by_lspe(phi):.3f}")


if __name__ == "__main__":
    main()
