"""What the log says about one policy's answers, whichever method gave them: measured once, used by all.

Everything is in the reward's own unit or a share. `Evidence.of` asks the independent views (views.py);
`unlike_actions` looks at logged actions near each state.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl import salts
from bcrl.data.dataset import Array
from bcrl.estimate import Estimate, FloatArray
from bcrl.inference.views import (
    WIDTHS,
    Inputs,
    LinearParts,
    View,
    chain_view,
    cosines,
    inputs_of,
    linear_view,
    quadratic,
    returns_view,
)
from bcrl.question import Question, Target

_NEAR = 30  # logged states that are compared with
_STATES = 1_500  # states at which support is looked at


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the views and the log say about one policy.

    Attributes:
        inputs: transitions that the views looked at.
        views: their answers.
        lifetime: discounted steps that the policy is expected to live.
        unsupported: share of its expected steps at which no logged action near the state is like its own.
        novelty: how far the policy's steps lie from logged ones, in distances between logged episodes.
        scale: the log's mean discounted sum of |reward|.
        highest, lowest: discounted return of the best and the worst logged episode, closed where it was cut.
        spread: standard deviation of logged episodes' returns.
    """

    inputs: Inputs
    views: tuple[View, ...]
    lifetime: float
    unsupported: float
    novelty: float
    scale: float
    highest: float
    lowest: float
    spread: float

    @classmethod
    def of(cls, question: Question, target: Target) -> "Evidence":
        """About a second for 20,000 transitions."""
        inputs = inputs_of(question, target)
        generator = np.random.default_rng([question.seed, salts.VIEWS, 2])
        discount, horizon = question.discount, question.horizon
        views: list[View] = []
        for width in WIDTHS:
            features = cosines(inputs, width, generator)
            view, parts = linear_view(f"cosines {width:g}", features, inputs, discount, horizon)
            views.append(view)
            if horizon is None and inputs.has_after.any():
                views.append(returns_view(f"returns {width:g}", features, parts, view, inputs, discount))
        views.append(linear_view("quadratic", quadratic(inputs), inputs, discount, horizon)[0])
        chain, novelty = chain_view(inputs, discount, horizon)
        views.append(chain)
        returns = _episode_returns(inputs, parts, discount, horizon)
        sizes = _sums(inputs, np.abs(inputs.rewards), discount, horizon)
        return cls(
            inputs=inputs,
            views=tuple(view for view in views if math.isfinite(view.value)),
            lifetime=float(chain.weights.sum()),
            unsupported=unlike_actions(inputs, chain.weights, generator),
            novelty=novelty,
            scale=float(sizes.mean()),
            highest=float(returns.max()),
            lowest=float(returns.min()),
            spread=float(returns.std()),
        )

    def corrections(self, td: FloatArray) -> dict[str, float]:
        """What each view's weights would add to a value whose Q has these TD errors, by view."""
        return {
            view.name: float(view.weights @ td) for view in self.views if not view.name.startswith("returns")
        }

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


def _episode_returns(inputs: Inputs, parts: LinearParts, discount: float, horizon: int | None) -> FloatArray:
    """Each episode's discounted return, closed where its record was cut and that can be done."""
    if parts.returns is None:
        return _sums(inputs, inputs.rewards, discount, horizon)
    return np.asarray(parts.returns[inputs.logged_starts])


def td_of(
    q: Callable[[Mapping[str, Array], NDArray[np.float32]], FloatArray],
    question: Question,
    target: Target,
    inputs: Inputs,
) -> FloatArray:
    """TD errors r + discount Q(s', pi) - Q(s, a) of the views' transitions under a method's Q."""
    dataset, rows = question.dataset, question.dataset.rows[inputs.transitions]
    result = np.empty(len(rows))
    step = 256 if dataset.pixel_keys else 8_192
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        here = q(
            dataset.observe(rows[part]), dataset.action_matrix(dataset.actions[inputs.transitions[part]])
        )
        ahead, chosen = dataset.observe(rows[part] + 1), target.actions.take(rows[part] + 1)
        following = np.zeros(len(here))
        for k in range(chosen.weights.shape[1]):
            following += chosen.weights[:, k] * q(ahead, np.ascontiguousarray(chosen.actions[:, k]))
        following[inputs.terminated[part]] = 0.0
        result[part] = inputs.rewards[part] + question.discount * following - here
    return result


def unlike_actions(inputs: Inputs, weights: FloatArray, generator: np.random.Generator) -> float:
    """Share of the policy's expected steps at which its action is unlike all logged ones near the state.

    Looked at are the states that follow the transitions which the policy is expected at: a transition itself
    was chosen because its action is like the policy's. Unlike: farther from the nearest of the `_NEAR` logged
    actions at the nearest states (other episodes) than nine in ten of these are from their own nearest one.
    So the noise is measured where the policy is, and without the misfit of a regression.
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
        usual = np.quantile(between.min(axis=2), 0.9, axis=1)
        reach = np.linalg.norm(asked[:, :, None, width:] - actions[:, None], axis=3).min(axis=2)
        outside += float((inputs.following_weights[block] * (reach > usual[:, None] + 1e-3)).sum())
    return outside / len(rows)


def measured(estimate: Estimate, evidence: Evidence, question: Question, target: Target) -> dict[str, float]:
    """All numbers that the budget of one estimate is made from, by name, for `stats`."""
    numbers = {
        "lifetime": evidence.lifetime,
        "unsupported": evidence.unsupported,
        "novelty": evidence.novelty,
        "scale": evidence.scale,
        "highest_return": evidence.highest,
        "lowest_return": evidence.lowest,
        "return_spread": evidence.spread,
        "rows": float(len(evidence.inputs.here)),
        "inputs": float(evidence.inputs.here.shape[1]),
    }
    numbers |= {f"view {view.name}": view.value for view in evidence.views}
    numbers |= {f"logged {v.name}": v.logged for v in evidence.views if math.isfinite(v.logged)}
    numbers |= {
        f"effective {v.name}": _effective(v.weights) for v in evidence.views if "returns" not in v.name
    }
    q = getattr(estimate.value_function, "q", None)
    if q is not None and question.horizon is None and math.isfinite(estimate.value):
        td = td_of(q, question, target, evidence.inputs)
        numbers["td_rms"] = float(np.sqrt(np.mean(td**2)))
        numbers |= {f"correction {name}": value for name, value in evidence.corrections(td).items()}
    return {f"evidence/{name}": value for name, value in numbers.items()}


def _effective(weights: FloatArray) -> float:
    """Share of the transitions that the weights rest on: (sum w)^2 / (n sum w^2)."""
    return float(weights.sum() ** 2 / max(len(weights) * float(weights @ weights), 1e-300))
