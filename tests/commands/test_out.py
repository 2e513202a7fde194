"""An `--out` that cannot be written is known before the computation: one line, exit code 2 (F46)."""

import resource

import numpy as np
import pytest
from data.made_datasets import plain

import bcrl
from bcrl import BadInput
from bcrl.cli import main
from bcrl.data.storage.folder import save
from bcrl.data.storage.writer import Writer
from bcrl.estimators.fqe.method import FQE
from bcrl.policies.actor_file import save_actor
from bcrl.policies.actors import StateActor
from bcrl.writing import writable_folder


@pytest.fixture
def question(tmp_path):
    """What `bcrl evaluate` is asked, but for --out."""
    np.savez(tmp_path / "logs.npz", **plain())
    save_actor(tmp_path / "actor.safetensors", StateActor(3, 2, (8,)), {})
    data, policy = str(tmp_path / "logs.npz"), str(tmp_path / "actor.safetensors")
    return ["evaluate", data, policy, "--discount", "0.9", "--method", "FQE(steps=20)", "--quiet"]


@pytest.fixture
def never(monkeypatch):
    """A computation that begins is a test that fails."""

    def begun(*_):
        raise AssertionError("the computation began")

    monkeypatch.setattr(FQE, "estimate", begun)


@pytest.fixture
def full_disk():
    """No file can grow: what a full disk does, without filling one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def a_file(folder):
    (folder / "out").write_text("")
    return folder / "out"


def under_a_file(folder):
    return a_file(folder) / "deeper"


def no_permission(folder):
    return "/proc/nobody-writes-here"


def a_dangling_link(folder):
    (folder / "out").symlink_to(folder / "nowhere" / "at all")
    return folder / "out"


def too_long(folder):
    return folder / ("x" * 400)


def a_folder_as_results(folder):
    (folder / "out" / "results.json").mkdir(parents=True)
    return folder / "out"


def a_folder_as_page(folder):
    (folder / "out" / "report.html").mkdir(parents=True)
    return folder / "out"


def checkpoints_are_a_file(folder):
    (folder / "out").mkdir()
    (folder / "out" / "checkpoints").write_text("")
    return folder / "out"


PLACES = [
    a_file, under_a_file, no_permission, a_dangling_link, too_long, a_folder_as_results, a_folder_as_page,
    checkpoints_are_a_file,
]  # fmt: skip


@pytest.mark.parametrize("make", PLACES, ids=lambda make: make.__name__)
def test_known_before_the_computation(make, question, never, tmp_path, capsys):
    assert main([*question, "--out", str(make(tmp_path))]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and "Traceback" not in err


@pytest.mark.usefixtures("never", "full_disk")
def test_a_full_disk_is_known_before_the_computation(question, tmp_path, capsys):
    assert main([*question, "--out", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 and "cannot be written (File too large)" in err


def test_a_disk_that_fills_up_on_the_way_is_one_line_too(question, tmp_path, capsys, monkeypatch):
    """The probe fits, a checkpoint does not."""
    import bcrl.training

    def full(path, content):
        with bcrl.writing.writing_into(path):
            raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(bcrl.training, "write_sealed", full)
    assert main([*question, "--out", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 and "No space left on device" in err and "checkpoint.pt" in err


def test_a_page_that_cannot_be_written_is_one_line(question, tmp_path, capsys):
    assert main([*question, "--out", str(tmp_path / "out")]) == 0
    results = str(tmp_path / "out" / "results.json")
    for out in ("/proc/nobody/report.html", str(tmp_path / "logs.npz" / "page.html"), str(tmp_path / "out")):
        capsys.readouterr()
        assert main(["report", results, "--out", out]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_python_is_told_before_the_computation_too(never, tmp_path):
    data = bcrl.Dataset.from_arrays(**plain())
    for place in ({"folder": a_file(tmp_path)}, {"tensorboard": a_file(tmp_path)}):
        with pytest.raises(BadInput, match="cannot be written"):
            bcrl.evaluate(data, lambda x: x[:, :2], discount=0.9, method="FQE(steps=20)", **place)


def test_a_collection_and_a_saved_estimate_say_so_in_one_line(tmp_path):
    with pytest.raises(BadInput, match="cannot be written"):
        Writer(under_a_file(tmp_path))
    with pytest.raises(BadInput, match="cannot be written"):
        bcrl.Estimate(value=1.0, method="m", discount=0.9).save(under_a_file(tmp_path))
    with pytest.raises(BadInput, match="cannot be written"):
        save(bcrl.Dataset.from_arrays(**plain()), under_a_file(tmp_path))


def test_the_probe_leaves_nothing(tmp_path):
    assert list(writable_folder(tmp_path / "new").iterdir()) == []
