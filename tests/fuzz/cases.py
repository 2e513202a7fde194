"""A case: files in a folder of its own, and the words of a command line that names them."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow
from pyarrow import parquet

from fuzz import mutations as mutate
from fuzz import seeds
from fuzz.mutations import Rng, pick

QUICK = "LSPE(RandomFeatures(dim=8, widths=(1.0,)))"
ASK = ["--discount", "0.9", "--quiet", "--policy-seconds", "8"]


def about(rng: Rng, data: str, *more: str) -> list[str]:
    """A command about these data: mostly the doctor, else an evaluation."""
    if rng.random() < 0.6:
        return ["doctor", data, *more]
    return ["evaluate", data, "actor.safetensors", *ASK, "--method", QUICK, *more]


def npz(rng: Rng, base: Path, here: Path) -> list[str]:
    if rng.random() < 0.3:
        (here / "log.npz").write_bytes(mutate.some_bytes(rng, (base / "log.npz").read_bytes()))
    else:
        arrays = mutate.named(rng, seeds.arrays(rng, discrete=bool(rng.integers(2))))
        np.savez(here / "log.npz", **{name.replace("/", "_"): value for name, value in arrays.items()})
    return about(rng, "log.npz")


def table(rng: Rng, base: Path, here: Path) -> list[str]:
    columns = seeds.COLUMNS if rng.random() < 0.7 else mutate.tree(rng, seeds.COLUMNS)
    words = ["--columns", json.dumps(columns).replace("\x00", "0")]
    if rng.random() < 0.6:
        (here / "log.csv").write_bytes(mutate.csv(rng, seeds.table(rng)))
        return about(rng, "log.csv", *words)
    try:
        made = {
            name: pyarrow.array(mutate.array(rng, np.array(cells)).tolist()) if rng.random() < 0.3 else cells
            for name, cells in seeds.table(rng).items()
        }
        parquet.write_table(pyarrow.table(made), here / "log.parquet")
    except (pyarrow.ArrowException, TypeError, OverflowError):
        parquet.write_table(pyarrow.table(seeds.table(rng)), here / "log.parquet")
    if rng.random() < 0.5:
        (here / "log.parquet").write_bytes(mutate.some_bytes(rng, (here / "log.parquet").read_bytes()))
    return about(rng, "log.parquet", *words)


def folder(rng: Rng, base: Path, here: Path) -> list[str]:
    shutil.copytree(base / "folder", here / "log")
    files = sorted(path for path in (here / "log").rglob("*") if path.is_file())
    path, how = pick(rng, files), rng.random()
    if path.suffix == ".json":
        path.write_bytes(mutate.json_text(rng, json.loads(path.read_bytes())))
    elif how < 0.4:
        np.save(path, mutate.array(rng, np.load(path)), allow_pickle=True)
    elif how < 0.7:
        path.write_bytes(mutate.some_bytes(rng, path.read_bytes()))
    elif how < 0.8:
        path.unlink()
    elif how < 0.9:
        path.unlink()
        path.symlink_to(base / "decoy.npy")
    else:
        path.unlink()
        os.mkfifo(path)
    return about(rng, "log")


def hdf5(rng: Rng, base: Path, here: Path) -> list[str]:
    arrays = seeds.arrays(rng)
    arrays["terminals"], arrays["timeouts"] = arrays.pop("terminated"), arrays.pop("truncated")
    with h5py.File(here / "log.hdf5", "w") as file:
        for name, value in mutate.named(rng, arrays).items():
            if value.dtype.kind in "OUMV" or name in file:
                file.attrs[name.replace("\x00", "0")] = 1
            else:
                file.create_dataset(name.replace("\x00", "0"), data=value)
        if rng.random() < 0.15 and "rewards" in file:
            del file["rewards"]
            size = seeds.ROWS * 8
            decoy = str(base / "decoy.bin")
            file.create_dataset("rewards", (seeds.ROWS,), "f8", external=[(decoy, 0, size)])
        if rng.random() < 0.1:
            file["elsewhere"] = h5py.ExternalLink(str(base / "decoy.hdf5"), "/secret")
    if rng.random() < 0.3:
        (here / "log.hdf5").write_bytes(mutate.some_bytes(rng, (here / "log.hdf5").read_bytes()))
    return about(rng, "log.hdf5")


def minari(rng: Rng, base: Path, here: Path) -> list[str]:
    shutil.copytree(base / "minari", here / "log")
    path = pick(rng, [p for p in (here / "log").rglob("*") if p.is_file()])
    if path.suffix == ".json":
        path.write_bytes(mutate.json_text(rng, json.loads(path.read_bytes())))
    elif rng.random() < 0.5:
        path.write_bytes(mutate.some_bytes(rng, path.read_bytes()))
    else:
        with h5py.File(path, "r+") as file:
            names: list[str] = []
            file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
            name = pick(rng, names)
            value = mutate.array(rng, np.asarray(file[name][()]))
            del file[name]
            if value.dtype.kind not in "OUMV":
                file.create_dataset(name, data=value)
    return about(rng, "log")


def drq(rng: Rng, base: Path, here: Path) -> list[str]:
    (here / "log").mkdir()
    for number in range(3):
        frames = rng.integers(0, 255, size=(4, 3, 8, 8)).astype(np.uint8)
        if rng.random() < 0.5:
            frames = rng.normal(size=(4, 2)).astype(np.float32)
        episode = {"observation": frames, "action": rng.normal(size=(4, 1)).astype(np.float32)}
        episode |= {"reward": rng.normal(size=(4, 1)), "discount": np.ones((4, 1))}
        changed = mutate.named(rng, episode) if rng.random() < 0.6 else episode
        name = (
            f"2026_{number}_3" if rng.random() < 0.9 else pick(rng, ["a_9999999999999_b", "x\x1b[31m", "_"])
        )
        np.savez(here / "log" / f"{name}.npz", **{key.replace("/", "_"): v for key, v in changed.items()})
    return about(rng, "log")


def policy(rng: Rng, base: Path, here: Path) -> list[str]:
    name = pick(rng, ["actor.safetensors", "graph.onnx", "graph.onnx", "policy.zip", "policy.pt2"])
    source = base / name if (base / name).exists() else base / "graph.onnx"
    (here / name).unlink(missing_ok=True)
    content = source.read_bytes()
    if name == "actor.safetensors" and rng.random() < 0.5:
        size = int.from_bytes(content[:8], "little")
        header = mutate.json_text(rng, json.loads(content[8 : 8 + size]))
        content = len(header).to_bytes(8, "little") + header + content[8 + size :]
    else:
        content = mutate.some_bytes(rng, content)
    (here / name).write_bytes(content)
    shutil.copy(base / "log.npz", here / "log.npz")
    if rng.random() < 0.5:
        return ["doctor", "log.npz", "--policy", name, "--policy-seconds", "8"]
    return ["evaluate", "log.npz", name, *ASK, "--method", QUICK]


def method(rng: Rng, base: Path, here: Path) -> list[str]:
    shutil.copy(base / "log.npz", here / "log.npz")
    text = mutate.method_text(rng, pick(rng, seeds.METHODS))
    return ["evaluate", "log.npz", "actor.safetensors", *ASK, "--method", text]


def question(rng: Rng, base: Path, here: Path) -> list[str]:
    shutil.copy(base / "log.npz", here / "log.npz")
    given = {"--discount": "0.9", "--method": QUICK, "--policy-seconds": "8"}
    names = ["--discount", "--horizon", "--level", "--seed", "--stack", "--columns", "--reads", "--device"]
    names += ["--representation", "--out", "--stats", "--policy-seconds", "--tensorboard"]
    for _ in range(int(rng.integers(1, 3))):
        given[pick(rng, names)] = str(mutate.strange(rng)).replace("\x00", "0")
    words = [word for pair in given.items() for word in pair]
    return ["evaluate", "log.npz", "actor.safetensors", "--quiet", *words]


def results(rng: Rng, base: Path, here: Path) -> list[str]:
    content = json.loads((base / "results.json").read_bytes())
    (here / "results.json").write_bytes(mutate.json_text(rng, content))
    return ["report", "results.json", "--out", "page.html"]


def guessed(rng: Rng, base: Path, here: Path) -> list[str]:
    """A table of visits whose columns nobody names: words as actions, cells missing."""
    columns = seeds.visits(rng)
    for _ in range(int(rng.integers(0, 3))):
        old = pick(rng, list(columns))
        columns[pick(rng, seeds.USUAL_NAMES)] = columns.pop(old) if rng.random() < 0.7 else columns[old]
    words = ["--missing", pick(rng, ["refuse", "forward", "mean", "x"])] if rng.random() < 0.6 else []
    words += ["--ends", pick(rng, ["terminated", "truncated", "drop", "\x1b"])] if rng.random() < 0.6 else []
    if rng.random() < 0.5:
        (here / "log.csv").write_bytes(mutate.csv(rng, columns))
        return about(rng, "log.csv", *words)
    name, cells = pick(rng, list(columns.items()))
    columns[name] = [mutate.strange(rng) if rng.random() < 0.3 else cell for cell in cells]
    try:
        parquet.write_table(pyarrow.table(columns), here / "log.parquet")
    except (pyarrow.ArrowException, TypeError, OverflowError, UnicodeEncodeError):
        columns[name] = [None, *cells[1:]]
        parquet.write_table(pyarrow.table(columns), here / "log.parquet")
    return about(rng, "log.parquet", *words)


def guard(rng: Rng, base: Path, here: Path) -> list[str]:
    """A guarded policy from a log or a question with something strange in it."""
    arrays, given = seeds.arrays(rng, discrete=rng.random() < 0.3), {"--discount": "0.9", "--method": QUICK}
    if rng.random() < 0.6:
        arrays = mutate.named(rng, arrays)
    else:
        name = pick(rng, ["--discount", "--horizon", "--seed", "--method", "--behaviour", "--out"])
        given[name] = str(mutate.strange(rng)).replace("\x00", "0")
    np.savez(here / "log.npz", **{name.replace("/", "_"): value for name, value in arrays.items()})
    policy = pick(rng, ["actor.safetensors", "actor.safetensors", "graph.onnx"])
    if rng.random() < 0.2:
        (here / policy).write_bytes(mutate.some_bytes(rng, (base / policy).read_bytes()))
    elif not (here / policy).exists():
        shutil.copy(base / policy, here / policy)
    if "--out" not in given and rng.random() < 0.5:
        given["--out"] = "guarded.safetensors"
    return ["guard", "log.npz", policy, *[word for pair in given.items() for word in pair]]


def trial(rng: Rng, base: Path, here: Path) -> list[str]:
    """Returns of two arms as text."""
    for name in ("new.txt", "old.txt"):
        cells = [str(cell) for cell in rng.random(int(rng.integers(0, 60))).round(3)]
        for _ in range(int(rng.integers(0, 3))):
            cells.insert(int(rng.integers(len(cells) + 1)), str(mutate.strange(rng)))
        content = "\n".join(cells).encode(pick(rng, ["utf-8", "utf-8", "utf-16"]), "replace")
        (here / name).write_bytes(mutate.some_bytes(rng, content) if rng.random() < 0.2 else content)
    words = ["--least", "0", "--most", "1"] if rng.random() < 0.6 else []
    if rng.random() < 0.3:
        words += [pick(rng, ["--least", "--most"]), str(mutate.strange(rng)).replace("\x00", "0")]
    return ["trial", "new.txt", "old.txt", *words, *(["--concurrent"] if rng.random() < 0.3 else [])]


def in_memory(rng: Rng, base: Path, here: Path) -> list[str]:
    """A table and a policy that are Python objects (objects.py makes them from this seed)."""
    return ["python", str(int(rng.integers(2**31)))]


BEFORE = [npz, table, folder, hdf5, minari, drq, policy, method, question, results]
KINDS = [*BEFORE, guessed, guard, trial, in_memory]


def kinds(seed: int) -> list[Callable[[Rng, Path, Path], list[str]]]:
    """What the cases of a seed are. Seeds below 200 ran before the later kinds were there: theirs stay."""
    return KINDS if seed >= 200 else BEFORE


def make(seed: int, number: int, base: Path, here: Path) -> list[str]:
    """Write the case's files into `here`; its command."""
    rng = np.random.default_rng([seed, number])
    shutil.copy(base / "actor.safetensors", here / "actor.safetensors")
    return pick_kind(seed, number)(rng, base, here)


def pick_kind(seed: int, number: int) -> Callable[[Rng, Path, Path], list[str]]:
    return kinds(seed)[number % len(kinds(seed))]
