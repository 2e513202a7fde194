"""`guard`: the new policy where the log supports it, the logged behaviour elsewhere, with its own value.

The strangeness up to which the new policy acts is on a dial. Every setting is valued like any policy, the
support of a row judged by other units than its own; intervals and verdicts hold for all settings together.
The largest trusted setting is chosen. And the largest trusted blend: the new policy in a share of the
episodes, the logged one in the rest, whose value and error are the same blend of both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.comparison import Decision
from bcrl.data.dataset import Array, Dataset
from bcrl.data.sources import load_dataset
from bcrl.doctor import Finding, examine, stop_at_errors
from bcrl.errors import BadInput
from bcrl.estimate import TRUST_WIDTH, Estimate, FloatArray, Interval, Verdict
from bcrl.inference.budget import decided, stretch
from bcrl.inference.contrast import difference_to, half_width, logged_value, not_alike
from bcrl.inference.inputs import inputs_of
from bcrl.inference.views import chain_view
from bcrl.methods import Estimator
from bcrl.next_steps.asking import KnownTarget, Places, ask, method_of
from bcrl.next_steps.bounds import Bounds, beyond_the_log, bounds, in_steps_of
from bcrl.policies import load_policy
from bcrl.policies.guarded import Guarded, guarded, known_actions, save_guarded
from bcrl.policies.local import LocalLog
from bcrl.policies.policy import AnyPolicy, resolve_policy
from bcrl.question import Question, Target
from bcrl.training import Run, silent

DIAL = (0.25, 0.5, 1.0)
_LEAST_BLEND = 0.05  # of the episodes: less teaches nobody anything


@dataclass(frozen=True)
class Setting:
    """One setting of the dial.

    Attributes:
        threshold: strangeness up to which the new policy acts; infinity is the new policy itself.
        followed: share of the guarded policy's steps at which the new policy acts.
        estimate: of its value; the intervals in it are of this setting alone.
        honest: the honest interval, wide enough for all settings together.
        verdict: from that interval.
        decision: against the logged policy, for all settings together; None where it cannot be had.
    """

    threshold: float
    followed: float
    estimate: Estimate
    honest: Interval | None
    verdict: Verdict
    decision: Decision | None


@dataclass(frozen=True, eq=False)
class GuardedResult:
    """What `guard` found.

    Attributes:
        policy: the guarded policy, ready to run.
        chosen: its setting: the largest that is trusted, else the middle of the dial.
        dial: all settings, the new policy itself last.
        blend: largest share of episodes that may be the new policy's so that the value stays trusted; None
            where the new policy or the log has no value.
        logged: the log's own value, where it answers the same question.
        bounds: of the new policy itself.
    """

    policy: Guarded
    chosen: Setting
    dial: tuple[Setting, ...]
    blend: float | None
    logged: Estimate | None
    bounds: Bounds

    def save(self, path: str | Path) -> Path:
        """Write the policy as one safetensors file that runs without the log and that `load_policy` reads."""
        if Path(path).suffix != ".safetensors":
            raise BadInput(f"{path}: a guarded policy is a .safetensors file; give it that ending.")
        return save_guarded(self.policy, Path(path))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "sentences": self.sentences,
            "chosen": _row(self.chosen),
            "dial": [_row(one) for one in self.dial],
            "blend": self.blend,
            "logged": None if self.logged is None else self.logged.value,
            "bounds": {**vars(self.bounds), "vacuous": [self.bounds.vacuous.low, self.bounds.vacuous.high]},
        }

    @property
    def guarded_sentence(self) -> str:
        """What the guarded policy does and what it is worth."""
        one = self.chosen
        if math.isinf(one.threshold):
            return "The new policy needs no guard: its value is trusted as it is."
        width = abs(one.estimate.value) if one.honest is None else one.honest.high - one.honest.low
        value, *ends = in_steps_of(
            width, one.estimate.value, *(() if one.honest is None else (one.honest.low, one.honest.high))
        )
        around = f" ({ends[0]} to {ends[1]})" if ends else ""
        first = {
            "trust": f"You {'need not' if one.decision == 'worse' else 'may'} run the guarded policy",
            "caution": "The guarded policy, with caution",
            "distrust": "Even the guarded policy is not to be trusted",
        }[one.verdict]
        return (
            f"{first}: it follows the new one at {one.followed:.0%} of its steps, does what the log did at "
            f"the others, and is worth {value}{around}"
            + (f", {one.decision} than the log." if one.decision in ("better", "worse") else ".")
        )

    @property
    def blend_sentence(self) -> str:
        """The share of episodes that the new policy may have; empty where it needs none, or may have none."""
        if self.blend is None or self.dial[-1].verdict == "trust" or self.blend < _LEAST_BLEND:
            return ""
        return (
            f"Or let the new policy decide in {self.blend:.0%} of the episodes, by lot: the value of the "
            "whole is then still trusted."
        )

    @property
    def sentences(self) -> list[str]:
        """What you can do, one line each."""
        lines = [*self.bounds.sentences, self.guarded_sentence, self.blend_sentence]
        return [line for line in lines if line]


def guard(
    dataset: Dataset | str | Path,
    policy: Any,  # noqa: ANN401 - a policy, a callable, a module or a path
    *,
    discount: float,
    behaviour: Any = None,  # noqa: ANN401 - the same
    method: Estimator | str | None = None,
    thresholds: tuple[float, ...] = DIAL,
    rewards: tuple[float, float] | None = None,
    horizon: int | None = None,
    starts: Array | Mapping[str, Array] | None = None,
    seed: int = 0,
    trust: bool = False,
    run: Run | None = None,
) -> GuardedResult:
    """The new policy where the log supports it, the logged behaviour elsewhere.

    Args:
        dataset: a `Dataset` of vectors, or a path.
        policy: the new policy, as in `evaluate`.
        discount: of the value.
        behaviour: the policy that made the log, where you have it; None: a clone of it, noise included.
        method: evaluates every setting; None takes BCRL with the default recipe.
        thresholds: settings of the dial, in units of what is usual in the log.
        rewards: least and most that a step can pay, for the bounds; None takes the log's.
        horizon, starts, seed, trust: as in `evaluate`.
        run: for trainings.
    """
    if not thresholds or not all(0.0 < t < float("inf") for t in thresholds):
        raise BadInput(f"thresholds={thresholds}; expected numbers above 0, e.g. {DIAL}.")
    data = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    new, usual = (
        None
        if one is None
        else resolve_policy(data, load_policy(one, trust=trust, num_actions=data.num_actions))
        for one in (policy, behaviour)
    )
    assert new is not None
    findings = examine(data, {"new": new})
    stop_at_errors(findings)
    question = Question.of(data, {"new": new}, discount=discount, horizon=horizon, starts=starts, seed=seed)
    logged = None if not_alike(question) else logged_value(data, discount=discount, horizon=horizon)
    return guarded_result(
        question,
        question.targets["new"],
        usual,
        method_of(method),
        run or Run(show=silent),
        findings,
        logged,
        thresholds,
        rewards,
    )


def guarded_result(
    question: Question,
    target: Target,
    usual: AnyPolicy | None,
    asked: Estimator,
    how: Run,
    findings: Sequence[Finding],
    logged: Estimate | None,
    thresholds: tuple[float, ...],
    rewards: tuple[float, float] | None = None,
) -> GuardedResult:
    """The guarded policy of one target of a question; as in `guard`."""
    new, local = target.policy, LocalLog.of(question.dataset, question.seed)
    places = Places.of(question, local)
    targets: dict[float, tuple[Target, FloatArray]] = {
        t: guarded_target(question, target, guarded(new, usual, local, t), places) for t in sorted(thresholds)
    }
    targets[float("inf")] = target, np.ones(question.dataset.num_observations)
    dial = []
    for threshold, (one, followed) in targets.items():
        about = replace(question, targets={"new": one})
        answer = ask(asked, about, how, findings)["new"]
        dial.append(_setting(threshold, followed_share(about, one, followed), answer, logged, len(targets)))
    trusted = [one for one in dial if one.verdict == "trust"]
    chosen = trusted[-1] if trusted else dial[(len(dial) - 1) // 2]
    return GuardedResult(
        policy=guarded(new, usual, local, chosen.threshold),
        chosen=chosen,
        dial=tuple(dial),
        blend=_blend(dial[-1].estimate, logged),
        logged=logged,
        bounds=bounds(
            question, target, asked, how, rewards=rewards, log=local, beyond=beyond_the_log(dial[-1].estimate)
        ),
    )


def guarded_target(
    question: Question, target: Target, policy: Guarded, places: Places
) -> tuple[KnownTarget, FloatArray]:
    """The guarded policy as a target of the question, and its share of own choices at every row."""
    dataset = question.dataset
    everything = dataset.natural({key: np.asarray(v) for key, v in dataset.observations.items()})
    rows, followed = known_actions(
        policy, target.actions, places.rows, places.row_unit, everything, question.seed
    )
    begin = dataset.natural(question.starts.observations)
    starts, _ = known_actions(
        policy, target.start_actions, places.starts, places.start_unit, begin, question.seed
    )
    as_policy: AnyPolicy = policy
    return KnownTarget(as_policy, dataset, question.starts, question.seed, rows, starts), followed


def followed_share(question: Question, target: Target, followed: FloatArray) -> float:
    """Share of a policy's expected steps at which its own choice is `followed` (by row of the log)."""
    inputs = inputs_of(question, target, rows=3_000)
    weights = chain_view(inputs, question.discount, question.horizon, rows=3_000)[0].weights
    at = followed[question.dataset.rows[inputs.transitions]]
    return float(weights @ at / max(float(weights.sum()), 1e-12))


