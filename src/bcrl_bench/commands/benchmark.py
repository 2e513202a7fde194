"""`bcrl benchmark run | list | figures | verdict`: the paper's experiments, resumable, and what they show.

The profile `proving` has commands of its own (proving.py); `run` and `list` hand over to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from bcrl.commands.parsing import parse
from bcrl.errors import BadInput
from bcrl_bench.commands import proving
from bcrl_bench.commands.subcommands import Command, Workers, run_subcommand

if TYPE_CHECKING:
    from bcrl_bench.experiments.grid import State
    from bcrl_bench.experiments.profile import Experiment, Profile
    from bcrl_bench.experiments.records import Records


@dataclass
class Choice:
    """Which cells."""

    profile: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PROFILE")]
    """states, pixels-small, paper, rivals, or a profile file (.toml)."""
    tasks: tuple[str, ...] = ()
    """Only these tasks, e.g. cheetah-run; also tasks that the profile does not name."""
    methods: tuple[str, ...] = ()
    """Only these methods of the profile, e.g. bcrl fqe."""
    seeds: int | None = None
    """Seeds 0 to N - 1 only."""
    cells: tuple[str, ...] = ()
    """Exactly these cells, e.g. cheetah-run/025/100/fqe-0."""
    quick: tyro.conf.FlagCreatePairsOff[bool] = False
    """The profile's quick form: little data, short training, results of its own."""
    dry: tyro.conf.FlagCreatePairsOff[bool] = False
    """The profile's dry form: every method takes two updates at full size; memory is recorded."""
    small: tyro.conf.FlagCreatePairsOff[bool] = False
    """The profile's small form: every method as published but for a few updates; it tests no claim."""
    results: Path = Path("results")
    """Folder of results: <profile>.jsonl, and beside it <profile>/ with figures and table."""


@dataclass
class Run(Workers, Choice):
    """Run the cells that are not there yet, a line of JSON each; run again to go on. Then draw the figures.

    Example: bcrl benchmark run states --tasks cheetah-run --seeds 1 --quick
    """

    cache: Path = Path(".bcrl/benchmark")
    """Folder of datasets and true values; what is there is not made again."""


@dataclass
class List(Choice):
    """Say which cells are done, failed, waiting for a policy, or to be run.

    Example: bcrl benchmark list states
    """


@dataclass
class Figures:
    """Draw the figures (PNG and PDF) and the table of a profile, from its JSON alone.

    Example: bcrl benchmark figures states
    """

    profile: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PROFILE")]
    """A profile with results: states, states-quick, pixels-small, paper, ..."""
    results: Path = Path("results")
    """Folder of results."""


@dataclass
class Verdict:
    """Hold every verdict of the grid against the truth, and write verdict_grid.md.

    Example: bcrl benchmark verdict states
    """

    profile: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PROFILE ...")]
    """Profiles with results: states, pixels-small, ..."""
    worlds: Path | None = Path("results/verdict_worlds.json")
    """Random worlds that bcrl_bench.studies.verdict_study has evaluated; None leaves them out."""
    results: Path = Path("results")
    """Folder of results; verdict_grid.md is written there."""


def run(argv: Sequence[str]) -> int:
    if proving.NAME in argv[:1]:
        return proving.run(argv)
    options = parse(Run, "benchmark run", argv)
    from bcrl_bench.experiments.grid import run_grid, state_of
    from bcrl_bench.experiments.live import LiveTable
    from bcrl_bench.experiments.portraits import keep_portraits
    from bcrl_bench.experiments.records import Records

    profile, experiments = chosen(options)
    records = Records(options.results / profile.name)
    state = state_of(profile, records, experiments, retry=options.retry)
    print_state(state)
    keep_portraits(profile, records)
    with LiveTable(records, experiments, state.todo, options.workers) as table:
        failures = run_grid(
            profile,
            records,
            state.todo,
            cache=options.cache,
            workers=options.workers,
            ray_address=options.ray,
            show=table,
        )
    print(f"{len(state.todo) - failures} cells run, {failures} failed; records in {records.path}")
    if not options.cells and not failures and not state.waiting:
        draw(profile.name, records)
    return 1 if failures else 0


def list_cells(argv: Sequence[str]) -> int:
    if proving.NAME in argv[:1]:
        return proving.list_cells(argv)
    options = parse(List, "benchmark list", argv)
    from bcrl_bench.experiments.grid import state_of
    from bcrl_bench.experiments.records import Records

    profile, experiments = chosen(options)
    state = state_of(profile, Records(options.results / profile.name), experiments)
    groups = {"done": state.done, "stale": state.stale, "failed": state.failed, "to run": state.todo}
    for word, cells in groups.items():
        for experiment in cells:
            print(f"{word:<8} {experiment.name}")
    for experiment, missing in state.waiting.items():
        print(f"waiting  {experiment.name}  (for {', '.join(missing)})")
    print_state(state)
    return 0


