"""Collection: the same bytes whatever happens, mixtures, densities only where they exist."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bcrl.data.storage.folder import open_folder
from bcrl.errors import BadInput
from bcrl.policies.load import load_policy
from bcrl_bench.collect import Collection, Source, collect
from bcrl_bench.policies.shipped import shipped_actor, shipped_path
from bcrl_bench.rollouts import Behaviour, clipped_log_prob, run_episode
from bcrl_bench.tasks import ControlTask


def source(level="025", noise=0.2, share=1.0):
    return Source(level, Behaviour(shipped_actor("cheetah-run", level), noise=noise), share)


def small(**changes):
    fields = {"sources": (source(),), "episodes": 3, "pixels": None, "limit": 30, "processes": 1}
    return Collection("cheetah-run", **(fields | changes))


def contents(folder):
    here = str(folder).encode()  # the header says where it was written
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes().replace(here, b"") for path in files}


def test_a_collection_is_a_dataset(tmp_path):
    collect(small(pixels=16), tmp_path / "data")
    dataset = open_folder(tmp_path / "data")
    assert len(dataset) == 90 and dataset.num_episodes == 3
    assert dataset.observations["pixels"].shape == (93, 16, 16, 3) and dataset.stack == 3
    assert np.flatnonzero(dataset.truncated).tolist() == [29, 59, 89] and not dataset.terminated.any()
    task = ControlTask("cheetah-run", pixels=16, limit=30)
    episode = run_episode(task, source().behaviour, (0, 1))
    rows = slice(31, 62)
    np.testing.assert_array_equal(dataset.observations["pixels"][rows], episode.observations["pixels"])
    np.testing.assert_array_equal(dataset.observations["state"][rows], episode.observations["state"])
    np.testing.assert_array_equal(dataset.actions[30:60], episode.actions)
    np.testing.assert_array_equal(dataset.rewards[30:60], episode.rewards)


def test_logged_actions_replay_to_the_logged_observations(tmp_path):
    collect(small(episodes=1), tmp_path / "data")
    dataset = open_folder(tmp_path / "data")
    task = ControlTask("cheetah-run", pixels=None)
    observation, _ = task.reset(seed=int(np.random.default_rng((0, 0)).integers(2**31)))
    for step in range(len(dataset)):
        np.testing.assert_array_equal(observation["state"], dataset.observations["state"][step])
        observation, reward, *_ = task.step(dataset.actions[step])
        assert reward == dataset.rewards[step]


def test_noise_is_as_large_as_asked_and_clipped(tmp_path):
    collect(small(limit=200), tmp_path / "data")
    dataset = open_folder(tmp_path / "data")
    mean = shipped_actor("cheetah-run", "025").act(np.asarray(dataset.observations["state"])[dataset.rows])
    inside = np.abs(mean) < 0.3
    assert np.abs(dataset.actions).max() == 1.0
    assert abs((dataset.actions - mean)[inside].std() - 0.2) < 0.02


def test_the_random_policy_has_a_density(tmp_path):
    collect(small(sources=(Source("random", Behaviour(None)),)), tmp_path / "data")
    dataset = open_folder(tmp_path / "data")
    np.testing.assert_allclose(dataset.log_prob, -6 * np.log(2))
    assert np.abs(dataset.actions).max() < 1 and abs(dataset.actions.mean()) < 0.1


def test_clipped_noise_is_logged_as_a_target_with_that_noise_would_measure_it(tmp_path):
    collect(small(episodes=1), tmp_path / "data")
    dataset = open_folder(tmp_path / "data")
    policy = load_policy(shipped_path("cheetah-run", "025"), noise=0.2)
    assert (np.abs(dataset.actions) == 1.0).any() and (np.abs(dataset.actions) < 1.0).any()
    wanted = policy.log_prob(
        np.asarray(dataset.observations["state"])[dataset.rows], np.asarray(dataset.actions)
    )
    np.testing.assert_allclose(dataset.log_prob, wanted, rtol=1e-3, atol=1e-3)


def test_clipped_probabilities_sum_to_one():
    low, high, centre = np.array([-1.0]), np.array([1.0]), 0.9
    inside = np.linspace(-1, 1, 4001)[1:-1, None]
    density = np.exp(clipped_log_prob(inside, np.full_like(inside, centre), 0.2, low, high))
    ends = np.exp(clipped_log_prob(np.array([[-1.0], [1.0]]), np.full((2, 1), centre), 0.2, low, high))
    np.testing.assert_allclose(density.sum() * (2 / 4000) + ends.sum(), 1.0, atol=1e-3)


def test_a_deterministic_behaviour_has_no_log_prob(tmp_path):
    collect(small(sources=(source(noise=0.0),)), tmp_path / "data")
    assert open_folder(tmp_path / "data").log_prob is None


def test_mixtures_keep_their_shares_in_every_prefix():
    mixture = small(sources=(source("100", share=1), source("025", share=3)), episodes=8)
    order = [mixture.source_of(episode) for episode in range(8)]
    assert order.count(0) == 2 and order[:4].count(0) == 1


def test_two_processes_and_an_interruption_give_the_same_bytes(tmp_path):
    collect(small(), tmp_path / "one")
    collect(small(processes=2), tmp_path / "two")

    class Stop(Exception):
        pass

    def stop(line):
        raise Stop

    with pytest.raises(Stop):
        collect(small(), tmp_path / "three", show=stop)
    assert not (tmp_path / "three" / "dataset.json").exists()
    collect(small(), tmp_path / "three")
    assert contents(tmp_path / "one") == contents(tmp_path / "two") == contents(tmp_path / "three")


def test_a_mixture_says_who_made_each_episode_also_after_an_interruption(tmp_path):
    mixture = small(sources=(source("100"), source("025")), episodes=12)

    class Stop(Exception):
        pass

    def stop(line):
        if line["step"] == 7:
            raise Stop

    with pytest.raises(Stop):
        collect(mixture, tmp_path / "data", show=stop)
    collect(mixture, tmp_path / "data")
    assert open_folder(tmp_path / "data").behaviour.tolist() == [mixture.name_of(n) for n in range(12)]


def test_other_settings_in_the_same_folder_are_refused(tmp_path):
    collect(small(), tmp_path / "data")
    before = contents(tmp_path / "data")
    collect(small(), tmp_path / "data")  # done already: nothing happens
    assert contents(tmp_path / "data") == before
    with pytest.raises(BadInput, match="another"):
        collect(small(seed=1), tmp_path / "data")


def test_a_policy_for_another_task_is_refused(tmp_path):
    with pytest.raises(BadInput, match="trained on cheetah-run"):
        collect(
            Collection("walker-walk", (source(),), episodes=1, pixels=None, processes=1), tmp_path / "data"
        )


SCRIPT = """
import sys
from pathlib import Path
from bcrl_bench.collect import Collection, Source, collect
from bcrl_bench.policies.shipped import shipped_actor
from bcrl_bench.rollouts import Behaviour
if __name__ == "__main__":
    sources = (Source("025", Behaviour(shipped_actor("cheetah-run", "025"))),)
    asked = Collection("cheetah-run", sources, episodes=16, pixels=24, limit=200, processes=2)
    collect(asked, Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_kill_9_and_run_again_gives_the_same_bytes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script)]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, stderr=subprocess.DEVNULL)
    process = subprocess.Popen(
        [*command, str(tmp_path / "killed")], stderr=subprocess.DEVNULL, start_new_session=True
    )
    progress = tmp_path / "killed" / "progress.json"
    while not progress.exists() or json.loads(progress.read_text())["episodes"] == 0:
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "dataset.json").exists()
    subprocess.run([*command, str(tmp_path / "killed")], check=True, stderr=subprocess.DEVNULL)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
