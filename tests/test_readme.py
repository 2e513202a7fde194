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
LEARNED = re.compile(r"^- `([\w/]+\.py)` `([\w.]+)`: ", re.MULTILINE)


def passed_by(dataset, policy, method):
    """Functions of bcrl that a call passes, those on the way to advice apart, each as (file, name)."""
    source, passed, after = str(ROOT / "src" / "bcrl") + "/", set(), set()
    advising = []

    def note(frame, event, _):
        if event in ("call", "return") and frame.f_code.co_filename.startswith(source):
            (after if advising else passed).add(
                (frame.f_code.co_filename.removeprefix(source), frame.f_code.co_qualname)
            )
            if frame.f_code.co_qualname == "with_advice":
                advising[:] = [True] if event == "call" else []

    bcrl.evaluate(dataset, policy, discount=0.9, method=method)  # imports are no stops
    sys.setprofile(note)
    try:
        bcrl.evaluate(dataset, policy, discount=0.9, method=method)
    finally:
        sys.setprofile(None)
    return passed, after


def files_of(passed):
    return {file for file, _ in passed}


def test_a_default_call_passes_the_stops_of_the_readme():
    """At most thirty stops and thirty files for the answer itself; as many more as the README says where
    features are learned, and where a value that is not trusted asks for advice.
    """
    text = (ROOT / "README.md").read_text()
    words = " ".join(text.split())
    stops, learned = STOP.findall(text), LEARNED.findall(text)
    assert 20 <= len(stops) <= 30 and len(learned) >= 10
    rng = np.random.default_rng(0)
    x, u = rng.uniform(1, 2, (60, 41, 1)), np.zeros((60, 40, 1))
    for t in range(40):
        u[:, t] = -0.3 * x[:, t] + 0.3 * rng.normal(size=(60, 1))
        x[:, t + 1] = x[:, t] + u[:, t] + 0.05 * rng.normal(size=(60, 1))
    log = bcrl.Dataset.from_episodes(
        {"observations": s, "actions": a, "rewards": -(s[:-1, 0] ** 2), "terminated": False}
        for s, a in zip(x, u, strict=True)
    )
    quick, _ = passed_by(log, lambda x: -0.4 * x, None)
    assert [stop for stop in stops if stop not in quick] == []
    assert len(files_of(quick)) <= 30, sorted(files_of(quick))
    assert f"passes through {len(files_of(quick))} files of src/bcrl" in words, sorted(files_of(quick))

    noise = bcrl.Dataset.from_arrays(
        observations=rng.normal(size=(600, 2)),
        actions=rng.normal(size=(600, 1)),
        rewards=rng.normal(size=600),
        terminated=np.arange(600) % 20 == 19,
    )
    short = bcrl.Auto(bcrl.LSPE(bcrl.BellmanComplete(steps=3, dim=8, batch_size=64)))
    slow, advised = passed_by(noise, lambda x: -0.5 * x[:, :1], short)
    assert [stop for stop in learned if stop not in slow] == []
    more = files_of(slow) - files_of(quick)
    assert f"{len(more)} more learn features" in words, sorted(more)
    further = files_of(advised) - files_of(slow)
    assert f"{len(further)} more look for what can be done" in words, sorted(further)


def test_the_paths_that_the_map_names_are_there():
    text = (ROOT / "README.md").read_text()
    for path in re.findall(r"src/bcrl[\w/]*(?:\.py)?(?=[\s,;:`|)])", text):
        assert (ROOT / path).exists(), path
