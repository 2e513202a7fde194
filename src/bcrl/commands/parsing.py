"""Command lines from dataclasses (tyro), with mistakes told in one line."""

import contextlib
import io
import re
from collections.abc import Sequence
from typing import TypeVar

import tyro

from bcrl.errors import BadInput

Options = TypeVar("Options")
_BOX = re.compile(r"[│╭╮╰╯─┌┐└┘├┤]+")


def parse(options: type[Options], command: str, argv: Sequence[str]) -> Options:
    """The options on the command line. `--help` prints and exits; a mistake raises BadInput with tyro's own words."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            return tyro.cli(options, prog=f"bcrl {command}", args=list(argv))
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        lines = [_BOX.sub(" ", line).strip() for line in told.getvalue().splitlines()]
        words = " ".join(
            line for line in lines if line and not line.startswith(("Parsing error", "Required options"))
        )
        raise BadInput(
            f"{words.split('For full helptext')[0].strip()} Run bcrl {command} --help for the options."
        ) from None