def figures(argv: Sequence[str]) -> int:
    options = parse(Figures, "benchmark figures", argv)
    from bcrl_bench.experiments.records import Records

    draw(options.profile, Records(options.results / options.profile))
    return 0


def draw(name: str, records: "Records") -> None:
    """The figures and the table of a profile; says where they are."""
    from bcrl_bench.experiments.figures import write_figures
    from bcrl_bench.experiments.tables import table_page

    cells, portraits = found(records), records.portraits()
    for figure, made in write_figures(cells, portraits, records.folder / "figures").items():
        where = f"{records.folder / 'figures' / figure}.png"
        print(where if made else f"{figure}: not drawn, the records do not hold what it needs")
    page = records.folder / "table.md"
    page.write_text(table_page(name, cells, portraits), encoding="utf-8")
    print(page)


def verdict(argv: Sequence[str]) -> int:
    options = parse(Verdict, "benchmark verdict", argv)
    from bcrl_bench.experiments.records import Records
    from bcrl_bench.experiments.verdicts import verdict_page

    cells = [cell for name in options.profile for cell in found(Records(options.results / name))]
    if options.worlds is not None and not options.worlds.is_file():
        raise BadInput(
            f"{options.worlds} is not there; run python -m bcrl_bench.studies.verdict_study 400, or pass "
            "--worlds None."
        )
    page = options.results / "verdict_grid.md"
    page.write_text(verdict_page(cells, options.worlds), encoding="utf-8")
    print(page.read_text(encoding="utf-8"), end="")
    print(page)
    return 0


def found(records: "Records") -> list[dict[str, Any]]:
    """All finished cells of a profile."""
    cells = records.all()
    if not cells:
        raise BadInput(f"{records.path} holds no finished cell. Run bcrl benchmark run first.")
    return cells


def chosen(options: Choice) -> "tuple[Profile, list[Experiment]]":
    """The profile as narrowed by the options, and its cells."""
    from bcrl_bench.experiments.profile import known, load_profile, narrowed

    profile = load_profile(options.profile, quick=options.quick, dry=options.dry, small=options.small)
    tasks = options.tasks or tuple(dict.fromkeys(cell.partition("/")[0] for cell in options.cells))
    profile = narrowed(profile, tasks=tasks, methods=options.methods)
    experiments = profile.experiments(options.seeds)
    if options.cells:
        known(options.cells, [experiment.name for experiment in experiments], "cell")
        experiments = [experiment for experiment in experiments if experiment.name in options.cells]
    return profile, experiments


def print_state(state: "State") -> None:
    """How many cells stand where, and what the waiting ones wait for."""
    counts = {"done": state.done, "failed": state.failed, "to run": state.todo, "waiting": state.waiting}
    print(", ".join(f"{len(cells)} {word}" for word, cells in counts.items()))
    if state.stale:
        print(f"{len(state.stale)} made with other settings than the profile's now; --retry runs them again")
    missing = sorted({name for names in state.waiting.values() for name in names})
    if missing:
        print(f"waiting for policies that are not shipped: {', '.join(missing)}")


COMMANDS: dict[str, Command] = {
    "run": run,
    "list": list_cells,
    "figures": figures,
    "verdict": verdict,
    "prepare": proving.prepare,
    "table": proving.table,
    "calibrate": proving.calibrate,
}
HELP = """usage: bcrl benchmark COMMAND PROFILE ...          (bcrl benchmark COMMAND --help for its options)

  run        run the cells that are left        bcrl benchmark run states --workers 2
             the paper in small                 bcrl benchmark run paper --small --tasks cheetah-run
  list       what is done, failed, waiting      bcrl benchmark list states
  figures    figures and table, from JSON       bcrl benchmark figures states
  verdict    verdicts against the truth         bcrl benchmark verdict states
  prepare    logs, truths, marks                bcrl benchmark prepare proving
  table      tables, from JSON                  bcrl benchmark table proving
  calibrate  the budget's multipliers           bcrl benchmark calibrate proving

Profiles: states, pixels-small, paper, rivals; proving (docs/proving.md).
Example: bcrl benchmark run states --tasks cheetah-run --seeds 1 --quick"""


def main(argv: Sequence[str]) -> int:
    return run_subcommand("benchmark", COMMANDS, HELP, argv)
