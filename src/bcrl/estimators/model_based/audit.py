"""Two audits of a learned world that its held-out predictions, a few steps long, do not make.

`familiar_share`: does the policy, imagined in the model, stay where the log has been? Pairs (model state, action) met in
imagination, as often as the discount counts them, are held against pairs that the model meets when it is led by logged
actions: both are states that the model made itself, so its own blur does not tell them apart. A pair is familiar if its
nearest pair of one half of the units is as near as those of the other half almost all are.

`led_by_the_log`: led by logged actions for as long as the discount looks ahead, does the model pay what the log paid?
Small errors compound, and a model that is right for fifteen steps may fall over by the hundredth. Asked from anywhere in the
log, and from the episodes' starts, where the value is asked for, of each logging policy on its own: on finger-turn_hard's
mixture the model paid 3 % less than the log from anywhere, and 54 % less from the stronger policy's starts.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bcrl import salts
from bcrl.data.dataset import Array, Dataset
from bcrl.data.select import split_units, subsample
from bcrl.estimate import Check, FloatArray
from bcrl.estimators.model_based.imagine import Simulator

LED_STEPS = 20
_PAIRS, _PAIRS_FROM_FRAMES = 4096, 1024
_QUANTILE = 0.99
_CONTEXTS, _LONGEST = 256, 200
_ENOUGH_STARTS = 20  # episodes of one policy


def familiar_share(
    model: Simulator,
    dataset: Dataset,
    imagined: tuple[Array, Array],
    generator: torch.Generator,
    *,
    seed: int,
) -> float:
    """Share of imagined pairs that are familiar.

    Args:
        model: trained.
        dataset: the log.
        imagined: states (n, k) and actions (n, A) met in imagination.
        generator: draws the model's randomness.
        seed: draws the logged pairs.
    """
    numbers = np.random.default_rng([seed, salts.FAMILIAR])
    count = (_PAIRS_FROM_FRAMES if dataset.pixel_keys else _PAIRS) // 2
    halves = [
        _led(model, dataset, subsample(part, count, numbers), numbers, generator)
        for part in split_units(dataset, 0.5, seed)
    ]
    scale = [_scale(block) for block in halves[0]]
    known, held, met = (_joined(pair, scale) for pair in (*halves, imagined))
    tree = cKDTree(known)
    limit = np.quantile(tree.query(held)[0], _QUANTILE)
    return float(np.mean(tree.query(met)[0] <= limit * (1.0 + 1e-9) + 1e-9))


Led = tuple[float, float, float]  # discounted rewards by the model minus by the log, standard error, scale


def led_by_the_log(
    model: Simulator, dataset: Dataset, discount: float, generator: torch.Generator, *, seed: int
) -> Led:
    """The gap from anywhere in the log or from the starts, whichever is further off.

    Args:
        model: trained.
        dataset: the log.
        discount: of the value; rewards are added up over 1 / (1 - discount) steps, or to the end of the logged episode.
        generator: draws the model's randomness from anywhere.
        seed: draws the transitions to begin at, and the model's randomness from the starts.
    """
    begin = np.random.default_rng([seed, salts.FROM_ANYWHERE]).choice(len(dataset), _CONTEXTS)
    anywhere = _led_from(model, dataset, begin, discount, generator)
    own = torch.Generator().manual_seed(seed)
    found = [_led_from(model, dataset, starts, discount, own) for starts in _starts(dataset, seed)]
    # A logging policy that earns next to nothing is no scale for what others earn.
    scaled = [(gap, error, max(scale, anywhere[2])) for gap, error, scale in found]
    return max([anywhere, *scaled], key=lambda led: abs(led[0]) / led[2] if led[2] > 0.0 else 0.0)


def _starts(dataset: Dataset, seed: int) -> list[NDArray[np.int64]]:
    """First transitions of episodes, of each logging policy that has enough of them; none where nothing is in order."""
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


def _led_from(
    model: Simulator,
    dataset: Dataset,
    begin: NDArray[np.int64],
    discount: float,
    generator: torch.Generator,
) -> Led:
    reach = int(min(_LONGEST, np.ceil(1.0 / max(1.0 - discount, 1e-9)))) if dataset.ordered else 1
    room = np.minimum(reach, dataset.offsets[dataset.episode_of[begin] + 1] - begin)
    paid, real = np.zeros(len(begin)), np.zeros(len(begin))
    with torch.no_grad():
        state = model.begin(dataset.observe(dataset.rows[begin]), generator)
        for step in range(int(room.max())):
            at, counts = begin + np.minimum(step, room - 1), discount**step * (step < room)
            actions = torch.from_numpy(dataset.action_matrix(dataset.actions[at]))
            # The chance of going on is left out: where the log went on, it is known to be 1.
            state, reward, _ = model.advance(state, actions, generator)
            paid += counts * reward.double().numpy()
            real += counts * dataset.rewards[at]
    # Windows of one episode overlap, so no more than its units count as independent.
    units = min(len(begin), len(np.unique(dataset.units[dataset.episode_of[begin]])))
    error = float(np.std(paid - real) / np.sqrt(max(units - 1, 1)))
    return float(np.mean(paid - real)), error, float(np.mean(np.abs(real)))


def led_check(gap: float, error: float, scale: float) -> Check:
    relative, noise = (abs(gap) / scale, 2.0 * error / scale) if scale > 0.0 else (0.0, 0.0)
    # Luck excuses a gap of up to a fifth, no more: a model that few episodes can vouch for is not to be trusted.
    limit = min(max(0.1, noise), 0.2)
    verdict = "trust" if relative <= limit else "caution" if relative <= 0.3 + limit else "distrust"
    return Check(
        "led by the log",
        relative,
        limit,
        verdict,  # type: ignore[arg-type]
        f"Led by logged actions as far as the discount looks, the model pays {relative:.0%} "
        + ("more" if gap > 0 else "less")
        + " than the log"
        + (
            "."
            if verdict == "trust"
            else ": its errors compound, and with the policy's actions they may do so too."
        ),
    )


def familiar_check(share: float) -> Check:
    verdict = "trust" if share >= 0.8 else "caution" if share >= 0.5 else "distrust"
    return Check(
        "familiar states",
        share,
        0.8,
        verdict,  # type: ignore[arg-type]
        f"{share:.0%} of what the policy meets in the model is like what the log holds"
        + ("." if verdict == "trust" else ": elsewhere the model makes up what nobody saw."),
    )


def _led(
    model: Simulator,
    dataset: Dataset,
    begin: NDArray[np.int64],
    numbers: np.random.Generator,
    generator: torch.Generator,
) -> tuple[Array, Array]:
    """The model's states after 0 to LED_STEPS logged actions from these transitions, and the logged actions there."""
    room = dataset.offsets[dataset.episode_of[begin] + 1] - begin if dataset.ordered else np.ones_like(begin)
    stop = numbers.integers(0, np.minimum(room, LED_STEPS))
    seen = dataset.observe(dataset.rows[begin])
    actions = dataset.action_matrix(dataset.actions[begin + stop])
    with torch.no_grad():
        state = model.begin(seen, generator)
        codes = model.code(state).numpy().copy()
        for step in range(int(stop.max())):
            # Those that have stopped go on with their last action; what they meet is no longer read.
            taken = dataset.action_matrix(dataset.actions[begin + np.minimum(step, stop)])
            state, _, _ = model.advance(state, torch.from_numpy(taken), generator)
            here = stop == step + 1
            codes[here] = model.code(state).numpy()[here]
    return codes, actions


def _scale(block: Array) -> FloatArray:
    deviation = np.asarray(block, dtype=np.float64).std(axis=0)
    return np.where(deviation > 1e-8, deviation, 1.0)


def _joined(pair: tuple[Array, Array], scale: list[FloatArray]) -> FloatArray:
    """State and action side by side, each block as heavy as the other."""
    blocks = [block / unit / np.sqrt(block.shape[1]) for block, unit in zip(pair, scale, strict=True)]
    return np.concatenate(blocks, axis=1, dtype=np.float64)
