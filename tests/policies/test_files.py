"""Files that could run code: refused by name, by contents and without trust, and nothing in them runs."""

import io
import json
import logging
import pickle
import zipfile
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest
import torch

from bcrl.errors import BadInput
from bcrl.policies import load_policy


class Hostile:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "it-ran"


def pickled(mark, protocol=4):
    return pickle.dumps(Hostile(mark), protocol=protocol)


def torch_saved(mark):
    buffer = io.BytesIO()
    torch.save({"weights": Hostile(mark)}, buffer)
    return buffer.getvalue()


def torch_saved_old(mark):
    buffer = io.BytesIO()
    torch.save({"weights": Hostile(mark)}, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def sb3_zip(mark):
    serialized = {":type:": "x", ":serialized:": b64encode(pickled(mark)).decode()}
    keys = ("policy_class", "observation_space", "action_space", "policy_kwargs", "lr_schedule")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data", json.dumps(dict.fromkeys(keys, serialized)))
        archive.writestr("policy.pth", torch_saved(mark))
        archive.writestr("_stable_baselines3_version", "2.4.0")
    return buffer.getvalue()


def exported(mark):
    """A program whose sample inputs, which torch's loader unpickles, are hostile."""
    buffer, changed = io.BytesIO(), io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(4, 3),)), buffer)
    with zipfile.ZipFile(buffer) as whole, zipfile.ZipFile(changed, "w") as archive:
        for name in whole.namelist():
            archive.writestr(name, torch_saved(mark) if "sample_inputs" in name else whole.read(name))
    return changed.getvalue()


KINDS = {
    "pickle": pickled,
    "pickle-0": lambda mark: pickled(mark, 0),
    "torch": torch_saved,
    "torch-old": torch_saved_old,
    "sb3": sb3_zip,
    "exported": exported,
}
ENDINGS = (
    ".safetensors",
    ".onnx",
    ".zip",
    ".pt2",
    ".pkl",
    ".pickle",
    ".joblib",
    ".pt",
    ".pth",
    ".ckpt",
    ".d3",
    ".npz",
    "",
)


def test_the_hostile_object_does_run(mark):
    pickle.loads(pickled(mark))
    assert mark.exists()


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_runs_without_trust(tmp_path, mark, kind, ending):
    path = tmp_path / f"policy{ending}"
    path.write_bytes(KINDS[kind](mark))
    with pytest.raises(BadInput) as caught:
        load_policy(path)
    assert "policy" in str(caught.value) and "\n" not in str(caught.value)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        (kind, ending)
        for kind in KINDS
        for ending in ENDINGS
        if (kind, ending) not in {("sb3", ".zip"), ("exported", ".pt2")}
    ],
)
def test_nothing_runs_with_trust_in_a_file_that_is_not_what_its_name_says(tmp_path, mark, kind, ending):
    path = tmp_path / f"policy{ending}"
    path.write_bytes(KINDS[kind](mark))
    with pytest.raises(BadInput):
        load_policy(path, trust=True)
    assert not mark.exists()


@pytest.mark.parametrize("trust", [False, True])
def test_statistics_need_trust(tmp_path, mark, trust):
    (tmp_path / "stats.pkl").write_bytes(pickled(mark))
    with pytest.raises(
        BadInput, match="stats is a NoneType" if trust else "if you trust its author pass trust=True"
    ):
        load_policy(lambda o: o, stats=tmp_path / "stats.pkl", trust=trust)
    assert mark.exists() == trust


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.pkl", b"x", "never opens one as a policy. Export the policy to ONNX"),
        ("p.pt", b"x", "Build the module, load the weights into it and pass the module"),
        ("p.d3", b"x", "save_policy\\('policy.onnx'\\)"),
        ("p.bmp", b"x", "ending '.bmp'; policy files end in .safetensors"),
        ("p.onnx", b"", "is empty"),
        ("p.safetensors", b"\x08\x00\x00\x00\x00\x00\x00\x00{garbage", "no safetensors file"),
        ("p.zip", b"x", "if you trust its author pass trust=True \\(--trust\\)"),
        ("p.onnx", pickle.dumps([1]), "is named like an ONNX file but holds a pickle; it was not loaded"),
        ("p.safetensors", pickle.dumps([1]), "is named like a safetensors file but holds a pickle"),
    ],
)
def test_messages(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        load_policy(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "message"), [(b"PK\x03\x04rest", "holds a zip archive"), (b"no zip", "it is no zip archive")]
)
@pytest.mark.parametrize("ending", ["zip", "pt2"])
def test_damaged_archives(tmp_path, ending, content, message):
    (tmp_path / f"p.{ending}").write_bytes(content)
    with pytest.raises(BadInput, match=message):
        load_policy(tmp_path / f"p.{ending}", trust=True)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(BadInput, match="No file at"):
        load_policy(tmp_path / "none.onnx")
    with pytest.raises(BadInput, match="is a folder"):
        load_policy(str(tmp_path))


def test_a_safetensors_header_that_begins_like_a_pickle_is_read(tmp_path):
    """A header of 640 bytes has the first bytes of a pickle of protocol 2."""
    from safetensors.numpy import save

    sizes = {"latent_pi.0": (4, 3), "latent_pi.2": (4, 4), "mu": (2, 4), "log_std": (2, 4)}
    tensors = {f"{name}.weight": np.ones(size, np.float32) for name, size in sizes.items()}
    tensors |= {f"{name}.bias": np.ones(size[0], np.float32) for name, size in sizes.items()}
    found = (save(tensors, {"note": "x" * length}) for length in range(2000))
    content = next(one for one in found if one[:2] in (b"\x80\x02", b"\x80\x03"))
    (tmp_path / "p.safetensors").write_bytes(content)
    assert load_policy(tmp_path / "p.safetensors").act(np.zeros((1, 3))).shape == (1, 2)


def test_why_programs_need_trust(tmp_path, mark, monkeypatch):
    """torch's loader falls back to unpickling the sample inputs (and trips over its own log message about
    it).
    """
    monkeypatch.setattr(logging.getLogger("torch._export.serde.serialize"), "disabled", True)
    (tmp_path / "p.pt2").write_bytes(exported(mark))
    with pytest.raises(BadInput, match=r"no torch\.export program that this torch can load"):
        load_policy(tmp_path / "p.pt2", trust=True)
    assert mark.exists()


def test_why_zips_need_trust(tmp_path, mark):
    (tmp_path / "p.zip").write_bytes(sb3_zip(mark))
    with pytest.raises(BadInput, match="could not be rebuilt"):
        load_policy(tmp_path / "p.zip", trust=True)
    assert mark.exists()
