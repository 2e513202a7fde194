"""Dreamer-v2's world model without its actor: recurrent states that predict frames, rewards and the end.

Loss of a window = - log p(frame) - log p(reward) - log p(goes on) + KL. A reward is paid on arrival: the
state after action a_t predicts r(s_t, a_t), so the head on features t + 1 is trained on reward t. Vector
observations beside pixels are decoded from the features without training them ("privileged": only what the
policy reads needs them); with vectors alone they are the observation itself. Differences from Dreamer-v2:
the encoder reads the dataset's frame stack, so a single observation shows velocities; the noise of frames
and rewards is a setting (1 in the paper) because unit noise hides small objects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Array, Dataset
from bcrl.estimate import FloatArray
from bcrl.estimators.model_based.images import ImageDecoder, ImageEncoder, to_frames
from bcrl.estimators.model_based.parts import Dreamer
from bcrl.estimators.model_based.rssm import RSSM, Latent, balanced_kl, draw
from bcrl.estimators.model_based.scales import (
    ActionScale,
    Ending,
    RewardScale,
    restore_encoder,
    unstandardise,
)
from bcrl.estimators.model_based.windows import Windows, cut_windows, draw_windows, mean_actions
from bcrl.networks import Encoder, HeadNet, encoder_for, load_tensors, tensors_of
from bcrl.policies.policy import TargetActions

_WINDOWS_JUDGED = 64  # on held-out episodes


@dataclass(frozen=True, eq=False)
class Layout:
    """What the model looks at and what it has to predict.

    Attributes:
        frame_shapes: height, width and channels of a single frame, by pixel key.
        stack: frames that the encoder reads.
        vectors: standardises vector keys; None where there are none.
        action_dim: width of an action matrix.
        policies: number of policies with a distilled head.
    """

    frame_shapes: Mapping[str, tuple[int, ...]]
    stack: int
    vectors: Encoder | None
    action_dim: int
    policies: int


class DreamerModel(nn.Module):
    """Encoder, recurrent model, decoders and heads; also the simulator that imagination runs in.

    Args:
        layout: what comes in and goes out.
        settings: sizes and scales.
        generator: draws the weights; None leaves them to be filled in.
    """

    def __init__(self, layout: Layout, settings: Dreamer, generator: torch.Generator | None) -> None:
        super().__init__()
        self.layout, self.settings = layout, settings
        self.frame_shapes, self.vectors = layout.frame_shapes, layout.vectors
        self.eyes = nn.ModuleList(
            ImageEncoder((h, w, c * layout.stack), settings.cnn_depth, generator)
            for h, w, c in self.frame_shapes.values()
        )
        shape: dict[str, Any] = {
            "hidden": settings.head_hidden,
            "activation": "elu",
            "generator": generator,
        }
        width = self.vectors.z_dim if self.vectors is not None else 0
        embed = sum(eye.embed_dim for eye in self.eyes if isinstance(eye, ImageEncoder))
        self.vector_eye = None
        if not self.eyes:
            self.vector_eye = HeadNet(width, 0, settings.hidden, layers=2, activate_last=True, **shape)
            embed = settings.hidden
        self.rssm = RSSM(embed, layout.action_dim, settings, generator)
        features = self.rssm.feature_dim
        self.screens = nn.ModuleList(
            ImageDecoder(features, frame, settings.cnn_depth, generator)
            for frame in self.frame_shapes.values()
        )
        shape["layers"] = settings.head_layers + 1
        self.vector_screen = HeadNet(features, 0, width, **shape) if width else None
        self.reward_head = HeadNet(features, 0, 1, **shape)
        self.goes_on_head = HeadNet(features, 0, 1, **shape)
        self.policy_heads = nn.ModuleList(
            HeadNet(features, 0, layout.action_dim, **shape) for _ in range(layout.policies)
        )
        self.actions, self.rewards, self.ending = ActionScale(layout.action_dim), RewardScale(), Ending()

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        reads: Sequence[str],
        settings: Dreamer,
        policies: int,
        generator: torch.Generator,
    ) -> "DreamerModel":
        """An untrained model. It sees the pixel keys among `reads`, or the vectors if there are none."""
        pixels = [key for key in reads if key in dataset.pixel_keys]
        beside = [key for key in dataset.observations if key not in dataset.pixel_keys]
        decoded = tuple(beside) if pixels else tuple(reads)
        vectors = encoder_for(dataset, reads=decoded, generator=generator) if decoded else None
        shapes = {key: dataset.observations[key].shape[1:] for key in pixels}
        model = cls(Layout(shapes, dataset.stack, vectors, dataset.action_dim, policies), settings, generator)
        model.actions, model.rewards = ActionScale.of(dataset), RewardScale.of(dataset)
        model.ending = Ending.of(dataset)
        return model

    @property
    def keys(self) -> tuple[str, ...]:
        """Observation keys that it can show to a policy."""
        return (*self.frame_shapes, *(self.vectors.keys if self.vectors is not None else ()))

    @property
    def privileged(self) -> tuple[str, ...]:
        """Keys that the model does not see but can show to a policy."""
        return self.vectors.keys if self.vectors is not None and self.frame_shapes else ()

    @property
    def judged_keys(self) -> tuple[str, ...]:
        """Keys whose predictions are compared with the log: what it sees."""
        return tuple(self.frame_shapes) or self.keys

    def embed(self, observations: Mapping[str, Tensor]) -> Tensor:
        if self.vector_eye is not None:
            assert self.vectors is not None
            return head(self.vector_eye, self.vectors(observations))
        seen = [eye(observations[key]) for key, eye in zip(self.frame_shapes, self.eyes, strict=True)]
        return torch.cat(seen, dim=1)

    def follow(
        self, embedding: Tensor, actions: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Features (B, L, F), posterior and prior logits (B, L, stoch, classes) along windows.

        Args:
            embedding: (B, L, E).
            actions: standardised actions that led to each observation, (B, L, A).
            generator: draws the latents.
        """
        state = self.rssm.blank(len(embedding))
        features, posteriors, priors = [], [], []
        for t in range(embedding.shape[1]):
            h, prior = self.rssm.prior(state, actions[:, t])
            posterior = self.rssm.posterior(h, embedding[:, t])
            state = Latent(h, draw(posterior, generator))
            features.append(state.features)
            posteriors.append(posterior)
            priors.append(prior)
        return torch.stack(features, 1), torch.stack(posteriors, 1), torch.stack(priors, 1)

    def losses(self, batch: Windows, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss terms of a batch, per observation."""
        count, length = batch.valid.shape
        embedding = self.embed(batch.observations).view(count, length, -1)
        features, posterior, prior = self.follow(embedding, self._actions_before(batch), generator)
        valid, flat = batch.valid.flatten(), features.flatten(0, 1)
        kl = balanced_kl(
            posterior.flatten(0, 1),
            prior.flatten(0, 1),
            valid,
            balance=self.settings.kl_balance,
            free=self.settings.free_nats,
        )
        # The reward before the first observation of a window is not in the window.
        arrived = batch.valid.clone()
        arrived[:, 0] = 0.0
        reward = head(self.reward_head, flat)[:, 0] - self.rewards(batch.rewards.flatten())
        goes_on = nn.functional.binary_cross_entropy_with_logits(
            head(self.goes_on_head, flat)[:, 0], batch.goes_on.flatten(), reduction="none"
        )
        terms = {
            "reward": _mean(0.5 * reward.square() / self.settings.reward_noise**2, arrived.flatten()),
            "goes_on": _mean(goes_on, arrived.flatten()),
            "kl": self.settings.kl_scale * kl,
        }
        return (
            terms
            | self._observation_losses(batch, flat, valid)
            | self._policy_losses(batch, flat.detach(), valid)
        )

    def held_out_rewards(
        self, dataset: Dataset, held_out: NDArray[np.int64], generator: torch.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Logged rewards in random windows of these transitions' episodes, and the model's."""
        episodes, length = np.unique(dataset.episode_of[held_out]), self.settings.length
        truth, predicted = [], []
        for _ in range(_WINDOWS_JUDGED // 16):
            first, drawn = draw_windows(dataset, episodes, 16, length, generator)
            batch = cut_windows(dataset, first, drawn, length, mean_actions(dataset, []), self.keys)
            rewards, seen = self._predicted_rewards(batch, generator)
            truth.append(batch.rewards[seen].double().numpy())
            predicted.append(rewards[seen].double().numpy())
        return np.concatenate(truth), np.concatenate(predicted)

    def _predicted_rewards(self, batch: Windows, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Rewards from posterior states, in their own unit, (B, L), and where the window has one."""
        embedding = self.embed(batch.observations).view(*batch.valid.shape, -1)
        features, _, _ = self.follow(embedding, self._actions_before(batch), generator)
        rewards = self.rewards.undo(head(self.reward_head, features.flatten(0, 1))[:, 0])
        seen = batch.valid > 0.0
        seen[:, 0] = False
        return rewards.view_as(batch.rewards), seen

    def _actions_before(self, batch: Windows) -> Tensor:
        """Standardised actions that led to each observation; 0 at the first."""
        before = self.actions(batch.actions)
        return torch.cat([torch.zeros_like(before[:, :1]), before[:, 1:]], dim=1)

    def _observation_losses(self, batch: Windows, flat: Tensor, valid: Tensor) -> dict[str, Tensor]:
        terms = {}
        for key, screen in zip(self.frame_shapes, self.screens, strict=True):
            channels = self.frame_shapes[key][2]
            frame = batch.observations[key][..., -channels:].float() / 255.0 - 0.5
            error = (screen(flat) - frame).square().flatten(1).sum(dim=1)
            terms["frame"] = _mean(0.5 * error / self.settings.image_noise**2, valid)
        if self.vectors is not None and self.vector_screen is not None:
            seen = flat.detach() if self.frame_shapes else flat
            noise = 1.0 if self.frame_shapes else self.settings.reward_noise
            error = (head(self.vector_screen, seen) - self.vectors(batch.observations)).square().sum(dim=1)
            terms["vector"] = _mean(0.5 * error / noise**2, valid)
        return terms

    def _policy_losses(self, batch: Windows, flat: Tensor, valid: Tensor) -> dict[str, Tensor]:
        """Squared error of the distilled heads, which read the features without training them."""
        errors = [
            (head(net, flat) - batch.chosen[:, number]).square().mean(dim=1)
            for number, net in enumerate(self.policy_heads)
        ]
        return {"policy": _mean(torch.stack(errors).sum(dim=0), valid)} if errors else {}

    def first_state(self, observations: Mapping[str, Array], generator: torch.Generator) -> Latent:
        """The state after one observation."""
        seen = {key: torch.from_numpy(observations[key].copy()) for key in self.frame_shapes}
        if self.vectors is not None and not self.frame_shapes:
            seen = self.vectors.read(observations)
        embedding = self.embed(seen)
        blank = self.rssm.blank(len(embedding))
        h, _ = self.rssm.prior(blank, embedding.new_zeros(len(embedding), self.layout.action_dim))
        return Latent(h, draw(self.rssm.posterior(h, embedding), generator))

    def show(self, state: Latent, keys: tuple[str, ...], template: Dataset) -> dict[str, Array]:
        """What a policy that reads `keys` would see: single frames, and vectors in their own unit."""
        shown: dict[str, Array] = {}
        for key, screen in zip(self.frame_shapes, self.screens, strict=True):
            if key in keys:
                shown[key] = to_frames(screen(state.features)).numpy()
        if self.vectors is not None and set(keys) & set(self.vectors.keys):
            assert self.vector_screen is not None
            shown |= unstandardise(self.vectors, head(self.vector_screen, state.features), template)
        return shown

    def advance(
        self, state: Latent, actions: Tensor, generator: torch.Generator
    ) -> tuple[Latent, Tensor, Tensor]:
        """Next state, reward and chance of going on, after these actions."""
        h, prior = self.rssm.prior(state, self.actions(actions))
        moved = Latent(h, draw(prior, generator))
        reward = self.rewards.undo(head(self.reward_head, moved.features)[:, 0])
        return moved, reward, self.ending(head(self.goes_on_head, moved.features)[:, 0])

    def vector(self, state: Latent) -> Tensor:
        """A vector per state, by which states are compared."""
        return state.features

    def spec(self) -> dict[str, Any]:
        return {
            "model": "dreamer",
            "frame_shapes": {key: list(shape) for key, shape in self.frame_shapes.items()},
            "stack": self.layout.stack,
            "vectors": None if self.vectors is None else self.vectors.spec(),
            "action_dim": self.layout.action_dim,
            "sizes": asdict(self.settings),
            "policies": self.layout.policies,
        }

    def tensors(self) -> dict[str, Array]:
        return tensors_of(self)

    @classmethod
    def restore(cls, spec: Mapping[str, Any], tensors: Mapping[str, Array]) -> "DreamerModel":
        kept = spec["vectors"]
        vectors = None if kept is None else restore_encoder(kept, tensors, "vectors.")
        shapes = {key: tuple(shape) for key, shape in spec["frame_shapes"].items()}
        layout = Layout(shapes, spec["stack"], vectors, spec["action_dim"], spec["policies"])
        return load_tensors(cls(layout, Dreamer(**spec["sizes"]), None), tensors)


class WindowBatches:
    """Random windows of episodes, with what the policies do there for the distilled heads."""

    def __init__(
        self,
        model: DreamerModel,
        dataset: Dataset,
        episodes: NDArray[np.int64],
        targets: Sequence[TargetActions],
    ) -> None:
        self.model, self.dataset, self.episodes = model, dataset, episodes
        self.means = mean_actions(dataset, targets)

    def losses(self, generator: torch.Generator) -> dict[str, Tensor]:
        count, length = self.model.settings.batch_size, self.model.settings.length
        first, episodes = draw_windows(self.dataset, self.episodes, count, length, generator)
        batch = cut_windows(self.dataset, first, episodes, length, self.means, self.model.keys)
        return self.model.losses(batch, generator)


def head(net: nn.Module, x: Tensor) -> Tensor:
    """A head that reads features only."""
    outputs: Tensor = net(x, x.new_zeros(len(x), 0))
    return outputs


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    return (values * weights).sum() / weights.sum().clamp_min(1.0)
