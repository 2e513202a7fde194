"""Start states and actions that are no numbers, or none at all: one line, or an answer (F46)."""

import numpy as np
import pytest

import bcrl
from bcrl.data.storage.folder import save
from bcrl.errors import BadInput

METHOD = "LSPE(RandomFeatures(dim=8, widths=(1.0,)))"


def log(width=1):
    rng, end = np.random.default_rng(0), np.arange(60) % 10 == 9
    return bcrl.Dataset.from_arrays(
        observations=rng.normal(size=(60, 2)),
        actions=rng.normal(size=(60, width)),
        rewards=rng.normal(size=60),
        terminated=end,
    )


def value_at(starts):
    return bcrl.evaluate(log(), lambda x: 1.0 * x[:, :1], discount=0.9, method=METHOD, starts=starts).value


@pytest.mark.parametrize(
    "starts",
    [
        np.array([["a", "b"]]),
        [["1", "2"]],
        np.array([[1.0 + 2.0j, 0.0]]),
        [[None, 1.0]],
        [[1.0, 2.0], [3.0]],
        np.array([["2020-01-01", "2020-01-02"]], dtype="M8[D]"),
        {"observation": [["a", "b"]]},
    ],
    ids=["text", "numbers as text", "complex", "None", "ragged", "dates", "text by key"],
)
def test_starts_that_are_no_numbers_are_one_line(starts):
    with pytest.raises(BadInput, match=r"starts\['observation'\]") as refused:
        value_at(starts)
    assert "\n" not in str(refused.value)


def test_whole_numbers_and_booleans_are_numbers():
    assert np.isfinite([value_at(np.array([[1, 0]])), value_at([[True, False]])]).all()


def test_actions_without_a_column_are_one_line(tmp_path):
    """From arrays, and from a folder whose array was changed."""
    with pytest.raises(BadInput, match=r"actions have shape \(60, 0\)"):
        log(0)
    save(log(), tmp_path / "log")
    np.save(tmp_path / "log" / "actions.npy", np.zeros((60, 0), np.float32))
    with pytest.raises(BadInput, match="actions") as refused:
        bcrl.load_dataset(tmp_path / "log")
    assert "\n" not in str(refused.value)
