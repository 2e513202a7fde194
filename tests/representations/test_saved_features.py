"""Features saved today and used for tomorrow's policy."""

import dataclasses

import numpy as np
import pytest

import bcrl
from bcrl.errors import BadInput
from bcrl.methods import parse_method
from bcrl_bench.worlds import chain, lqr

WORLD = lqr()
DATA = WORLD.dataset(60, 20, 0)
METHODS = {
    "learned": bcrl.LSPE(
        bcrl.BellmanComplete(dim=8, steps=20, batch_size=256, head=bcrl.Head(16)), repeats=1
    ),
    "random": bcrl.LSPE(bcrl.RandomFeatures(dim=30)),
}


@dataclasses.dataclass(frozen=True)
class InMemory:
    """Features that are there already."""

    fitted: object

    def fit(self, dataset, targets, *, discount, seed, run):
        return dataclasses.replace(self.fitted, metrics={})


def ask(policy, method, dataset=DATA):
    return bcrl.evaluate(dataset, policy, discount=0.9, method=method)


def tomorrow(x):
    return -0.3 * x[:, : DATA.action_dim]


@pytest.mark.parametrize("name", METHODS)
def test_another_policy_gets_the_answer_of_the_features_in_memory(name, tmp_path):
    first = ask(WORLD.target, METHODS[name])
    bcrl.save_representation(first, tmp_path / "phi")
    method = bcrl.LSPE(bcrl.SavedFeatures(tmp_path / "phi"))
    loaded = ask(tomorrow, method)
    kept = ask(tomorrow, bcrl.LSPE(InMemory(first.value_function.fitted), repeats=1))
    assert loaded.value == kept.value != first.value
    assert loaded.interval == kept.interval and loaded.stats["trainings"] == 0
    assert np.array_equal(loaded.per_start, kept.per_start)
    assert parse_method(loaded.method) == method


def test_an_estimate_that_was_loaded_still_has_its_features(tmp_path):
    first = ask(WORLD.target, METHODS["learned"])
    again = bcrl.load_estimate(first.save(tmp_path / "estimate"), policy=WORLD.target)
    for number, estimate in enumerate((first, again)):
        bcrl.save_representation(estimate, tmp_path / str(number))
    files = [(tmp_path / str(number) / "representation.safetensors").read_bytes() for number in range(2)]
    assert files[0] == files[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("phi")
    return bcrl.save_representation(ask(WORLD.target, METHODS["random"]), path)


def refused(folder, dataset, policy):
    with pytest.raises(BadInput) as found:
        ask(policy, bcrl.LSPE(bcrl.SavedFeatures(folder)), dataset)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_another_kind_of_data_is_refused_in_one_line(folder):
    rename = dataclasses.replace(DATA, observations={"state": DATA.observations["observation"]}, single=True)
    assert "no such key among state" in refused(folder, rename, WORLD.target)
    wide = np.concatenate([DATA.observations["observation"]] * 2, axis=1)
    wider = dataclasses.replace(DATA, observations={"observation": wide})
    assert "vectors of shape" in refused(folder, wider, tomorrow)
    twice = dataclasses.replace(DATA, actions=np.concatenate([DATA.actions] * 2, axis=1))
    assert "actions of shape" in refused(folder, twice, lambda x: np.zeros((len(x), twice.action_dim)))
    discrete = chain()
    assert "discrete actions" in refused(folder, discrete.dataset(20, 10, 0), discrete.target)


def test_a_damaged_or_missing_file_is_refused_in_one_line(folder, tmp_path):
    for name in ("representation.json", "representation.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with (tmp_path / "representation.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    assert "damaged" in refused(tmp_path, DATA, tomorrow)
    (tmp_path / "representation.json").write_text("{")
    assert "damaged" in refused(tmp_path, DATA, tomorrow)
    assert "save_representation" in refused(tmp_path / "nowhere", DATA, tomorrow)


def test_what_has_no_features_or_code_for_features_is_not_saved(tmp_path):
    given = bcrl.LSPE(bcrl.GivenFeatures(lambda s, a: np.concatenate([np.ones((len(s), 1)), s, a], axis=1)))
    halves = bcrl.LSPE(bcrl.RandomFeatures(dim=20), split="cross")
    for method, words in ((given, "run code"), (halves, "split"), (bcrl.ImportanceSampling(), "no features")):
        estimate = ask(WORLD.behaviour, method)
        with pytest.raises(BadInput, match=words):
            bcrl.save_representation(estimate, tmp_path)


def test_evaluate_takes_the_folder(tmp_path):
    first = bcrl.evaluate(DATA, WORLD.target, discount=0.9, method=METHODS["random"])
    folder = bcrl.save_representation(first, tmp_path / "phi")
    again = bcrl.evaluate(DATA, WORLD.target, discount=0.9, representation=folder)
    assert again.value == first.value and "SavedFeatures" in again.method
    with pytest.raises(bcrl.BadInput, match="representation= goes with the default method"):
        bcrl.evaluate(DATA, WORLD.target, discount=0.9, method="fqe", representation=folder)
