"""Three newcomers walk their page from the first line to the last, and end with a report (F50 to F52).

The code is that of docs/start, unchanged.
"""

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.shell import shell

START = Path(__file__).parents[2] / "docs" / "start"


def walk(name: str, report: str, folder: Path) -> tuple[str, str]:
    """Run a page's Python blocks in a process of their own; what they print, and their report."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", (START / name).read_text(), flags=re.DOTALL))
    (folder / "walk.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "walk.py"],
        cwd=folder,
        env=os.environ | {"MINARI_DATASETS_PATH": str(folder / "minari"), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
    )
    gc.collect()
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, (folder / report).read_text()


def commands(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The page's commands, in the folder that its Python left."""
    text = "\n".join(re.findall(r"```bash\n(.*?)```", (START / name).read_text(), flags=re.DOTALL))
    return shell(text, folder)


@pytest.mark.slow
def test_the_data_scientist_goes_from_a_table_to_a_decision(tmp_path):
    said, page = walk("table.md", "visits.html", tmp_path)
    assert "What next:" in page and "For whom?" in page and "surgery" in page
    assert "missing='forward'" in said  # the gaps are named, with the way out
    assert said.index("model by random features") < said.index("never treat by random features")
    assert "surgery model better" in said
    assert "Guessed from the columns' names" in commands("table.md", tmp_path).stderr
    assert (tmp_path / "results" / "report.html").is_file()


@pytest.mark.slow
def test_the_engineer_ranks_six_checkpoints(tmp_path):
    said, page = walk("checkpoints.md", "checkpoints.html", tmp_path)
    assert "<h1>Which checkpoint?</h1>" in page and "What next:" in page
    ranked = {line.split()[0]: line.split()[-1] for line in said.splitlines() if " by consensus: " in line}
    assert sorted(ranked) == [f"step{n}" for n in range(1, 7)]
    assert ranked["step3"] != "distrust"  # it made the log
    told = commands("checkpoints.md", tmp_path)
    assert told.returncode in (0, 3) and "best first, all by quick" in told.stdout
    assert (tmp_path / "results" / "report.html").is_file()


@pytest.mark.slow
def test_the_researcher_learns_from_pixels(tmp_path):
    said, page = walk("pixels.md", "pixels.html", tmp_path)
    assert "centre" in page and "data:image/png" in page
    assert "centre by bcrl: " in said and "centre by consensus: " in said
