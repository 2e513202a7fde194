"""Cheap independent views of a question: other features, a nearest-neighbour chain, the log's own returns.

Each view answers the question on its own terms in about a second, and says how often it expects the policy at
every transition: weights w_i with value = sum_i w_i r_i, in units of steps (they add up to the discounted
lifetime). A method is judged by what the views would change in its answer: with TD errors delta of its own Q,

    V = V^ + sum_i w_i delta_i

holds exactly for the true weights, so sum_i w_i delta_i is the correction that a view would make.

Linear views solve (Sigma - discount C + ridge I) theta = b (LSTD with a ridge, which always has an answer);
w_i = phi_i^T (Sigma - discount C + ridge I)^{-T} x0 / N. The chain moves from (s', pi(s')) to the nearest
logged transitions; its weights are those of a real, non-negative occupancy.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bcrl import salts
from bcrl.data.dataset import Dataset
from bcrl.data.select import some_episodes
from bcrl.estimate import FloatArray
from bcrl.policies.policy import TargetActions
from bcrl.question import Question, Target

ROWS, CHAIN_ROWS = 20_000, 5_000  # transitions that linear views and the chain look at
_COSINES, _RIDGE, _NEIGHBOURS = 160, 1e-3, 3
WIDTHS = (0.5, 1.5)  # of the cosines, in median distances
_POLYNOMIAL = 12  # inputs of the quadratic view; more are projected onto so many
_DRAWS = 8  # actions a state of a policy with more choices
_LEAST = 10  # transitions for an answer about the logging policy
_ACTION_COLUMNS = 16  # most columns of an action
_CHAIN_STEPS = 1_000  # that a chain is followed for
_LEFT = 1e-3  # of the discounted future, where a chain stops


@dataclass(frozen=True, eq=False)
class View:
    """One view's answer.

    Attributes:
        name: what it is.
        value: the policy's value.
        weights: expected visits of the policy to each transition of `Inputs`, discounted, shape (n,).
        logged: value of the logging policy by the same means; nan where it cannot be had.
    """

    name: str
    value: float
    weights: FloatArray
    logged: float = math.nan


@dataclass(frozen=True, eq=False)
class Inputs:
    """What the views read: transitions of whole episodes as standardised vectors.

    Attributes:
        transitions: their numbers in the dataset, shape (n,).
        here: state and logged action, shape (n, k).
        acting: state and the policy's actions there, shape (n, m, k), with `acting_weights` (n, m).
        following: next state and the policy's actions there, likewise.
        after: next state and the next logged action, shape (n, k); only where `has_after`.
        starts: start states and the policy's actions there, shape (n0, m, k), with `start_weights`.
        logged_starts: places in `here` of each episode's first transition.
        state_width: how many of the k columns are the state's.
    """

    transitions: NDArray[np.int64]
    here: FloatArray
    acting: FloatArray
    acting_weights: FloatArray
    following: FloatArray
    following_weights: FloatArray
    after: FloatArray
    has_after: NDArray[np.bool_]
    starts: FloatArray
    start_weights: FloatArray
    logged_starts: NDArray[np.int64]
    rewards: FloatArray
    terminated: NDArray[np.bool_]
    episode: NDArray[np.int64]
    step: NDArray[np.int64]
    state_width: int


def inputs_of(question: Question, target: Target, rows: int = ROWS) -> Inputs:
    """The question's log and one policy's actions on it, as the views read them."""
    dataset, seed = question.dataset, question.seed
    part = some_episodes(dataset, rows, seed) if len(dataset) > rows else None
    chosen = np.arange(dataset.num_episodes) if part is None else _episodes_of(dataset, part.rows)
    keep = np.isin(dataset.episode_of, chosen)
    transitions = np.flatnonzero(keep)
    generator = np.random.default_rng([seed, salts.VIEWS])
    codes = StateCodes.of(dataset, seed)
    here_rows = dataset.rows[transitions]
    states, next_states = codes.rows(here_rows), codes.rows(here_rows + 1)
    compact = _compact(dataset, seed)
    actions = compact(dataset.action_matrix(dataset.actions[transitions]))
    spread = _spread(actions)
    own_actions = drawn(target.actions.take(here_rows), generator)
    next_actions = drawn(target.actions.take(here_rows + 1), generator)
    start_actions = drawn(target.start_actions, generator)
    start_states = codes.observations(question.starts.observations)
    limit = np.linspace(0, len(start_states) - 1, min(len(start_states), 2_000)).astype(np.int64)
    episode = dataset.episode_of[transitions]
    same = np.append(episode[1:] == episode[:-1], False)
    terminated = np.asarray(dataset.terminated[transitions])
    after = np.concatenate([next_states, np.vstack([actions[1:], actions[:1]]) / spread], axis=1)
    first = np.flatnonzero(np.append(True, episode[1:] != episode[:-1]))
    return Inputs(
        transitions=transitions,
        here=np.concatenate([states, actions / spread], axis=1),
        acting=_pairs(states, compact(own_actions.actions) / spread),
        acting_weights=own_actions.weights,
        following=_pairs(next_states, compact(next_actions.actions) / spread),
        following_weights=next_actions.weights,
        after=after,
        has_after=same,
        starts=_pairs(start_states[limit], compact(start_actions.actions[limit]) / spread),
        start_weights=start_actions.weights[limit],
        logged_starts=first,
        rewards=np.asarray(dataset.rewards[transitions], dtype=np.float64),
        terminated=terminated,
        episode=episode,
        step=transitions - dataset.offsets[:-1][episode],
        state_width=states.shape[1],
    )


def _compact(dataset: Dataset, seed: int) -> Callable[[NDArray[Any]], FloatArray]:
    """Actions as short vectors: one-hot columns of many actions become a few random ones."""
    if not dataset.discrete or dataset.action_dim <= _ACTION_COLUMNS:
        return lambda actions: np.asarray(actions, dtype=np.float64)
    generator = np.random.default_rng([seed, salts.VIEWS, 3])
    directions = generator.standard_normal((dataset.action_dim, _ACTION_COLUMNS)) / math.sqrt(_ACTION_COLUMNS)
    return lambda actions: directions[np.asarray(actions).argmax(axis=-1)]


def _episodes_of(dataset: Dataset, rows: NDArray[np.int64] | slice) -> NDArray[np.int64]:
    label = np.repeat(np.arange(dataset.num_episodes), dataset.lengths + 1)
    return np.unique(label[rows])


def _pairs(states: FloatArray, actions: FloatArray) -> FloatArray:
    count, draws, _ = actions.shape
    return np.concatenate([np.repeat(states[:, None], draws, axis=1), actions], axis=2).reshape(
        count, draws, -1
    )


def _spread(values: FloatArray) -> FloatArray:
    """Standard deviation of each column; 1 for constant ones."""
    deviation = values.std(axis=0)
    return np.where(deviation > 1e-8 * np.maximum(np.abs(values).max(axis=0), 1e-300), deviation, 1.0)


def drawn(target: TargetActions, generator: np.random.Generator) -> TargetActions:
    """At most `_DRAWS` actions a state: the first draws, or a sample of exact ones."""
    count, choices = target.weights.shape
    if choices <= _DRAWS or not target.exact:
        return target.first(_DRAWS)
    cumulated = np.cumsum(target.weights, axis=1)
    cumulated /= cumulated[:, -1:]
    # Evenly spread points with one random shift a row: a stratified sample.
    points = (np.arange(_DRAWS) + generator.random((count, 1))) / _DRAWS
    places = np.stack([(cumulated < point[:, None]).sum(axis=1) for point in points.T], axis=1)
    actions = target.actions[np.arange(count)[:, None], np.minimum(places, choices - 1)]
    return TargetActions(actions, np.full((count, _DRAWS), 1.0 / _DRAWS))


@dataclass(frozen=True, eq=False)
class StateCodes:
    """A standardised vector for every observation: the log's vectors, or coarse pictures of its frames.

    Attributes:
        dataset: the log.
        centre, scale: of the raw columns.
        projection: onto the directions of largest variance where there are many columns; None for few.
    """

    dataset: Dataset
    centre: FloatArray
    scale: FloatArray
    projection: FloatArray | None

    @classmethod
    def of(cls, dataset: Dataset, seed: int, most: int = 40, sample: int = 4_000) -> "StateCodes":
        generator = np.random.default_rng([seed, salts.VIEWS, 1])
        rows = np.sort(
            generator.choice(dataset.num_observations, min(sample, dataset.num_observations), False)
        )
        raw = _raw_codes(dataset.observe(rows), dataset.pixel_keys)
        centre, scale = raw.mean(axis=0), _spread(raw)
        if raw.shape[1] <= most:
            return cls(dataset, centre, scale, None)
        _, values, right = np.linalg.svd((raw - centre) / scale, full_matrices=False)
        return cls(
            dataset, centre, scale, right[:most].T / np.maximum(values[:most], 1e-12) * math.sqrt(len(raw))
        )

    def rows(self, rows: NDArray[np.int64]) -> FloatArray:
        """Codes of these observation rows."""
        step = 4_096 if self.dataset.pixel_keys else max(len(rows), 1)
        parts = [
            self.observations(self.dataset.observe(rows[i : i + step])) for i in range(0, len(rows), step)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.centre)))

    def observations(self, observations: Mapping[str, NDArray[Any]]) -> FloatArray:
        """Codes of any observations, by key."""
        raw = (_raw_codes(observations, self.dataset.pixel_keys) - self.centre) / self.scale
        return np.clip(raw if self.projection is None else raw @ self.projection, -8.0, 8.0)


def _raw_codes(observations: Mapping[str, NDArray[Any]], pixel_keys: tuple[str, ...]) -> FloatArray:
    """Vectors side by side; frames only where there are no vectors, as means over an 8 x 8 grid."""
    vectors = [v for key, v in observations.items() if key not in pixel_keys]
    if vectors:
        flat = [np.asarray(v, dtype=np.float64).reshape(len(v), -1) for v in vectors]
        return np.concatenate(flat, axis=1)
    return np.concatenate([_coarse(np.asarray(v)) for v in observations.values()], axis=1)


def _coarse(frames: NDArray[Any], cells: int = 8) -> FloatArray:
    count, height, width, channels = frames.shape
    down, across = max(height // cells, 1), max(width // cells, 1)
    cut = frames[:, : height // down * down, : width // across * across].astype(np.float32)
    blocks = cut.reshape(count, height // down, down, width // across, across, channels)
    return np.asarray(blocks.mean(axis=(2, 4)).reshape(count, -1), dtype=np.float64)


Features = Callable[[FloatArray], FloatArray]


def cosines(inputs: Inputs, width: float, generator: np.random.Generator, count: int = _COSINES) -> Features:
    """Random Fourier features and a constant; `width` in median distances between transitions."""
    x = inputs.here
    left, right = generator.integers(0, len(x), size=(2, 2_000))
    distance = float(np.median(np.linalg.norm(x[left] - x[right], axis=1))) or 1.0
    weights = (generator.standard_normal((x.shape[1], count)) / (width * distance)).astype(np.float32)
    phases = generator.uniform(0.0, 2.0 * np.pi, count).astype(np.float32)

    def features(points: FloatArray) -> FloatArray:
        phi = np.empty((len(points), count + 1))
        phi[:, :-1] = np.cos(points.astype(np.float32) @ weights + phases) * math.sqrt(2.0 / count)
        phi[:, -1] = 1.0
        return phi

    return features


def quadratic(inputs: Inputs) -> Features:
    """1, x, x x^T of the inputs, or of their leading directions where there are many."""
    x = inputs.here
    directions = np.eye(x.shape[1])
    if x.shape[1] > _POLYNOMIAL:
        directions = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2][:_POLYNOMIAL].T
    upper = np.triu_indices(directions.shape[1])

    def features(points: FloatArray) -> FloatArray:
        z = np.clip(points @ directions, -8.0, 8.0)
        return np.concatenate([np.ones((len(z), 1)), z, z[:, upper[0]] * z[:, upper[1]] / 4.0], axis=1)

    return features


def _mean_features(features: Features, points: FloatArray, weights: FloatArray) -> FloatArray:
    """Features averaged over actions, shape (n, d)."""
    count, draws, width = points.shape
    phi = features(points.reshape(-1, width)).reshape(count, draws, -1)
    return np.asarray(np.einsum("nmd,nm->nd", phi, weights))


def linear_view(
    name: str, features: Features, inputs: Inputs, discount: float, horizon: int | None
) -> tuple[View, "LinearParts"]:
    """LSTD with a ridge on these features (K steps of regression where there is a horizon)."""
    phi = features(inputs.here)
    ahead = _mean_features(features, inputs.following, inputs.following_weights) * ~inputs.terminated[:, None]
    x0 = _mean_features(features, inputs.starts, inputs.start_weights).mean(axis=0)
    count = len(phi)
    sigma, cross = phi.T @ phi / count, phi.T @ ahead / count
    sigma = sigma + _RIDGE * np.trace(sigma) / len(x0) * np.eye(len(x0))
    dual = _dual(sigma, cross, x0, discount, horizon)
    weights = phi @ dual / count
    returns = None if horizon is not None else _logged_returns(phi, features, inputs, sigma, discount)
    gap = math.nan
    if returns is not None:
        first = inputs.logged_starts
        gap = float((phi[first] @ returns.theta - returns.to_go[first]).mean())
    view = View(name, float(weights @ inputs.rewards), weights, gap)
    return view, LinearParts(phi, sigma, None if returns is None else returns.to_go)


@dataclass(frozen=True, eq=False)
class LinearParts:
    """What other views use again.

    Attributes:
        phi: phi(s, a) of every transition.
        sigma: its second moment, with the ridge.
        returns: logged returns to go, cut records closed on the logging policy; None where they are unknown.
    """

    phi: FloatArray
    sigma: FloatArray
    returns: FloatArray | None


def _dual(
    sigma: FloatArray, cross: FloatArray, x0: FloatArray, discount: float, horizon: int | None
) -> FloatArray:
    """u with value = u^T b: the discounted visits that the linear model expects."""
    if horizon is None:
        return np.asarray(np.linalg.solve((sigma - discount * cross).T, x0))
    step: FloatArray = np.asarray(discount * np.linalg.solve(sigma, cross).T, dtype=np.float64)
    visits: FloatArray = _power_sum(step, horizon) @ x0
    return np.asarray(np.linalg.solve(sigma, visits))


def _power_sum(matrix: FloatArray, count: int) -> FloatArray:
    """I + A + ... + A^(count - 1), by doubling; not finite where it grows beyond all numbers."""
    total, power = np.zeros_like(matrix), np.eye(len(matrix))
    with np.errstate(over="ignore", invalid="ignore"):
        for bit in bin(count)[2:]:
            total, power = total + power @ total, power @ power
            if bit == "1":
                total, power = total + power, power @ matrix
    return total


@dataclass(frozen=True, eq=False)
class _Logged:
    """The logging policy's Q by SARSA, and the returns to go that it closes."""

    theta: FloatArray
    to_go: FloatArray


