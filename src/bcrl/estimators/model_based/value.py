"""V(s) by imagined rollouts from anywhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from bcrl import salts
from bcrl.data.dataset import Array, Dataset
from bcrl.errors import BadInput
from bcrl.estimate import FloatArray
from bcrl.estimators.model_based.dreamer import WorldModel, head
from bcrl.estimators.model_based.imagine import Chooser, Rollouts, one_of, policy_chooser, rollouts
from bcrl.estimators.model_based.markov import MarkovModel
from bcrl.estimators.model_based.rssm import Latent
from bcrl.policies.policy import AnyPolicy
from bcrl.training import generators

Imagination = Literal["policy", "latent"]


@dataclass(frozen=True, eq=False)
class ModelValue:
    """The value function of a model-based estimate.

    Attributes:
        model: the trained model.
        template: the kind of data that observations come as.
        policy: the evaluated policy.
        discount, horizon: of the value.
        samples: rollouts per observation.
        seed: draws the model's and the policy's randomness.
        imagination: who acts in the model: the policy itself, or its distilled head.
        number: which distilled head is this policy's.
        spread: standard deviation of the policy's own noise, for the distilled head, by action dimension.
    """

    model: MarkovModel | WorldModel
    template: Dataset
    policy: AnyPolicy
    discount: float
    horizon: int | None
    samples: int
    seed: int
    imagination: Imagination = "policy"
    number: int = 0
    spread: tuple[float, ...] = ()

    def value(self, observations: Mapping[str, Array]) -> FloatArray:
        return self.imagine(observations).per_start

    def standard_error(self, observations: Mapping[str, Array]) -> FloatArray | None:
        del observations
        return None

    def imagine(self, observations: Mapping[str, Array]) -> Rollouts:
        """Rollouts from each observation."""
        keyed = self.template.keyed(observations)
        # Salted: data simulated with the same plain seed must not share its draws with the policy's.
        numpy_generator = np.random.default_rng([self.seed, salts.IMAGINED])
        _, generator = generators(self.seed)
        latent = self.imagination == "latent"
        chooser = self._distilled(numpy_generator, generator) if latent else self._itself(numpy_generator)
        shown = () if latent else self.keys_shown()
        return rollouts(
            self.model,
            self.template,
            chooser,
            shown,
            keyed,
            discount=self.discount,
            horizon=self.horizon,
            samples=self.samples,
            generator=generator,
            chunk=256 if set(shown) & set(self.template.pixel_keys) else 4096,
        )

    def keys_shown(self) -> tuple[str, ...]:
        """What the policy reads, checked against what the model can show."""
        reads = self.policy.reads
        wanted = tuple(self.template.observations) if reads is None else reads
        wanted = (wanted,) if isinstance(wanted, str) else wanted
        for key in wanted:
            if key not in self.model.keys:
                raise BadInput(
                    f"The policy reads {key!r}, and this model shows {sorted(self.model.keys)} only. "
                    "Leave ModelBased's reads out, or let it read that key too."
                )
        return wanted

    def _itself(self, generator: np.random.Generator) -> Chooser:
        return policy_chooser(self.template, self.policy, generator)

    def _distilled(self, numpy_generator: np.random.Generator, generator: torch.Generator) -> Chooser:
        assert isinstance(self.model, WorldModel)
        net, spread = self.model.policy_heads[self.number], torch.tensor(self.spread)

        def choose(state: Latent, _: object) -> Tensor:
            outputs = head(net, state.features)
            if self.template.discrete:
                chances = outputs.double().clamp_min(1e-6).numpy()
                actions = np.broadcast_to(
                    np.eye(chances.shape[1], dtype=np.float32), (*chances.shape, chances.shape[1])
                )
                return torch.from_numpy(
                    one_of(actions, chances / chances.sum(axis=1, keepdims=True), numpy_generator)
                )
            return outputs + spread * torch.randn(outputs.shape, generator=generator)

        return choose

    def tensors(self) -> dict[str, Array]:
        return self.model.tensors()

    def spec(self) -> dict[str, Any]:
        names = ("discount", "horizon", "samples", "seed", "imagination", "number")
        own = {name: getattr(self, name) for name in names} | {"spread": list(self.spread)}
        return {"kind": "model", **own, "world": self.model.spec()}


def restore(
    spec: Mapping[str, Any],
    tensors: Mapping[str, Array],
    *,
    template: Dataset,
    policy: AnyPolicy,
    **_: Any,  # noqa: ANN401 - what other kinds of value function need
) -> ModelValue:
    """The value function that `spec` and `tensors` came from."""
    kind = MarkovModel if spec["world"]["model"] == "markov" else WorldModel
    names = ("discount", "horizon", "samples", "seed", "imagination", "number")
    own = {name: spec[name] for name in names} | {"spread": tuple(spec["spread"])}
    return ModelValue(kind.restore(spec["world"], tensors), template, policy, **own)
