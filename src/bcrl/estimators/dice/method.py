"""BestDICE: how much more often than the log the target policy visits each (s, a), from transitions alone.

    max_{zeta >= 0} min_{Q, lambda}
        (1 - g) E[Q(s0, pi)] + lambda + E_D[ zeta (alpha_r r + g Q(s', pi) - Q(s, a) - lambda) ]
        + alpha_q E_D[Q^2 / 2] - alpha_zeta E_D[zeta^2 / 2]

    V = sum_D zeta r / sum_D zeta / (1 - g)

Yang, Nachum, Dai, Li and Schuurmans, "Off-Policy Evaluation via the Regularized Lagrangian" (2020): with
alpha_q = 0, alpha_zeta = 1, zeta >= 0 and lambda the dual read-out is unbiased. DualDICE and GenDICE are
other settings of the same switches (lagrangian.py). Neither the logging policy nor the order of
transitions is needed.

`BestDICE` is that saddle point with the sizes and rates of its authors' dice_rl. It differs in Q, scaled by
1 / (1 - g), in rewards, which are standardised, and in terminations, which lead to an absorbing state.

`FlowDICE` is ours: a short saddle point gives the layers below the last, an average over the last weights is
kept, the last layers are solved for exactly (solve.py), and zeta is changed so that it keeps the flow. Where
a deterministic policy meets continuous actions, noise of `smoothing` logged standard deviations is put on
its actions, because the ratio that zeta stands for is infinite without it. The value is then that of the
noisy policy, which a check states.
"""

import math
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from bcrl.errors import BadInput
from bcrl.estimate import Estimate, FloatArray, Status, short_call
from bcrl.estimators.dice.checks import examine
from bcrl.estimators.dice.data import DiceData
from bcrl.estimators.dice.lagrangian import Critics, Lagrangian
from bcrl.estimators.dice.solve import Solution, keep_zeta, solve_last_layers
from bcrl.estimators.dice.states import learn_states
from bcrl.inference.intervals import unit_interval
from bcrl.networks import Activation, HeadNet, Pixels
from bcrl.options import Checked, Count, Decay, Layers, NotNegative, Positive, Width
from bcrl.policies.policy import TargetActions
from bcrl.question import Question
from bcrl.training import Run, generators, restore_parts, state_of, train

_LAGRANGIAN = Lagrangian()
# A tenth of the cost of the representation learners' encoder.
_PIXELS = Pixels(strides=(2, 2, 2))


