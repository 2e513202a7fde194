"""Every code block of README and docs runs: Python in test_readme.py, test_walks.py and test_quickstart.py,
the commands here and in the last two. A block that cannot run says why, in a comment above it.
"""

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from docs.shell import shell
from onnx import TensorProto, helper, numpy_helper

from bcrl.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.S | re.M
)
ELSEWHERE = {"docs/quickstart.md", "docs/start/table.md", "docs/start/checkpoints.md", "docs/start/pixels.md"}
# Blocks that cannot run in a test, by page; the reason stands in the page.
NOT_RUN = {"README.md": 1, "docs/benchmark.md": 1, "docs/proving.md": 1, "docs/scale.md": 1}


@dataclass(frozen=True)
class Block:
    page: str
    kind: str
    text: str
    reason: str | None


def blocks_of(page: Path) -> list[Block]:
    return [
        Block(str(page.relative_to(ROOT)), found["kind"], found["text"], found["reason"])
        for found in FENCE.finditer(page.read_text())
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
HERE = sorted(
    {b.page for b in BLOCKS if b.kind == "bash" and b.reason is None and b.page not in ELSEWHERE},
)


def test_every_fence_is_read_and_has_a_language():
    assert 2 * len(BLOCKS) == sum(page.read_text().count("```") for page in PAGES)
    assert {block.kind for block in BLOCKS} == {"python", "bash", "text"}
    assert [block for block in BLOCKS if block.kind == "text" and "bcrl " in block.text.split("\n")[0]] == []


def test_what_does_not_run_says_why_and_names_the_test_that_runs_it_smaller():
    silent = [block for block in BLOCKS if block.reason is not None]
    assert {page: sum(b.page == page for b in silent) for page in {b.page for b in silent}} == NOT_RUN
    for block in silent:
        assert block.kind == "bash"
        tests = re.findall(r"tests/[\w/]+\.py", block.reason)
        assert all((ROOT / test).exists() for test in tests)
        assert tests or ".ci/" in block.reason, block.reason


def linear(path: Path, gain: float) -> None:
    """A controller u = gain * (x + y / 2) as an ONNX file."""
    weights = numpy_helper.from_array(np.array([[gain], [gain / 2]], np.float32), "weights")
    seen = helper.make_tensor_value_info("observation", TensorProto.FLOAT, [None, 2])
    action = helper.make_tensor_value_info("action", TensorProto.FLOAT, [None, 1])
    node = helper.make_node("MatMul", ["observation", "weights"], ["action"])
    graph = helper.make_graph([node], "linear", [seen], [action], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def visits() -> pd.DataFrame:
    """A noisy controller that pushes a point to the origin, a row a step."""
    rng = np.random.default_rng(0)
    rows = []
    for episode in range(60):
        x, y = rng.uniform(0.5, 1.5, 2)
        for step in range(20):
            u = -0.3 * (x + y / 2) + 0.3 * rng.normal()
            rows.append((episode, step, x, y, u, 1.0 - x * x - 0.1 * u * u, False, step == 19))
            x, y = 0.9 * x + 0.3 * u + 0.05 * rng.normal(), 0.8 * y + 0.05 * rng.normal()
    names = ["episode", "step", "x", "y", "action", "reward", "terminated", "truncated"]
    return pd.DataFrame(rows, columns=names)


def scene(folder: Path, page: str) -> None:
    """The files that the commands of a page name, small but real."""
    for name, gain in (("policy", -0.35), ("new", -0.4), ("old", -0.25)):
        linear(folder / f"{name}.onnx", gain)
    table, rng = visits(), np.random.default_rng(1)
    table.to_parquet(folder / "visits.parquet")
    for name, mean in (("new", 0.6), ("old", 0.5)):
        np.savetxt(folder / f"{name}_returns.txt", rng.uniform(mean - 0.4, mean + 0.4, 60))
    if page == "docs/scale.md":
        (folder / "visits").mkdir()
        for part, rows in table.groupby(table["episode"] // 20):
            rows.to_parquet(folder / "visits" / f"part{part}.parquet")
    elif page != "README.md":
        shell("bcrl convert visits.parquet logs/", folder)


@pytest.mark.slow
@pytest.mark.parametrize("page", HERE)
def test_commands_run_as_printed(page, tmp_path):
    scene(tmp_path, page)
    for block in blocks_of(ROOT / page):
        if block.kind == "bash" and block.reason is None:
            shell(block.text, tmp_path)


@pytest.mark.slow
def test_a_command_that_fails_fails_here(tmp_path):
    with pytest.raises(AssertionError, match="absent"):
        shell("bcrl doctor absent.npz\nbcrl --help", tmp_path)


def test_the_commands_that_do_not_run_are_still_known(capsys, monkeypatch):
    """Each line of a block that is not run names a command, and options that it has."""
    monkeypatch.setenv("COLUMNS", "200")
    unrun = [block for block in BLOCKS if block.reason is not None]
    for line in [line for block in unrun for line in block.text.splitlines() if line.strip()]:
        words = line.split("#")[0].split()
        if words[0] == "make":
            assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
            continue
        assert words[0] == "bcrl", line
        with contextlib.suppress(SystemExit):
            main([*words[1 : 4 if words[1] == "benchmark" else 2], "--help"])
        said = capsys.readouterr().out
        assert [word for word in words if word.startswith("--") and word not in said] == [], line
