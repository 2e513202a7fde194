"""Minari both ways: what its own collector recorded goes in unchanged, and what we write comes back to the
bit.
"""

import itertools
import json

import gymnasium
import minari
import numpy as np
import pytest
from data.made_datasets import assert_same, datasets
from gymnasium import spaces
from hypothesis import given, settings

from bcrl import BadInput, load_dataset
from bcrl.data.sources.minari import to_minari

NUMBERS = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    """A local store of our own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("minari")
        patch.setenv("MINARI_DATASETS_PATH", str(folder))
        yield folder


class Walk(gymnasium.Env):
    """A walk with a dict of observations, frames among them; the world ends at 5."""

    def __init__(self, discrete):
        self.action_space = spaces.Discrete(3) if discrete else spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = spaces.Dict(
            {"place": spaces.Box(-10, 10, (2,), np.float32), "frame": spaces.Box(0, 255, (6, 7, 3), np.uint8)}
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = np.zeros(2, np.float32), 0
        return self._see(), {}

    def step(self, action):
        self.place = (self.place + np.asarray(action, np.float32)).clip(-10, 10)
        self.steps += 1
        return self._see(), float(self.place.sum()), bool(self.place[0] > 5), self.steps == 12, {}

    def _see(self):
        return {"place": self.place.copy(), "frame": np.full((6, 7, 3), self.steps, np.uint8)}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("discrete", [True, False])
def test_a_collector_of_minari_goes_in_unchanged(store, discrete):
    env = minari.DataCollector(Walk(discrete), jpeg_encoding=False)
    seen, acted, earned, ended = [], [], [], []
    env.action_space.seed(0)
    for episode in range(6):
        observation, _ = env.reset(seed=episode)
        seen.append([observation])
        over = False
        while not over:
            action = env.action_space.sample()
            observation, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            seen[-1].append(observation)
            acted.append(action)
            earned.append(reward)
            ended.append(terminated)
    name = f"walk/{'discrete' if discrete else 'box'}-v0"
    written = env.create_dataset(name)
    env.close()
    for place in (f"minari:{name}", written.storage.data_path, store / name):
        data = load_dataset(place)
        assert data.num_episodes == 6 and data.num_actions == (3 if discrete else None)
        for key in ("place", "frame"):
            assert (data.observations[key] == np.stack([o[key] for e in seen for o in e])).all()
        assert (data.actions == np.stack(acted)).all()
        assert data.rewards.tolist() == earned and data.terminated.tolist() == ended
        assert data.truncated.sum() + data.terminated.sum() == 6


@settings(max_examples=25, deadline=None)
@given(data=datasets())
def test_written_and_read_again(store, data):
    name = f"made/round-v{next(NUMBERS)}"
    path = to_minari(data, name)
    assert_same(load_dataset(f"minari:{name}"), data)
    assert_same(load_dataset(path, into=store / f"folder-{next(NUMBERS)}"), data)


def test_minari_itself_reads_what_we_wrote():
    from made_datasets import plain

    from bcrl import Dataset

    data = Dataset.from_arrays(**plain())
    to_minari(data, "made/theirs-v0", author="somebody")
    theirs = minari.load_dataset("made/theirs-v0")
    assert theirs.total_episodes == 4 and theirs.total_steps == len(data)
    assert (theirs[1].rewards == data.rewards[data.offsets[1] : data.offsets[2]]).all()


def test_an_unknown_id_says_how_to_get_it():
    with pytest.raises(BadInput, match="minari download D4RL/door/human-v2"):
        load_dataset("minari:D4RL/door/human-v2")


def test_other_action_spaces_are_refused(store):
    from made_datasets import plain

    from bcrl import Dataset

    path = to_minari(Dataset.from_arrays(**plain(actions=np.zeros(40, dtype=int))), "made/multi-v0")
    metadata = json.loads((path / "metadata.json").read_text())
    metadata["action_space"] = json.dumps({"type": "MultiBinary", "n": 3})
    (path / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(BadInput, match="MultiBinary"):
        load_dataset(path)
