"""Two distributions: what lies in each wheel, and bcrl alone at work where the experiments are not
installed.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bcrl import __version__

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "src" / "bcrl_bench"
COLUMNS = '{"observation": ["position"], "action": ["push"], "reward": "gain", "episode": "visit"}'
NO_LEFTOVERS = shutil.ignore_patterns("__pycache__", "*.egg-info")


def test_the_list_of_packages_is_the_folders():
    said = tomllib.loads((BENCH / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = sorted(path.parent.relative_to(BENCH.parent) for path in BENCH.rglob("__init__.py"))
    assert sorted(said) == [".".join(folder.parts) for folder in folders]


def run(*words, cwd):
    """What a command prints; PYTHONPATH would show it the source tree."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in words]
    done = subprocess.run(words, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source: Path, out: Path) -> Path:
    """The wheel of a source tree; setuptools comes from this environment, so nothing is downloaded."""
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        out,
        source,
        cwd=out,
    )
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def library_wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=NO_LEFTOVERS)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    return build(source, folder)


@pytest.fixture(scope="module")
def bench_wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    shutil.copytree(BENCH, folder / "source", ignore=NO_LEFTOVERS)
    return build(folder / "source", folder)


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory, library_wheel) -> Path:
    return environment(tmp_path_factory.mktemp("environment"), library_wheel)


def environment(folder: Path, *wheels: Path) -> Path:
    """A fresh environment with these wheels; its folder of programs.

    Dependencies are not installed a second time: all that lies in this environment is linked into the fresh
    one, but for bcrl and bcrl-bench. (To put this environment on the path would show the metadata of the
    editable installs too.)
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for source in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(source).iterdir():
            if "bcrl" not in entry.name and entry.suffix != ".pth":
                (site / entry.name).symlink_to(entry)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", *wheels, cwd=folder)
    return folder / "bin"


@pytest.mark.slow
def test_the_library_is_small_and_holds_no_experiments(library_wheel):
    assert library_wheel.stat().st_size < 1_000_000
    names = zipfile.ZipFile(library_wheel).namelist()
    assert "bcrl/evaluation.py" in names and "bcrl/py.typed" in names
    assert not [name for name in names if "bench" in name or name.endswith(".safetensors")]


@pytest.mark.slow
def test_both_are_one_release_and_work_together(library_wheel, bench_wheel, tmp_path):
    assert library_wheel.name.startswith(f"bcrl-{__version__}-")
    assert bench_wheel.name.startswith(f"bcrl_bench-{__version__}-")
    assert f"## {__version__} (" in (ROOT / "CHANGELOG.md").read_text()
    (tmp_path / "both").mkdir()
    bcrl = environment(tmp_path / "both", library_wheel, bench_wheel) / "bcrl"
    assert run(bcrl, "--version", cwd=tmp_path).strip() == f"bcrl {__version__}"
    assert "from bcrl-bench" in run(bcrl, "--help", cwd=tmp_path)
    where = "import bcrl_bench; print(bcrl_bench.__file__)"
    assert str(tmp_path) in run(bcrl.parent / "python", "-c", where, cwd=tmp_path)


@pytest.mark.slow
def test_the_experiments_come_with_weights_and_profiles(bench_wheel):
    names = set(zipfile.ZipFile(bench_wheel).namelist())
    files = {
        path
        for path in BENCH.rglob("*")
        if path.suffix in (".py", ".safetensors") or path.parent.name == "profiles"
    }
    missing = {str(path.relative_to(BENCH.parent)) for path in files} - names
    assert not missing
    assert not [name for name in names if not name.startswith("bcrl_bench")]


@pytest.mark.slow
def test_the_library_alone_evaluates_a_csv_with_an_onnx_policy(empty_environment, tmp_path):
    onnx_policy(tmp_path / "policy.onnx")
    random = np.random.default_rng(0)
    position, push = random.normal(size=(2, 40, 10))
    gain = -np.square(position) - 0.1 * np.square(push)
    visit = np.repeat(np.arange(40.0), 10)
    table = np.stack([visit, position.ravel(), push.ravel(), gain.ravel()], axis=1)
    np.savetxt(tmp_path / "logs.csv", table, delimiter=",", header="visit,position,push,gain", comments="")
    bcrl = empty_environment / "bcrl"
    asked = (
        "logs.csv",
        "policy.onnx",
        "--discount",
        "0.9",
        "--method",
        "random",
        "--columns",
        COLUMNS,
        "--ends",
        "truncated",
    )
    said = run(bcrl, "evaluate", *asked, "--out", "out", cwd=tmp_path)
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    assert "Discounted return (discount 0.9)" in said and "policy" in said
    listed = run(bcrl, "--help", cwd=tmp_path)
    assert "evaluate" in listed
    assert not {"demo", "benchmark", "collect", "policy"} & {
        line.split()[0] for line in listed.splitlines() if line
    }
    where = "import bcrl, importlib.util as u; print(bcrl.__file__, u.find_spec('bcrl_bench'))"
    file, bench = run(empty_environment / "python", "-c", where, cwd=tmp_path).split()
    assert Path(file).is_relative_to(empty_environment.parent) and bench == "None"


def onnx_policy(path: Path) -> None:
    """push = -position / 2."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (None, 1)) for name in ("state", "action")]
    node = helper.make_node("Mul", ["state", "half"], ["action"])
    half = numpy_helper.from_array(np.array([-0.5], np.float32), "half")
    graph = helper.make_graph([node], "policy", ends[:1], ends[1:], initializer=[half])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