def _logged_returns(
    phi: FloatArray, features: Features, inputs: Inputs, sigma: FloatArray, discount: float
) -> _Logged | None:
    """From transitions whose next action is logged; None where there are too few."""
    known = inputs.has_after | inputs.terminated
    if known.sum() < _LEAST:
        return None
    after = np.zeros_like(phi)
    inside = inputs.has_after & ~inputs.terminated
    after[inside] = features(inputs.after[inside])
    here = phi[known]
    system = sigma - discount * here.T @ after[known] / len(here)
    theta = np.asarray(np.linalg.solve(system, here.T @ inputs.rewards[known] / len(here)))
    return _Logged(theta, closed_returns(inputs, phi @ theta, discount))


def closed_returns(inputs: Inputs, q: FloatArray, discount: float) -> FloatArray:
    """Discounted return to go of every transition; a cut record is closed with `q` of its last one."""
    result = np.empty(len(q))
    ahead = 0.0
    for i in range(len(q) - 1, -1, -1):
        if not inputs.has_after[i]:
            ahead = inputs.rewards[i] if inputs.terminated[i] else q[i]
        else:
            ahead = inputs.rewards[i] + discount * ahead
        result[i] = ahead
    return result


def returns_view(
    name: str, features: Features, parts: LinearParts, occupancy: View, inputs: Inputs, discount: float
) -> View:
    """The log's own returns: V_b + sum_i w_i (Q_b(s_i, pi) - V_b(s_i)), nothing bootstrapped off the policy.

    Q_b is a regression of logged returns to go, V_b(s) one of Q_b(s, a) on the state alone.
    """
    returns = parts.returns
    if returns is None:
        return View(name, math.nan, occupancy.weights)
    solve = np.linalg.solve(parts.sigma, parts.phi.T @ returns / len(returns))
    q_logged = parts.phi @ solve
    states = inputs.here.copy()
    states[:, inputs.state_width :] = 0.0
    psi = features(states)
    gram = psi.T @ psi / len(psi)
    gram += _RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram))
    v = psi @ np.linalg.solve(gram, psi.T @ q_logged / len(psi))
    gain = _mean_features(features, inputs.acting, inputs.acting_weights) @ solve - v
    first = inputs.logged_starts
    return View(name, float(returns[first].mean() + occupancy.weights @ gain), occupancy.weights)


