"""The README's Python blocks run, in order, and print what they promise."""

import gc
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT)))
# Minari asks for an author, a description and the like, and leaves a temporary folder to the garbage collector.
@pytest.mark.filterwarnings("ignore::UserWarning:minari", "ignore:Implicitly cleaning up:ResourceWarning")
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    exec(compile(blocks(page), str(page), "exec"), {"__name__": "__main__"})
    gc.collect()


def test_the_readme_shows_the_two_commands_and_an_answer(capsys, tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text and "make test" in text
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks(ROOT / "README.md"), "README.md", "exec"), {"__name__": "__main__"})
    out = capsys.readouterr().out
    assert any(verdict in out for verdict in ("trust", "caution", "distrust"))
