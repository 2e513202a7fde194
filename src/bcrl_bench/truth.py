"""Ground truth by rollouts: the discounted return of a policy at its start states and at every step it
visits.

    G_t = sum_{k < L} g^k r_{t+k},    V = E[G_0],    standard error = sd(G_0) / sqrt(rollouts)

Cutting an episode at its 500th step would leave out g^(500-t) V, at t = 499 nearly everything, so the clock
is lifted and every step is followed for L more, with L the first number for which g^L <= `cut` (the return
left out is at most cut * r_max / (1 - g)). dm_control is deterministic: for a deterministic policy each G_t
is V(s_t) itself. Rollouts are added until the standard error is small enough, and the answer is cached under
a hash of all it depends on.
"""

import hashlib
import importlib.metadata
import json
import math
import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.storage.folder import write_json
from bcrl.errors import BadInput
from bcrl.writing import atomic_write
from bcrl_bench.collect import fingerprint
from bcrl_bench.processes import one_thread
from bcrl_bench.rollouts import Behaviour, check_fits, run_episode
from bcrl_bench.tasks import ControlTask

FORMAT = 1  # part of the cache key: raise it when the numbers change their meaning


@dataclass(frozen=True)
class TruthQuestion:
    """Whose value, where; `behaviour.noise` is 0 for the deterministic target policy.

    Attributes:
        horizon: steps whose rewards count; None = for ever (cut where the rest is negligible).
        visited: steps of each rollout at which the return is kept.
        keep_every: keep the state at every so many of those steps.
        cut: share of r_max / (1 - discount) that may be left out.
        precision: wanted standard error as a share of the value.
        start_seeds: roll out from exactly these seeded start states instead of fresh ones.
    """

    task: str
    behaviour: Behaviour
    discount: float
    horizon: int | None = None
    visited: int = 500
    keep_every: int = 10
    cut: float = 2e-4
    precision: float = 0.02
    minimum: int = 200
    maximum: int = 2_000
    seed: int = 20_000
    pixels: int | None = None
    start_seeds: tuple[tuple[int, ...], ...] | None = None

    def tail(self) -> int:
        """Steps that every visited step is followed for."""
        if self.horizon is not None:
            return self.horizon
        if not 0 <= self.discount < 1:
            raise BadInput(f"discount={self.discount}; expected 0 <= discount < 1, or pass a horizon.")
        return 1 if self.discount == 0 else math.ceil(math.log(self.cut) / math.log(self.discount))

    def key(self) -> str:
        """Hash of everything the answer depends on."""
        names = (
            "task",
            "discount",
            "horizon",
            "visited",
            "keep_every",
            "cut",
            "precision",
            "minimum",
            "maximum",
            "seed",
        )
        fields: dict[str, Any] = {name: getattr(self, name) for name in names}
        fields |= {
            "policy": fingerprint(self.behaviour.policy),
            "noise": self.behaviour.noise,
            "format": FORMAT,
        }
        fields |= {"sampled": self.behaviour.sampled, "start_seeds": self.start_seeds, "pixels": self.pixels}
        fields |= {name: importlib.metadata.version(name) for name in ("mujoco", "dm_control", "numpy")}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    def episode_seed(self, rollout: int) -> tuple[int, ...]:
        """Seed of one rollout."""
        return (self.seed, rollout) if self.start_seeds is None else self.start_seeds[rollout]


