"""Files made to run code when they are read: refused, and nothing ran."""

import json
import os
import pickle
import shutil

import h5py
import numpy as np
import pytest
from data.made_datasets import plain
from minari.dataset.minari_storage import MinariStorage

from bcrl import BadInput, Dataset, load_dataset
from bcrl.cli import main
from bcrl.data.storage.folder import save


class Trap:
    """Unpickling this makes a folder: proof that code ran."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.makedirs, (self.mark, 0o777, True)


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "code-ran"


def traps(mark, count=40):
    array = np.empty(count, dtype=object)
    array[:] = [Trap(mark) for _ in range(count)]
    return array


def npz(folder, mark):
    np.savez(folder / "a.npz", **plain(rewards=traps(mark)))
    return folder / "a.npz"


def npz_of_a_pickle(folder, mark):
    (folder / "a.npz").write_bytes(pickle.dumps(Trap(mark)))
    return folder / "a.npz"


def own_folder(folder, mark):
    save(Dataset.from_arrays(**plain()), folder / "data")
    np.save(folder / "data" / "rewards.npy", traps(mark, 36), allow_pickle=True)
    return folder / "data"


def own_header(folder, mark):
    save(Dataset.from_arrays(**plain()), folder / "data")
    (folder / "data" / "dataset.json").write_bytes(pickle.dumps(Trap(mark)))
    return folder / "data"


def drq(folder, mark):
    (folder / "drq").mkdir()
    np.savez(folder / "drq" / "t_0_40.npz", observation=traps(mark), action=1, reward=1, discount=1)
    return folder / "drq"


def hdf5(folder, mark):
    with h5py.File(folder / "a.hdf5", "w") as file:
        for name in ("observations", "actions", "rewards", "terminals"):
            kind = h5py.special_dtype(vlen=np.uint8)
            file.create_dataset(name, (2,), dtype=kind)
            file[name][0] = np.frombuffer(pickle.dumps(Trap(mark)), np.uint8)
    return folder / "a.hdf5"


def minari(folder, mark):
    """Minari builds the environment when spaces are missing; the environment is whatever the file names."""
    spec = {
        "id": "Trap-v0",
        "entry_point": "os:mkdir",
        "kwargs": {"path": str(mark)},
        "additional_wrappers": [],
    }
    metadata = {
        "data_format": "hdf5",
        "env_spec": json.dumps(spec),
        "total_episodes": 0,
        "dataset_id": "t-v0",
    }
    (folder / "metadata.json").write_text(json.dumps(metadata | {"minari_version": "0.5.4"}))
    (folder / "main_data.hdf5").write_bytes(b"")
    return folder


def bare_pickle(folder, mark):
    (folder / "a.pkl").write_bytes(pickle.dumps(Trap(mark)))
    return folder / "a.pkl"


def npy(folder, mark):
    np.save(folder / "a.npy", traps(mark), allow_pickle=True)
    return folder / "a.npy"


FILES = [npz, npz_of_a_pickle, own_folder, own_header, drq, hdf5, minari, bare_pickle, npy]


@pytest.mark.parametrize("make", FILES)
def test_nothing_runs(make, tmp_path, mark, capsys):
    place = make(tmp_path, mark)
    with pytest.raises(BadInput) as caught:
        load_dataset(place)
    assert "\n" not in str(caught.value)
    assert main(["doctor", str(place)]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not mark.exists()


def test_the_traps_work(tmp_path, mark):
    """The pickles are live: read as a careless program would, they do run."""
    for make in (npz, own_folder, bare_pickle, npy):
        place = make(tmp_path, mark)
        if place.suffix == ".pkl":
            pickle.loads(place.read_bytes())
        elif place.suffix == ".npz":
            with np.load(place, allow_pickle=True) as file:
                assert len(file["rewards"]) == 40
        else:
            np.load(place / "rewards.npy" if place.is_dir() else place, allow_pickle=True)
        assert mark.exists()
        mark.rmdir()
        shutil.rmtree(tmp_path / "data", ignore_errors=True)


def test_the_trap_for_minari_works(tmp_path, mark):
    with pytest.raises(TypeError, match=r"must inherit from the gymnasium\.Env"):
        MinariStorage.read(minari(tmp_path, mark))
    assert mark.exists()


def test_a_header_cannot_lead_out_of_its_folder(tmp_path):
    """File names come from the folder, never from the header."""
    save(Dataset.from_arrays(**plain()), tmp_path / "data")
    np.save(tmp_path / "secret.npy", np.zeros(36))
    path = tmp_path / "data" / "dataset.json"
    header = json.loads(path.read_text())
    header["arrays"]["../secret"] = {"dtype": "<f8", "shape": [36]}
    path.write_text(json.dumps(header))
    with pytest.raises(BadInput, match="lacks"):
        load_dataset(tmp_path / "data")
