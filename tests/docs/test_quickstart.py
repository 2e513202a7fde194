"""The quick start as a newcomer follows it: its Python and its commands, in their order, unchanged, in one
empty folder.
"""

import gc
import json
import re
from pathlib import Path

import pytest
from docs.shell import shell

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"
BLOCKS = re.findall(r"```(python|bash)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)

# V(x) = -(p x^2 + c) for u = -x / 2 on x' = x + u + 0.05 noise; starts are spread over [1, 2].
_P = 1.025 / (1 - 0.25 * 0.95)
EXACT = -(_P * 7 / 3 + 0.95 * _P * 0.05**2 / 0.05)


@pytest.mark.slow
# Minari asks for an author, a description and the like, and leaves a temporary folder to the garbage
# collector.
@pytest.mark.filterwarnings("ignore::UserWarning:minari", "ignore:Implicitly cleaning up:ResourceWarning")
def test_python_and_commands_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    names: dict[str, object] = {"__name__": "__main__"}
    said = []
    for kind, text in BLOCKS:
        if kind == "python":
            exec(compile(text, str(PAGE), "exec"), names)
        else:
            said.append(shell(text, tmp_path).stdout)
    names.clear()
    gc.collect()

    own, table, log, sb3 = said
    assert "fit for evaluation" in own and own.splitlines()[-1] == "page.html"
    first = json.loads(Path("results/results.json").read_text())
    assert first["estimates"]["controller"]["auto"]["value"] == pytest.approx(EXACT, rel=0.1)
    assert Path("results/report.html").is_file() and Path("page.html").is_file()
    assert "controller" in table and "random" in table
    assert "minari:quickstart/pendulum-v0: 20 episodes, 4000 transitions" in log
    compared = json.loads(sb3.splitlines()[-1])
    assert set(compared["estimates"]) == {"new", "old"}
    assert Path("pendulum/report.html").is_file()


def test_every_command_of_the_page_is_one_of_ours():
    lines = [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]
    assert all(line.startswith(("bcrl ", "  --")) for line in lines)
