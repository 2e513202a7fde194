"""`bcrl guard` and `bcrl trial`, as they are typed."""

import json

import numpy as np
import torch
from test_guard import point_log

import bcrl
from bcrl.cli import main
from bcrl.data.storage.folder import save
from bcrl.policies.actor_file import save_actor
from bcrl.policies.actors import StateActor


def test_guard_prints_what_can_be_done_and_writes_a_policy(tmp_path, capsys):
    torch.manual_seed(0)
    save_actor(tmp_path / "new.safetensors", StateActor(1, 1, (8,)), {})
    save(point_log(episodes=20), tmp_path / "log")
    out = str(tmp_path / "guarded.safetensors")
    words = ["guard", str(tmp_path / "log"), str(tmp_path / "new.safetensors"), "--discount", "0.9"]
    method = "LSPE(RandomFeatures(dim=40, widths=(1.0,)))"
    page = tmp_path / "guard.html"
    assert main([*words, "--method", method, "--out", out, "--page", str(page)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("What you can do")
    assert "rewards stay within" in told
    assert hasattr(bcrl.load_policy(out), "sample")
    drawn = page.read_text()
    assert drawn.count('class="spot"') == 4 and drawn.count(" times the usual") == 3
    assert main([*words, "--least", "0"]) == 2


def test_trial_says_go_on_or_stop(tmp_path, capsys):
    rng = np.random.default_rng(0)
    np.savetxt(tmp_path / "new.txt", rng.normal(2.0, 1.0, 60))
    np.savetxt(tmp_path / "old.txt", rng.normal(0.0, 1.0, 200))
    assert main(["trial", str(tmp_path / "new.txt"), str(tmp_path / "old.txt"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decision"] == "better"
    assert main(["trial", str(tmp_path / "new.txt"), str(tmp_path / "old.txt"), "--least", "0"]) == 2
    (tmp_path / "old.txt").write_text("a b")
    assert main(["trial", str(tmp_path / "new.txt"), str(tmp_path / "old.txt")]) == 2
