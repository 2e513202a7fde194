"""Each finding appears on data that has the fault, says where, and stays away from data that is fine."""

import dataclasses
import json
import time
import tracemalloc

import numpy as np
import pytest
from data.made_datasets import plain

from bcrl import BadInput, Dataset, load_policy
from bcrl.cli import main
from bcrl.data.storage.folder import save
from bcrl.doctor import Finding, examine


def good(count=1200, **changes):
    """Thirty episodes, a third of which the world ends."""
    generator = np.random.default_rng(0)
    ends = np.sort(generator.choice(count - 1, 29, replace=False))
    flags = np.isin(np.arange(count), [*ends, count - 1])
    arrays = {
        "observations": generator.normal(size=(count, 3)),
        "actions": generator.uniform(-1, 1, (count, 2)),
        "rewards": generator.normal(size=count),
        "terminated": flags & (generator.random(count) < 0.4),
        "next_observations": None,
    }
    arrays["truncated"] = flags & ~arrays["terminated"]
    return Dataset.from_arrays(**arrays | changes)


def told(dataset, policy=None):
    return [f"{f.severity}: {f.what} {f.where} {f.do}" for f in examine(dataset, policy)]


def has(lines, *words):
    assert any(all(word in line for word in words) for line in lines), lines


def changed(dataset, **fields):
    return dataclasses.replace(dataset, **fields)


class Acts:
    """A deterministic policy from a function."""

    reads = None

    def __init__(self, function):
        self.function = function

    def act(self, observations):
        return self.function(observations)


class Chooses:
    """A discrete policy that spreads its choices as given."""

    reads = None

    def __init__(self, probabilities):
        self.spread = np.asarray(probabilities)

    def probabilities(self, observations):
        return np.tile(self.spread, (len(observations), 1))


def test_good_data_and_a_good_policy_get_notes_only():
    findings = examine(good(), Acts(lambda o: np.tanh(0.3 * o[:, :2])))
    assert {f.severity for f in findings} == {"note"}


def test_every_finding_says_what_where_and_what_to_do():
    for finding in examine(changed(good(), rewards=np.full(len(good()), np.nan)), None):
        assert isinstance(finding, Finding) and finding.what and finding.where and finding.do


@pytest.mark.parametrize("name", ["rewards", "actions", "observations"])
def test_nan_is_an_error_with_its_place(name):
    data = good()
    array = np.array(data.observations["observation"] if name == "observations" else getattr(data, name))
    array[100] = np.nan
    broken = changed(data, **{name: {"observation": array} if name == "observations" else array})
    lines = told(broken)
    has(lines, "error", name, "episode")
    assert lines[0].startswith("error")


def test_arrays_that_do_not_fit_stop_everything_else():
    data = good()
    has(told(changed(data, rewards=data.rewards[:-1])), "error", "offsets")
    has(
        told(changed(data, observations={"observation": np.zeros((7, 3))})),
        "error",
        "observations['observation']",
    )
    has(told(changed(data, terminated=data.terminated.astype(float))), "error", "terminated", "booleans")
    has(told(changed(data, num_actions=4)), "error", "num_actions")


def test_flags_inside_an_episode_and_both_at_once():
    data = good()
    middle = int(data.offsets[3]) + int(data.lengths[3]) // 2
    flags = np.array(data.terminated)
    flags[middle] = True
    assert data.lengths[3] > 2
    has(told(changed(data, terminated=flags)), "error", "terminated is set inside", "episode 3")
    has(
        told(changed(data, truncated=data.truncated | data.terminated)),
        "warning",
        "both terminated and truncated",
    )


def test_a_time_limit_marked_as_the_end_is_told_loudly():
    flags = np.arange(1200) % 40 == 39
    has(
        told(good(terminated=flags, truncated=np.zeros(1200))),
        "warning",
        "probably a time limit",
    )
    assert not any("time limit" in line for line in told(good(terminated=np.zeros(1200), truncated=flags)))


def test_episodes_that_never_terminate():
    cut = good().truncated
    data = good()
    flags = np.zeros(len(data), dtype=bool)
    has(
        told(changed(data, terminated=flags, truncated=cut)),
        "warning",
        "No episode terminates",
        "lengths differ",
    )
    even = np.arange(1200) % 40 == 39
    has(told(good(terminated=np.zeros(1200), truncated=even)), "note", "No episode terminates")


