"""What the tests of several estimators share."""

import pytest

from bcrl.training import Run
from bcrl_bench.worlds import random_tabular


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def world():
    """A small world of states and actions, with exact values."""
    return random_tabular()


@pytest.fixture
def killed_and_resumed(tmp_path):
    """A function of `work(run)`: kills it at step 100 and returns what it says when it is resumed."""

    def kill(shown):
        if shown["step"] >= 100:
            raise Killed

    def resume(work):
        with pytest.raises(Killed):
            work(Run(folder=tmp_path, show=kill, save_every=0.0))
        assert list(tmp_path.rglob("checkpoint.pt"))
        return work(Run(folder=tmp_path, save_every=0.0))

    return resume
