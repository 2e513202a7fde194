"""The logging policy, estimated by maximum likelihood where the data has no log_prob.

    max_b  sum log [ (1 - floor) b(a|s) + floor * uniform(a) ]

with b categorical for discrete actions, and for continuous ones a diagonal Gaussian, squashed by tanh when
all logged actions lie in [-1, 1] (the behaviour policy of google-research/policy_eval). The uniform part
keeps weights finite where the estimate is certain and wrong. The network weights with the best likelihood
on held-out episodes are kept, and that likelihood is reported. Differences from policy_eval: the floor, the
held-out choice, a fit of its own before the value's.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Dataset
from bcrl.data.select import split_units
from bcrl.estimate import Check, FloatArray, short_call
from bcrl.estimators.weighting.density import action_bounds
from bcrl.networks import HeadNet, encoder_for, sees_pixels
from bcrl.options import Checked, Count, Fraction, Layers, NotNegative, Positive, Width
from bcrl.training import Run, generators, restore_parts, state_of, train

_INSIDE = 1.0 - 1e-4
_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class LoggedProbability:
    """Log probability of every logged action, shape (N,), and where it came from."""

    log_prob: FloatArray
    checks: tuple[Check, ...] = ()
    stats: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class BehaviourCloning(Checked):
    """Maximum likelihood estimate of the logging policy.

    Attributes:
        hidden: width of the hidden layers.
        layers: linear layers.
        steps: updates; None = 2000 on vectors, 300 on pixels.
        batch_size: transitions per update.
        lr: of AdamW, following a half cosine to 0.
        weight_decay: of AdamW.
        floor: share of the uniform distribution mixed in.
        held_out: share of the episodes kept for choosing and reporting.
        reads: observation keys to look at; None takes the pixels if there are any.
    """

    hidden: Width = 64
    layers: Layers = 3
    steps: Count | None = None
    batch_size: Count = 256
    lr: Positive = 3e-3
    weight_decay: NotNegative = 1e-4
    floor: Fraction = 0.01
    held_out: Fraction = 0.1
    reads: str | tuple[str, ...] | None = None

    __repr__ = short_call

    def fit(self, dataset: Dataset, *, seed: int, run: Run) -> LoggedProbability:
        """The dataset's own log probabilities where it has them; else those of the estimated policy."""
        if dataset.log_prob is not None:
            return LoggedProbability(np.asarray(dataset.log_prob, dtype=np.float64))
        began = time.monotonic()
        learner = _CloneLearner(self, dataset, seed, run.torch_device)
        curve = [
            metrics["log_likelihood"]
            for metrics in train(learner, steps=learner.steps, run=run.within("behaviour"), stage="behaviour")
        ]
        log_prob = learner.best_log_prob()
        trained, held_out = (
            float(log_prob[rows].mean()) for rows in (learner.training_rows, learner.held_out_rows)
        )
        return LoggedProbability(
            log_prob,
            (_clone_check(trained, held_out, dataset.action_dim),),
            {"behaviour_log_likelihood": trained, "behaviour_held_out_log_likelihood": held_out},
            {"behaviour_log_likelihood": curve},
            time.monotonic() - began,
        )


def _clone_check(trained: float, held_out: float, action_dim: int) -> Check:
    gap, limit = trained - held_out, 0.1 * action_dim
    meaning = (
        f"The logging policy was estimated; on held-out episodes its mean log likelihood is {held_out:.2f} "
        f"({trained:.2f} on the others)" + (": it has overfitted to noise." if gap > limit else ".")
    )
    verdict = "distrust" if gap > 5 * limit else "caution"
    return Check("estimated logging policy", gap, limit, verdict, meaning)  # type: ignore[arg-type]


