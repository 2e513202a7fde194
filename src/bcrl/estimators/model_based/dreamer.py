"""Dreamer-v2's world model without its actor: what was seen, what it paid, whether it went on, from recurrent states.

Loss of a sequence = - log p(frame) - log p(reward) - log p(goes on) + KL. A reward is paid on arrival: the state after
action a_t predicts r(s_t, a_t), so the head on features t + 1 is trained on reward t. Vector observations beside pixels are
decoded from the features without training them ("privileged": only what the policy reads needs them); with vectors alone
they are the observation itself. Differences from Dreamer-v2: the encoder reads the dataset's frame stack, so a single observation
shows velocities; the noise of frames and rewards is a setting (1 in the paper) because unit noise hides small objects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bcrl.data.dataset import Array, Dataset
from bcrl.estimators.model_based.images import ImageDecoder, ImageEncoder, to_frames
from bcrl.estimators.model_based.rssm import RSSM, Latent, balanced_kl, draw
from bcrl.estimators.model_based.vectors import ActionScale, Ending, RewardScale, unstandardise
from bcrl.networks import Encoder, HeadNet, encoder_for, load_tensors, tensors_of


@dataclass(frozen=True)
class Sizes:
    """Sizes and scales of the world model; the fields are those of `ModelBased`."""

    deter: int
    hidden: int
    stoch: int
    classes: int
    cnn_depth: int
    head_layers: int
    head_hidden: int
    image_noise: float
    reward_noise: float
    kl_scale: float
    kl_balance: float
    free_nats: float


@dataclass(frozen=True, eq=False)
class Sequences:
    """A batch of B windows of L observations.

    Attributes:
        observations: by key, (B * L, ...), window by window.
        actions: that led to each observation, (B, L, A); 0 at the first.
        rewards: paid on arrival, (B, L); 0 at the first.
        goes_on: 0 where the world ended on arrival, (B, L).
        valid: 0 after an episode's end, (B, L).
        chosen: each target policy's mean action (probabilities) at each observation, (B * L, policies, A).
    """

    observations: Mapping[str, Tensor]
    actions: Tensor
    rewards: Tensor
    goes_on: Tensor
    valid: Tensor
    chosen: Tensor


class WorldModel(nn.Module):
    """Encoder, recurrent model, decoders and heads; also the simulator that imagination runs in.

    Args:
        frame_shapes: height, width and channels of a single frame, by pixel key.
        stack: frames that the encoder reads.
        vectors: standardises vector keys; None where there are none.
        action_dim: width of an action matrix.
        sizes: sizes and scales.
        policies: number of policies with a distilled head.
        generator: draws the weights; None leaves them to be filled in.
    """

    def __init__(
        self,
        frame_shapes: Mapping[str, Sequence[int]],
        stack: int,
        vectors: Encoder | None,
        action_dim: int,
        sizes: Sizes,
        policies: int,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.frame_shapes = {key: tuple(shape) for key, shape in frame_shapes.items()}
        self.stack, self.sizes, self.action_dim = stack, sizes, action_dim
        self.vectors = vectors
        self.eyes = nn.ModuleList(
            ImageEncoder((h, w, c * stack), sizes.cnn_depth, generator)
            for h, w, c in self.frame_shapes.values()
        )
        shape: dict[str, Any] = {"hidden": sizes.head_hidden, "activation": "elu", "generator": generator}
        width = vectors.z_dim if vectors is not None else 0
        embed = sum(eye.embed_dim for eye in self.eyes if isinstance(eye, ImageEncoder))
        self.vector_eye = None
        if not self.eyes:
            self.vector_eye = HeadNet(width, 0, sizes.hidden, layers=2, activate_last=True, **shape)
            embed = sizes.hidden
        recurrent = {name: getattr(sizes, name) for name in ("deter", "hidden", "stoch", "classes")}
        self.rssm = RSSM(embed, action_dim, **recurrent, generator=generator)
        features = self.rssm.feature_dim
        self.screens = nn.ModuleList(
            ImageDecoder(features, frame, sizes.cnn_depth, generator) for frame in self.frame_shapes.values()
        )
        shape["layers"] = sizes.head_layers + 1
        self.vector_screen = HeadNet(features, 0, width, **shape) if width else None
        self.reward_head = HeadNet(features, 0, 1, **shape)
        self.goes_on_head = HeadNet(features, 0, 1, **shape)
        self.policy_heads = nn.ModuleList(HeadNet(features, 0, action_dim, **shape) for _ in range(policies))
        self.actions, self.rewards, self.ending = ActionScale(action_dim), RewardScale(), Ending()

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        reads: Sequence[str],
        sizes: Sizes,
        policies: int,
        generator: torch.Generator,
    ) -> "WorldModel":
        """A model for a dataset, untrained. It sees the pixel keys among `reads`, or its vectors where there are none."""
        pixels = [key for key in reads if key in dataset.pixel_keys]
        beside = [key for key in dataset.observations if key not in dataset.pixel_keys]
        decoded = tuple(beside) if pixels else tuple(reads)
        vectors = encoder_for(dataset, reads=decoded, generator=generator) if decoded else None
        shapes = {key: dataset.observations[key].shape[1:] for key in pixels}
        model = cls(shapes, dataset.stack, vectors, dataset.action_dim, sizes, policies, generator)
        model.actions, model.rewards = ActionScale.of(dataset), RewardScale.of(dataset)
        model.ending = Ending.of(dataset)
        return model

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.frame_shapes, *(self.vectors.keys if self.vectors is not None else ()))

    @property
    def privileged(self) -> tuple[str, ...]:
        """Keys that the model does not see but can show to a policy."""
        return self.vectors.keys if self.vectors is not None and self.frame_shapes else ()

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

    def losses(self, batch: Sequences, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss terms of a batch, per observation."""
        count, length = batch.valid.shape
        embedding = self.embed(batch.observations).view(count, length, -1)
        led = self._led(batch)
        features, posterior, prior = self.follow(embedding, led, generator)
        valid, flat = batch.valid.flatten(), features.flatten(0, 1)
        kl = balanced_kl(
            posterior.flatten(0, 1),
            prior.flatten(0, 1),
            valid,
            balance=self.sizes.kl_balance,
            free=self.sizes.free_nats,
        )
        # What was paid before the first observation of a window is not in the window.
        arrived = batch.valid.clone()
        arrived[:, 0] = 0.0
        reward = head(self.reward_head, flat)[:, 0] - self.rewards(batch.rewards.flatten())
        goes_on = nn.functional.binary_cross_entropy_with_logits(
            head(self.goes_on_head, flat)[:, 0], batch.goes_on.flatten(), reduction="none"
        )
        terms = {
            "reward": _mean(0.5 * reward.square() / self.sizes.reward_noise**2, arrived.flatten()),
            "goes_on": _mean(goes_on, arrived.flatten()),
            "kl": self.sizes.kl_scale * kl,
        }
        return terms | self._pictures(batch, flat, valid) | self._policies(batch, flat.detach(), valid)

    def predict_rewards(self, batch: Sequences, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Rewards from posterior states, in their own unit, (B, L), and where there is one to compare with."""
        embedding = self.embed(batch.observations).view(*batch.valid.shape, -1)
        features, _, _ = self.follow(embedding, self._led(batch), generator)
        rewards = self.rewards.back(head(self.reward_head, features.flatten(0, 1))[:, 0])
        seen = batch.valid > 0.0
        seen[:, 0] = False
        return rewards.view_as(batch.rewards), seen

    def _led(self, batch: Sequences) -> Tensor:
        """Standardised actions that led to each observation; 0 at the first."""
        led = self.actions(batch.actions)
        return torch.cat([torch.zeros_like(led[:, :1]), led[:, 1:]], dim=1)

    def _pictures(self, batch: Sequences, flat: Tensor, valid: Tensor) -> dict[str, Tensor]:
        terms = {}
        for key, screen in zip(self.frame_shapes, self.screens, strict=True):
            channels = self.frame_shapes[key][2]
            frame = batch.observations[key][..., -channels:].float() / 255.0 - 0.5
            error = (screen(flat) - frame).square().flatten(1).sum(dim=1)
            terms["frame"] = _mean(0.5 * error / self.sizes.image_noise**2, valid)
        if self.vectors is not None and self.vector_screen is not None:
            seen = flat.detach() if self.frame_shapes else flat
            noise = 1.0 if self.frame_shapes else self.sizes.reward_noise
            error = (head(self.vector_screen, seen) - self.vectors(batch.observations)).square().sum(dim=1)
            terms["vector"] = _mean(0.5 * error / noise**2, valid)
        return terms

    def _policies(self, batch: Sequences, flat: Tensor, valid: Tensor) -> dict[str, Tensor]:
        """Squared error of the distilled heads; they read the features and leave them alone."""
        errors = [
            (head(net, flat) - batch.chosen[:, number]).square().mean(dim=1)
            for number, net in enumerate(self.policy_heads)
        ]
        return {"policy": _mean(torch.stack(errors).sum(dim=0), valid)} if errors else {}

    def begin(self, observations: Mapping[str, Array], generator: torch.Generator) -> Latent:
        """The state after one observation."""
        seen = {key: torch.from_numpy(observations[key].copy()) for key in self.frame_shapes}
        if self.vectors is not None and not self.frame_shapes:
            seen = self.vectors.read(observations)
        embedding = self.embed(seen)
        blank = self.rssm.blank(len(embedding))
        h, _ = self.rssm.prior(blank, embedding.new_zeros(len(embedding), self.action_dim))
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
        reward = self.rewards.back(head(self.reward_head, moved.features)[:, 0])
        return moved, reward, self.ending(head(self.goes_on_head, moved.features)[:, 0])

    def code(self, state: Latent) -> Tensor:
        """A vector per state, by which states are compared."""
        return state.features

    def spec(self) -> dict[str, Any]:
        return {
            "model": "dreamer",
            "frame_shapes": {key: list(shape) for key, shape in self.frame_shapes.items()},
            "stack": self.stack,
            "vectors": None if self.vectors is None else self.vectors.spec(),
            "action_dim": self.action_dim,
            "sizes": asdict(self.sizes),
            "policies": len(self.policy_heads),
        }

    def tensors(self) -> dict[str, Array]:
        return tensors_of(self)

    @classmethod
    def restore(cls, spec: Mapping[str, Any], tensors: Mapping[str, Array]) -> "WorldModel":
        vectors = None
        if spec["vectors"] is not None:
            inner = {
                name.removeprefix("vectors."): value
                for name, value in tensors.items()
                if name.startswith("vectors.")
            }
            vectors = Encoder.restore(spec["vectors"], inner)
        rest = (spec["action_dim"], Sizes(**spec["sizes"]), spec["policies"])
        return load_tensors(cls(spec["frame_shapes"], spec["stack"], vectors, *rest, None), tensors)


def head(net: nn.Module, x: Tensor) -> Tensor:
    """A head that reads features only."""
    outputs: Tensor = net(x, x.new_zeros(len(x), 0))
    return outputs


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    return (values * weights).sum() / weights.sum().clamp_min(1.0)
