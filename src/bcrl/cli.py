"""The command line: parse, call, print. Each command is the Python call that it names.

Nothing heavy is imported until a command is known, so `bcrl --help` answers at once.
"""

import io
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from bcrl.errors import BadInput, did_you_mean, in_shell

OWN = {
    "evaluate": "what would this policy earn?       bcrl evaluate logs/ policy.onnx --discount 0.99",
    "compare": "several policies and methods       bcrl compare logs/ new.onnx old.onnx --discount 0.99",
    "convert": "files too large for memory         bcrl convert visits.parquet logs/",
    "doctor": "is this data fit for evaluation?   bcrl doctor logs/ --policy policy.onnx",
    "guard": "a policy you may run              bcrl guard logs/ policy.onnx --discount 0.99",
    "stress": "does the answer stand?            bcrl stress logs/ policy.onnx --discount 0.99",
    "trial": "is it better yet? Ask any time    bcrl trial new.txt old.txt --least 0 --most 1",
    "report": "the page again, from JSON alone    bcrl report results.json",
}
# What bcrl-bench's commands are for. An entry point carries no text, and its module is heavy to import.
BENCH = {
    "demo": "the whole story on one task        bcrl demo",
    "benchmark": "the paper's experiments            bcrl benchmark list states",
    "collect": "log episodes in a simulator        bcrl collect cheetah-run --policy 025 --out logs/",
    "policy": "train and measure policies         bcrl policy evaluate cheetah-run 100",
}


def added_commands() -> dict[str, EntryPoint]:
    """Commands that other distributions add, by name: bcrl-bench has demo, policy, collect and benchmark."""
    return {point.name: point for point in entry_points(group="bcrl.commands") if point.name not in OWN}


def help_text(added: Mapping[str, EntryPoint]) -> str:
    """What `bcrl --help` prints."""
    more = [f"  {name:<10} {BENCH.get(name, f'bcrl {name} --help')}" for name in sorted(added)]
    return "\n".join(
        [
            "bcrl: what would this policy earn, how sure are we, and may we believe it?",
            "",
            "usage: bcrl COMMAND ...          (bcrl COMMAND --help for its options)",
            "",
            *[f"  {name:<10} {line}" for name, line in OWN.items()],
            *(["", "from bcrl-bench, the experiments:"] if more else []),
            *more,
            "",
            "exit codes: 0 done, 1 a bug in bcrl, 2 bad input (one line says what), 130 interrupted",
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(help_text(added_commands()))
        return 0
    if words[0] in ("-V", "--version"):
        from bcrl import __version__

        print(f"bcrl {__version__}")
        return 0
    added = {} if words[0] in OWN else added_commands()
    if words[0] not in {**OWN, **added}:
        print(f"bcrl: no command {words[0]!r}. {did_you_mean(words[0], {**OWN, **added})}", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal has no letters for
    try:
        with warnings.catch_warnings():
            # numpy's; what is not finite is found by our own checks, which say where it stands.
            warnings.filterwarnings("ignore", ".* encountered in ", RuntimeWarning)
            return int(_command(words[0], added)(words[1:]))
    except BadInput as error:
        print(f"bcrl {words[0]}: {in_shell(str(error))}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        print(
            f"bcrl {words[0]}: not enough memory for this: {' '.join(str(error).split())[:200]}. Use fewer "
            "rows, columns, features or a smaller batch.",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print(f"bcrl {words[0]}: interrupted; run the same command again to go on.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader went away (`bcrl ... | head`); keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _out_of_memory(error: Exception) -> bool:
    """Whether numpy or Python had no memory left, or torch, which has no class for it."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error)


def _command(name: str, added: Mapping[str, EntryPoint]) -> Callable[[Sequence[str]], int]:
    main: Callable[[Sequence[str]], int]
    main = added[name].load() if name in added else import_module(f"bcrl.commands.{name}").main
    return main


if __name__ == "__main__":
    sys.exit(main())
