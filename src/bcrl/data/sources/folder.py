"""bcrl's own folder, as `load_dataset` reads it."""

from dataclasses import replace
from pathlib import Path

from bcrl.data.build.inputs import frame_stack
from bcrl.data.dataset import Dataset
from bcrl.data.storage.folder import open_folder


def load_folder(folder: Path, stack: int | None = None, verify: bool = False) -> Dataset:
    """Open a folder; `stack` in place of the stored one, `verify` to compare with the stored hash."""
    dataset = open_folder(folder, verify=verify)
    return dataset if stack is None else replace(dataset, stack=frame_stack(stack))
