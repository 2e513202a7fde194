"""States from pixels for BestDICE: an encoder that can tell what happens next, learned first and then left alone.

From z(s) and the logged action it predicts the reward, from z(s) and z(s') the action between them, and from z(s) what
the target policies do there. Saddle points on top of a moving encoder neither converge nor fit a budget; on frozen z both
critics are small. The original code (dice_rl) knows vectors only; the paper's adaptation to pixels is not published.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bcrl.data.dataset import Array, Dataset
from bcrl.networks import Encoder, Head, encoder_for
from bcrl.policy import TargetActions


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
        self.means = _scaled(
            np.concatenate([np.einsum("nk,nka->na", t.weights, t.actions) for t in targets], axis=1)
        )
        self.actions = _scaled(dataset.action_matrix(dataset.actions))
        self.rewards = _scaled(dataset.rewards[:, None])
        z, width = encoder.z_dim, self.actions.shape[1]
        shape: dict[str, Any] = {"hidden": 64, "layers": 2, "generator": generator}
        self.nets = torch.nn.ModuleDict(
            {
                "encoder": encoder,
                "reward": Head(z, width, 1, **shape),
                "between": Head(z, z, width, **shape),
                "policy": Head(z, 0, self.means.shape[1], **shape),
            }
        ).to(device)
        self.optimiser = torch.optim.Adam(self.nets.parameters(), lr)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, steps)

    def step(self) -> Mapping[str, float | Tensor]:
        index = torch.randint(len(self.dataset), (self.batch_size,), generator=self.generator).numpy()
        rows = self.dataset.rows[index]
        z, z_next = self._encode(np.concatenate([rows, rows + 1])).chunk(2)
        actions, rewards, chosen = (
            torch.from_numpy(values).to(self.device)
            for values in (self.actions[index], self.rewards[index], self.means[rows])
        )
        errors = {
            "reward": self.nets["reward"](z, actions) - rewards,
            "between": self.nets["between"](z, z_next) - actions,
            "policy": self.nets["policy"](z, z.new_zeros(len(z), 0)) - chosen,
        }
        losses = {name: error.square().mean() for name, error in errors.items()}
        self.optimiser.zero_grad()
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.schedule.step()
        return dict(losses)

    def _encode(self, rows: NDArray[np.int64]) -> Tensor:
        encoder = self.nets["encoder"]
        assert isinstance(encoder, Encoder)
        encoded: Tensor = encoder(encoder.read(self.dataset.observe(rows), self.device))
        return encoded

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


def new_encoder(
    dataset: Dataset, reads: str | tuple[str, ...] | None, feature_dim: int, generator: torch.Generator
) -> Encoder:
    """Three convolutions of stride 2: a tenth of the cost of the representation learners' encoder."""
    return encoder_for(
        dataset, reads=reads, feature_dim=feature_dim, strides=(2, 2, 2), channels=32, generator=generator
    )


def encode_rows(encoder: Encoder, observations: Mapping[str, Array], device: torch.device) -> Tensor:
    """z of these observations, in chunks, without gradient."""
    count, chunk = len(next(iter(observations.values()))), 512 if encoder.has_pixels else 65536
    parts = []
    with torch.no_grad():
        for first in range(0, count, chunk):
            part = {key: values[first : first + chunk] for key, values in observations.items()}
            parts.append(encoder(encoder.read(part, device)))
    return torch.cat(parts)


def _scaled(values: Array) -> NDArray[np.float32]:
    """Columns with mean 0 and deviation 1; constant columns stay."""
    deviation = values.std(axis=0)
    scaled = (values - values.mean(axis=0)) / np.where(deviation > 1e-8, deviation, 1.0)
    return np.asarray(scaled, dtype=np.float32)
