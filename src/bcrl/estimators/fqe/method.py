"""Fitted Q-evaluation: Q regressed on its own one-step prediction until it stops moving.

    Q <- argmin_Q E_D ( Q(s, a) - r - discount (1 - terminated) Qbar(s', pi) )^2,      value = mean V(s0),  V(s) = Q(s, pi)

(Le, Voloshin and Yue, 2019; Voloshin et al., 2021; presets: Fu et al., 2021, "DOPE", and d3rlpy.) Members are trained side
by side on Bayesian bootstrap weights of the independent units (Hao et al., 2021, bootstrap whole episodes the same way), and
their spread is the standard error. Training runs until the value is flat, or until its budget ends, and says which. With a
horizon H, Q also reads the number of steps left, Q_h <- r + discount Q_{h-1}, Q_0 = 0 (fqe_data.py).

Differences from the presets' sources: `.dope()` keeps the records' last transitions and, where the world can end, clips
to [min(0, r), max(0, r)] / (1 - discount); `.d3rlpy()` reads V at every episode's start, never in its middle.
"""

import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.estimate import Estimate, Status
from bcrl.estimators.fqe.answer import Trained, answer
from bcrl.estimators.fqe.critics import Critics, Init
from bcrl.estimators.fqe.data import Output, Scale, Transitions, leave_raw, unit_weights
from bcrl.estimators.fqe.learner import FQELearner, Network, StepRule
from bcrl.estimators.fqe.value import FQEValue, restore
from bcrl.networks import STRIDES, Pixels, encoder_for, sees_pixels
from bcrl.policies.policy import TargetActions
from bcrl.printing import short_call
from bcrl.question import Question, Target
from bcrl.training import Run, generators, train

__all__ = ["FQE", "FQEValue", "restore"]

# A value this many times beyond the largest possible one is no transient.
_BLOWN_UP = 5.0


