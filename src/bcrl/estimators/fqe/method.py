"""Fitted Q-evaluation: Q regressed on its own one-step prediction until it stops moving.

    Q <- argmin_Q E_D ( Q(s, a) - r - discount (1 - terminated) Qbar(s', pi) )^2

    value = mean V(s0),   V(s) = Q(s, pi)

(Le, Voloshin and Yue, 2019; Voloshin et al., 2021; presets: Fu et al., 2021, "DOPE", and d3rlpy.) Members are
trained side by side on Bayesian bootstrap weights of the independent units (Hao et al., 2021, bootstrap whole
episodes the same way), and their spread is the standard error. Training runs until the value is flat, or
until the step limit is reached, and says which. With a horizon H, Q also reads the number of steps left:
Q_h <- r + discount Q_{h-1}, Q_0 = 0 (network.py).

Differences from the presets' sources: `.dope()` keeps the records' last transitions and, where the world can
end, clips to [min(0, r), max(0, r)] / (1 - discount); `.d3rlpy()` reads V at every episode's start, not in
its middle.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from bcrl.estimate import Estimate, Status, short_call
from bcrl.estimators.fqe.critics import Init
from bcrl.estimators.fqe.flat import Flat
from bcrl.estimators.fqe.learner import FQELearner, TargetNetwork
from bcrl.estimators.fqe.readout import Trained, read_out
from bcrl.estimators.fqe.value import FQEValue
from bcrl.networks import PIXELS, Pixels, sees_pixels
from bcrl.options import Checked, Count, Layers, NotNegative, Positive, Width
from bcrl.question import Question, Target
from bcrl.training import Run, train

_FLAT, _TARGET_NETWORK = Flat(), TargetNetwork()


@dataclass(frozen=True)
class FQE(Checked):
    """Fitted Q-evaluation.

    Attributes:
        hidden: widths of the critic's hidden layers; () is a linear critic.
        lr: Adam's step size.
        weight_decay: decoupled, times lr, as torch's AdamW has it.
        adam_eps: Adam's epsilon.
        batch_size: transitions per step; None = 256 on vectors, 128 on pixels.
        steps: at most this many; None = 40 000 on vectors, 1 200 on pixels (3 core-minutes at 64 x 64).
        flat: when the value counts as flat, and whether training ends there.
        target_network: how the slow copy of Q follows it, and which of the two answers.
        standardise: rewards and vectors in deviations, predict (1 - discount) Q; False: as logged, predict Q.
        anchor: solve for Q's constant error at every check (learner.py); False is plain FQE.
        clip: clip regression targets to what the rewards allow; the share that was clipped is logged.
        loss: of the regression.
        init: first weights of the critics, torch's or those of DOPE's policy_eval.
        members: networks trained side by side on bootstrap weights; 1 has no weights and no interval. After
            as many steps a member is the same to the bit, whether one or nine others run beside it.
        reads: observation key(s) to look at; None = pixels where there are any, else every vector.
        pixels: the pixel encoder, which all members share.
    """

    hidden: tuple[Width, ...] = (256, 256)
    lr: Positive = 3e-4
    weight_decay: NotNegative = 0.0
    adam_eps: Positive = 1e-8
    batch_size: Count | None = None
    steps: Count | None = None
    flat: Flat = _FLAT
    target_network: TargetNetwork = _TARGET_NETWORK
    standardise: bool = True
    anchor: bool = True
    clip: bool = False
    loss: Literal["squared", "huber"] = "squared"
    init: Init = "torch"
    members: Layers = 4
    reads: str | tuple[str, ...] | None = None
    pixels: Pixels = PIXELS
    least_transitions: ClassVar[int] = 20

    __repr__ = short_call

    @classmethod
    def dope(cls, steps: int = 1_000_000) -> "FQE":
        """FQE-L2 of the DOPE benchmark (policy_eval), its own command line's settings.

        Its optimiser subtracts 1e-5 p each step, torch's AdamW lr * weight_decay * p: hence 1e-5 / 3e-4.
        """
        return cls(
            weight_decay=1e-5 / 3e-4,
            adam_eps=1e-7,
            steps=steps,
            flat=Flat(check_every=max(1, min(10_000, steps // 20)), stop=False),
            anchor=False,
            clip=True,
            init="dope",
            members=1,
            pixels=Pixels(conv_layers=5),
        )

    @classmethod
    def d3rlpy(cls, steps: int = 100_000, batch_size: int = 100, discrete: bool = False) -> "FQE":
        """d3rlpy 2.8.1's `FQEConfig()`; `discrete` for `DiscreteFQE`, which has a Huber loss."""
        return cls(
            lr=1e-4,
            batch_size=batch_size,
            steps=steps,
            flat=Flat(check_every=max(1, min(1000, steps // 20)), stop=False),
            target_network=TargetNetwork(tau=1.0, every=100, answers=False),
            standardise=False,
            anchor=False,
            loss="huber" if discrete else "squared",
            members=1,
            pixels=Pixels(conv_layers=5),
        )

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        """For each policy: regress Q on its own one-step prediction until the value is flat; read it out."""
        recipe = self.completed(pixels=sees_pixels(question.dataset, self.reads))
        estimates = {}
        for name, target in question.targets.items():
            began = time.perf_counter()
            learner = FQELearner.of(recipe, question, target, run.torch_device)
            function = FQEValue.of(learner.readout, question, target)
            own_run = run.within(target.digest)
            trained = recipe._regress_until_flat(learner, function, target, own_run, f"FQE {name}")
            ended = time.perf_counter()
            estimate = read_out(trained, repr(self), question, target)
            timings = {"training": ended - began, "checks": time.perf_counter() - ended}
            estimates[name] = replace(estimate, timings=timings)
        return estimates

    def completed(self, *, pixels: bool) -> "FQE":
        """The same recipe with every None that depends on the kind of data filled in."""
        batch_size, steps = (128, 1_200) if pixels else (256, 40_000)
        return replace(
            self,
            batch_size=batch_size if self.batch_size is None else self.batch_size,
            steps=steps if self.steps is None else self.steps,
        )

    def _regress_until_flat(
        self, learner: FQELearner, function: FQEValue, target: Target, run: Run, stage: str
    ) -> Trained:
        """Take steps until the value is flat, blows up, or the step limit is reached."""
        assert self.steps is not None
        measure, every = _measuring(learner, function, target), self.flat.check_every
        history: dict[str, list[float]] = {}
        status, drift = Status.LIMIT, math.inf
        for metrics in train(learner, steps=self.steps, run=run, stage=stage, every=every, measure=measure):
            for name, number in metrics.items():
                history.setdefault(name, []).append(number)
            status, drift = self.flat.judge(history, function.network.scale, self.steps)
            if status is Status.DIVERGED or (status is not Status.LIMIT and self.flat.stop):
                break
        return Trained(function, status, history, drift, learner.unit_weights)


def _measuring(learner: FQELearner, function: FQEValue, target: Target) -> Callable[[], dict[str, float]]:
    """What a check measures: the value over some start states and, without a horizon, Q's constant error."""
    limit = 256 if function.network.encoder.has_pixels else 4096
    count = len(target.starts)
    some = np.unique(np.linspace(0, count - 1, min(count, limit)).astype(np.int64))
    starts = {key: values[some] for key, values in target.starts.observations.items()}
    start_actions = target.start_actions.take(some)
    # An eighth of what the steps since the last check have read.
    sample = learner.recipe.flat.check_every * learner.batch_size // 8
    endless = function.network.scale.horizon is None

    def measure() -> dict[str, float]:
        # Before the value is read: with `anchor` this changes it.
        constant = {"constant_error": learner.solve_constant_error(sample)} if endless else {}
        values = function.at(function.encode(starts), start_actions)
        return constant | {"value": float(values.mean(axis=0).mean())}

    return measure
