"""Objects that already act like a policy but do not say what they read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.policies.kinds import Deterministic, Discrete
from bcrl.policies.options import Options
from bcrl.policies.policy import AnyPolicy, DiscretePolicy, Policy, Reads, StochasticPolicy

METHODS = ("probabilities", "sample", "act")
STATEFUL = ("reset", "reset_state", "reset_states", "initial_state", "get_initial_state", "init_hidden")


@dataclass(frozen=True, eq=False)
class GivenStochastic:
    """An object's own sample and log_prob; without log_prob, importance
    weights are refused when they are asked for."""

    draw: Callable[[Any, np.random.Generator], Array]
    density: Callable[[Any, Array], Array] | None
    reads: Reads

    def sample(self, observations: Any, generator: np.random.Generator) -> Array:  # noqa: ANN401
        return self.draw(observations, generator)

    def log_prob(self, observations: Any, actions: Array) -> NDArray[np.float64]:  # noqa: ANN401
        if self.density is None:
            raise BadInput(
                "The policy has sample but no log_prob(observations, actions); importance weights need it."
            )
        return np.asarray(self.density(observations, actions), dtype=np.float64)


def given_policy(source: Any, options: Options) -> AnyPolicy:  # noqa: ANN401 - any object with one of METHODS
    """The object itself when it is a whole policy, else wrapped with what it reads."""
    options.only("an object that is already a policy")
    if options.reads is None and isinstance(source, Policy | StochasticPolicy | DiscretePolicy):
        return source
    reads = options.reads if options.reads is not None else getattr(source, "reads", None)
    if hasattr(source, "probabilities"):
        return Discrete(respond=source.probabilities, reads=reads)
    if hasattr(source, "sample"):
        return GivenStochastic(source.sample, getattr(source, "log_prob", None), reads)
    return Deterministic(respond=source.act, reads=reads)


def refuse_stateful(source: Any) -> None:  # noqa: ANN401
    """Refuse an object that shows by its methods that its actions depend on more than the observation."""
    found = [name for name in STATEFUL if hasattr(source, name)]
    if found:
        raise BadInput(
            f"{type(source).__name__} has {found[0]!r}, so it carries a state from step to step: it cannot "
            "be evaluated. If its action depends on the observation alone, pass a function that calls it."
        )
