"""`bcrl benchmark prepare | run | list | table proving`: unlike worlds with known truth (docs/proving.md)."""

import functools
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from bcrl.commands.parsing import parse
from bcrl.errors import BadInput
from bcrl_bench.commands.subcommands import Workers

if TYPE_CHECKING:
    from bcrl_bench.experiments.grid import State
    from bcrl_bench.experiments.profile import Experiment
    from bcrl_bench.experiments.records import Records
    from bcrl_bench.proving.profile import Proving

NAME = "proving"
Word = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="proving")]


@dataclass
class Prepare:
    """Make logs, truths and marks, sealed families too; what is there is not made again.

    Example: bcrl benchmark prepare proving --families tabular lqr
    """

    profile: Word
    families: tuple[str, ...] = ()
    """Only these families."""
    cases: int | None = None
    """The first N cases of each family only."""
    cache: Path = Path(".bcrl/proving")
    """Folder of logs, truths and marks."""
    keep: tyro.conf.FlagCreatePairsOff[bool] = False
    """Write truths and marks that took rollouts into truths.jsonl, so that no machine makes them again."""


@dataclass
class Choice:
    """Which cells."""

    profile: Word
    families: tuple[str, ...] = ()
    """Only these families."""
    cases: int | None = None
    """The first N cases of each family, which span its regimes alike; run again with more to go on."""
    methods: tuple[str, ...] = ()
    """Only these methods, e.g. bcrl fqe."""
    cells: tuple[str, ...] = ()
    """Exactly these cells, e.g. tabular/noisy-00/greedy/fqe-0."""
    sealed: tyro.conf.FlagCreatePairsOff[bool] = False
    """Evaluate sealed families too: once, after everything is frozen."""
    settings: Path | None = None
    """Another file of methods, in the form of src/bcrl_bench/proving/methods.toml."""
    results: Path = Path("results")
    """Folder of results: proving.jsonl, and proving.md and proving.json from it."""


@dataclass
class Run(Workers, Choice):
    """Run the cells that are not there yet, a line of JSON each; run again to go on.

    Example: bcrl benchmark run proving --cases 10 --workers 2
    """

    cache: Path = Path(".bcrl/proving")
    """Folder of logs, truths and marks; what is there is not made again."""


@dataclass
class List(Choice):
    """Say which cells are done, failed or to be run."""


@dataclass
class Table:
    """Write proving.md and proving.json from proving.jsonl alone."""

    profile: Word
    results: Path = Path("results")
    """Folder of results."""


@dataclass
class Calibrate:
    """Make the budget's multipliers from proving.jsonl, and say what they are worth: verdict.md, .json."""

    profile: Word
    results: Path = Path("results")
    """Folder of results."""
    multipliers: Path | None = None
    """Also write the multipliers into this file, e.g. src/bcrl/inference/multipliers.json."""


def prepare(argv: Sequence[str]) -> int:
    options = parse(Prepare, "benchmark prepare", argv)
    if options.profile != NAME:
        raise BadInput(
            f"No cases to prepare for {options.profile!r}; expected bcrl benchmark prepare {NAME}."
        )
    from bcrl_bench.proving.ground import prepare as make
    from bcrl_bench.proving.ground import stepped_facts
    from bcrl_bench.proving.kept_truths import keep_truths
    from bcrl_bench.proving.profile import chosen_families, ordered_cases, set_of

    for family in chosen_families(options.families, sealed=True):
        began, marks = time.process_time(), Counter[str]()
        for case in ordered_cases(family)[: options.cases]:
            marks[make(case, options.cache).mark["mark"]] += 1
            if options.keep:
                keep_truths(stepped_facts(case, options.cache))
        counts = ", ".join(f"{marks[mark]} {mark}" for mark in ("covered", "partly", "not"))
        seconds = time.process_time() - began
        print(f"{family} ({set_of(family)}): {marks.total()} cases, {counts}; {seconds:.0f} s", flush=True)
    return 0


