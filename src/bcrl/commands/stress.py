"""`bcrl stress`: would the answer stand where there is nothing to find, without any one cohort, and so on?"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import tyro

from bcrl.commands.parsing import OnePolicy, parse


@dataclass(kw_only=True)
class StressOptions(OnePolicy):
    """Placebo rewards, shuffled actions, each cohort left out, a hidden confounder: one verdict.

    Example: bcrl stress logs/ policy.onnx --discount 0.99
    """

    memoryless: tyro.conf.FlagCreatePairsOff[bool] = False
    """Hidden causes, if there are any, are drawn anew at every step: say how strong one must be."""


def main(argv: Sequence[str]) -> int:
    options = parse(StressOptions, "stress", argv)
    from bcrl.next_steps.stress import stress

    found = stress(options.data, options.policy, memoryless=options.memoryless, **options.question)
    if options.json:
        print(json.dumps({"verdict": found.verdict, "tests": [asdict(one) for one in found.tests]}))
        return 0
    marks = {True: "fired", False: "silent", None: "-"}
    for one in found.tests:
        print(f"  {marks[one.fired]:<7} {one.text}")
    print(f"Stress tests: {found.verdict}")
    return 0
