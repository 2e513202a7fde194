"""BellmanComplete: settings, presets, and the fit that puts the parts together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bcrl.data.dataset import Dataset
from bcrl.data.split import split_units
from bcrl.networks import Activation, Head, encoder_for
from bcrl.policy import TargetActions
from bcrl.representations.batches import Batches
from bcrl.representations.bellman_complete.learner import BellmanCompleteLearner
from bcrl.representations.bellman_complete.objective import Design, Metric
from bcrl.representations.bellman_complete.watch import Watch
from bcrl.representations.fitted import FeatureNet, FeatureNorm, FittedFeatures
from bcrl.training import Run, generators, train


@dataclass(frozen=True)
class BellmanComplete:
    """A linear Bellman complete, well covered representation, learned for the policies to be evaluated."""

    dim: int = 64
    lr: float = 1e-3
    batch_size: int = 1024
    steps: int | None = 800
    epochs: int | None = None
    schedule: Literal["cosine", "constant"] = "cosine"
    metric: Metric = "whitened"
    completeness_weight: float = 0.1
    reward_weight: float = 1.0
    value_weight: float = 1.0
    ridge: float = 1e-3
    design: Design = "none"
    design_weight: float = 0.0
    design_constraint: float | None = None
    multiplier_lr: float = 0.01
    jitter: float = 1e-8
    inner: Literal["closed", "gradient"] = "closed"
    inner_lr: float = 1e-3
    alternate: Literal["step", "epoch"] = "step"
    moments: Literal["batch", "running"] = "batch"
    decay: float = 0.9
    target_tau: float | None = None
    spectral_bound: float | None = None
    reward_bound: float | None = None
    double_sampling: bool = False
    g_steps: int = 3
    g_lr: float = 1e-3
    constant_feature: bool = True
    feature_norm: FeatureNorm = "none"
    grad_clip: float | None = None
    hidden: int = 256
    head_layers: int = 3
    activation: Activation = "silu"
    activate_last: bool = False
    reads: str | tuple[str, ...] | None = None
    feature_dim: int = 50
    conv_layers: int = 5
    channels: int = 32
    strides: tuple[int, ...] | None = None
    run_length: int | None = None
    chunk: int | None = None
    held_out: float = 0.1
    evaluations: int = 20

    def fit(
        self, dataset: Dataset, targets: Sequence[TargetActions], *, discount: float, seed: int, run: Run
    ) -> FittedFeatures:
        """Learn phi on a dataset for these target policies."""
        device = run.torch_device
        _, generator = generators(seed)
        encoder = encoder_for(
            dataset,
            reads=self.reads,
            feature_dim=self.feature_dim,
            conv_layers=self.conv_layers,
            channels=self.channels,
            strides=self.strides,
            generator=generator,
        )
        head = Head(
            encoder.z_dim,
            dataset.action_dim,
            self.dim - int(self.constant_feature),
            hidden=self.hidden,
            layers=self.head_layers,
            activation=self.activation,
            activate_last=self.activate_last,
            generator=generator,
        )
        net = FeatureNet(encoder, head, constant=self.constant_feature, norm=self.feature_norm).to(device)
        held_out, training = split_units(dataset, self.held_out, seed)
        pixels = encoder.has_pixels
        batches = Batches(
            dataset,
            targets,
            encoder,
            training,
            batch_size=self.batch_size,
            run_length=self.run_length or (16 if pixels else 1),
            seed=seed,
            device=device,
        )
        steps = self.steps
        if steps is None:
            steps = (self.epochs or 1) * batches.per_epoch * (2 if self.alternate == "epoch" else 1)
        spread = float(np.var(dataset.rewards))
        learner = BellmanCompleteLearner(
            self,
            net,
            batches,
            discount=discount,
            steps=steps,
            reward_scale=spread if spread > 1e-12 else 1.0,
            generator=generator,
        )
        watch = Watch(
            net,
            batches,
            held_out,
            discount=discount,
            limit=2048 if pixels else 20_000,
            chunk=256 if pixels else 8192,
        )
        curves: dict[str, list[float]] = {}
        every = max(1, math.ceil(steps / self.evaluations))
        for metrics in train(
            learner, steps=steps, run=run, stage="BellmanComplete", every=every, measure=watch
        ):
            for name, value in metrics.items():
                curves.setdefault(name, []).append(value)
        return FittedFeatures(net.eval().requires_grad_(False), curves)
