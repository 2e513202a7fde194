"""Commands of two words, such as `bcrl policy train`: the second word chosen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tyro

from bcrl.errors import BadInput, did_you_mean

Command = Callable[[Sequence[str]], int]


@dataclass
class Workers:
    """How cells are run: options of both grids."""

    workers: int = 1
    """Processes on this machine, one thread each."""
    ray: str | None = None
    """Run on the Ray cluster at this address instead (auto finds a local one)."""
    retry: tyro.conf.FlagCreatePairsOff[bool] = False
    """Also run again what failed, and what was made with other settings."""


def run_subcommand(name: str, commands: Mapping[str, Command], help_text: str, argv: Sequence[str]) -> int:
    """Run the command that the first word names; its exit code."""
    if not argv:
        raise BadInput(f"Missing: one of {', '.join(commands)}. Run bcrl {name} --help for examples.")
    if argv[0] in ("-h", "--help"):
        print(help_text)
        raise SystemExit(0)  # as the parser of every other command does
    if argv[0] not in commands:
        raise BadInput(f"No command {name} {argv[0]}. {did_you_mean(argv[0], commands)}")
    return commands[argv[0]](argv[1:])