def chain_view(
    inputs: Inputs, discount: float, horizon: int | None, rows: int = CHAIN_ROWS
) -> tuple[View, float]:
    """From (s', pi(s')) to the nearest logged transitions, and so on; also its novelty.

    Novelty: median distance that the policy's steps have to jump, over the median distance between a logged
    transition and the nearest one of another episode, both weighted by where the chain goes.
    """
    keep = _whole_episodes(inputs, rows)
    points = inputs.here[keep].astype(np.float32)
    place = np.full(len(inputs.here), -1)
    place[keep] = np.arange(len(keep))
    moves, jump = _nearest(inputs.following[keep], inputs.following_weights[keep], points)
    starts, _ = _nearest(inputs.starts[:500], inputs.start_weights[:500], points)
    alive = discount * ~inputs.terminated[keep]
    now = np.asarray(starts.mean(axis=0)).ravel()
    total, steps = np.zeros(len(keep)), horizon
    if horizon is None:
        steps = math.ceil(math.log(_LEFT * (1.0 - discount)) / math.log(discount)) if discount > 0.0 else 1
    assert steps is not None
    for _ in range(min(steps, _CHAIN_STEPS)):
        total += now
        now = np.asarray(moves.T @ (now * alive)).ravel()
        if now.sum() < _LEFT * (1.0 - min(discount, 0.999)):
            break
    else:  # by now the chain visits the same places over and over
        rest = max(steps - _CHAIN_STEPS, 0)
        total += now * (rest if discount == 1.0 else (1.0 - discount**rest) / (1.0 - discount))
    weights = np.zeros(len(inputs.here))
    weights[keep] = total
    typical = _between_episodes(points, inputs.episode[keep])
    novelty = float(total @ jump / max(total.sum(), 1e-300) / max(typical, 1e-6))
    return View("chain", float(weights @ inputs.rewards), weights), novelty


