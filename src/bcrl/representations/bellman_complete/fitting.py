"""One training of phi: networks, batches, learner and watch; and a second one where its value keeps moving.

Where the log does not contain the policy's actions, nothing bounds the features, and so the value keeps
moving for as long as training lasts. Layer norm bounds features far from the data and costs accuracy
elsewhere (results/recipes.md), so it is used only where the value did not settle. Nothing here reads the
truth.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from scipy import linalg

from bcrl import salts
from bcrl.data.dataset import Dataset
from bcrl.data.select import split_units
from bcrl.errors import BadInput
from bcrl.estimate import FloatArray
from bcrl.linear import Moments, lspe
from bcrl.policies.policy import TargetActions
from bcrl.representations.batches import Batches
from bcrl.representations.bellman_complete.correction import warn_if_underfit
from bcrl.representations.bellman_complete.learner import BellmanCompleteLearner
from bcrl.representations.features import (
    FIRST_STEPS,
    FIRST_TRY,
    FeatureNet,
    FittedFeatures,
    drift,
    new_net,
    training_discount,
)
from bcrl.training import Run, compiler_found, generators, train

if TYPE_CHECKING:
    from bcrl.representations.bellman_complete.recipe import BellmanComplete

# Of more policies than that, so many are drawn for a step of training, and as many are watched.
_FEW_POLICIES = 3
_START_DRAWS = 4  # of many discrete actions at each start that is watched
_ENOUGH = 4  # evaluations; with fewer no drift can be measured


def fit_steadily(
    recipe: "BellmanComplete", run: Run, training: Callable[["BellmanComplete", Run], FittedFeatures]
) -> FittedFeatures:
    """A training by a recipe without Nones to fill in, and a second one where the value did not settle.

    Args:
        recipe: of the first one.
        run: of the first one.
        training: `train_features` on the data.
    """
    first = training(recipe, run)
    if recipe.steady is None or recipe.head.layer_norm:
        return first

    def again() -> FittedFeatures:
        steps, epochs = _two_thirds(recipe.steps), _two_thirds(recipe.epochs)
        calm = replace(recipe, head=replace(recipe.head, layer_norm=True), steps=steps, epochs=epochs)
        deeper = run.within("again").titled("again, with layer norm")
        return training(calm, deeper)

    return steadier(first, again, recipe.steady)


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
    """One training by a recipe without Nones to fill in."""
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
    judges = (
        batches.gather(evenly_spaced(held_out, 512 if pixels else 4096)) if recipe.double_sampling else None
    )
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
    dim = recipe.dim if recipe.published else max(2, min(recipe.dim, len(dataset) // 8))
    net = new_net(dataset, dim, recipe, activation="gelu", generator=generator)
    if recipe.running_moments is None and recipe.batch_size <= net.dim:
        raise BadInput(
            f"batch_size={recipe.batch_size} is not above dim={net.dim}: M would fit each batch exactly. "
            "Raise batch_size, or set running_moments=0.9."
        )
    return net


def _split(
    recipe: "BellmanComplete", dataset: Dataset, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Held-out and training transitions; all transitions for both where the dataset is too small."""
    assert recipe.dim is not None
    if recipe.published:
        return np.arange(len(dataset)), np.arange(len(dataset))
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
        run_length=16 if net.encoder.has_pixels and not recipe.published else 1,
        seed=seed,
        rank=dist.get_rank() if several else 0,
        world=dist.get_world_size() if several else 1,
        shift=recipe.pixels.shift or 0,
        few=None if _needs_all_policies(recipe) else _FEW_POLICIES,
    )


def _needs_all_policies(recipe: "BellmanComplete") -> bool:
    """Whether something is kept of every policy from one step to the next, or a paper says so."""
    theta = recipe.inner is not None or recipe.bounds.m is not None or recipe.bounds.rho is not None
    kept = recipe.double_sampling is not None or recipe.running_moments is not None
    return recipe.published or theta or kept


