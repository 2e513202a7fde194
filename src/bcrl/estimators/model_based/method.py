"""Model-based evaluation: learn the world from the log, let the policy act in it, add up what it is paid.

Pixels: Dreamer-v2's recurrent world model with discrete latents (dreamer.py, rssm.py). Vectors: by default a one-step model
(markov.py), because vectors that tell the whole state need no memory and a recurrent model is less exact there;
`dynamics="rssm"` takes the recurrent one. The policy acts on what the model shows: decoded frames for a policy of pixels,
decoded vectors for one of vectors ("privileged" where the model itself sees pixels only), or its distilled copy on
the model's own features (`imagination="latent"`), which is faster and adds an error that is reported.
No interval: the error of such a value is the model's, and that is judged on held-out episodes instead. What the luck of start
states and rollouts adds to it is `stats["rollout_error"]`.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.data.select import split_units
from bcrl.errors import BadInput
from bcrl.estimate import Check, Estimate, Status
from bcrl.estimators.model_based.audit import familiar_check, familiar_share, led_by_the_log, led_check
from bcrl.estimators.model_based.dreamer import Sizes, WorldModel
from bcrl.estimators.model_based.imagine import Rollouts
from bcrl.estimators.model_based.judge import Judgement, distilled_error, judge, logged_support
from bcrl.estimators.model_based.markov import MarkovLearner, MarkovModel
from bcrl.estimators.model_based.sequences import DreamerLearner, mean_actions
from bcrl.estimators.model_based.value import Imagination, ModelValue
from bcrl.inference.checks import action_support_anywhere
from bcrl.networks import encoder_for, keys_read, sees_pixels
from bcrl.policies.policy import AnyPolicy, TargetActions
from bcrl.printing import short_call
from bcrl.question import Question
from bcrl.training import Learner, Run, generators, train


@dataclass(frozen=True)
class ModelBased:
    """Evaluation in a learned world.

    Attributes:
        dynamics: "rssm" (Dreamer-v2), "markov" (one step, vectors only), or "auto": rssm for pixels, markov for vectors.
        imagination: who acts in the model: "policy" itself, or its distilled head on the model's features ("latent").
        reads: observation keys that the model sees; None takes the pixels if there are any.
        steps: updates of the recurrent model; None = 2000 on vectors, 1200 on pixels.
        batch_size, length, lr: windows per update, observations per window, Adam's rate.
        cosine: let the rate fall to 0 by a half cosine.
        deter, hidden, stoch, classes: sizes of the recurrent model.
        cnn_depth: channels of the first convolution.
        head_layers, head_hidden: hidden layers of the heads and their width.
        image_noise, reward_noise: standard deviation that frames (0 to 1) and standardised rewards are modelled with.
        kl_scale, kl_balance, free_nats: of the KL term.
        markov_steps, markov_hidden, markov_layers, markov_lr: of the one-step model; its batches have 256 transitions.
        held_out: share of the units that the model is judged on.
        num_rollouts: imagined rollouts over all start states, at least one each; None = 1024, or 128 where the policy is shown
            decoded frames.
    """

    dynamics: Literal["auto", "rssm", "markov"] = "auto"
    imagination: Imagination = "policy"
    reads: str | tuple[str, ...] | None = None
    steps: int | None = None
    batch_size: int = 8
    length: int = 20
    lr: float = 1e-3
    cosine: bool = True
    deter: int = 128
    hidden: int = 128
    stoch: int = 16
    classes: int = 16
    cnn_depth: int = 16
    head_layers: int = 2
    head_hidden: int = 128
    image_noise: float = 0.3
    reward_noise: float = 0.3
    kl_scale: float = 1.0
    kl_balance: float = 0.8
    free_nats: float = 1.0
    markov_steps: int = 1500
    markov_hidden: int = 128
    markov_layers: int = 4
    markov_lr: float = 2e-3
    held_out: float = 0.1
    num_rollouts: int | None = None

    __repr__ = short_call

    @classmethod
    def dreamerv2(cls, steps: int = 100_000) -> "ModelBased":
        """Dreamer-v2's sizes and rates for control from pixels (its dmc_vision settings); hours on a GPU."""
        return cls(
            dynamics="rssm",
            steps=steps,
            batch_size=16,
            length=50,
            lr=3e-4,
            cosine=False,
            deter=200,
            hidden=200,
            stoch=32,
            classes=32,
            cnn_depth=48,
            head_layers=4,
            head_hidden=400,
            image_noise=1.0,
            reward_noise=1.0,
        )

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        dataset, seed = question.dataset, question.seed
        began = time.monotonic()
        recurrent = self._recurrent(dataset)
        latent = self.imagination == "latent"
        targets = [target.actions for target in question.targets.values()] if latent else []
        held_out, kept = split_units(dataset, self.held_out, seed)
        _, generator = generators(seed)
        build = self._dreamer if recurrent else self._markov
        model, learner, steps = build(dataset, kept, targets, generator)
        history = list(train(learner, steps=steps, run=run, stage="world model"))
        verdict = judge(model, dataset, held_out, self.length, generator)
        led = led_by_the_log(model, dataset, question.discount, generator, seed=seed)
        trained = time.monotonic() - began
        curves = {name: [m[name] for m in history] for name in history[-1] if name != "step"}
        means = mean_actions(dataset, targets)
        estimates = {}
        for number, (name, target) in enumerate(question.targets.items()):
            spread = _own_noise(targets[number]) if latent else ()
            function = ModelValue(
                model,
                dataset.template(),
                target.policy,
                question.discount,
                question.horizon,
                max(1, self._rollouts(dataset, target.policy) // len(question.starts)),
                seed,
                self.imagination,
                number,
                spread,
            )
            error = None
            if latent:
                assert isinstance(model, WorldModel)
                rows = dataset.rows[held_out[:4096]]
                error = distilled_error(model, number, dataset, rows, means, generator)
            began = time.monotonic()
            played = function.imagine(question.starts.observations)
            timings = {"training": trained, "imagination": time.monotonic() - began}
            audit = {"familiar": familiar_share(model, dataset, played.met, generator, seed=seed)}
            audit |= dict(zip(("led_gap", "led_error", "led_scale"), led, strict=True))
            audit["action_support"] = logged_support(model, dataset, target.actions, generator, seed=seed)
            if error is not None:
                audit["distilled_error"] = error
            estimates[name] = self._answer(function, played, verdict, curves, audit, timings)
        return estimates

    def _rollouts(self, dataset: Dataset, policy: AnyPolicy) -> int:
        """Rollouts over all starts: a frame decoded and looked at costs a hundred times a vector."""
        if self.num_rollouts is not None:
            return self.num_rollouts
        reads = tuple(dataset.observations) if policy.reads is None else policy.reads
        keys = {reads} if isinstance(reads, str) else set(reads)
        return 128 if self.imagination == "policy" and keys & set(dataset.pixel_keys) else 1024

    def _recurrent(self, dataset: Dataset) -> bool:
        """Whether the recurrent model is used; refuses what neither model can do."""
        pixels = sees_pixels(dataset, self.reads)
        if self.dynamics == "markov" and pixels:
            raise BadInput(
                "dynamics='markov' needs vectors; use dynamics='rssm' for pixels, or reads= a vector key."
            )
        recurrent = self.dynamics == "rssm" or (self.dynamics == "auto" and pixels)
        if recurrent:
            dataset.require_order("ModelBased with recurrent dynamics")
        elif self.imagination == "latent":
            raise BadInput(
                "imagination='latent' needs the recurrent model; use dynamics='rssm', or imagination='policy'."
            )
        return recurrent

    def _markov(
        self,
        dataset: Dataset,
        kept: NDArray[np.int64],
        targets: list[TargetActions],
        generator: torch.Generator,
    ) -> tuple[MarkovModel | WorldModel, Learner, int]:
        del targets
        encoder = encoder_for(dataset, reads=self.reads, generator=generator)
        model = MarkovModel.of(dataset, encoder, self.markov_hidden, self.markov_layers, generator)
        shape = {"lr": self.markov_lr, "steps": self.markov_steps, "batch_size": 256}
        return (
            model,
            MarkovLearner(model, dataset, kept, generator=generator, **shape),  # type: ignore[arg-type]
            self.markov_steps,
        )

    def _dreamer(
        self,
        dataset: Dataset,
        kept: NDArray[np.int64],
        targets: list[TargetActions],
        generator: torch.Generator,
    ) -> tuple[MarkovModel | WorldModel, Learner, int]:
        sizes = Sizes(**{f.name: getattr(self, f.name) for f in fields(Sizes)})
        model = WorldModel.of(dataset, keys_read(dataset, self.reads), sizes, len(targets), generator)
        pixels = bool(model.frame_shapes)
        steps = self.steps if self.steps is not None else 1200 if pixels else 2000
        learner = DreamerLearner(
            model,
            dataset,
            np.unique(dataset.episode_of[kept]),
            targets,
            lr=self.lr,
            cosine=self.cosine,
            steps=steps,
            batch_size=self.batch_size,
            length=self.length,
            generator=generator,
        )
        return model, learner, steps

    def _answer(
        self,
        function: ModelValue,
        played: Rollouts,
        verdict: Judgement,
        curves: Mapping[str, list[float]],
        audit: Mapping[str, float],
        timings: Mapping[str, float],
    ) -> Estimate:
        shown = function.keys_shown() if self.imagination == "policy" else ()
        privileged = isinstance(function.model, WorldModel) and bool(
            set(shown) & set(function.model.privileged)
        )
        stats = verdict.stats() | {"privileged": float(privileged), "rollout_error": _luck(played), **audit}
        checks = (*verdict.checks(), *_audit_checks(audit))
        value = float(played.per_start.mean())
        return Estimate(
            value=value,
            method=repr(self),
            discount=function.discount,
            horizon=function.horizon,
            per_start=played.per_start,
            status=Status.CONVERGED if np.isfinite(value) else Status.DIVERGED,
            checks=checks,
            curves={
                **curves,
                "imagined_reward": played.reward_by_step.tolist(),
                "open_loop_error": verdict.open_loop.tolist(),
                "repeating_error": verdict.repeating.tolist(),
            },
            stats=stats,
            timings=dict(timings),
            provenance={"pictures": verdict.pictures} if verdict.pictures else {},
            value_function=function,
        )


def _luck(played: Rollouts) -> float:
    """Standard error of the value over start states (over rollouts where there is one start), the model taken for true."""
    drawn = played.per_start if len(played.per_start) > 1 else played.returns[0]
    return float(drawn.std() / np.sqrt(max(len(drawn) - 1, 1)))


def _own_noise(target: TargetActions) -> tuple[float, ...]:
    """Standard deviation of a policy's actions at one and the same observation, by action dimension."""
    mean = np.einsum("nk,nka->na", target.weights, target.actions)
    square = np.einsum("nk,nka->na", target.weights, np.square(target.actions))
    return tuple(float(x) for x in np.sqrt(np.maximum(square - mean**2, 0.0).mean(axis=0)))


def _audit_checks(audit: Mapping[str, float]) -> list[Check]:
    found = [
        led_check(audit["led_gap"], audit["led_error"], audit["led_scale"]),
        familiar_check(audit["familiar"]),
    ]
    if "action_support" in audit:
        found.append(action_support_anywhere(audit["action_support"]))
    if "distilled_error" in audit:
        found.append(_distilled_check(audit["distilled_error"]))
    return found


def _distilled_check(error: float) -> Check:
    return Check(
        "distilled policy",
        error,
        0.1,
        "trust" if error < 0.1 else "caution" if error < 0.4 else "distrust",
        f"The copy of the policy that acts in the model is off by {error:.2f} of the policy's own deviation.",
    )
