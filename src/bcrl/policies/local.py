"""The log as neighbours: is an action like those logged near the state, and what did the log do there?

    strangeness = max(of the action, of the place)        1 or less: supported
    of the place: distance to the nearest logged state / what 99.5 % of logged states have to another unit's
    of the action, continuous: distance to the nearest of the logged actions near the state / what nine in ten
        of these have to their own nearest one, so that the noise is measured where the policy is; in units of
        what 99.5 % of the logged actions themselves keep to
    of the action, discrete: 1 / (5 x number of actions) / its share near the state (from `log_prob` of the
        neighbours that took it, where the log has it, else counted)

Plain arrays, so that it can be stored beside a policy and runs without the log.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl import salts
from bcrl.data.dataset import Array, Dataset
from bcrl.errors import BadInput

FloatArray = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_ROWS = 8_000  # logged rows that are kept
_NEAR = 30  # logged states that are looked at, for continuous or few actions
_USUAL = 99.5  # percentile of logged steps that count as usual
_BLOCK = 500
_ROUNDING = 1e-3  # of an action's spread: such a difference is none
# Neighbours that the clone's mean may be fitted to; the log says how many (`_best_fit`). On design families
# 30 alone were off by 0.3 to 0.55 of the noise, the chosen ones by 0.08 to 0.24.
_FITS, _RIDGE, _JUDGED = (30, 60, 120, 240, 480), 0.01, 400


@dataclass(frozen=True, eq=False)
class LocalLog:
    """Logged states and actions.

    Attributes:
        keys: observation keys that are read; ("",) where observations are one array.
        centre, scale: of the state's columns, shape (k,).
        states: standardised, shape (n, k), float32.
        actions: in their own unit, one-hot where discrete, shape (n, m), float32.
        spread: of the actions' columns, shape (m,).
        shape: of one action as the log holds it; () where discrete.
        probability: of each action under the logging policy, nan where the log does not know it, shape (n,).
        unit: independent unit of each row, shape (n,).
        far: what 99.5 % of states have as distance to the nearest state of another unit.
        unlike: what 99.5 % of logged continuous actions keep to, in the distances above; 1 where discrete.
        discrete: whether actions are one-hot.
        fitted: neighbours that the clone's mean action is fitted to; unused where discrete.
    """

    keys: tuple[str, ...]
    centre: FloatArray
    scale: FloatArray
    states: NDArray[np.float32]
    actions: NDArray[np.float32]
    spread: FloatArray
    shape: tuple[int, ...]
    probability: FloatArray
    unit: Ints
    far: float
    unlike: float
    discrete: bool
    fitted: int = _NEAR

    @classmethod
    def of(cls, dataset: Dataset, seed: int = 0, most: int = MOST_ROWS) -> "LocalLog":
        """Of a log of vectors; at most so many of its rows, drawn at random."""
        keys = tuple(key for key in dataset.observations if key not in dataset.pixel_keys)
        if not keys:
            raise BadInput(
                "This needs observations that are vectors: distances between pictures say little about "
                "support. Add a vector key (a code of the picture, for instance) to the log."
            )
        generator = np.random.default_rng([seed, salts.LOCAL_LOG])
        rows = np.sort(generator.choice(len(dataset), min(most, len(dataset)), replace=False))
        seen = dataset.observe(dataset.rows[rows])
        raw = _flat([seen[key] for key in keys])
        actions = dataset.action_matrix(dataset.actions[rows])
        centre, scale = raw.mean(axis=0), _spread(raw)
        known = dataset.log_prob is not None and bool(np.isfinite(dataset.log_prob[rows]).all())
        made = cls(
            keys=("",) if dataset.single else keys,
            centre=centre,
            scale=scale,
            states=((raw - centre) / scale).astype(np.float32),
            actions=actions,
            spread=_spread(actions.astype(np.float64)),
            shape=() if dataset.discrete else tuple(dataset.actions.shape[1:]),
            probability=np.exp(dataset.log_prob[rows])
            if known and dataset.log_prob is not None
            else np.full(len(rows), np.nan),
            unit=dataset.units[dataset.episode_of[rows]],
            far=0.0,
            unlike=1.0,
            discrete=dataset.discrete,
        )
        sample = generator.choice(len(rows), min(1_000, len(rows)), replace=False)
        near, distance = made.neighbours(made.states[sample].astype(np.float64), made.unit[sample])
        distance = distance[np.isfinite(distance)]
        far = float(np.percentile(distance, _USUAL)) if len(distance) else 0.0
        if made.discrete:
            return replace(made, far=far)
        own = made._of_actions(near, made.actions[sample, None].astype(np.float64))
        unlike = max(float(np.percentile(own, _USUAL)), 1.0)
        return replace(made, far=far, unlike=unlike, fitted=made._best_fit(sample))

    def _best_fit(self, sample: Ints) -> int:
        """How many neighbours foretell the actions of other units best; few of very wide states."""
        if self.states.shape[1] > _FITS[-1]:
            return self.near
        sample = sample[:_JUDGED]
        codes, actions = self.states[sample].astype(np.float64), self.actions[sample] / self.spread
        most = max(_NEAR, len(self.states) // 4)
        errors = {}
        for count in (n for n in _FITS if n <= most):
            near = self.neighbours(codes, self.unit[sample], count)[0]
            errors[count] = float(np.square(self._fit(codes, near)[0] / self.spread - actions).mean())
        return min(errors, key=errors.__getitem__, default=self.near)

    @property
    def near(self) -> int:
        """Neighbours that are looked at: more where there are many actions to be counted."""
        wanted = max(_NEAR, 2 * self.actions.shape[1]) if self.discrete else _NEAR
        return max(1, min(wanted, max(_NEAR, len(self.states) // 4), len(self.states) - 1))

    def codes(self, observations: Any) -> FloatArray:  # noqa: ANN401 - one array or a dict
        """Standardised states of observations of either form."""
        if isinstance(observations, Mapping):
            keys = list(observations) if self.keys == ("",) else self.keys
            parts = [observations[key] for key in keys]
        else:
            parts = [observations]
        return np.asarray((_flat(parts) - self.centre) / self.scale)

    def neighbours(
        self, codes: FloatArray, unit: Ints | None = None, count: int | None = None
    ) -> tuple[Ints, FloatArray]:
        """Rows of the nearest logged states (q, count or near) and the distance of the very nearest (q,).

        With `unit`, those of a state's own unit are left out; -1 leaves none out.
        """
        count = min(count or self.near, len(self.states))
        size = np.einsum("nk,nk->n", self.states, self.states)
        found, distance = np.empty((len(codes), count), dtype=np.int64), np.empty(len(codes))
        for first in range(0, len(codes), _BLOCK):
            part = codes[first : first + _BLOCK].astype(np.float32)
            gap = size - 2.0 * part @ self.states.T
            if unit is not None:
                gap[unit[first : first + _BLOCK, None] == self.unit] = np.inf
            chosen = np.argpartition(gap, count - 1, axis=1)[:, :count]
            found[first : first + _BLOCK] = chosen
            least = np.take_along_axis(gap, chosen, axis=1).min(axis=1)
            distance[first : first + _BLOCK] = np.sqrt(
                np.maximum(least + np.einsum("nk,nk->n", part, part), 0.0)
            )
        return found, distance

    def strangeness(self, codes: FloatArray, actions: Array, unit: Ints | None = None) -> FloatArray:
        """Of each of the actions (q, j, m) at each of the states (q, k), shape (q, j)."""
        result = np.empty(actions.shape[:2])
        for first in range(0, len(codes), _BLOCK):
            part = slice(first, first + _BLOCK)
            near, distance = self.neighbours(codes[part], None if unit is None else unit[part])
            place = distance / max(self.far, _ROUNDING)
            own = self._of_actions(near, actions[part])
            result[part] = np.maximum(own, place[:, None])
        return result

    def _of_actions(self, near: Ints, asked: Array) -> FloatArray:
        if self.discrete:
            least = 1.0 / (5.0 * self.actions.shape[1])
            one_table = asked.strides[0] == 0  # all actions at every state: looked at once
            chosen = (asked[:1] if one_table else asked).argmax(axis=2)
            chosen = np.broadcast_to(chosen, (len(near), chosen.shape[1]))
            share = np.take_along_axis(self.shares(near), chosen, axis=1)
            return np.asarray(least / np.maximum(share, 1e-12))
        logged = self.actions[near] / self.spread
        between = np.linalg.norm(logged[:, :, None] - logged[:, None], axis=3)
        between[:, np.arange(near.shape[1]), np.arange(near.shape[1])] = np.inf
        usual = np.quantile(between.min(axis=2), 0.9, axis=1) + _ROUNDING
        reach = np.linalg.norm(
            (np.asarray(asked, dtype=np.float64) / self.spread)[:, :, None] - logged[:, None], axis=3
        ).min(axis=2)
        return np.asarray(reach / usual[:, None] / self.unlike)

    def shares(self, near: Ints) -> FloatArray:
        """Probability of every discrete action near a state, shape (q, m): known, else counted."""
        taken = self.actions[near]
        counted = taken.sum(axis=1)
        if np.isnan(self.probability).any():
            return np.asarray(counted / near.shape[1])
        known = np.einsum("qnm,qn->qm", taken, self.probability[near])
        return np.asarray(known / np.maximum(counted, 1.0))

    def behaviour(self, codes: FloatArray, unit: Ints | None = None) -> FloatArray:
        """The logging policy near each state: its table of discrete actions, shape (q, m)."""
        near = self.neighbours(codes, unit)[0]
        table = self.shares(near)
        return np.asarray(table / np.maximum(table.sum(axis=1, keepdims=True), 1e-12))

    def draws(
        self, codes: FloatArray, generator: np.random.Generator, count: int, unit: Ints | None = None
    ) -> FloatArray:
        """Actions of a clone of the logging policy, noise included, shape (q, count, m); continuous.

        A local linear fit of the neighbours' actions, and the residual of one of the nearest, drawn at
        random: without its noise a logging policy is another policy.
        """
        result = np.empty((len(codes), count, self.actions.shape[1]))
        low, high = self.actions.min(axis=0), self.actions.max(axis=0)
        for first in range(0, len(codes), _BLOCK):
            part = slice(first, first + _BLOCK)
            near = self.neighbours(codes[part], None if unit is None else unit[part], self.fitted)[0]
            mean, residual = self._fit(codes[part], near)
            picked = generator.integers(0, min(self.near, near.shape[1]), size=(len(near), count))
            nearest = self._nearest(codes[part], near, min(self.near, near.shape[1]))
            noise = np.take_along_axis(
                residual, np.take_along_axis(nearest, picked, axis=1)[:, :, None], axis=1
            )
            result[part] = np.clip(mean[:, None] + noise, low, high)
        return result

    def _nearest(self, codes: FloatArray, near: Ints, count: int) -> Ints:
        """Places of the nearest `count` among a state's neighbours, shape (q, count)."""
        if count == near.shape[1]:
            return np.broadcast_to(np.arange(count), near.shape)
        gap = np.square(self.states[near] - codes[:, None].astype(np.float32)).sum(axis=2)
        return np.asarray(np.argpartition(gap, count - 1, axis=1)[:, :count])

    def _fit(self, codes: FloatArray, near: Ints) -> tuple[FloatArray, FloatArray]:
        x = self.states[near].astype(np.float64) - codes[:, None]
        y = self.actions[near].astype(np.float64)
        x_mean, y_mean = x.mean(axis=1), y.mean(axis=1)
        x, y = x - x_mean[:, None], y - y_mean[:, None]
        count, width = x.shape[1:]
        ridge = _RIDGE * np.square(x).sum(axis=(1, 2)) / width + 1e-9
        wide = width > count  # the same fit from a system of the neighbours: columns may be thousands
        gram = np.einsum("qni,qmi->qnm" if wide else "qni,qnj->qij", x, x)
        system = gram + ridge[:, None, None] * np.eye(len(gram[0]))
        solved = np.linalg.solve(system, y if wide else np.einsum("qni,qnm->qim", x, y))
        slope = np.einsum("qni,qnm->qim", x, solved) if wide else solved
        residual = y - np.einsum("qni,qim->qnm", x, slope)
        lost = np.trace(np.linalg.solve(system, gram), axis1=1, axis2=2)
        stretch = np.sqrt(count / np.maximum(count - 1.0 - lost, count / 4.0))
        return y_mean - np.einsum("qi,qim->qm", x_mean, slope), residual * stretch[:, None, None]


def _flat(parts: list[Array]) -> FloatArray:
    return np.concatenate([np.asarray(p, dtype=np.float64).reshape(len(p), -1) for p in parts], axis=1)


def _spread(values: FloatArray) -> FloatArray:
    """Standard deviation of each column; 1 for constant ones."""
    deviation = values.std(axis=0)
    return np.where(deviation > 1e-8 * np.maximum(np.abs(values).max(axis=0), 1e-300), deviation, 1.0)