def _steps(recipe: "BellmanComplete", batches: Batches) -> int:
    if recipe.steps is not None:
        return recipe.steps
    assert recipe.epochs is not None
    turns = 2 if recipe.inner is not None and recipe.inner.alternate == "epoch" else 1
    return recipe.epochs * batches.per_epoch * turns


def _two_thirds(count: int | None) -> int | None:
    return None if count is None else max(1, 2 * count // 3)


_RIDGE = 1e-6


class Watch:
    """Judges a network on fixed samples of the training and of the held-out transitions."""

    def __init__(
        self,
        net: FeatureNet,
        batches: Batches,
        held_out: NDArray[np.int64],
        *,
        discount: float,
        limit: int,
        chunk: int,
    ) -> None:
        self.net, self.batches, self.chunk = net, batches, chunk
        self.discount = training_discount(discount)
        self.fit_part = evenly_spaced(batches.transitions, limit)
        self.held_part = evenly_spaced(held_out, limit)
        dataset = batches.dataset
        few, count = batches.few, len(batches.targets)
        self.policies = np.arange(count) if few is None else evenly_spaced(np.arange(count), few)
        starts = dataset.start_rows if dataset.ordered else dataset.rows
        self.start_rows = evenly_spaced(starts, 512)
        self.starts = dataset.observe(self.start_rows)

    def __call__(self) -> dict[str, float]:
        """eps_rel, mean whitened residual, reward residual share, TD error and value: means over policies.

        Of many policies medians of those watched, so that a hopeless one does not have all trained again.
        """
        self.net.eval()
        with torch.inference_mode():
            fit, held = self._moments(self.fit_part), self._moments(self.held_part)
            starts = [self._start_features(self.batches.targets[number]) for number in self.policies]
        self.net.train()
        figures = [judge(a, b, x0, self.discount) for a, b, x0 in zip(fit, held, starts, strict=True)]
        middle = np.mean if self.batches.few is None else np.median
        return {name: float(middle([of_policy[name] for of_policy in figures])) for name in figures[0]}

    def _moments(self, transitions: NDArray[np.int64]) -> list[Moments]:
        totals = [Moments.zeros(self.net.dim) for _ in self.policies]
        for first in range(0, len(transitions), self.chunk):
            batch = self.batches.gather(transitions[first : first + self.chunk], policies=self.policies)
            z, z_next = batch.encode(self.net.encoder)
            phi = self.net(z, batch.actions).cpu().numpy()
            for k, (actions, weights) in enumerate(zip(batch.next_actions, batch.next_weights, strict=True)):
                noise = None
                if self.batches.draws:
                    ahead, half = self.net.draws_of_policy(z_next, actions)
                    noise = (batch.alive * half).double().cpu().numpy()
                else:
                    ahead = self.net.of_policy(z_next, actions, weights)
                ended = batch.alive[:, 0].cpu().numpy() == 0.0
                found = Moments.from_features(phi, ahead.cpu().numpy(), batch.rewards.cpu().numpy(), ended)
                if noise is not None:
                    found = replace(found, sigma_next=found.sigma_next - noise.T @ noise)
                totals[k] = totals[k] + found
        return totals

    def _start_features(self, target: TargetActions) -> FloatArray:
        device = self.batches.device
        z = self.net.encoder(self.net.encoder.read(self.starts, device))
        here = target.take(self.start_rows)
        if self.batches.draws:
            codes = here.spread_draws(_START_DRAWS, np.random.default_rng(salts.MANY_ACTIONS))
            chosen = torch.from_numpy(codes).to(device)
            each = self.net(z.repeat_interleave(_START_DRAWS, dim=0), chosen.flatten())
            return np.asarray(each.double().mean(dim=0).cpu().numpy())
        actions = torch.from_numpy(np.ascontiguousarray(here.actions)).to(device)
        weights = torch.from_numpy(here.weights).to(device)
        return self.net.of_policy(z, actions, weights).double().mean(dim=0).cpu().numpy()


def judge(fit: Moments, held: Moments, x0: FloatArray, discount: float) -> dict[str, float]:
    """Figures of M, rho and theta, fitted on `fit` and measured on `held`."""
    a, b = fit.mean, held.mean
    dim = len(a.b)
    root = linalg.cho_factor(a.sigma + _RIDGE * np.trace(a.sigma) / dim * np.eye(dim))
    m = discount * linalg.cho_solve(root, a.c).T
    rho = linalg.cho_solve(root, a.b)
    cross = discount * (m @ b.c)
    error = m @ b.sigma @ m.T - cross - cross.T + discount**2 * b.sigma_next
    lower = np.linalg.cholesky(b.sigma + _RIDGE * np.trace(b.sigma) / dim * np.eye(dim))
    half = linalg.solve_triangular(lower, error, lower=True)
    white = np.linalg.eigvalsh(linalg.solve_triangular(lower, half.T, lower=True))
    variance = max(b.reward_square - b.reward**2, 1e-12 * max(b.reward_square, 1e-300))
    reward = float(rho @ b.sigma @ rho - 2.0 * rho @ b.b + b.reward_square)
    spectrum = np.linalg.eigvalsh(b.sigma)
    out = {
        "held_out/eps_rel": float(np.sqrt(max(white[-1], 0.0))),
        "held_out/eps_mean": float(np.sqrt(max(white.mean(), 0.0))),
        "held_out/reward_share": reward / variance,
        "lambda_min": float(spectrum[0]),
        "condition_number": float(spectrum[-1] / spectrum[0]) if spectrum[0] > 0.0 else math.inf,
    }
    theta = lspe(fit + held, discount, iterations=1, ridge=1e-8).lstd
    if theta is None:
        return out | {"value": float("nan"), "held_out/td_error": float("nan")}
    alone = lspe(fit, discount, iterations=1, ridge=_RIDGE).lstd
    td = float("nan") if alone is None else td_error(alone, held, discount) / variance
    return out | {"value": float(x0 @ theta), "held_out/td_error": td}


def td_error(theta: FloatArray, moments: Moments, discount: float) -> float:
    """E (theta^T phi - r - discount theta^T phi')^2."""
    mean = moments.mean
    own = theta @ mean.sigma @ theta - 2.0 * theta @ mean.b + mean.reward_square
    ahead = discount**2 * theta @ mean.sigma_next @ theta + 2.0 * discount * theta @ mean.e
    return float(own + ahead - 2.0 * discount * theta @ mean.c @ theta)


def evenly_spaced(items: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """At most `limit` of the items, evenly spread."""
    return items[:: max(1, -(-len(items) // limit))]


class Choice:
    """Which features to keep, and when to stop: by held-out completeness and how far the value moves."""

    def __init__(self, keep_best: bool) -> None:
        self.keep_best = keep_best
        self.scores: list[float] = []
        self.values: list[float] = []
        self.best: dict[str, torch.Tensor] | None = None

    def see(self, figures: Mapping[str, float], net: FeatureNet) -> None:
        """Take note of one evaluation."""
        score = figures["held_out/eps_mean"] ** 2 + figures["held_out/reward_share"]
        score = score if math.isfinite(score) and math.isfinite(figures["value"]) else math.inf
        if self.keep_best and score < min(self.scores, default=math.inf):
            self.best = copy.deepcopy(net.state_dict())
        self.scores.append(score)
        self.values.append(figures["value"])

    def should_stop(self, patience: int | None, tolerance: float = 0.01) -> bool:
        """Whether the last `patience` evaluations were no better and the value moved under `tolerance`."""
        if patience is None or len(self.scores) <= patience:
            return False
        last = np.asarray(self.values[-patience:])
        still = np.ptp(last) <= tolerance * max(abs(float(last[-1])), 1e-12)  # never of a value that is nan
        return bool(still) and min(self.scores[-patience:]) >= min(self.scores[:-patience])

    def load_best(self, net: FeatureNet) -> None:
        """Put the best features back into the network, where they were kept."""
        if self.best is not None:
            net.load_state_dict(self.best)

    def state(self) -> dict[str, Any]:
        return {"scores": self.scores, "values": self.values, "best": self.best}

    def restore(self, state: dict[str, Any]) -> None:
        self.scores, self.values, self.best = list(state["scores"]), list(state["values"]), state["best"]
