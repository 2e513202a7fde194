"""What the log says about one policy's answers, whichever method gave them: measured once, used by all.

Everything is in the reward's own unit or a share. `Evidence.of` asks the independent views (views.py);
`unlike_actions` looks at logged actions near each state. `action_support` and `predictable_error` are audits
that methods make of themselves, by a regression fitted on one half of the units and judged on the other.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bcrl import salts
from bcrl.data.dataset import Array, Dataset
from bcrl.data.select import sample_halves
from bcrl.estimate import Estimate, FloatArray
from bcrl.inference.inputs import Inputs, VectorsAt, inputs_of, td_of
from bcrl.inference.views.chain import chain_view
from bcrl.inference.views.linear import View, consensus, linear_views, logged_returns
from bcrl.policies.policy import FEW_ACTIONS, TargetActions
from bcrl.question import Question, Target

_NEAR = 30  # logged states that are compared with
ALIKE = 0.9  # of logged actions is called like the others near them
_STATES = 1_500  # states at which support is looked at
_FEW = 10  # episodes, whose returns alone would show no range
_PAIRS, _NOTHING = 200, 1e-3  # fewest pairs, and the share of the reward's differences that is no noise

# Of the audits by regression, `action_support` and `predictable_error`:
_AUDITED, _COSINES = 6000, 400  # transitions in each half, and random Fourier features
_RIDGES = (1e-5, 1e-3, 1e-1, 1e1)
_LIMIT, _WITHIN = 4.0, 0.99  # of the square distance to the logged actions, in their variances
_SURE = 5.0  # standard deviations by which the weights' sum must differ from 0
# Columns beyond which a square matrix of them is not made where there are fewer rows.
_WIDE = 2048


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the views and the log say about one policy.

    Attributes:
        inputs: transitions that the views looked at.
        views: their answers.
        consensus: what they say together.
        lifetime: discounted steps that the policy is expected to live.
        unsupported: share of its expected steps at which no logged action near the state is like its own.
        novelty: how far the policy's steps lie from logged ones, in distances between logged episodes.
        past: share of the reward that the present does not explain and earlier actions do (`past_effect`).
        scale: the log's mean discounted sum of |reward|.
        highest, lowest: discounted return of the best and the worst logged episode, closed where it was cut;
            of fewer than ten episodes from each of their steps on.
        spread: standard deviation of these returns.
    """

    inputs: Inputs
    views: tuple[View, ...]
    consensus: float
    lifetime: float
    unsupported: float
    novelty: float
    past: float
    scale: float
    highest: float
    lowest: float
    spread: float

    @classmethod
    def of(cls, question: Question, target: Target) -> "Evidence":
        """About three seconds for 12,000 transitions."""
        inputs = inputs_of(question, target)
        generator = np.random.default_rng([question.seed, salts.VIEWS, 2])
        discount, horizon = question.discount, question.horizon
        views = linear_views(inputs, discount, horizon, generator)
        chain, novelty = chain_view(inputs, discount, horizon)
        closed = None if horizon is not None else logged_returns(inputs, discount, generator)
        returns = _sums(inputs, inputs.rewards, discount, horizon)
        if closed is not None:
            few = len(returns) < _FEW  # a long record without ends is as good as many: from each of its steps
            returns = closed if few else closed[inputs.logged_starts]
        sizes = _sums(inputs, np.abs(inputs.rewards), discount, horizon)
        return cls(
            inputs=inputs,
            views=tuple(view for view in (*views, chain) if math.isfinite(view.value)),
            consensus=consensus(views),
            lifetime=float(chain.weights.sum()),
            unsupported=unlike_actions(inputs, chain.weights, generator),
            novelty=novelty,
            past=past_effect(inputs, generator),
            scale=float(sizes.mean()),
            highest=float(returns.max()),
            lowest=float(returns.min()),
            spread=float(returns.std()),
        )

    def corrections(self, td: FloatArray) -> dict[str, float]:
        """What each view's weights would add to a value whose Q has these TD errors, by view."""
        return {view.name: float(view.weights @ td) for view in self.views}

    def gaps(self, value: float) -> dict[str, float]:
        """Distance of each view's own answer to a value."""
        return {view.name: abs(view.value - value) for view in self.views}


def _sums(inputs: Inputs, amounts: FloatArray, discount: float, horizon: int | None) -> FloatArray:
    """Discounted sum over each episode as far as it was recorded."""
    weights = np.power(float(discount), inputs.step)
    if horizon is not None:
        weights = weights * (inputs.step < horizon)
    places = np.unique(inputs.episode, return_inverse=True)[1]
    return np.asarray(np.bincount(places, weights=weights * amounts))