def _setting(
    threshold: float, followed: float, answer: Estimate, logged: Estimate | None, count: int
) -> Setting:
    half = half_width(answer)
    wide = None if half is None else stretch(count) * half
    honest = None if wide is None else Interval(answer.value - wide, answer.value + wide, 0.95)
    verdict = answer.verdict
    if answer.budget is not None and honest is not None and verdict != "distrust":
        all_together = replace(answer, budget=replace(answer.budget, honest=honest))
        verdict = all_together.verdict
    decision = None
    if logged is not None:
        decision = decided(difference_to(answer, logged), answer, logged, count).decision
    return Setting(threshold, followed, answer, honest, verdict, decision)


def _blend(plain: Estimate, logged: Estimate | None) -> float | None:
    """Largest p with p half_new + (1 - p) half_logged <= a tenth of max(|value of the blend|, scale)."""
    half, base = half_width(plain), None if logged is None else half_width(logged)
    if plain.budget is None or half is None or logged is None or base is None or plain.verdict == "trust":
        return 1.0 if plain.verdict == "trust" else None
    shares = np.linspace(1.0, 0.0, 101)
    value = shares * plain.value + (1.0 - shares) * logged.value
    width = shares * half + (1.0 - shares) * base
    fine = width <= TRUST_WIDTH * np.maximum(np.abs(value), plain.budget.scale)
    return float(shares[fine.argmax()]) if fine.any() else 0.0


def _row(one: Setting) -> dict[str, Any]:
    return {
        "threshold": None if np.isinf(one.threshold) else one.threshold,
        "followed": one.followed,
        "value": one.estimate.value,
        "honest": None if one.honest is None else [one.honest.low, one.honest.high],
        "verdict": one.verdict,
        "decision": one.decision,
    }
