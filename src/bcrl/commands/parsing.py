"""Command lines from dataclasses (tyro); a mistake gives an error of one line."""

import contextlib
import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar

import tyro

from bcrl.errors import BadInput, did_you_mean

Options = TypeVar("Options")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(kw_only=True)
class OnePolicy:
    """What `guard` and `stress` both ask: one policy, one log."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """Dataset: .npz, .hdf5, .csv, .parquet, a folder, or minari:ID."""
    policy: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    """Policy file: .onnx or .safetensors."""
    discount: float
    """Discount of the value, in [0, 1)."""
    horizon: int | None = None
    """Value of this many steps; the whole future if left out."""
    method: str | None = None
    """Method; if left out bcrl (guard), or consensus (stress, whose tests ask it anew)."""
    seed: int = 0
    """The seed of all randomness."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print JSON instead of sentences."""

    @property
    def question(self) -> dict[str, Any]:
        """What the Python functions of these names both take."""
        names = ("discount", "horizon", "method", "seed")
        return {name: getattr(self, name) for name in names}


@dataclass(kw_only=True)
class Ends:
    """What `guard` and `trial` both ask: between what a payment lies."""

    least: float | None = None
    """Least that can be paid: by an episode (trial), or by a step, outside of the log too (guard)."""
    most: float | None = None
    """Most that can be paid. Both or neither; without them guard takes the log's own, trial none."""

    @property
    def bounds(self) -> tuple[float, float] | None:
        if (self.least is None) != (self.most is None):
            raise BadInput("--least and --most go together: pass both, or neither.")
        return None if self.least is None or self.most is None else (self.least, self.most)


def parse(options: type[Options], command: str, argv: Sequence[str]) -> Options:
    """The options on the command line. `--help` prints and exits; a mistake raises BadInput with one line."""
    _refuse_unknown(options, argv)
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            return tyro.cli(options, prog=f"bcrl {command}", args=list(argv))
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise BadInput(f"{_mistake(told.getvalue())} Run bcrl {command} --help for the options.") from None


def _refuse_unknown(options: type, argv: Sequence[str]) -> None:
    known = ["--help", *[f"--{field.name.replace('_', '-')}" for field in fields(options)]]
    for word in argv:
        name = word.partition("=")[0].replace("_", "-")
        if name.startswith("--") and name not in known:
            raise BadInput(f"No option {name}. {did_you_mean(name, known)}")


def _mistake(told: str) -> str:
    """What tyro says was wrong, without its frame and its help text; missing options are listed by name.

    Tyro draws a box (or a line under the title where the output is not UTF-8), colours it on a terminal, and
    puts a line between what was wrong and the help.
    """
    title, *framed = _COLOUR.sub("", told).strip().splitlines()
    lines = [line.strip("│╰╯").rstrip() for line in framed]
    if _is_rule(lines[0]):
        lines = lines[1:]
    wrong = list(itertools.takewhile(lambda line: not _is_rule(line), lines))
    if "Required options" in title:
        indent = len(wrong[0]) - len(wrong[0].lstrip()) + 4
        names = [line.strip() for line in wrong if len(line) - len(line.lstrip()) == indent]
        return f"Missing: {', '.join(names)}."
    words = " ".join(" ".join(wrong).split())
    return words if words.endswith(".") else f"{words}."


def _is_rule(line: str) -> bool:
    return not line.strip(" ─-")
