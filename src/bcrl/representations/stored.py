"""Fitted representations on disk, to evaluate later policies: JSON and safetensors, nothing that runs code.

folder/representation.json           what the features are, what data they read
folder/representation.safetensors    the numbers
folder/SHA256SUMS                    the hashes of both
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from bcrl.data.dataset import Array, Dataset
from bcrl.errors import BadInput
from bcrl.estimate import short_call
from bcrl.opening import plain_file, read_json
from bcrl.options import Checked
from bcrl.policies.policy import TargetActions
from bcrl.representations.features import Fitted, FittedFeatures
from bcrl.sealed import check_folder, seal_folder
from bcrl.training import Run
from bcrl.writing import atomic_write

SPEC, TENSORS = "representation.json", "representation.safetensors"
ACTIONS = "action space"  # beside the observation keys; none of them has this name
# Where `restore(spec, tensors)` of each kind lives.
_FITTED = {
    "features": "bcrl.representations.features",
    "fourier": "bcrl.representations.fixed",
}


@dataclass(frozen=True)
class SavedFeatures(Checked):
    """Features that `bcrl.save_representation` wrote, used again as they are.

    Nothing is trained. Features made for other policies are not promised to be Bellman complete for a new
    one, so look at the check *Bellman error*.

    Attributes:
        folder: what was saved.
    """

    folder: str | Path

    __repr__ = short_call

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "folder", str(self.folder))

    def fit(
        self, dataset: Dataset, targets: Sequence[TargetActions], *, discount: float, seed: int, run: Run
    ) -> Fitted:
        """The features, if they fit the dataset; policies, discount and seed are not used."""
        fitted, wanted = read_representation(Path(self.folder))
        found = kind_of_data(dataset, [name for name in wanted if name != ACTIONS])
        for name, kind in wanted.items():
            if found[name] != kind:
                raise BadInput(
                    f"The features in {self.folder!r} read {name!r} as {kind}; "
                    f"this dataset has {found[name]}. Learn features on this data instead."
                )
        if isinstance(fitted, FittedFeatures):
            fitted.net.to(run.torch_device)
        return fitted


def write_representation(fitted: Fitted, dataset: Dataset, folder: Path) -> None:
    """Write features and the kind of data that they read; the dataset may be a template of no rows."""
    spec = fitted.spec()
    if spec["kind"] not in _FITTED:
        raise BadInput(
            f"A representation of kind {spec['kind']!r} cannot be saved, because loading it would run code. "
            "Pass the same representation to LSPE again."
        )
    numbers = save({name: np.ascontiguousarray(value) for name, value in fitted.tensors().items()})
    keys = [part["key"] for part in spec["encoder"]["parts"]] if "encoder" in spec else dataset.observations
    reads = kind_of_data(dataset, keys)
    record = {"features": spec, "reads": reads}
    with atomic_write(folder / TENSORS) as file:
        file.write(numbers)
    with atomic_write(folder / SPEC) as file:
        file.write(json.dumps(record, indent=1).encode())
    seal_folder(folder, (SPEC, TENSORS))


def read_representation(folder: Path) -> tuple[Fitted, dict[str, str]]:
    """The features of a folder, and what they read, as `kind_of_data` says it."""
    if not os.path.lexists(folder / SPEC):
        raise BadInput(
            f"{str(folder)!r} has no {SPEC}. Expected a folder that bcrl.save_representation wrote."
        )
    try:
        check_folder(folder, (SPEC, TENSORS))
        record = read_json(folder / SPEC, "features that bcrl.save_representation wrote", folder)
        numbers = load(plain_file(folder / TENSORS, folder).read_bytes())
        return restore_fitted(record["features"], numbers), record["reads"]
    except (SafetensorError, KeyError, TypeError) as error:
        raise BadInput(f"{str(folder)!r} is damaged: {error}. Save the representation again.") from None


def restore_fitted(spec: dict[str, Any], tensors: dict[str, Array]) -> Fitted:
    """The representation of a spec, by its kind."""
    home = _FITTED.get(spec["kind"])
    if home is None:
        raise BadInput(
            f"Cannot restore a representation of kind {spec['kind']!r}. Was it saved by a newer bcrl?"
        )
    fitted: Fitted = import_module(home).restore(spec, tensors)
    return fitted


def kind_of_data(dataset: Dataset, keys: Iterable[str]) -> dict[str, str]:
    """What features read of a dataset, in words: its actions, and each of these observation keys."""
    actions = f"actions of shape {dataset.actions.shape[1:]}"
    kind = {ACTIONS: f"{dataset.num_actions} discrete actions" if dataset.discrete else actions}
    for key in keys:
        values = dataset.observations.get(key)
        if values is None:
            kind[key] = f"no such key among {', '.join(dataset.observations)}"
        elif key in dataset.pixel_keys:
            kind[key] = f"images of shape {values.shape[1:]} in stacks of {dataset.stack}"
        else:
            kind[key] = f"vectors of shape {values.shape[1:]}"
    return kind
