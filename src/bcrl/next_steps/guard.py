"""`guard`: the new policy where the log supports it, the logged behaviour elsewhere, with its own value.

The strangeness up to which the new policy acts is on a dial. Every setting is valued like any policy, the
support of a row judged by other units than its own; intervals and verdicts hold for all settings together:
with the 95 % quantile of the largest of their errors, correlated as chance alone correlates them.
The largest trusted setting is chosen. And the largest trusted blend: the new policy in a share of the
episodes, the logged one in the rest, whose value and error are the same blend of both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bcrl import salts
from bcrl.comparison import Decision
from bcrl.data.dataset import Array, Dataset
from bcrl.data.sources import load_dataset
from bcrl.doctor import Finding, examine, stop_at_errors
from bcrl.errors import BadInput
from bcrl.estimate import TRUST_WIDTH, Estimate, FloatArray, Interval, Verdict
from bcrl.estimators.consensus import Consensus
from bcrl.inference.budget import decided, stretch
from bcrl.inference.contrast import difference_to, half_width, logged_value, not_alike
from bcrl.inference.inputs import inputs_of
from bcrl.inference.intervals import Influence, paired, quantile
from bcrl.inference.views.chain import chain_view
from bcrl.methods import Estimator
from bcrl.next_steps.asking import KnownTarget, Places, ask, method_of
from bcrl.next_steps.bounds import Bounds, beyond_the_log, bounds, in_steps_of
from bcrl.policies import load_policy
from bcrl.policies.guarded import Guarded, guarded, known_actions, save_guarded
from bcrl.policies.local import LocalLog
from bcrl.policies.policy import AnyPolicy, resolve_policy
from bcrl.question import Question, Target
from bcrl.training import Run, silent

# Shares of the logged steps at which the dial's settings follow the new policy. Fixed strangenesses (0.25,
# 0.5, 1) followed 0, 88 and 98 % of the steps of a design world of ten columns: nothing lay between.
DIAL = (0.3, 0.6, 0.9)
_ASKED = 2_000  # rows at which the dial's strangenesses are looked up
_DRAWS = 20_000  # of the settings' joint error
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
        chosen: its setting: the largest that is trusted, else the largest guard that asks for caution, else
            the smallest.
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
    thresholds: tuple[float, ...] | None = None,
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
        method: evaluates every setting; None takes `Consensus`, which is near the truth where the log
            supports the policy, and a guarded one stays there.
        thresholds: settings of the dial, in units of what is usual in the log; None: those that follow the
            new policy at 30, 60 and 90 % of the logged steps, as far as it is supported there.
        rewards: least and most that a step can pay, for the bounds; None takes the log's.
        horizon, starts, seed, trust: as in `evaluate`.
        run: for trainings.
    """
    if thresholds is not None and not (thresholds and all(0.0 < t < math.inf for t in thresholds)):
        raise BadInput(f"thresholds={thresholds}; expected numbers above 0, e.g. (0.25, 0.5, 1.0).")
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
        Consensus() if method is None else method_of(method),
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
    thresholds: tuple[float, ...] | None = None,
    rewards: tuple[float, float] | None = None,
) -> GuardedResult:
    """The guarded policy of one target of a question; as in `guard`."""
    new, local = target.policy, LocalLog.of(question.dataset, question.seed)
    places = Places.of(question, local)
    thresholds = thresholds or _dial(question, target, local, places)
    targets: dict[float, tuple[Target, FloatArray]] = {
        t: guarded_target(question, target, guarded(new, usual, local, t), places) for t in sorted(thresholds)
    }
    targets[float("inf")] = target, np.ones(question.dataset.num_observations)
    answers, shares = [], []
    for one, followed in targets.values():
        about = replace(question, targets={"new": one})
        answers.append(ask(asked, about, how, findings)["new"])
        shares.append(followed_share(about, one, followed))
    wider = _together(answers, question.seed)
    dial = [
        _setting(threshold, share, answer, logged, wider, len(targets))
        for threshold, share, answer in zip(targets, shares, answers, strict=True)
    ]
    chosen = _chosen(dial)
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


def _chosen(dial: Sequence[Setting]) -> Setting:
    """The largest trusted setting, the new policy itself included; else the largest guard that asks for
    caution; else the smallest.
    """
    trusted = [one for one in dial if one.verdict == "trust"]
    careful = [one for one in dial[:-1] if one.verdict == "caution"]
    return (trusted or careful or dial[:1])[-1]


def _dial(question: Question, target: Target, log: LocalLog, places: Places) -> tuple[float, ...]:
    """Strangenesses up to which the new policy acts at so many of the logged steps, none above 1: what is
    strange to the log is not asked about.
    """
    generator = np.random.default_rng([question.seed, salts.GUARDED, 1])
    rows = np.sort(generator.choice(len(places.rows), min(_ASKED, len(places.rows)), replace=False))
    asked = target.actions.take(rows)
    strange = log.strangeness(places.rows[rows], asked.actions, places.row_unit[rows]).ravel()
    order = np.argsort(strange)
    reached = np.cumsum(asked.weights.ravel()[order])
    found = [float(strange[order[np.searchsorted(reached, share * reached[-1])]]) for share in DIAL]
    return tuple(sorted({min(max(threshold, 1e-6), 1.0) for threshold in found}))


def _together(answers: Sequence[Estimate], seed: int) -> float:
    """What makes the 95 % intervals of all settings hold together: theirs err alike, being of one log."""
    known = paired([Influence.of(answer) for answer in answers])
    if known is None or min(one.variance for one in known) <= 0.0:
        return stretch(len(answers))
    errors = np.stack([one.array / math.sqrt(one.variance) for one in known])
    values, vectors = np.linalg.eigh(errors @ errors.T)
    normal = np.random.default_rng([seed, salts.GUARDED, 2]).standard_normal((_DRAWS, len(answers)))
    largest = np.abs(normal @ (vectors * np.sqrt(np.maximum(values, 0.0))).T).max(axis=1)
    wider = float(np.quantile(largest, 0.95)) / quantile(0.95)
    return min(max(wider, 1.0), stretch(len(answers)))


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
    threshold: float, followed: float, answer: Estimate, logged: Estimate | None, wider: float, count: int
) -> Setting:
    half = half_width(answer)
    wide = None if half is None else wider * half
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
