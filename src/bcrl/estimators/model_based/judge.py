"""How good a learned model is on episodes that it never saw: its rewards, and its predictions when nobody corrects it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bcrl.comparison import picture
from bcrl.data.dataset import Array, Dataset
from bcrl.data.select import some_episodes
from bcrl.estimate import Check, FloatArray
from bcrl.estimators.model_based.dreamer import WorldModel, head
from bcrl.estimators.model_based.imagine import Simulator
from bcrl.estimators.model_based.markov import MarkovModel
from bcrl.estimators.model_based.sequences import draw_windows, windows
from bcrl.estimators.model_based.vectors import encode_all
from bcrl.inference.support import action_support, states_of
from bcrl.policies.policy import TargetActions

OPEN_LOOP = 15
_CONTEXTS, _SAMPLES = 64, 4
_AUDITED, _AUDITED_FRAMES, _CHUNK = 12_000, 2_000, 256


@dataclass(frozen=True, eq=False)
class Judgement:
    """Held-out quality of a model.

    Attributes:
        reward_r2: share of the rewards' variance that is predicted.
        open_loop: mean squared error of observations by step, nobody correcting the model; empty where episodes are too short.
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
                f"The model explains {100 * fit:.0f} % of the variance of rewards it has not seen.",
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
                    f"Left alone for {len(self.open_loop)} steps the model's error is {ratio:.2f} times that of "
                    "repeating the last observation.",
                )
            )
        return tuple(checks)

    def stats(self) -> dict[str, float]:
        numbers = {"reward_r2": self.reward_r2}
        if len(self.open_loop):
            numbers["open_loop_error"] = float(self.open_loop.mean())
            numbers["repeating_error"] = float(self.repeating.mean())
        return numbers


def judge(
    model: MarkovModel | WorldModel,
    dataset: Dataset,
    held_out: NDArray[np.int64],
    length: int,
    generator: torch.Generator,
) -> Judgement:
    """Judge a model on held-out transitions.

    Args:
        model: trained.
        dataset: all data.
        held_out: transitions that it was not trained on.
        length: observations per window of the recurrent model.
        generator: draws windows and latents.
    """
    with torch.no_grad():
        if isinstance(model, MarkovModel):
            fit = _markov_fit(model, dataset, held_out[:20_000])
            keys = model.keys
        else:
            episodes = np.unique(dataset.episode_of[held_out])
            fit = _dreamer_fit(model, dataset, episodes, length, generator)
            keys = tuple(model.frame_shapes) or model.keys
        real, predicted, first = _open_loop(model, dataset, held_out, keys, generator)
    if not real:
        return Judgement(fit, np.zeros(0), np.zeros(0))
    error, repeating = np.zeros(OPEN_LOOP), np.zeros(OPEN_LOOP)
    for key in keys:
        scale = 255.0 if key in dataset.pixel_keys else _spread(real[key])
        error += _squares((predicted[key].mean(axis=1) - real[key]) / scale)
        repeating += _squares((first[key][:, None].astype(np.float64) - real[key]) / scale)
    return Judgement(fit, error, repeating, _pictures(dataset, real, predicted))


def _squares(error: FloatArray) -> FloatArray:
    """Mean square by step of (contexts, steps, ...)."""
    return np.asarray(np.square(error).mean(axis=(0, *range(2, error.ndim))), dtype=np.float64)


def _spread(values: FloatArray) -> FloatArray:
    deviation = values.std(axis=(0, 1))
    return np.asarray(np.where(deviation > 1e-8, deviation, 1.0))


def r_squared(truth: FloatArray, predicted: FloatArray) -> float:
    """1 - mean squared error / variance; 1 for a constant that is met exactly."""
    error, spread = float(np.mean((truth - predicted) ** 2)), float(np.var(truth))
    if spread < 1e-12:
        return 1.0 if error < 1e-6 * (1.0 + float(np.mean(truth**2))) else 0.0
    return 1.0 - error / spread


def _markov_fit(model: MarkovModel, dataset: Dataset, index: NDArray[np.int64]) -> float:
    rows = dataset.rows[index]
    z = encode_all(model.encoder, {key: dataset.observations[key][rows] for key in model.keys})
    actions = torch.from_numpy(dataset.action_matrix(dataset.actions[index]))
    _, reward, _ = model.advance(z, actions, torch.Generator().manual_seed(0))
    return r_squared(dataset.rewards[index], reward.double().numpy())


