"""A guarded policy: the new policy where the log supports its action, the logged behaviour elsewhere.

It is a policy like any other, runs without the log, and is stored in one safetensors file: the log's
neighbours as arrays, the policies' own files as bytes. Nothing in it can run code.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from bcrl import salts
from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.opening import parse_json
from bcrl.policies.files import Kind, PolicyFile
from bcrl.policies.local import FloatArray, Ints, LocalLog
from bcrl.policies.policy import AnyPolicy, DiscretePolicy, Options, Policy, StochasticPolicy, TargetActions
from bcrl.writing import atomic_write

MARK = "bcrl-guarded"  # in the file's metadata
_ARRAYS = ("centre", "scale", "states", "actions", "spread", "probability", "unit")
_SAFE: tuple[Kind, ...] = ("safetensors", "onnx")  # kinds of files that can be kept inside
DRAWS = 4  # of the logged behaviour at a row of the log


@dataclass(frozen=True, eq=False)
class _Guard:
    """What both kinds share.

    Attributes:
        new: the policy to be guarded.
        behaviour: what acts elsewhere; None: a clone of the log, noise included.
        log: the log's neighbours.
        threshold: strangeness up to which the new policy acts; 0 leaves all to the behaviour.
        reads: everything, in the form in which the data came.
    """

    new: AnyPolicy
    behaviour: AnyPolicy | None
    log: LocalLog
    threshold: float
    reads: None = field(default=None)
    path: Path | None = None
    digest: str | None = None


@dataclass(frozen=True, eq=False)
class GuardedDiscrete(_Guard):
    """Supported actions keep the new policy's probabilities; the rest of the mass is the behaviour's."""

    def probabilities(self, observations: Any) -> NDArray[np.float64]:  # noqa: ANN401
        codes = self.log.codes(observations)
        wanted = _table(self.new, observations, self.log.actions.shape[1])
        weights, _ = self.table(codes, wanted, observations)
        return weights

    def table(
        self,
        codes: FloatArray,
        wanted: FloatArray,
        observations: Any,  # noqa: ANN401
        unit: Ints | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Probabilities at these states, and how much of them is the new policy's own choice."""
        everything = np.broadcast_to(np.eye(wanted.shape[1]), (len(codes), *[wanted.shape[1]] * 2))
        kept = wanted * (self.log.strangeness(codes, everything, unit) <= self.threshold)
        followed = kept.sum(axis=1)
        usual = (
            self.log.behaviour(codes, unit)
            if self.behaviour is None
            else _table(self.behaviour, observations, wanted.shape[1])
        )
        return kept + (1.0 - followed)[:, None] * usual, followed


