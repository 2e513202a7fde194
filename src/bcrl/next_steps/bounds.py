"""Bounds: the value if all went as badly, or as well, as rewards allow once the policy leaves the log.

The *halted* process stops at the first step whose action is unlike the log (policies/local.py). It is a
dataset of its own: a transition into such a step ends the world there and pays what is left, so every method
learns features and values for the halted process itself; a mask on moments made for the whole one would not
be complete.

    low = E[ sum_{t < edge} discount^t r_t + discount^edge (the least that rewards allow afterwards) ]

Where no logged episode ends, rewards less r_min make the rest worth 0 under any horizon, exactly. Where
episodes can end, the rest is worth at least min(0, r_min) / (1 - discount).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bcrl import salts
from bcrl.data.dataset import Dataset
from bcrl.display import decimals_of, number
from bcrl.errors import BadInput
from bcrl.estimate import Estimate, FloatArray, Interval, Status
from bcrl.estimators.consensus import Consensus
from bcrl.inference.budget import BEYOND
from bcrl.inference.contrast import half_width, possible_returns
from bcrl.inference.inputs import inputs_of
from bcrl.methods import Estimator
from bcrl.next_steps.asking import KnownTarget, Places, ask, quick_margin
from bcrl.policies.local import LocalLog
from bcrl.policies.policy import TargetActions
from bcrl.question import Question, Starts, Target
from bcrl.training import Run

_CHAIN = 2_000  # rows of the chain that says when the policy leaves the log
_LONGEST = 4_096  # steps that it is followed for


@dataclass(frozen=True)
class Bounds:
    """What can be said about a policy that leaves the log.

    Attributes:
        low, high: ends within which the value lies if rewards stay within `rewards`, the halted process's own
            honest error included.
        worst, best: the same without that error.
        vacuous: what rewards alone allow.
        rewards: least and most that a step can pay.
        given: the user said so; else these are the least and the most in the log.
        within: share of the discounted horizon that is followed inside the support, at least.
        half_outside: step at which half of the episodes have left it; None where fewer than half do.
        can_end: logged episodes end before the record does.
    """

    low: float
    high: float
    worst: float
    best: float
    vacuous: Interval
    rewards: tuple[float, float]
    given: bool
    within: float
    half_outside: int | None
    can_end: bool

    @property
    def known(self) -> bool:
        """False where every logged step paid the same: nothing shows what others may pay."""
        return self.rewards[1] > self.rewards[0]

    @property
    def sentences(self) -> list[str]:
        """For a person: what it can be worth, and how far it can be followed."""
        by = "as you said" if self.given else "as all logged ones do"
        followed = f"The log can follow the policy for {self.within:.0%} of the discounted future."
        left = (
            "More than half of the episodes never leave what the log knows."
            if self.half_outside is None
            else f"After {self.half_outside} steps half of the episodes have left what the log knows."
        )
        low, high = in_steps_of(self.high - self.low, self.low, self.high)
        least, most = in_steps_of(self.rewards[1] - self.rewards[0], *self.rewards)
        worth = (
            f"At worst it is worth {low}, at best {high}, if it is stopped where the log ends and rewards "
            f"stay within {least} to {most} ({by})."
        )
        if not self.known:
            worth = (
                f"Every logged step paid {number(self.rewards[0])}, so nothing shows what the policy may "
                "earn where the log ends. Say the least and the most that a step can pay (rewards=)."
            )
        return [worth, f"{followed} {left}"]


def in_steps_of(width: float, *values: float) -> list[str]:
    """Numbers in words, rounded to a hundredth or so of a width."""
    decimals = decimals_of(width / 2.0)
    return [number(value if decimals is None else round(value, decimals), decimals) for value in values]


@dataclass(frozen=True)
class _Edge:
    """What is taken off every reward, what the rest is worth at the edge, and what is added in the end."""

    shift: float
    rest: float
    constant: float


@dataclass(frozen=True, eq=False)
class Halted:
    """A policy kept to its supported actions.

    Attributes:
        rows: its actions at the log's rows, given that they are supported.
        starts: the same at the starts.
        out: which transitions lead out of the support, shape (N,).
        inside: probability of a supported action at every start, shape (n0,).
    """

    rows: TargetActions
    starts: TargetActions
    out: NDArray[np.bool_]
    inside: FloatArray

    @classmethod
    def of(cls, question: Question, target: Target, log: LocalLog, threshold: float) -> "Halted":
        dataset, places = question.dataset, Places.of(question, log)
        generator = np.random.default_rng([question.seed, salts.HALTED])
        rows, mass = _kept(
            target.actions, log.strangeness(places.rows, target.actions.actions, places.row_unit), threshold
        )
        starts, inside = _kept(
            target.start_actions,
            log.strangeness(places.starts, target.start_actions.actions, places.start_unit),
            threshold,
        )
        # A stochastic policy leaves with the probability of its unsupported actions: drawn once a row.
        leaves = generator.random(len(dataset)) >= mass[dataset.rows + 1]
        return cls(rows, starts, np.asarray(leaves & ~dataset.terminated), inside)


def _kept(target: TargetActions, strange: FloatArray, threshold: float) -> tuple[TargetActions, FloatArray]:
    """The policy's supported actions with their probabilities given that, and the probability of these."""
    inside = strange <= threshold
    mass = (target.weights * inside).sum(axis=1)
    if target.exact:
        weights = np.where(mass[:, None] > 0.0, target.weights * inside, target.weights)
        return TargetActions(target.actions, weights / weights.sum(axis=1, keepdims=True), True), mass
    # Draws have equal weights: supported ones take the places of the others in turn.
    order = np.argsort(~inside, axis=1, kind="stable")
    turn = np.arange(inside.shape[1]) % np.maximum(inside.sum(axis=1), 1)[:, None]
    chosen = np.take_along_axis(order, turn, axis=1)
    actions = np.take_along_axis(target.actions, chosen[:, :, None], axis=1)
    return TargetActions(np.ascontiguousarray(actions), target.weights), mass


