"""Small valid inputs of every kind, as plain Python: what mutations start from."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from report.example_comparison import example

from bcrl import Dataset
from bcrl.data.sources.minari import to_minari
from bcrl.data.storage.folder import save
from bcrl.policies.actor_file import save_actor
from bcrl.policies.actors import StateActor

ROWS, LENGTH = 24, 6
METHODS = [
    "LSPE(RandomFeatures(dim=8, widths=(1.0,)))",
    "LSPE(RandomFeatures(dim=8), solver='ball', radius=10.0, split='half')",
    "LSPE(BellmanComplete(steps=2, dim=4, batch_size=16, head=Head(hidden=8, layers=2)), repeats=1)",
    "FQE(steps=4, hidden=(8,), members=2, flat=Flat(check_every=2))",
    "ImportanceSampling(bandwidth=0.5, clip=(-6.0, 2.0), behaviour=BehaviourCloning(steps=2, hidden=8))",
    "DoublyRobust(q=FQE(steps=2, hidden=(8,)), bandwidth=0.5, behaviour=BehaviourCloning(steps=2))",
    "BestDICE(steps=2, hidden=8, lagrangian=Lagrangian(alpha_r=1.0))",
    "ModelBased(one_step=OneStep(steps=2, hidden=8), num_rollouts=4)",
    "LSPE(CURL(steps=2, dim=4, batch_size=8), repeats=1)",
    "LSPE(SPR(steps=2, dim=4, batch_size=8, jumps=2), repeats=1)",
]


def arrays(rng: np.random.Generator, *, discrete: bool = False) -> dict[str, np.ndarray]:
    """A log of four episodes: two columns, one action, ended by the world."""
    end = np.arange(ROWS) % LENGTH == LENGTH - 1
    return {
        "observations": rng.normal(size=(ROWS, 2)).astype(np.float32),
        "actions": rng.integers(0, 3, ROWS) if discrete else rng.normal(size=(ROWS, 1)).astype(np.float32),
        "rewards": rng.normal(size=ROWS),
        "terminated": end,
        "truncated": np.zeros(ROWS, bool),
    }


def table(rng: np.random.Generator) -> dict[str, list]:
    """The same log as columns."""
    log = arrays(rng)
    columns = {"x": log["observations"][:, 0], "v": log["observations"][:, 1], "a": log["actions"][:, 0]}
    columns |= {"r": log["rewards"], "id": np.arange(ROWS) // LENGTH, "end": log["terminated"].astype(int)}
    return {name: values.tolist() for name, values in columns.items()}


def visits(rng: np.random.Generator) -> dict[str, list]:
    """A table of visits as a clinic would send it: usual names, actions in words, cells missing."""
    lab = [None if rng.random() < 0.1 else round(float(value), 3) for value in rng.normal(size=ROWS)]
    return {
        "patient_id": [f"p{row // LENGTH}" for row in range(ROWS)],
        "visit": [row % LENGTH for row in range(ROWS)],
        "age": [40 + row // LENGTH for row in range(ROWS)],
        "lab": lab,
        "treatment": [str(one) for one in rng.choice(["none", "low", "high"], ROWS)],
        "outcome": rng.normal(size=ROWS).round(3).tolist(),
    }


USUAL_NAMES = [
    "reward",
    "action",
    "done",
    "terminated",
    "time",
    "stay_id",
    "propensity",
    "log_prob",
    "cohort",
]
USUAL_NAMES += ["observation_1", "next_observation_1", "step", "cluster", "Patient_ID", " treatment", "dose"]
COLUMNS = {"observation": ["x", "v"], "action": "a", "reward": "r", "episode": "id", "terminated": "end"}


def dataset(rng: np.random.Generator) -> Dataset:
    return Dataset.from_arrays(**arrays(rng))


def write_all(folder: Path) -> None:
    """Every input that is a file, whole; the Minari dataset goes where MINARI_DATASETS_PATH says."""
    rng = np.random.default_rng(0)
    np.savez(folder / "log.npz", **arrays(rng))
    save(dataset(rng), folder / "folder")
    shutil.copytree(to_minari(dataset(rng), "fuzz/log-v0"), folder / "minari")
    torch.manual_seed(0)
    network = StateActor(2, 1, hidden=(8,))
    save_actor(folder / "actor.safetensors", network, {"reads": "observation"})
    graph(folder / "graph.onnx")
    comparison = example(pictures=False)
    comparison.save(folder / "results.json")
    (folder / "columns.json").write_text(json.dumps(COLUMNS))


def graph(path: Path) -> None:
    """action = obs @ w, as ONNX."""
    info = helper.make_tensor_value_info
    made = helper.make_graph(
        [helper.make_node("MatMul", ["obs", "w"], ["action"])],
        "linear",
        [info("obs", TensorProto.FLOAT, ["n", 2])],
        [info("action", TensorProto.FLOAT, ["n", 1])],
        initializer=[helper.make_tensor("w", TensorProto.FLOAT, [2, 1], [0.5, -0.5])],
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
