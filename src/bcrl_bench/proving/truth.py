"""What a policy is truly worth in a world: exact where the world says so, else by rollouts.

Rollouts of (world, policy) are stored once; every discount and horizon reads the same file. Of the first 200
a few steps each are kept with what was seen and done there: one of every stretch of time, drawn at random, so
that it can stand for its stretch under any discount.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.writing import atomic_write
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.world import Observations, Policy, Step, World, joined, play, rows_of

KEPT = 200  # rollouts whose steps are kept, for the marks
PRECISION = 0.01  # standard error wanted, as a share of the scale
DOUBLINGS = 6
LEFT_OUT = 0.005  # most of the discounted time that may lie beyond the longest rollout
PLACES, COPIES = 20, 100  # states at which V is known too, and rollouts from each


@dataclass(frozen=True, eq=False)
class Visits:
    """Steps of the kept rollouts, shape (n, ...) each; `stretch` numbers the stretch that a step stands for.

    `state` is empty where the simulator's state cannot be kept.
    """

    observations: Observations
    actions: Array
    time: NDArray[np.int64]
    rollout: NDArray[np.int64]
    stretch: NDArray[np.int64]
    state: Array

    def weights(self, longest: int, discount: float, horizon: int | None) -> NDArray[np.float64]:
        """Discounted time that each step stands for."""
        times = np.arange(longest)
        mass = np.power(float(discount), times) * (times < (longest if horizon is None else horizon))
        return np.asarray(np.add.reduceat(mass, edges(longest)[:-1])[self.stretch])


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Rewards (n, T), zero after an end, how many episodes had not ended, and what was visited."""

    rewards: NDArray[np.float32]
    unended: int
    visits: Visits


@dataclass(frozen=True)
class Truth:
    """A true value; the standard error of an exact one is 0, and it has no rollouts."""

    value: float
    standard_error: float
    rollouts: int


def edges(longest: int) -> NDArray[np.int64]:
    """Where stretches of time begin, and the end: every step at first, then ever longer."""
    later = np.geomspace(min(8, longest), longest, 25)
    return np.unique(np.concatenate([np.arange(min(8, longest)), later]).astype(np.int64))


def roll_out(family: Family, world: World, policy: Policy, num: int, rng: np.random.Generator) -> Rollouts:
    """`num` rollouts of the longest kind."""
    longest, borders = family.longest, edges(family.longest)
    picked = rng.integers(borders[:-1], borders[1:], size=(KEPT, len(borders) - 1))
    stretch_of = np.repeat(np.arange(len(borders) - 1), np.diff(borders))
    rewards = np.zeros((num, longest), dtype=np.float32)
    kept: list[tuple[Observations, Array, int, NDArray[np.int64], Array]] = []
    unended = np.ones(num, dtype=bool)
    for first in range(0, num, family.batch):

        def visit(step: Step, first: int = first) -> None:
            number = step.alive + first
            rewards[number, step.time] = step.rewards
            unended[number[step.terminated]] = False
            at = np.flatnonzero(number < KEPT)
            at = at[picked[number[at], stretch_of[step.time]] == step.time]
            if len(at):
                state = np.zeros((len(at), 0)) if step.state.dtype == object else step.state[at]
                seen = rows_of(step.observations, at)
                kept.append((seen, np.asarray(step.actions)[at], step.time, number[at], state))

        count = min(family.batch, num - first)
        play(world, policy, world.start(count, rng), longest, rng, visit=visit)
    return Rollouts(rewards, int(unended.sum()), _visits(kept, stretch_of))


def _visits(
    kept: list[tuple[Observations, Array, int, NDArray[np.int64], Array]], stretch_of: NDArray[np.int64]
) -> Visits:
    time = np.repeat([part[2] for part in kept], [len(part[3]) for part in kept]).astype(np.int64)
    return Visits(
        joined([part[0] for part in kept]),
        np.concatenate([part[1] for part in kept]),
        time,
        np.concatenate([part[3] for part in kept]),
        stretch_of[time],
        np.concatenate([part[4] for part in kept]),
    )