def bounds(
    question: Question,
    target: Target,
    method: Estimator,
    run: Run,
    *,
    rewards: tuple[float, float] | None = None,
    threshold: float = 1.0,
    log: LocalLog | None = None,
    beyond: tuple[float, float] = (0.0, 0.0),
) -> Bounds:
    """The bounds of one policy's value.

    Args:
        question: what is asked.
        target: the policy.
        method: evaluates the halted process, once for each end.
        run: for trainings.
        rewards: least and most that a step can pay, outside of the log too; None takes the log's.
        threshold: strangeness above which an action is unsupported.
        log: the log's neighbours, where they are there already.
        beyond: what is taken off and added for a policy whose own value lies beyond every logged return
            (`beyond_the_log`).
    """
    dataset = question.dataset
    least, most = _range(dataset, rewards)
    can_end = bool(dataset.terminated.any())
    low, high = _edges(question, (least, most), rewards is not None)
    vacuous = Interval(low.constant + low.rest, high.constant + high.rest, 1.0)
    local = LocalLog.of(dataset, question.seed) if log is None else log
    halted = Halted.of(question, target, local, threshold)
    share = float(halted.inside.mean())
    ends, values = [], []
    for edge, sign, more in ((low, -1.0, beyond[0]), (high, 1.0, beyond[1])):
        asked = halted_question(question, halted, edge.rest, edge.shift, target)
        worth, margin = edge.rest, 0.0  # where nothing can be followed, or nothing was learned
        if len(asked.starts):
            quick = isinstance(method, Consensus)
            answer = (method.estimate(asked, run) if quick else ask(method, asked, run))["halted"]
            if np.isfinite(answer.value) and answer.status is not Status.DIVERGED:
                worth = answer.value
                margin = quick_margin(answer, asked) if quick else half_width(answer) or 0.0
        values.append(edge.constant + share * worth + (1.0 - share) * edge.rest)
        ends.append(values[-1] + sign * (share * margin + more))
    within, left = _followed(question, halted, target)
    four = [float(x) for x in np.clip([*ends, *values], vacuous.low, vacuous.high)]
    given = rewards is not None
    return Bounds(four[0], four[1], four[2], four[3], vacuous, (least, most), given, within, left, can_end)


def beyond_the_log(answer: Estimate) -> tuple[float, float]:
    """How far a policy's value may lie below and above what was followed, because it lies beyond every logged
    return: the budget's entry on the far side, the excess once on the log's (as in decision.py).
    """
    entries = () if answer.budget is None else answer.budget.entries
    far = sum(entry.amount for entry in entries if entry.name == "beyond the log")
    near = far / BEYOND
    return (far, near) if answer.value < answer.stats.get("evidence/lowest_return", -np.inf) else (near, far)


def _range(dataset: Dataset, rewards: Sequence[float] | None) -> tuple[float, float]:
    seen = float(dataset.rewards.min()), float(dataset.rewards.max())
    if rewards is None:
        return seen
    least, most = float(rewards[0]), float(rewards[1])
    if not (np.isfinite([least, most]).all() and least <= seen[0] and seen[1] <= most):
        raise BadInput(
            f"rewards=({least:g}, {most:g}) does not hold what was logged, {seen[0]:g} to {seen[1]:g}. Pass "
            "the least and the most that one step can pay."
        )
    return least, most


