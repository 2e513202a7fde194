"""Is this data fit for evaluation, and does the policy fit the data? `examine` answers before any training.

Everything except images is read completely. Of the images, and of the policy's answers, a few hundred are
looked at, evenly spaced, so that 100k frames on disk take seconds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset, pieces
from bcrl.data.storage.contents import layout_errors
from bcrl.doctor.findings import Bearing, Finding
from bcrl.doctor.log import action_counts, examine_episodes, examine_rows
from bcrl.errors import BadInput
from bcrl.policies.policy import (
    AnyPolicy,
    StochasticPolicy,
    TargetActions,
    UnboundPolicy,
    UnresolvedPolicy,
    actions_at,
    resolve_policy,
)

_ORDER = {"error": 0, "warning": 1, "note": 2}


Given = AnyPolicy | UnresolvedPolicy | UnboundPolicy
Policies = Given | Mapping[str, Given]


def examine(dataset: Dataset, policies: Policies | None = None) -> list[Finding]:
    """Every finding, worst first.

    Args:
        dataset: the logged data.
        policies: one policy, or several by name; what each does on the data is checked too.
    """
    broken = [
        Finding(
            "error", what, "the whole array", "Build the dataset with Dataset.from_arrays or load_dataset."
        )
        for what in layout_errors(dataset)
    ]
    if broken:
        return broken
    read = [
        Finding("note", note, "the table", "Nothing, if that is what you mean.") for note in dataset.notes
    ]
    found = [*read, *examine_rows(dataset), *examine_episodes(dataset)]
    if policies is not None and not any(finding.severity == "error" for finding in found):
        found += _examine_policies(dataset, policies)
    return sorted(found, key=lambda finding: _ORDER[finding.severity])


def _examine_policies(dataset: Dataset, policies: Policies) -> list[Finding]:
    if not isinstance(policies, Mapping):
        return list(_examine_policy(dataset, policies))
    return [
        replace(
            finding,
            where=f"{name}: {finding.where}" if len(policies) > 1 else finding.where,
            policy=name,
        )
        for name, policy in policies.items()
        for finding in _examine_policy(dataset, policy)
    ]


_SAMPLE = 512
# What a user's policy raises when observations do not fit it; anything else is a bug and should be seen.
_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def _examine_policy(dataset: Dataset, policy: Given) -> Iterator[Finding]:
    """Findings from the policy's answers at a few hundred observations, evenly spaced."""
    asked = np.linspace(0, len(dataset) - 1, min(_SAMPLE, len(dataset))).astype(np.int64)
    rows = asked + dataset.episodes_at(asked)
    observations = dataset.observe(rows)
    try:
        known = resolve_policy(dataset, policy)
        answers, again = (
            actions_at(dataset, known, observations, num_samples=4, generator=np.random.default_rng(0))
            for _ in range(2)
        )
        drawn = isinstance(known, StochasticPolicy)  # its draws differ anyway
        depends = not drawn and _depends_on_the_batch(dataset, known, rows, answers)
    except BadInput as error:
        yield Finding("error", str(error), "the policy", "Evaluate a policy that was made for this data.")
        return
    except _FAILURES as error:
        what = (
            f"The policy failed on {len(rows)} observations: {type(error).__name__}: "
            f"{' '.join(str(error).split())}"
        )
        shapes = {key: value.shape[1:] for key, value in observations.items()}
        yield Finding(
            "error", what, "the policy", f"It was called with rows of shape {shapes}; does it expect others?"
        )
        return
    # exact answers list all actions at every row: only their weights can differ
    same = answers.exact or np.allclose(again.actions, answers.actions, atol=1e-5)
    repeated = same and np.allclose(again.weights, answers.weights, atol=1e-5)
    if not repeated and not drawn:
        what = (
            "The policy answered the same observations differently the second time: "
            "it has a memory or is random."
        )
        do = "Give it sample and log_prob if it is random; policies with a memory cannot be evaluated."
        yield Finding("error", what, "the policy", do)
    elif depends:
        what = "The policy's answer to an observation depends on the others that it is asked about with it."
        do = "Evaluate it as it is used, one observation at a time: batched=False; or turn batch norm off."
        yield Finding("error", what, "the policy", do)
    for note in getattr(known, "notes", ()):
        yield Finding("note", note, "the policy", "Nothing, if that is what you mean.")
    yield from _discrete(dataset, answers) if dataset.discrete else _continuous(dataset, answers)


# So few that what depends on their mean, their spread or their place is seen.
_FEW = 5


