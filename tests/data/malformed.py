"""Fifty-odd malformed inputs: a name, how to write it, and words that the one-line message must hold.

`npz(change)` writes plain arrays with a change; other makers write their own file. Each maker returns what
follows `bcrl doctor` on the command line.
"""

import json

import h5py
import numpy as np
from data.made_datasets import plain

from bcrl import Dataset
from bcrl.data.storage.folder import save

BAD = np.nan


def at(name, row, value):
    """Plain arrays with one number replaced."""
    arrays = plain()
    arrays[name] = arrays[name].astype(np.float64)
    arrays[name][row] = value
    return arrays


def npz(arrays, *options):
    """A maker of an .npz file with these arrays; None leaves one out."""

    def make(folder):
        np.savez(folder / "logs.npz", **{name: value for name, value in arrays.items() if value is not None})
        return [str(folder / "logs.npz"), *options]

    return make


def file(name, content):
    def make(folder):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return [str(folder / name)]

    return make


def csv(text, **columns):
    def make(folder):
        (folder / "t.csv").write_text(text)
        return [str(folder / "t.csv"), *(["--columns", json.dumps(columns)] if columns else [])]

    return make


def hdf5(**arrays):
    def make(folder):
        with h5py.File(folder / "d.hdf5", "w") as handle:
            for name, value in arrays.items():
                handle[name] = value
        return [str(folder / "d.hdf5")]

    return make


def folder_with(change):
    """A maker of a bcrl folder that was tampered with."""

    def make(folder):
        save(Dataset.from_arrays(**plain()), folder / "data")
        change(folder / "data")
        return [str(folder / "data")]

    return make


def header(**changes):
    def change(folder):
        path = folder / "dataset.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return folder_with(change)


def array(name, value):
    return folder_with(lambda folder: np.save(folder / f"{name}.npy", value))


def drq(**changes):
    def make(folder):
        arrays = {
            "observation": np.zeros((6, 9, 4, 4), np.uint8),
            "action": np.zeros((6, 2), np.float32),
            "reward": np.zeros((6, 1), np.float32),
            "discount": np.ones((6, 1), np.float32),
        } | changes
        (folder / "drq").mkdir()
        np.savez(
            folder / "drq" / "t_0_5.npz",
            **{name: value for name, value in arrays.items() if value is not None},
        )
        return [str(folder / "drq")]

    return make


def minari(**metadata):
    def make(folder):
        (folder / "metadata.json").write_text(json.dumps(metadata))
        return [str(folder)]

    return make


BOX = json.dumps({"type": "Box", "dtype": "float32", "shape": [1], "low": [0], "high": [1]})
STATES = plain()["observations"]
WRONG_NEXT = np.roll(STATES, -2, axis=0)
ALL_ENDS = np.ones(40, dtype=bool)
TABLE = "episode,observation_0,action,reward,terminated\n0,1.0,0,1.0,0\n0,2.0,1,1.0,1\n"

