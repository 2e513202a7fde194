"""How good a learned model is on episodes that it never saw: rewards, and 15 steps without correction."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bcrl.comparison import picture
from bcrl.data.dataset import Array, Dataset
from bcrl.estimate import Check, FloatArray
from bcrl.estimators.model_based.imagine import World

OPEN_LOOP = 15  # steps
_CONTEXTS, _SAMPLES = 64, 4


@dataclass(frozen=True, eq=False)
class HeldOutQuality:
    """How well a model predicts episodes that it never saw.

    Attributes:
        reward_r2: share of the rewards' variance that is predicted.
        open_loop: mean squared error of observations by step, the model not corrected; empty where episodes
            are too short.
        repeating: the same for repeating the last observation.
        pictures: titled rows of frames for the report.
    """

    reward_r2: float
    open_loop: FloatArray
    repeating: FloatArray
    pictures: list[dict[str, Any]] = field(default_factory=list)

    def checks(self) -> tuple[Check, ...]:
        fit = self.reward_r2
        checks = [
            Check(
                "held-out reward fit",
                fit,
                0.8,
                "trust" if fit > 0.8 else "caution" if fit > 0.4 else "distrust",
                f"The model explains {100 * fit:.0f}% of the variance of rewards that it has not seen.",
            )
        ]
        if len(self.open_loop):
            ratio = float(self.open_loop.mean() / max(self.repeating.mean(), 1e-12))
            checks.append(
                Check(
                    "open-loop prediction",
                    ratio,
                    1.0,
                    "trust" if ratio < 0.8 else "caution" if ratio < 1.0 else "distrust",
                    f"After {len(self.open_loop)} steps without correction the model's error is "
                    f"{ratio:.2f} times that of repeating the last observation.",
                )
            )
        return tuple(checks)

    def curves(self) -> dict[str, list[float]]:
        return {"open_loop_error": self.open_loop.tolist(), "repeating_error": self.repeating.tolist()}

    def stats(self) -> dict[str, float]:
        numbers = {"reward_r2": self.reward_r2}
        if len(self.open_loop):
            numbers["open_loop_error"] = float(self.open_loop.mean())
            numbers["repeating_error"] = float(self.repeating.mean())
        return numbers


def held_out_quality(
    model: World, dataset: Dataset, held_out: NDArray[np.int64], generator: torch.Generator
) -> HeldOutQuality:
    """How well a model predicts transitions that it never saw.

    Args:
        model: trained.
        dataset: all data.
        held_out: transitions that it was not trained on.
        generator: draws windows and latents.
    """
    with torch.no_grad():
        reward_r2 = r_squared(*model.held_out_rewards(dataset, held_out, generator))
        real, predicted, last_seen = _open_loop(model, dataset, held_out, generator)
    if not real:
        return HeldOutQuality(reward_r2, np.zeros(0), np.zeros(0))
    error, repeating = np.zeros(OPEN_LOOP), np.zeros(OPEN_LOOP)
    for key in real:
        scale = 255.0 if key in dataset.pixel_keys else _deviation(real[key])
        error += _squares((predicted[key].mean(axis=1) - real[key]) / scale)
        repeating += _squares((last_seen[key][:, None].astype(np.float64) - real[key]) / scale)
    return HeldOutQuality(reward_r2, error, repeating, _pictures(dataset, real, predicted))


def _squares(error: FloatArray) -> FloatArray:
    """Mean square by step of (contexts, steps, ...)."""
    return np.asarray(np.square(error).mean(axis=(0, *range(2, error.ndim))), dtype=np.float64)


def _deviation(values: FloatArray) -> FloatArray:
    deviation = values.std(axis=(0, 1))
    return np.asarray(np.where(deviation > 1e-8, deviation, 1.0))


def r_squared(truth: FloatArray, predicted: FloatArray) -> float:
    """1 - mean squared error / variance; 1 for a constant that is met exactly."""
    error, spread = float(np.mean((truth - predicted) ** 2)), float(np.var(truth))
    if spread < 1e-12:
        return 1.0 if error < 1e-6 * (1.0 + float(np.mean(truth**2))) else 0.0
    return 1.0 - error / spread


def _open_loop(
    model: World, dataset: Dataset, held_out: NDArray[np.int64], generator: torch.Generator
) -> tuple[dict[str, FloatArray], dict[str, FloatArray], Mapping[str, Array]]:
    """Real observations (contexts, steps, ...), predictions (contexts, samples, steps, ...), last seen."""
    long_enough = dataset.offsets[dataset.episode_of[held_out] + 1] - held_out >= OPEN_LOOP
    first = held_out[long_enough]
    if not len(first) or not dataset.ordered:
        return {}, {}, {}
    first = first[np.linspace(0, len(first) - 1, min(_CONTEXTS, len(first))).astype(np.int64)]
    rows, keys = dataset.rows[first], model.judged_keys
    seen = dataset.observe(rows)
    state = model.first_state({key: np.repeat(seen[key], _SAMPLES, axis=0) for key in keys}, generator)
    frames: dict[str, list[Array]] = {key: [] for key in keys}
    for step in range(OPEN_LOOP):
        actions = dataset.action_matrix(dataset.actions[first + step])
        state, _, _ = model.advance(state, torch.from_numpy(np.repeat(actions, _SAMPLES, axis=0)), generator)
        for key, value in model.show(state, keys, dataset).items():
            frames[key].append(value)
    shape = (len(first), _SAMPLES)
    predicted = {
        key: np.stack([f.reshape(*shape, *f.shape[1:]) for f in parts], axis=2).astype(np.float64)
        for key, parts in frames.items()
    }
    after = rows[:, None] + 1 + np.arange(OPEN_LOOP)
    real = {key: np.asarray(dataset.observations[key][after], dtype=np.float64) for key in keys}
    return real, predicted, {key: np.asarray(dataset.observations[key][rows]) for key in keys}


def _pictures(
    dataset: Dataset, real: Mapping[str, FloatArray], predicted: Mapping[str, FloatArray]
) -> list[dict[str, Any]]:
    groups = []
    for key in real:
        if key not in dataset.pixel_keys:
            continue
        rows = [
            {"label": label, "frames": [picture(frame.astype(np.uint8)) for frame in frames[::2]]}
            for label, frames in (("real", real[key][0]), ("predicted", predicted[key][0, 0]))
        ]
        title = f"{OPEN_LOOP} steps without looking, every second one ({key}), on an episode not trained on"
        groups.append({"title": title, "rows": rows})
    return groups
