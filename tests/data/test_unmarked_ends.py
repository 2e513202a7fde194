"""An episode that just stops with a reward: nobody guesses whether the world ended there (F7)."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from data.made_datasets import plain

import bcrl
from bcrl.cli import main
from bcrl_bench.worlds.findings import f7_outcome_in_last_row

RANDOM = bcrl.LSPE(bcrl.RandomFeatures(dim=100))
COLUMNS = {"observation": ["x"], "action": ["u"], "reward": "gain", "episode": "visit"}


@pytest.fixture(scope="module")
def case():
    return f7_outcome_in_last_row()


@pytest.fixture(scope="module")
def table(case, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "visits.csv"
    arrays = case.arrays
    columns = {"x": arrays["observations"][:, 0], "u": arrays["actions"][:, 0], "gain": arrays["rewards"]}
    pa.csv.write_csv(pa.table(columns | {"visit": arrays["episode"]}), path)
    return path


def test_the_question_is_asked_in_one_line(case, table):
    for load in (
        lambda: bcrl.Dataset.from_arrays(**case.arrays),
        lambda: bcrl.load_dataset(table, columns=COLUMNS),
    ):
        with pytest.raises(
            bcrl.BadInput, match=r"300 episodes.*did the episodes end here.*ends='terminated'"
        ):
            load()


def test_with_next_observations_too(case):
    following = np.vstack([case.arrays["observations"][1:], [[0.0]]])
    with pytest.raises(bcrl.BadInput, match="did the episodes end here"):
        bcrl.Dataset.from_arrays(**case.arrays, next_observations=following)


def test_one_long_record_without_any_mark_is_asked_about():
    with pytest.raises(bcrl.BadInput, match=r"1 episode .*did the episode end here"):
        bcrl.Dataset.from_arrays(**plain(truncated=None))


def test_a_log_that_marks_its_ends_may_stop_in_the_middle_of_its_last_episode():
    marked = plain()["truncated"].copy()
    marked[-1] = False
    assert bcrl.Dataset.from_arrays(**plain(truncated=marked)).num_episodes == 4


def test_ends_without_a_reward_are_no_question():
    rewards = np.where(np.arange(40) % 10 == 9, 0.0, 1.0)
    data = bcrl.Dataset.from_arrays(
        **plain(truncated=None, rewards=rewards), episode=np.repeat(np.arange(4), 10)
    )
    assert data.dropped == 4 and data.rewards.sum() == rewards.sum()


def test_terminated_keeps_the_outcome(case):
    data = bcrl.Dataset.from_arrays(**case.arrays, ends="terminated")
    assert data.rewards.sum() == pytest.approx(case.arrays["rewards"].sum()) and data.terminated.sum() == 300


def test_truncated_keeps_the_row_where_the_next_observation_is_known(case):
    following = np.vstack([case.arrays["observations"][1:], [[0.0]]])
    data = bcrl.Dataset.from_arrays(**case.arrays, next_observations=following, ends="truncated")
    assert len(data) == 3000 and data.truncated.sum() == 300 and data.dropped_reward == 0.0


def test_drop_leaves_these_rows_out_and_keeps_their_observation(case):
    following = np.vstack([case.arrays["observations"][1:], [[0.0]]])
    for more in ({}, {"next_observations": following}):
        data = bcrl.Dataset.from_arrays(**case.arrays, **more, ends="drop")
        assert data.lengths.tolist() == [9] * 300 and data.dropped == 300
        assert (data.observations["observation"] == case.arrays["observations"]).all()
        assert data.dropped_reward == pytest.approx(np.abs(case.arrays["rewards"][9::10]).sum())


@pytest.mark.parametrize("ends", ["truncated", "drop"])
def test_dropped_reward_is_a_reason_and_never_trusted(case, table, ends):
    data = bcrl.load_dataset(table, columns=COLUMNS, ends=ends)
    estimate = bcrl.evaluate(data, case.policy, discount=case.discount, method=RANDOM)
    assert estimate.verdict != "trust"
    assert any("dropped with their reward" in reason for reason in estimate.reasons)


def test_an_outcome_in_the_last_row_of_marked_truncations_is_a_reason_too(case):
    arrays = {name: value for name, value in case.arrays.items() if name != "episode"}
    data = bcrl.Dataset.from_arrays(**arrays, truncated=np.arange(3000) % 10 == 9)
    estimate = bcrl.evaluate(data, case.policy, discount=case.discount, method=RANDOM)
    assert estimate.verdict != "trust" and "dropped reward" in {check.name for check in estimate.checks}


def test_last_rows_like_all_others_may_go_without_a_reason():
    data = bcrl.Dataset.from_arrays(**plain(400))
    assert data.dropped == 4 and data.dropped_reward == 0.0


def test_an_evaluation_of_a_path_takes_the_answer(case, tmp_path):
    np.savez(tmp_path / "log.npz", **case.arrays)
    asked = {"discount": case.discount, "method": RANDOM}
    with pytest.raises(bcrl.BadInput, match="did the episodes end here"):
        bcrl.evaluate(tmp_path / "log.npz", case.policy, **asked)
    estimate = bcrl.evaluate(tmp_path / "log.npz", case.policy, ends="terminated", **asked)
    assert estimate.value > 2.0  # the outcomes are in it; without them it is 0.99


def test_ends_goes_with_a_path_alone(case):
    data = bcrl.Dataset.from_arrays(**case.arrays, ends="terminated")
    with pytest.raises(bcrl.BadInput, match=r"ends= .*Dataset.from_arrays"):
        bcrl.evaluate(data, case.policy, discount=0.9, ends="drop")


@pytest.mark.parametrize("wrong", ["end", "Terminated", 1])
def test_another_answer_is_refused(case, wrong):
    with pytest.raises(bcrl.BadInput, match=r"ends is .*'terminated', 'truncated' or 'drop'"):
        bcrl.Dataset.from_arrays(**case.arrays, ends=wrong)


def test_the_command_line_asks_and_takes_the_answer(table, capsys):
    words = ["doctor", str(table), "--columns", '{"observation": ["x"], "action": ["u"], "reward": "gain", '
             '"episode": "visit"}']  # fmt: skip
    assert main(words) == 2
    told = capsys.readouterr()
    assert len(told.err.strip().splitlines()) == 1 and "--ends" in told.err
    assert main([*words, "--ends", "terminated"]) == 0
    assert main([*words, "--ends", "drop"]) == 0
    assert "dropped with their reward" in capsys.readouterr().out