def test_few_and_repeated_episodes():
    lines = told(Dataset.from_arrays(**plain()))
    has(lines, "warning", "only 4 independent episodes")
    has(lines, "warning", "only 36 transitions")
    one = Dataset.from_arrays(**plain(truncated=None), ends="truncated")
    has(told(one), "warning", "one independent unit")
    twice = good().select(np.array([*range(30), 7, 9]))
    has(told(twice), "warning", "2 episodes repeat", "episode 30 = episode 7")


def test_rewards():
    has(told(good(rewards=np.full(1200, 2.5))), "warning", "Every reward is 2.5")
    rewards = np.random.default_rng(0).normal(size=1200)
    rewards[77] = -99999.0
    has(told(good(rewards=rewards)), "warning", "-99999", "100 times", "episode")


def test_continuous_actions():
    data = good()
    actions = np.array(data.actions)
    actions[:, 1] = 0.25
    has(told(changed(data, actions=actions)), "warning", "constant", "columns 1")
    has(told(changed(data, actions=data.actions * 2)), "note", "leave [-1, 1]")
    has(told(changed(data, actions=np.sign(data.actions))), "note", "edge of their range")
    has(
        told(changed(data, actions=np.arange(len(data))[:, None] % 3.0)),
        "warning",
        "whole numbers",
        "num_actions",
    )


def test_discrete_actions_and_their_probabilities():
    data = good(actions=np.arange(1200) % 3, num_actions=5)
    has(told(data), "warning", "2 of 5 actions were never taken", "3, 4")
    has(told(good(actions=np.full(1200, 2))), "warning", "Every logged action is 2")
    has(told(changed(data, log_prob=np.full(len(data), 0.3))), "error", "probability above 1")
    has(told(changed(data, log_prob=np.zeros(len(data)))), "warning", "never chose at random")


def test_images():
    generator = np.random.default_rng(0)
    frames = generator.integers(0, 256, (1200, 16, 16, 3), dtype=np.uint8)
    assert not [line for line in told(good(observations=frames, stack=3)) if line.startswith("warning")]
    has(told(good(observations=frames)), "note", "stack=3")
    has(told(good(observations=frames / 255.0, stack=3)), "warning", "float64", "8 times")
    has(told(good(observations=frames.transpose(0, 3, 1, 2), stack=3)), "warning", "channels come first")
    black = frames.copy()
    black[:600] = 0
    has(told(good(observations=black, stack=3)), "warning", "one colour")


def test_vectors_starts_and_dropped_rows():
    data = good()
    states = np.array(data.observations["observation"])
    states[:, 1] = 4.0
    states[5, 0] = -9e9
    lines = told(changed(data, observations={"observation": states}))
    has(lines, "note", "never change", "columns 1")
    has(lines, "warning", "column 0 reaches 9e+09", "row 5")
    same = np.array(data.observations["observation"])
    same[data.start_rows] = 1.0
    has(told(changed(data, observations={"observation": same})), "note", "same observation")
    has(told(data), "note", f"{data.dropped} rows were dropped")


def test_unordered_transitions():
    rows = np.random.default_rng(0).normal(size=(300, 2))
    data = Dataset.from_transitions(rows, rows, rows[:, 0], rows, np.zeros(300))
    has(told(data), "warning", "no start states")


def test_policies_of_the_wrong_shape_or_scale():
    data = good()
    has(told(data, Acts(lambda o: o)), "error", "(512, 3)", "another task")
    has(told(data, Acts(lambda o: 30 * o[:, :2])), "warning", "leave the logged range")
    has(
        told(data, Acts(lambda o: np.tanh(1e3 * o[:, :2]) * np.abs(data.actions).max(axis=0))),
        "warning",
        "edge of the range",
    )
    has(told(data, Acts(lambda o: 1e-3 * o[:, :2].clip(-3, 3))), "warning", "scaled to the action")
    has(told(data, Acts(lambda o: np.zeros((len(o), 2)))), "warning", "same action everywhere")
    has(told(data, Acts(lambda o: np.full((len(o), 2), np.nan))), "error", "finite")
    has(told(data, Acts(lambda o: o @ np.zeros((9, 2)))), "error", "failed on 512 observations", "(3,)")