@dataclass(frozen=True)
class BestDICE(Checked):
    """Stationary distribution correction by the regularised Lagrangian, as published.

    Attributes:
        steps: updates.
        lagrangian: its switches; those of DualDICE and GenDICE are `.dualdice()` and `.gendice()`.
        smoothing: noise on a deterministic policy's continuous actions, in logged standard deviations.
        hidden, layers, activation: shape of both critics.
        lr_q, lr_zeta: rates of Adam for Q and for zeta.
        batch_size: transitions per update.
        cosine: let the rates fall to 0 by a half cosine.
        average: decay of the average over the critics' weights that is read out.
        clip_value: clip each gradient of the summed loss, as dice_rl does; None clips the mean's norm at 10.
        solve_last: solve for the critics' last layers exactly once the layers below are trained.
        keep_flow: then change zeta so that it keeps the flow of Q's last layer; it may become negative.
        num_samples: actions per observation from a stochastic policy of continuous actions, at most 8.
        reads: observation keys to look at; None takes the pixels if there are any.
        pixels: the pixel encoder, which is learned first and then frozen; it does without random shifts.
        encoder_steps: its updates.
    """

    steps: Count = 100_000
    lagrangian: Lagrangian = _LAGRANGIAN
    smoothing: NotNegative = 0.0
    hidden: Width = 64
    layers: Layers = 3
    activation: Activation = "relu"
    lr_q: Positive = 1e-4
    lr_zeta: Positive = 1e-4
    batch_size: Count = 2048
    cosine: bool = False
    average: Decay = 0.0
    clip_value: Positive | None = 1.0
    solve_last: bool = False
    keep_flow: bool = False
    num_samples: Count = 1
    reads: str | tuple[str, ...] | None = None
    pixels: Pixels = _PIXELS
    encoder_steps: Count = 1000
    least_transitions: ClassVar[int] = 20

    __repr__ = short_call

    @classmethod
    def dualdice(cls, steps: int = 100_000) -> "BestDICE":
        """DualDICE (Nachum et al., 2019): no reward, no positivity, no normalisation."""
        return BestDICE(steps, Lagrangian(alpha_r=0.0, positive=False, normalised=False))

    @classmethod
    def gendice(cls, steps: int = 100_000) -> "BestDICE":
        """GenDICE (Zhang et al., 2020): Q is regularised instead of zeta."""
        return BestDICE(steps, Lagrangian(alpha_q=1.0, alpha_zeta=0.0, alpha_r=0.0))

    @classmethod
    def released(cls, steps: int = 100_000) -> "BestDICE":
        """`BestDICE()`, by its name of before 0.2."""
        return BestDICE(steps)

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        if question.horizon is not None or not question.discount < 1.0:
            raise BadInput(
                f"{type(self).__name__} can only value the whole future, with a discount below 1; "
                f"got horizon={question.horizon}, discount={question.discount}. "
                "Leave horizon out, or use LSPE, FQE or ModelBased."
            )
        began = time.monotonic()
        chosen = {name: target.actions.first(self.num_samples) for name, target in question.targets.items()}
        states = learn_states(
            question, chosen, reads=self.reads, pixels=self.pixels, steps=self.encoder_steps, run=run
        )
        timings = {"encoder": time.monotonic() - began}
        estimates = {}
        for number, (name, target) in enumerate(question.targets.items()):
            start_chosen = target.start_actions.first(self.num_samples)
            data = DiceData.of(
                question, states.of(name), chosen[name], start_chosen, smoothing=self.smoothing
            )
            # The number, because on pixels two policies of the same actions still have states of their own.
            own = run.within(f"policy{number}-{target.digest}")
            plain = self._estimate_one(question, chosen[name], data, own)
            estimates[name] = replace(plain, timings={**timings, **plain.timings})
        return estimates

    def _estimate_one(self, question: Question, chosen: TargetActions, data: DiceData, run: Run) -> Estimate:
        """One policy: the saddle point by descent and ascent, its last layers exactly, the read-out."""
        began, dataset = time.monotonic(), question.dataset
        learner = SaddlePoint(self, data, generators(question.seed)[1])
        history = list(train(learner, steps=self.steps, run=run, stage="dice"))
        if self.solve_last:
            solved = solve_last_layers(learner.averaged, data, self.lagrangian, keep_flow=self.keep_flow)
        else:
            solved = keep_zeta(learner.averaged, data)
        value = read_out(dataset.rewards, solved.zeta, solved.end_mass, question.discount)
        error, interval, per_unit = unit_interval(dataset, value, influence(question, solved), question.level)
        checks, stats = examine(question, chosen, data, solved)
        broken = not np.isfinite(value) or abs(solved.mean - 1.0) > 0.5
        return Estimate(
            value=value,
            method=repr(self),
            discount=question.discount,
            interval=interval,
            standard_error=error,
            influence=per_unit,
            status=Status.DIVERGED if broken else Status.CONVERGED,
            checks=checks,
            curves={name: [metrics[name] for metrics in history] for name in SaddlePoint.metrics},
            stats=stats,
            timings={"training": time.monotonic() - began},
        )


@dataclass(frozen=True)
class FlowDICE(BestDICE):
    """Ours: 500 updates of that saddle point, its last layers solved for exactly, and the flow kept.

    Attributes are those of `BestDICE`.
    """

    steps: Count = 500
    smoothing: NotNegative = 0.25
    hidden: Width = 128
    activation: Activation = "silu"
    lr_q: Positive = 3e-4
    lr_zeta: Positive = 3e-4
    batch_size: Count = 256
    cosine: bool = True
    average: Decay = 0.999
    clip_value: Positive | None = None
    solve_last: bool = True
    keep_flow: bool = True
    num_samples: Count = 8

    __repr__ = short_call


