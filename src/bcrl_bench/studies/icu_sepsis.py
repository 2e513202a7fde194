"""How well any method can do on ICU-Sepsis: the efficiency bound for tables, from the dynamics alone.

    python -m bcrl_bench.studies.icu_sepsis

For n logged episodes and large n no method has less variance in all such worlds than this, and counting
transitions has just this:

    1/n [ sum over (s, a) of d_pi(s, a)^2 / mu(s, a) * Var(r + discount V(s') | s, a)  +  Var(V(s_0)) ],

with d_pi(s, a) the discounted visits of an evaluated episode and mu(s, a) the visits of a logged one. Writes
results/icu_sepsis_bound.json: its root as a share of the value, for 2,000 episodes of the clinicians. No
method runs here.
"""

import numpy as np

from bcrl_bench.proving.arrivals import Arrivals
from bcrl_bench.proving.families.icu_sepsis import make
from bcrl_bench.proving.tables import Table
from bcrl_bench.studies.study import Row, Study

EPISODES = 2_000
# The family's names of the policies.
POLICIES = {"expert": "medium", "half-way": "good", "optimal": "other"}
DISCOUNTS = (1.0, 0.99)
STUDY = Study(
    "icu_sepsis_bound",
    "python -m bcrl_bench.studies.icu_sepsis",
    key=("policy", "discount"),
    about={"episodes": EPISODES, "logged_by": "expert"},
)


def bound(world: Arrivals, logging: Table, target: Table, discount: float) -> tuple[float, float]:
    """The target's value, and n times the least variance of its estimate from n episodes that end.

    Args:
        world: its dynamics.
        logging, target: action probabilities, shape (S, A).
        discount: of the value; 1 is allowed, since episodes end.
    """
    onward, first, living = world.transition, world.first, ~world.terminal
    values = np.zeros(len(first))
    values[living] = np.linalg.solve(
        _left(world, target, discount), (target * world.reward).sum(axis=1)[living]
    )
    outcome = world.arriving + discount * values
    spread = np.maximum(onward @ outcome**2 - (onward @ outcome) ** 2, 0.0)
    asked = _visits(world, target, discount)
    logged = _visits(world, logging, 1.0)
    if (asked[logged <= 0] > 0).any():
        return float(first @ values), float("inf")  # the target does what the log never shows
    ratio = np.divide(asked**2, logged, out=np.zeros_like(asked), where=logged > 0)
    starts = float(first @ values**2 - (first @ values) ** 2)
    return float(first @ values), float((ratio * spread)[living].sum() + starts)


def _left(world: Arrivals, table: Table, discount: float) -> Table:
    """I - discount P_pi among the states that are no ends."""
    living = ~world.terminal
    onward = np.einsum("sa,sat->st", table[living], world.transition[living][:, :, living])
    return np.asarray(np.eye(int(living.sum())) - discount * onward)


def _visits(world: Arrivals, table: Table, discount: float) -> Table:
    """Expected discounted visits of an episode, shape (S, A)."""
    found, living = np.zeros(len(world.first)), ~world.terminal
    found[living] = np.linalg.solve(_left(world, table, discount).T, world.first[living])
    return np.asarray(found[:, None] * table)


def row(policy: str, discount: float) -> Row:
    world = make(0)
    expert, target = world.clinicians, world.policies[POLICIES[policy]].table
    value, variance = bound(world, expert, target, discount)
    least = float(np.sqrt(variance / EPISODES))
    return {
        "policy": policy,
        "discount": discount,
        "value": value,
        "standard_error": least,
        "share_of_value": least / value,
    }


def main() -> None:
    STUDY.run([(policy, discount) for discount in DISCOUNTS for policy in POLICIES], row)


if __name__ == "__main__":
    main()
