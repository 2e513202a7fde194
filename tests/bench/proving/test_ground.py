"""Cases, the cache, the commands, and a new family as one file."""

import json

import numpy as np
import pytest

from bcrl.cli import main
from bcrl_bench.experiments import grid
from bcrl_bench.proving import families as package
from bcrl_bench.proving import family as families
from bcrl_bench.proving.default import default_records
from bcrl_bench.proving.family import REGIMES, family_names, load_family
from bcrl_bench.proving.ground import prepare
from bcrl_bench.proving.profile import chosen_families, load_proving, ordered_cases, set_of
from bcrl_bench.proving.regimes import ROWS, cases_of
from bcrl_bench.proving.report import summary

# A whole family: a coin that is turned by 0 or 1 and shows its side; heads earn 1.
COIN = '''
"""A coin."""

from types import SimpleNamespace

import numpy as np

from bcrl_bench.proving.family import Family


class Likes:
    """Turns the coin with the same probability everywhere."""

    reads = None

    def __init__(self, turns):
        self.turns = turns

    def probabilities(self, observations):
        return np.tile([1.0 - self.turns, self.turns], (len(observations), 1))


class Coin:
    num_actions = 2
    policies = {"poor": Likes(0.5), "medium": Likes(0.3), "good": Likes(0.1), "other": Likes(0.9)}

    def start(self, num, rng):
        return rng.integers(0, 2, num)

    def observe(self, state):
        return state[:, None].astype(np.float32)

    def step(self, state, actions, rng):
        return state.astype(float), np.where(actions == 1, 1 - state, state), rng.random(len(state)) < 0.1


FAMILY = Family("coin", lambda seed: Coin(), length=20, noise=0.3, discounts=(0.9,), episodes=(20,), cases=20,
                longest=60, rollouts=400, worlds=1)
'''
SETTINGS = '[methods]\nrandom = "LSPE(RandomFeatures(dim=30))"\nis = "ImportanceSampling()"\n'


@pytest.fixture
def coin(tmp_path, monkeypatch):
    """The family as one more file of a folder of families."""
    folder = tmp_path / "families"
    folder.mkdir()
    (folder / "coin.py").write_text(COIN)
    (tmp_path / "methods.toml").write_text('weighing = ["is"]\n' + SETTINGS)
    monkeypatch.setattr(families, "FOLDER", folder)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    # A process of its own would not see the folder; how cells run in processes is tests/bench/experiments'.
    monkeypatch.setattr(grid, "run_local", lambda work, todo, _: ((one, work(one), None) for one in todo))
    return tmp_path


def command(coin, *words):
    named = {"run": ("settings", "results", "cache"), "prepare": ("cache",), "table": ("results",)}[words[0]]
    places = {"settings": "methods.toml", "results": "results", "cache": "cache"}
    options = [text for name in named for text in (f"--{name}", str(coin / places[name]))]
    return main(["benchmark", words[0], "proving", *words[1:], *options])


