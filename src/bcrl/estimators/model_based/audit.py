"""Audits of a learned world that its held-out predictions, a few steps long, do not make.

`replay_gap`: along logged actions, for 1 / (1 - discount) steps, does the model pay what the log paid? Small
errors add up, and a model that is right for fifteen steps may be wrong at the hundredth. This is measured
from anywhere in the log, and from the episodes' starts, where the value is wanted, for each logging policy
on its own: on finger-turn_hard's mixture the model paid 3 % less than the log from anywhere, and 54 % less
from the stronger policy's starts.

`familiar_share`: does the policy, imagined in the model, stay in states that the log has visited? Pairs
(model state, action) met in imagination, weighted by the discount, are compared with pairs that the model
meets along logged actions. The model made both kinds of states, so its own blur is the same in both. A pair
is familiar if its nearest pair of one half of the units is as near as 99 % of the pairs of the other half
are.

`logged_action_share`: does the log hold actions like the policy's?
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bcrl import salts
from bcrl.data.dataset import Array, Dataset
from bcrl.data.select import some_episodes, split_units, subsample
from bcrl.estimate import Check, FloatArray, Verdict
from bcrl.estimators.model_based.imagine import Rollouts, World
from bcrl.inference.evidence import action_support
from bcrl.inference.inputs import states_of
from bcrl.networks import encode_rows
from bcrl.policies.policy import TargetActions

LOGGED_STEPS = 20  # steps that the model follows the log before a pair is taken
_PAIRS, _PAIRS_FROM_FRAMES = 4096, 1024
_QUANTILE = 0.99
_CONTEXTS, _LONGEST = 256, 200
_ENOUGH_STARTS = 20  # episodes of one policy
_SUPPORT_ROWS, _SUPPORT_FRAMES = 12_000, 2_000


@dataclass(frozen=True)
class ReplayGap:
    """Discounted rewards along logged actions: the model's against the log's.

    Attributes:
        gap: the model's mean sum minus the log's.
        error: its standard error.
        scale: the log's mean absolute sum.
    """

    gap: float
    error: float
    scale: float

    @property
    def relative(self) -> float:
        return abs(self.gap) / self.scale if self.scale > 0.0 else 0.0

    def stats(self) -> dict[str, float]:
        return {"led_gap": self.gap, "led_error": self.error, "led_scale": self.scale}

    def check(self) -> Check:
        noise = 2.0 * self.error / self.scale if self.scale > 0.0 else 0.0
        # A gap within two standard errors may be chance, but above a fifth it is never trusted.
        limit = min(max(0.1, noise), 0.2)
        relative = self.relative
        verdict: Verdict = (
            "trust" if relative <= limit else "caution" if relative <= 0.3 + limit else "distrust"
        )
        compared = "more" if self.gap > 0 else "less"
        meaning = "Along logged actions, for 1 / (1 - discount) steps, the model pays "
        meaning += f"{relative:.0%} {compared} than the log"
        doubt = ": its errors add up, and with the policy's actions they may do so too."
        return Check(
            "led by the log", relative, limit, verdict, meaning + ("." if verdict == "trust" else doubt)
        )


def replay_gap(
    model: World, dataset: Dataset, discount: float, generator: torch.Generator, *, seed: int
) -> ReplayGap:
    """The gap from anywhere in the log or from the starts, whichever is relatively larger.

    Args:
        model: trained.
        dataset: the log.
        discount: of the value; rewards are added up over 1 / (1 - discount) steps, or to the episode's end.
        generator: draws the model's randomness from anywhere.
        seed: draws the transitions to start at, and the model's randomness from the episodes' starts.
    """
    first = np.random.default_rng([seed, salts.FROM_ANYWHERE]).choice(len(dataset), _CONTEXTS)
    anywhere = _gap_from(model, dataset, first, discount, generator)
    own = torch.Generator().manual_seed(seed)
    found = [_gap_from(model, dataset, starts, discount, own) for starts in _starts(dataset, seed)]
    # A logging policy that earns almost nothing is no scale for what others earn.
    scaled = [ReplayGap(at.gap, at.error, max(at.scale, anywhere.scale)) for at in found]
    return max([anywhere, *scaled], key=lambda gap: gap.relative)


def _starts(dataset: Dataset, seed: int) -> list[NDArray[np.int64]]:
    """First transitions of episodes, by logging policy with enough of them; none in a log without order."""
    if not dataset.ordered or dataset.num_episodes < _ENOUGH_STARTS:
        return []
    who = np.zeros(dataset.num_episodes) if dataset.behaviour is None else dataset.behaviour
    numbers = np.random.default_rng([seed, salts.FROM_STARTS])
    groups = [np.flatnonzero(who == name) for name in np.unique(who)]
    return [
        dataset.offsets[subsample(group, _CONTEXTS, numbers)]
        for group in groups
        if len(group) >= _ENOUGH_STARTS
    ]


def _gap_from(
    model: World,
    dataset: Dataset,
    first: NDArray[np.int64],
    discount: float,
    generator: torch.Generator,
) -> ReplayGap:
    reach = int(min(_LONGEST, np.ceil(1.0 / max(1.0 - discount, 1e-9)))) if dataset.ordered else 1
    lengths = np.minimum(reach, dataset.offsets[dataset.episode_of[first] + 1] - first)
    paid, real = np.zeros(len(first)), np.zeros(len(first))
    with torch.no_grad():
        state = model.first_state(dataset.observe(dataset.rows[first]), generator)
        for step in range(int(lengths.max())):
            at, counts = first + np.minimum(step, lengths - 1), discount**step * (step < lengths)
            actions = torch.from_numpy(dataset.action_matrix(dataset.actions[at]))
            # The chance of going on is left out: where the log went on, it is known to be 1.
            state, reward, _ = model.advance(state, actions, generator)
            paid += counts * reward.double().numpy()
            real += counts * dataset.rewards[at]
    # Windows of one episode overlap, so no more than its units count as independent.
    units = min(len(first), len(np.unique(dataset.units[dataset.episode_of[first]])))
    error = float(np.std(paid - real) / np.sqrt(max(units - 1, 1)))
    return ReplayGap(float(np.mean(paid - real)), error, float(np.mean(np.abs(real))))


def familiar_share(
    model: World, dataset: Dataset, played: Rollouts, generator: torch.Generator, *, seed: int
) -> float:
    """Share of the pairs met in imagination that are familiar.

    Args:
        model: trained.
        dataset: the log.
        played: holds the pairs.
        generator: draws the model's randomness.
        seed: draws the logged pairs.
    """
    numbers = np.random.default_rng([seed, salts.FAMILIAR])
    count = (_PAIRS_FROM_FRAMES if dataset.pixel_keys else _PAIRS) // 2
    halves = [
        _replayed_pairs(model, dataset, subsample(half, count, numbers), numbers, generator)
        for half in split_units(dataset, 0.5, seed)
    ]
    scale = [_scale(block) for block in halves[0]]
    known, held, met = (_joined(pair, scale) for pair in (*halves, (played.states, played.actions)))
    tree = cKDTree(known)
    limit = np.quantile(tree.query(held)[0], _QUANTILE)
    return float(np.mean(tree.query(met)[0] <= limit * (1.0 + 1e-9) + 1e-9))


def familiar_check(share: float) -> Check:
    verdict: Verdict = "trust" if share >= 0.8 else "caution" if share >= 0.5 else "distrust"
    meaning = f"{share:.0%} of what the policy meets in the model is like what the log holds"
    doubt = ": elsewhere the model invents what nobody saw."
    return Check("familiar states", share, 0.8, verdict, meaning + ("." if verdict == "trust" else doubt))


def _replayed_pairs(
    model: World,
    dataset: Dataset,
    first: NDArray[np.int64],
    numbers: np.random.Generator,
    generator: torch.Generator,
) -> tuple[Array, Array]:
    """The model's states some logged actions after these transitions, and the logged actions there."""
    lengths = (
        dataset.offsets[dataset.episode_of[first] + 1] - first if dataset.ordered else np.ones_like(first)
    )
    stop = numbers.integers(0, np.minimum(lengths, LOGGED_STEPS))
    actions = dataset.action_matrix(dataset.actions[first + stop])
    with torch.no_grad():
        state = model.first_state(dataset.observe(dataset.rows[first]), generator)
        states = model.vector(state).numpy().copy()
        for step in range(int(stop.max())):
            # Rows that have stopped repeat their last action; what they meet then is not used.
            taken = dataset.action_matrix(dataset.actions[first + np.minimum(step, stop)])
            state, _, _ = model.advance(state, torch.from_numpy(taken), generator)
            here = stop == step + 1
            states[here] = model.vector(state).numpy()[here]
    return states, actions