class SaddlePoint:
    """What the loop trains: descent in Q and lambda, ascent in zeta, on mini-batches.

    Args:
        recipe: shapes and rates.
        data: the log and one policy.
        generator: draws weights and batches.
    """

    metrics = ("lagrangian", "mean_zeta", "weighted_reward")

    def __init__(self, recipe: BestDICE, data: DiceData, generator: torch.Generator) -> None:
        self.recipe, self.data, self.generator, self.batch_size = recipe, data, generator, recipe.batch_size
        shape: dict[str, Any] = {
            "hidden": recipe.hidden,
            "layers": recipe.layers,
            "activation": recipe.activation,
        }
        inputs = (data.z.shape[1], data.actions.shape[1])
        q_net, zeta_net = (HeadNet(*inputs, 1, **shape, generator=generator) for _ in range(2))
        scale, positive = 1.0 / (1.0 - data.discount), recipe.lagrangian.positive
        self.critics = Critics(q_net, zeta_net, scale=scale, positive=positive).to(data.z.device)
        self.averaged = deepcopy(self.critics)
        down, up = self.critics.descending(), self.critics.ascending()
        groups: list[dict[str, Any]] = [
            {"params": down, "lr": recipe.lr_q},
            {"params": up, "lr": recipe.lr_zeta, "maximize": True},
        ]
        self.optimiser = torch.optim.Adam(groups, betas=(0.9, 0.99), eps=1e-8)
        self.done = 0

    def step(self) -> Mapping[str, float | Tensor]:
        recipe, data = self.recipe, self.data
        fade = 0.5 * (1.0 + math.cos(math.pi * self.done / recipe.steps)) if recipe.cosine else 1.0
        for group, rate in zip(self.optimiser.param_groups, (recipe.lr_q, recipe.lr_zeta), strict=True):
            group["lr"] = rate * fade
        batch = data.draw(self.batch_size, self.generator)
        value, zeta = recipe.lagrangian.value(
            self.critics, batch, discount=data.discount, end_weight=data.end_weight
        )
        self.optimiser.zero_grad()
        if recipe.clip_value is None:
            value.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.critics.descending(), 10.0)
            nn.utils.clip_grad_norm_(self.critics.ascending(), 10.0)
        else:
            (value * self.batch_size).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_value_(self.critics.parameters(), recipe.clip_value)
        self.optimiser.step()
        self.done += 1
        self._average()
        numbers = (value, zeta.mean(), (zeta * batch.rewards).mean())
        return dict(zip(self.metrics, numbers, strict=True))

    def _average(self) -> None:
        """Update the averaged weights; early steps are forgotten quickly."""
        keep = min(self.recipe.average, self.done / (self.done + 9.0))
        with torch.no_grad():
            old, new = ([p.data for p in critics.parameters()] for critics in (self.averaged, self.critics))
            torch._foreach_lerp_(old, new, 1.0 - keep)

    def _parts(self) -> dict[str, Any]:
        own = {"critics": self.critics, "averaged": self.averaged}
        return own | {"optimiser": self.optimiser, "generator": self.generator}

    def state(self) -> dict[str, Any]:
        return state_of(self._parts()) | {"done": self.done}

    def restore(self, state: dict[str, Any]) -> None:
        restore_parts(self._parts(), state)
        self.done = state["done"]


def read_out(rewards: FloatArray, zeta: FloatArray, end_mass: float, discount: float) -> float:
    """sum zeta r / sum zeta / (1 - g).

    Args:
        rewards: shape (N,).
        zeta: shape (N,).
        end_mass: weight times zeta of the absorbing state, in units of the N transitions' mean; it earns 0.
        discount: g.
    """
    total = zeta.sum() + len(zeta) * end_mass
    if not np.isfinite(total) or total <= 0.0:
        return float("nan")
    return float(zeta @ rewards / total) / (1.0 - discount)


def influence(question: Question, solved: Solution) -> FloatArray:
    """Influence of each episode on the value, (E,): zeta times the TD errors of Q, and Q at its start state.

    With zeta held fixed its own error would be missing, which is most of the error: zeta r varies far less
    than zeta td.
    """
    dataset = question.dataset
    deviation = float(dataset.rewards.std())
    unit = deviation if deviation > 1e-12 else 1.0
    per_step = unit * solved.zeta * solved.td / (len(dataset) * solved.mean * (1.0 - question.discount))
    per_episode = np.zeros(dataset.num_episodes)
    np.add.at(per_episode, dataset.episode_of, per_step)
    if question.starts.unit is not None and len(solved.start) == dataset.num_episodes:
        per_episode += unit * solved.start / len(solved.start)
    return np.asarray(per_episode - per_episode.mean(), dtype=np.float64)