CASES = {
    # values
    "NaN in an observation": (
        npz(at("observations", 23, BAD)),
        ["observations", "row 23", "episode 2", "NaN"],
    ),
    "infinity in an observation": (npz(at("observations", 3, np.inf)), ["observations", "row 3", "infinity"]),
    "NaN reward": (npz(at("rewards", 11, BAD)), ["rewards", "row 11", "episode 1", "NaN"]),
    "infinite reward": (npz(at("rewards", 0, -np.inf)), ["rewards", "row 0", "infinity"]),
    "NaN action": (npz(at("actions", 39, BAD)), ["actions", "row 39", "episode 3", "NaN"]),
    "NaN log_prob": (npz(plain(log_prob=np.where(np.arange(40) == 7, BAD, 0.0))), ["log_prob", "row 7"]),
    "terminated is 2": (npz(at("terminated", 5, 2)), ["terminated", "row 5", "2.0"]),
    "truncated is NaN": (npz(at("truncated", 5, BAD)), ["truncated", "row 5", "nan"]),
    "NaN next observation": (
        npz(plain(next_observations=np.where(np.arange(40)[:, None] == 9, BAD, np.roll(STATES, -1, axis=0)))),
        ["next_observations", "row 9", "episode 0"],
    ),
    "negative discrete action": (
        npz(plain(actions=np.arange(40) - 3)),
        ["actions", "row 0", "-3", "numbered from 0"],
    ),
    "probability above one": (
        npz(plain(actions=np.arange(40) % 2, log_prob=np.full(40, 0.5))),
        ["log_prob", "probability above 1"],
    ),
    "NaN cluster": (npz(plain(cluster=np.full(40, BAD))), ["cluster", "row 0", "NaN"]),
    # shapes
    "short rewards": (npz(plain(rewards=np.zeros(39))), ["rewards has 39 rows", "40"]),
    "T + 1 observations": (
        npz(plain(observations=np.zeros((41, 3)))),
        ["actions has 40 rows", "41", "from_episodes"],
    ),
    "short actions": (npz(plain(actions=np.zeros((12, 2)))), ["actions has 12 rows"]),
    "rewards with two columns": (npz(plain(rewards=np.zeros((40, 2)))), ["rewards has shape (40, 2)"]),
    "terminated as a matrix": (npz(plain(terminated=np.zeros((4, 10)))), ["terminated has shape (4, 10)"]),
    "long truncated": (npz(plain(truncated=np.zeros(41))), ["truncated has 41 rows"]),
    "single number as rewards": (npz(plain(rewards=np.float64(3))), ["rewards is a single value"]),
    "matrix of whole numbers as actions": (
        npz(plain(actions=np.zeros((40, 3), dtype=int))),
        ["actions", "(40, 3)", "discrete"],
    ),
    "next observations of another shape": (
        npz(plain(next_observations=np.zeros((40, 4)))),
        ["next_observations", "(40, 4)"],
    ),
    "next observations of other rows": (
        npz(plain(next_observations=WRONG_NEXT)),
        ["next_observations row 0 (episode 0)", "from_transitions"],
    ),
    "log_prob of another length": (npz(plain(log_prob=np.zeros(3))), ["log_prob has 3 rows"]),
    "cluster of another length": (npz(plain(cluster=np.arange(7))), ["cluster has 7 labels", "(40)", "(4)"]),
    "cluster changes inside an episode": (
        npz(plain(cluster=np.arange(40) // 8)),
        ["cluster changes inside episode 0 at row 8"],
    ),
    "episode label comes back": (
        npz(plain(truncated=None, episode=np.repeat([0, 1, 0, 2], 10))),
        ["episode 0 begins again at row 20"],
    ),
    "episode goes on after its end": (
        npz(plain(episode=np.zeros(40, dtype=int))),
        ["episode 0 goes on after row 9"],
    ),
    "no rows": (npz({name: value[:0] for name, value in plain().items()}), ["observations has no rows"]),
    "only cut-off single rows": (
        npz(plain(truncated=ALL_ENDS)),
        ["No transition is left", "next_observations"],
    ),
    # types and names
    "text as rewards": (npz(plain(rewards=np.full(40, "much"))), ["rewards", "<U4"]),
    "complex observations": (
        npz(plain(observations=np.zeros((40, 2), complex))),
        ["observations", "complex128"],
    ),
    "no rewards": (npz(plain(rewards=None)), ["lacks rewards"]),
    "no terminated": (npz(plain(terminated=None)), ["lacks terminated"]),
    "done says too little": (npz(plain(terminated=None, dones=np.zeros(40))), ["'dones'", "does not say"]),
    "columns name what is not there": (
        npz(plain(), "--columns", '{"rewards": "rewrads"}'),
        ["no array 'rewrads'", "rewards"],
    ),
    "columns with an unknown word": (
        npz(plain(), "--columns", '{"rewrad": "rewards"}'),
        ["rewrad", "rewards"],
    ),
    "columns that are not JSON": (npz(plain(), "--columns", "rewards"), ["--columns", "not JSON"]),
    "stack of zero": (npz(plain(), "--stack", "0"), ["stack is 0"]),
    "an option of another kind": (npz(plain(), "--verify"), ["verify", "unknown for this kind"]),
    # files
    "a file that is not there": (lambda folder: [str(folder / "losg.npz")], ["losg.npz does not exist"]),
    "an empty npz": (file("a.npz", b""), ["a.npz", "no .npz file"]),
    "text called npz": (file("a.npz", "hello"), ["a.npz", "no .npz file"]),
    "a cut npz": (file("a.npz", b"PK\x03\x04" + bytes(50)), ["a.npz"]),
    "an unknown kind": (file("a.xlsx", "x"), ["no reader for .xlsx"]),
    "an empty folder": (lambda folder: [str(folder)], ["is no dataset"]),
    "text called hdf5": (file("a.hdf5", "hello"), ["a.hdf5", "no HDF5 file"]),
    "hdf5 without terminals": (
        hdf5(observations=np.zeros((4, 1)), actions=np.zeros((4, 1)), rewards=np.zeros(4)),
        ["lacks terminated", "terminals"],
    ),
    "hdf5 with text": (
        hdf5(observations=["a", "b"], actions=np.zeros((2, 1)), rewards=np.zeros(2), terminals=np.zeros(2)),
        ["observations", "expected numbers"],
    ),
    # bcrl's own folder
    "header that is not JSON": (
        folder_with(lambda f: (f / "dataset.json").write_text("{")),
        ["dataset.json", "not JSON"],
    ),
    "header of a later version": (header(version=99), ["version 99", "Update bcrl"]),
    "header with a silly stack": (header(stack="three"), ["stack", "three"]),
    "folder without rewards": (folder_with(lambda f: (f / "rewards.npy").unlink()), ["lacks rewards"]),
    "folder with other rewards": (array("rewards", np.zeros(3)), ["rewards.npy", "[3]"]),
    "folder with a cut array": (
        folder_with(lambda f: (f / "actions.npy").write_bytes((f / "actions.npy").read_bytes()[:-9])),
        ["actions.npy"],
    ),
    "folder with crooked offsets": (
        array("offsets", np.array([0, 9, 5, 27, 36])),
        ["episode 1 has -4 transitions"],
    ),
    # DrQ-v2 and Minari
    "drq without discount": (drq(discount=None), ["lacks 'discount'"]),
    "drq that ends twice": (
        drq(discount=np.array([[1], [1], [0], [1], [1], [1]])),
        ["discount is 0 at row 2"],
    ),
    "drq with short actions": (drq(action=np.zeros((5, 2))), ["action has shape (5, 2)"]),
    "drq with eight channels": (drq(observation=np.zeros((6, 8, 4, 4), np.uint8)), ["8 channels"]),
    "minari without spaces": (minari(env_spec="{}", data_format="hdf5"), ["lacks 'observation_space'"]),
    "minari without data": (
        minari(observation_space=BOX, action_space=BOX, data_format="hdf5", total_episodes=1),
        ["no readable Minari dataset", "No data found"],
    ),
    "minari that is not there": (
        lambda folder: ["minari:nobody/nothing-v0"],
        ["nobody/nothing-v0", "local store"],
    ),
    # tables
    "table without rewards": (csv(TABLE.replace("reward", "gain")), ["no column for 'reward'"]),
    "table with a gap": (csv(TABLE.replace("2.0", "")), ["observation_0", "empty at row 1"]),
    "table with words": (csv(TABLE.replace("2.0", "two")), ["observation_0", "'two' at row 1"]),
    "table with NaN": (csv(TABLE.replace("2.0", "nan")), ["observation_0", "empty at row 1"]),
    "table without ends": (
        csv("observation_0,action,reward\n1,0,1\n2,1,1\n"),
        ["nothing says where episodes end"],
    ),
    "table with unequal lines": (csv(TABLE + "1,2\n"), ["t.csv", "cannot be read as a table"]),
    "table without rows": (csv("observation_0,action,reward,terminated\n"), ["has no rows"]),
    "table with a wrong map": (
        csv(TABLE, observation=["observation_O"], action="action", reward="reward", episode="episode"),
        ["no column 'observation_O'", "observation_0"],
    ),
}
