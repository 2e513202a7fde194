"""Logs of intensive care on which weights were believed once (F15, F16). Seen on 1cdf397, on these very logs:
the clinicians, worth 0.72, "0.14, trust"; the policy half-way to the optimal one, worth 0.76, "0.45", "0.49",
"0.54", each "caution" with an interval that ends below 0.6."""

import numpy as np
import pytest

import bcrl
from bcrl_bench.proving.families.icu_sepsis import SURVIVAL, make


def draw(rng, shares):
    """One column of each row, by its probability."""
    total = shares.cumsum(axis=1)
    return (rng.random(len(shares))[:, None] * total[:, -1:] >= total).sum(axis=1)


def stays(seed, count, row_after_the_end):
    """Stays of the clinicians' patients; `row_after_the_end`: a row more each, of probability near 0."""
    world, rng = make(0), np.random.default_rng(seed)
    ids, states, rows = np.arange(count), rng.choice(len(world.first), count, p=world.first), []
    for step in range(1_000):
        doses = draw(rng, world.clinicians[states])
        following = draw(rng, world.transition[states, doses])
        left, chance = world.terminal[following], np.log(world.clinicians[states, doses])
        columns = ids, np.full(len(ids), step), states, doses, following == SURVIVAL, left, chance
        if row_after_the_end:
            columns = (*columns[:5], np.zeros(len(ids)), chance)
            num = left.sum()
            after = ids[left], np.full(num, step + 1), following[left], rng.integers(25, size=num)
            rows.append(np.column_stack([*after, np.zeros(num), np.ones(num), np.full(num, np.log(1e-8))]))
        rows.append(np.column_stack(columns))
        ids, states = ids[~left], following[~left]
        if not len(ids):
            break
    _, _, states, doses, rewards, ended, chance = _by_stay(np.concatenate(rows)).T
    return bcrl.Dataset.from_arrays(
        world.codes[states.astype(int)],
        doses.astype(int),
        rewards,
        ended > 0,
        log_prob=chance,
        num_actions=25,
    )


def _by_stay(rows):
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]


def test_the_clinicians_own_value_is_not_missed_and_trusted():
    log, clinicians = stays(0, 2_000, row_after_the_end=True), make(0).policies["medium"]
    estimate = bcrl.evaluate(log, clinicians, discount=0.99, method="is")
    assert estimate.value < 0.3 and estimate.verdict == "distrust"
    assert any("probability below 1e-7" in reason for reason in estimate.reasons)


@pytest.mark.parametrize("seed", [14, 25, 36])
def test_weights_that_a_few_stays_decide_are_distrusted(seed):
    estimate = bcrl.evaluate(stays(seed, 2_000, False), make(0).policies["good"], discount=0.99, method="is")
    assert estimate.interval.high < 0.6 and estimate.verdict == "distrust"
