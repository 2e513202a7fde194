"""SPR without its Q head (Schwarzer et al., 2021, as in Chang et al., 2022): predict the next latents.

    z_t = f(s_t),   z_{t+k} = next(h(z_{t+k-1}, a_{t+k-1})),   k = 1 .. K, logged actions, within episodes
    loss = mean over k of 2 - 2 cos( q(g(z_{t+k})), gbar(fbar(s_{t+k})) )          phi(s, a) = h(f(s), a)

g is a three-layer projection and q a linear predictor; fbar and gbar are moving averages, or with tau = 1 the
current networks, without gradient. f is the encoder and h the head that BCRL has. Rewards and policies never
enter, so one fit serves all policies. Pixels are shifted at random, vectors shaken if asked.

Differences from SPR: latents are vectors (50 numbers), so h is an MLP; `next` brings h's output back to a
latent (Linear, and as the pixel encoder ends, LayerNorm and tanh); the steps of a window that run past its
episode are left out.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bcrl import salts
from bcrl.data.dataset import Dataset
from bcrl.estimate import short_call
from bcrl.networks import HEAD, PIXELS, Encoder, Head, Pixels, follow, linear
from bcrl.options import Checked, Count, Fraction, NotNegative, Positive, Rate, Width
from bcrl.policies.policy import TargetActions
from bcrl.representations.augment import (
    Augmentation,
    Views,
    default_shift,
    effective_rank,
    encode,
    learned_rows,
)
from bcrl.representations.features import FeatureNet, FittedFeatures, new_net
from bcrl.training import Run, generators, restore_parts, state_of, train


@dataclass(frozen=True)
class SPR(Checked):
    """Self-predictive features of observation and action.

    Attributes:
        dim: number of features, the constant among them.
        lr: Adam's step size.
        batch_size: windows per step.
        steps: updates; None = 1000 on vectors, 400 on pixels.
        jumps: K, latents predicted ahead.
        tau: share by which the target encoder follows each step; 1 = it is the encoder itself.
        projection: width of the projections.
        standardise: compare projections in units of their deviation over the batch. SPR has no need of it,
            because its Q loss keeps the latents apart; without one they collapse to a point that predicts
            itself.
        noise: noise on vectors, in deviations.
        scale: largest relative change of a vector's size.
        intensity: deviation of the random brightness of images; SPR has 0.05.
        grad_clip: largest norm of the gradient; None leaves it.
        constant_feature: append a feature that is always 1.
        head: the MLP on (z, action).
        reads: observation key(s) to look at; None = pixels where there are any, else every vector.
        pixels: the pixel encoder.
        held_out: share of units kept for the prediction error.
        evaluations: number of times that it is measured.
        published: as the paper trains: on all of the data, and in LSPE one training.
    """

    dim: Width = 256
    lr: Positive = 1e-3
    batch_size: Count = 128
    steps: Count | None = None
    jumps: Count = 5
    tau: Rate = 1.0
    projection: Width = 128
    standardise: bool = True
    noise: NotNegative = 0.0
    scale: NotNegative = 0.0
    intensity: NotNegative = 0.0
    grad_clip: Positive | None = 10.0
    constant_feature: bool = True
    head: Head = HEAD
    reads: str | tuple[str, ...] | None = None
    pixels: Pixels = PIXELS
    held_out: Fraction = 0.1
    evaluations: Count = 10
    published: bool = False

    __repr__ = short_call

    @classmethod
    def paper(cls) -> "SPR":
        """512 features, the BCRL paper's architecture; SPR's for all else (K = 5, lr 1e-4, batch 32)."""
        return cls(
            dim=512,
            head=Head(512, 4, "relu", activate_last=True),
            pixels=Pixels(conv_layers=5),
            lr=1e-4,
            batch_size=32,
            steps=10_000,
            projection=512,
            standardise=False,
            intensity=0.05,
            constant_feature=False,
            published=True,
        )

    def fit(
        self, dataset: Dataset, targets: Sequence[TargetActions], *, discount: float, seed: int, run: Run
    ) -> FittedFeatures:
        """Learn phi on a dataset; targets and discount play no part."""
        dataset.require_order("SPR")
        _, generator = generators(seed)
        net = new_net(dataset, self.dim, self, activation="relu", generator=generator)
        model = LatentModel(net, self.projection, generator).to(run.torch_device)
        pixels = net.encoder.has_pixels
        held, training = learned_rows(dataset, self, seed)
        views = Views(dataset, net.encoder)
        learner = SPRLearner(self, model, views, training, generator)
        judge = PredictionError(learner, held, 512 if pixels else 2048, seed)
        curves: dict[str, list[float]] = {}
        steps = self.steps if self.steps is not None else 400 if pixels else 1000
        every = max(1, math.ceil(steps / self.evaluations))
        for metrics in train(learner, steps=steps, run=run, stage="SPR", every=every, measure=judge):
            for name, value in metrics.items():
                curves.setdefault(name, []).append(value)
        return FittedFeatures(model.net.eval().requires_grad_(False), curves)


class LatentModel(nn.Module):
    """phi, the way back from phi to a latent, projection and predictor."""

    def __init__(self, net: FeatureNet, projection: int, generator: torch.Generator) -> None:
        super().__init__()
        self.net = net
        z_dim = net.encoder.z_dim
        back = [linear(net.head.dim, z_dim, generator)]
        ends = [nn.LayerNorm(z_dim), nn.Tanh()] if net.encoder.has_pixels else []
        self.back = nn.Sequential(*back, *ends)
        widths = [(z_dim, projection), (projection, projection), (projection, projection)]
        first, second, third = (linear(*width, generator) for width in widths)
        self.project = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)
        self.predict = linear(projection, projection, generator)

    @property
    def encoder(self) -> Encoder:
        return self.net.encoder

    def advance(self, z: Tensor, actions: Tensor) -> Tensor:
        """The next latent."""
        following: Tensor = self.back(self.net(z, actions)[:, : self.net.head.dim])
        return following


class SPRLearner:
    """What the loop trains."""

    def __init__(
        self,
        recipe: SPR,
        model: LatentModel,
        views: Views,
        transitions: NDArray[np.int64],
        generator: torch.Generator,
    ) -> None:
        self.recipe, self.model, self.views, self.transitions = recipe, model, views, transitions
        self.generator, self.batch_size = generator, min(recipe.batch_size, len(transitions))
        shift = default_shift(views.dataset) if recipe.pixels.shift is None else recipe.pixels.shift
        self.augment = Augmentation(shift, None, recipe.noise, recipe.scale, recipe.intensity)
        self.slow = model if recipe.tau >= 1.0 else copy.deepcopy(model).requires_grad_(False)
        self.optimiser = torch.optim.Adam(model.parameters(), lr=recipe.lr)

    def step(self) -> dict[str, Tensor]:
        chosen = torch.randint(len(self.transitions), (self.batch_size,), generator=self.generator)
        window = self.window(self.transitions[chosen.numpy()])
        latents = self.roll(encode(self.model.encoder, self._view(window.rows[:, 0])), window)
        goals = self.goals(window, self.generator)
        errors = torch.stack(
            [
                self.distance(self.model.predict(self.model.project(z)), goal)
                for z, goal in zip(latents, goals, strict=True)
            ],
            dim=1,
        )
        loss = (errors * window.inside).sum() / window.inside.sum()
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        if self.recipe.grad_clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.grad_clip)
        self.optimiser.step()
        if self.slow is not self.model:
            follow(self.slow, self.model, self.recipe.tau)
        return {"loss": loss.detach()}

    def window(self, transitions: NDArray[np.int64]) -> "Window":
        """K logged decisions from each of these transitions on, as far as the episode goes."""
        dataset, device = self.views.dataset, self.views.device
        ahead = transitions[:, None] + np.arange(self.recipe.jumps)
        last = dataset.offsets[1:][dataset.episode_of[transitions]][:, None] - 1
        inside = ahead <= last
        taken = np.minimum(ahead, last)
        rows = dataset.rows[taken]
        actions = dataset.action_matrix(dataset.actions[taken.reshape(-1)])
        return Window(
            rows=np.concatenate([rows[:, :1], rows + 1], axis=1),
            actions=torch.from_numpy(actions).view(*taken.shape, -1).to(device),
            inside=torch.from_numpy(inside).float().to(device),
        )

    def _view(self, rows: NDArray[np.int64]) -> Any:  # noqa: ANN401 - z or images by key
        return self.augment(self.views.at(rows), self.generator)

    def roll(self, z: Tensor, window: "Window") -> list[Tensor]:
        """Latents 1 .. K ahead."""
        latents = []
        for k in range(self.recipe.jumps):
            z = self.model.advance(z, window.actions[:, k])
            latents.append(z)
        return latents

    @torch.no_grad()
    def goals(self, window: "Window", generator: torch.Generator | None) -> list[Tensor]:
        """gbar(fbar(s)) of the observations 1 .. K ahead; not augmented if there is no generator."""
        count, jumps = window.actions.shape[:2]
        seen = self.views.at(window.rows[:, 1:].reshape(-1))
        if generator is not None:
            seen = self.augment(seen, generator)
        projected = self.slow.project(encode(self.slow.encoder, seen)).view(count, jumps, -1)
        return list(projected.unbind(dim=1))

    def distance(self, left: Tensor, right: Tensor) -> Tensor:
        """2 - 2 cos, the squared distance of the directions, shape (n,)."""
        if self.recipe.standardise:
            left, right = ((side - side.mean(dim=0)) / (side.std(dim=0) + 1e-4) for side in (left, right))
        left, right = (functional.normalize(side, dim=1, eps=1e-3) for side in (left, right))
        return (left - right).square().sum(dim=1)

    def _parts(self) -> dict[str, Any]:
        slow = {} if self.slow is self.model else {"slow": self.slow}
        return {"model": self.model, **slow, "optimiser": self.optimiser, "generator": self.generator}

    def state(self) -> dict[str, Any]:
        return state_of(self._parts())

    def restore(self, state: dict[str, Any]) -> None:
        restore_parts(self._parts(), state)


@dataclass(frozen=True, eq=False)
class Window:
    """rows (n, K + 1) of observations, actions (n, K, action_dim), inside (n, K): 1 within the episode."""

    rows: NDArray[np.int64]
    actions: Tensor
    inside: Tensor


class PredictionError:
    """Held-out error of the K-step prediction, beside that of copying the last latent seen."""

    def __init__(self, learner: SPRLearner, transitions: NDArray[np.int64], limit: int, seed: int) -> None:
        self.learner = learner
        order = np.random.default_rng([seed, salts.HELD_OUT_SPR]).permutation(len(transitions))
        window = learner.window(np.sort(transitions[order[:limit]]))
        whole = window.inside[:, -1].cpu().numpy() > 0.0
        # Where no episode is K steps long, shorter windows are judged.
        self.window = learner.window(np.sort(transitions[order[:limit]])[whole]) if whole.any() else window

    @torch.no_grad()
    def __call__(self) -> dict[str, float]:
        learner, model, window = self.learner, self.learner.model, self.window
        here = learner.views.at(window.rows[:, 0])
        z = encode(model.encoder, here)
        goal = learner.goals(window, None)[-1]
        ahead = model.predict(model.project(learner.roll(z, window)[-1]))
        copied = learner.slow.project(encode(learner.slow.encoder, here))
        phi = model.net(z, window.actions[:, 0])[:, : model.net.head.dim]
        return {
            "prediction_error": float(learner.distance(ahead, goal).mean()),
            "copy_error": float(learner.distance(copied, goal).mean()),
            "feature_rank": effective_rank(phi),
            "latent_rank": effective_rank(z),
        }