def unlike_actions(inputs: Inputs, weights: FloatArray, generator: np.random.Generator) -> float:
    """Share of the policy's expected steps at which its action is unlike all logged ones near the state.

    Looked at are the states that follow the transitions which the policy is expected at: a transition itself
    was chosen because its action is like the policy's. Unlike: farther from the nearest of the `_NEAR` logged
    actions at the nearest states (other episodes) than `ALIKE` of these are from their own nearest one; of
    the logging policy's own actions about a tenth are unlike. So the noise is measured where the policy is,
    and without the misfit of a regression.
    """
    mass = np.where(inputs.terminated, 0.0, np.maximum(weights, 0.0))
    if mass.sum() <= 0.0 or len(np.unique(inputs.episode)) < 2:
        return 0.0 if inputs.terminated.all() else 1.0
    rows = generator.choice(len(mass), size=min(_STATES, len(mass)), p=mass / mass.sum())
    width = inputs.state_width
    states = inputs.here[:, :width].astype(np.float32)
    logged = inputs.here[:, width:].astype(np.float32)
    squares = np.einsum("nk,nk->n", states, states)
    outside = 0.0
    near = min(_NEAR, len(states) - 1)
    for first in range(0, len(rows), 250):
        block = rows[first : first + 250]
        asked = inputs.following[block].astype(np.float32)
        gap = squares - 2.0 * asked[:, 0, :width] @ states.T
        gap[inputs.episode[block, None] == inputs.episode] = np.inf
        actions = logged[np.argpartition(gap, near - 1, axis=1)[:, :near]]
        between = np.linalg.norm(actions[:, :, None] - actions[:, None], axis=3)
        between[:, np.arange(near), np.arange(near)] = np.inf
        usual = np.quantile(between.min(axis=2), ALIKE, axis=1)
        reach = np.linalg.norm(asked[:, :, None, width:] - actions[:, None], axis=3).min(axis=2)
        outside += float((inputs.following_weights[block] * (reach > usual[:, None] + 1e-3)).sum())
    return outside / len(rows)


def past_effect(inputs: Inputs, generator: np.random.Generator) -> float:
    """Share of what the present leaves unexplained in the reward that earlier actions explain, held out.

    Each transition is paired with the nearest one (state and action) of another episode, so that what differs
    in their rewards is noise, or something that the observation does not hold. If the difference follows the
    difference of the previous actions, or of the mean of all earlier ones, the log is not Markov: an action
    has effects that no later observation shows, or something hidden drove both actions and rewards. 0 where
    there are too few pairs.
    """
    start = inputs.logged_starts[
        np.searchsorted(inputs.logged_starts, np.arange(len(inputs.here)), "right") - 1
    ]
    rows = np.flatnonzero(np.arange(len(inputs.here)) > start)
    if len(rows) < _PAIRS or len(np.unique(inputs.episode)) < 4:
        return 0.0
    pool = np.sort(generator.choice(rows, min(6_000, len(rows)), replace=False))
    chosen = np.sort(generator.choice(pool, min(_STATES, len(pool)), replace=False))
    partner = pool[_nearest_elsewhere(inputs, chosen, pool)]
    earlier = _earlier_actions(inputs, start)
    present, past = (x[chosen] - x[partner] for x in (inputs.here, earlier))
    reward = inputs.rewards[chosen] - inputs.rewards[partner]
    episodes = np.unique(inputs.episode[chosen])
    fit = np.isin(inputs.episode[chosen], generator.permutation(episodes)[::2])
    left = [_unexplained(x, reward, fit) for x in (present, np.concatenate([present, past], axis=1))]
    return float(np.clip(1.0 - left[1] / left[0], 0.0, 1.0)) if left[0] > _NOTHING else 0.0


def _nearest_elsewhere(inputs: Inputs, rows: NDArray[np.int64], pool: NDArray[np.int64]) -> NDArray[np.int64]:
    """Place in the pool of each row's nearest transition of another episode."""
    x = inputs.here.astype(np.float32)
    squares = np.einsum("nk,nk->n", x[pool], x[pool])
    found = np.empty(len(rows), dtype=np.int64)
    for first in range(0, len(rows), 500):
        block = rows[first : first + 500]
        gap = squares - 2.0 * x[block] @ x[pool].T
        gap[inputs.episode[block, None] == inputs.episode[pool]] = np.inf
        found[first : first + 500] = gap.argmin(axis=1)
    return found