@dataclass(frozen=True)
class FQE:
    """Fitted Q-evaluation.

    Attributes:
        hidden: widths of the critic's hidden layers; () is a linear critic.
        lr: Adam's step size.
        batch_size: transitions per step; None = 256 on vectors, 128 on pixels.
        steps: the budget; None = 40 000 on vectors, 1 200 on pixels (3 minutes of one core at 64 x 64).
        stop_when_flat: stop as soon as the value is flat.
        tolerance: flat = the mean value over the last quarter of training and over the quarter before differ by less than
            this share of it.
        least_steps: never flat before.
        check_every: steps between two points of the value curve.
        target: "soft" moves the target network by `tau` each step, "hard" copies it every `period` steps.
        output: the network predicts "per_step" (1 - discount) Q, or the "value" Q itself.
        standardise: rewards and vector observations in units of their deviation.
        anchor: solve for Q's constant error at every check (fqe_learner.py).
        clip: clip regression targets to what the rewards allow; the share that was clipped is logged.
        loss: "squared" or "huber".
        weight_decay: decoupled, times lr, as torch's AdamW has it.
        adam_eps: Adam's epsilon.
        init: initial weights, "torch" or "dope".
        readout: which network answers.
        members: networks trained side by side.
        bootstrap: give members bootstrap weights; their spread is then the standard error.
        reads: observation key(s) to look at; None = pixels where there are any, else every vector.
        feature_dim: numbers per image after the convolutions.
        conv_layers: convolutions of the paper's encoder, the first with stride 2; set, it overrides `strides`.
        channels: of every convolution.
        strides: one stride per convolution.
        shift: pixels are moved at random by up to this many pixels.
    """

    hidden: tuple[int, ...] = (256, 256)
    lr: float = 3e-4
    batch_size: int | None = None
    steps: int | None = None
    stop_when_flat: bool = True
    tolerance: float = 0.01
    least_steps: int = 4_000
    check_every: int = 250
    target: Literal["soft", "hard"] = "soft"
    tau: float = 0.005
    period: int = 100
    output: Output = "per_step"
    standardise: bool = True
    anchor: bool = True
    clip: bool = False
    loss: Literal["squared", "huber"] = "squared"
    weight_decay: float = 0.0
    adam_eps: float = 1e-8
    init: Init = "torch"
    readout: Literal["target", "online"] = "target"
    members: int = 4
    bootstrap: bool = True
    reads: str | tuple[str, ...] | None = None
    feature_dim: int = 50
    conv_layers: int | None = None
    channels: int = 32
    strides: tuple[int, ...] = STRIDES
    shift: int = 0

    __repr__ = short_call

    @classmethod
    def dope(cls, steps: int = 1_000_000) -> "FQE":
        """FQE-L2 of the DOPE benchmark (policy_eval), its own command line's settings.

        Its optimiser subtracts 1e-5 p each step; torch's AdamW subtracts lr * weight_decay * p, hence 1e-5 / 3e-4.
        """
        return cls(
            steps=steps,
            stop_when_flat=False,
            check_every=max(1, min(10_000, steps // 20)),
            anchor=False,
            clip=True,
            weight_decay=1e-5 / 3e-4,
            adam_eps=1e-7,
            init="dope",
            members=1,
            bootstrap=False,
            conv_layers=5,
        )

    @classmethod
    def d3rlpy(cls, steps: int = 100_000, batch_size: int = 100, discrete: bool = False) -> "FQE":
        """d3rlpy 2.8.1's `FQEConfig()`; `discrete` for `DiscreteFQE`, which has a Huber loss."""
        return cls(
            lr=1e-4,
            batch_size=batch_size,
            steps=steps,
            stop_when_flat=False,
            check_every=max(1, min(1000, steps // 20)),
            target="hard",
            output="value",
            standardise=False,
            anchor=False,
            loss="huber" if discrete else "squared",
            readout="online",
            members=1,
            bootstrap=False,
            conv_layers=5,
        )

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        """Evaluate every policy, one after another."""
        dataset, seed = question.dataset, question.seed
        own, steps = self._budgeted(dataset)
        scale = Scale.of(dataset, question.discount, question.horizon, self.output, self.standardise)
        answers = {}
        for name, target in question.targets.items():
            clock = time.perf_counter()
            learner = own._learner(dataset, target.actions, scale, seed, run.torch_device)
            units = 0 if learner.weights is None else question.num_units
            function = FQEValue(learner.readout, units, dataset.template(), target.policy, seed)
            trained = self._train(learner, function, target, run.within(target.digest), f"FQE {name}", steps)
            between = time.perf_counter()
            found = answer(trained, repr(self), question, target)
            timings = {"training": between - clock, "checks": time.perf_counter() - between}
            answers[name] = dataclasses.replace(found, timings=timings)
        return answers

    def _budgeted(self, dataset: Dataset) -> tuple["FQE", int]:
        """The same with the batch size that was left open, and the number of steps."""
        pixels = sees_pixels(dataset, self.reads)
        size = self.batch_size if self.batch_size is not None else 128 if pixels else 256
        steps = self.steps if self.steps is not None else 1_200 if pixels else 40_000
        return dataclasses.replace(self, batch_size=size), steps

    def _learner(
        self, dataset: Dataset, target: TargetActions, scale: Scale, seed: int, device: torch.device
    ) -> FQELearner:
        """Networks, optimiser and data of one policy."""
        numbers, generator = generators(seed)
        encoder = encoder_for(
            dataset,
            reads=self.reads,
            pixels=Pixels(self.feature_dim, self.conv_layers, self.channels, self.strides),
            generator=generator,
        ).to(device)
        if not self.standardise:
            leave_raw(encoder)
        discrete = dataset.discrete
        inputs = encoder.z_dim + (0 if discrete else dataset.action_dim) + (scale.horizon is not None)
        widths = (inputs, *self.hidden, dataset.action_dim if discrete else 1)
        critics = Critics(self.members, widths, device).initialise(self.init, generator)
        weights = None
        if self.bootstrap and self.members > 1:
            drawn = unit_weights(self.members, dataset.num_units, numbers)
            weights = torch.from_numpy(drawn).to(device)
        rule = StepRule(**{field.name: getattr(self, field.name) for field in dataclasses.fields(StepRule)})
        data = Transitions(dataset, target, encoder, scale, device)
        return FQELearner(data, Network(encoder, critics, scale, discrete), rule, weights, generator)

    def _train(
        self, learner: FQELearner, function: FQEValue, target: Target, run: Run, stage: str, steps: int
    ) -> Trained:
        """Run the loop until the value is flat, blows up, or the budget ends."""
        scale = function.network.scale
        keep = _thinned(len(target.starts), 256 if learner.learned else 4096)
        watched = {key: values[keep] for key, values in target.starts.observations.items()}
        chosen = target.start_actions.take(keep)

        def measure() -> dict[str, float]:
            # An eighth of what the steps since the last check have read.
            sample = self.check_every * learner.batch_size // 8
            found = {} if scale.horizon is not None else {"constant_error": learner.settle(sample)}
            return found | {"value": float(function.at(watched, chosen).mean(axis=0).mean())}

        history: dict[str, list[float]] = {}
        status, drift = Status.BUDGET, math.inf
        for metrics in train(
            learner, steps=steps, run=run, stage=stage, every=self.check_every, measure=measure
        ):
            for name, number in metrics.items():
                history.setdefault(name, []).append(number)
            drift = relative_drift(history["value"], history.get("constant_error"), 1e-2 * scale.limit)
            status = self._status(history, drift, scale, steps)
            if status is Status.DIVERGED or (status is not Status.BUDGET and self.stop_when_flat):
                break
        weights = None if learner.weights is None else learner.weights.double().cpu().numpy()
        return Trained(function, status, history, drift, weights)

    def _status(self, history: Mapping[str, list[float]], drift: float, scale: Scale, steps: int) -> Status:
        value = history["value"][-1]
        if not math.isfinite(value) or abs(value) > _BLOWN_UP * scale.limit + 1e-12:
            return Status.DIVERGED
        if history["step"][-1] < min(self.least_steps, steps) or drift > self.tolerance:
            return Status.BUDGET
        return Status.CONVERGED if scale.horizon is None else Status.HORIZON


def relative_drift(values: list[float], constants: list[float] | None, floor: float) -> float:
    """How far the value still moves, relative to it: over the last two quarters of the curve, or by its constant error.

    The windows grow with the curve, so that a slow approach cannot pass for a flat one: of a curve that still rises
    linearly from 0 the last quarter is always more than a quarter above the one before. A curve that began near its end
    is caught by the constant error that is still to come.
    """
    quarter = len(values) // 4
    if quarter < 1:
        return math.inf
    last = float(np.mean(values[-quarter:]))
    moved = abs(last - float(np.mean(values[-2 * quarter : -quarter])))
    ahead = 0.0 if constants is None else abs(float(np.mean(constants[-quarter:])))
    return max(moved, ahead) / max(abs(last), floor, 1e-12)


def _thinned(count: int, limit: int) -> NDArray[np.int64]:
    """At most `limit` of so many start states, evenly spread, to draw the curve with."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).astype(np.int64))
