"""V(s) of the consensus: at each state the median of what pairs of views say there, as for the value.

View i, corrected by view j, is linear in the start, so it says something of every state:

    V_ij(s) = phi_i(s, pi)^T theta_i + phi_j(s, pi)^T A_j^{-1} Phi_j^T delta_i / N

with delta_i the TD errors of view i and A_j the system that view j solved. With a horizon there are no
corrections. One constant makes the mean over the starts the value itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bcrl import salts
from bcrl.data.dataset import Array, Dataset
from bcrl.errors import BadInput
from bcrl.estimate import FloatArray
from bcrl.inference.codes import Codes, drawn
from bcrl.inference.inputs import Inputs
from bcrl.inference.views.features import Cosines, Deviations, Features, Quadratic
from bcrl.inference.views.linear import Linear, View
from bcrl.policies.policy import AnyPolicy
from bcrl.question import Question, Target, actions_for_value

_ROWS = 4_096  # states at a time


@dataclass(frozen=True, eq=False)
class ConsensusValue:
    """The value function of a Consensus.

    Attributes:
        codes: what an observation and an action are to the views.
        views: features and theta of each.
        corrections: of view j, what it corrects in each view's Q, shape (d_j, views); empty with a horizon.
        chosen: the view whose sampling error stands for all.
        shift: added everywhere.
        template: the kind of data that observations come as.
        policy: the evaluated policy.
        seed: draws the actions of a stochastic policy.
    """

    codes: Codes
    views: tuple[Linear, ...]
    corrections: tuple[FloatArray, ...]
    chosen: int
    shift: float
    template: Dataset
    policy: AnyPolicy
    seed: int

    @classmethod
    def of(
        cls,
        views: Sequence[View],
        chosen: int,
        value: float,
        inputs: Inputs,
        question: Question,
        target: Target,
    ) -> Self:
        """From the views that made the value, which is the mean over the starts."""
        linear = tuple(view.linear for view in views if view.linear is not None)
        corrections = () if question.horizon is not None else _corrections(views, linear, inputs)
        made = cls(
            codes=inputs.codes,
            views=linear,
            corrections=corrections,
            chosen=chosen,
            shift=0.0,
            template=question.dataset.template(),
            policy=target.policy,
            seed=question.seed,
        )
        at_starts = made.at(inputs.starts, inputs.start_weights)
        return replace(made, shift=value - float(at_starts.mean()))

    def value(self, observations: Mapping[str, Array]) -> FloatArray:
        return self.at(*self._points(observations))

    def standard_error(self, observations: Mapping[str, Array]) -> FloatArray | None:
        view = self.views[self.chosen]
        if view.root is None:
            return None
        return np.asarray(
            np.linalg.norm(view.features.expected(*self._points(observations)) @ view.root, axis=1)
        )

    def at(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        """V at coded states beside the policy's actions there, (n, m, k), with their weights (n, m)."""
        parts = [slice(first, first + _ROWS) for first in range(0, len(points), _ROWS)]
        return np.concatenate([self._at(points[part], weights[part]) for part in parts] or [np.zeros(0)])

    def _at(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        phis = [view.features.expected(points, weights) for view in self.views]
        said = [phi @ view.theta for phi, view in zip(phis, self.views, strict=True)]
        if self.corrections and len(said) > 1:
            corrected = [phi @ fix for phi, fix in zip(phis, self.corrections, strict=True)]
            said = [
                own + other[:, i] for i, own in enumerate(said) for j, other in enumerate(corrected) if i != j
            ]
        return np.asarray(np.median(said, axis=0) + self.shift)

    def _points(self, observations: Mapping[str, Array]) -> tuple[FloatArray, FloatArray]:
        keyed = self.template.keyed(observations)
        asked = actions_for_value(self.template, self.policy, keyed, self.seed)
        actions = drawn(asked, np.random.default_rng([self.seed, salts.VIEWS, 5]))
        return self.codes.pairs(self.codes.states(keyed), actions.actions), actions.weights

    def tensors(self) -> dict[str, Array]:
        kept: dict[str, Array | None] = {
            f"codes.{name}": getattr(self.codes, name)
            for name in ("centre", "scale", "projection", "directions", "spread")
        }
        for i, view in enumerate(self.views):
            own = {"theta": view.theta, "root": view.root} | _arrays(view.features)
            if self.corrections:
                own["correction"] = self.corrections[i]
            kept |= {f"{i}.{name}": array for name, array in own.items()}
        return {name: array for name, array in kept.items() if array is not None}

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "consensus",
            "seed": self.seed,
            "chosen": self.chosen,
            "shift": self.shift,
            "pixel_keys": list(self.codes.pixel_keys),
            "views": [_spec(view.features) for view in self.views],
        }