def _earlier_actions(inputs: Inputs, start: NDArray[np.int64]) -> FloatArray:
    """The previous action, and the mean of all earlier ones of the episode; zeros at its first transition."""
    actions = inputs.here[:, inputs.state_width :]
    summed = np.cumsum(actions, axis=0) - actions
    count = np.arange(len(actions)) - start
    mean = (summed - summed[start]) / np.maximum(count, 1)[:, None]
    previous = np.concatenate([np.zeros((1, actions.shape[1])), actions[:-1]]) * (count > 0)[:, None]
    return np.concatenate([previous, mean], axis=1)


def _unexplained(x: FloatArray, y: FloatArray, fit: NDArray[np.bool_]) -> float:
    """Share of y's second moment that a ridge regression on x leaves, fitted on some rows, on the others."""
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    gram = x[fit].T @ x[fit]
    gram += 1e-3 * np.trace(gram) / len(gram) * np.eye(len(gram))
    left = y[~fit] - x[~fit] @ np.linalg.solve(gram, x[fit].T @ y[fit])
    size = float(y[~fit] @ y[~fit])
    return min(float(left @ left) / size, 1.0) if size > 0.0 else 0.0


def measured(estimate: Estimate, evidence: Evidence, question: Question, target: Target) -> dict[str, float]:
    """All numbers that the budget of one estimate is made from, by name, for `stats`."""
    numbers = {
        "lifetime": evidence.lifetime,
        "unsupported": evidence.unsupported,
        "novelty": evidence.novelty,
        "past": evidence.past,
        "scale": evidence.scale,
        "highest_return": evidence.highest,
        "lowest_return": evidence.lowest,
        "return_spread": evidence.spread,
        "consensus": evidence.consensus,
        "rows": float(len(evidence.inputs.here)),
        "inputs": float(evidence.inputs.here.shape[1]),
    }
    numbers |= {f"view {view.name}": view.value for view in evidence.views}
    numbers |= {f"effective {view.name}": _effective(view.weights) for view in evidence.views}
    q = getattr(estimate.value_function, "q", None)
    if q is not None and question.horizon is None and math.isfinite(estimate.value):
        own = getattr(estimate.value_function, "v_of", None)
        td = td_of(q, question, target, evidence.inputs, own)
        numbers["td_rms"] = float(np.sqrt(np.mean(td**2)))
        numbers |= {f"correction {name}": value for name, value in evidence.corrections(td).items()}
    return {f"evidence/{name}": value for name, value in numbers.items()}


def _effective(weights: FloatArray) -> float:
    """Share of the transitions that the weights rest on: (sum w)^2 / (n sum w^2)."""
    return float(weights.sum() ** 2 / max(len(weights) * float(weights @ weights), 1e-300))


def action_support(
    states: Array | VectorsAt,
    dataset: Dataset,
    target: TargetActions,
    weights: FloatArray,
    *,
    seed: int,
    sample: int = _AUDITED,
) -> float:
    """A method's own diagnostic: weighted share of states at which the policy acts as the log does.

    Logged actions are regressed on the state, a = m(s) + noise, and the held-out residuals give the noise's
    deviation sd. A policy's action counts as supported where |pi(s) - m(s)|^2 / sd^2, averaged over action
    dimensions, is at most 4, or at most the 99 % quantile for Gaussian actions of that dimension, if that is
    less. One-hot columns make discrete actions a case of the same rule.

    Args:
        states: a vector per observation row, shape (N + E, k).
        dataset: the logged actions.
        target: the policy's actions at every row.
        weights: how often the policy is expected at each transition, shape (N,). They are estimates, and some
            may be negative: these cancel what noise has added elsewhere.
        seed: draws the sample and the cosines.
        sample: transitions used in each half.
    """
    generator = np.random.default_rng([seed, salts.ACTION_SUPPORT])
    fit, held = sample_halves(dataset, sample, generator, seed)
    actions = [dataset.action_matrix(dataset.actions[part]).astype(np.float64) for part in (fit, held)]
    mean = _predict(states[dataset.rows[fit]], actions[0], states[dataset.rows[held]], generator)
    deviation = np.sqrt(np.mean((actions[1] - mean) ** 2, axis=0))
    deviation = np.maximum(deviation, 1e-3 * max(float(np.abs(actions[1]).max()), 1e-12))
    chosen = target.take(dataset.rows[held])
    dims = mean.shape[1]
    if chosen.exact and dims > FEW_ACTIONS:  # one-hot rows: a table for every row would fill the memory
        misses = (mean / deviation) ** 2
        distance = (misses.sum(axis=1, keepdims=True) - misses + ((1.0 - mean) / deviation) ** 2) / dims
    else:
        distance = np.mean(((chosen.actions - mean[:, None]) / deviation) ** 2, axis=2)
    limit = min(_LIMIT, float(stats.chi2.ppf(_WITHIN, dims)) / dims)
    supported = np.sum(chosen.weights * (distance <= limit), axis=1)
    mass = weights[held]
    if mass.sum() <= _SURE * np.sqrt(np.square(mass).sum()):
        mass = np.maximum(mass, 0.0)  # too few transitions have weight for their noise to cancel
    return float(np.clip(mass @ supported / mass.sum(), 0.0, 1.0)) if mass.sum() > 0.0 else 0.0


