"""One training of phi: networks, batches, learner and watch put together."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.data.select import split_units
from bcrl.errors import BadInput
from bcrl.networks import Head, encoder_for
from bcrl.policies.policy import TargetActions
from bcrl.representations.batches import Batches
from bcrl.representations.bellman_complete.correction import warn_if_underfit
from bcrl.representations.bellman_complete.learner import BellmanCompleteLearner
from bcrl.representations.bellman_complete.watch import Choice, Watch, thin
from bcrl.representations.fitted import FeatureNet, FittedFeatures
from bcrl.training import Run, compiler_found, generators, train

if TYPE_CHECKING:
    from bcrl.representations.bellman_complete.recipe import BellmanComplete


def train_features(
    recipe: "BellmanComplete",
    dataset: Dataset,
    targets: Sequence[TargetActions],
    *,
    discount: float,
    seed: int,
    run: Run,
) -> FittedFeatures:
    """One training by a recipe that leaves nothing to the kind of data."""
    assert recipe.dim is not None and recipe.batch_size is not None and recipe.run_length is not None
    _, generator = generators(seed)
    net = network(recipe, dataset, generator).to(run.torch_device)
    if recipe.moments == "batch" and recipe.batch_size <= net.dim:
        raise BadInput(
            f"batch_size={recipe.batch_size} is not above dim={net.dim}: M would fit each batch exactly. "
            "Raise batch_size, or use moments='running'."
        )
    if recipe.compile and compiler_found(run.torch_device):
        net.head.compile()
    held_out, training = _split(recipe, dataset, seed)
    batches = _batches(recipe, dataset, targets, net, training, seed, run.torch_device)
    pixels, steps = net.encoder.has_pixels, _steps(recipe, batches)
    spread = float(np.var(dataset.rewards))
    learner = BellmanCompleteLearner(
        recipe,
        net,
        batches,
        discount=discount,
        steps=steps,
        reward_scale=spread if spread > 1e-12 else 1.0,
        generator=generator,
        choice=Choice(recipe.keep == "best"),
    )
    watch = Watch(
        learner.average,
        batches,
        held_out,
        discount=discount,
        limit=2048 if pixels else 8192,
        chunk=256 if pixels else 8192,
    )
    judges = batches.gather(thin(held_out, 512 if pixels else 4096)) if recipe.double_sampling else None
    curves: dict[str, list[float]] = {}
    every = max(1, math.ceil(steps / recipe.evaluations))
    for metrics in train(
        learner,
        steps=steps,
        run=run,
        stage="BellmanComplete",
        every=every,
        measure=lambda: learner.judged(watch(), judges),
    ):
        for name, value in metrics.items():
            curves.setdefault(name, []).append(value)
        # A resumed run sees its history again, one record at a time, while the choice knows all of it already.
        live = len(curves["step"]) >= len(learner.choice.scores)
        if live and recipe.patience is not None and learner.choice.settled(recipe.patience):
            break
    warn_if_underfit(curves)
    kept = learner.average
    learner.choice.load_best(kept)
    return FittedFeatures(kept.eval().requires_grad_(False), curves)


def network(recipe: "BellmanComplete", dataset: Dataset, generator: torch.Generator) -> FeatureNet:
    """Encoder and head, with fresh weights."""
    assert recipe.dim is not None
    encoder = encoder_for(
        dataset,
        reads=recipe.reads,
        feature_dim=recipe.feature_dim,
        conv_layers=recipe.conv_layers,
        channels=recipe.channels,
        strides=recipe.strides,
        generator=generator,
    )
    head = Head(
        encoder.z_dim,
        dataset.action_dim,
        max(2, min(recipe.dim, len(dataset) // 8)) - int(recipe.constant_feature),
        hidden=recipe.hidden,
        layers=recipe.head_layers,
        activation=recipe.activation,
        activate_last=recipe.activate_last,
        layer_norm=recipe.layer_norm,
        generator=generator,
    )
    return FeatureNet(encoder, head, constant=recipe.constant_feature, norm=recipe.feature_norm)


def _split(
    recipe: "BellmanComplete", dataset: Dataset, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Held-out and training transitions; a dataset too small to spare any is judged on what it was trained on."""
    assert recipe.dim is not None
    held_out, training = split_units(dataset, recipe.held_out, seed)
    if min(len(held_out), len(training)) < recipe.dim:
        return np.arange(len(dataset)), np.arange(len(dataset))
    return held_out, training


def _batches(
    recipe: "BellmanComplete",
    dataset: Dataset,
    targets: Sequence[TargetActions],
    net: FeatureNet,
    training: NDArray[np.int64],
    seed: int,
    device: torch.device,
) -> Batches:
    assert recipe.batch_size is not None and recipe.run_length is not None
    several = dist.is_initialized()
    return Batches(
        dataset,
        targets,
        net.encoder,
        training,
        batch_size=recipe.batch_size,
        run_length=recipe.run_length,
        seed=seed,
        device=device,
        rank=dist.get_rank() if several else 0,
        world=dist.get_world_size() if several else 1,
        shift=recipe.shift,
    )


def _steps(recipe: "BellmanComplete", batches: Batches) -> int:
    if recipe.steps is not None:
        return recipe.steps
    assert recipe.epochs is not None
    return recipe.epochs * batches.per_epoch * (2 if recipe.alternate == "epoch" else 1)
