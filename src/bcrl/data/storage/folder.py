"""bcrl's own folder: one .npy file for each array, read through memory maps, and a header.

    logs/
      dataset.json                format version, stack, dtype and shape of every array, hash of the content
      observations/pixels.npy     (N + E, H, W, C) uint8, single frames
      observations/state.npy      (N + E, d)
      actions.npy  rewards.npy  terminated.npy  truncated.npy  offsets.npy
      [log_prob.npy  cluster.npy  behaviour.npy  cohort.npy]

A folder is written aside and renamed when whole, header last, so a killed writer leaves no half dataset under
its name. Nothing here is pickled, and nothing that was pickled is read.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from bcrl.data.build.inputs import frame_stack
from bcrl.data.dataset import Array, Dataset
from bcrl.data.storage.contents import (
    COLUMNS,
    GROUPS,
    OPTIONAL,
    SETTINGS,
    VERSION,
    chunks,
    combined_hash,
    content_hash,
    header_of,
    layout_errors,
    named_arrays,
)
from bcrl.data.storage.npy import open_npy
from bcrl.errors import BadInput
from bcrl.opening import read_json
from bcrl.writing import atomic_write, make_folder, sync_folder, writing_into

HEADER = "dataset.json"
PROGRESS = "progress.json"


def save(dataset: Dataset, folder: str | Path) -> Path:
    """Write a dataset as a folder that `open_folder` reads; the folder must not exist yet."""
    folder = Path(folder)
    if folder.exists():
        raise BadInput(f"{folder} already exists; choose another folder, or remove it first.")
    aside = folder.with_name(f".{folder.name}.writing")
    shutil.rmtree(aside, ignore_errors=True)
    make_folder(aside)
    with writing_into(folder):
        digests = {}
        for name, array in named_arrays(dataset).items():
            path = array_path(aside, name)
            path.parent.mkdir(exist_ok=True)
            digests[name] = _write_array(path, array)
        write_json(aside / HEADER, header_of(dataset) | {"hash": combined_hash(dataset, digests)})
        sync_folder(aside)
        aside.rename(folder)
        sync_folder(folder.parent)
    return folder


def open_folder(folder: str | Path, verify: bool = False) -> Dataset:
    """Open a folder that `save` or `Writer` wrote. Arrays stay on disk and are read when a batch is taken.

    Args:
        folder: the dataset's folder.
        verify: also read everything once and compare it with the hash in the header.
    """
    folder = Path(folder)
    header = read_header(folder)
    arrays = {name: open_npy(path, folder) for name, path in _listed(folder).items()}
    described = header.get("arrays", {})
    for name, about in described.items():
        if name not in arrays:
            raise BadInput(
                f"{folder} lacks {name}.npy, which its {HEADER} lists. Copy the whole folder again."
            )
        got = {"dtype": arrays[name].dtype.str, "shape": list(arrays[name].shape)}
        if got != about:
            raise BadInput(
                f"{array_path(folder, name)} holds {got}; {HEADER} says {about}. Copy the folder again."
            )
    dataset = assemble(header, arrays, str(folder))
    if verify and content_hash(dataset) != header.get("hash"):
        raise BadInput(
            f"{folder} does not match the hash in its {HEADER}: the files were changed or damaged."
        )
    return dataset


def _listed(folder: Path) -> dict[str, Path]:
    """The files of a folder by the array that each holds; other .npy files are left alone."""
    found = {}
    for path in sorted([*folder.glob("*.npy"), *(p for g in GROUPS for p in folder.glob(f"{g}/*.npy"))]):
        name = unquote(str(path.relative_to(folder).with_suffix("")))
        if path.parent == folder and "/" not in name and name not in (*COLUMNS, *OPTIONAL):
            continue
        if name.partition("/")[0] not in (*GROUPS, *COLUMNS, *OPTIONAL) or array_path(folder, name) != path:
            raise BadInput(f"{path} is no name that bcrl gives to a file. Remove it; nothing was read.")
        found[name] = path
    return found


def assemble(header: Mapping[str, Any], arrays: Mapping[str, Array], source: str) -> Dataset:
    """The dataset of these arrays; what is missing or does not fit is refused."""
    groups: dict[str, dict[str, Array]] = {group: {} for group in GROUPS}
    # The header keeps the order of the keys, which a folder listing does not.
    for name in [*header.get("arrays", {}), *(n for n in arrays if n not in header.get("arrays", {}))]:
        group, _, key = name.partition("/")
        if group in GROUPS and key:
            groups[group][key] = arrays[name]
    missing = [name for name in COLUMNS if name not in arrays]
    if missing or not groups["observations"]:
        raise BadInput(
            f"{source} lacks {(missing or ['observations'])[0]}; expected a dataset written by bcrl."
        )
    fields: dict[str, Any] = {name: arrays[name] for name in COLUMNS}
    fields |= {name: arrays.get(name) for name in OPTIONAL}
    fields |= {name: header[name] for name in SETTINGS if name in header}
    dataset = Dataset(
        observations=groups["observations"],
        given_starts=groups["given_starts"] or None,
        source=source,
        **fields,
    )
    for problem in layout_errors(dataset):
        raise BadInput(f"{source}: {problem}")
    return dataset


def read_header(folder: Path) -> dict[str, Any]:
    """The header of a dataset folder, checked."""
    path = folder / HEADER
    if not path.exists() and (folder / PROGRESS).exists():
        progress = read_json(folder / PROGRESS, "a collection's progress", folder)
        done = progress.get("episodes") if isinstance(progress, dict) else "?"
        raise BadInput(
            f"{folder} is being written: {done} episodes are there. Let the collection finish first."
        )
    if not path.exists():
        raise BadInput(f"{folder} has no {HEADER}; expected a folder written by bcrl.")
    return check_header(read_json(path, "the header of a bcrl dataset", folder), str(path))


def check_header(header: Any, path: str) -> dict[str, Any]:  # noqa: ANN401 - JSON's own type
    """A header whose entries are of their kinds; `path` is for messages."""
    if not isinstance(header, dict) or not isinstance(header.get("arrays", {}), dict):
        raise BadInput(f"{path} is no header of a bcrl dataset.")
    if header.get("version", VERSION) != VERSION:
        raise BadInput(
            f"{path} has format version {header['version']}; this bcrl reads {VERSION}. Update bcrl."
        )
    frame_stack(header.get("stack", 1))
    for name, kind in (("ordered", bool), ("single", bool), ("dropped", int), ("dropped_reward", float)):
        if not isinstance(header.get(name, kind(1)), kind):
            raise BadInput(f"{path} says {name} = {header[name]!r}; expected a {kind.__name__}.")
    if not isinstance(header.get("num_actions"), int | None):
        raise BadInput(f"{path} says num_actions = {header['num_actions']!r}; expected a number or null.")
    return header


def array_path(folder: Path, name: str) -> Path:
    """Where an array lies. Keys may hold any character; the file's name is quoted."""
    group, slash, key = name.partition("/")
    if group not in GROUPS if slash else name not in (*COLUMNS, *OPTIONAL):
        raise BadInput(f"{folder}: {name!r} is no array of a bcrl dataset. Is the folder damaged?")
    return folder / group / f"{quote(key, safe='')}.npy" if slash else folder / f"{name}.npy"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Readable JSON, whole or not at all."""
    with atomic_write(path) as file:
        file.write(json.dumps(content, indent=1).encode())


def _write_array(path: Path, array: Array) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        about = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
        np.lib.format.write_array_header_1_0(file, about)
        for chunk in chunks(array):
            file.write(chunk.data)
            digest.update(chunk.data)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()
