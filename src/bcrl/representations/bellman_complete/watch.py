"""Held-out figures during training: how complete the features are, and whether the value stands still.

M and rho are fitted on training transitions and judged on units that the representation never saw. Nothing
here reads the truth; model choice and early stopping read these figures only.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg

from bcrl.estimate import FloatArray
from bcrl.linear import Moments, lspe
from bcrl.policies.policy import TargetActions
from bcrl.representations.batches import Batches
from bcrl.representations.bellman_complete.objective import training_discount
from bcrl.representations.fitted import FeatureNet

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
        self.fit_part = subsample(batches.transitions, limit)
        self.held_part = subsample(held_out, limit)
        dataset = batches.dataset
        starts = dataset.start_rows if dataset.ordered else dataset.rows
        self.start_rows = subsample(starts, 512)
        self.starts = dataset.observe(self.start_rows)

    def __call__(self) -> dict[str, float]:
        """eps_rel, the mean whitened residual, the reward's residual share, TD error and value, averaged over
        policies.
        """
        self.net.eval()
        with torch.inference_mode():
            fit, held = self._moments(self.fit_part), self._moments(self.held_part)
            starts = [self._start_features(target) for target in self.batches.targets]
        self.net.train()
        figures = [judge(a, b, x0, self.discount) for a, b, x0 in zip(fit, held, starts, strict=True)]
        return {name: float(np.mean([of_policy[name] for of_policy in figures])) for name in figures[0]}

    def _moments(self, transitions: NDArray[np.int64]) -> list[Moments]:
        totals = [Moments.zeros(self.net.dim) for _ in self.batches.targets]
        for first in range(0, len(transitions), self.chunk):
            batch = self.batches.gather(transitions[first : first + self.chunk])
            z, z_next = batch.encode(self.net.encoder)
            phi = self.net(z, batch.actions).cpu().numpy()
            for k, (actions, weights) in enumerate(zip(batch.next_actions, batch.next_weights, strict=True)):
                ahead = self.net.of_policy(z_next, actions, weights).cpu().numpy()
                ended = batch.alive[:, 0].cpu().numpy() == 0.0
                totals[k] = totals[k] + Moments.from_features(phi, ahead, batch.rewards.cpu().numpy(), ended)
        return totals

    def _start_features(self, target: TargetActions) -> FloatArray:
        device = self.batches.device
        z = self.net.encoder(self.net.encoder.read(self.starts, device))
        here = target.take(self.start_rows)
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


def subsample(items: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """At most `limit` of the items, evenly spread."""
    return items[:: max(1, -(-len(items) // limit))]


class Choice:
    """Which features to keep, and when to stop: from held-out completeness and the value's stability, never
    from the truth.
    """

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
        """Whether `patience` evaluations brought nothing better, and the value moved less than `tolerance`
        over them.
        """
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
