"""A toy of glucose control: meals raise it, insulin lowers it late, too low or far too high ends the record.

State: glucose (in 100 mg/dl), insulin at work, carbohydrates in the gut; a step is half an hour. The action
is a dose; doses outside 0 to 2 are clipped. Reward: 1 at 1.1, less around it, and 5 off for an emergency,
which ends it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.world import Policy

Table = NDArray[np.float64]
GOAL, LOW, HIGH, EMERGENCY = 1.1, 0.55, 3.0, 5.0
MEAL, DOSE = 0.15, 2.0  # probability of a meal, largest dose


@dataclass(frozen=True, eq=False)
class Controller:
    """dose = basal + by_glucose * (glucose - goal) + by_meal * gut, less the insulin that is at work already.

    Attributes:
        basal, by_glucose, by_meal, at_work: the weights.
        steep: a smooth switch around the goal instead of a proportion; 0: none.
    """

    basal: float
    by_glucose: float
    by_meal: float
    at_work: float = 0.0
    steep: float = 0.0
    reads: None = None

    def act(self, observations: Array) -> Table:
        glucose, insulin, gut = np.asarray(observations, dtype=np.float64).T
        off = glucose - GOAL
        off = np.tanh(self.steep * off) / 2.0 if self.steep else off
        dose = self.basal + self.by_glucose * off + self.by_meal * gut - self.at_work * insulin
        return np.asarray(np.clip(dose, 0.0, DOSE)[:, None])


@dataclass(frozen=True, eq=False)
class Patient:
    """One kind of patient.

    Attributes:
        sensitive: how much insulin lowers glucose in a step.
        carbohydrates: how much a full gut raises it in a step.
    """

    sensitive: float
    carbohydrates: float
    num_actions: None = None

    @cached_property
    def policies(self) -> Mapping[str, Policy]:
        return {
            "poor": Controller(0.25, 0.1, 0.0),
            "medium": Controller(0.35, 0.5, 0.1),
            "good": Controller(0.4, 1.0, 0.8, 0.2),
            "other": Controller(0.8, 2.0, 0.0, steep=6.0),
        }

    def start(self, num: int, rng: np.random.Generator) -> Table:
        return np.stack(
            [rng.uniform(0.9, 2.2, num), rng.uniform(0.1, 0.4, num), rng.uniform(0.0, 0.5, num)], axis=1
        )

    def observe(self, state: Array) -> NDArray[np.float32]:
        return state.astype(np.float32)

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[Table, Array, NDArray[np.bool_]]:
        num, (glucose, insulin, gut) = len(state), state.T
        dose = np.clip(np.asarray(actions)[:, 0], 0.0, DOSE)
        meal = (rng.random(num) < MEAL) * rng.uniform(0.3, 1.0, num)
        raised = self.carbohydrates * gut + 0.08 * (1.6 - glucose)
        lowered = self.sensitive * insulin * glucose
        after = np.maximum(glucose + raised - lowered + 0.03 * rng.standard_normal(num), 0.1)
        following = np.stack([after, 0.75 * insulin + 0.25 * dose, 0.7 * gut + meal], axis=1)
        ended = (after < LOW) | (after > HIGH)
        rewards = np.exp(-(((after - GOAL) / 0.5) ** 2)) - EMERGENCY * ended
        return rewards, following, ended


def make(seed: int) -> Patient:
    rng = np.random.default_rng([seed, 4])
    return Patient(sensitive=rng.uniform(0.12, 0.22), carbohydrates=rng.uniform(0.35, 0.5))


FAMILY = Family(
    name="toy_patient", make=make,
    length=48, noise=0.15, episodes=(30, 60, 120, 250, 400),
    discounts=(0.9, 0.97, 0.99, 1.0), horizons=(None, 24), cases=40, worlds=6,
    longest=600,
)  # fmt: skip
