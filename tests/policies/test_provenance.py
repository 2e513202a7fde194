"""A policy knows its file and its options: checkpoints, provenance and saved estimates depend on both."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from policies.small_data import dataset
from torch import distributions as td

import bcrl
from bcrl.errors import BadInput
from bcrl.policies import load_policy
from bcrl.policies.actor_file import save_actor
from bcrl.policies.actors import StateActor
from bcrl_bench.asking import ask

METHOD = bcrl.LSPE(bcrl.RandomFeatures(dim=8))


@pytest.fixture
def path(tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_actor(tmp_path / "actor.safetensors", StateActor(3, 2, (8, 8)), {})
    return tmp_path / "actor.safetensors"


def estimated(data, policy):
    """The estimate of one policy, straight from the method."""
    return ask(METHOD, data, {"it": policy}, discount=0.9)["it"]


def test_options_are_part_of_a_policys_identity(path):
    data = dataset(n=60)
    policies = {
        "mode": path,
        "random": load_policy(path, stochastic=True),
        "noisy": load_policy(path, noise=0.3),
    }
    table = bcrl.compare(data, policies, discount=0.9, methods={"lspe": METHOD})
    told = {name: table.estimates[name]["lspe"].provenance["policy"] for name in policies}
    assert len(set(told.values())) == 3
    assert all(load_policy(path).digest in one for one in told.values())


@pytest.mark.parametrize("options", [{}, {"stochastic": True}, {"noise": 0.3}, {"reads": "observation"}])
def test_a_saved_estimate_brings_its_policy_along(path, tmp_path, options):
    data = dataset(n=60)
    estimate = estimated(data, load_policy(path, **options))
    folder = estimate.save(tmp_path / "saved")
    path.unlink()
    states = np.random.default_rng(1).normal(size=(5, 3))
    values = estimate.value_at(states)
    assert values.std() > 0.0
    np.testing.assert_array_equal(bcrl.load_estimate(folder).value_at(states), values)


def test_a_file_that_changed_is_not_saved_as_the_old_one(path, tmp_path):
    estimate = estimated(dataset(n=60), load_policy(path))
    path.write_bytes(b"something else")
    with pytest.raises(BadInput, match="has changed since"):
        estimate.save(tmp_path / "saved")


def test_functions_are_resolved_before_any_method_sees_them():
    data = dataset(n=60)
    centre = {
        "mean": lambda o: np.tanh(o[:, :2]),
        "random": lambda o: td.Normal(torch.tanh(torch.as_tensor(o[:, :2])), 0.4),
    }
    table = bcrl.compare(data, centre, discount=0.9, methods={"lspe": METHOD})
    assert table.estimates["mean"]["lspe"].value != table.estimates["random"]["lspe"].value
    kinds = {name: table.estimates[name]["lspe"].provenance["policy"] for name in centre}
    assert kinds == {"mean": "Deterministic", "random": "Stochastic"}


@pytest.mark.parametrize(
    ("missing", "name", "message"),
    [
        ("onnxruntime", "p.onnx", r"pip install 'bcrl\[onnx\]'"),
        ("stable_baselines3", "p.zip", r"pip install 'bcrl\[sb3\]'"),
    ],
)
def test_missing_extras_are_named(tmp_path, monkeypatch, missing, name, message):
    import zipfile

    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("data", "{}")
        archive.writestr("policy.pth", b"")
    (tmp_path / "p.onnx").write_bytes(b"\x08\x09")
    for module in [one for one in sys.modules if one == missing or one.startswith(missing + ".")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(BadInput, match=message):
        load_policy(tmp_path / name, trust=True)


def test_heavy_packages_are_imported_only_when_needed():
    code = (
        "import sys, numpy as np; from bcrl.policies import load_policy; load_policy(lambda o: o[:, "
        ":2]).act(np.ones((3, 3)));"
        "print([m for m in ('torch', 'onnxruntime', 'stable_baselines3', 'gymnasium') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
