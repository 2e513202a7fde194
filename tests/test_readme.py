"""The README's Python blocks run, in order, and print what they promise."""

import gc
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import bcrl

ROOT = Path(__file__).parents[1]
START = ROOT / "docs" / "start"  # the newcomers' walks take longer: tests/docs/test_walks.py
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if not page.is_relative_to(START)),
]


def blocks(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT)))
# Minari asks for an author, a description and the like, and leaves a temporary folder to the garbage
# collector.
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


STOP = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`: ", re.MULTILINE)


def test_a_default_call_passes_the_stops_of_the_readme():
    """At most thirty stops, each passed; as many files as the README says, and no more than 38 of them for
    the answer itself: where it is not trusted, others look for what can be done.
    """
    text = (ROOT / "README.md").read_text()
    stops = STOP.findall(text)
    assert 20 <= len(stops) <= 30
    rng = np.random.default_rng(0)
    end = np.arange(600) % 20 == 19
    dataset = bcrl.Dataset.from_arrays(
        observations=rng.normal(size=(600, 2)),
        actions=rng.normal(size=(600, 1)),
        rewards=rng.normal(size=600),
        terminated=end,
    )
    source, passed, after = str(ROOT / "src" / "bcrl") + "/", set(), set()
    advising = []

    def note(frame, event, _):
        if event in ("call", "return") and frame.f_code.co_filename.startswith(source):
            (after if advising else passed).add(
                (frame.f_code.co_filename.removeprefix(source), frame.f_code.co_qualname)
            )
            if frame.f_code.co_qualname == "with_advice":
                advising[:] = [True] if event == "call" else []

    method = bcrl.LSPE(bcrl.BellmanComplete(steps=3, dim=8, batch_size=64))
    bcrl.evaluate(dataset, lambda x: -0.5 * x[:, :1], discount=0.9, method=method)  # imports are no stops
    sys.setprofile(note)
    try:
        bcrl.evaluate(dataset, lambda x: -0.5 * x[:, :1], discount=0.9, method=method)
    finally:
        sys.setprofile(None)
    assert [stop for stop in stops if stop not in passed] == []
    files = {file for file, _ in passed}
    assert len(files) <= 38, sorted(files)
    more = {file for file, _ in after} - files
    assert f"through {len(files)} files of src/bcrl; where" in " ".join(text.split())
    assert f"is not trusted, {len(more)} more look for what can be done" in " ".join(text.split()), sorted(
        more
    )


def test_the_paths_that_the_map_names_are_there():
    text = (ROOT / "README.md").read_text()
    for path in re.findall(r"src/bcrl[\w/]*(?:\.py)?(?=[\s,;:`|)])", text):
        assert (ROOT / path).exists(), path
