"""States for the DICE methods: a log's own vectors, or, from pixels, predictions of what comes next.

From one observation a head predicts what each target policy would do there, one step and four steps later,
and what is paid then; these predictions are the state that the critics see, a few numbers per observation
in place of an image's thousands. From z(s) and the logged action the reward is predicted too, and from
z(s) and z(s') the action between them. Ratios of densities in many dimensions cannot be learned from data,
and saddle points on top of a moving encoder do not converge; on a short frozen state both critics are
small. dice_rl reads vectors only; how the paper handled pixels is not published.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Array, Dataset
from bcrl.networks import Encoder, HeadNet, Pixels, encode_rows, encoder_for
from bcrl.policies.policy import TargetActions
from bcrl.question import Question
from bcrl.training import Run, generators, restore_parts, state_of, train

AHEAD = (0, 1, 4)  # steps
_BATCH, _LR = 128, 1e-3
_KEPT = 0.99
_IMAGES = 512  # at once


@dataclass(frozen=True, eq=False)
class States:
    """What the critics see, by policy.

    Attributes:
        z: of every observation row, (N + E, d).
        start_z: of every start state, (n0, d).
        columns: by policy the columns that concern it; None where z is the same for all.
    """

    z: Tensor
    start_z: Tensor
    columns: Mapping[str, NDArray[np.int64]] | None

    def of(self, policy: str) -> tuple[Tensor, Tensor]:
        """The state of every observation row and of every start state."""
        if self.columns is None:
            return self.z, self.start_z
        columns = torch.from_numpy(self.columns[policy])
        z, start_z = self.z[:, columns], self.start_z[:, columns]
        centre, projection = principal(z)
        return (z - centre) @ projection, (start_z - centre) @ projection


def learn_states(
    question: Question,
    targets: Mapping[str, TargetActions],
    *,
    reads: str | tuple[str, ...] | None,
    pixels: Pixels,
    steps: int,
    run: Run,
) -> States:
    """The log's vectors, standardised; where pixels are read, what an encoder learns to predict."""
    dataset, (_, generator) = question.dataset, generators(question.seed)
    encoder = encoder_for(dataset, reads=reads, pixels=pixels, generator=generator).to(run.torch_device)
    encode, columns = encoder.encode, None
    if encoder.has_pixels:
        learner = FutureLearner(dataset, list(targets.values()), encoder, steps, generator)
        for _ in train(learner, steps=steps, run=run.within("encoder"), stage="dice encoder"):
            pass
        encode = learner.predict
        columns = {
            name: columns_of(number, len(targets), dataset.action_dim) for number, name in enumerate(targets)
        }
    z, start_z = (
        torch.from_numpy(array).to(run.torch_device)
        for array in (encode_rows(encode, dataset), encode(question.starts.observations))
    )
    return States(z, start_z, columns)


