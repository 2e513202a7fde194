"""Policies that decide once for k steps: the log as a semi-Markov decision process.

A policy of action chunks looks at s_t and gives the actions of steps t to t + k - 1. Taken together they are
one decision, which earns sum_j discount^j r_{t+j} and leads to s_{t+k}, discounted by discount^k. Its value
from the start states is the same number in the same unit (Sutton, Precup and Singh 1999):

    chunks = action_chunks(dataset, 8, discount=0.99)
    bcrl.evaluate(chunks, policy, discount=0.99**8)          # policy: (n, ...) observations -> (n, 8, action)

Frames stay where they are. A world that ends within a chunk ends the chunk, whose missing actions repeat the
last one; where a record stops within one, nobody knows what the chunk would have earned, and it is left out.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from bcrl.data.dataset import LABELS, Dataset, is_pixels
from bcrl.data.frames import select_rows
from bcrl.errors import BadInput


def action_chunks(dataset: Dataset, steps: int, *, discount: float) -> Dataset:
    """The log in decisions of `steps` steps each.

    Args:
        dataset: ordered episodes of continuous actions.
        steps: k.
        discount: of one step. The question about the chunks has discount**steps, and a horizon in chunks.
    """
    dataset.require_order("action_chunks")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise BadInput(f"steps is {steps!r}; expected a whole number from 1.")
    if not 0.0 <= discount <= 1.0:
        raise BadInput(f"discount is {discount!r}; expected a number in [0, 1].")
    if dataset.discrete:
        raise BadInput(
            "Chunks of discrete actions have no numbering; action_chunks needs continuous actions."
        )
    if dataset.stack > 1:
        raise BadInput(
            f"stack is {dataset.stack}: frames of chunks lie {steps} steps apart, which the policy does not "
            "know. Load the data with stack=1."
        )
    lengths = dataset.lengths
    ended = dataset.terminated[dataset.offsets[1:] - 1]
    counts = np.where(ended, -(-lengths // steps), lengths // steps)
    kept = np.flatnonzero(counts)
    if not len(kept):
        raise BadInput(f"No episode has {steps} steps; the longest has {lengths.max()}. Ask for fewer.")
    owner = np.repeat(kept, counts[kept])
    offsets = np.concatenate([[0], np.cumsum(counts[kept])]).astype(np.int64)
    within = (np.arange(len(owner)) - np.repeat(offsets[:-1], counts[kept])) * steps
    last = dataset.offsets[1:][owner] - 1
    each = (dataset.offsets[:-1][owner] + within)[:, None] + np.arange(steps)
    inside = each <= last[:, None]
    each = np.minimum(each, last[:, None])
    final = np.isin(np.arange(len(owner)), offsets[1:] - 1)
    begins = dataset.start_rows
    stops = np.minimum(counts * steps, lengths)[kept]
    rows = np.insert(begins[owner] + within, offsets[1:], begins[kept] + stops)
    log_prob = None if dataset.log_prob is None else (dataset.log_prob[each] * inside).sum(axis=1)
    chosen: dict[str, Any] = {
        name: np.asarray(getattr(dataset, name))[kept]
        for name in LABELS
        if getattr(dataset, name) is not None
    }
    terminated = final & ended[owner]
    return replace(
        dataset,
        observations={
            key: select_rows(value, rows) if is_pixels(value) else np.asarray(value[rows])
            for key, value in dataset.observations.items()
        },
        actions=np.asarray(dataset.actions)[each],
        rewards=(dataset.rewards[each] * inside) @ np.power(float(discount), np.arange(steps)),
        terminated=terminated,
        truncated=final & ~terminated,
        offsets=offsets,
        log_prob=log_prob,
        dropped=dataset.dropped + len(dataset) - int(inside.sum()),
        **chosen,
    )
