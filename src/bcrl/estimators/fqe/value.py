"""V(s) and Q(s, a) of fitted Q-evaluation; the spread over bootstrap members is the standard error."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bcrl.data.dataset import Array, Dataset
from bcrl.estimate import FloatArray
from bcrl.estimators.fqe.critics import Critics
from bcrl.estimators.fqe.network import Network, Scale
from bcrl.networks import Encoder
from bcrl.policies.policy import AnyPolicy, TargetActions
from bcrl.question import Question, Target, actions_for_value


@dataclass(frozen=True, eq=False)
class FQEValue:
    """The value function of an FQE estimate: the mean over members.

    Attributes:
        network: encoder and critics.
        units: independent units that the members' bootstrap weights were drawn over; 0 without weights.
        template: the kind of data that observations come as.
        policy: the evaluated policy.
        seed: draws the actions of a stochastic policy.
    """

    network: Network
    units: int
    template: Dataset
    policy: AnyPolicy
    seed: int

    @classmethod
    def of(cls, network: Network, question: Question, target: Target) -> "FQEValue":
        """The value function that this network holds, now and after more training."""
        units = question.num_units if network.critics.members > 1 else 0
        return cls(network, units, question.dataset.template(), target.policy, question.seed)

    def value(self, observations: Mapping[str, Array]) -> FloatArray:
        return np.asarray(self.member_values(observations).mean(axis=0))

    def standard_error(self, observations: Mapping[str, Array]) -> FloatArray | None:
        if self.units < 2 or self.network.critics.members < 2:
            return None
        return spread(self.member_values(observations), self.units)

    def member_values(self, observations: Mapping[str, Array]) -> FloatArray:
        """V(s) by each member, shape (members, n)."""
        keyed = self.template.keyed(observations)
        return self.at(self.encode(keyed), actions_for_value(self.template, self.policy, keyed, self.seed))

    def q(self, observations: Mapping[str, Array], actions: NDArray[np.float32]) -> FloatArray:
        """Q(s, a) for action matrices (n, action_dim)."""
        chosen = TargetActions(actions[:, None], np.ones((len(actions), 1)))
        return np.asarray(self.at(self.encode(self.template.keyed(observations)), chosen).mean(axis=0))

    def v_of(self, observations: Mapping[str, Array], chosen: TargetActions) -> FloatArray:
        """sum_k w_k Q(s, a_k), shape (n,)."""
        return np.asarray(self.at(self.encode(self.template.keyed(observations)), chosen).mean(axis=0))

    def encode(self, observations: Mapping[str, Array]) -> NDArray[Any]:
        """z of each observation, shape (n, z_dim)."""
        count = len(next(iter(observations.values())))
        parts = [{key: values[part] for key, values in observations.items()} for part in self._chunks(count)]
        return np.concatenate([self.network.encoder.encode(part) for part in parts])

    def at(self, z: NDArray[Any], chosen: TargetActions) -> FloatArray:
        """sum_k w_k Q(s, a_k) by each member, for encoded states and known actions, shape (members, n)."""
        values = np.empty((self.network.critics.members, len(z)))
        for part in self._chunks(len(z)):
            with torch.no_grad():
                outputs = self._mean_output(z[part], chosen.take(part))
            values[:, part] = self.network.scale.value(outputs).cpu().numpy()
        return values

    def _mean_output(self, z: NDArray[Any], chosen: TargetActions) -> Tensor:
        """The network's output averaged over the actions, (members, n), in float64."""
        device = self.network.critics.flat.device
        states, weight = torch.tensor(z, device=device), torch.tensor(chosen.weights, device=device)
        left = None
        if self.network.scale.horizon is not None:
            left = torch.full((len(z),), float(self.network.scale.horizon), device=device)
        if self.network.discrete:
            mean = torch.tensor(chosen.mean, device=device)
            return self.network.q(states, mean.float(), left).double()
        total = torch.zeros(self.network.critics.members, len(z), dtype=torch.float64, device=device)
        for k in range(weight.shape[1]):
            total += weight[:, k] * self.network.q(
                states, torch.tensor(chosen.actions[:, k], device=device), left
            )
        return total

    def _chunks(self, count: int) -> Iterator[slice]:
        size = 512 if self.network.encoder.has_pixels else 16384
        return (slice(first, min(first + size, count)) for first in range(0, count, size))

    def tensors(self) -> dict[str, Array]:
        own = {"critics": self.network.critics.flat.detach().cpu().numpy().copy()}
        return own | {f"encoder.{name}": value for name, value in self.network.encoder.tensors().items()}

    def spec(self) -> dict[str, Any]:
        critics = self.network.critics
        return {
            "kind": "fqe",
            "seed": self.seed,
            "units": self.units,
            "members": critics.members,
            "widths": list(critics.widths),
            "discrete": self.network.discrete,
            "scale": dataclasses.asdict(self.network.scale),
            "encoder": self.network.encoder.spec(),
        }


def restore(
    spec: Mapping[str, Any],
    tensors: Mapping[str, Array],
    *,
    template: Dataset,
    policy: AnyPolicy,
    **_: Any,  # noqa: ANN401 - what other kinds of value function need
) -> FQEValue:
    """The value function that `spec` and `tensors` came from."""
    critics = Critics(spec["members"], spec["widths"])
    saved = torch.from_numpy(np.array(tensors["critics"]))
    critics.flat[: len(saved)] = saved  # Files of before have no zeros at the end.
    inner = {name.removeprefix("encoder."): v for name, v in tensors.items() if name.startswith("encoder.")}
    encoder = Encoder.restore(spec["encoder"], inner)
    network = Network(encoder, critics, Scale(**spec["scale"]), spec["discrete"])
    return FQEValue(network, spec["units"], template, policy, spec["seed"])


def spread(members: FloatArray, units: int) -> FloatArray:
    """Standard error over the first axis.

    Weights that are exponential and divided by their mean vary by (units - 1) / (units + 1) only.
    """
    return np.asarray(np.std(members, axis=0, ddof=1) * math.sqrt((units + 1) / (units - 1)))
