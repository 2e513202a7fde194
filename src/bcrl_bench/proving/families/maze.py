"""A maze of 9 x 9 rooms whose goal the log reaches seldom or never: 1 for the goal, 0.01 off for every step.

Walls by a random walk through all rooms (so every room can be reached), with a few more doors; the walker
slips to a random side in a tenth of the steps. Observations are the room's two coordinates.
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from bcrl_bench.proving.arrivals import Arrivals, arrivals
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.world import Policy

SIDE = 9
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
SLIP, STEP, DOORS = 0.1, -0.01, 8
Door = tuple[int, int]


class Maze(Arrivals):
    """The ladder knows the way, ever better; "other" knows where the goal lies and nothing of walls."""

    @cached_property
    def policies(self) -> Mapping[str, Policy]:
        towards = np.array([sum(move) for move in MOVES], dtype=np.float64)
        return dict(super().policies) | {"other": self.soft(np.tile(0.7 * towards, (len(self.first), 1)))}


def make(seed: int) -> Maze:
    rng = np.random.default_rng([seed, SIDE])
    doors = doors_of(rng)
    moves = np.zeros((SIDE * SIDE, len(MOVES), SIDE * SIDE))
    for room in range(SIDE * SIDE):
        for action in range(len(MOVES)):
            moves[room, action, beyond(room, action, doors)] = 1.0
    transition = (1.0 - SLIP) * moves + SLIP * moves.mean(axis=1, keepdims=True)
    rooms = np.arange(SIDE * SIDE)
    goal = rooms == SIDE * SIDE - 1
    near = (rooms // SIDE < 3) & (rooms % SIDE < 3)
    codes = np.stack([rooms // SIDE, rooms % SIDE], axis=1) / (SIDE - 1.0)
    fields = arrivals(transition, STEP + goal, goal, near / near.sum(), codes)
    return Maze(**fields, reward_std=0.0, planned=0.95)


def doors_of(rng: np.random.Generator) -> set[Door]:
    """Pairs of neighbouring rooms with a door between, the smaller first."""
    doors: set[Door] = set()
    reached, way = {0}, [0]
    while way:
        sides = [side for side in range(len(MOVES)) if _neighbour(way[-1], side) not in reached | {None}]
        if not sides:
            way.pop()
            continue
        room = _neighbour(way[-1], int(rng.choice(sides)))
        assert room is not None
        doors.add((min(room, way[-1]), max(room, way[-1])))
        reached.add(room)
        way.append(room)
    for room in rng.choice(SIDE * (SIDE - 1), size=DOORS, replace=False):
        doors.add((int(room), int(room) + SIDE))
    return doors


def _neighbour(room: int, side: int) -> int | None:
    row, column = room // SIDE + MOVES[side][0], room % SIDE + MOVES[side][1]
    return row * SIDE + column if 0 <= row < SIDE and 0 <= column < SIDE else None


def beyond(room: int, side: int, doors: set[Door]) -> int:
    """The room behind this side's door; the same room where there is none."""
    other = _neighbour(room, side)
    return room if other is None or (min(room, other), max(room, other)) not in doors else other


FAMILY = Family(
    name="maze", make=make, files=("../tables.py", "../arrivals.py"),
    # noise: a part of it on likely actions, so that the logging policy itself counts as covered
    length=25, noise=0.06, episodes=(20, 40, 80, 160, 320),
    discounts=(0.95, 0.98, 0.99, 1.0), horizons=(None, 30), cases=40, worlds=8,
    longest=500,
)  # fmt: skip
