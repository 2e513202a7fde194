"""Policy files: read once, hashed, and refused when loading them could run code that nobody vouched for.

A file's ending chooses its loader; its first bytes and, for zips, its table of contents must agree with the
ending. Neither check runs anything. What each kind can do when loaded:

    .safetensors  .onnx        numbers and a graph: nothing, never needs trust
    .zip (SB3)  .pt2  stats    hold pickles: anything, needs trust=True
    pickles, .pt, .pth         hold pickles and no architecture that could be checked: always refused
"""

import hashlib
import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bcrl.errors import BadInput
from bcrl.opening import plain_file

Kind = Literal["safetensors", "onnx", "sb3", "exported"]
ENDINGS: dict[str, Kind] = {".safetensors": "safetensors", ".onnx": "onnx", ".zip": "sb3", ".pt2": "exported"}
NAMES = {
    "safetensors": "a safetensors file",
    "onnx": "an ONNX file",
    "sb3": "a Stable-Baselines3 zip",
    "exported": "a torch.export program",
    "pickle": "a pickle",
    "torch": "a torch.save or TorchScript archive",
    "zip": "a zip archive",
}
NEEDS_TRUST = ("sb3", "exported")
PICKLES = (".pkl", ".pickle", ".p", ".joblib", ".dill", ".cloudpickle")
TORCH = (".pt", ".pth", ".ckpt", ".bin", ".tar", ".jit")


@dataclass(frozen=True)
class PolicyFile:
    """A file that is what its ending says, in memory: what is hashed is what is loaded."""

    path: Path
    kind: Kind
    content: bytes
    digest: str


def read_policy_file(path: Path, *, trust: bool) -> PolicyFile:
    """Read a policy file, or refuse it in one line without running anything from it."""
    if os.path.isdir(path):
        raise BadInput(f"{path} is a folder; expected a policy file ({', '.join(ENDINGS)}).")
    kind = _kind_by_ending(path)
    if kind in NEEDS_TRUST:
        require_trust(path, NAMES[kind], trust)
    content = plain_file(path).read_bytes()
    if not content:
        raise BadInput(f"{path} is empty; expected {NAMES[kind]}.")
    found = _contents(content)
    if found not in (kind, "unknown"):
        raise BadInput(f"{path} is named like {NAMES[kind]} but holds {NAMES[found]}; it was not loaded.")
    if found == "unknown" and kind in NEEDS_TRUST:
        raise BadInput(f"{path} is not {NAMES[kind]}: it is no zip archive. Is the file damaged?")
    return PolicyFile(path, kind, content, hashlib.sha256(content).hexdigest())


def require_trust(path: Path, name: str, trust: bool) -> None:
    """Refuse a file that can run code unless its author is trusted."""
    if not trust:
        raise BadInput(
            f"{path} can run code when loaded ({name}); if you trust its author pass trust=True (--trust)."
        )


def _kind_by_ending(path: Path) -> Kind:
    ending = path.suffix.lower()
    if ending in PICKLES:
        raise BadInput(
            f"{path} is a pickle: it can run any code when loaded, so bcrl never opens one as a policy. "
            "Export the policy to ONNX or safetensors, or load it in your own code and pass the object."
        )
    if ending in TORCH:
        raise BadInput(
            f"{path} holds torch weights without the network's code, or a pickle; bcrl does not open it. "
            "Build the module, load the weights into it and pass the module, or export it to ONNX."
        )
    if ending == ".d3":
        raise BadInput(
            f"{path} is d3rlpy's own pickle; export the policy with algo.save_policy('policy.onnx') instead."
        )
    if ending not in ENDINGS:
        raise BadInput(f"{path} has the ending {ending!r}; policy files end in {', '.join(ENDINGS)}.")
    return ENDINGS[ending]


def _contents(content: bytes) -> str:
    """What the bytes are, as far as can be told without parsing them."""
    if content[8:9] == b"{" and int.from_bytes(content[:8], "little") < len(content):
        return "safetensors"  # before pickles: a header of 640 bytes begins as a pickle of protocol 2 does
    if content[:1] == b"\x80" and content[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "pickle"
    if not content.startswith(b"PK\x03\x04"):
        return "unknown"
    try:
        names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    except zipfile.BadZipFile:
        return "zip"
    inner = {name.split("/", 1)[-1] for name in names}
    if "data" in names and any(name.endswith(".pth") for name in names):
        return "sb3"
    if "archive_format" in inner:
        return "exported"
    return "torch" if inner & {"data.pkl", "constants.pkl"} else "zip"