@dataclass(frozen=True, eq=False)
class GuardedContinuous(_Guard):
    """An action of the new policy where it is supported, else one drawn from the behaviour."""

    def sample(self, observations: Any, generator: np.random.Generator) -> Array:  # noqa: ANN401
        return self.sample_many(observations, generator, 1)[:, 0]

    def sample_many(self, observations: Any, generator: np.random.Generator, count: int) -> Array:  # noqa: ANN401
        """Many actions a state from one look at the log, shape (q, count, *shape of an action)."""
        codes = self.log.codes(observations)
        several = count if isinstance(self.new, StochasticPolicy) else 1
        wanted = [_drawn(self.new, observations, generator).reshape(len(codes), -1) for _ in range(several)]
        actions, _ = self.draws(codes, np.stack(wanted, axis=1), observations, generator, count)
        return actions.reshape(len(codes), count, *self.log.shape).astype(np.float32)

    def draws(
        self,
        codes: FloatArray,
        wanted: FloatArray,
        observations: Any,  # noqa: ANN401
        generator: np.random.Generator,
        count: int,
        unit: Ints | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """`count` actions at each state (q, count, m), and the share that is the new policy's own choice."""
        inside = self.log.strangeness(codes, wanted, unit) <= self.threshold
        turn = np.arange(count) % wanted.shape[1]
        actions, kept = np.array(wanted[:, turn], dtype=np.float64), inside[:, turn]
        rows = np.flatnonzero(~kept.all(axis=1))
        if len(rows):
            if self.behaviour is None:
                usual = self.log.draws(codes[rows], generator, count, None if unit is None else unit[rows])
            else:
                seen = _rows(observations, rows)
                many = [_drawn(self.behaviour, seen, generator).reshape(len(rows), -1) for _ in range(count)]
                usual = np.stack(many, axis=1)
            actions[rows] = np.where(kept[rows, :, None], actions[rows], usual)
        return actions, kept.mean(axis=1)

    def log_prob(self, observations: Any, actions: Array) -> NDArray[np.float64]:  # noqa: ANN401
        raise BadInput(
            "A guarded policy of continuous actions has no density (the new policy's action is one point). "
            "Use a method without importance weights, e.g. bcrl or fqe."
        )


Guarded = GuardedDiscrete | GuardedContinuous


def guarded(new: AnyPolicy, behaviour: AnyPolicy | None, log: LocalLog, threshold: float) -> Guarded:
    """The guarded policy of the log's kind of actions."""
    kind = GuardedDiscrete if log.discrete else GuardedContinuous
    return kind(new, behaviour, log, threshold)


def known_actions(
    policy: Guarded,
    target: TargetActions,
    codes: FloatArray,
    unit: Ints,
    observations: Any,  # noqa: ANN401
    seed: int,
) -> tuple[TargetActions, FloatArray]:
    """A guarded policy's actions where the new policy's are known, each state's own unit left out of the log;
    and how much of them is the new policy's own choice.
    """
    if isinstance(policy, GuardedDiscrete):
        wanted = np.einsum("nk,nka->na", target.weights, target.actions).astype(np.float64)
        weights, followed = policy.table(codes, wanted, observations, unit)
        eye = np.eye(weights.shape[1], dtype=np.float32)
        return TargetActions(np.broadcast_to(eye, (len(codes), *eye.shape)), weights, True), followed
    generator = np.random.default_rng([seed, salts.GUARDED, len(codes)])
    actions, followed = policy.draws(
        codes, target.actions.astype(np.float64), observations, generator, DRAWS, unit
    )
    return TargetActions(actions.astype(np.float32), np.full(actions.shape[:2], 1.0 / DRAWS)), followed


def save_guarded(policy: Guarded, path: Path) -> Path:
    """Write it, whole or not at all; `load_policy` reads it back."""
    parts = {"new": policy.new} | ({} if policy.behaviour is None else {"behaviour": policy.behaviour})
    arrays: dict[str, Array] = {
        f"log/{name}": np.ascontiguousarray(getattr(policy.log, name)) for name in _ARRAYS
    }
    about: dict[str, Any] = {
        "threshold": policy.threshold,
        "keys": list(policy.log.keys),
        "shape": list(policy.log.shape),
        "far": policy.log.far,
        "unlike": policy.log.unlike,
        "discrete": policy.log.discrete,
        "fitted": policy.log.fitted,
    }
    for name, one in parts.items():
        file = getattr(one, "path", None)
        if (
            file is None
            or Path(file).suffix.lower().lstrip(".") not in _SAFE
            or getattr(one, "stats_path", None)
        ):
            raise BadInput(
                f"The {name} policy did not come from a .onnx or .safetensors file, so it cannot be kept in "
                "one that is safe to load. Export it to ONNX, load that with bcrl.load_policy and guard it."
            )
        content = Path(file).read_bytes()
        if hashlib.sha256(content).hexdigest() != getattr(one, "digest", None):
            raise BadInput(f"{file} has changed since it was loaded. Load the policy again and guard it.")
        arrays[f"file/{name}"] = np.frombuffer(content, dtype=np.uint8)
        options = dict(getattr(one, "loaded_with", {}))
        about[name] = {"kind": Path(file).suffix.lower().lstrip("."), "options": options}
    with atomic_write(path) as out:
        out.write(save_arrays(arrays, {MARK: json.dumps(about)}))
    return path


def holds_guarded(content: bytes) -> bool:
    """Whether a safetensors file is a guarded policy."""
    size = int.from_bytes(content[:8], "little")
    return MARK.encode() in content[8 : 8 + min(size, 100_000)]


def load_guarded(file: PolicyFile, options: Options) -> Guarded:
    """The guarded policy in a file."""
    from bcrl.policies.load import policy_of_file

    options.only("a guarded policy")
    try:
        arrays = load_arrays(file.content)
        header = parse_json(
            file.content[8 : 8 + int.from_bytes(file.content[:8], "little")].decode(), str(file.path), "JSON"
        )
        about = parse_json(header["__metadata__"][MARK], str(file.path), "JSON")
        log = LocalLog(
            **{name: arrays[f"log/{name}"] for name in _ARRAYS},
            keys=tuple(about["keys"]),
            shape=tuple(int(n) for n in about["shape"]),
            far=float(about["far"]),
            unlike=float(about["unlike"]),
            discrete=bool(about["discrete"]),
            fitted=int(about.get("fitted", 30)),  # files of before had no choice
        )
        inner: dict[str, AnyPolicy] = {}
        for name in ("new", "behaviour"):
            if name in about:
                content = arrays[f"file/{name}"].tobytes()
                if about[name]["kind"] not in _SAFE or holds_guarded(content):
                    raise BadInput(f"{file.path} holds a {name} policy of a kind that is not safe to load.")
                given = about[name]["options"]
                kept: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
                told = Options(**kept, num_actions=options.num_actions)
                digest = hashlib.sha256(content).hexdigest()
                inner[name] = policy_of_file(
                    PolicyFile(file.path, about[name]["kind"], content, digest), told
                )
        kind = GuardedDiscrete if log.discrete else GuardedContinuous
        return kind(
            inner["new"], inner.get("behaviour"), log, float(about["threshold"]), None, file.path, file.digest
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(
            f"{file.path} is no whole guarded policy ({type(error).__name__}: {str(error)[:100]}). Make it "
            "again with bcrl guard."
        ) from error


def _seen(policy: AnyPolicy, observations: Any) -> Any:  # noqa: ANN401
    if policy.reads is None or not isinstance(observations, Mapping):
        return observations
    reads = policy.reads
    return observations[reads] if isinstance(reads, str) else {key: observations[key] for key in reads}


def _table(policy: AnyPolicy, observations: Any, count: int) -> FloatArray:  # noqa: ANN401
    seen = _seen(policy, observations)
    if isinstance(policy, DiscretePolicy):
        return np.asarray(policy.probabilities(seen), dtype=np.float64)
    assert isinstance(policy, Policy)
    return np.eye(count)[np.asarray(policy.act(seen), dtype=np.int64).reshape(-1)]


def _drawn(policy: AnyPolicy, observations: Any, generator: np.random.Generator) -> FloatArray:  # noqa: ANN401
    seen = _seen(policy, observations)
    if isinstance(policy, StochasticPolicy):
        return np.asarray(policy.sample(seen, generator), dtype=np.float64)
    assert isinstance(policy, Policy)
    return np.asarray(policy.act(seen), dtype=np.float64)


def _rows(observations: Any, rows: Ints) -> Any:  # noqa: ANN401
    if isinstance(observations, Mapping):
        return {key: value[rows] for key, value in observations.items()}
    return observations[rows]
