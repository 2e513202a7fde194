"""The examples run as they are, in an empty folder, and their answers agree with the worlds they were made
from.
"""

import runpy
from pathlib import Path

import gymnasium
import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Runs an example and gives back its names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    return lambda name: runpy.run_path(str(FOLDER / name), run_name="__main__")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_examples_are_short_and_each_has_a_test(script):
    assert len(script.read_text().splitlines()) <= 60
    assert f'example("{script.name}")' in Path(__file__).read_text()


def test_own_arrays_finds_the_exact_value(example, capsys):
    names = example("own_arrays.py")
    assert names["exact_value"]() in names["estimate"].interval
    assert names["estimate"].verdict == "trust"
    assert "verdict: trust" in capsys.readouterr().out


def test_csv_table_agrees_with_simulated_courses(example):
    names = example("csv_table.py")
    generator, courses = np.random.default_rng(1), 4000
    pain, alive, value = generator.uniform(4, 8, courses), np.ones(courses, bool), np.zeros(courses)
    for day in range(100):
        dose = names["by_pain"](pain[:, None])
        value += alive * 0.8**day * (np.minimum(pain, 1.5 * dose) - 0.4 * dose)
        alive &= (pain >= 4) | (generator.random(courses) >= 0.3)
        pain = np.clip(pain + generator.normal(0.6, 0.5, courses) - 0.6 * dose, 0, 10)
    assert value.mean() in names["estimate"].interval
    assert names["difference"].lower_bound > 0


def test_compare_policies_stops_believing_where_nothing_was_logged(example):
    comparison = example("compare_policies.py")["comparison"]
    assert comparison.headline("firmer")[1] != "distrust"
    assert comparison.headline("away")[1] == "distrust"
    rows = comparison.estimates
    assert all(rows["firmer"][name].value > rows["as logged"][name].value for name in comparison.methods)
    page = Path("report.html").read_text()
    assert all(policy in page for policy in comparison.policies)


# Minari asks for an author, a description and the like, and leaves a temporary folder to the garbage
# collector.
@pytest.mark.filterwarnings("ignore::UserWarning:minari", "ignore:Implicitly cleaning up:ResourceWarning")
def test_minari_dataset_agrees_with_rollouts(example):
    names = example("minari_dataset.py")
    assert names["dataset"].num_episodes == 20
    agrees_with_rollouts(names["estimate"], lambda observation: names["swing"](observation[None])[0])


@pytest.mark.slow
def test_sb3_policy_agrees_with_rollouts(example):
    names = example("sb3_policy.py")
    model = names["model"]
    estimate = names["comparison"].estimates["new"]["random"]
    agrees_with_rollouts(estimate, lambda observation: model.predict(observation, deterministic=True)[0])


def agrees_with_rollouts(estimate, act, episodes=20, discount=0.95):
    """Whether Pendulum's own returns lie within the interval, the rollouts' own error allowed for."""
    world, returns = gymnasium.make("Pendulum-v1"), []
    for seed in range(1000, 1000 + episodes):
        observation, total = world.reset(seed=seed)[0], 0.0
        for step in range(150):
            observation, reward, *_ = world.step(np.asarray(act(observation), np.float32))
            total += discount**step * reward
        returns.append(total)
    error = np.std(returns, ddof=1) / np.sqrt(episodes)
    reach = (estimate.interval.high - estimate.interval.low) / 2
    assert abs(estimate.value - np.mean(returns)) <= reach + 2 * error
