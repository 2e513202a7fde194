"""What can be said and done where a value is not trusted, one line each, in words for a manager.

The bounds come from part of the log and from `Consensus`, which trains nothing: they cost less than any
method's answer. The trial is arithmetic. The guarded policy is valued at every setting of its dial, so it is
made only when it is asked for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bcrl.comparison import Difference
from bcrl.data.select import some_episodes
from bcrl.doctor import Finding
from bcrl.estimate import TRUST_WIDTH, Estimate, NextStep
from bcrl.estimators.consensus import Consensus
from bcrl.inference.budget import LEAST_ROWS
from bcrl.inference.contrast import discounted_returns, half_width, logged_value
from bcrl.next_steps.bounds import Bounds, beyond_the_log, bounds
from bcrl.next_steps.guard import GuardedResult, guarded_result
from bcrl.next_steps.trial import episodes_to_settle
from bcrl.question import Question
from bcrl.training import Run, silent

_ROWS, _DIAL_ROWS = 4_000, 8_000  # transitions of whole episodes that bounds and dial look at
_MOST_ACTIONS = 200  # discrete ones, whose shares near a state can be counted
_MOST = 1_000_000  # episodes: a trial of more settles nothing


def advice(
    question: Question,
    name: str,
    answer: Estimate,
    difference: Difference | None,
    logged: Estimate | None,
    *,
    dial: bool = False,
    findings: Sequence[Finding] = (),
) -> tuple[NextStep, ...]:
    """What can be said and done about one policy; nothing where its value is trusted and decided.

    Args:
        question: what was asked.
        name: of the policy.
        answer: the estimate that speaks for it.
        difference: to the log's own value, with its decision; None where it cannot be had.
        logged: the log's own value, where it answers the same question.
        dial: value the guarded policy too.
        findings: the doctor's.
    """
    undecided = difference is None or difference.decision in (None, "cannot tell")
    if not dial and answer.verdict == "trust" and not undecided:
        return ()
    if len(question.dataset) < LEAST_ROWS or not question.dataset.ordered:
        return ()
    found = []
    vectors = set(question.dataset.observations) - set(question.dataset.pixel_keys)
    if (question.dataset.num_actions or 0) > _MOST_ACTIONS:
        vectors = set()
    if vectors and (dial or answer.verdict != "trust"):
        asked = _part(question, name, _ROWS)
        found += bound_steps(
            bounds(asked, asked.targets[name], Consensus(), Run(show=silent), beyond=beyond_the_log(answer))
        )
    if vectors and dial:
        asked = _part(question, name, _DIAL_ROWS)
        base = logged_value(asked.dataset, discount=asked.discount, horizon=asked.horizon)
        base = None if logged is None else base
        target, run = asked.targets[name], Run(show=silent)
        found += guard_steps(guarded_result(asked, target, None, Consensus(), run, findings, base))
    return (*found, *trial_steps(question, answer, difference, logged))


def _part(question: Question, name: str, rows: int) -> Question:
    """The question about one policy on some whole episodes."""
    policy, dataset = question.targets[name].policy, question.dataset
    if len(dataset) > rows:
        dataset = some_episodes(dataset, rows, question.seed).dataset
    own = question.starts.unit is not None
    return Question.of(
        dataset,
        {name: policy},
        discount=question.discount,
        horizon=question.horizon,
        starts=None if own else question.starts,
        level=question.level,
        seed=question.seed,
    )


def bound_steps(found: Bounds) -> list[NextStep]:
    """What the policy can be worth, and how far the log can follow it."""
    worth, followed = found.sentences
    ends = {"low": found.low, "high": found.high, "least": found.rewards[0], "most": found.rewards[1]}
    half = None if found.half_outside is None else float(found.half_outside)
    return [
        NextStep("bounds", worth, ends if found.known else {}),
        NextStep("followed", followed, {"within": found.within, "half_outside": half}),
    ]


def guard_steps(found: GuardedResult) -> list[NextStep]:
    """The guarded policy, and the largest share of episodes that the new one may have."""
    one, around = found.chosen, found.chosen.honest
    numbers = {
        "threshold": one.threshold if math.isfinite(one.threshold) else None,
        "followed": one.followed,
        "value": one.estimate.value,
        "low": None if around is None else around.low,
        "high": None if around is None else around.high,
    }
    steps = [NextStep("guarded", found.guarded_sentence, numbers, one.verdict)]
    if found.blend_sentence:
        steps.append(NextStep("blend", found.blend_sentence, {"share": found.blend}))
    return steps


def trial_steps(
    question: Question, answer: Estimate, difference: Difference | None, logged: Estimate | None
) -> list[NextStep]:
    """The trial that would settle what is open: the decision where the log has a value, else the value.

    Episodes are taken to vary as logged ones do. The mean of a trial and the log's own mean are each as far
    off as their intervals say, and the difference has to be larger than both.
    """
    spread = float(np.std(discounted_returns(question.dataset, question.discount, question.horizon)))
    scale = max(abs(answer.value), 0.0 if answer.budget is None else answer.budget.scale)
    if not (math.isfinite(answer.value) and spread > 0.0 and scale > 0.0):
        return [NextStep("trial", _FIRST, {"episodes": 20.0})]
    goals = {}
    if difference is not None and logged is not None and difference.decision == "cannot tell":
        goals["whether it is better than the log"] = abs(difference.value) - (half_width(logged) or 0.0)
    if answer.verdict != "trust":
        goals[f"what it is worth to {TRUST_WIDTH:.0%}"] = TRUST_WIDTH * scale
    counts = {
        goal: count
        for goal, wanted in goals.items()
        if wanted > 0.0 and (count := episodes_to_settle(spread, wanted)) <= _MOST
    }
    if not counts:
        same = difference is not None and difference.decision == "cannot tell"
        return [NextStep("trial", _TOO_CLOSE)] if same else []
    goal, episodes = min(counts.items(), key=lambda item: item[1])
    text = (
        f"About {round(episodes, 2 - len(str(episodes))):,} episodes of a trial would settle {goal}, if they "
        "vary as logged ones do; bcrl trial watches it, and it may stop as soon as that says so."
    )
    return [NextStep("trial", text, {"episodes": float(episodes), "spread": spread})]


_FIRST = (
    "No logged episode differs from another, so nothing shows how many a trial would take: run twenty of the "
    "new policy, with somebody watching, and ask bcrl trial."
)
_TOO_CLOSE = (
    "The value is so near to the log's own that no trial of a reasonable length would tell them apart."
)


def with_advice(
    table: Mapping[str, Estimate],
    question: Question,
    differences: Mapping[str, Difference | None],
    logged: Estimate | None,
    *,
    dial: bool,
    findings: Sequence[Finding],
) -> dict[str, tuple[NextStep, ...]]:
    """By policy, from the answers that speak for them; policies about which there is nothing to say are left
    out.
    """
    steps = {
        name: advice(
            replace(question, targets={name: question.targets[name]}),
            name,
            answer,
            differences.get(name),
            logged,
            dial=dial,
            findings=[one for one in findings if one.policy in (None, name)],
        )
        for name, answer in table.items()
    }
    return {name: found for name, found in steps.items() if found}
