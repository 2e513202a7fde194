"""A one-step model of vector observations: p(s' | s, a), E[r | s, a] and the chance that the world goes on.

    s' = s + m(s, a) + d(s, a) * noise     or, where the log has few distinct observations, a table of chances

One network on standardised (s, a) gives all outputs. It is trained on single transitions by maximum
likelihood and squared error; what follows a termination is not learned. Where a vector tells the whole
state this is more exact than a recurrent model and far cheaper (Zhang et al. 2021 call it the feed-forward
dynamics model of DOPE).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Array, Dataset
from bcrl.estimate import FloatArray
from bcrl.estimators.model_based.parts import OneStep
from bcrl.estimators.model_based.scales import (
    ActionScale,
    Ending,
    RewardScale,
    restore_encoder,
    unstandardise,
)
from bcrl.networks import Encoder, HeadNet, encode_rows, load_tensors, tensors_of

_FEW = 512
_MOST_JUDGED = 20_000  # held-out transitions
_LEAST_LOG, _MOST_LOG = -6.0, 1.0


class OneStepModel(nn.Module):
    """The model, and the world that a policy acts in: its state is the standardised observation (n, dz).

    Args:
        encoder: standardises vectors.
        action_dim: width of an action matrix.
        codes: number of distinct observations if the next one is drawn from a table; 0 if it is continuous.
        settings: shape of the network.
        generator: draws the weights; None leaves them to be filled in.
    """

    codes: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self,
        encoder: Encoder,
        action_dim: int,
        codes: int,
        settings: OneStep,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.encoder, self.width = encoder, encoder.z_dim
        self.actions, self.rewards, self.ending = ActionScale(action_dim), RewardScale(), Ending()
        self.register_buffer("codes", torch.zeros(codes, self.width))
        self.register_buffer("low", torch.zeros(self.width))
        self.register_buffer("high", torch.zeros(self.width))
        outputs = (codes or 2 * self.width) + 2
        shape: dict[str, Any] = {"hidden": settings.hidden, "layers": settings.layers, "activation": "silu"}
        self.net = HeadNet(self.width, action_dim, outputs, generator=generator, **shape)

    @classmethod
    def of(
        cls, dataset: Dataset, encoder: Encoder, settings: OneStep, generator: torch.Generator
    ) -> "OneStepModel":
        """A model for a dataset, untrained."""
        z = encode_rows(encoder.encode, dataset)
        codes = distinct_rows(z)
        model = cls(encoder, dataset.action_dim, len(codes), settings, generator)
        model.actions, model.rewards = ActionScale.of(dataset), RewardScale.of(dataset)
        model.ending = Ending.of(dataset)
        for name, values in (("codes", codes), ("low", z.min(axis=0)), ("high", z.max(axis=0))):
            getattr(model, name).copy_(torch.from_numpy(np.ascontiguousarray(values)))
        return model

    def _outputs(self, z: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Next observation's parameters, standardised reward, logit of going on."""
        outputs: Tensor = self.net(z, self.actions(actions))
        return outputs[:, :-2], outputs[:, -2], outputs[:, -1]

    def losses(
        self, z: Tensor, actions: Tensor, rewards: Tensor, z_next: Tensor, ended: Tensor
    ) -> dict[str, Tensor]:
        """Loss terms of a batch of transitions."""
        following, reward, goes_on = self._outputs(z, actions)
        alive = (~ended).float()
        if len(self.codes):
            target = torch.cdist(z_next, self.codes).argmin(dim=1)
            surprise = nn.functional.cross_entropy(following, target, reduction="none")
        else:
            move, log_deviation = self._gaussian(following)
            error = (z_next - z - move) / log_deviation.exp()
            surprise = (0.5 * error.square() + log_deviation).sum(dim=1)
        return {
            "dynamics": (alive * surprise).sum() / alive.sum().clamp_min(1.0),
            "reward": (reward - self.rewards(rewards)).square().mean(),
            "goes_on": nn.functional.binary_cross_entropy_with_logits(goes_on, alive),
        }

    def _gaussian(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        move, raw = outputs.chunk(2, dim=1)
        middle, half = 0.5 * (_MOST_LOG + _LEAST_LOG), 0.5 * (_MOST_LOG - _LEAST_LOG)
        return move, middle + half * torch.tanh(raw)

    def first_state(self, observations: Mapping[str, Array], generator: torch.Generator) -> Tensor:
        del generator
        return torch.from_numpy(self.encoder.encode(observations))

    def show(self, state: Tensor, keys: tuple[str, ...], template: Dataset) -> dict[str, Array]:
        del keys
        return unstandardise(self.encoder, state, template)

    def advance(
        self, state: Tensor, actions: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Next state, reward and chance of going on, after these actions."""
        following, reward, goes_on = self._outputs(state, actions)
        if len(self.codes):
            pick = torch.multinomial(following.softmax(dim=1), 1, generator=generator)[:, 0]
            moved = self.codes[pick]
        else:
            move, log_deviation = self._gaussian(following)
            noise = torch.randn(move.shape, generator=generator)
            moved = (state + move + log_deviation.exp() * noise).clamp(self.low, self.high)
        return moved, self.rewards.undo(reward), self.ending(goes_on)

    def vector(self, state: Tensor) -> Tensor:
        """A vector per state, by which states are compared."""
        return state

    def held_out_rewards(
        self, dataset: Dataset, held_out: NDArray[np.int64], generator: torch.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Logged and predicted rewards of transitions that it was not trained on."""
        del generator
        index = held_out[:_MOST_JUDGED]
        z = torch.from_numpy(encode_rows(self.encoder.encode, dataset, dataset.rows[index]))
        actions = torch.from_numpy(dataset.action_matrix(dataset.actions[index]))
        # The reward is known before the next state is drawn, so this generator does not change the result.
        _, reward, _ = self.advance(z, actions, torch.Generator().manual_seed(0))
        return dataset.rewards[index], reward.double().numpy()

    @property
    def keys(self) -> tuple[str, ...]:
        """Observation keys that it can show to a policy."""
        return self.encoder.keys

    @property
    def judged_keys(self) -> tuple[str, ...]:
        """Keys whose predictions are compared with the log."""
        return self.encoder.keys

    @property
    def privileged(self) -> tuple[str, ...]:
        """Keys that the model does not see but can show to a policy: none."""
        return ()

    def spec(self) -> dict[str, Any]:
        return {
            "model": "markov",  # its name in the files of saved estimates
            "encoder": self.encoder.spec(),
            "action_dim": self.net.action_dim,
            "codes": len(self.codes),
            "hidden": self.net.hidden,
            "layers": self.net.layers,
        }

    def tensors(self) -> dict[str, Array]:
        return tensors_of(self)

    @classmethod
    def restore(cls, spec: Mapping[str, Any], tensors: Mapping[str, Array]) -> "OneStepModel":
        encoder = restore_encoder(spec["encoder"], tensors, "encoder.")
        settings = OneStep(hidden=spec["hidden"], layers=spec["layers"])
        return load_tensors(cls(encoder, spec["action_dim"], spec["codes"], settings, None), tensors)


def distinct_rows(z: NDArray[np.float32]) -> NDArray[np.float32]:
    """The distinct observations if there are at most 512, each met ten times on average; else none."""
    none = np.zeros((0, z.shape[1]), dtype=np.float32)
    if len(np.unique(z[: 4 * _FEW], axis=0)) > _FEW:
        return none
    codes = np.unique(z, axis=0)
    return codes if len(codes) <= min(_FEW, len(z) // 10) else none


class TransitionBatches:
    """Mini-batches of single transitions, every observation encoded once."""

    def __init__(
        self, model: OneStepModel, dataset: Dataset, transitions: NDArray[np.int64], batch_size: int
    ) -> None:
        self.model, self.batch_size = model, batch_size
        self.z = torch.from_numpy(encode_rows(model.encoder.encode, dataset))
        self.rows = torch.from_numpy(dataset.rows[transitions])
        self.actions = torch.from_numpy(dataset.action_matrix(dataset.actions[transitions]))
        self.rewards = torch.from_numpy(dataset.rewards[transitions].astype(np.float32))
        self.ended = torch.from_numpy(np.array(dataset.terminated[transitions]))

    def losses(self, generator: torch.Generator) -> dict[str, Tensor]:
        index = torch.randint(len(self.rows), (self.batch_size,), generator=generator)
        rows = self.rows[index]
        return self.model.losses(
            self.z[rows], self.actions[index], self.rewards[index], self.z[rows + 1], self.ended[index]
        )
