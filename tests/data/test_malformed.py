"""Every malformed input gives exit code 2 and one line that names the culprit; no traceback reaches the
user.
"""

import pytest
from malformed import CASES

from bcrl.cli import main


def test_the_table_is_long_enough():
    assert len(CASES) >= 50


@pytest.mark.parametrize("case", CASES)
def test_one_line_names_the_culprit(case, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    make, words = CASES[case]
    code = main(["doctor", *make(tmp_path)])
    out, err = capsys.readouterr()
    assert code == 2
    # Mistakes in the values of a well-formed file are the doctor's own findings and go to standard output.
    told = err if err else next(line for line in out.splitlines() if "error:" in line)
    assert len(told.strip().splitlines()) == 1 and "Traceback" not in out + err
    for word in words:
        assert word in told, f"{word!r} is not in {told!r}"