class _Clone(nn.Module):
    """log b(a|s) with its floor."""

    def __init__(self, method: BehaviourCloning, dataset: Dataset, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = encoder_for(dataset, reads=method.reads, generator=generator)
        self.discrete, self.floor = dataset.discrete, method.floor
        outputs = dataset.action_dim * (1 if self.discrete else 2)
        self.head = HeadNet(
            self.encoder.z_dim, 0, outputs, hidden=method.hidden, layers=method.layers, generator=generator
        )
        actions = dataset.actions.reshape(len(dataset), -1).astype(np.float64)
        self.squashed = action_bounds(dataset) is not None
        spread = np.where(actions.std(axis=0) > 0.0, actions.std(axis=0), 1.0)
        self.centre = torch.as_tensor(actions.mean(axis=0), dtype=torch.float32)
        self.spread = torch.as_tensor(spread, dtype=torch.float32)
        volume = np.full(actions.shape[1], 2.0) if self.squashed else np.ptp(actions, axis=0) + spread
        self.log_uniform = (
            -float(np.log(dataset.action_dim)) if self.discrete else -float(np.log(volume).sum())
        )

    def forward(self, observations: Mapping[str, Tensor], actions: Tensor) -> Tensor:
        z = self.encoder(observations)
        outputs = self.head(z, z.new_zeros(len(z), 0))
        density = self._categorical if self.discrete else self._gaussian
        log_prob = density(outputs, actions)
        floor = torch.full_like(log_prob, float(np.log(self.floor)) + self.log_uniform)
        return torch.logaddexp(log_prob + float(np.log1p(-self.floor)), floor)

    def _categorical(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return (outputs.log_softmax(dim=1) * actions).sum(dim=1)

    def _gaussian(self, outputs: Tensor, actions: Tensor) -> Tensor:
        mean, raw = outputs.chunk(2, dim=1)
        log_std = -5.0 + 3.5 * (torch.tanh(raw) + 1.0)
        if self.squashed:
            inside = actions.clamp(-_INSIDE, _INSIDE)
            u, log_jacobian = torch.atanh(inside), torch.log1p(-inside.square())
        else:
            u, log_jacobian = (actions - self.centre) / self.spread, self.spread.log().expand_as(actions)
        normal = -0.5 * ((u - mean) / log_std.exp()).square() - log_std - 0.5 * float(np.log(2.0 * np.pi))
        return (normal - log_jacobian).sum(dim=1)


class _CloneLearner:
    """The learner: AdamW on mini-batches, the best held-out weights kept."""

    def __init__(self, method: BehaviourCloning, dataset: Dataset, seed: int, device: torch.device) -> None:
        self.method, self.dataset, self.device = method, dataset, device
        self.batch_size = method.batch_size
        pixels = sees_pixels(dataset, method.reads)
        self.steps = method.steps if method.steps is not None else 300 if pixels else 2000
        chooser, self.generator = generators(seed)
        self.clone = _Clone(method, dataset, self.generator).to(device)
        self.optimiser = torch.optim.AdamW(
            self.clone.parameters(), method.lr, weight_decay=method.weight_decay
        )
        self.held_out_rows, self.training_rows = split_units(dataset, method.held_out, seed)
        self.validation = chooser.permutation(self.held_out_rows)[:_CHUNK]
        self.best, self.best_weights, self.done = -math.inf, self._weights(), 0

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.clone.state_dict().items()}

    def _log_prob(self, index: NDArray[np.int64]) -> Tensor:
        observations = self.dataset.observe(self.dataset.rows[index])
        actions = torch.from_numpy(self.dataset.action_matrix(self.dataset.actions[index])).to(self.device)
        result: Tensor = self.clone(self.clone.encoder.read(observations, self.device), actions)
        return result

    def step(self) -> dict[str, float | Tensor]:
        for group in self.optimiser.param_groups:
            group["lr"] = 0.5 * self.method.lr * (1.0 + math.cos(math.pi * self.done / self.steps))
        draw = torch.randint(len(self.training_rows), (self.batch_size,), generator=self.generator).numpy()
        log_likelihood = self._log_prob(self.training_rows[draw]).mean()
        self.optimiser.zero_grad()
        (-log_likelihood).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.clone.parameters(), 10.0)
        self.optimiser.step()
        self.done += 1
        if self.done % 100 == 0 or self.done == self.steps:
            self._keep_best()
        return {"log_likelihood": log_likelihood}

    def _keep_best(self) -> None:
        with torch.no_grad():
            held_out = float(self._log_prob(self.validation).mean())
        if held_out > self.best:
            self.best, self.best_weights = held_out, self._weights()

    def best_log_prob(self) -> FloatArray:
        self.clone.load_state_dict(self.best_weights)
        everything = np.arange(len(self.dataset))
        with torch.no_grad():
            parts = [
                self._log_prob(everything[first : first + _CHUNK]).cpu().numpy()
                for first in range(0, len(everything), _CHUNK)
            ]
        return np.concatenate(parts).astype(np.float64)

    def _parts(self) -> dict[str, Any]:
        return {"clone": self.clone, "optimiser": self.optimiser, "generator": self.generator}

    def state(self) -> dict[str, Any]:
        best = {"best": self.best, "best_weights": self.best_weights}
        return state_of(self._parts()) | best | {"done": self.done}

    def restore(self, state: dict[str, Any]) -> None:
        restore_parts(self._parts(), state)
        self.best, self.best_weights, self.done = state["best"], state["best_weights"], state["done"]
