"""Observation statistics that a policy was trained with (Stable-Baselines3's VecNormalize), applied before it
looks:

    x -> clip((x - mean) / sqrt(var + epsilon), -clip, clip)  as float32

A VecNormalize file is a pickle, so it needs trust.
"""

import hashlib
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.opening import plain_file
from bcrl.policies.files import require_trust


@dataclass(frozen=True, eq=False)
class Normaliser:
    """Mean and variance by observation key; the key None is for bare arrays.

    Keys without statistics pass unchanged.
    """

    moments: Mapping[str | None, tuple[Array, Array]]
    epsilon: float
    clip: float
    path: Path | None = None
    digest: str = ""

    def __call__(self, observations: Any) -> Any:  # noqa: ANN401 - one array or a dict, as the data came
        if isinstance(observations, Mapping):
            missing = [key for key in self.moments if key not in observations]
            if missing:
                raise BadInput(
                    f"The statistics are for {_named(missing[0])}; the policy is given the keys "
                    f"{sorted(observations)}."
                )
            return {key: self._apply(key, value) for key, value in observations.items()}
        if set(self.moments) - {None}:
            raise BadInput(
                f"The statistics are for the keys {sorted(map(str, self.moments))}; the policy is given one "
                "array."
            )
        return self._apply(None, observations)

    def _apply(self, key: str | None, value: Array) -> Array:
        if key not in self.moments:
            return value
        mean, variance = self.moments[key]
        if mean.shape != value.shape[1:]:
            raise BadInput(
                f"The statistics of {_named(key)} have shape {mean.shape}; observations have shape "
                f"{value.shape[1:]}."
            )
        scaled = (value - mean) / np.sqrt(variance + self.epsilon)
        return np.clip(scaled, -self.clip, self.clip).astype(np.float32)


def load_normaliser(stats: Any, *, trust: bool) -> Normaliser:  # noqa: ANN401 - a path or a VecNormalize
    """Statistics from a VecNormalize file (needs trust) or from a live VecNormalize."""
    if not isinstance(stats, str | Path):
        return _from_vec_normalize(stats, None, b"")
    path = Path(stats)
    plain_file(path)
    require_trust(path, "a VecNormalize pickle", trust)
    content = path.read_bytes()
    try:
        found = pickle.load(io.BytesIO(content))
    except (
        pickle.UnpicklingError,
        EOFError,
        AttributeError,
        ImportError,
        IndexError,
        ValueError,
        KeyError,
    ) as error:
        raise BadInput(
            f"{path} holds no VecNormalize statistics: {error}. Expected what VecNormalize.save "
            "wrote, and Stable-Baselines3 to read it: pip install 'bcrl[sb3]'."
        ) from error
    return _from_vec_normalize(found, path, content)


def _from_vec_normalize(found: Any, path: Path | None, content: bytes) -> Normaliser:  # noqa: ANN401
    if not any(parent.__name__ == "VecNormalize" for parent in type(found).__mro__):
        raise BadInput(
            f"stats is a {type(found).__name__}; expected a VecNormalize or the file that VecNormalize.save "
            "wrote."
        )
    running: dict[str | None, Any] = {}
    if found.norm_obs:
        running = dict(found.obs_rms) if isinstance(found.obs_rms, Mapping) else {None: found.obs_rms}
    moments = {key: (np.array(value.mean), np.array(value.var)) for key, value in running.items()}
    hashed = (
        content or repr([(key, *map(np.ndarray.tobytes, pair)) for key, pair in moments.items()]).encode()
    )
    digest = hashlib.sha256(hashed).hexdigest()
    return Normaliser(moments, float(found.epsilon), float(found.clip_obs), path, digest)


def _named(key: str | None) -> str:
    return "one array" if key is None else f"the key {key!r}"
