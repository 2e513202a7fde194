"""States from pixels for BestDICE: an encoder that tells what comes next, learned first and then left alone.

From one observation a head predicts what each target policy would do there, one step and four steps later, and what is paid
then; these predictions are the state that the critics see, a few numbers per observation in place of an image's thousands.
From z(s) and the logged action the reward is predicted too, and from z(s) and z(s') the action between them. Ratios of densities
in many dimensions cannot be told from data, and saddle points on top of a moving encoder do not converge; on a short frozen
state both critics are small. dice_rl knows vectors only; how the paper went to pixels is not published.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Array, Dataset
from bcrl.networks import Encoder, HeadNet, Pixels, encoder_for
from bcrl.policies.policy import TargetActions

AHEAD = (0, 1, 4)
_KEPT = 0.99


class EncoderLearner:
    """What the loop trains: encoder and three heads on squared errors.

    Args:
        dataset: pixels, actions, rewards.
        targets: every target policy's actions at every row.
        encoder: freshly initialised.
        steps: updates, for the cosine.
        lr: of Adam.
        batch_size: transitions per update.
        generator: draws weights and batches.
        device: where to train.
    """

    def __init__(
        self,
        dataset: Dataset,
        targets: Sequence[TargetActions],
        encoder: Encoder,
        *,
        steps: int,
        lr: float,
        batch_size: int,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        self.dataset, self.generator, self.device = dataset, generator, device
        self.batch_size = batch_size
        self.coming = _scaled(futures(dataset, targets))
        self.actions = _scaled(dataset.action_matrix(dataset.actions))
        self.rewards = _scaled(dataset.rewards[:, None])
        z, width = encoder.z_dim, self.actions.shape[1]
        shape: dict[str, Any] = {"hidden": 64, "layers": 2, "generator": generator}
        self.nets = nn.ModuleDict(
            {
                "encoder": encoder,
                "reward": HeadNet(z, width, 1, **shape),
                "between": HeadNet(z, z, width, **shape),
                "coming": HeadNet(z, 0, self.coming.shape[1], **shape),
            }
        ).to(device)
        self.optimiser = torch.optim.Adam(self.nets.parameters(), lr)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, steps)

    def step(self) -> Mapping[str, float | Tensor]:
        index = torch.randint(len(self.dataset), (self.batch_size,), generator=self.generator).numpy()
        rows = self.dataset.rows[index]
        encoder = self.nets["encoder"]
        assert isinstance(encoder, Encoder)
        seen = self.dataset.observe(np.concatenate([rows, rows + 1]))
        z, z_next = encoder(encoder.read(seen, self.device)).chunk(2)
        actions, rewards, coming = (
            torch.from_numpy(values).to(self.device)
            for values in (self.actions[index], self.rewards[index], self.coming[rows])
        )
        errors = {
            "reward": self.nets["reward"](z, actions) - rewards,
            "between": self.nets["between"](z, z_next) - actions,
            "coming": self.nets["coming"](z, z.new_zeros(len(z), 0)) - coming,
        }
        losses = {name: error.square().mean() for name, error in errors.items()}
        self.optimiser.zero_grad()
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.schedule.step()
        return dict(losses)

    def state(self) -> dict[str, Any]:
        return {
            "nets": self.nets.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "generator": self.generator.get_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.nets.load_state_dict(state["nets"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.schedule.load_state_dict(state["schedule"])
        self.generator.set_state(state["generator"])


def futures(dataset: Dataset, targets: Sequence[TargetActions]) -> NDArray[np.float64]:
    """By observation row: each policy's mean action now and some steps on, then the rewards of these steps.

    Columns: policy by policy its actions at each of `AHEAD`, then one reward for each. Past an episode's end its last row counts.
    """
    total = len(dataset) + dataset.num_episodes
    last = np.repeat(dataset.start_rows + dataset.lengths, dataset.lengths + 1)
    episode = np.repeat(np.arange(dataset.num_episodes), dataset.lengths + 1)
    later = [np.minimum(np.arange(total) + steps, last) for steps in AHEAD]
    means = [np.einsum("nk,nka->na", target.weights, target.actions) for target in targets]
    paid = [dataset.rewards[np.minimum(rows, last - 1) - episode][:, None] for rows in later]
    return np.concatenate([mean[rows] for mean in means for rows in later] + paid, axis=1)


def columns_of(number: int, policies: int, action_dim: int) -> NDArray[np.int64]:
    """Columns of `futures` that concern one policy: its own actions, and the rewards."""
    width = len(AHEAD) * action_dim
    own = np.arange(number * width, (number + 1) * width)
    return np.concatenate([own, policies * width + np.arange(len(AHEAD))])


def new_encoder(
    dataset: Dataset, reads: str | tuple[str, ...] | None, feature_dim: int, generator: torch.Generator
) -> Encoder:
    """Three convolutions of stride 2: a tenth of the cost of the representation learners' encoder."""
    pixels = Pixels(feature_dim, strides=(2, 2, 2))
    return encoder_for(dataset, reads=reads, pixels=pixels, generator=generator)


def encode_rows(
    encoder: Encoder, coming: nn.Module | None, observations: Mapping[str, Array], device: torch.device
) -> Tensor:
    """Vectors standardised, or the predictions of an image's future, in chunks, without gradient."""
    count, chunk = len(next(iter(observations.values()))), 512 if encoder.has_pixels else 65536
    parts = []
    with torch.no_grad():
        for first in range(0, count, chunk):
            part = {key: values[first : first + chunk] for key, values in observations.items()}
            z = encoder(encoder.read(part, device))
            parts.append(z if coming is None else coming(z, z.new_zeros(len(z), 0)))
    return torch.cat(parts)


def principal(z: Tensor) -> tuple[Tensor, Tensor]:
    """Centre (d,) and projection (d, k) onto the directions that hold 99 % of the variance, each scaled to variance 1."""
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
