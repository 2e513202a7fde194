"""V(s) and Q(s, a) of fitted Q-evaluation, anywhere, with the spread over bootstrap members as standard error."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bcrl import salts
from bcrl.data.dataset import Array, Dataset
from bcrl.estimate import FloatArray
from bcrl.estimators.fqe.critics import Critics
from bcrl.estimators.fqe.data import Scale
from bcrl.estimators.fqe.learner import Network
from bcrl.networks import Encoder
from bcrl.policies.policy import AnyPolicy, TargetActions, actions_at

# Actions drawn per state from a stochastic policy of continuous actions.
START_SAMPLES = 16


@dataclass(frozen=True, eq=False)
class FQEValue:
    """The value function of an FQE estimate: the mean over members.

    Attributes:
        network: encoder and critics.
        units: independent units that the members' bootstrap weights were drawn over; 0 where there were no weights.
        template: the kind of data that observations come as.
        policy: the evaluated policy.
        seed: draws the actions of a stochastic policy.
    """

    network: Network
    units: int
    template: Dataset
    policy: AnyPolicy
    seed: int

    def value(self, observations: Mapping[str, Array]) -> FloatArray:
        return np.asarray(self.member_values(observations).mean(axis=0))

    def standard_error(self, observations: Mapping[str, Array]) -> FloatArray | None:
        if self.units < 2 or self.network.critics.members < 2:
            return None
        return spread(self.member_values(observations), self.units)

    def member_values(self, observations: Mapping[str, Array]) -> FloatArray:
        """V(s) by each member, shape (members, n)."""
        keyed = self.template.keyed(observations)
        generator = np.random.default_rng([self.seed, salts.START_ACTIONS])
        chosen = actions_at(self.template, self.policy, keyed, num_samples=START_SAMPLES, generator=generator)
        return self.at(keyed, chosen)

    def at(self, observations: Mapping[str, Array], chosen: TargetActions) -> FloatArray:
        """V(s) by each member for actions that are already known, shape (members, n)."""
        return self._average(observations, chosen.actions, chosen.weights)

    def states(self, observations: Mapping[str, Array]) -> NDArray[np.float32]:
        """z of each observation, shape (n, z_dim)."""
        parts = [
            self._encode(observations, part) for part in self._chunks(len(next(iter(observations.values()))))
        ]
        return np.asarray(torch.cat(parts).cpu().numpy())

    def q(self, observations: Mapping[str, Array], actions: NDArray[np.float32]) -> FloatArray:
        """Q(s, a) for action matrices (n, action_dim)."""
        keyed = self.template.keyed(observations)
        return np.asarray(self._average(keyed, actions[:, None], np.ones((len(actions), 1))).mean(axis=0))

    def _average(
        self, observations: Mapping[str, Array], actions: Array, weights: NDArray[np.float64]
    ) -> FloatArray:
        """sum_k w_k Q(s, a_k) by each member, shape (members, n)."""
        out = np.empty((self.network.critics.members, len(weights)))
        device = self.network.critics.flat.device
        for part in self._chunks(len(weights)):
            with torch.no_grad():
                weight = torch.tensor(weights[part], device=device)
                values = self._of(self._encode(observations, part), actions[part], weight)
            out[:, part] = self.network.scale.value(values).cpu().numpy()
        return out

    def _encode(self, observations: Mapping[str, Array], part: slice) -> torch.Tensor:
        taken = {key: values[part] for key, values in observations.items()}
        with torch.no_grad():
            return self.network.encode(self.network.encoder.read(taken, self.network.critics.flat.device))

    def _of(self, z: torch.Tensor, actions: Array, weights: torch.Tensor) -> torch.Tensor:
        left = None
        if self.network.scale.horizon is not None:
            left = torch.full((len(z),), float(self.network.scale.horizon), device=z.device)
        if self.network.discrete:
            mean = torch.einsum("nk,nka->na", weights, torch.tensor(actions, device=z.device).double())
            return self.network.q(z, mean.float(), left).double()
        total = torch.zeros(self.network.critics.members, len(z), dtype=torch.float64, device=z.device)
        for k in range(weights.shape[1]):
            chosen = torch.tensor(actions[:, k], device=z.device)
            total += weights[:, k] * self.network.q(z, chosen, left)
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
    critics.flat.copy_(torch.from_numpy(np.array(tensors["critics"])))
    inner = {name.removeprefix("encoder."): v for name, v in tensors.items() if name.startswith("encoder.")}
    network = Network(
        Encoder.restore(spec["encoder"], inner), critics, Scale(**spec["scale"]), spec["discrete"]
    )
    return FQEValue(network, spec["units"], template, policy, spec["seed"])


def spread(members: FloatArray, units: int) -> FloatArray:
    """Standard error over the first axis; exponential weights of `units` units vary by (units - 1) / (units + 1)."""
    return np.asarray(np.std(members, axis=0, ddof=1) * math.sqrt((units + 1) / (units - 1)))
