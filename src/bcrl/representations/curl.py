"""CURL on state-action features (Laskin, Srinivas and Abbeel, 2020, as Chang et al., 2022, modify it).

Two random views of the same observation, with the same logged action, should be recognised among a batch:

    q_i = phi(view1(s_i), a_i),   k_j = phibar(view2(s_j), a_j)
    loss = cross entropy of softmax_j(q_i^T W k_j) with label i

phibar is a moving average of phi, W is learned. Rewards and policies never enter, so one fit serves all
policies. LSPE then reads phi of observations as they are.

Differences from CURL: no SAC; pad-and-crop in place of the crop of a larger render, so that the field of view
stays (the original with `crop`, as in `paper()`; `reads` names a larger render if there is one); features are
scaled to length 1 for the comparison, because otherwise the longest features win every comparison
(`directions=False` compares them as they are); W starts at the identity, scaled so that the first logits have
deviation 3: the original's uniform numbers in [0, 1) give logits of hundreds (`similarity="uniform"` has
them); one Adam for everything. The action is the same in both views and may give the instance away, so the
held-out accuracy is also logged with the image, and with the action, taken away.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bcrl import salts
from bcrl.data.dataset import Dataset
from bcrl.errors import BadInput
from bcrl.estimate import short_call
from bcrl.networks import HEAD, PIXELS, Head, Pixels, follow, keys_read
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

Similarity = Literal["identity", "uniform"]


@dataclass(frozen=True)
class CURL(Checked):
    """Contrastive features of observation and action.

    Attributes:
        dim: number of features, the constant among them.
        lr: Adam's step size.
        batch_size: instances that are distinguished in one step.
        steps: updates; None = 1000 on vectors, 500 on pixels.
        tau: share by which the momentum network follows each step.
        similarity: how W starts.
        directions: compare features scaled to length 1; False compares them as they are. LSPE gets them as
            they are.
        crop: side of CURL's original random crop, in images larger than that; LSPE sees their centre. None
            shifts. Vectors are never cropped.
        noise: noise on vectors, in deviations.
        scale: largest relative change of a vector's size.
        constant_feature: append a feature that is always 1.
        head: the MLP on (z, action).
        reads: observation key(s) to look at; None = pixels where there are any, else every vector.
        pixels: the pixel encoder.
        held_out: share of units kept for the accuracy.
        evaluations: number of times that it is measured.
        published: as the paper trains: on all of the data, and in LSPE one training.
    """

    dim: Width = 256
    lr: Positive = 1e-3
    batch_size: Count = 256
    steps: Count | None = None
    tau: Rate = 0.05
    similarity: Similarity = "identity"
    directions: bool = True
    crop: Count | None = None
    noise: NotNegative = 0.1
    scale: NotNegative = 0.1
    constant_feature: bool = True
    head: Head = HEAD
    reads: str | tuple[str, ...] | None = None
    pixels: Pixels = PIXELS
    held_out: Fraction = 0.1
    evaluations: Count = 10
    published: bool = False

    __repr__ = short_call

    @classmethod
    def paper(cls) -> "CURL":
        """512 features, the BCRL paper's architecture, CURL's crop and W; CURL's defaults for all else.

        CURL crops 84 out of 100 pixels; of the paper's 84 the same share is 71. With larger renders in the
        data, `replace(CURL.paper(), crop=84)`.
        """
        return cls(
            dim=512,
            head=Head(512, 4, "relu", activate_last=True),
            pixels=Pixels(conv_layers=5),
            batch_size=512,
            steps=10_000,
            similarity="uniform",
            directions=False,
            crop=71,
            noise=0.0,
            scale=0.0,
            constant_feature=False,
            published=True,
        )

    def fit(
        self, dataset: Dataset, targets: Sequence[TargetActions], *, discount: float, seed: int, run: Run
    ) -> FittedFeatures:
        """Learn phi on a dataset; targets and discount play no part."""
        _, generator = generators(seed)
        seen = replace(self, reads=self._renders(dataset))
        net = new_net(dataset, self.dim, seen, activation="relu", generator=generator, crop=self.crop)
        net = net.to(run.torch_device)
        held, training = learned_rows(dataset, self, seed)
        views = Views(dataset, net.encoder)
        learner = CURLLearner(self, net, views, training, generator)
        judge = InstanceAccuracy(learner, held, self.batch_size, seed)
        curves: dict[str, list[float]] = {}
        steps = self.steps if self.steps is not None else 500 if net.encoder.has_pixels else 1000
        every = max(1, math.ceil(steps / self.evaluations))
        for metrics in train(learner, steps=steps, run=run, stage="CURL", every=every, measure=judge):
            for name, value in metrics.items():
                curves.setdefault(name, []).append(value)
        return FittedFeatures(net.eval().requires_grad_(False), curves)

    def _renders(self, dataset: Dataset) -> str | tuple[str, ...] | None:
        """The observation keys to look at; with `crop`, their images must be larger than it."""
        if self.crop is None:
            return self.reads
        keys = keys_read(dataset, self.reads)
        sides = {key: min(dataset.observations[key].shape[1:3]) for key in keys if key in dataset.pixel_keys}
        if not sides:
            return self.reads
        large = tuple(key for key, side in sides.items() if side > self.crop)
        if not large:
            raise BadInput(
                f"CURL(crop={self.crop}) needs images larger than that; this dataset has {sides}. "
                "Store a larger render beside the policy's, or leave crop out."
            )
        return large


class CURLLearner:
    """What the loop trains."""

    def __init__(
        self,
        recipe: CURL,
        net: FeatureNet,
        views: Views,
        transitions: NDArray[np.int64],
        generator: torch.Generator,
    ) -> None:
        self.recipe, self.net, self.views, self.transitions = recipe, net, views, transitions
        self.generator, self.batch_size = generator, min(recipe.batch_size, len(transitions))
        shift = default_shift(views.dataset) if recipe.pixels.shift is None else recipe.pixels.shift
        self.augment = Augmentation(shift, recipe.crop, recipe.noise, recipe.scale)
        self.slow = copy.deepcopy(net).requires_grad_(False)
        self.similarity = nn.Parameter(self._first_similarity())
        self.optimiser = torch.optim.Adam([*net.parameters(), self.similarity], lr=recipe.lr)

    def step(self) -> dict[str, Tensor]:
        chosen = torch.randint(len(self.transitions), (self.batch_size,), generator=self.generator)
        seen, actions = self.gather(self.transitions[chosen.numpy()])
        logits = self.logits(seen, actions)
        labels = torch.arange(len(logits), device=logits.device)
        loss = functional.cross_entropy(logits, labels)
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step()
        follow(self.slow, self.net, self.recipe.tau)
        return {"loss": loss.detach(), "accuracy": _accuracy(logits)}

    def gather(self, transitions: NDArray[np.int64]) -> tuple[Any, Tensor]:
        """Observations and action rows of these transitions."""
        dataset = self.views.dataset
        actions = torch.from_numpy(dataset.action_matrix(dataset.actions[transitions]))
        return self.views.at(dataset.rows[transitions]), actions.to(self.views.device)

    def logits(self, seen: Any, actions: Tensor) -> Tensor:  # noqa: ANN401 - z or images by key
        """q_i^T W k_j of two fresh views, shape (n, n)."""
        query = self.features(self.net, encode(self.net.encoder, self.augment(seen, self.generator)), actions)
        with torch.no_grad():
            z = encode(self.slow.encoder, self.augment(seen, self.generator))
            key = self.features(self.slow, z, actions)
        return query @ self.similarity @ key.T

    def features(self, net: FeatureNet, z: Tensor, actions: Tensor) -> Tensor:
        """phi as it is compared: without its constant, and scaled to length 1 if `directions` is set."""
        phi = net(z, actions)[:, : net.head.dim]
        return functional.normalize(phi, dim=1) if self.recipe.directions else phi

    @torch.no_grad()
    def _first_similarity(self) -> Tensor:
        dim, device = self.net.head.dim, self.views.device
        if self.recipe.similarity == "uniform":
            return torch.rand(dim, dim, generator=self.generator).to(device)
        spread = np.linspace(0, len(self.transitions) - 1, self.batch_size).astype(np.int64)
        seen, actions = self.gather(self.transitions[spread])
        phi = self.features(self.net, encode(self.net.encoder, seen), actions)
        return 3.0 * torch.eye(dim, device=device) / (phi @ phi.T).std().clamp_min(1e-6)

    def _parts(self) -> dict[str, Any]:
        own = {"net": self.net, "slow": self.slow}
        return own | {"optimiser": self.optimiser, "generator": self.generator}

    def state(self) -> dict[str, Any]:
        return state_of(self._parts()) | {"similarity": self.similarity.detach()}

    def restore(self, state: dict[str, Any]) -> None:
        restore_parts(self._parts(), state)
        with torch.no_grad():
            self.similarity.copy_(state["similarity"])


class InstanceAccuracy:
    """Share of held-out instances recognised in a batch: as trained, without observation, without action."""

    def __init__(self, learner: CURLLearner, transitions: NDArray[np.int64], limit: int, seed: int) -> None:
        self.learner = learner
        order = np.random.default_rng([seed, salts.HELD_OUT_CURL]).permutation(len(transitions))
        self.seen, self.actions = learner.gather(np.sort(transitions[order[:limit]]))
        self.seed = seed

    @torch.no_grad()
    def __call__(self) -> dict[str, float]:
        learner = self.learner
        generator = torch.Generator().manual_seed(self.seed)
        first, second = (learner.augment(self.seen, generator) for _ in range(2))
        z = encode(learner.net.encoder, first)
        z_slow = encode(learner.slow.encoder, second)
        blind = [part.mean(dim=0, keepdim=True).expand_as(part) for part in (z, z_slow, self.actions)]
        phi = learner.features(learner.net, z, self.actions)
        return {
            "held_out_accuracy": self._accuracy(z, z_slow, self.actions),
            "accuracy_without_observation": self._accuracy(blind[0], blind[1], self.actions),
            "accuracy_without_action": self._accuracy(z, z_slow, blind[2]),
            "feature_rank": effective_rank(phi),
        }

    def _accuracy(self, z: Tensor, z_slow: Tensor, actions: Tensor) -> float:
        learner = self.learner
        query = learner.features(learner.net, z, actions)
        key = learner.features(learner.slow, z_slow, actions)
        return float(_accuracy(query @ learner.similarity @ key.T))


def _accuracy(logits: Tensor) -> Tensor:
    labels = torch.arange(len(logits), device=logits.device)
    return (logits.detach().argmax(dim=1) == labels).float().mean()
