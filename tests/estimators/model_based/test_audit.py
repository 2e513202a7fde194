"""Audits of a learned world: each is shown a world that it must trust and worlds that it must find out."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bcrl.data.dataset import Dataset
from bcrl.estimators.model_based.audit import familiar_share, replay_gap


class Drifting:
    """A model that adds the action to its state and pays what a factor makes of the state."""

    keys = ("observation",)

    def __init__(self, factor):
        self.factor = factor

    def first_state(self, observations, generator):
        return torch.from_numpy(np.asarray(observations["observation"], dtype=np.float32))

    def vector(self, state):
        return state

    def advance(self, state, actions, generator):
        moved = state + actions
        return moved, self.factor * state[:, 0], torch.ones(len(state))


def steady_walks():
    """Episodes of 40 steps that move up by about 0.1 a step; the reward is the position."""
    generator = np.random.default_rng(0)
    actions = generator.normal(0.1, 0.05, (30, 40, 1)).astype(np.float32)
    places = np.concatenate([np.ones((30, 1, 1)), 1.0 + actions.cumsum(axis=1)], axis=1).astype(np.float32)
    return Dataset.from_episodes(
        {"observations": s, "actions": a, "rewards": s[:-1, 0], "terminated": np.zeros(40, dtype=bool)}
        for s, a in zip(places, actions, strict=True)
    )


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "trust"), (0.75, "caution"), (0.3, "distrust")])
def test_a_model_that_pays_too_little_when_led_by_the_log_is_found_out(factor, verdict):
    found = replay_gap(Drifting(factor), steady_walks(), 0.95, torch.Generator(), seed=0)
    assert found.gap / found.scale == pytest.approx(factor - 1.0, abs=1e-5)
    assert found.check().verdict == verdict


class Levelling(Drifting):
    """Pays low places too much and high ones too little."""

    def advance(self, state, actions, generator):
        moved, reward, going = super().advance(state, actions, generator)
        return moved, reward + torch.where(state[:, 0] < 8.0, 3.0, -3.0), going


def test_errors_that_cancel_between_logging_policies_are_found_at_each_ones_starts():
    low = steady_walks()
    both = Dataset.from_episodes(
        {
            "observations": low.observations["observation"][41 * e : 41 * e + 41] + lift,
            "actions": low.actions[40 * e : 40 * e + 40],
            "rewards": low.rewards[40 * e : 40 * e + 40] + lift,
            "terminated": np.zeros(40, dtype=bool),
            "behaviour": name,
        }
        for name, lift in (("low", 0.0), ("high", 10.0))
        for e in range(30)
    )
    unlabelled = replace(both, behaviour=None)
    verdicts = [
        replay_gap(Levelling(1.0), log, 0.95, torch.Generator(), seed=0).check().verdict
        for log in (unlabelled, both)
    ]
    assert verdicts == ["trust", "distrust"]


def test_imagination_that_leaves_the_log_is_unfamiliar():
    data, generator = steady_walks(), torch.Generator().manual_seed(0)
    numbers = np.random.default_rng(1)
    states, actions = numbers.uniform(1.2, 4.5, (500, 1)), numbers.normal(0.1, 0.04, (500, 1))
    shares = [
        familiar_share(Drifting(1.0), data, SimpleNamespace(states=s, actions=a), generator, seed=0)
        for s, a in ((states, actions), (states + 20.0, actions), (states, actions + 1.0))
    ]
    assert shares[0] > 0.9 and max(shares[1:]) < 0.05
