"""`bcrl stress`: would the answer stand where there is nothing to find, without any one cohort, and so on?"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import tyro

from bcrl.commands.parsing import parse


@dataclass(kw_only=True)
class StressOptions:
    """Placebo rewards, shuffled actions, each cohort left out, a hidden confounder: one verdict.

    Example: bcrl stress logs/ policy.onnx --discount 0.99
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """Dataset: .npz, .hdf5, .csv, .parquet, a folder, or minari:ID."""
    policy: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    """Policy file: .onnx or .safetensors."""
    discount: float
    """Discount of the value, in [0, 1)."""
    method: str | None = None
    """Method, consensus if left out: each test asks it anew."""
    horizon: int | None = None
    """Value of this many steps; the whole future if left out."""
    memoryless: tyro.conf.FlagCreatePairsOff[bool] = False
    """Hidden causes, if there are any, are drawn anew at every step: say how strong one must be."""
    seed: int = 0
    """The seed of all randomness."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print JSON instead of sentences."""


def main(argv: Sequence[str]) -> int:
    options = parse(StressOptions, "stress", argv)
    from bcrl.next_steps.stress import stress

    found = stress(
        options.data,
        options.policy,
        discount=options.discount,
        method=options.method,
        horizon=options.horizon,
        memoryless=options.memoryless,
        seed=options.seed,
    )
    if options.json:
        print(json.dumps({"verdict": found.verdict, "tests": [asdict(one) for one in found.tests]}))
        return 0
    marks = {True: "fired", False: "silent", None: "-"}
    for one in found.tests:
        print(f"  {marks[one.fired]:<7} {one.text}")
    print(f"Stress tests: {found.verdict}")
    return 0