@dataclass(frozen=True)
class Audit:
    """What an independent regression predicts of the TD errors.

    Attributes:
        error: root mean square of the predictable part, in the reward's unit.
        rows: transitions that it learned from, for each of its inputs.
    """

    error: float
    rows: float


def predictable_error(
    inputs: Array | VectorsAt,
    td_errors: FloatArray,
    dataset: Dataset,
    *,
    seed: int,
    sample: int = _AUDITED,
) -> Audit:
    """The predictable part of TD errors: is anything left to learn in them?

    At the true value their mean given (s, a) is zero, even if the transitions are noisy, so what an
    independent regression predicts of them on held-out data is Bellman error.

    Args:
        inputs: a vector per transition, state and action together, shape (N, k).
        td_errors: r + discount V(s') - Q(s, a) of every transition, shape (N,).
        dataset: its units are kept apart.
        seed: draws the sample and the cosines.
        sample: transitions used in each half.
    """
    generator = np.random.default_rng([seed, salts.PREDICTABLE_ERROR])
    fit, held = sample_halves(dataset, sample, generator, seed)
    predicted = _predict(inputs[fit], td_errors[fit, None], inputs[held], generator)[:, 0]
    # E[delta m] is the second moment of the predictable part where m is right, and falls where m overfits.
    explained = float(np.mean(td_errors[held] ** 2) - np.mean((td_errors[held] - predicted) ** 2))
    return Audit(float(np.sqrt(max(explained, 0.0))), len(fit) / inputs.shape[1])


def _predict(inputs: Array, outputs: FloatArray, others: Array, generator: np.random.Generator) -> FloatArray:
    """Ridge regression on cosines: predictions at `others`, with the ridge that suits a held-back fifth."""
    basis = _cosines_of(inputs, generator)
    phi = basis(inputs)
    cut = len(phi) - max(len(phi) // 5, 1)
    wide = phi.shape[1] > max(_WIDE, len(phi))
    # The product over rows is most of the work, and the same for every ridge.
    grams = {
        rows: (phi[:rows] @ phi[:rows].T if wide else phi[:rows].T @ phi[:rows]) for rows in (cut, len(phi))
    }
    scale = float(np.square(phi).sum() if wide else np.trace(grams[len(phi)])) / phi.shape[1]

    def solve(rows: int, ridge: float) -> FloatArray:
        known, gram = phi[:rows], grams[rows] + ridge * scale * np.eye(len(grams[rows]))
        if wide:  # the same weights from a system of the rows
            return np.asarray(known.T @ np.linalg.solve(gram, outputs[:rows]))
        return np.asarray(np.linalg.solve(gram, known.T @ outputs[:rows]))

    losses = [float(np.mean((phi[cut:] @ solve(cut, ridge) - outputs[cut:]) ** 2)) for ridge in _RIDGES]
    return np.asarray(basis(others) @ solve(len(phi), _RIDGES[int(np.argmin(losses))]))


def _cosines_of(points: Array, generator: np.random.Generator) -> Callable[[Array], FloatArray]:
    """Fourier features of standardised points, with their linear part and a constant."""
    known = np.asarray(points, dtype=np.float64)
    centre, scale = known.mean(axis=0), known.std(axis=0)
    scale[scale < 1e-8] = 1.0
    # Distances between standardised points grow like sqrt(2 k).
    weights = generator.standard_normal((known.shape[1], _COSINES)) / np.sqrt(known.shape[1])
    phases = generator.uniform(0.0, 2.0 * np.pi, _COSINES)

    def basis(points: Array) -> FloatArray:
        x = (np.asarray(points, dtype=np.float64) - centre) / scale
        return np.concatenate([np.cos(x @ weights + phases), x, np.ones((len(x), 1))], axis=1)

    return basis