def _whole_episodes(inputs: Inputs, rows: int) -> NDArray[np.int64]:
    """Places of the first episodes' transitions, about so many."""
    if len(inputs.here) <= rows:
        return np.arange(len(inputs.here))
    last = inputs.episode[rows]
    keep = np.flatnonzero(inputs.episode < last)
    return keep if len(keep) else np.arange(rows)


def _nearest(
    points: FloatArray, weights: FloatArray, among: NDArray[np.float32]
) -> tuple[sparse.csr_matrix, FloatArray]:
    """Each point's move to its nearest logged transitions (n, rows), and the mean distance that it jumps."""
    count, draws, width = points.shape
    flat = points.reshape(-1, width).astype(np.float32)
    squares = np.einsum("nk,nk->n", among, among)
    near = np.empty((len(flat), min(_NEIGHBOURS, len(among))), dtype=np.int64)
    distance = np.empty(len(flat))
    for first in range(0, len(flat), 2_000):
        block = flat[first : first + 2_000]
        gap = squares - 2.0 * block @ among.T
        chosen = np.argpartition(gap, near.shape[1] - 1, axis=1)[:, : near.shape[1]]
        near[first : first + 2_000] = chosen
        least = np.take_along_axis(gap, chosen, axis=1).min(axis=1) + np.einsum("nk,nk->n", block, block)
        distance[first : first + 2_000] = np.sqrt(np.maximum(least, 0.0))
    mass = np.repeat(weights.reshape(-1) / near.shape[1], near.shape[1])
    origin = np.repeat(np.repeat(np.arange(count), draws), near.shape[1])
    moves = sparse.csr_matrix((mass, (origin, near.reshape(-1))), shape=(count, len(among)))
    return moves, np.asarray((distance.reshape(count, draws) * weights).sum(axis=1))


def _between_episodes(points: NDArray[np.float32], episode: NDArray[np.int64], sample: int = 800) -> float:
    """Mean distance between a transition and the nearest one of another episode."""
    rows = np.linspace(0, len(points) - 1, min(len(points), sample)).astype(np.int64)
    squares = np.einsum("nk,nk->n", points, points)
    gap = squares[rows, None] + squares - 2.0 * points[rows] @ points.T
    gap[episode[rows, None] == episode] = np.inf
    least = np.sqrt(np.maximum(gap.min(axis=1), 0.0))
    return float(np.mean(least[np.isfinite(least)])) if np.isfinite(least).any() else 1.0