def _scale(block: Array) -> FloatArray:
    deviation = np.asarray(block, dtype=np.float64).std(axis=0)
    return np.where(deviation > 1e-8, deviation, 1.0)


def _joined(pair: tuple[Array, Array], scale: list[FloatArray]) -> FloatArray:
    """State and action side by side, with equal weight for the two blocks."""
    blocks = [block / unit / np.sqrt(block.shape[1]) for block, unit in zip(pair, scale, strict=True)]
    return np.concatenate(blocks, axis=1, dtype=np.float64)


def logged_action_share(
    model: World, dataset: Dataset, actions: TargetActions, generator: torch.Generator, *, seed: int
) -> float:
    """Share of logged states at which the log holds actions like the policy's; elsewhere the model guesses.

    A state is the log's vectors, or the model's own vector where there are frames only.
    """
    frames_only = len(dataset.pixel_keys) == len(dataset.observations)
    part, rows = some_episodes(dataset, _SUPPORT_FRAMES if frames_only else _SUPPORT_ROWS, seed)

    def encode(seen: dict[str, Array]) -> Array:
        with torch.no_grad():
            return model.vector(model.first_state(seen, generator)).numpy()

    states = encode_rows(encode, part) if frames_only else states_of(part, None)
    return action_support(states, part, actions.take(rows), np.ones(len(part)), seed=seed)