def _dreamer_fit(
    model: WorldModel,
    dataset: Dataset,
    episodes: NDArray[np.int64],
    length: int,
    generator: torch.Generator,
    count: int = 64,
) -> float:
    none = np.zeros((len(dataset) + dataset.num_episodes, 0, dataset.action_dim), dtype=np.float32)
    truth, predicted = [], []
    for _ in range(0, count, 16):
        first, drawn = draw_windows(dataset, episodes, 16, length, generator)
        batch = windows(dataset, first, drawn, length, none, model.keys)
        rewards, seen = model.predict_rewards(batch, generator)
        truth.append(batch.rewards[seen].double().numpy())
        predicted.append(rewards[seen].double().numpy())
    return r_squared(np.concatenate(truth), np.concatenate(predicted))


def _open_loop(
    model: Simulator,
    dataset: Dataset,
    held_out: NDArray[np.int64],
    keys: tuple[str, ...],
    generator: torch.Generator,
) -> tuple[dict[str, FloatArray], dict[str, FloatArray], Mapping[str, Array]]:
    """Real observations (contexts, steps, ...), predictions (contexts, samples, steps, ...), and the last ones seen."""
    room = dataset.offsets[dataset.episode_of[held_out] + 1] - held_out >= OPEN_LOOP
    begin = held_out[room]
    if not len(begin) or not dataset.ordered:
        return {}, {}, {}
    begin = begin[np.linspace(0, len(begin) - 1, min(_CONTEXTS, len(begin))).astype(np.int64)]
    rows = dataset.rows[begin]
    seen = dataset.observe(rows)
    state = model.begin({key: np.repeat(seen[key], _SAMPLES, axis=0) for key in keys}, generator)
    frames: dict[str, list[Array]] = {key: [] for key in keys}
    for step in range(OPEN_LOOP):
        actions = dataset.action_matrix(dataset.actions[begin + step])
        state, _, _ = model.advance(state, torch.from_numpy(np.repeat(actions, _SAMPLES, axis=0)), generator)
        for key, value in model.show(state, keys, dataset).items():
            frames[key].append(value)
    shape = (len(begin), _SAMPLES)
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


def distilled_error(
    model: WorldModel,
    number: int,
    dataset: Dataset,
    rows: NDArray[np.int64],
    means: NDArray[np.float32],
    generator: torch.Generator,
) -> float:
    """Root mean squared error of a policy's distilled head at these rows, in units of the policy's own deviation."""
    with torch.no_grad():
        guess = head(
            model.policy_heads[number], model.begin(dataset.observe(rows), generator).features
        ).numpy()
    truth = means[rows, number]
    return float(np.sqrt(np.mean((guess - truth) ** 2) / max(float(truth.var(axis=0).mean()), 1e-12)))


def logged_support(
    model: MarkovModel | WorldModel,
    dataset: Dataset,
    actions: TargetActions,
    generator: torch.Generator,
    *,
    seed: int,
) -> float:
    """Share of logged states at which the log holds actions like the policy's; elsewhere the model guesses.

    A state is what the log says of it in numbers, or the model's own code where there are frames only.
    """
    frames_only = len(dataset.pixel_keys) == len(dataset.observations)
    part, rows = some_episodes(dataset, _AUDITED_FRAMES if frames_only else _AUDITED, seed)
    states = _codes(model, part, generator) if frames_only else states_of(part, None)
    return action_support(states, part, actions.take(rows), np.ones(len(part)), seed=seed)


def _codes(model: MarkovModel | WorldModel, part: Dataset, generator: torch.Generator) -> NDArray[np.float32]:
    """The model's own code of every observation row, a few hundred frames at a time: all at once would not fit."""
    rows = np.arange(len(part) + part.num_episodes)
    codes = []
    with torch.no_grad():
        for first in range(0, len(rows), _CHUNK):
            begun = model.begin(part.observe(rows[first : first + _CHUNK]), generator)
            codes.append(begun if isinstance(begun, torch.Tensor) else begun.features)
    return np.asarray(torch.cat(codes).numpy())
