"""Our own files carry a hash; what is damaged is seen, set aside, and the work starts over (F43)."""

import json
import logging
import shutil

import numpy as np
import pytest
import torch

import bcrl
from bcrl import BadInput
from bcrl.comparison import Comparison
from bcrl.data.storage.writer import Writer
from bcrl.estimate import Estimate
from bcrl.policies.actor_file import save_actor
from bcrl.policies.actors import StateActor
from bcrl.sealed import sealed_json, unsealed_json
from bcrl.training import Run, read_checkpoint, train, write_checkpoint
from bcrl_bench.worlds import lqr

WORLD = lqr()
DATA = WORLD.dataset(20, 10, 0)


def flips(content, count, seed=0):
    """Copies of some bytes, each with one random bit flipped."""
    chance = np.random.default_rng(seed)
    for _ in range(count):
        changed = bytearray(content)
        changed[chance.integers(len(content))] ^= 1 << chance.integers(8)
        yield bytes(changed)


class Counter:
    """A learner that counts its steps and adds up random numbers."""

    batch_size = 1

    def __init__(self):
        self.total, self.taken, self.generator = torch.zeros(100), 0, torch.Generator().manual_seed(0)

    def step(self):
        self.taken += 1
        self.total += torch.rand(100, generator=self.generator)
        return {"loss": float(self.total[0])}

    def state(self):
        return {"total": self.total, "generator": self.generator.get_state()}

    def restore(self, state):
        self.total = state["total"]
        self.generator.set_state(state["generator"])


def run_counter(folder, key="a", steps=20):
    learner = Counter()
    curve = list(train(learner, steps=steps, run=Run(folder=folder, key=key), stage="counting", every=5))
    return learner, curve


def test_200_flips_of_a_checkpoint_are_all_seen(tmp_path):
    path = tmp_path / "checkpoint.pt"
    write_checkpoint(path, {"key": "", "total": torch.arange(50.0), "step": 3})
    content = path.read_bytes()
    for changed in flips(content, 200):
        path.write_bytes(changed)
        assert read_checkpoint(path) is None and not path.exists()
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
    path.write_bytes(content)
    assert read_checkpoint(path)["step"] == 3


SEAL_AND_HASH = b"\nbcrl sha256 " + bytes(32)
DAMAGE = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "longer": lambda content: content + b"x",
    "of an earlier version, which wrote no hash": lambda content: content[: -len(SEAL_AND_HASH)],
    "foreign": lambda content: b"PK\x03\x04 another program's file",
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_checkpoint_is_set_aside_and_the_work_starts_over(name, tmp_path, caplog):
    whole, curve = run_counter(tmp_path)
    path = tmp_path / "checkpoint.pt"
    bad = DAMAGE[name](path.read_bytes())
    path.write_bytes(bad)
    with caplog.at_level(logging.WARNING):
        again, same = run_counter(tmp_path)
    assert again.taken == 20 and torch.equal(again.total, whole.total) and same == curve
    (line,) = [record.getMessage() for record in caplog.records]
    assert "checkpoint.pt.damaged" in line and "starts over" in line and "\n" not in line
    assert (tmp_path / "checkpoint.pt.damaged").read_bytes() == bad
    assert run_counter(tmp_path)[0].taken == 0  # the new one is whole


def test_a_checkpoint_of_another_computation_is_not_taken(tmp_path, caplog):
    run_counter(tmp_path, key="a")
    assert run_counter(tmp_path, key="b")[0].taken == 20
    assert "another computation" in caplog.text
    assert (tmp_path / "checkpoint.pt.damaged").exists() and run_counter(tmp_path, key="b")[0].taken == 0


def test_evaluate_goes_on_after_damage(tmp_path, caplog):
    """The whole way: every checkpoint of a run damaged, the same command again, the same answer."""

    def ask():
        return bcrl.evaluate(DATA, WORLD.target, discount=0.9, method="FQE(steps=40)", folder=tmp_path)

    first = ask()
    for number, path in enumerate(sorted(tmp_path.rglob("checkpoint.pt"))):
        path.write_bytes(path.read_bytes()[: 100 * number])
    assert ask().value == first.value and "starts over" in caplog.text


@pytest.fixture(scope="module")
def estimate(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "actor.safetensors"
    save_actor(path, StateActor(DATA.observations["observation"].shape[1], DATA.action_dim, (8,)), {})
    return bcrl.evaluate(DATA, path, discount=0.9, method="LSPE(RandomFeatures(dim=8))")


def test_flips_in_an_estimate_folder_are_all_seen(estimate, tmp_path):
    folder = estimate.save(tmp_path / "estimate")
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "SHA256SUMS", "estimate.json", "policy.safetensors", "value.json", "value.safetensors",
    ]  # fmt: skip
    for name in names:
        content = (folder / name).read_bytes()
        for changed in [*flips(content, 40), b"", content[:-1]]:
            (folder / name).write_bytes(changed)
            with pytest.raises(BadInput, match="damaged"):
                bcrl.load_estimate(folder)
        (folder / name).write_bytes(content)
    assert bcrl.load_estimate(folder).value == estimate.value


