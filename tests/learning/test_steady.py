"""A training whose value wanders is followed by one with layer norm, and the verdict remembers it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from worlds import lqr

from bcrl import checks
from bcrl.estimators.linear import LSPE
from bcrl.evaluation import evaluate
from bcrl.policy import target_actions
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.bellman_complete.steady import FIRST_TRY, drift, steadier
from bcrl.representations.fitted import FittedFeatures
from bcrl.training import Run

SMALL = BellmanComplete(dim=8, hidden=16, batch_size=128, steps=30, evaluations=10, steady=None)
WORLD = lqr()
DATA = WORLD.dataset(20, 20, 0)


def fit(recipe, run=None):
    return recipe.fit(DATA, [target_actions(DATA, WORLD.target)], discount=0.9, seed=3, run=run or Run())


def fitted(*values):
    return FittedFeatures(None, {"value": list(values)})


def never():
    raise AssertionError("trained again without need")


def test_drift_is_over_the_last_half_and_relative_to_the_end():
    assert drift([100.0, 100.0, 5.0, 4.0]) == pytest.approx(0.25)
    assert math.isnan(drift([]))
    assert drift([1.0, 1.0, math.nan, 1.0]) == math.inf


def test_a_steady_training_is_kept():
    first = fitted(9.0, 9.0, 4.1, 4.0)
    assert steadier(first, never, 0.1) is first


def test_few_evaluations_show_no_drift():
    first = fitted(9.0, 1.0)
    assert steadier(first, never, 0.1) is first


@pytest.mark.parametrize("restless", [[9.0, 9.0, 5.0, 4.0], [9.0, 9.0, math.nan, 4.0]])
def test_a_restless_training_gives_way_to_a_steadier_one(restless):
    kept = steadier(fitted(*restless), lambda: fitted(9.0, 9.0, 6.3, 6.0), 0.1)
    assert kept.metrics["value"] == [9.0, 9.0, 6.3, 6.0]
    assert kept.metrics[FIRST_TRY] == restless


def test_the_first_is_kept_where_the_second_is_no_steadier():
    first = fitted(9.0, 9.0, 5.0, 4.0)
    assert steadier(first, lambda: fitted(9.0, 9.0, 9.0, 4.0), 0.1) is first


def test_the_second_training_is_the_recipe_with_layer_norm_and_two_thirds_of_the_steps():
    plain, calm = fit(SMALL), fit(replace(SMALL, layer_norm=True, steps=20))
    assert drift(calm.metrics["value"]) < drift(plain.metrics["value"])  # or the line below would say nothing
    kept = fit(replace(SMALL, steady=0.0))
    assert kept.metrics[FIRST_TRY] == plain.metrics["value"]
    for name, array in calm.tensors().items():
        np.testing.assert_array_equal(kept.tensors()[name], array)


def test_both_trainings_go_on_from_their_checkpoints(tmp_path):
    run = Run(folder=tmp_path, save_every=0.0)
    recipe = replace(SMALL, steady=0.0)
    once, files = fit(recipe, run), {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.pt")}
    assert len({path.parent for path in files}) == 2
    again = fit(recipe, run)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.pt")} == files
    for name, array in once.tensors().items():
        np.testing.assert_array_equal(again.tensors()[name], array)


def test_a_second_training_is_never_more_than_caution():
    assert checks.stable_training(0.01).verdict == "trust"
    assert checks.stable_training(0.01, 0.4).verdict == "caution"
    assert checks.stable_training(0.9, 1.4).verdict == "distrust"


def test_the_estimate_says_so():
    method = LSPE(replace(SMALL, steady=0.0), repeats=1)
    found = evaluate(DATA, WORLD.target, discount=0.9, method=method, seed=3)
    assert found.stats["first_try_drift"] > 0.0
    assert next(c for c in found.checks if c.name == "stable training").verdict != "trust"


def test_published_presets_train_once():
    assert BellmanComplete.paper().steady is None and BellmanComplete.released().steady is None