def _corrections(views: Sequence[View], linear: Sequence[Linear], inputs: Inputs) -> tuple[FloatArray, ...]:
    """What each view corrects in every view's Q, a column each. Features are made again: to keep those of
    all views would take a gigabyte."""
    td = np.stack([view.td for view in views if view.td is not None], axis=1)
    return tuple(
        np.asarray(np.linalg.solve(one.system, one.features.logged(inputs).T @ td / len(td)))
        for one in linear
        if one.system is not None
    )


def _arrays(features: Features) -> dict[str, NDArray[Any]]:
    if isinstance(features, Deviations):
        inner = {"levels": _arrays(features.levels), "slopes": _arrays(features.slopes)}
        return {"scale": features.scale} | {
            f"{part}.{name}": array for part, arrays in inner.items() for name, array in arrays.items()
        }
    if isinstance(features, Cosines):
        return {"directions": features.directions, "phases": features.phases}
    assert isinstance(features, Quadratic)
    return {"directions": features.directions}


def _spec(features: Features) -> dict[str, Any]:
    if isinstance(features, Deviations):
        return {"kind": "deviations", "width": features.width, "squares": features.squares}
    return {"kind": "cosines" if isinstance(features, Cosines) else "quadratic"}


def _features(spec: Mapping[str, Any], arrays: Mapping[str, Array]) -> Features:
    if spec["kind"] == "deviations":
        levels, slopes = (
            Cosines(arrays[f"{part}.directions"], arrays[f"{part}.phases"]) for part in ("levels", "slopes")
        )
        return Deviations(levels, slopes, arrays["scale"], int(spec["width"]), bool(spec["squares"]))
    if spec["kind"] == "cosines":
        return Cosines(arrays["directions"], arrays["phases"])
    if spec["kind"] == "quadratic":
        return Quadratic(arrays["directions"])
    raise BadInput(f"Cannot restore features of kind {spec['kind']!r}. Was it saved by a newer bcrl?")


def restore(spec: dict[str, Any], tensors: Mapping[str, Array], **context: Any) -> ConsensusValue:  # noqa: ANN401
    """The value function that `spec` and `tensors` came from; `context` has the template and the policy."""
    groups: dict[str, dict[str, Array]] = {}
    for name, array in tensors.items():
        group, rest = name.split(".", 1)
        groups.setdefault(group, {})[rest] = array
    own, kept = groups["codes"], [groups[str(i)] for i in range(len(spec["views"]))]
    codes = Codes(
        tuple(spec["pixel_keys"]),
        own["centre"],
        own["scale"],
        own.get("projection"),
        own.get("directions"),
        own["spread"],
    )
    views = tuple(
        Linear(_features(one, arrays), arrays["theta"], np.zeros(0), None, arrays.get("root"))
        for one, arrays in zip(spec["views"], kept, strict=True)
    )
    corrections = tuple(arrays["correction"] for arrays in kept if "correction" in arrays)
    chosen, shift, seed = int(spec["chosen"]), float(spec["shift"]), spec["seed"]
    template, policy = context["template"], context["policy"]
    return ConsensusValue(codes, views, corrections, chosen, shift, template, policy, seed)
