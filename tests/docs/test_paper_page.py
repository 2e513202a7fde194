"""docs/paper.md: every function, command and test that it names exists, and no row lacks one (F25, F26)."""

import ast
import importlib
import importlib.util
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from bcrl.cli import OWN
from bcrl.commands.evaluate import Evaluate
from bcrl.methods import parse_method
from bcrl_bench.commands.benchmark import COMMANDS, Figures, Run
from bcrl_bench.commands.collect import Collect
from bcrl_bench.commands.policy_options import Evaluate as PolicyEvaluate
from bcrl_bench.experiments.profile import load_profile, narrowed

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/paper.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| in the paper")
]
OPTIONS = {
    "evaluate": Evaluate,
    "benchmark run": Run,
    "benchmark figures": Figures,
    "collect": Collect,
    "policy evaluate": PolicyEvaluate,
}


def codes(cell):
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_has_functions_a_command_and_tests_that_exist(row):
    what, functions, commands, tests = row
    assert what and codes(functions) and codes(commands) and codes(tests)
    for name in codes(functions):
        assert exists(name), name
    for command in codes(commands):
        check_command(shlex.split(command))
    for test in codes(tests):
        path, _, name = test.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test


def exists(name):
    """Whether a dotted name is there; the longest module first, for `bcrl.linear.lspe` is also a function."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def check_command(words):
    if words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]) is not None, words
        return
    assert words[0] == "bcrl" and words[1] in {*OWN, "benchmark", "collect", "policy"}, words
    name = " ".join(words[1:3]) if words[1] in ("benchmark", "policy") else words[1]
    if words[1] == "benchmark":
        assert words[2] in COMMANDS
        flags = {one for one in ("quick", "dry", "small") if f"--{one}" in words}
        profile = load_profile(words[3], **dict.fromkeys(flags, True))
        if "--methods" in words:
            narrowed(profile, tasks=(), methods=words[words.index("--methods") + 1 :])
    known = {f"--{field.name.replace('_', '-')}" for field in fields(OPTIONS[name])}
    assert {word for word in words if word.startswith("--")} <= known, words
    if "--method" in words:
        parse_method(words[words.index("--method") + 1])


def test_the_page_names_what_the_paper_has():
    told = " ".join(row[0] for row in ROWS)
    for one in (
        *(f"Theorem {n}" for n in (1, 2, 3)),
        *(f"Algorithm {n}" for n in (1, 2, 3)),
        *(f"Figure {n}" for n in range(1, 6)),
        *("Definition 1", "Proposition 1", "Equation 1", "Assumption 1", "eps_ibe", "Table 1", "Table 2"),
    ):
        assert one in told, one