def test_an_estimate_of_0_1_without_hashes_still_loads(estimate, tmp_path):
    folder = estimate.save(tmp_path / "estimate")
    (folder / "SHA256SUMS").unlink()
    assert bcrl.load_estimate(folder).value == estimate.value


@pytest.mark.parametrize(
    "kept",
    [
        {"file": "../secret.safetensors", "options": {}},
        {"file": "policy.zip", "options": {"trust": True}},
        {"file": "policy.safetensors", "options": {"trust": True}},
        {"file": "policy.safetensors", "options": {"stats": "/etc/passwd"}},
        {"file": 3, "options": {}},
        {"file": "policy.safetensors"},
    ],
)
def test_an_estimate_folder_cannot_vouch_for_code_or_lead_out(kept, estimate, tmp_path):
    folder = estimate.save(tmp_path / "estimate")
    (folder / "SHA256SUMS").unlink()
    shutil.copy(folder / "policy.safetensors", tmp_path / "secret.safetensors")
    spec = json.loads((folder / "value.json").read_text())
    (folder / "value.json").write_text(json.dumps(spec | {"policy": kept}))
    with pytest.raises(BadInput, match=r"policy that estimate\.save does not write|damaged"):
        bcrl.load_estimate(folder)


def test_flips_in_a_saved_representation_are_all_seen(estimate, tmp_path):
    folder = bcrl.save_representation(estimate, tmp_path / "phi")
    method = bcrl.LSPE(bcrl.SavedFeatures(folder))
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for changed in [*flips(content, 20), b"", content[:-1]]:
            path.write_bytes(changed)
            with pytest.raises(BadInput, match="damaged"):
                bcrl.evaluate(DATA, WORLD.target, discount=0.9, method=method)
        path.write_bytes(content)


def test_200_flips_of_results_are_all_seen(estimate, tmp_path):
    path = Comparison.of(estimate).save(tmp_path / "results.json")
    content = path.read_bytes()
    for changed in flips(content, 200):
        path.write_bytes(changed)
        with pytest.raises(BadInput):
            Comparison.load(path)


def episode(number):
    return {
        "observations": np.full((3, 1), float(number)),
        "actions": np.zeros((2, 1)),
        "rewards": [0, 1],
        "terminated": True,
    }


def test_flips_of_a_collections_progress_are_all_seen(tmp_path, caplog):
    writer = Writer(tmp_path / "begun")
    writer.append(episode(0))
    del writer
    content = (tmp_path / "begun" / "progress.json").read_bytes()
    for number, changed in enumerate([*flips(content, 200), b"", content[:-1], b"[" * 100_000]):
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        shutil.copytree(tmp_path / "begun", tmp_path / "data")
        (tmp_path / "data" / "progress.json").write_bytes(changed)
        caplog.clear()
        again = Writer(tmp_path / "data")
        assert again.episodes == 0 and "starts over" in caplog.text, changed
        del again
        assert (tmp_path / f"data.damaged{number + 1 if number else ''}" / "rewards.npy").exists()
    assert Writer(tmp_path / "begun").finish(episode(n) for n in range(3)).num_episodes == 3


def test_arrays_shorter_than_progress_says_are_not_filled_with_zeros(tmp_path, caplog):
    writer = Writer(tmp_path / "data")
    writer.append(episode(0))
    del writer
    path = tmp_path / "data" / "rewards.npy"
    path.write_bytes(path.read_bytes()[:-8])
    data = Writer(tmp_path / "data").finish(episode(n) for n in range(2))
    assert data.rewards.tolist() == [0, 1, 0, 1] and "starts over" in caplog.text


def test_progress_cannot_cut_files_elsewhere(tmp_path):
    writer = Writer(tmp_path / "data")
    writer.append(episode(0))
    del writer
    (tmp_path / "victim.npy").write_bytes(bytes(1000))
    path = tmp_path / "data" / "progress.json"
    saved = json.loads(path.read_text())
    del saved["sha256"]
    saved["rows"]["../victim"] = 0
    saved["kinds"]["../victim"] = {"dtype": "<f8", "shape": []}
    path.write_text(sealed_json(json.dumps(saved)))
    assert Writer(tmp_path / "data").episodes == 0
    assert len((tmp_path / "victim.npy").read_bytes()) == 1000


def test_json_with_its_hash_comes_back_and_without_one_too():
    text = json.dumps({"a": [1, 2.5], "ü": "x"}, indent=1)
    for written in (sealed_json(text), text):
        assert unsealed_json(written, "place", "something") == {"a": [1, 2.5], "ü": "x"}


def test_estimates_read_what_they_wrote(estimate):
    again = Estimate.from_json(estimate.to_json())
    assert again.to_json() == estimate.to_json() and again.checks == estimate.checks
