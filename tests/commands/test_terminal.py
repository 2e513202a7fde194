"""What others named (keys, headers, ids, files, policies) reaches the terminal as text, never as commands
to it (F42).
"""

import json
import os
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from data.made_datasets import plain

from bcrl import BadInput, Dataset, compare
from bcrl.cli import main
from bcrl.commands.showing import print_comparison
from bcrl.comparison import Comparison
from bcrl.data.sources.minari import to_minari
from bcrl.errors import printable
from bcrl.estimate import Check, Estimate
from bcrl.policies.actor_file import save_actor
from bcrl.policies.actors import StateActor
from bcrl.progress import ProgressLine

QUICK = ("--method", "LSPE(RandomFeatures(dim=10))", "--quiet")
EVIL = "\x1b[2J\x1b[32mtrust\x1b[0m\n\r\u202eevil\u2028\x9b1m\x07\x00\udcff"
# A file's name can hold all of these but NUL and "/".
EVIL_NAME = EVIL.replace("\x00", "")


def clean(text):
    """Nothing that a terminal would obey is left, and it can be written out."""
    text.encode()
    return all(line.isprintable() for line in text.split("\n")) and "\x1b" not in text


def test_printable_shows_what_a_terminal_obeys():
    assert clean(printable(EVIL)) and "\n" not in printable(EVIL)
    assert printable("\x1b[2J") == r"\x1b[2J" and printable("\u202e") == r"\u202e"
    assert printable("größe 大 %") == "größe 大 %" and printable(Path("a\nb")) == r"a\nb"


def test_errors_are_clean_in_python_too():
    error = BadInput(f"The key {EVIL} is odd.")
    assert clean(str(error)) and "\n" not in str(error) and r"\x1b[2J" in str(error)


def npz_key(folder):
    np.savez(folder / "a.npz", **{EVIL.replace("\x00", "").replace("\udcff", ""): np.zeros(3)})
    return folder / "a.npz"


def npz_observation(folder):
    arrays = plain()
    states = arrays.pop("observations")
    np.savez(folder / "a.npz", **arrays, **{"observations/\x1b[2Jx": states})
    return folder / "a.npz"


def csv_header(folder):
    (folder / "a.csv").write_text(f'"{EVIL_NAME[:-1]}",b\n1,2\n')
    return folder / "a.csv"


def csv_observation(folder):
    text = "episode,observation_\x1b[2J,action,reward,terminated\n0,1.0,0,1.0,0\n0,,1,1.0,1\n"
    (folder / "a.csv").write_text(text)
    return folder / "a.csv"


def hdf5_key(folder):
    with h5py.File(folder / "a.hdf5", "w") as file:
        file["\x1b[2J\u202e"] = np.zeros(3)
    return folder / "a.hdf5"


def minari_id(folder):
    path = to_minari(Dataset.from_arrays(**plain()), "made/evil-v0")
    metadata = json.loads((path / "metadata.json").read_text()) | {"dataset_id": "\x1b[2J\n\u202e"}
    (path / "metadata.json").write_text(json.dumps(metadata))
    return path


def named(folder):
    np.savez(folder / f"{EVIL_NAME}.npz", **plain())
    return folder / f"{EVIL_NAME}.npz"


def missing(folder):
    return folder / f"{EVIL_NAME}.npz"


def minari_missing(folder):
    return f"minari:{EVIL_NAME}"


def folder_name(folder):
    (folder / EVIL_NAME).mkdir()
    return folder / EVIL_NAME


MAKERS = [
    npz_key, npz_observation, csv_header, csv_observation, hdf5_key, minari_id, named, missing,
    minari_missing, folder_name,
]  # fmt: skip


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_the_doctor_prints_clean_lines(make, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    assert main(["doctor", str(make(tmp_path))]) in (0, 2)
    out, err = capsys.readouterr()
    assert clean(out) and clean(err) and out + err


def test_a_comparison_prints_clean_lines(capsys):
    check = Check(EVIL, 1.0, 2.0, "caution", f"Because {EVIL}")
    estimate = Estimate(value=1.0, method=EVIL, discount=0.9, checks=(check,))
    print_comparison(Comparison({EVIL: {EVIL: estimate}}, checks={EVIL: (check,)}, discount=0.9))
    assert clean(capsys.readouterr().out)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_clean(terminal, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "dumb")
    with ProgressLine() as show:
        show.began -= 60.0
        show({"stage": f"[red]{EVIL}", "step": 1, "steps": 2, "left": 3.0, "loss\x1b[2J": 1.0})
    err = capsys.readouterr().err
    assert "\x1b[2J" not in err and "\u202e" not in err and "\x07" not in err


@pytest.fixture
def actor(tmp_path):
    path = tmp_path / "actor.safetensors"
    save_actor(path, StateActor(3, 2, (8, 8)), {})
    return path


@pytest.mark.parametrize("name", [EVIL_NAME, "x" * 400, "ü" * 120, "[red]", "a b"])
def test_odd_names_of_policies_work_or_are_one_line(name, tmp_path, actor, capsys):
    """400 characters are no file's name, but may be a policy's."""
    np.savez(tmp_path / "logs.npz", **plain())
    words = ["compare", str(tmp_path / "logs.npz"), f"{name}={actor}", f"b={actor}"]
    code = main([*words, "--discount", "0.9", *QUICK, "--out", str(tmp_path / "out")])
    out, err = capsys.readouterr()
    assert code == 0 and clean(out) and err == ""
    assert main(["report", str(tmp_path / "out" / "results.json")]) == 0
    assert clean(capsys.readouterr().out)


@pytest.mark.parametrize("name", [EVIL_NAME, b"\xff\xfe".decode("utf-8", "surrogateescape")])
def test_odd_file_names_of_policies_and_results_work(name, tmp_path, actor, capsys):
    np.savez(tmp_path / "logs.npz", **plain())
    os.rename(actor, tmp_path / f"{name}.safetensors")
    words = [
        "evaluate",
        str(tmp_path / "logs.npz"),
        str(tmp_path / f"{name}.safetensors"),
        "--discount",
        "0.9",
    ]
    assert main([*words, *QUICK, "--out", str(tmp_path / name)]) == 0
    out, err = capsys.readouterr()
    assert clean(out) and err == "" and (tmp_path / name / "report.html").exists()


def test_a_policy_file_that_is_not_there_is_one_clean_line(tmp_path, capsys):
    np.savez(tmp_path / "logs.npz", **plain())
    for name in (EVIL_NAME, "x" * 400):
        words = ["evaluate", str(tmp_path / "logs.npz"), f"{tmp_path}/{name}.onnx", "--discount", "0.9"]
        assert main(words) == 2
        out, err = capsys.readouterr()
        assert clean(err) and len(err.splitlines()) == 1 and out == ""


@pytest.mark.parametrize("seed", ["-1", str(2**63), "-99999999999999999999"])
def test_seeds_out_of_range_are_one_line(seed, tmp_path, actor, capsys):
    np.savez(tmp_path / "logs.npz", **plain())
    words = ["evaluate", str(tmp_path / "logs.npz"), str(actor), "--discount", "0.9", *QUICK]
    assert main([*words, "--seed", seed]) == 2
    assert "seed is" in capsys.readouterr().err
    with pytest.raises(BadInput, match="seed is"):
        compare(Dataset.from_arrays(**plain()), {"p": lambda x: x[:, :2]}, discount=0.9, seed=1.5)
