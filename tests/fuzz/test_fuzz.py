"""Two thousand mutated inputs: each is answered, or refused in one printable line. The fuzzer can fail."""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from bcrl.cli import main
from fuzz import seeds
from fuzz.runner import DECOY, Ran, broken, printable
from fuzz.watch import Watch

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_two_thousand_cases_break_nothing():
    command = [sys.executable, "-m", "fuzz.runner", "2000", "20"]
    ran = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=590, check=False)
    assert ran.returncode == 0, f"{ran.stdout[-4000:]}{ran.stderr[-2000:]}"


@pytest.mark.parametrize(
    ("ran", "told"),
    [
        (Ran(None, b"", b"", 20.0, 0), "hung"),
        (Ran(1, b"", b"bcrl: no\n", 1.0, 0), "exit 1"),
        (Ran(-11, b"", b"", 1.0, 0), "exit -11"),
        (Ran(0, b"", b"Traceback (most\nTypeError: x", 1.0, 0), "TypeError"),
        (Ran(2, b"", b"one\ntwo\n", 1.0, 0), "2 lines"),
        (Ran(2, b"", b"", 1.0, 0), "0 lines"),
        (Ran(2, b"", b"\x1b[31mred\n", 1.0, 0), "cannot be printed"),
        (Ran(0, b"\xff", b"", 1.0, 0), "cannot be printed"),
        (Ran(0, b"", b"", 1.0, 2**33), "8.0 GB"),
    ],
)
def test_the_fuzzer_sees_what_is_wrong(ran, told, tmp_path):
    assert told in " ".join(broken(ran, tmp_path))


def test_the_fuzzer_sees_a_decoy_that_came_out(tmp_path):
    (tmp_path / "page.html").write_bytes(b"<p>" + DECOY)
    assert broken(Ran(0, b"", b"", 1.0, 0), tmp_path) == ["a decoy's bytes came out"]


def test_an_answer_and_a_refusal_are_fine(tmp_path):
    assert broken(Ran(0, b"value 3\n", b"", 1.0, 2**30), tmp_path) == []
    assert broken(Ran(2, b"", b"bcrl doctor: no.\n", 1.0, 2**30), tmp_path) == []
    assert printable("ünï\n".encode()) and not printable(b"\x07")


def link_in_a_folder(here: Path, secret: Path) -> str:
    seeds.save(seeds.dataset(np.random.default_rng(0)), here / "log")
    array = next(path for path in sorted((here / "log").rglob("*.npy")))
    array.unlink()
    array.symlink_to(secret)
    return "log"


def external_storage(here: Path, secret: Path) -> str:
    with h5py.File(here / "log.hdf5", "w") as file:
        for name, value in seeds.arrays(np.random.default_rng(0)).items():
            if name != "rewards":
                file[name] = value
        file.create_dataset("rewards", (seeds.ROWS,), "f8", external=[(str(secret), 0, 8 * seeds.ROWS)])
    return "log.hdf5"


@pytest.mark.parametrize("make", [link_in_a_folder, external_storage])
def test_no_file_is_opened_that_was_not_named(make, tmp_path, monkeypatch, capsys):
    here, secret = tmp_path / "here", tmp_path / "secret.npy"
    here.mkdir()
    secret.write_bytes(DECOY * 100)
    data, watch = make(here, secret), Watch([secret])
    monkeypatch.chdir(here)
    assert main(["doctor", data]) == 2
    assert not watch.opened()
    secret.read_bytes()
    assert watch.opened()  # or the line before says nothing
    watch.close()
