"""One question for all methods: policies are asked once, computations are named by content, every quantile
follows the level.
"""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from scipy import stats

import bcrl
from bcrl.estimators.fqe import Flat
from bcrl.evaluation import identity
from bcrl.methods import settings_of
from bcrl.policies.policy import TargetActions
from bcrl.question import Question
from bcrl_bench.worlds import lqr, pixel_lqr, random_tabular

WORLD = lqr()
DATA = WORLD.dataset(30, 12, 0)
FQE = bcrl.FQE(steps=60, hidden=(16,), members=2, flat=Flat(check_every=20))
METHODS = {
    "lspe": bcrl.LSPE(bcrl.RandomFeatures(dim=30)),
    "fqe": FQE,
    "dice": bcrl.FlowDICE(steps=20, hidden=16),
    "is": bcrl.ImportanceSampling(bandwidth=0.5),
    "dr": bcrl.DoublyRobust(q=FQE, bandwidth=0.5),
}


def still(x):
    return np.zeros((len(x), DATA.action_dim))


def strong(x):
    return np.ones((len(x), DATA.action_dim))


class Counted:
    """Counts the rows that it is asked about."""

    reads = None

    def __init__(self):
        self.rows = 0

    def act(self, observations):
        self.rows += len(observations)
        return still(observations)


@pytest.mark.parametrize("name", ["lspe", "fqe", "dice"])
def test_a_policy_is_asked_about_every_row_and_start_once(name):
    policy = Counted()
    METHODS[name].estimate(Question.of(DATA, {"p": policy}, discount=0.9), bcrl.training.Run())
    assert policy.rows == len(DATA) + 2 * DATA.num_episodes


def test_two_functions_in_one_folder_never_meet(tmp_path):
    """F40: a policy without a file was known by its class's name, and took the other one's checkpoint."""
    values = {}
    for name, policy in {"still": still, "strong": strong}.items():
        alone = bcrl.evaluate(DATA, policy, discount=0.9, method=FQE)
        kept = bcrl.evaluate(DATA, policy, discount=0.9, method=FQE, folder=tmp_path)
        again = bcrl.evaluate(DATA, policy, discount=0.9, method=FQE, folder=tmp_path)
        assert alone.value == kept.value == again.value
        values[name] = alone.value
    assert values["still"] != values["strong"]


def test_names_that_map_to_one_file_name_never_meet(tmp_path):
    """F40: `new policy` and `new_policy` shared one checkpoint."""
    policies = {"new policy": still, "new_policy": strong}
    asked = {"discount": 0.9, "methods": {"fqe": FQE}}
    table = bcrl.compare(DATA, policies, folder=tmp_path, **asked)
    for name, policy in policies.items():
        alone = bcrl.evaluate(DATA, policy, discount=0.9, method=FQE)
        assert table.estimates[name]["fqe"].value == alone.value


def test_identity_is_content():
    def name(method=FQE, policy=still, **changes):
        asked = {"discount": 0.9} | changes
        return identity(Question.of(DATA, {"p": bcrl.load_policy(policy)}, **asked), "data", method)

    renamed = dataclasses.replace(FQE)
    object.__setattr__(renamed, "__class__", type("Renamed", (bcrl.FQE,), {"__module__": "bcrl.elsewhere"}))
    assert name() == name(policy=lambda x: 0.0 * np.abs(x[:, : DATA.action_dim])) == name(method=renamed)
    assert name() == name(level=0.5)  # the same trainings serve every level
    others = [
        name(method=dataclasses.replace(FQE, lr=2e-4)),
        name(policy=strong),
        name(discount=0.91),
        name(horizon=5),
        name(seed=1),
        name(starts=DATA.observe(np.arange(3))),
    ]
    assert len({name(), *others}) == 7


def test_two_classes_of_others_with_the_same_fields_are_two_methods():
    own = {"fit": lambda self, *given, **named: None}
    one, two = (
        dataclasses.make_dataclass(name, [("dim", int, 4)], frozen=True, namespace=own)() for name in "AB"
    )
    assert settings_of(bcrl.LSPE(one)) != settings_of(bcrl.LSPE(two))


def test_methods_with_the_same_fields_are_the_same_computation():
    """Their classes' names are not in their identity. FlowDICE is BestDICE with other numbers."""
    classes = [getattr(bcrl, name) for name in [*bcrl.ESTIMATORS, *bcrl.REPRESENTATIONS]]
    same = [
        (one, two)
        for one, two in itertools.combinations(classes, 2)
        if {f.name for f in dataclasses.fields(one)} == {f.name for f in dataclasses.fields(two)}
    ]
    assert same == [(bcrl.BestDICE, bcrl.FlowDICE)]
    assert bcrl.FlowDICE.estimate is bcrl.BestDICE.estimate


def scaled(k):
    return bcrl.GivenFeatures(lambda s, a: k * s)


def recursive():
    def powers(s, a, degree=2):
        return s if degree == 0 else s * powers(s, a, degree - 1)

    return bcrl.GivenFeatures(powers)