def _edges(question: Question, rewards: tuple[float, float], given: bool) -> tuple[_Edge, _Edge]:
    dataset, discount, horizon = question.dataset, question.discount, question.horizon
    steps = _steps(discount, horizon)
    if not dataset.terminated.any():
        return _Edge(rewards[0], 0.0, rewards[0] * steps), _Edge(rewards[1], 0.0, rewards[1] * steps)
    if given:
        rest = (min(0.0, rewards[0]) * steps, max(0.0, rewards[1]) * steps)
    else:
        found = possible_returns(dataset, discount, horizon)
        rest = (min(0.0, found[0]), max(0.0, found[1]))
    # Under a horizon fewer steps may be left; all of them is the safe side.
    return _Edge(0.0, rest[0], 0.0), _Edge(0.0, rest[1], 0.0)


def _steps(discount: float, horizon: int | None) -> float:
    """1 + discount + discount^2 + ..., so many terms."""
    if discount == 1.0:
        return float(horizon or 0)
    return (1.0 - (0.0 if horizon is None else discount**horizon)) / (1.0 - discount)


def halted_question(
    question: Question, halted: Halted, edge: float, shift: float, target: Target
) -> Question:
    """The question about the halted process: `edge` is paid where it stops, `shift` taken off every reward.

    From those starts at which the policy's action is supported, drawn with its probability.
    """
    generator = np.random.default_rng([question.seed, salts.HALTED, 1])
    keep = np.flatnonzero(generator.random(len(halted.inside)) < halted.inside)
    starts = Starts(
        {key: value[keep] for key, value in question.starts.observations.items()},
        None if question.starts.unit is None else question.starts.unit[keep],
    )
    rewards = question.dataset.rewards - shift + question.discount * edge * halted.out
    dataset, rows = cut(question.dataset, rewards, halted.out)
    stopped = KnownTarget(
        target.policy, dataset, starts, question.seed, halted.rows.take(rows), halted.starts.take(keep)
    )
    return replace(question, dataset=dataset, starts=starts, targets={"halted": stopped})


def cut(dataset: Dataset, rewards: FloatArray, out: NDArray[np.bool_]) -> tuple[Dataset, NDArray[np.int64]]:
    """The log with these rewards, ended where `out` says, and the rows of the first one that it holds.

    The transitions stay the same and in order; an episode that ends early is followed by a piece of its own.
    """
    last = np.zeros(len(dataset), dtype=bool)
    last[dataset.offsets[1:] - 1] = True
    offsets = np.append(0, np.flatnonzero(last | out) + 1)
    piece = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    origin = dataset.episode_of[offsets[:-1]]
    rows = np.empty(len(dataset) + len(offsets) - 1, dtype=np.int64)
    rows[np.arange(len(dataset)) + piece] = dataset.rows
    rows[offsets[1:] + np.arange(len(offsets) - 1)] = dataset.rows[offsets[1:] - 1] + 1
    ended = dataset.terminated | out
    changed: dict[str, Any] = {
        "observations": dataset.observe(rows),
        "stack": 1,
        "rewards": rewards,
        "terminated": ended,
        "truncated": (last | out) & ~ended,
        "offsets": offsets,
        "cluster": dataset.units[origin],
        "behaviour": None if dataset.behaviour is None else dataset.behaviour[origin],
        "cohort": None,
    }
    return replace(dataset, **changed), rows


def _followed(question: Question, halted: Halted, target: Target) -> tuple[float, int | None]:
    """Share of the discounted horizon within support, and the step at which half of the mass is outside.

    By a chain over logged transitions: from (s', the policy's supported action) to the nearest logged one.
    """
    asked = halted_question(question, halted, 0.0, 0.0, target)
    share, discount = float(halted.inside.mean()), question.discount
    if not len(asked.starts):
        return 0.0, 0
    inputs = inputs_of(asked, asked.targets["halted"], rows=_CHAIN)
    tree, draws = cKDTree(inputs.here), inputs.following.shape[1]
    following = tree.query(inputs.following.reshape(-1, inputs.here.shape[1]))[1].reshape(-1, draws)
    first = tree.query(inputs.starts.reshape(-1, inputs.here.shape[1]))[1]
    out, ended = halted.out[inputs.transitions], inputs.terminated
    first_weights = inputs.start_weights.reshape(-1) * (share / len(inputs.starts))
    now = np.bincount(first, weights=first_weights, minlength=len(out)).astype(np.float64)
    weights = inputs.following_weights * ~(ended | out)[:, None]
    lived, edge, outside, half = 0.0, 1.0 - share, 1.0 - share, 0 if share <= 0.5 else None
    for step in range(min(question.horizon or _LONGEST, _LONGEST)):
        lived += discount**step * float(now.sum())
        left = float(now @ out)
        edge, outside = edge + discount ** (step + 1) * left, outside + left
        half = step + 1 if half is None and outside >= 0.5 else half
        moved = (now[:, None] * weights).ravel()
        now = np.asarray(np.bincount(following.ravel(), weights=moved, minlength=len(out)), np.float64)
        if now.sum() < 1e-3:
            break
    return lived / max(lived + edge * _steps(discount, question.horizon), 1e-12), half
