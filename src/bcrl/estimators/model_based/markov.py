"""A one-step model of vector observations: p(s' | s, a), E[r | s, a] and the chance that the world goes on.

    s' = s + m(s, a) + d(s, a) * noise            or, where the data knows few distinct observations, a table of chances

One network on standardised (s, a) gives all outputs. It is trained on single transitions by maximum likelihood and squared
error; what follows a termination is not asked for. Where a vector tells the whole state this is more exact than a recurrent
model and far cheaper (Zhang et al. 2021 call it the feed-forward dynamics model of DOPE).
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Array, Dataset
from bcrl.estimators.model_based.vectors import ActionScale, Ending, RewardScale, encode_all, unstandardise
from bcrl.networks import Encoder, HeadNet, load_tensors, tensors_of

_FEW = 512
_LEAST_LOG, _MOST_LOG = -6.0, 1.0


class MarkovModel(nn.Module):
    """The model, and the simulator that imagination runs in: its state is the standardised observation (n, dz).

    Args:
        encoder: standardises vectors.
        action_dim: width of an action matrix.
        codes: number of distinct observations when the next one is drawn from a table; 0 for continuous vectors.
        hidden, layers: shape of the network.
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
        *,
        hidden: int,
        layers: int,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.encoder, self.width = encoder, encoder.z_dim
        self.actions, self.rewards, self.ending = ActionScale(action_dim), RewardScale(), Ending()
        self.register_buffer("codes", torch.zeros(codes, self.width))
        self.register_buffer("low", torch.zeros(self.width))
        self.register_buffer("high", torch.zeros(self.width))
        outputs = (codes or 2 * self.width) + 2
        self.net = HeadNet(
            self.width,
            action_dim,
            outputs,
            hidden=hidden,
            layers=layers,
            activation="silu",
            generator=generator,
        )

    @classmethod
    def of(
        cls, dataset: Dataset, encoder: Encoder, hidden: int, layers: int, generator: torch.Generator
    ) -> "MarkovModel":
        """A model for a dataset, untrained."""
        z = encode_all(encoder, {key: dataset.observations[key] for key in encoder.keys}).numpy()
        codes = distinct_rows(z)
        model = cls(
            encoder, dataset.action_dim, len(codes), hidden=hidden, layers=layers, generator=generator
        )
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

    def begin(self, observations: Mapping[str, Array], generator: torch.Generator) -> Tensor:
        del generator
        return encode_all(self.encoder, observations)

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
        return moved, self.rewards.back(reward), self.ending(goes_on)

    def code(self, state: Tensor) -> Tensor:
        """A vector per state, by which states are compared."""
        return state

    @property
    def keys(self) -> tuple[str, ...]:
        return self.encoder.keys

    def spec(self) -> dict[str, Any]:
        return {
            "model": "markov",
            "encoder": self.encoder.spec(),
            "action_dim": self.net.action_dim,
            "codes": len(self.codes),
            "hidden": self.net.hidden,
            "layers": self.net.layers,
        }

    def tensors(self) -> dict[str, Array]:
        return tensors_of(self)

    @classmethod
    def restore(cls, spec: Mapping[str, Any], tensors: Mapping[str, Array]) -> "MarkovModel":
        inner = {
            name.removeprefix("encoder."): value
            for name, value in tensors.items()
            if name.startswith("encoder.")
        }
        encoder = Encoder.restore(spec["encoder"], inner)
        shape = {name: spec[name] for name in ("action_dim", "codes", "hidden", "layers")}
        return load_tensors(cls(encoder, **shape, generator=None), tensors)


def distinct_rows(z: NDArray[np.float32]) -> NDArray[np.float32]:
    """The distinct observations when there are at most 512 and each is met ten times on average; else none."""
    none = np.zeros((0, z.shape[1]), dtype=np.float32)
    if len(np.unique(z[: 4 * _FEW], axis=0)) > _FEW:
        return none
    codes = np.unique(z, axis=0)
    return codes if len(codes) <= min(_FEW, len(z) // 10) else none


class MarkovLearner:
    """What the loop trains: AdamW with a half cosine on mini-batches of transitions."""

    def __init__(
        self,
        model: MarkovModel,
        dataset: Dataset,
        transitions: NDArray[np.int64],
        *,
        lr: float,
        steps: int,
        batch_size: int,
        generator: torch.Generator,
    ) -> None:
        self.model, self.generator, self.batch_size, self.steps, self.lr = (
            model,
            generator,
            batch_size,
            steps,
            lr,
        )
        self.z = encode_all(model.encoder, {key: dataset.observations[key] for key in model.keys})
        self.rows = torch.from_numpy(dataset.rows[transitions])
        self.actions = torch.from_numpy(dataset.action_matrix(dataset.actions[transitions]))
        self.rewards = torch.from_numpy(dataset.rewards[transitions].astype(np.float32))
        self.ended = torch.from_numpy(np.array(dataset.terminated[transitions]))
        self.optimiser = torch.optim.AdamW(model.net.parameters(), lr, weight_decay=1e-4)
        self.done = 0

    def step(self) -> dict[str, float | Tensor]:
        for group in self.optimiser.param_groups:
            group["lr"] = 0.5 * self.lr * (1.0 + math.cos(math.pi * self.done / self.steps))
        index = torch.randint(len(self.rows), (self.batch_size,), generator=self.generator)
        rows = self.rows[index]
        losses = self.model.losses(
            self.z[rows], self.actions[index], self.rewards[index], self.z[rows + 1], self.ended[index]
        )
        self.optimiser.zero_grad()
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.net.parameters(), 100.0)
        self.optimiser.step()
        self.done += 1
        return dict(losses)

    def state(self) -> dict[str, Any]:
        return {
            "net": self.model.net.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            "done": self.done,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.model.net.load_state_dict(state["net"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"])
        self.done = state["done"]
