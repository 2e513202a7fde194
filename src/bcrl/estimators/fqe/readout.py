"""From trained networks to an `Estimate`: value, interval over bootstrap members, audits and checks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from bcrl.data.select import some_episodes
from bcrl.estimate import Estimate, FloatArray, Interval, Status
from bcrl.estimators.fqe.checks import fqe_checks
from bcrl.estimators.fqe.value import FQEValue, spread
from bcrl.inference.evidence import action_support, predictable_error
from bcrl.inference.inputs import states_of
from bcrl.inference.intervals import interval_around, start_variance
from bcrl.linear import td_errors
from bcrl.networks import encode_rows
from bcrl.policies.policy import TargetActions
from bcrl.question import Question, Target

# Transitions that the audits look at; fewer of images, which have to be encoded first.
_VECTORS, _PIXELS = 12_000, 3_000
_FEWEST = 20  # transitions; fewer are not worth an audit


@dataclass(frozen=True, eq=False)
class Trained:
    """What training left behind.

    Attributes:
        function: V and Q.
        status: how it ended.
        history: curves of the training, by name.
        drift: change of the value over the last two quarters of training, relative to it.
        unit_weights: each member's weight of each unit, (members, units); None where all have the same.
    """

    function: FQEValue
    status: Status
    history: Mapping[str, list[float]]
    drift: float
    unit_weights: Tensor | None


def read_out(trained: Trained, method: str, question: Question, target: Target) -> Estimate:
    """The estimate of one policy.

    Args:
        trained: networks and curves.
        method: text form of the method.
        question: what was asked.
        target: the policy.
    """
    function, history = trained.function, trained.history
    members = function.at(function.encode(question.starts.observations), target.start_actions)
    per_start = members.mean(axis=0)
    value = float(per_start.mean())
    diverged = trained.status is Status.DIVERGED or not math.isfinite(value)
    error, interval = (None, None) if diverged else _interval(trained, members, question)
    stats = {
        "steps": history["step"][-1],
        "drift": trained.drift,
        "largest_possible": function.network.scale.limit,
        "members": float(len(members)),
        "member_spread": float(members.mean(axis=1).std(ddof=1)) if len(members) > 1 else 0.0,
        "units": float(question.num_units),
        **{name: history[name][-1] for name in ("loss", "clipped") if name in history},
    }
    if not diverged and len(question.dataset) > _FEWEST:
        stats |= audit(function, question, target.actions)
    return Estimate(
        value=float("nan") if diverged else value,
        method=method,
        discount=question.discount,
        horizon=question.horizon,
        interval=interval,
        standard_error=error,
        per_start=per_start,
        status=Status.DIVERGED if diverged else trained.status,
        checks=fqe_checks(trained.status, value, error, stats, function.network.scale),
        curves={f"train/{name}": series for name, series in history.items()}
        | {"member_values": members.mean(axis=1).tolist()},
        stats=stats,
        value_function=function,
    )


def _interval(
    trained: Trained, members: FloatArray, question: Question
) -> tuple[float | None, Interval | None]:
    """Standard error and interval: members resample the data, start states too where they are the data's."""
    starts, num_units = question.starts, question.num_units
    if trained.unit_weights is None or num_units < 2:
        return None, None
    if starts.unit is None:
        values, between_starts = members.mean(axis=1), start_variance(members.mean(axis=0))
    else:
        weight = trained.unit_weights.double().cpu().numpy()[:, starts.unit]
        values, between_starts = (members * weight).sum(axis=1) / weight.sum(axis=1), 0.0
    error = math.sqrt(float(spread(values, num_units)) ** 2 + between_starts)
    return error, interval_around(float(members.mean()), error, len(members) - 1, question.level)


def audit(function: FQEValue, question: Question, target: TargetActions) -> dict[str, float]:
    """Action support, and what is still predictable in the TD errors, on some whole episodes."""
    network, seed = function.network, question.seed
    limit = _PIXELS if network.encoder.has_pixels else _VECTORS
    part, rows = some_episodes(question.dataset, limit, seed)
    chosen, z = target.take(rows), encode_rows(network.encoder.encode, part)
    actions = part.action_matrix(part.actions)
    logged = TargetActions(actions[:, None], np.ones((len(actions), 1)))
    # With a horizon Q(s, a) is of H steps and V(s') should be of H - 1; the step between hardly matters.
    v = function.at(z, chosen).mean(axis=0)
    q = function.at(z[part.rows], logged).mean(axis=0)
    errors = td_errors(part.rewards, part.terminated, q, v[part.rows + 1], question.discount)
    states = states_of(part, z)
    inputs = np.concatenate([states[part.rows], actions], axis=1)
    predictable = predictable_error(inputs, errors, part, seed=seed)
    return {
        "action_support": action_support(states, part, chosen, np.ones(len(part)), seed=seed),
        "td_error": float(np.sqrt(np.mean(errors**2))),
        "predictable_td_error": predictable.error,
        "audit_rows": predictable.rows,
    }
