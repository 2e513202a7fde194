"""The names that `import bcrl` offers: each there, each listed once, none costing anything until used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bcrl
from bcrl.errors import BadInput
from bcrl.methods import SHORT, parse_method


@pytest.mark.parametrize("name", bcrl.__all__)
def test_every_public_name_is_there(name):
    assert getattr(bcrl, name).__name__ == name


def test_the_lists_agree():
    tree = ast.parse(Path(bcrl.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(bcrl.__all__) == set(bcrl._HOME)


def test_importing_bcrl_imports_nothing_heavy():
    code = "import sys, bcrl; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        *SHORT,
        "LSPE(RandomFeatures(dim=64), split='half')",
        "LSPE(BellmanComplete.paper())",
        "LSPE(BellmanComplete(dim=64, head=Head(layers=4), pixels=Pixels(conv_layers=5)))",
        "LSPE(BellmanComplete(design=Design(kind='E', constraint=0.1), double_sampling=DoubleSampling()))",
    ],
)
def test_a_method_prints_as_the_text_that_makes_it(text):
    method = parse_method(text)
    assert parse_method(repr(method)) == method
    if text not in SHORT and ".paper" not in text:
        assert repr(method) == text


def test_a_short_name_is_short_for_the_text_that_is_printed():
    texts = {name: text for name, text in SHORT.items() if name != "dr"}  # which prints its Q too
    assert all(repr(parse_method(name)) == text for name, text in texts.items())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fqa", "Did you mean 'fqe'"),
        ("LSPE(BelmanComplete())", "Did you mean 'BellmanComplete'"),
        ("LSPE(BellmanComplete(dimm=3))", "Did you mean 'dim'"),
        ("LSPE(BellmanComplete.papers())", "Did you mean 'paper'"),
        ("RandomFeatures()", "LSPE(RandomFeatures())"),
        ("__import__('os').system('true')", "Unknown method"),
        ("FQE(steps=open('x'))", "Unknown method"),
        ("LSPE(", "Cannot read"),
        ("FQE(steps=10, steps=20)", "every option once"),
        ("FQE(**{'steps': 1})", "every option once"),
        ("Head(layers=2)", "part of a method"),
    ],
)
def test_unknown_methods_are_refused_in_one_line(text, told):
    with pytest.raises(BadInput) as refused:
        parse_method(text)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
