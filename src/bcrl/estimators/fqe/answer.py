"""From a trained critic to an `Estimate`: value, interval over bootstrap members, audits and checks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bcrl.data.dataset import Dataset
from bcrl.data.select import some_episodes
from bcrl.estimate import Check, Estimate, FloatArray, Interval, Status, Verdict
from bcrl.estimators.fqe.value import FQEValue, spread
from bcrl.inference import checks
from bcrl.inference.intervals import interval_around, start_variance
from bcrl.inference.support import (
    action_support,
    predictable_error,
    states_of,
    vectors_beside_frames,
)
from bcrl.policies.policy import TargetActions
from bcrl.question import Question, Target

# Transitions that the audits look at; images have to be encoded first.
_VECTORS, _PIXELS = 12_000, 3_000


@dataclass(frozen=True, eq=False)
class Trained:
    """What training left behind.

    Attributes:
        function: V and Q.
        status: how it ended.
        history: curves of the training, by name.
        drift: change of the value over the last two quarters of training, relative to it.
        weights: each member's weight of each unit, (members, units); None where all have the same.
    """

    function: FQEValue
    status: Status
    history: Mapping[str, list[float]]
    drift: float
    weights: FloatArray | None


def answer(trained: Trained, method: str, question: Question, target: Target) -> Estimate:
    """The estimate of one policy.

    Args:
        trained: networks and curves.
        method: text form of the method.
        question: what was asked.
        target: the policy.
    """
    scale, num_units = trained.function.network.scale, question.num_units
    members = trained.function.at(question.starts.observations, target.start_actions)
    per_start = members.mean(axis=0)
    value = float(per_start.mean())
    broken = trained.status is Status.DIVERGED or not math.isfinite(value)
    error, interval = (None, None) if broken else _interval(trained, members, question)
    found = {}
    if not broken and len(question.dataset) > 20:
        found = audit(trained.function, question.dataset, target.actions, question.seed)
    numbers = {
        "steps": trained.history["step"][-1],
        "drift": trained.drift,
        "largest_possible": scale.limit,
        "members": float(len(members)),
        "member_spread": float(members.mean(axis=1).std(ddof=1)) if len(members) > 1 else 0.0,
        "units": float(num_units),
        **{name: series[-1] for name, series in trained.history.items() if name in ("loss", "clipped")},
        **found,
    }
    return Estimate(
        value=float("nan") if broken else value,
        method=method,
        discount=scale.discount,
        horizon=scale.horizon,
        interval=interval,
        standard_error=error,
        per_start=per_start,
        status=Status.DIVERGED if broken else trained.status,
        checks=_checks(trained, value, error, numbers, num_units),
        curves={f"train/{name}": series for name, series in trained.history.items()}
        | {"member_values": members.mean(axis=1).tolist()},
        stats=numbers,
        value_function=trained.function,
    )


def _interval(
    trained: Trained, members: FloatArray, question: Question
) -> tuple[float | None, Interval | None]:
    """Standard error and interval: members resample the data, and the start states where those are the data's own."""
    starts, num_units = question.starts, question.num_units
    if trained.weights is None or len(members) < 2 or num_units < 2:
        return None, None
    if starts.unit is None:
        values, given = members.mean(axis=1), start_variance(members.mean(axis=0))
    else:
        weight = trained.weights[:, starts.unit]
        values, given = (members * weight).sum(axis=1) / weight.sum(axis=1), 0.0
    error = math.sqrt(float(spread(values, num_units)) ** 2 + given)
    return error, interval_around(float(members.mean()), error, len(members) - 1, question.level)


def audit(function: FQEValue, dataset: Dataset, target: TargetActions, seed: int) -> dict[str, float]:
    """Action support and what is still predictable in the TD errors (support.py), on a sample of whole episodes."""
    limit = _PIXELS if function.network.encoder.has_pixels else _VECTORS
    part, rows = some_episodes(dataset, limit, seed)
    chosen = target.take(rows)
    observations = part.observe(np.arange(part.num_observations))
    states = states_of(part, None if vectors_beside_frames(part) else function.states(observations))
    here = {key: values[part.rows] for key, values in observations.items()}
    actions = part.action_matrix(part.actions)
    ahead = function.at(observations, chosen).mean(axis=0)[part.rows + 1]
    scale = function.network.scale
    # With a horizon Q(s, a) is that of H steps and V(s') should be that of H - 1; its own last step hardly matters.
    following = np.where(part.terminated, 0.0, ahead)
    surprise = part.rewards + scale.discount * following - function.q(here, actions)
    inputs = np.concatenate([states[part.rows], actions], axis=1)
    found = predictable_error(inputs, surprise, part, seed=seed)
    return {
        "action_support": action_support(states, part, chosen, np.ones(len(part)), seed=seed),
        "td_error": float(np.sqrt(np.mean(surprise**2))),
        "predictable_td_error": found.error,
        "audit_rows": found.rows,
    }


def _checks(
    trained: Trained, value: float, error: float | None, numbers: Mapping[str, float], num_units: int
) -> tuple[Check, ...]:
    scale = trained.function.network.scale
    found = [_flat(trained), _possible(value, scale.limit)]
    if "clipped" in numbers:
        found.append(_clipped(numbers["clipped"]))
    if trained.weights is not None:
        found += [checks.precision(error, value), checks.enough_units(num_units)]
    if "action_support" in numbers:
        found.append(checks.action_support_anywhere(numbers["action_support"]))
        if scale.horizon is None:
            bound = scale.longest * numbers["predictable_td_error"]
            found.append(checks.bellman_error(bound, value, numbers["audit_rows"]))
    return tuple(found)


def _flat(trained: Trained) -> Check:
    verdict: Verdict = {Status.CONVERGED: "trust", Status.HORIZON: "trust", Status.BUDGET: "caution"}.get(
        trained.status, "distrust"
    )  # type: ignore[assignment]
    steps = int(trained.history["step"][-1])
    # Before enough evaluations there is no drift to speak of.
    moved = (
        f"while the value still moved by {trained.drift:.1%}"
        if math.isfinite(trained.drift)
        else "too soon to see the value settle"
    )
    meaning = {
        "trust": f"The value is flat after {steps} steps: it moved by {trained.drift:.1%} over the last half of training.",
        "caution": f"The budget of {steps} steps ended {moved}: give it more steps.",
        "distrust": f"Training blew up after {steps} steps: this data and this network do not contract.",
    }[verdict]
    return Check("flat", trained.drift, None, verdict, meaning)


def _possible(value: float, limit: float) -> Check:
    relative = abs(value) / limit if limit > 0.0 else 0.0 if value == 0.0 else math.inf
    verdict: Verdict = "trust" if relative <= 1.0 else "distrust"
    meaning = f"The value is {relative:.0%} of the largest that the logged rewards allow" + (
        "." if verdict == "trust" else ": no policy can earn that."
    )
    return Check("possible value", relative, 1.0, verdict, meaning)


def _clipped(share: float) -> Check:
    verdict = checks.graded(share, 0.01, 0.2)
    meaning = f"{share:.1%} of the regression targets were clipped" + (
        "." if verdict == "trust" else ": clipping hides a divergence."
    )
    return Check("clipped targets", share, 0.01, verdict, meaning)
