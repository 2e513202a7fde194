"""The exact eps_nu of a study's rows, and what its forms change."""

import dataclasses

import pytest

from bcrl.estimators.lspe.method import LSPE
from bcrl.networks import Head
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl_bench.studies.published_presets import ADDED, exact_eps_nu, page, representation, wanted
from bcrl_bench.studies.study import ask_world
from bcrl_bench.worlds import chain, random_tabular

QUICK = BellmanComplete(dim=4, steps=5, evaluations=1, head=Head(hidden=8), steady=None)


@pytest.mark.parametrize(("world", "noisy"), [(chain(), False), (random_tabular(), True)])
def test_the_exact_eps_nu_is_the_estimates_without_the_noise_of_transitions(world, noisy):
    dataset = world.dataset(60, 20, 0)
    estimate = ask_world(LSPE(QUICK, repeats=1), world, dataset, 0)
    exact = exact_eps_nu(world, dataset, estimate)
    low, high = estimate.stats["eps_nu_low"], estimate.stats["eps_nu_high"]
    if noisy:
        assert exact.upper < 0.9 * low
    else:
        assert (exact.lower, exact.upper) == pytest.approx((low, high), rel=1e-3)


def test_a_form_is_the_preset_but_for_what_it_says():
    whole = BellmanComplete.paper()
    assert representation("paper", 8) == whole and representation("default", 8) == BellmanComplete()
    for form in {form for _, form in wanted()} - {"default"}:
        recipe = representation(form, 8)
        base, _, added = form.removesuffix("-narrow").partition("-")
        changed = ADDED[f"-{added}" if added else ""]
        if form != "paper" and (base == "flat" or form.endswith("narrow")):
            assert (recipe.dim, recipe.head) == (8, dataclasses.replace(whole.head, hidden=64))
        assert recipe.lr == (1e-3 if base == "flat" else 1e-5) == recipe.inner.lr
        assert recipe.published and recipe.inner.target_tau == 0.005
        assert recipe.design == changed.get("design", whole.design)
        assert (recipe.double_sampling is not None) == ("double_sampling" in changed)


def test_the_page_says_what_has_no_number():
    row = {"world": "tabular", "form": "flat", "updates": 5, "value": None, "truth": 1.0, "error": None}
    row |= {"eps_nu_low": 1.0, "eps_nu_high": 2.0, "eps_nu_radius": 3.0, "condition_number": None}
    row |= {"truncated_directions": 2.0, "features": 8.0, "core_seconds": 4.4, "training_drift": 0.16}
    assert (
        "| tabular | flat | 5 | diverged | 1.000 |  | 1 to 2 |  | 3 | infinite | 2 of 8 | 16% | 4 |"
        in page([row])
    )