class FutureLearner:
    """What the loop trains: encoder and three heads on squared errors.

    Args:
        dataset: pixels, actions, rewards.
        targets: every target policy's actions at every row.
        encoder: freshly initialised, on the device where to train.
        steps: updates, for the cosine.
        generator: draws weights and batches.
    """

    def __init__(
        self,
        dataset: Dataset,
        targets: Sequence[TargetActions],
        encoder: Encoder,
        steps: int,
        generator: torch.Generator,
    ) -> None:
        self.dataset, self.encoder, self.generator = dataset, encoder, generator
        self.batch_size = _BATCH
        self.futures = _scaled(futures(dataset, targets))
        self.actions = _scaled(dataset.action_matrix(dataset.actions))
        self.rewards = _scaled(dataset.rewards[:, None])
        z, width = encoder.z_dim, self.actions.shape[1]
        shape: dict[str, Any] = {"hidden": 64, "layers": 2, "generator": generator}
        self.nets = nn.ModuleDict(
            {
                "encoder": encoder,
                "reward": HeadNet(z, width, 1, **shape),
                "action": HeadNet(z, z, width, **shape),
                "future": HeadNet(z, 0, self.futures.shape[1], **shape),
            }
        ).to(encoder.device)
        self.optimiser = torch.optim.Adam(self.nets.parameters(), _LR)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, steps)

    def step(self) -> Mapping[str, float | Tensor]:
        index = torch.randint(len(self.dataset), (self.batch_size,), generator=self.generator).numpy()
        rows, encoder = self.dataset.rows[index], self.encoder
        observations = self.dataset.observe(np.concatenate([rows, rows + 1]))
        z, z_next = encoder(encoder.read(observations, encoder.device)).chunk(2)
        actions, rewards, future = (
            torch.from_numpy(values).to(z.device)
            for values in (self.actions[index], self.rewards[index], self.futures[rows])
        )
        errors = {
            "reward": self.nets["reward"](z, actions) - rewards,
            "action": self.nets["action"](z, z_next) - actions,
            "future": self.nets["future"](z, z.new_zeros(len(z), 0)) - future,
        }
        losses = {name: error.square().mean() for name, error in errors.items()}
        self.optimiser.zero_grad()
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.schedule.step()
        return dict(losses)

    @torch.no_grad()
    def predict(self, observations: Mapping[str, Array]) -> NDArray[np.float32]:
        """The future of each observation, (n, columns of `futures`)."""
        parts = []
        for first in range(0, len(next(iter(observations.values()))), _IMAGES):
            part = {key: values[first : first + _IMAGES] for key, values in observations.items()}
            z = self.encoder(self.encoder.read(part, self.encoder.device))
            parts.append(self.nets["future"](z, z.new_zeros(len(z), 0)))
        return np.asarray(torch.cat(parts).cpu().numpy())

    def _parts(self) -> dict[str, Any]:
        own = {"nets": self.nets, "schedule": self.schedule}
        return own | {"optimiser": self.optimiser, "generator": self.generator}

    def state(self) -> dict[str, Any]:
        return state_of(self._parts())

    def restore(self, state: dict[str, Any]) -> None:
        restore_parts(self._parts(), state)


def futures(dataset: Dataset, targets: Sequence[TargetActions]) -> NDArray[np.float64]:
    """By observation row: each policy's mean action now and some steps on, then the rewards of these steps.

    Columns: policy by policy its actions at each of `AHEAD`, then one reward for each. Past an episode's end
    its last row counts.
    """
    total = len(dataset) + dataset.num_episodes
    last = np.repeat(dataset.start_rows + dataset.lengths, dataset.lengths + 1)
    episode = np.repeat(np.arange(dataset.num_episodes), dataset.lengths + 1)
    later = [np.minimum(np.arange(total) + steps, last) for steps in AHEAD]
    means = [np.einsum("nk,nka->na", target.weights, target.actions) for target in targets]
    rewards = [dataset.rewards[np.minimum(rows, last - 1) - episode][:, None] for rows in later]
    return np.concatenate([mean[rows] for mean in means for rows in later] + rewards, axis=1)


def columns_of(number: int, policies: int, action_dim: int) -> NDArray[np.int64]:
    """Columns of `futures` that concern one policy: its own actions, and the rewards."""
    width = len(AHEAD) * action_dim
    actions = np.arange(number * width, (number + 1) * width)
    return np.concatenate([actions, policies * width + np.arange(len(AHEAD))])


def principal(z: Tensor) -> tuple[Tensor, Tensor]:
    """Centre (d,) and projection (d, k) onto directions with 99 % of the variance, scaled to variance 1."""
    centre = z.mean(dim=0)
    values, vectors = torch.linalg.eigh(torch.cov((z - centre).double().T, correction=0))
    values, vectors = values.flip(0).clamp_min(1e-12), vectors.flip(1)
    kept = int((values.cumsum(0) / values.sum() < _KEPT).sum()) + 1
    return centre, (vectors[:, :kept] / values[:kept].sqrt()).float()


def _scaled(values: Array) -> NDArray[np.float32]:
    """Columns with mean 0 and deviation 1; constant columns stay."""
    deviation = values.std(axis=0)
    scaled = (values - values.mean(axis=0)) / np.where(deviation > 1e-8, deviation, 1.0)
    return np.asarray(scaled, dtype=np.float32)