@dataclass(frozen=True)
class Truth:
    """The answer.

    Attributes:
        value: mean discounted return from the start states.
        standard_error: of `value`, over rollouts.
        left_out: largest possible share of the return beyond the cut, in the reward's unit, if rewards lie in
            [0, 2].
        undiscounted: mean and standard deviation of the plain return over the visited steps.
        per_step: mean discounted return at each visited step, (visited,); nan where no rollout got that far.
        per_step_error: its standard error.
        returns_to_go: every rollout's discounted return at each visited step, (rollouts, visited).
        states: states at every `keep_every`-th visited step, (rollouts, kept, S).
        actions: what the policy did there, (rollouts, kept, A).
    """

    value: float
    standard_error: float
    rollouts: int
    discount: float
    left_out: float
    undiscounted: tuple[float, float]
    key: str
    keep_every: int
    per_step: NDArray[np.float64] = field(repr=False)
    per_step_error: NDArray[np.float64] = field(repr=False)
    returns_to_go: NDArray[np.float64] = field(repr=False)
    states: NDArray[np.float32] = field(repr=False)
    actions: NDArray[np.float32] = field(repr=False)

    def occupancy(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
        """States, actions and weights (summing to 1) of the discounted occupancy (1 - g) sum_t g^t, for
        kappa(p0).
        """
        steps = np.arange(self.states.shape[1]) * self.keep_every
        weights = np.where(np.isnan(self.states[..., 0]), 0.0, float(self.discount) ** steps)
        rows = weights.reshape(-1) > 0
        flat = weights.reshape(-1)[rows]
        states, actions = (
            self.states.reshape(-1, self.states.shape[2]),
            self.actions.reshape(-1, self.actions.shape[2]),
        )
        return states[rows], actions[rows], flat / flat.sum()


ARRAYS = ("per_step", "per_step_error", "returns_to_go", "states", "actions")


def discounted_returns(
    rewards: NDArray[np.float64], discount: float, visited: int, tail: int
) -> NDArray[np.float64]:
    """G_t over exactly `tail` steps (fewer only where the episode ended), for t < visited; nan after the
    end.
    """
    padded = np.concatenate([rewards, np.zeros(tail + 1)])
    result = np.full(visited, np.nan)
    ahead = 0.0
    for step in range(len(rewards) - 1, -1, -1):
        # a window of fixed length slides: drop the reward that leaves it
        ahead = rewards[step] + discount * ahead - discount**tail * padded[step + tail]
        if step < visited:
            result[step] = ahead
    return result


class Roller:
    """Rolls a question out in one process."""

    current: "Roller"

    def __init__(self, question: TruthQuestion) -> None:
        self.question = question
        self.task = ControlTask(
            question.task, pixels=question.pixels, limit=question.visited + question.tail()
        )
        check_fits(self.task, question.behaviour)

    def run(self, rollout: int) -> dict[str, Any]:
        """Returns to go, plain return, and the kept states and actions of one rollout."""
        q = self.question
        episode = run_episode(self.task, q.behaviour, q.episode_seed(rollout))
        kept = np.arange(0, q.visited, q.keep_every)
        states = np.full((len(kept), episode.observations["state"].shape[1]), np.nan, np.float32)
        actions = np.full((len(kept), episode.actions.shape[1]), np.nan, np.float32)
        there = kept < len(episode.rewards)
        states[there], actions[there] = (
            episode.observations["state"][kept[there]],
            episode.actions[kept[there]],
        )
        returns = discounted_returns(episode.rewards, q.discount, q.visited, q.tail())
        return {
            "returns": returns,
            "plain": episode.rewards[: q.visited].sum(),
            "states": states,
            "actions": actions,
        }


def _start_roller(question: TruthQuestion) -> None:
    Roller.current = Roller(question)


def _roll(rollout: int) -> dict[str, Any]:
    return Roller.current.run(rollout)


def rollouts(question: TruthQuestion, processes: int) -> Iterator[dict[str, Any]]:
    """Rollouts 0, 1, 2, ... in order, as many as are asked for."""
    if question.start_seeds is not None and not question.start_seeds:
        raise BadInput("start_seeds is empty; pass at least one seed, or None for fresh start states.")
    limit = question.maximum if question.start_seeds is None else len(question.start_seeds)
    if processes == 1:
        yield from map(Roller(question).run, range(limit))
        return
    context = multiprocessing.get_context("spawn")  # EGL and BLAS do not survive a fork
    with one_thread(), context.Pool(processes, _start_roller, (question,)) as pool:
        step = 20 * processes  # not imap over all: rollouts past the last one needed would be wasted
        for first in range(0, limit, step):
            yield from pool.imap(_roll, range(first, min(first + step, limit)))


def simulate(
    question: TruthQuestion, processes: int = 2, show: Callable[[dict[str, Any]], None] = lambda news: None
) -> Truth:
    """Roll out until the standard error is small enough or the maximum is reached."""
    done: list[dict[str, Any]] = []
    for result in rollouts(question, processes):
        done.append(result)
        starts = np.array([one["returns"][0] for one in done])
        if len(done) % 10 == 0:
            news = {"stage": "true value by rollouts", "step": len(done), "steps": question.minimum}
            show(news | {"value": float(starts.mean()), "standard_error": _standard_error(starts)})
        enough = question.start_seeds is None and len(done) >= question.minimum
        if enough and _standard_error(starts) <= question.precision * abs(float(starts.mean())):
            break
    return _summarise(question, done)


def _standard_error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else float("inf")


def _summarise(question: TruthQuestion, done: list[dict[str, Any]]) -> Truth:
    returns = np.stack([one["returns"] for one in done])
    plain = np.array([one["plain"] for one in done])
    alive = ~np.isnan(returns)
    counts = alive.sum(0)
    filled = np.where(alive, returns, 0.0)
    mean = np.divide(filled.sum(0), counts, out=np.full(counts.shape, np.nan), where=counts > 0)
    squares = (np.where(alive, returns - mean, 0.0) ** 2).sum(0)
    variance = np.divide(squares, counts - 1, out=np.full(counts.shape, np.nan), where=counts > 1)
    r_max = 2.0  # dm_control pays at most 1 a control step, two of which make an agent step
    left = (
        0.0
        if question.horizon is not None
        else question.discount ** question.tail() * r_max / (1 - question.discount)
    )
    return Truth(
        value=float(returns[:, 0].mean()),
        standard_error=_standard_error(returns[:, 0]),
        rollouts=len(done),
        discount=question.discount,
        left_out=float(left),
        undiscounted=(float(plain.mean()), float(plain.std(ddof=1)) if len(plain) > 1 else 0.0),
        key=question.key(),
        keep_every=question.keep_every,
        per_step=mean,
        per_step_error=np.sqrt(variance / np.maximum(counts, 1)),
        returns_to_go=returns,
        states=np.stack([one["states"] for one in done]),
        actions=np.stack([one["actions"] for one in done]),
    )


def save_truth(truth: Truth, folder: Path) -> None:
    """`<key>.npz` first, then `<key>.json`, whose presence says that both are whole."""
    arrays = {name: getattr(truth, name) for name in ARRAYS}
    with atomic_write(folder / f"{truth.key}.npz") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    plain = {name: value for name, value in asdict(truth).items() if name not in ARRAYS}
    write_json(folder / f"{truth.key}.json", plain)


def load_truth(folder: Path, key: str) -> Truth:
    """Read one cached answer."""
    plain = json.loads((folder / f"{key}.json").read_text())
    if plain["key"] != key:
        raise BadInput(
            f"{folder / key}.json holds another question's answer ({plain['key'][:16]}). Delete it and its "
            ".npz; "
            "both are made again."
        )
    plain["undiscounted"] = tuple(plain["undiscounted"])
    with np.load(folder / f"{key}.npz") as arrays:
        return Truth(**plain, **{name: arrays[name] for name in ARRAYS})


def true_value(
    question: TruthQuestion,
    *,
    cache: Path | None,
    processes: int = 2,
    show: Callable[[dict[str, Any]], None] = lambda news: None,
) -> Truth:
    """The answer from the cache, or simulated and put there."""
    if cache is not None and (cache / f"{question.key()}.json").exists():
        return load_truth(cache, question.key())
    truth = simulate(question, processes, show)
    if cache is not None:
        save_truth(truth, cache)
    return truth