def stored_rollouts(
    path: Path, family: Family, world: World, policy: Policy, num: int, seed: list[int]
) -> Rollouts:
    """The rollouts of a file, made first where it is not there."""
    if not path.is_file():
        made = roll_out(family, world, policy, num, np.random.default_rng(seed))
        seen = made.visits.observations
        columns = {k: v for k, v in vars(made.visits).items() if k != "observations"}
        keyed = seen if isinstance(seen, dict) else {"": seen}
        arrays: dict[str, Any] = {f"seen/{key}": value for key, value in keyed.items()} | columns
        with atomic_write(path) as file:
            np.savez(file, rewards=made.rewards, unended=np.array(made.unended), **arrays)
    with np.load(path) as stored:
        views = {
            name.removeprefix("seen/"): stored[name] for name in stored.files if name.startswith("seen/")
        }
        names = ("actions", "time", "rollout", "stretch", "state")
        visits = Visits(views.get("", views), **{name: stored[name] for name in names})
        return Rollouts(stored["rewards"], int(stored["unended"]), visits)


def returns(rewards: NDArray[np.float32], discount: float, horizon: int | None) -> NDArray[np.float64]:
    """Discounted return of each rollout."""
    kept = rewards if horizon is None else rewards[:, :horizon]
    return np.asarray(kept.astype(np.float64) @ np.power(float(discount), np.arange(kept.shape[1])))


def check_length(family: Family, rollouts: Rollouts, discount: float, horizon: int | None) -> None:
    """Refuse a question whose answer lies beyond the longest rollout."""
    longest = rollouts.rewards.shape[1]
    unseen = (rollouts.unended / len(rollouts.rewards)) * discount**longest
    if (horizon is None and unseen > LEFT_OUT) or (horizon is not None and horizon > longest):
        raise BadInput(
            f"Family {family.name}: rollouts of {longest} steps leave out {unseen:.1%} of discount "
            f"{discount} with horizon {horizon}; at most {LEFT_OUT:.1%} may be left out. Raise `longest`."
        )


def value_by_rollouts(family: Family, parts: list[Rollouts], discount: float, horizon: int | None) -> Truth:
    """Mean and standard error over all rollouts."""
    for part in parts:
        check_length(family, part, discount, horizon)
    found = np.concatenate([returns(part.rewards, discount, horizon) for part in parts])
    return Truth(float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found))), len(found))


def values_at_places(
    family: Family, world: World, policy: Policy, rollouts: Rollouts, discount: float, horizon: int | None
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """True V at some visited steps: their rows in `visits`, V, and its standard error.

    Exact where the world says so; else from fresh rollouts of the kept state. A simulator whose state cannot
    be kept gives its own return from there: one draw of V (V itself where world and policy are
    deterministic), with a standard error that is not known (nan).
    """
    visits, longest = rollouts.visits, rollouts.rewards.shape[1]
    rng = np.random.default_rng(7)
    weights = visits.weights(longest, discount, horizon)
    if not visits.state.shape[-1] and visits.state.ndim == 2:
        reach = longest - visits.time
        short = reach < horizon if horizon is not None else discount**reach > LEFT_OUT
        weights = weights * ~np.asarray(short)
    count = min(PLACES, int((weights > 0).sum()))
    chosen = np.sort(rng.choice(len(weights), size=count, replace=False, p=weights / weights.sum()))
    if hasattr(world, "exact_v"):
        seen = rows_of(visits.observations, chosen)
        exact = np.asarray(world.exact_v(policy, seen, discount, horizon), dtype=np.float64)
        return chosen, exact, np.zeros(count)
    if not visits.state.shape[-1] and visits.state.ndim == 2:
        later = [rollouts.rewards[visits.rollout[row], visits.time[row] :][None] for row in chosen]
        ahead = np.array([returns(part, discount, horizon)[0] for part in later])
        return chosen, ahead, np.full(count, np.nan)
    rewards = np.zeros((count * COPIES, longest if horizon is None else horizon), dtype=np.float32)

    def visit(step: Step) -> None:
        rewards[step.alive, step.time] = step.rewards

    copies = np.repeat(visits.state[chosen], COPIES, axis=0)
    play(world, policy, copies, rewards.shape[1], rng, visit=visit)
    found = returns(rewards, discount, horizon).reshape(count, COPIES)
    return chosen, found.mean(axis=1), found.std(axis=1, ddof=1) / np.sqrt(COPIES)
