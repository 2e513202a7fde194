"""The command line's promises: quick help, one line and exit code 2 for mistakes, nothing heavy before it is
needed.
"""

import subprocess
import sys
import time

import pytest

from bcrl.cli import OWN, added_commands, main


def test_help_fits_a_screen(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 24
    assert max(len(line) for line in text.splitlines()) <= 100
    assert all(command in text for command in [*OWN, *added_commands()])


def test_help_imports_nothing_heavy():
    code = "import sys; from bcrl.cli import main; main(['--help']); "
    code += "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"


def test_help_is_as_quick_as_its_parser():
    def seconds(code: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        return time.perf_counter() - begin

    ours = min(seconds("from bcrl.cli import main; main(['--help'])") for _ in range(5))
    parser = min(seconds("import tyro") for _ in range(5))
    assert ours <= 2 * parser


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["evalute"], "Did you mean 'evaluate'?"),
        (["evaluate"], "--discount"),
        (["evaluate", "a", "b", "--discont", "0.9"], "--discont"),
        (["evaluate", "no-such-file.npz", "b.onnx", "--discount", "0.9"], "no-such-file.npz"),
        (["compare", "a", "x/p.onnx", "y/p.onnx", "--discount", "0.9"], ""),
        (["report", "no-such.json"], "no-such.json"),
        (["doctor", "no-such-folder"], "no-such-folder"),
    ],
)
def test_mistakes_are_told_in_one_line(words, told, capsys):
    assert main(words) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert len(streams.err.strip().splitlines()) == 1
    assert told in streams.err


@pytest.mark.parametrize("command", [*OWN, *added_commands()])
def test_every_command_has_help_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"bcrl {command}" in capsys.readouterr().out
