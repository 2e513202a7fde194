"""Stable-Baselines3 (and sb3-contrib) policies, from a live model or rebuilt from its zip (sb3_zip.py).

The action is what `model.predict(observation, deterministic=True)` gives: images are transposed, boxes
rescaled or clipped as SB3 does. With stochastic=True the action's own distribution is used: exactly for
discrete actions (epsilon-greedy for DQN, with the exploration rate that training ended on), drawn for
continuous ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.policies.files import PolicyFile
from bcrl.policies.kinds import Deterministic, Discrete, Stochastic
from bcrl.policies.normaliser import Normaliser
from bcrl.policies.policy import Options

AnyKind = Deterministic | Stochastic | Discrete


@dataclass(frozen=True, eq=False)
class Sb3Model:
    """An SB3 policy as a function of observations.

    Attributes:
        policy: SB3's own policy object.
        name: how messages call it.
        answer: "mode" for the deterministic action, "distribution", or "epsilon" for epsilon-greedy
            probabilities.
        epsilon: exploration rate, or the standard deviation of Gaussian noise when `answer` is "noise".
        normaliser: VecNormalize statistics.
    """

    policy: Any
    name: str
    answer: str
    epsilon: float = 0.0
    normaliser: Normaliser | None = None

    def __call__(self, observations: Any) -> Any:  # noqa: ANN401
        import torch

        if self.normaliser is not None:
            observations = self.normaliser(observations)
        self._check(observations)
        if self.answer == "distribution":
            self.policy.set_training_mode(False)
            with torch.no_grad():
                return _distribution(self.policy, self.policy.obs_to_tensor(observations)[0])
        actions = np.asarray(self.policy.predict(observations, deterministic=True)[0])
        if self.answer == "noise":
            from torch.distributions import Independent, Normal

            return Independent(Normal(torch.as_tensor(actions), self.epsilon), actions.ndim - 1)
        return actions if self.answer == "mode" else self._epsilon_greedy(actions)

    def _epsilon_greedy(self, actions: Array) -> NDArray[np.float64]:
        count = int(self.policy.action_space.n)
        return np.asarray((1.0 - self.epsilon) * np.eye(count)[actions.reshape(-1)] + self.epsilon / count)

    def _check(self, observations: Any) -> None:  # noqa: ANN401
        spaces = getattr(self.policy.observation_space, "spaces", None)
        if spaces is None:
            if isinstance(observations, Mapping):
                raise BadInput(
                    f"{self.name} reads one array; the observations have the keys {sorted(observations)}. "
                    "Say which: reads='key'."
                )
            self._fits(self.policy.observation_space, observations, "observations")
        elif isinstance(observations, Mapping):
            for key, space in spaces.items():
                self._fits(space, observations[key], repr(key))
        else:
            raise BadInput(
                f"{self.name} reads a dict with the keys {sorted(spaces)}; the observations are one array."
            )

    def _fits(self, space: Any, array: Array, what: str) -> None:  # noqa: ANN401 - a gymnasium space
        shape = array.shape[1:]
        turned = (shape[-1], *shape[:-1]) if len(shape) == 3 else shape
        if space.shape not in (shape, turned):
            raise BadInput(
                f"{self.name} wants {what} of shape {space.shape}; the data has {shape}. Is it for another "
                "task?"
            )


def live_sb3(model: Any, options: Options) -> AnyKind:  # noqa: ANN401 - a BaseAlgorithm
    """The policy of a model that is already in memory."""
    exploration = getattr(model, "exploration_rate", None)
    return adapt(model.policy, f"The {type(model).__name__} model", exploration, options)


def adapt(
    policy: Any,  # noqa: ANN401 - SB3's BasePolicy
    name: str,
    exploration: float | None,
    options: Options,
    file: PolicyFile | None = None,
) -> AnyKind:
    """An SB3 policy as the kind that the options ask for."""
    options.only("a Stable-Baselines3 policy", "stats", "stochastic", "noise")
    discrete = _require_supported(policy, name, options.num_actions)
    space, keys = policy.action_space, getattr(policy.observation_space, "spaces", None)
    source = options.source(file)
    source["reads"] = tuple(keys) if options.reads is None and keys is not None else options.reads
    if options.noise > 0.0:
        if discrete:
            raise BadInput(f"{name} has discrete actions; noise= is for continuous ones.")
        noisy = Sb3Model(policy, name, "noise", options.noise, options.stats)
        return Stochastic(respond=noisy, bounds=(space.low, space.high), **source)
    if not options.stochastic:
        return Deterministic(respond=Sb3Model(policy, name, "mode", 0.0, options.stats), **source)
    if exploration is not None and discrete:
        return Discrete(
            respond=Sb3Model(policy, name, "epsilon", float(exploration), options.stats), **source
        )
    _require_distribution(policy, name)
    respond = Sb3Model(policy, name, "distribution", 0.0, options.stats)
    if discrete:
        return Discrete(respond=respond, **source)
    return Stochastic(
        respond=respond, bounds=None if policy.squash_output else (space.low, space.high), **source
    )


def _require_supported(policy: Any, name: str, num_actions: int | None) -> bool:  # noqa: ANN401
    """Refuse what cannot be evaluated; whether the actions are discrete."""
    from gymnasium import spaces

    parents = {parent.__name__ for parent in type(policy).__mro__}
    if "RecurrentActorCriticPolicy" in parents:
        raise BadInput(
            f"{name} is recurrent; policies that carry a state from step to step cannot be evaluated."
        )
    if "MaskableActorCriticPolicy" in parents:
        raise BadInput(
            f"{name} needs action masks, which the data does not hold; wrap it in a function that makes them."
        )
    space = policy.action_space
    if not isinstance(space, spaces.Box | spaces.Discrete):
        raise BadInput(f"{name} has {type(space).__name__} actions; bcrl evaluates Box and Discrete ones.")
    if isinstance(space, spaces.Discrete) and num_actions is not None and int(space.n) != num_actions:
        raise BadInput(
            f"{name} chooses among {space.n} actions; the data has {num_actions}. Is it for another task?"
        )
    return isinstance(space, spaces.Discrete)


def _require_distribution(policy: Any, name: str) -> None:  # noqa: ANN401
    actor = getattr(policy, "actor", None)
    if getattr(policy, "use_sde", False) or getattr(actor, "use_sde", False):
        raise BadInput(
            f"{name} explores with gSDE, whose noise lasts over steps and is no function of the state; leave "
            "stochastic=True out."
        )
    if not hasattr(policy, "get_distribution") and not hasattr(actor, "get_action_dist_params"):
        raise BadInput(
            f"{name} is deterministic and has no distribution; leave stochastic=True out, or use noise=0.1."
        )


def _distribution(policy: Any, observations: Any) -> Any:  # noqa: ANN401
    import torch
    from torch import distributions as td

    space = policy.action_space
    if hasattr(policy, "get_distribution"):
        inner = policy.get_distribution(observations).distribution
        if isinstance(inner, td.Categorical):
            return inner
        return td.Independent(
            td.Normal(*(_shaped(part, space) for part in (inner.mean, inner.stddev))), len(space.shape)
        )
    mean, log_std, _ = policy.actor.get_action_dist_params(observations)
    base = td.Independent(td.Normal(_shaped(mean, space), _shaped(log_std.exp(), space)), len(space.shape))
    low, high = (
        torch.as_tensor(edge, dtype=mean.dtype, device=mean.device) for edge in (space.low, space.high)
    )
    to_box = td.AffineTransform((high + low) / 2, (high - low) / 2)
    return td.TransformedDistribution(base, [td.TanhTransform(cache_size=1), to_box])


def _shaped(part: Any, space: Any) -> Any:  # noqa: ANN401 - a tensor and a Box
    return part.reshape(len(part), *space.shape)