def _depends_on_the_batch(
    dataset: Dataset, policy: AnyPolicy, rows: NDArray[np.int64], answers: TargetActions
) -> bool:
    """Whether a few of the rows, asked about by themselves and backwards, are answered otherwise.

    Sums in another order differ by rounding; of discrete actions, one in a near tie may be another.
    """
    place = np.linspace(0, len(rows) - 1, min(_FEW, len(rows))).astype(np.int64)[::-1]
    few = dataset.observe(rows[place])
    alone = actions_at(dataset, policy, few, num_samples=1, generator=np.random.default_rng(0))
    before = answers.take(place)
    size = 1.0
    if not dataset.discrete:
        size = max(float(np.ptp(answers.actions)), 0.01 * float(np.abs(answers.actions).max()), 1e-9)
    moved = np.abs(alone.weights - before.weights).max(axis=1)
    if not answers.exact:
        moved = moved + np.abs(alone.actions - before.actions).max(axis=(1, 2)) / size
    return int((moved > 1e-3).sum()) > (1 if dataset.discrete and not answers.exact else 0)


def _discrete(dataset: Dataset, answers: TargetActions) -> Iterator[Finding]:
    """A discrete policy against the actions that were logged."""
    share = (
        answers.weights.mean(axis=0)  # a thousand actions at every row would be a table of gigabytes
        if answers.exact
        else (answers.weights[:, :, None] * answers.actions).sum(axis=1).mean(axis=0)
    )
    never = action_counts(dataset) == 0
    if never.any() and share[never].sum() > 0.0:
        actions = np.flatnonzero(never & (share > 0))
        what = f"{share[never].sum():.0%} of the policy's choices are actions that the data never took."
        where = f"actions {', '.join(dataset.action_name(one) for one in actions[:8].tolist())}"
        bears = _unlike(float(share[never].sum()))
        yield Finding("warning", what, where, "The data say nothing about these actions.", bears)
    if share.max() > 0.999 and dataset.action_dim > 1:
        what = f"The policy always takes action {dataset.action_name(int(share.argmax()))} on this data."
        yield Finding("note", what, "the policy", "Check its inputs if that is not what you expect.")


def _unlike(share: float) -> Bearing | None:
    """A few actions beyond all logged ones hardly move a value; where they are a third, it is a guess."""
    if share < 0.05:
        return None
    return Bearing("actions beyond the log's", "distrust" if share > 0.3 else "caution")


def _continuous(dataset: Dataset, answers: TargetActions) -> Iterator[Finding]:
    """A continuous policy against the range, the spread and the edges of the logged actions."""
    ours = answers.actions.reshape(-1, answers.actions.shape[-1]).astype(np.float64)
    logged = dataset.actions.reshape(len(dataset), -1)
    low, high = logged.min(axis=0).astype(np.float64), logged.max(axis=0).astype(np.float64)
    margin = 0.05 * (high - low) + 1e-6
    outside = ((ours < low - margin) | (ours > high + margin)).mean(axis=0)
    worst = int(outside.argmax())
    if outside[worst] > 0.01:
        what = (
            f"{outside[worst]:.0%} of the policy's actions leave the logged range in column {worst}: "
            f"[{ours[:, worst].min():.3g}, {ours[:, worst].max():.3g}] against [{low[worst]:.3g}, "
            f"{high[worst]:.3g}]."
        )
        do = "Check the scale. If it is right, the data cannot say what these actions would earn."
        yield Finding("warning", what, f"action column {worst}", do, _unlike(float(outside[worst])))
    yield from _spread(ours, low, high)
    bound = np.maximum(np.abs(low), np.abs(high)).clip(1e-12)
    saturated = float((np.abs(ours) >= 0.999 * bound).mean())
    if saturated > 0.5:
        edge = sum(int((np.abs(logged[piece]) >= 0.999 * bound).sum()) for piece in pieces(logged))
        usual = edge / logged.size
        what = (
            f"{saturated:.0%} of the policy's actions are at the edge of the range ({usual:.0%} of the "
            "logged ones)."
        )
        do = "Check that the policy gets observations on the scale it was trained on."
        yield Finding("warning" if usual < 0.25 else "note", what, "the policy", do)


def _spread(
    ours: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> Iterator[Finding]:
    still = np.ptp(ours, axis=0) == 0
    if len(ours) > 1 and still.all() and (high > low).any():
        what = f"The policy gives the same action everywhere: {np.round(ours[0], 4).tolist()}."
        yield Finding(
            "warning", what, "the policy", "Check that it gets the right observations, on the right scale."
        )
        return
    size, usual = np.abs(ours).max(axis=0), np.maximum(np.abs(low), np.abs(high))
    ratio = size / usual.clip(1e-12)
    if (ratio < 0.05).all() and (usual > 0).all():
        what = f"The policy's actions are at most {size.max():.3g}; the logged ones reach {usual.max():.3g}."
        yield Finding(
            "warning", what, "the policy", "Check that its output is scaled to the action's bounds."
        )


def stop_at_errors(findings: list[Finding]) -> None:
    """Refuse data or policies with an error, by its first line, before any training."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        more = f" ({len(errors) - 1} more: run bcrl doctor.)" if len(errors) > 1 else ""
        raise BadInput(f"{errors[0].what} Where: {errors[0].where}. {errors[0].do}{more}")
