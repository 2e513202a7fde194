"""The code blocks of docs/data.md run, one after another, as a reader would run them."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "data.md"


def test_code_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 5
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(DOCS), "exec"), names)
    assert capsys.readouterr().out == "20 980 20\n"
    assert names["visits"].num_actions == 3 and names["pixels"].num_episodes == 4
