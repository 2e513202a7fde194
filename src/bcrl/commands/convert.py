"""`bcrl convert`: a file or a folder of any size into bcrl's own folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from bcrl.commands.parsing import parse
from bcrl.commands.reading import Ends, Missing, reader_options
from bcrl.errors import printable
from bcrl.progress import ProgressLine


@dataclass(kw_only=True)
class Convert:
    """A file or a folder of any size as bcrl's own folder, which opens at once.

    The same command goes on where a killed one stopped.

    Example: bcrl convert visits.parquet logs/
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """.csv, .parquet, a folder of .parquet files, .hdf5, .npz, a LeRobot or DrQ-v2 folder, or minari:ID."""
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Where to; it must not exist yet, or be what a killed conversion left."""
    columns: str | None = None
    """Names of a file's arrays or a table's columns: reward=outcome,action=dose, or JSON, or a JSON file,
    such as '{"reward": "outcome", "observation": ["x", "v"]}'."""
    num_actions: int | None = None
    """Number of discrete actions; the largest one seen plus one if left out."""
    cluster: str | None = None
    """For tables: the column that says what is independent (a patient, a visitor, a robot)."""
    cohort: str | None = None
    """For tables: the column of groups (a ward, an age group) that answers are broken down by."""
    ends: Ends | None = None
    """What the last row of an episode is if the data marks no end: the world's end (terminated), the
    record's (truncated), or a row to leave out (drop)."""
    missing: Missing | None = None
    """For tables: observations that are not there are refused, carried forward in the episode, or take the
    column's mean."""
    stack: int | None = None
    """Frames to stack for pixel observations."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """No progress."""


def main(argv: Sequence[str]) -> int:
    options = parse(Convert, "convert", argv)
    from bcrl.data.convert.convert import convert

    asked = reader_options(options.stack, options.columns, options.ends, options.missing, options.cohort)
    asked |= {"num_actions": options.num_actions, "cluster": options.cluster}
    with ProgressLine(options.quiet) as show:
        dataset = convert(options.source, options.folder, show=show, **asked)
    left_out = f", {dataset.dropped} left out" if dataset.dropped else ""
    rows = f"{dataset.num_episodes} episodes, {len(dataset)} transitions{left_out}"
    print(printable(f"{options.folder}: {rows}"))
    return 0
