"""The page on adding a representation: its file does what the page says of it, inside and outside the
package.
"""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import bcrl
from bcrl import methods
from bcrl.representations import stored
from bcrl_bench.worlds import lqr

PAGE = Path(__file__).parents[2] / "docs" / "adding_a_representation.md"


@pytest.fixture
def principal(tmp_path, monkeypatch):
    """The page's first block as a file of its own."""
    text = re.search(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (tmp_path / "principal.py").write_text(text.group(1))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("principal")
    del sys.modules["principal"]


@pytest.fixture
def in_the_package(principal, monkeypatch):
    """The two lines that the page asks for."""
    monkeypatch.setitem(methods._CLASSES, "PrincipalQuadratic", "principal")
    monkeypatch.setitem(stored._FITTED, "principal quadratic", "principal")


def test_it_finds_an_exact_value_and_the_same_bits_again(principal):
    world = lqr()
    method = bcrl.LSPE(principal.PrincipalQuadratic())
    dataset = world.dataset(400, 20, seed=0)
    first, again = (
        bcrl.evaluate(dataset, world.target, discount=world.discount, method=method) for _ in range(2)
    )
    assert first.value == again.value
    assert first.value == pytest.approx(world.value, rel=0.05)
    states = dataset.observations["observation"][:50]
    assert first.value_at(states) == pytest.approx(world.v(states), rel=0.1, abs=0.05)
    assert first.curves["train/explained"][-1] == pytest.approx(1.0)


def test_it_is_read_from_text_and_saved_to_the_bit(in_the_package, tmp_path):
    world = lqr()
    dataset = world.dataset(50, 20, seed=0)
    method = "LSPE(PrincipalQuadratic(components=2))"
    estimate = bcrl.evaluate(dataset, world.target, discount=world.discount, method=method)
    assert "PrincipalQuadratic(components=2)" in estimate.method
    loaded = bcrl.load_estimate(estimate.save(tmp_path / "saved"), policy=world.target)
    states = dataset.observations["observation"][:20]
    assert np.array_equal(loaded.value_at(states), estimate.value_at(states))


def test_outside_the_package_loading_refuses_in_one_line(principal, tmp_path):
    world = lqr()
    method = bcrl.LSPE(principal.PrincipalQuadratic())
    estimate = bcrl.evaluate(
        world.dataset(50, 20, seed=0), world.target, discount=world.discount, method=method
    )
    folder = estimate.save(tmp_path / "saved")
    with pytest.raises(bcrl.BadInput, match="principal quadratic"):
        bcrl.load_estimate(folder, policy=world.target)
