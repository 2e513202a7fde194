"""What the default, `Auto`, answers, from the records of the two methods that it asks; nothing runs again."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bcrl.estimate import Estimate, Status
from bcrl.estimators.auto import may_learn_more, narrower
from bcrl.inference.budget import budget_of

Record = Mapping[str, Any]
QUICK, LEARNED, DEFAULT = "consensus", "bcrl", "default"


def default_records(records: Sequence[Record]) -> tuple[list[Record], int]:
    """A record for every case whose answer is known, under the method `default`; and for how many it is not,
    because learned features were wanted and no record has them.
    """
    by_case: dict[tuple[str, ...], dict[str, Record]] = {}
    for record in records:
        asked = record["experiment"]
        by_case.setdefault((asked["task"], asked["dataset"], asked["policy"]), {})[asked["method"]] = record
    found: list[Record] = []
    unknown = 0
    for methods in by_case.values():
        if QUICK not in methods:
            continue
        quick = methods[QUICK]
        chosen, seconds = quick, quick["timings"]["core"]
        if may_learn_more(answer_of(quick)):
            if LEARNED not in methods:
                unknown += 1
                continue
            learned = methods[LEARNED]
            seconds += learned["timings"]["core"]
            first, second = answer_of(quick), answer_of(learned)
            chosen = quick if narrower(first, second) is first else learned
        asked = {**chosen["experiment"], "method": DEFAULT}
        found.append({**chosen, "experiment": asked, "timings": {**chosen["timings"], "core": seconds}})
    return found, unknown


def answer_of(record: Record) -> Estimate:
    """The estimate of a record, with its budget by today's multipliers."""
    answer = Estimate(
        value=float("nan") if record["value"] is None else record["value"],
        method=record["settings"]["method"],
        discount=record["case"]["discount"],
        horizon=record["case"]["horizon"],
        standard_error=record["standard_error"],
        status=Status(record["status"]),
        stats=record["stats"],
    )
    return dataclasses.replace(answer, budget=budget_of(answer))
