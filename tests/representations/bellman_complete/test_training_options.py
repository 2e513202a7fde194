"""Options of training: stopping and choosing by held-out figures, TensorBoard, compilation, bfloat16, the
warning about g.
"""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from bcrl.errors import BadInput
from bcrl.networks import Head
from bcrl.policies.policy import target_actions
from bcrl.representations.bellman_complete import BellmanComplete, DoubleSampling, Stopping
from bcrl.representations.bellman_complete.correction import warn_if_underfit
from bcrl.representations.bellman_complete.fitting import Choice
from bcrl.training import Run, autocast, compiler_found
from bcrl_bench.worlds import lqr

SMALL = BellmanComplete(dim=8, head=Head(hidden=16), batch_size=256, steps=24, evaluations=8, steady=None)
CPU = torch.device("cpu")


def fit(recipe, run=None, episodes=40):
    world = lqr()
    dataset = world.dataset(episodes, 25, 0)
    targets = [target_actions(dataset, world.target)]
    return dataset, recipe.fit(dataset, targets, discount=world.discount, seed=0, run=run or Run())


def features(dataset, fitted):
    z = fitted.encode(dataset.observe(dataset.rows[:200]))
    return fitted.features(z, dataset.action_matrix(dataset.actions[:200]))


def score(metrics):
    return np.square(metrics["held_out/eps_mean"]) + np.asarray(metrics["held_out/reward_share"])


def test_best_keeps_the_features_of_the_best_held_out_score():
    """With a learning rate that ruins the features, the best evaluation is not the last; its features come
    back.
    """
    wild = dataclasses.replace(SMALL, lr=0.3, schedule="constant", average_tau=None)
    dataset, last = fit(wild)
    _, best = fit(dataclasses.replace(wild, stopping=Stopping(keep="best")))
    assert best.metrics == last.metrics
    at = int(np.argmin(score(last.metrics)))
    assert at < len(score(last.metrics)) - 1
    steps = int(last.metrics["step"][at])
    _, short = fit(dataclasses.replace(wild, steps=steps, evaluations=steps // 3))
    assert np.array_equal(features(dataset, best), features(dataset, short))
    assert not np.array_equal(features(dataset, best), features(dataset, last))


def test_patience_stops_when_nothing_moves_and_not_before():
    still = dataclasses.replace(SMALL, lr=0.0, stopping=Stopping(patience=3))
    _, fitted = fit(still)
    assert fitted.metrics["step"] == [3.0, 6.0, 9.0, 12.0]
    _, moving = fit(dataclasses.replace(SMALL, stopping=Stopping(patience=3)))
    assert moving.metrics["step"][-1] == 24.0


def test_a_run_that_patience_ended_has_the_same_curves_when_it_is_read_again(tmp_path):
    recipe = dataclasses.replace(SMALL, lr=0.0, stopping=Stopping(patience=3))
    once = fit(recipe, Run(folder=tmp_path, save_every=0.0))[1]
    again = fit(recipe, Run(folder=tmp_path, save_every=0.0))[1]
    assert len(once.metrics["value"]) > 1 and once.metrics == again.metrics


def test_a_moving_value_is_not_settled():
    """No better score for a while is not enough: the value must stand still too."""

    def seen(values):
        choice = Choice(False)
        for value in values:
            choice.see({"held_out/eps_mean": 0.5, "held_out/reward_share": 0.1, "value": value}, None)
        return choice.should_stop(3)

    assert seen([1.0, 1.0, 1.0, 1.001]) and not seen([1.0, 1.0, 1.0, 1.1]) and not seen([1.0, 1.0, 1.0])
    assert not seen([1.0, float("nan"), 1.0, 1.0])


def test_tensorboard_files_hold_the_curves(tmp_path):
    _, fitted = fit(SMALL, Run(tensorboard=tmp_path))
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert set(read.Tags()["scalars"]) == set(fitted.metrics)
    events = read.Scalars("held_out/eps_rel")
    assert [event.step for event in events] == [3 * (k + 1) for k in range(8)]
    np.testing.assert_allclose(
        [event.value for event in events], fitted.metrics["held_out/eps_rel"], rtol=1e-6
    )
    folder = tmp_path / "none"
    fit(SMALL, Run(folder=folder))
    assert [path.name for path in folder.iterdir()] == ["checkpoint.pt"]


@pytest.mark.slow
def test_compiled_networks_give_the_same_features():
    """Where no compiler is found, nothing is compiled and every bit is the same; else up to rounding."""
    short = dataclasses.replace(SMALL, steps=3, evaluations=1)
    dataset, plain = fit(short)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch's own compiler
        _, compiled = fit(short, Run(compile=True))
    tolerance = 1e-4 if compiler_found(CPU) else 0.0
    np.testing.assert_allclose(
        features(dataset, compiled), features(dataset, plain), rtol=0.0, atol=tolerance
    )


def test_a_compiler_is_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert not compiler_found(CPU)
    tool = tmp_path / "clang++"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert compiler_found(CPU)


def test_bfloat16_trains_within_tolerance():
    recipe = dataclasses.replace(SMALL, batch_size=512, steps=30, evaluations=3)
    dataset, full = fit(recipe)
    _, half = fit(recipe, Run(precision="bfloat16"))
    assert not np.array_equal(features(dataset, full), features(dataset, half))
    ours, theirs = full.metrics["held_out/reward_share"], half.metrics["held_out/reward_share"]
    np.testing.assert_allclose(theirs[0], ours[0], rtol=0.1)
    assert theirs[-1] == pytest.approx(ours[-1], abs=0.1)
    assert features(dataset, half).dtype == np.float64
    with autocast(CPU, "auto"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_g_that_learns_nothing_is_warned_of():
    with pytest.warns(UserWarning, match="g underfits"):
        _, fitted = fit(dataclasses.replace(SMALL, double_sampling=DoubleSampling(lr=0.0)))
    assert fitted.metrics["held_out/g_share"] == fitted.metrics["held_out/linear_share"]


def test_g_that_learns_is_not():
    """Early features are not complete, and g finds what M phi misses; a warning here would be an error."""
    _, fitted = fit(dataclasses.replace(SMALL, double_sampling=DoubleSampling(5, 3e-3)))
    assert fitted.metrics["held_out/g_share"][-1] > fitted.metrics["held_out/linear_share"][-1]


def test_the_warning_reads_the_last_quarter():
    late = {"held_out/g_share": [0.9] * 6 + [0.1] * 2, "held_out/linear_share": [0.5] * 8}
    with pytest.warns(UserWarning, match="M phi alone 50.0%"):
        warn_if_underfit(late)
    warn_if_underfit({name: series[::-1] for name, series in late.items()})
    warn_if_underfit({})


def test_batches_no_larger_than_the_features_are_refused():
    with pytest.raises(BadInput, match="batch_size=8 is not above dim=8"):
        fit(dataclasses.replace(SMALL, batch_size=8))


def test_what_is_kept_is_the_mean_of_the_weights():
    """A rate of 1 follows the last weights exactly, so it must give what no averaging gives; a slow one must
    not.
    """
    last = dataclasses.replace(SMALL, average_tau=None)
    dataset, plain = fit(last)
    _, exact = fit(dataclasses.replace(last, average_tau=1.0))
    _, slow = fit(dataclasses.replace(last, average_tau=0.05))
    np.testing.assert_array_equal(features(dataset, plain), features(dataset, exact))
    assert plain.metrics["value"] == exact.metrics["value"]
    assert not np.allclose(features(dataset, plain), features(dataset, slow), atol=1e-4)