def test_settings_know_functions_and_numbers():
    assert settings_of(scaled(1.0)) != settings_of(scaled(2.0)) == settings_of(scaled(2.0))
    assert settings_of(recursive()) == settings_of(recursive())
    tables = [np.zeros(5000), np.eye(1, 5000, 2500)[0]]
    assert settings_of(scaled(tables[0])) != settings_of(scaled(tables[1]))
    one, same, other = (bcrl.GivenFeatures(f) for f in (lambda s, a: s, lambda s, a: s, lambda s, a: s + a))
    assert settings_of(one) == settings_of(same) != settings_of(other)
    assert json.loads(json.dumps(settings_of(bcrl.DoublyRobust(q=FQE))))["q"]["lr"] == FQE.lr


@pytest.mark.parametrize("name", list(METHODS))
def test_every_interval_follows_the_level(name):
    wide, narrow = (
        bcrl.compare(DATA, {"p": still}, discount=0.7, methods={"m": METHODS[name]}, level=level)
        for level in (0.95, 0.5)
    )
    for table, level in ((wide, 0.95), (narrow, 0.5)):
        estimate, difference = table.estimates["p"]["m"], table.differences["p"]["m"]
        for interval in (estimate.interval, table.logged.interval, difference.interval):
            assert interval.level == level == table.level and interval.degrees_of_freedom > 0
        reach = stats.t.ppf(0.5 + level / 2, estimate.interval.degrees_of_freedom) * estimate.standard_error
        assert estimate.interval.high - estimate.value == pytest.approx(reach)
        again = bcrl.Estimate.from_json(estimate.to_json())
        assert again.interval == estimate.interval
    assert wide.differences["p"]["m"].lower_bound < narrow.differences["p"]["m"].lower_bound
    assert wide.estimates["p"]["m"].verdict == narrow.estimates["p"]["m"].verdict


def test_the_interval_of_a_state_follows_the_level():
    states = DATA.observe(np.arange(4))
    wide, narrow = (
        bcrl.evaluate(DATA, still, discount=0.9, method=METHODS["lspe"], level=level) for level in (0.9, 0.5)
    )
    spans = [np.subtract(*e.value_at(states, interval=True)[:0:-1]) for e in (wide, narrow)]
    assert (spans[0] > 1.5 * spans[1]).all()


@pytest.mark.parametrize("level", [0, 1, -0.5, "95", True, float("nan")])
def test_a_level_that_is_none_is_refused(level):
    with pytest.raises(bcrl.BadInput, match="level is"):
        bcrl.evaluate(DATA, still, discount=0.9, method="random", level=level)


def test_the_first_draws_of_many_are_the_draws_of_few():
    world = random_tabular()
    exact = Question.of(world.dataset(5, 5, 0), {"t": world.target}, discount=0.9).targets["t"].actions
    assert exact.first(1) is exact
    drawn = TargetActions(np.arange(12, dtype=np.float32).reshape(2, 3, 2), np.full((2, 3), 1 / 3))
    assert drawn.first(3) is drawn
    np.testing.assert_array_equal(drawn.first(2).actions, drawn.actions[:, :2])
    np.testing.assert_array_equal(drawn.first(2).weights, np.full((2, 2), 0.5))


def test_a_seed_of_numpy_names_a_computation_too(tmp_path):
    asked = {"discount": 0.9, "method": FQE, "folder": tmp_path}
    assert (
        bcrl.evaluate(DATA, still, seed=np.int64(3), **asked).value
        == bcrl.evaluate(DATA, still, seed=3, **asked).value
    )


def test_equal_policies_on_pixels_keep_states_of_their_own(tmp_path):
    """DICE learns a state for each policy; equal actions once meant one checkpoint for two shapes."""
    world = pixel_lqr()
    data = world.dataset(6, 8, 0)
    asked = {"discount": 0.9, "methods": {"m": bcrl.FlowDICE(steps=3, hidden=8, encoder_steps=4)}}
    policies = {"a": world.target, "b": world.target}
    plain, kept = (bcrl.compare(data, policies, folder=folder, **asked) for folder in (None, tmp_path))
    for name in policies:
        assert plain.estimates[name]["m"].value == kept.estimates[name]["m"].value


def test_agreement_between_methods_does_not_depend_on_the_level():
    def said(level):
        table = bcrl.compare(
            DATA, {"p": still}, discount=0.9, methods={"a": METHODS["lspe"], "b": FQE}, level=level
        )
        return [(check.verdict, round(check.threshold, 9)) for check in table.checks["p"]]

    assert said(0.95) == said(0.5)


def test_an_estimate_of_an_older_file_keeps_its_reach_for_single_states():
    estimate = bcrl.evaluate(DATA, still, discount=0.9, method=METHODS["fqe"])
    old = dataclasses.replace(
        estimate, interval=dataclasses.replace(estimate.interval, degrees_of_freedom=None)
    )
    states = DATA.observe(np.arange(3))
    np.testing.assert_allclose(old.value_at(states, interval=True), estimate.value_at(states, interval=True))


@pytest.mark.parametrize("device", ["foo", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_in_one_line(device):
    with pytest.raises(bcrl.BadInput, match=f"device='{device}' cannot be used"):
        bcrl.evaluate(DATA, still, discount=0.9, method=FQE, device=device)