def test_a_new_family_is_one_file(coin, capsys):
    assert family_names() == ["coin"] and set_of("coin") == "calibration"
    assert command(coin, "prepare", "--cases", "5") == 0
    assert "coin (calibration): 5 cases" in capsys.readouterr().out
    assert command(coin, "run", "--cases", "3") == 0
    lines = (coin / "results" / "proving.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == 6 and {r["experiment"]["method"] for r in records} == {"random", "is"}
    assert {"mark", "truth", "scale", "logged", "checks", "stats", "curves", "command"} <= set(records[0])
    assert all(r["command"].startswith("bcrl benchmark run proving") for r in records)
    capsys.readouterr()
    assert command(coin, "run", "--cases", "4") == 0  # what is there is not run again
    assert "6 done, 0 failed, 2 to run" in capsys.readouterr().out
    assert command(coin, "table") == 0
    rows = json.loads((coin / "results" / "proving.json").read_text())["cell"]
    assert sum(row["cases"] for row in rows) == 8 and {row["family"] for row in rows} == {"coin"}
    assert "| coin |" in (coin / "results" / "proving.md").read_text()


def test_truth_mark_and_scale_of_a_case(coin):
    """Heads and tails by hand: V = r + 0.9 * 0.9 P V for a coin that is turned with probability p."""
    one = prepare(ordered_cases("coin")[0], coin / "cache")
    turns = one.policy.probabilities(np.zeros((1, 1)))[0, 1]
    matrix = np.array([[1.0 - turns, turns], [turns, 1.0 - turns]])
    value = np.linalg.solve(np.eye(2) - 0.81 * matrix, [0.0, 1.0]).mean()
    assert one.truth.value == pytest.approx(value, abs=4.5 * one.truth.standard_error)
    assert one.truth.standard_error < 0.01 * one.scale and one.scale == pytest.approx(one.logged)
    assert one.mark["mark"] == "covered"


def test_the_cache_answers_the_same_and_v_is_known_at_visited_states(coin):
    (case,) = [case for case in cases_of(load_family("coin")) if case.number == 0]
    first, again = (prepare(case, coin / "cache") for _ in range(2))
    assert first.truth == again.truth and first.visited is not None and again.visited is not None
    np.testing.assert_array_equal(first.dataset.rewards, again.dataset.rewards)
    np.testing.assert_array_equal(first.visited[1], again.visited[1])
    seen, values, errors = first.visited
    heads = seen[:, 0] == 1.0
    assert values[heads].mean() > values[~heads].mean() and (errors > 0.0).all()


def test_sealed_families_are_refused(capsys, tmp_path):
    assert main(["benchmark", "run", "proving", "--families", "queue", "--results", str(tmp_path)]) == 2
    assert "sealed" in capsys.readouterr().err
    assert "queue" not in chosen_families((), sealed=False)
    assert "queue" in chosen_families((), sealed=True)


@pytest.mark.parametrize("name", family_names())
def test_the_cases_of_every_family(name):
    family, cases = load_family(name), cases_of(load_family(name))
    assert len(cases) == family.cases and cases == cases_of(family)
    assert len({case.log for case in cases}) >= 5 or family.unknowable
    assert all(case.episodes * family.length <= ROWS and case.world < family.worlds for case in cases)
    assert all(case.discount < 1.0 or case.horizon is not None for case in cases)
    assert set(family.regimes) <= set(REGIMES)
    assert family.unknowable == (set_of(name) == "unknowable")
    first = ordered_cases(name)[: len(family.regimes)]
    assert {case.regime for case in first} == {case.regime for case in cases}


def test_there_is_enough_ground():
    assert len(family_names()) >= 20
    assert sum(load_family(name).cases for name in family_names()) >= 600
    assert sum(set_of(name) == "sealed" for name in family_names()) >= 5
    assert {"bcrl", "random", "fqe", "dice", "model", "dr", "is", "consensus"} == set(load_proving().methods)


def record(error, verdict="trust", status="converged"):
    checks = [{"name": "a", "verdict": verdict}]
    return {"error": error, "checks": checks, "status": status, "timings": {"core": 2.0}}


def test_what_a_row_of_the_table_says():
    group = [record(0.05), record(0.2), record(0.01, "caution"), record(None, "distrust", "diverged")]
    row = summary([*group, record(None, "refused", "refused")])
    assert row["cases"] == 5 and row["refused"] == 1 and row["missing"] == 1
    assert row["median"] == 0.05 and row["p90"] is None
    assert row["trusted"] == 2 and row["share_trusted"] == 0.4 and row["share_trusted_right"] == 0.5
    assert row["core_seconds"] == 2.0


def made(method, value, apart, unlike, seconds):
    """A record of one case, with what its budget is made from."""
    numbers = {
        "scale": 10.0, "highest_return": 20.0, "lowest_return": 0.0, "consensus": value, "novelty": 1.0,
        "unsupported": unlike, "return_spread": 2.0, "view x": value + apart,
    }  # fmt: skip
    return {
        "experiment": {
            "task": "coin",
            "dataset": "noisy-00",
            "policy": "greedy",
            "method": method,
            "seed": 0,
        },
        "settings": {"method": {"consensus": "Consensus()", "bcrl": "LSPE(BellmanComplete())"}[method]},
        "case": {"discount": 0.9, "horizon": None},
        "value": value,
        "standard_error": 0.1,
        "status": "converged",
        "stats": {f"evidence/{name}": number for name, number in numbers.items()},
        "timings": {"core": seconds},
    }


@pytest.mark.parametrize(
    ("apart", "unlike", "learned", "value", "seconds"),
    [
        (0.1, 0.0, None, 10.0, 2.0),  # sure enough
        (3.0, 0.9, None, 10.0, 2.0),  # nothing to gain
        (3.0, 0.0, 0.1, 11.0, 62.0),  # the learned answer's interval is narrower
        (3.0, 0.0, 9.0, 10.0, 62.0),  # it is wider
        (3.0, 0.0, None, None, None),  # wanted, and not there
    ],
)
def test_the_default_is_put_together_from_the_records_of_what_it_asks(apart, unlike, learned, value, seconds):
    records = [made("consensus", 10.0, apart, unlike, 2.0)]
    if learned is not None:
        records.append(made("bcrl", 11.0, learned, unlike, 60.0))
    found, unknown = default_records(records)
    if value is None:
        assert (found, unknown) == ([], 1)
        return
    (record,) = found
    assert record["experiment"]["method"] == "default" and unknown == 0
    assert (record["value"], record["timings"]["core"]) == (value, seconds)
