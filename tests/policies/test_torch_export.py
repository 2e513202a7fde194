"""torch.export programs: with trust, the same actions as the module; otherwise never opened."""

from hashlib import sha256

import numpy as np
import pytest
import torch
from policies.small_data import dataset

from bcrl.errors import BadInput
from bcrl.policies import load_policy
from bcrl.policies.kinds import Discrete
from bcrl.policies.policy import target_actions


def save(path, net, *example, dynamic=True):
    shapes = tuple({0: torch.export.Dim("batch")} for _ in example) if dynamic else None
    torch.export.save(torch.export.export(net.eval(), example, dynamic_shapes=shapes), path)
    return path


@pytest.fixture
def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2), torch.nn.Tanh())


@pytest.mark.parametrize("dynamic", [True, False])
def test_program_gives_the_modules_actions(tmp_path, net, dynamic):
    path = save(tmp_path / "p.pt2", net, torch.zeros(4, 3), dynamic=dynamic)
    policy = load_policy(path, trust=True)
    states = np.random.default_rng(0).normal(size=(10, 3))
    with torch.no_grad():
        expected = net(torch.as_tensor(states, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(policy.act(states), expected, rtol=1e-6, atol=1e-7)
    assert policy.path == path and policy.digest == sha256(path.read_bytes()).hexdigest()


def test_trust_is_needed(tmp_path, net):
    path = save(tmp_path / "p.pt2", net, torch.zeros(4, 3))
    with pytest.raises(
        BadInput, match=r"can run code when loaded .*; if you trust its author pass trust=True \(--trust\)"
    ):
        load_policy(path)


class Two(torch.nn.Module):
    def forward(self, state, goal):
        return state - goal, state + goal


def test_several_inputs_and_outputs(tmp_path):
    path = save(tmp_path / "p.pt2", Two(), torch.zeros(4, 2), torch.zeros(4, 2))
    with pytest.raises(BadInput, match="output_name"):
        load_policy(path, trust=True)
    policy = load_policy(path, trust=True, output_name="add")
    data = dataset(keys={"state": 2, "goal": 2})
    expected = data.observations["state"] + data.observations["goal"]
    np.testing.assert_allclose(target_actions(data, policy).actions[:, 0], expected, rtol=1e-5, atol=1e-6)


def test_logits(tmp_path):
    policy = load_policy(
        save(tmp_path / "p.pt2", torch.nn.Identity(), torch.zeros(4, 3)), trust=True, output="logits"
    )
    assert isinstance(policy, Discrete)
    np.testing.assert_allclose(policy.probabilities(np.log([[0.2, 0.3, 0.5]])), [[0.2, 0.3, 0.5]], rtol=1e-6)


class Noisy(torch.nn.Module):
    def forward(self, state):
        return state + torch.randn_like(state)


def test_random_programs_are_refused(tmp_path):
    path = save(tmp_path / "p.pt2", Noisy(), torch.zeros(4, 3))
    with pytest.raises(BadInput, match="draws random numbers inside"):
        load_policy(path, trust=True)