def run(argv: Sequence[str]) -> int:
    options = parse(Run, "benchmark run", argv)
    from bcrl_bench.commands.benchmark import print_state
    from bcrl_bench.experiments.grid import run_cells
    from bcrl_bench.experiments.live import LiveTable
    from bcrl_bench.proving.cell import run_case

    proving, records, cells, state = chosen(options, retry=options.retry)
    print_state(state)
    work = functools.partial(run_case, proving, cache=options.cache.resolve())
    command = f"bcrl benchmark run {NAME}{' --sealed' if options.sealed else ''}"
    if options.settings is not None:
        command += f" --settings {options.settings}"
    with LiveTable(records, cells, state.todo, options.workers) as table:
        failures = run_cells(
            work, command, records, state.todo, workers=options.workers, ray_address=options.ray, show=table
        )
    print(f"{len(state.todo) - failures} cells run, {failures} failed; records in {records.path}")
    return 1 if failures else 0


def list_cells(argv: Sequence[str]) -> int:
    options = parse(List, "benchmark list", argv)
    from bcrl_bench.commands.benchmark import print_state

    _, _, _, state = chosen(options)
    groups = {"done": state.done, "stale": state.stale, "failed": state.failed, "to run": state.todo}
    for word, cells in groups.items():
        for experiment in cells:
            print(f"{word:<8} {experiment.name}")
    print_state(state)
    return 0


def table(argv: Sequence[str]) -> int:
    options = parse(Table, "benchmark table", argv)
    if options.profile != NAME:
        raise BadInput(f"No table of {options.profile!r}; expected bcrl benchmark table {NAME}.")
    from bcrl.data.storage.folder import write_json
    from bcrl_bench.experiments.records import Records
    from bcrl_bench.proving.report import page, tables

    records = Records(options.results / NAME)
    cells = list(records.finished().values())
    if not cells:
        raise BadInput(f"{records.path} holds no finished cell. Run bcrl benchmark run {NAME} first.")
    write_json(options.results / f"{NAME}.json", tables(cells))
    where = options.results / f"{NAME}.md"
    where.write_text(page(cells, len(records.failed())), encoding="utf-8")
    print(where)
    return 0


def calibrate(argv: Sequence[str]) -> int:
    options = parse(Calibrate, "benchmark calibrate", argv)
    if options.profile != NAME:
        raise BadInput(
            f"Nothing to calibrate on {options.profile!r}; expected bcrl benchmark calibrate {NAME}."
        )
    from bcrl.data.storage.folder import write_json
    from bcrl_bench.experiments.records import Records
    from bcrl_bench.proving.calibrate import page, shipped, study

    records = Records(options.results / NAME)
    cells = list(records.finished().values())
    if not cells:
        raise BadInput(f"{records.path} holds no finished cell. Run bcrl benchmark run {NAME} first.")
    command = f"bcrl benchmark calibrate {NAME}"
    found = study(cells)
    write_json(options.results / "verdict.json", {"command": command, **found})
    where = options.results / "verdict.md"
    where.write_text(page(found, command), encoding="utf-8")
    if options.multipliers is not None:
        write_json(options.multipliers, shipped(found, f"{command} --multipliers {options.multipliers}"))
    print(where)
    return 0


def chosen(options: Choice, *, retry: bool = False) -> "tuple[Proving, Records, list[Experiment], State]":
    """The profile, its records, the cells that the options ask for, and where they stand."""
    from bcrl_bench.experiments.grid import sort_cells
    from bcrl_bench.experiments.profile import known
    from bcrl_bench.experiments.records import Records
    from bcrl_bench.proving import profile

    proving = profile.load_proving(options.settings or profile.METHODS)
    names = options.families or tuple(dict.fromkeys(cell.partition("/")[0] for cell in options.cells))
    families = profile.chosen_families(names, sealed=options.sealed)
    cells = profile.experiments(proving, families, options.methods, options.cases)
    if options.cells:
        known(options.cells, [cell.name for cell in cells], "cell")
        cells = [cell for cell in cells if cell.name in options.cells]
    records = Records(options.results / NAME)
    settings = functools.partial(profile.settings_of_cell, proving)
    return proving, records, cells, sort_cells(records, cells, settings, retry=retry)
