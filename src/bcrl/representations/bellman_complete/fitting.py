"""One training of phi: networks, batches, learner and watch; and a second one where the first is restless.

Where the log lacks the policy's actions, features are free to grow there, and with them the value: it wanders
for as long as training lasts. Layer norm bounds features far from the data and costs accuracy elsewhere
(results/recipes.md), so it is taken only where the value's own restlessness asks for it. Nothing here reads
the truth.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.data.select import split_units
from bcrl.errors import BadInput
from bcrl.policies.policy import TargetActions
from bcrl.representations.batches import Batches
from bcrl.representations.bellman_complete.correction import warn_if_underfit
from bcrl.representations.bellman_complete.learner import BellmanCompleteLearner
from bcrl.representations.bellman_complete.watch import Choice, Watch, subsample
from bcrl.representations.fitted import FIRST_STEPS, FIRST_TRY, FeatureNet, FittedFeatures, drift, new_net
from bcrl.training import Run, compiler_found, generators, train

if TYPE_CHECKING:
    from bcrl.representations.bellman_complete.recipe import BellmanComplete

_ENOUGH = 4  # evaluations; fewer show no drift


def fit_steadily(
    recipe: "BellmanComplete",
    dataset: Dataset,
    targets: Sequence[TargetActions],
    *,
    discount: float,
    seed: int,
    run: Run,
) -> FittedFeatures:
    """A training by a recipe that leaves nothing open, and a second one where the value did not settle."""
    first = train_features(recipe, dataset, targets, discount=discount, seed=seed, run=run)
    if recipe.steady is None or recipe.head.layer_norm:
        return first
    steps, epochs = _two_thirds(recipe.steps), _two_thirds(recipe.epochs)
    calm = replace(recipe, head=replace(recipe.head, layer_norm=True), steps=steps, epochs=epochs)
    deeper = run.within("again").titled("again, with layer norm")
    return steadier(
        first,
        lambda: train_features(calm, dataset, targets, discount=discount, seed=seed, run=deeper),
        recipe.steady,
    )


def steadier(first: FittedFeatures, again: Callable[[], FittedFeatures], limit: float) -> FittedFeatures:
    """`first`, or where its value moved by more than `limit` the steadier of it and a second training."""
    values = first.metrics.get("value", [])
    if len(values) < _ENOUGH or drift(values) <= limit:
        return first
    second = again()
    if not drift(second.metrics["value"]) < drift(values):
        return first
    left = {FIRST_TRY: values, FIRST_STEPS: first.metrics["step"]}
    return FittedFeatures(second.net, second.metrics | left)


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
    _, generator = generators(seed)
    net = network(recipe, dataset, generator).to(run.torch_device)
    if run.compile and compiler_found(run.torch_device):
        net.head.compile()
    held_out, training = _split(recipe, dataset, seed)
    batches = _batches(recipe, dataset, targets, net, training, seed)
    steps = _steps(recipe, batches)
    learner = BellmanCompleteLearner(
        recipe,
        net,
        batches,
        discount=discount,
        steps=steps,
        reward_variance=float(np.var(dataset.rewards)),
        generator=generator,
        choice=Choice(recipe.stopping.keep == "best"),
        precision=run.precision,
    )
    pixels = net.encoder.has_pixels
    watch = Watch(
        learner.average,
        batches,
        held_out,
        discount=discount,
        limit=2048 if pixels else 8192,
        chunk=256 if pixels else 8192,
    )
    judges = batches.gather(subsample(held_out, 512 if pixels else 4096)) if recipe.double_sampling else None
    curves: dict[str, list[float]] = {}
    for metrics in train(
        learner,
        steps=steps,
        run=run,
        stage="BellmanComplete",
        every=max(1, math.ceil(steps / recipe.evaluations)),
        measure=lambda: learner.judged(watch(), judges),
    ):
        for name, value in metrics.items():
            curves.setdefault(name, []).append(value)
        # A resumed run sees its history again, one record at a time, while the choice knows all of it
        # already.
        live = len(curves["step"]) >= len(learner.choice.scores)
        if live and learner.choice.should_stop(recipe.stopping.patience):
            break
    if recipe.double_sampling is not None:
        warn_if_underfit(curves)
    kept = learner.average
    learner.choice.load_best(kept)
    return FittedFeatures(kept.eval().requires_grad_(False), curves)


def network(recipe: "BellmanComplete", dataset: Dataset, generator: torch.Generator) -> FeatureNet:
    """Encoder and head, with fresh weights."""
    assert recipe.dim is not None and recipe.batch_size is not None
    net = new_net(
        dataset,
        max(2, min(recipe.dim, len(dataset) // 8)),
        reads=recipe.reads,
        pixels=recipe.pixels,
        head=recipe.head,
        activation="gelu",
        constant=recipe.constant_feature,
        generator=generator,
    )
    if recipe.running_moments is None and recipe.batch_size <= net.dim:
        raise BadInput(
            f"batch_size={recipe.batch_size} is not above dim={net.dim}: M would fit each batch exactly. "
            "Raise batch_size, or set running_moments=0.9."
        )
    return net


def _split(
    recipe: "BellmanComplete", dataset: Dataset, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Held-out and training transitions; a dataset too small to spare any is judged on what it was trained
    on.
    """
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
) -> Batches:
    assert recipe.batch_size is not None
    several = dist.is_initialized()
    return Batches(
        dataset,
        targets,
        net.encoder,
        training,
        batch_size=recipe.batch_size,
        run_length=16 if net.encoder.has_pixels else 1,
        seed=seed,
        rank=dist.get_rank() if several else 0,
        world=dist.get_world_size() if several else 1,
        shift=recipe.pixels.shift or 0,
    )


def _steps(recipe: "BellmanComplete", batches: Batches) -> int:
    if recipe.steps is not None:
        return recipe.steps
    assert recipe.epochs is not None
    turns = 2 if recipe.inner is not None and recipe.inner.alternate == "epoch" else 1
    return recipe.epochs * batches.per_epoch * turns


def _two_thirds(count: int | None) -> int | None:
    return None if count is None else max(1, 2 * count // 3)
