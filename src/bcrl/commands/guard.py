"""`bcrl guard`: the new policy where the log supports it, the logged behaviour elsewhere, as a file."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bcrl.commands.parsing import Ends, OnePolicy, parse
from bcrl.display import ends_of, value_of
from bcrl.errors import printable
from bcrl.writing import writable_file


@dataclass(kw_only=True)
class Guard(Ends, OnePolicy):
    """What can be said and done where a policy is not trusted: bounds, a guarded policy, a blend.

    Example: bcrl guard logs/ policy.onnx --discount 0.99 --out guarded.safetensors
    """

    behaviour: str | None = None
    """Policy file of the logging policy; a clone of the log, noise included, if left out."""
    out: Path | None = None
    """Write the guarded policy here, a .safetensors file that runs without the log."""
    page: Path | None = None
    """Write a page here: value, honest interval and verdict along the dial."""


def main(argv: Sequence[str]) -> int:
    options = parse(Guard, "guard", argv)
    from bcrl.next_steps.guard import guard

    asked = {**options.question, "behaviour": options.behaviour, "rewards": options.bounds}
    if options.page is not None:
        writable_file(options.page)
    found = guard(options.data, options.policy, **asked)
    if options.json:
        print(json.dumps(found.to_dict()))
    else:
        print("What you can do")
        for line in found.sentences:
            print(f"  {line}")
        for one in found.dial:
            around = "" if one.honest is None else f" ({ends_of(one.honest)})"
            reach = f"up to {one.threshold:.2g} times the usual"
            print(
                f"  {reach if math.isfinite(one.threshold) else 'the new policy itself'}: follows "
                f"{one.followed:.0%}, worth {value_of(one.estimate)}{around}, {one.verdict}"
            )
    if options.page is not None:
        from bcrl.report.guarded import write_guarded

        print(printable(write_guarded(found.to_dict(), options.page)))
    if options.out is not None:
        print(printable(found.save(options.out)))
    return 0
