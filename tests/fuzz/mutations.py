"""Mutations that know what they change: values, arrays, tables, JSON trees, bytes, texts of methods."""

import copy
import json
import re
from typing import Any

import numpy as np

Rng = np.random.Generator
STRANGE_NUMBERS = [0, -1, 1, 2**31, 2**63 - 1, -(2**63), 10**30, 0.5, 1e-320, 1e200, -1e308, float("nan")]
STRANGE_NUMBERS += [float("inf"), float("-inf"), True, 50_000, 1e6]
STRANGE_TEXTS = [
    "",
    " ",
    "x" * 5000,
    "\x1b[31mred",
    "a\nb",
    "\x00",
    "\u202egnp",
    "../decoy.txt",
    "/etc/passwd",
]
STRANGE_TEXTS += [
    "=1+1",
    "nan",
    "NULL",
    "1e999",
    "<script>alert(1)</script>",
    "\udcff",
    "%2e%2e%2f",
    "ünï",
    "True",
]
DTYPES = ["f2", "f4", "f8", "i1", "u1", "i8", "u8", "?", "c8", "U3", "S2", "M8[s]", "O", "V4", ">f8"]


def pick(rng: Rng, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


def strange(rng: Rng) -> Any:
    """A value that stands for any other."""
    kinds = [*STRANGE_NUMBERS, *STRANGE_TEXTS, None, [], {}, [[]], [1, 2], {"a": 1}]
    return copy.deepcopy(pick(rng, kinds))


def tree(rng: Rng, value: Any, depth: int = 0) -> Any:
    """A JSON tree with one of its parts changed, left out, doubled, or buried deep."""
    if isinstance(value, (dict, list)) and value and (depth == 0 or rng.random() < 0.85):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key, how = pick(rng, keys), rng.random()
        changed = copy.copy(value)
        if how < 0.1 and depth > 0:
            del changed[key]
        elif how < 0.15 and isinstance(changed, dict):
            changed[str(strange(rng))] = changed.pop(key)
        elif how < 0.2 and isinstance(changed, list):
            changed.insert(key, copy.deepcopy(value[key]))
        else:
            changed[key] = tree(rng, value[key], depth + 1)
        return changed
    if rng.random() < 0.03:
        return nested(int(rng.integers(2, 60)))
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.5:
        return pick(rng, STRANGE_NUMBERS)
    return strange(rng)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if depth % 2 else {"a": value}
    return value


def json_text(rng: Rng, value: Any) -> bytes:
    """A changed tree as text, sometimes with its bytes changed too, sometimes nested ten thousand deep."""
    for _ in range(int(rng.integers(1, 4))):
        value = tree(rng, value)
    if rng.random() < 0.02:
        return b"[" * 20_000 + b"]" * 20_000
    content = json.dumps(value).encode("utf-8", "surrogatepass")
    return some_bytes(rng, content) if rng.random() < 0.2 else content


def some_bytes(rng: Rng, content: bytes) -> bytes:
    """Bytes flipped, cut, doubled, or put in."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 6))):
        at = int(rng.integers(len(data) + 1))
        length = int(rng.integers(1, 65))
        how = rng.random()
        if how < 0.4 and at < len(data):
            data[at] ^= 1 << int(rng.integers(8))
        elif how < 0.6:
            data[at : at + length] = rng.bytes(length)
        elif how < 0.7:
            del data[at : at + length]
        elif how < 0.8:
            data[at:at] = data[at : at + length]
        elif how < 0.9:
            data[at : at + 8] = pick(rng, [b"\xff" * 8, b"\x00" * 8, b"\x7f" + b"\xff" * 7])
        else:
            del data[at:]
    return bytes(data)


def array(rng: Rng, value: np.ndarray) -> np.ndarray:
    """An array of another shape, type or with strange cells; sometimes one that only a pickle could hold."""
    value, how = np.atleast_1d(value), rng.random()
    if how < 0.35 and value.size and value.dtype.kind in "fiubc":
        cells = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64).reshape(-1)
        count = int(rng.integers(1, max(2, cells.size // 4)))
        for place in rng.integers(cells.size, size=count):
            cells[place] = float(pick(rng, [n for n in STRANGE_NUMBERS if abs(n) < 1e309 or n != n]))
        return cells.reshape(value.shape)
    if how < 0.6:
        return other_type(value, pick(rng, DTYPES))
    if how < 0.8:
        shapes = [(-1,), (1, -1), (-1, 1), (value.size,)]
        return value.reshape(pick(rng, shapes))
    rows = [value[:0], value[:1], value[:-1], np.concatenate([value, value]), value[::-1]]
    rows += [np.zeros((len(value), 0)), np.zeros(()), np.repeat(value[:, None], 3, axis=1)]
    return np.array(pick(rng, rows))


def other_type(value: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "V4":
        return np.zeros(value.shape, "V4")
    if dtype.startswith("M8"):
        return np.zeros(value.shape, dtype)
    try:
        with np.errstate(all="ignore"):
            return value.astype(dtype)
    except (ValueError, TypeError, RuntimeError, OverflowError):  # it was changed before, to text or bytes
        return value


def named(rng: Rng, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Named arrays: one changed, renamed, left out, or a stranger among them."""
    changed = dict(arrays)
    for _ in range(int(rng.integers(1, 3))):
        name, how = pick(rng, list(changed)), rng.random()
        if how < 0.6:
            changed[name] = array(rng, changed[name])
        elif how < 0.75 and len(changed) > 1:
            del changed[name]
        elif how < 0.9:
            changed[pick(rng, ["cluster", "log_prob", "next_observations", "behaviour", "../x"])] = changed[
                name
            ]
        else:
            changed[re.sub(r"[\x00/\udcff]", "_", str(strange(rng)))[:60] or "_"] = changed.pop(name)
    return changed


def other_name(rng: Rng) -> Any:
    """A column's name, or something that should be none; only what a table can be keyed by."""
    found = strange(rng)
    return tuple(found) if isinstance(found, list) else str(found) if isinstance(found, dict) else found


def csv(rng: Rng, columns: dict[str, list]) -> bytes:
    """A table as text, with strange cells, headers, rows and bytes."""
    header, rows = list(columns), [list(row) for row in zip(*columns.values(), strict=True)]
    for _ in range(int(rng.integers(1, 4))):
        how = rng.random()
        if how < 0.6:
            row = pick(rng, rows)
            row[int(rng.integers(len(row)))] = strange(rng)
        elif how < 0.75:
            header[int(rng.integers(len(header)))] = str(strange(rng))
        elif how < 0.85:
            rows = rows[: int(rng.integers(3))] or rows[:1]
        elif how < 0.95:
            pick(rng, rows).append(strange(rng))
        else:
            header[0] = header[-1]
    text = "\n".join(",".join(str(cell) for cell in row) for row in [header, *rows])
    content = text.encode(pick(rng, ["utf-8", "utf-8", "utf-8", "latin-1", "utf-16"]), "replace")
    return some_bytes(rng, content) if rng.random() < 0.2 else content


def method_text(rng: Rng, text: str) -> str:
    """A method's text with a number, word, name or bracket changed."""
    for _ in range(int(rng.integers(1, 3))):
        how = rng.random()
        pieces = re.findall(r"[\d.e-]+\d|'\w*'|\w+|[(),=]", text)
        piece = pick(rng, pieces)
        if how < 0.5:
            piece = pick(rng, [p for p in pieces if re.match(r"[\d'-]", p)] or pieces)
            new = repr(strange(rng))
        elif how < 0.65:
            new = piece[: len(piece) // 2] + pick(rng, "xs_(=,'-9")
        elif how < 0.75:
            new = f"{piece}, {pick(rng, ['steps', 'dim', 'reads', 'device'])}={strange(rng)!r}"
        elif how < 0.85:
            new = pick(
                rng,
                ["LSPE(3)", "Head()", "FQE(1)", "()", "[]", "lambda: 1", "__import__('os')", "*x", "**{}"],
            )
        else:
            new = piece * int(rng.integers(2, 200))
        text = text.replace(piece, new, 1)
    # A long training is no hang; nobody waits for it here.
    counts = "steps|epochs|members|repeats|num_rollouts|jumps|layers|batch_size"
    text = re.sub(rf"((?:{counts})=)(?:[\d_]{{3,}}|None)", r"\g<1>7", text)
    return text.replace("\x00", "0")[:8000]
