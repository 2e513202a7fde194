"""How logs are made and which policies are asked about; cases are dealt by number, so they never change.

regime          logged by                                     asked about
noisy           medium, noisy                                 medium, good, poor, other, noisy medium
good            good, noisy                                   good, medium, other, noisy good
replay          poor, medium and good, noisy, a third each    good, medium, other, noisy medium
mixture         half noisy medium, half the target itself     medium, good, poor, other
nearly_random   poor with loud noise                          good, medium, other, itself
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bcrl.data.dataset import Array
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.world import Policy, World

ROWS = 20_000  # most of a log
PER_LOG = 4  # cases
# What a case calls its target, and the policy: of the ladder, noisy or not.
TARGETS: dict[str, tuple[tuple[str, str], ...]] = {
    "noisy": (
        ("greedy", "medium"),
        ("better", "good"),
        ("worse", "poor"),
        ("other", "other"),
        ("itself", "noisy medium"),
    ),
    "good": (("greedy", "good"), ("worse", "medium"), ("other", "other"), ("itself", "noisy good")),
    "replay": (("greedy", "good"), ("worse", "medium"), ("other", "other"), ("itself", "noisy medium")),
    "mixture": (("greedy", "medium"), ("better", "good"), ("worse", "poor"), ("other", "other")),
    "nearly_random": (("better", "good"), ("medium", "medium"), ("other", "other"), ("itself", "loud poor")),
}


@dataclass(frozen=True, eq=False)
class Noisy:
    """A deterministic policy with Gaussian noise of standard deviation `noise` on every action."""

    policy: Policy
    noise: float

    @property
    def reads(self) -> Any:  # noqa: ANN401 - as the policy's
        return self.policy.reads

    def sample(self, observations: Any, generator: np.random.Generator) -> Array:  # noqa: ANN401
        mean = np.asarray(self.policy.act(observations), dtype=np.float64)
        return mean + self.noise * generator.standard_normal(mean.shape)

    def deviations(self, observations: Any, actions: Array) -> NDArray[np.float64]:  # noqa: ANN401
        """Distance to the noise-free action in deviations, shape (n, action_dim)."""
        mean = np.asarray(self.policy.act(observations), dtype=np.float64)
        return np.asarray((actions - mean) / self.noise).reshape(len(mean), -1)

    def log_prob(self, observations: Any, actions: Array) -> NDArray[np.float64]:  # noqa: ANN401
        error = self.deviations(observations, actions)
        constant = error.shape[1] * math.log(self.noise * math.sqrt(2.0 * math.pi))
        return np.asarray(-0.5 * (error**2).sum(axis=1) - constant)


@dataclass(frozen=True, eq=False)
class Uniform:
    """A discrete policy that with probability `share` takes any action."""

    policy: Policy
    share: float
    num_actions: int

    @property
    def reads(self) -> Any:  # noqa: ANN401 - as the policy's
        return self.policy.reads

    def probabilities(self, observations: Any) -> NDArray[np.float64]:  # noqa: ANN401
        table = table_of(self.policy, observations, self.num_actions)
        return np.asarray((1.0 - self.share) * table + self.share / self.num_actions)


def table_of(policy: Policy, observations: Any, num_actions: int) -> NDArray[np.float64]:  # noqa: ANN401
    """Probability of every action of a discrete policy of either kind."""
    if hasattr(policy, "probabilities"):
        return np.asarray(policy.probabilities(observations), dtype=np.float64)
    return np.eye(num_actions)[np.asarray(policy.act(observations), dtype=np.int64)]


def policy_of(family: Family, world: World, words: str) -> Policy:
    """A policy by its words: of the ladder ("good"), noisy ("noisy good") or loud ("loud poor")."""
    kind, _, name = words.rpartition(" ")
    policy = world.policies[name]
    if not kind:
        return policy
    discrete = world.num_actions is not None
    loud = family.loud if family.loud is not None else 0.9 if discrete else 3.0 * family.noise
    noise = loud if kind == "loud" else family.noise
    return Uniform(policy, noise, world.num_actions) if world.num_actions else Noisy(policy, noise)


def loggers(regime: str, target: str) -> tuple[str, ...]:
    """The logging policies of a regime, each with the same share of the episodes."""
    return {
        "noisy": ("noisy medium",),
        "good": ("noisy good",),
        "replay": ("noisy poor", "noisy medium", "noisy good"),
        "mixture": ("noisy medium", target),
        "nearly_random": ("loud poor",),
    }[regime]


def supports(world: World, behaviours: Sequence[Policy], seen: Any, actions: Array) -> NDArray[np.bool_]:  # noqa: ANN401
    """Which of these actions any of the logging policies would show: the first rule of DESIGN's "covered"."""
    found = [
        _keeps_to(world, one, seen if one.reads is None else seen[one.reads], actions) for one in behaviours
    ]
    return np.asarray(np.any(found, axis=0))


def _keeps_to(world: World, behaviour: Policy, seen: Any, actions: Array) -> NDArray[np.bool_]:  # noqa: ANN401
    if world.num_actions is not None:
        table = table_of(behaviour, seen, world.num_actions)
        return np.asarray(table[np.arange(len(table)), actions] >= 1.0 / (5.0 * world.num_actions))
    if isinstance(behaviour, Noisy):
        squared = (behaviour.deviations(seen, actions) ** 2).sum(axis=1)
        return np.asarray(squared <= stats.chi2.ppf(0.99, int(np.prod(actions.shape[1:]))))
    off = np.abs(np.asarray(behaviour.act(seen)) - actions).reshape(len(actions), -1)
    return np.asarray(off.max(axis=1) < 1e-6)  # the target itself logged half of a mixture


@dataclass(frozen=True, order=True)
class Case:
    """One question about one log.

    Attributes:
        family: its name.
        log: number of the log.
        regime: how it was logged.
        target: what the case calls the target: greedy, better, worse, other, itself, medium.
        policy: which policy that is.
        world: seed of the world.
        episodes: of the log.
        discount, horizon: of the value.
        number: of the case within its family.
    """

    family: str
    log: int
    regime: str
    target: str
    policy: str
    world: int
    episodes: int
    discount: float
    horizon: int | None
    number: int


def cases_of(family: Family) -> list[Case]:
    """All cases of a family, log after log."""
    logs = math.ceil(family.cases / PER_LOG)
    rng = np.random.default_rng(list(family.name.encode()))
    sizes = _dealt([min(size, ROWS // family.length) for size in family.episodes], logs, rng)
    asked = [(g, h) for g in family.discounts for h in family.horizons if g < 1.0 or h is not None]
    questions = _dealt(asked, logs, rng)
    found: list[Case] = []
    for log in range(logs):
        lap, turn = divmod(log, len(family.regimes))
        regime = family.regimes[turn]
        targets, (discount, horizon) = TARGETS[regime], questions[log]
        for i in range(min(PER_LOG, family.cases - len(found))):
            target, policy = targets[(lap * PER_LOG + i) % len(targets)]
            # a lap more each time, so that a regime does not always meet the same world
            world, number = (log + lap) % family.worlds, len(found)
            found.append(
                Case(family.name, log, regime, target, policy, world, sizes[log], discount, horizon, number)
            )
    return found


def _dealt(values: Sequence[Any], count: int, rng: np.random.Generator) -> list[Any]:
    """`count` of the values in random order, each as often as any other."""
    dealt: list[Any] = []
    while len(dealt) < count:
        dealt += [values[i] for i in rng.permutation(len(values))]
    return dealt[:count]
