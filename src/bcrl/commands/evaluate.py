"""`bcrl evaluate`: one policy by one method."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from bcrl.commands.compare import Compare, QuestionOptions, run
from bcrl.commands.parsing import parse


@dataclass(kw_only=True)
class Evaluate(QuestionOptions):
    """What would this policy earn, how sure are we, and may we believe it?

    Example: bcrl evaluate logs/ policy.onnx --discount 0.99 --out results/
    """

    policy: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    """Policy file: .onnx, .safetensors, or with --trust an SB3 .zip or a torch.export .pt2."""
    method: str | None = None
    """Method, bcrl if left out: bcrl, fqe, random (random features), anchored, curl, spr, is, dr, dice,
    model, or a call such as 'LSPE(BellmanComplete(dim=64))'; NAME=METHOD gives it a name."""
    rollouts: str | None = None
    """Episodes of the policy itself (as DATA): adds kappa(p0) and the paper's theorems to LSPE's answer."""


def main(argv: Sequence[str]) -> int:
    options = vars(parse(Evaluate, "evaluate", argv))
    method, policy, rollouts = (options.pop(name) for name in ("method", "policy", "rollouts"))
    asked = Compare(**options, method=() if method is None else (method,), policies=(policy,))
    return run(asked, "evaluate", argv, rollouts=rollouts)
