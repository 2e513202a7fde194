"""Model-based evaluation: learn the world from the log, let the policy act in it, add up what it is paid.

Pixels: Dreamer-v2's recurrent world model with discrete latents (dreamer.py, rssm.py). Vectors: by default
a one-step model (one_step.py), because vectors that tell the whole state need no memory and a recurrent
model is less exact there; `dynamics="dreamer"` takes the recurrent one. The policy acts on what the model
shows: decoded frames for a policy of pixels, decoded vectors for one of vectors ("privileged" where the
model itself sees pixels only). With `imagination="latent"` a distilled copy of the policy acts on the
model's own features, which is faster and adds an error that is reported.

No interval: the error of such a value is the model's, and that is judged on held-out episodes instead. What
the draw of start states and rollouts adds to it is in `stats["rollout_error"]`.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.data.select import split_units
from bcrl.errors import BadInput
from bcrl.estimate import Check, Estimate, Status, short_call
from bcrl.estimators.model_based.actors import Copy, action_noise, copy_check, copy_error, policy_keys
from bcrl.estimators.model_based.audit import (
    ReplayGap,
    familiar_check,
    familiar_share,
    logged_action_share,
    replay_gap,
)
from bcrl.estimators.model_based.dreamer import DreamerModel, WindowBatches
from bcrl.estimators.model_based.held_out import HeldOutQuality, held_out_quality
from bcrl.estimators.model_based.imagine import ModelValue, Plan, Rollouts
from bcrl.estimators.model_based.learner import WorldLearner
from bcrl.estimators.model_based.one_step import OneStepModel, TransitionBatches
from bcrl.estimators.model_based.parts import Dreamer, OneStep
from bcrl.inference.checks import action_support_anywhere
from bcrl.networks import encoder_for, keys_read, sees_pixels
from bcrl.options import Checked, Count, Fraction
from bcrl.policies.policy import AnyPolicy
from bcrl.question import Question, Target
from bcrl.training import Run, generators, train

AnyModel = OneStepModel | DreamerModel
Dynamics = Literal["auto", "dreamer", "one_step"]
Imagination = Literal["policy", "latent"]
# Rollouts over all start states: to decode and read a frame costs a hundred times as much as a vector.
_ROLLOUTS, _ROLLOUTS_OF_FRAMES = 1024, 128
_COPY_ROWS = 4096  # held-out rows at which a distilled copy is compared with its policy


@dataclass(frozen=True)
class ModelBased(Checked):
    """Evaluation in a learned world.

    Attributes:
        dynamics: "dreamer" (recurrent), "one_step" (vectors only), or "auto": the first for pixels, the
            second for vectors.
        imagination: who acts in the model: the "policy" itself, or its distilled copy on the model's features
            ("latent").
        reads: observation keys that the model sees; None takes the pixels if there are any.
        dreamer: the recurrent model.
        one_step: the one-step model.
        held_out: share of the units that the model is judged on.
        num_rollouts: imagined rollouts over all start states, at least one each; None = 1024, or 128 where
            the policy is shown decoded frames.
    """

    dynamics: Dynamics = "auto"
    imagination: Imagination = "policy"
    reads: str | tuple[str, ...] | None = None
    dreamer: Dreamer = field(default_factory=Dreamer)
    one_step: OneStep = field(default_factory=OneStep)
    held_out: Fraction = 0.1
    num_rollouts: Count | None = None
    least_transitions: ClassVar[int] = 50

    __repr__ = short_call

    @classmethod
    def dreamerv2(cls, steps: int = 100_000) -> "ModelBased":
        """Dreamer-v2's sizes and rates for control from pixels (its dmc_vision settings); hours on a GPU."""
        published = Dreamer(
            deter=200,
            hidden=200,
            stoch=32,
            classes=32,
            cnn_depth=48,
            head_layers=4,
            head_hidden=400,
            image_noise=1.0,
            reward_noise=1.0,
            steps=steps,
            batch_size=16,
            length=50,
            lr=3e-4,
            cosine=False,
        )
        return cls(dynamics="dreamer", dreamer=published)

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        """Learn one world, judge it, and let every policy act in it."""
        began = time.monotonic()
        dataset, seed = question.dataset, question.seed
        learn = self._dreamer if self._takes_dreamer(dataset) else self._one_step
        held_out, kept = split_units(dataset, self.held_out, seed)
        _, generator = generators(seed)
        model, learner = learn(question, kept, generator)
        history = list(train(learner, steps=learner.steps, run=run, stage="world model"))
        world = Judged(
            model,
            held_out,
            held_out_quality(model, dataset, held_out, generator),
            replay_gap(model, dataset, question.discount, generator, seed=seed),
            {name: [metrics[name] for metrics in history] for name in history[-1] if name != "step"},
            time.monotonic() - began,
        )
        answers = {}
        for number, (name, target) in enumerate(question.targets.items()):
            function = self._value_function(model, question, target, number)
            acted = act_in(world, function, question, target, generator)
            answers[name] = self._answer(world, function, acted)
        return answers

    def _one_step(
        self, question: Question, kept: NDArray[np.int64], generator: torch.Generator
    ) -> tuple[OneStepModel, WorldLearner]:
        dataset, settings = question.dataset, self.one_step
        encoder = encoder_for(dataset, reads=self.reads, generator=generator)
        model = OneStepModel.of(dataset, encoder, settings, generator)
        batches = TransitionBatches(model, dataset, kept, settings.rows_per_batch)
        return model, WorldLearner(model, settings, batches, settings.steps, generator)

    def _dreamer(
        self, question: Question, kept: NDArray[np.int64], generator: torch.Generator
    ) -> tuple[DreamerModel, WorldLearner]:
        dataset, settings = question.dataset, self.dreamer
        copied = [t.actions for t in question.targets.values()] if self.imagination == "latent" else []
        model = DreamerModel.of(dataset, keys_read(dataset, self.reads), settings, len(copied), generator)
        steps = settings.steps if settings.steps is not None else 1200 if model.frame_shapes else 2000
        batches = WindowBatches(model, dataset, np.unique(dataset.episode_of[kept]), copied)
        return model, WorldLearner(model, settings, batches, steps, generator)

    def _value_function(self, model: AnyModel, question: Question, target: Target, number: int) -> ModelValue:
        """V(s) of one policy: rollouts shared out over the start states, by the policy or its copy."""
        samples = max(1, self._num_rollouts(question.dataset, target.policy) // len(question.starts))
        plan = Plan(question.discount, question.horizon, samples, question.seed)
        copy = Copy(number, action_noise(target.actions)) if self.imagination == "latent" else None
        return ModelValue(model, question.dataset.template(), target.policy, plan, copy)

    def _answer(self, world: "Judged", function: ModelValue, acted: "Acted") -> Estimate:
        played, pictures = acted.played, world.quality.pictures
        value = float(played.per_start.mean())
        privileged = bool(set(function.keys_shown) & set(world.model.privileged))
        own = {"privileged": float(privileged), "rollout_error": played.standard_error}
        imagined = {"imagined_reward": played.reward_by_step.tolist()}
        return Estimate(
            value=value,
            method=repr(self),
            discount=function.plan.discount,
            horizon=function.plan.horizon,
            per_start=played.per_start,
            status=Status.CONVERGED if np.isfinite(value) else Status.DIVERGED,
            checks=(*world.quality.checks(), world.replay.check(), *acted.checks()),
            curves={**world.curves, **imagined, **world.quality.curves()},
            stats={**world.quality.stats(), **own, **world.replay.stats(), **acted.stats()},
            timings={"training": world.seconds, "imagination": acted.seconds},
            provenance={"pictures": pictures} if pictures else {},
            value_function=function,
        )

    def _num_rollouts(self, dataset: Dataset, policy: AnyPolicy) -> int:
        """Rollouts over all start states, for one policy."""
        if self.num_rollouts is not None:
            return self.num_rollouts
        shown = policy_keys(dataset, policy) if self.imagination == "policy" else ()
        return _ROLLOUTS_OF_FRAMES if set(shown) & set(dataset.pixel_keys) else _ROLLOUTS

    def _takes_dreamer(self, dataset: Dataset) -> bool:
        """Whether the recurrent model is used; refuses what neither model can do."""
        pixels = sees_pixels(dataset, self.reads)
        if self.dynamics == "one_step" and pixels:
            raise BadInput(
                "dynamics='one_step' needs vectors, and this model reads pixels. "
                "Use dynamics='dreamer', or name a vector key in reads=."
            )
        recurrent = self.dynamics == "dreamer" or (self.dynamics == "auto" and pixels)
        if recurrent:
            dataset.require_order("ModelBased with recurrent dynamics")
        elif self.imagination == "latent":
            raise BadInput(
                "imagination='latent' needs the recurrent model. "
                "Use dynamics='dreamer', or imagination='policy'."
            )
        return recurrent


@dataclass(frozen=True, eq=False)
class Judged:
    """A trained world and what is known about it before any policy acts in it.

    Attributes:
        model: the world.
        held_out: transitions that it was not trained on.
        quality: how well it predicts them.
        replay: what it pays along logged actions.
        curves: loss terms during training.
        seconds: that all this took.
    """

    model: AnyModel
    held_out: NDArray[np.int64]
    quality: HeldOutQuality
    replay: ReplayGap
    curves: Mapping[str, list[float]]
    seconds: float


@dataclass(frozen=True, eq=False)
class Acted:
    """What a policy did in the world, and how far that is from the log.

    Attributes:
        played: its rollouts.
        familiar: share of what it met that is like what the log holds.
        action_support: share of logged states at which the log holds actions like its own.
        copy_error: of the copy that acted in its place; None where it acted itself.
        seconds: that the rollouts took.
    """

    played: Rollouts
    familiar: float
    action_support: float
    copy_error: float | None
    seconds: float

    def checks(self) -> tuple[Check, ...]:
        copied = () if self.copy_error is None else (copy_check(self.copy_error),)
        return familiar_check(self.familiar), action_support_anywhere(self.action_support), *copied

    def stats(self) -> dict[str, float]:
        copied = {} if self.copy_error is None else {"distilled_error": self.copy_error}
        return {"familiar": self.familiar, "action_support": self.action_support, **copied}


def act_in(
    world: Judged, function: ModelValue, question: Question, target: Target, generator: torch.Generator
) -> Acted:
    """Let a policy act in the world from the start states, and compare where it went with the log."""
    dataset, model, seed, error = question.dataset, world.model, question.seed, None
    if function.copy is not None:
        assert isinstance(model, DreamerModel)
        rows = dataset.rows[world.held_out[:_COPY_ROWS]]
        error = copy_error(model, function.copy, dataset, rows, target.actions, generator)
    began = time.monotonic()
    played = function.imagine(question.starts.observations)
    seconds = time.monotonic() - began
    familiar = familiar_share(model, dataset, played, generator, seed=seed)
    support = logged_action_share(model, dataset, target.actions, generator, seed=seed)
    return Acted(played, familiar, support, error, seconds)
