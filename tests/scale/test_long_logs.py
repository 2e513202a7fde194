"""Logs that are long: codes of observations that are made again, clusters in pieces, and what a row costs."""

import tracemalloc

import numpy as np
import pytest

import bcrl
from bcrl import Dataset
from bcrl.data import dataset
from bcrl.data.storage.folder import save
from bcrl.doctor import examine, log, predicting
from bcrl.linear import sandwich
from bcrl.policies.policy import resolve_policy
from bcrl.question import Question
from bcrl.representations import features
from bcrl.training import Run
from bcrl_bench.worlds import lqr

METHODS = [bcrl.LSPE(bcrl.RandomFeatures(dim=16)), bcrl.Anchored()]


@pytest.mark.parametrize("method", METHODS, ids=lambda one: type(one).__name__)
def test_what_is_not_held_gives_the_same_bits(monkeypatch, method):
    world = lqr()
    logged = world.dataset(60, 12, 0)
    held = bcrl.evaluate(logged, world.target, discount=0.9, method=method)
    monkeypatch.setattr(features, "_MOST_CODES", 0)
    again = bcrl.evaluate(logged, world.target, discount=0.9, method=method)
    assert repr((again.value, again.standard_error, again.stats)) == repr(
        (held.value, held.standard_error, held.stats)
    )
    np.testing.assert_array_equal(again.influence, held.influence)


def test_clusters_in_pieces_give_the_same_error(monkeypatch):
    world = lqr()
    logged = world.dataset(60, 12, 0)
    whole = bcrl.evaluate(logged, world.target, discount=0.9, method=METHODS[0])
    monkeypatch.setattr(sandwich, "_CLUSTERS_AT_ONCE", 7)
    pieces = bcrl.evaluate(logged, world.target, discount=0.9, method=METHODS[0])
    assert pieces.standard_error == pytest.approx(whole.standard_error, rel=1e-12)


def half(observations):
    return 0.5 * observations[:, :2]


def most_held(work):
    """Bytes allocated at the worst moment."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def bytes_a_row(folder, work):
    """How much more two logs of 40 columns take, one longer than the other by 200,000 rows."""
    generator, peaks = np.random.default_rng(0), []
    for rows in (100_000, 300_000):
        numbers, ends = generator.normal(size=(rows, 40)), np.arange(rows) % 100 == 99
        log = Dataset.from_arrays(numbers, numbers[:, :2], numbers[:, 2], ends)
        log = bcrl.load_dataset(save(log, folder / f"{rows}"))
        peaks.append(most_held(lambda log=log: work(log)))
    return (peaks[1] - peaks[0]) / 200_000


def test_an_evaluation_holds_no_second_copy_of_the_log(tmp_path, monkeypatch):
    """Indices, the policy's actions, weights and TD errors of each row, whatever its width."""
    monkeypatch.setattr(features, "_MOST_CODES", 0)

    def evaluate(log):
        question = Question.of(log, {"half": resolve_policy(log, bcrl.load_policy(half))}, discount=0.9)
        METHODS[0].estimate(question, Run())

    assert bytes_a_row(tmp_path, evaluate) < 100


def test_the_doctor_holds_no_column(tmp_path, monkeypatch):
    """A flag here and there, and medians of a sample."""
    monkeypatch.setattr(predicting, "_ROWS", 200)
    monkeypatch.setattr(log, "_MOST_ROWS", 1000)
    monkeypatch.setattr(dataset, "_AT_ONCE", 1 << 16)
    policy = bcrl.load_policy(half)
    assert bytes_a_row(tmp_path, lambda log: examine(log, policy)) < 8
