"""The real logs are read as they were written, and Thompson's probabilities agree with an integral."""

import numpy as np
import pytest
from scipy import stats

from bcrl_bench.studies.open_bandit import CAMPAIGNS, policy, prior, read_log, row


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_random_policy_is_the_one_that_logged(campaign):
    log = read_log(campaign, "random")
    seen = log.observations["observation"][log.rows]
    computed = policy("random", campaign).probabilities(seen)[np.arange(len(log)), log.actions]
    assert np.allclose(np.log(computed), log.log_prob)


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_first_position_is_the_chance_of_the_largest_draw(campaign):
    """P(item i is largest) = integral of its density times all the others' distribution functions."""
    alpha, beta = prior(campaign)
    grid = np.linspace(1e-4, 0.03, 3_001)[:, None]
    below = np.maximum(stats.beta.logcdf(grid, alpha, beta), -700.0)  # no infinity minus infinity
    density = np.exp(stats.beta.logpdf(grid, alpha, beta) + below.sum(axis=1, keepdims=True) - below)
    chances = density.sum(axis=0) * (grid[1, 0] - grid[0, 0])
    assert abs(chances.sum() - 1.0) < 1e-3
    assert np.abs(policy("bts", campaign).table[0] - chances).max() < 0.006  # 100,000 draws: 0.0016 at a half


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_each_policy_from_the_others_log_is_worth_what_it_earned(campaign):
    for logged_by in ("random", "bts"):
        found = row(campaign, logged_by)
        error = np.hypot(found["standard_error"], found["own_standard_error"])
        assert 38 <= found["clicks_in_log"] <= 69
        assert abs(found["value"] - found["own_log"]) < 3.5 * error
