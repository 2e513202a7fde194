"""The error budget: every entry large where it must be and small elsewhere, and what follows."""

import json
import math

import pytest

import bcrl
from bcrl.estimate import Budget, Check, Entry, Estimate, Interval
from bcrl.inference.budget import budget_of, entries_of, multiplier_of, multipliers
from bcrl_bench.worlds import lqr
from bcrl_bench.worlds.findings import f6_truncated_tail, f8_noise_in_half, f9_confounder, f10_previous_action

NUMBERS = {
    "evidence/scale": 10.0,
    "evidence/novelty": 1.0,
    "evidence/unsupported": 0.0,
    "evidence/highest_return": 12.0,
    "evidence/lowest_return": 8.0,
    "evidence/return_spread": 1.0,
    "evidence/consensus": 10.05,
    "evidence/view cosines 0.5": 10.0,
    "evidence/view quadratic": 10.2,
    "evidence/view returns 0.5": 10.1,
    "evidence/correction quadratic": 0.1,
    "evidence/correction chain": -0.3,
}


def test_entries_are_amounts_of_the_reward():
    found = entries_of(NUMBERS, 10.0, 0.5)
    assert found == pytest.approx(
        {
            "sampling": 0.98,
            "Bellman error": 0.2,
            "other views": 0.15,
            "beyond the log": 0.0,
            "unlike places": 0.0,
            "unlike actions": 0.0,
            "no contrast": 0.0,
            "floor": 0.1,
        },
        abs=1e-3,
    )


@pytest.mark.parametrize(
    ("change", "entry", "amount"),
    [
        ({"evidence/highest_return": 7.0}, "beyond the log", 15.0),
        ({"evidence/lowest_return": 11.0}, "beyond the log", 5.0),
        ({"evidence/novelty": 5.0}, "unlike places", 2.0),
        ({"evidence/unsupported": 0.4}, "unlike actions", 10.0 / 3.0),
        ({"evidence/unsupported": 0.1}, "unlike actions", 0.0),  # as the logging policy itself
        ({"evidence/return_spread": 0.0}, "no contrast", 20.0),
        ({"evidence/correction chain": 50.0}, "Bellman error", 20.0),  # never more than twice the scale
    ],
)
def test_each_source_of_error_is_in_its_entry(change, entry, amount):
    assert entries_of(NUMBERS | change, 10.0, 0.5)[entry] == pytest.approx(amount)


def test_no_value_or_no_evidence_has_no_budget():
    assert entries_of(NUMBERS, math.nan, 0.5) == {}
    assert entries_of({"self_check_gap": 1.0}, 10.0, 0.5) == {}


def test_entries_add_up_to_the_honest_half_width():
    estimate = Estimate(10.0, "LSPE(RandomFeatures())", 0.9, standard_error=0.5, stats=NUMBERS)
    budget = budget_of(estimate)
    half = (budget.honest.high - budget.honest.low) / 2.0
    assert sum(entry.amount for entry in budget.entries) == pytest.approx(half)
    assert [e.amount for e in budget.entries] == sorted((e.amount for e in budget.entries), reverse=True)
    assert budget.multiplier == multiplier_of("LSPE(RandomFeatures())")


def test_an_unknown_method_gets_the_multiplier_of_all_methods():
    assert multiplier_of("Mine(3)") == multipliers()["other"]


@pytest.mark.parametrize(("half", "verdict"), [(0.9, "trust"), (1.1, "caution"), (3.1, "distrust")])
def test_the_verdict_is_the_width(half, verdict):
    budget = Budget((), Interval(5.0 - half, 5.0 + half), scale=10.0, multiplier=1.0)
    loud = Check("reward fit", 1.0, 0.3, "distrust", "A diagnostic.", binding=False)
    estimate = Estimate(5.0, "m", 0.9, budget=budget, checks=(loud,))
    assert estimate.verdict == verdict
    bound = Check("near-copies", None, None, "caution", "A fault of the log.")
    assert Estimate(5.0, "m", 0.9, budget=budget, checks=(bound,)).verdict != "trust"


def test_a_budget_survives_json():
    budget = Budget((Entry("sampling", 1.0, "m", "r"),), Interval(4.0, 6.0), scale=10.0, multiplier=2.0)
    estimate = Estimate(5.0, "m", 0.9, budget=budget)
    again = Estimate.from_json(estimate.to_json())
    assert again.budget == budget
    assert "sampling" in json.loads(estimate.to_json())["budget"]["entries"][0]["name"]


def blind(states, actions):
    return actions[:, :1] ** 0


def test_features_that_see_nothing_cost_trust_by_bellman_error():
    world = lqr(0)
    dataset = world.dataset(100, 40, 1)
    good, bad = (
        bcrl.evaluate(dataset, world.target, discount=world.discount, method=bcrl.LSPE(bcrl.GivenFeatures(f)))
        for f in (world.features, blind)
    )
    amounts = [{e.name: e.amount for e in one.budget.entries} for one in (good, bad)]
    assert amounts[1]["Bellman error"] > 3.0 * amounts[0]["Bellman error"]
    assert abs(bad.value - world.value) > 0.3 * abs(world.value)
    assert bad.verdict == "distrust"
    assert world.value in good.budget.honest


def test_the_log_that_never_varied_in_half_of_the_states_is_not_trusted():
    """F8: the default of FQE said 9.96, trusted, for 5."""
    case = f8_noise_in_half()
    dataset = bcrl.Dataset.from_arrays(**case.arrays)
    found = bcrl.evaluate(
        dataset, case.policy, discount=case.discount, method="LSPE(RandomFeatures(dim=100))"
    )
    assert abs(found.value - case.truth) > 0.1 * case.truth
    assert found.verdict == "distrust"
    amounts = {entry.name: entry.amount / found.budget.multiplier for entry in found.budget.entries}
    assert amounts["unlike actions"] > 0.3 * found.budget.scale


@pytest.mark.parametrize(
    ("make", "markov"), [(f9_confounder, False), (f10_previous_action, False), (f6_truncated_tail, True)]
)
def test_effects_of_the_past_are_found(make, markov):
    """F9 (19.5, trusted, for 12) and F10 (9.6, trusted, for 14)."""
    case = make()
    dataset = bcrl.Dataset.from_arrays(**case.arrays)
    found = bcrl.evaluate(
        dataset, case.policy, discount=case.discount, method="LSPE(RandomFeatures(dim=100))"
    )
    named = {check.name for check in found.checks if check.binding}
    assert ("effects of the past" not in named) is markov
    assert (found.verdict == "trust") is markov