def test_policies_with_a_memory_are_refused():
    generator = np.random.default_rng(0)
    has(told(good(), Acts(lambda o: generator.uniform(-1, 1, (len(o), 2)))), "error", "memory")


def test_discrete_policies():
    data = good(actions=np.arange(1200) % 3, num_actions=5)
    has(told(data, Chooses([0.2, 0.2, 0.2, 0.4, 0.0])), "warning", "40% of the policy's choices", "actions 3")
    has(told(data, Chooses([0, 1, 0, 0, 0])), "note", "always takes action 1")
    has(told(data, Chooses([0.5, 0.5])), "error", "probabilities")


def test_command_line(tmp_path, capsys):
    save(good(), tmp_path / "data")
    assert main(["doctor", str(tmp_path / "data")]) == 0
    out = capsys.readouterr().out
    assert "30 episodes" in out and "fit for evaluation: 0 errors" in out
    assert main(["doctor", str(tmp_path / "data"), "--json", "--verify"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["episodes"] == 30 and {f["severity"] for f in read["findings"]} == {"note"}
    rewards = np.load(tmp_path / "data" / "rewards.npy")
    rewards[3] = np.inf
    np.save(tmp_path / "data" / "rewards.npy", rewards)
    assert main(["doctor", str(tmp_path / "data")]) == 2
    assert "error: rewards holds NaN or infinity." in capsys.readouterr().out


def test_bad_data_stops_before_any_training(tmp_path):
    from bcrl import evaluate

    data = good()
    flags = np.ones(len(data), dtype=bool)
    with pytest.raises(BadInput, match="set inside an episode"):
        evaluate(changed(data, truncated=flags), Acts(lambda o: o[:, :2]), discount=0.9)


def test_many_frames_take_seconds(tmp_path):
    class Frames:
        """A million frames that count how many were read."""

        shape, dtype, ndim, read = (1_000_030, 84, 84, 3), np.dtype(np.uint8), 4, 0

        def __len__(self):
            return self.shape[0]

        def __getitem__(self, rows):
            Frames.read += len(rows)
            return np.random.default_rng(0).integers(0, 256, (len(rows), 84, 84, 3), dtype=np.uint8)

    count = 1_000_000
    flags = np.isin(np.arange(count), np.linspace(0, count - 1, 31)[1:].astype(int))
    generator = np.random.default_rng(0)
    data = Dataset(
        {"pixels": Frames()},
        generator.uniform(-1, 1, (count, 2)),
        generator.normal(size=count),
        np.zeros(count, dtype=bool),
        flags,
        np.concatenate([[0], np.flatnonzero(flags) + 1]),
        stack=3,
    )
    clock = time.monotonic()
    examine(data)
    assert Frames.read < 1000 and time.monotonic() - clock < 20


def test_several_policies_are_named():
    policies = {
        "small": Acts(lambda o: np.tanh(0.3 * o[:, :2])),
        "huge": Acts(lambda o: 50.0 + 0.0 * o[:, :2]),
    }
    found = examine(good(), policies)
    assert any(finding.where.startswith("huge: ") and finding.policy == "huge" for finding in found)
    assert not any(finding.where.startswith("small: ") or finding.policy == "small" for finding in found)


def test_a_thousand_actions_are_examined_without_a_table_of_them_all():
    """512 rows times a thousand actions times a thousand columns are 2 GB."""
    rng = np.random.default_rng(0)
    observations, actions = rng.normal(size=(600, 2)), rng.integers(0, 1000, 600)
    dataset = Dataset.from_arrays(
        observations, actions, rng.normal(size=600), np.ones(600, bool), num_actions=1000
    )
    never = np.bincount(actions, minlength=1000) == 0
    policy = load_policy(lambda x: np.tile(never / never.sum(), (len(x), 1)), output="probabilities")
    tracemalloc.start()
    found = examine(dataset, policy)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert any("100% of the policy's choices are actions that the data never took" in f.what for f in found)
    assert peak < 100e6
