"""`bcrl trial`: where a running trial stands, at any time."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bcrl.commands.parsing import Ends, parse
from bcrl.errors import BadInput
from bcrl.opening import plain_file


@dataclass(kw_only=True)
class Trial(Ends):
    """Is the new policy better? Look as often as you like, and stop when it says so.

    Example: bcrl trial new_returns.txt old_returns.txt --least 0 --most 1
    """

    returns: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="NEW")]
    """Discounted returns of the new policy's episodes so far, a number a line, in their order."""
    against: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OLD")]
    """Those of the log, or of an arm that runs at the same time."""
    concurrent: tyro.conf.FlagCreatePairsOff[bool] = False
    """OLD grows too."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print JSON."""


def main(argv: Sequence[str]) -> int:
    options = parse(Trial, "trial", argv)
    import numpy as np

    from bcrl.next_steps.trial import trial

    bounds = options.bounds

    def read(path: Path) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        try:
            found = np.array(plain_file(path).read_text(encoding="utf-8").split(), dtype=np.float64)
        except (ValueError, UnicodeDecodeError) as error:
            raise BadInput(
                f"{path} holds something that is no number; expected one return a line."
            ) from error
        if not np.isfinite(found).all():
            raise BadInput(f"{path} holds a return that is not finite; expected one number a line.")
        return found

    found = trial(read(options.returns), read(options.against), bounds=bounds, concurrent=options.concurrent)
    low, high = found.difference.low, found.difference.high
    if options.json:
        ends = [low, high] if np.isfinite([low, high]).all() else None
        print(
            json.dumps(
                {
                    "episodes": found.episodes,
                    "mean": found.mean,
                    "difference": ends,
                    "decision": found.decision,
                }
            )
        )
        return 0
    print(
        f"{found.episodes} episodes, mean {found.mean:.4g}; difference {low:.4g} to {high:.4g}: "
        f"{found.decision}"
    )
    print("Go on." if found.decision == "cannot tell" else "You may stop.")
    return 0
