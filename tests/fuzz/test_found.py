"""What the fuzzer found, by name: each was a traceback or a hang once."""

import os

import numpy as np
import pytest

from bcrl.cli import main
from fuzz import runner, seeds


def npz_with_another_name_inside(here):
    np.savez(here / "log.npz", **seeds.arrays(np.random.default_rng(0)))
    content = (here / "log.npz").read_bytes()
    (here / "log.npz").write_bytes(content.replace(b"actions.npy", b"actions.np\xc7", 1))
    return "log.npz"


def npz_without_a_local_header(here):
    np.savez(here / "log.npz", **seeds.arrays(np.random.default_rng(0)))
    (here / "log.npz").write_bytes((here / "log.npz").read_bytes().replace(b"PK\x03\x04", b"PK\x03\x05"))
    return "log.npz"


def episode(here, **changes):
    (here / "log").mkdir()
    arrays = {"observation": np.zeros((4, 2), np.float32), "action": np.zeros((4, 1), np.float32)}
    arrays |= {"reward": np.zeros((4, 1)), "discount": np.ones((4, 1))} | changes
    np.savez(here / "log" / "2026_0_3.npz", **arrays)
    return "log"


def drq_discount_without_numbers(here):
    return episode(here, discount=np.ones((4, 0)))


def drq_discount_of_bytes(here):
    return episode(here, discount=np.zeros((4, 1), "V4"))


def rewards_whose_squares_overflow(here):
    arrays = seeds.arrays(np.random.default_rng(0))
    np.savez(here / "log.npz", **(arrays | {"rewards": np.full(seeds.ROWS, 1e200)}))
    return "log.npz"


def actions_whose_squares_overflow(here):
    arrays = seeds.arrays(np.random.default_rng(0))
    np.savez(here / "log.npz", **(arrays | {"actions": np.full((seeds.ROWS, 1), 1e30)}))
    return "log.npz"


def fifo_in_a_folder(here):
    seeds.save(seeds.dataset(np.random.default_rng(0)), here / "log")
    array = next(path for path in sorted((here / "log").rglob("*.npy")))
    array.unlink()
    os.mkfifo(array)
    return "log"


FOUND = [
    npz_with_another_name_inside,
    npz_without_a_local_header,
    drq_discount_without_numbers,
    drq_discount_of_bytes,
    rewards_whose_squares_overflow,
    actions_whose_squares_overflow,
    fifo_in_a_folder,
]


@pytest.mark.parametrize("make", FOUND, ids=[make.__name__ for make in FOUND])
def test_it_is_told_in_one_line(make, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = make(tmp_path)
    assert main(["doctor", data]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1 or "not fit for evaluation" in told.out
    seeds.graph(tmp_path / "graph.onnx")
    assert main(["evaluate", data, "graph.onnx", "--discount", "0.9", "--method", "random"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


LONG_RUNS = {
    "a link of a kind that HDF5 does not define": (31, 2133),
    "a key that is no text": (31, 3004),
    "a bandwidth beyond 64 bits": (32, 3307),
    "numbers beyond float32, of which numpy warned on the terminal": (101, 600),
    "observations of float16, of which numpy warned too": (101, 1500),
    "sums that overflow, and numpy's warning under the doctor's findings": (103, 613),
    "a name in an ONNX graph that is no text": (102, 1216),
    "complex actions, of which numpy warned": (108, 1274),
    "columns= that is no mapping": (201, 853),
    "actions without a column, and numpy's mean of nothing": (106, 500),
}


@pytest.mark.parametrize(("seed", "number"), LONG_RUNS.values(), ids=LONG_RUNS)
def test_cases_of_the_long_runs(seed, number):
    assert [line for line in runner.fuzz(1, seed, first=number)] == []
