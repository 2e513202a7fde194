"""What the doctor finds in the log: first in single rows, then in episodes.

Columns are read some rows at a time, so that memory does not grow with a mapped log; medians and quantiles
are those of a million rows, evenly spaced.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Dataset, centred, deviation, first_bad, pieces
from bcrl.doctor.copies import NEAR, examine_copies
from bcrl.doctor.findings import Bearing, Finding
from bcrl.doctor.hidden import LEAST_ENDS, LEAST_EPISODES, hidden_groups, random_ends
from bcrl.doctor.images import examine_images
from bcrl.doctor.probabilities import examine_probabilities

FloatArray = NDArray[np.float64]
# The name of the check that LSPE and FQE make of the same fact: it is told once.
_UNITS = "independent units"
_LIMITS = "time limits marked as ends"


def examine_rows(dataset: Dataset) -> Iterator[Finding]:
    """Findings that need one row at a time only."""
    yield from _finite(dataset)
    for key, value in dataset.observations.items():
        yield from examine_images(key, value, dataset.stack) if value.ndim >= 3 else _vectors(key, value)
    yield from _rewards(dataset)
    yield from _discrete(dataset) if dataset.discrete else _continuous(dataset)
    yield from _probabilities(dataset)


# Beyond these, squares overflow: of rewards in float64, of actions in float32.
_LARGEST = {"rewards": 1e100, "actions": 1e15}


def _finite(dataset: Dataset) -> Iterator[Finding]:
    advice = "Fill it in, or leave that episode out."
    for key, value in dataset.observations.items():
        row = first_bad(value)
        if row is not None:
            what = f"observations[{key!r}] holds NaN or infinity."
            yield Finding("error", what, _observation_place(dataset, row), advice)
    for name in ("actions", "rewards", "log_prob"):
        column = getattr(dataset, name)
        row = None if column is None else first_bad(column)
        if row is not None:
            yield Finding("error", f"{name} holds NaN or infinity.", _step_place(dataset, row), advice)
        elif name in _LARGEST and (reach := float(_reach(column).max(initial=0.0))) > _LARGEST[name]:
            what = f"{name} reach {reach:.3g}; expected at most {_LARGEST[name]:g}."
            yield Finding("error", what, f"the column {name}", "Divide by a constant, or mend the row.")


def _vectors(key: str, value: Array) -> Iterator[Finding]:
    if value.dtype.kind != "f" or first_bad(value) is not None:
        return
    name, flat = f"observations[{key!r}]", np.asarray(value).reshape(len(value), -1)
    still = np.flatnonzero(np.all([(flat[piece] == flat[0]).all(axis=0) for piece in pieces(flat)], axis=0))
    if len(still):
        every = len(still) == flat.shape[1]
        what = f"{'All' if every else len(still)} columns of {name} never change."
        do = "Leave them out if they carry no information."
        yield Finding("warning" if every else "note", what, f"columns {_listed(still)}", do)
    large = _reach(flat)
    wild = np.flatnonzero(large > 1e6)
    if len(wild):
        row = _farthest(flat[:, wild[0]], 0.0)
        what = f"{name} column {wild[0]} reaches {large[wild[0]]:.3g}."
        do = "Check the unit, and whether this number means 'missing'."
        # A large unit does no harm; one large number squeezes all others together when columns are scaled.
        lonely = any(_far_out(flat[:, column]) for column in wild)
        bears = Bearing("one number far out") if lonely else None
        yield Finding("warning", what, f"row {row}", do, bears)


def _reach(array: Array) -> FloatArray:
    """The largest size in each column."""
    flat = array.reshape(len(array), -1)
    if not len(flat):
        return np.zeros(flat.shape[1])
    return np.asarray(np.max([np.abs(flat[piece]).max(axis=0) for piece in pieces(flat)], axis=0))


def _farthest(column: Array, centre: float) -> int:
    """The first row that lies as far from a number as any."""
    low, high = int(column.argmin()), int(column.argmax())
    below, above = centre - float(column[low]), float(column[high]) - centre
    return min(low, high) if below == above else low if below > above else high


_MOST_ROWS = 1_000_000  # that a median or a quantile is of


def _some(column: Array) -> FloatArray:
    """At most a million numbers of a column, evenly spaced."""
    step = max(1, -(-len(column) // _MOST_ROWS))
    return np.asarray(column[::step], dtype=np.float64)


def _rewards(dataset: Dataset) -> Iterator[Finding]:
    rewards = dataset.rewards
    if not len(rewards) or first_bad(rewards) is not None:
        return
    low, high = float(rewards.min()), float(rewards.max())
    if low == high:
        what = f"Every reward is {low:g}: all policies look alike."
        yield Finding("warning", what, "every row", "Check that rewards were recorded.")
        return
    yield Finding(
        "note",
        f"Rewards lie in [{low:g}, {high:g}], mean {rewards.mean():.4g}.",
        "every row",
        "The value is in this unit.",
    )
    some = _some(rewards)
    centre = float(np.median(some))
    typical = float(np.quantile(np.abs(some - centre), 0.999))
    row = _farthest(rewards, centre)
    if len(rewards) >= 1000 and abs(rewards[row] - centre) > 100.0 * max(typical, 1e-12):
        what = f"One reward is {rewards[row]:g}, more than 100 times as far out as 99.9% of them."
        do = "Check that it is not a mistake: it decides the answer."
        bears = Bearing("one reward far out") if _far_out(rewards) else None
        yield Finding("warning", what, _step_place(dataset, row), do, bears)


def _far_out(column: Array) -> bool:
    """Whether at most three numbers lie 100 times as far out as 99 % do. More are no slip: rare rewards."""
    some = _some(column)
    centre = float(np.median(some))
    far = 100.0 * max(float(np.quantile(np.abs(some - centre), 0.99)), 1e-12)
    count = sum(
        int((np.abs(column[piece].astype(np.float64) - centre) > far).sum()) for piece in pieces(column)
    )
    return 0 < count <= 3


def _continuous(dataset: Dataset) -> Iterator[Finding]:
    actions = np.asarray(dataset.actions).reshape(len(dataset), -1)
    if first_bad(actions) is not None:
        return
    whole = _whole_numbers(actions) if actions.shape[1] == 1 else 0
    if whole:
        what = f"actions are {whole} whole numbers stored as {actions.dtype}."
        yield Finding(
            "warning", what, "every row", "If they are discrete, pass them as integers or give num_actions."
        )
        return
    low, high = actions.min(axis=0), actions.max(axis=0)
    still = np.flatnonzero(low == high)
    if len(still):
        what = "Some action columns are constant: the data says nothing about other values."
        yield Finding(
            "warning", what, f"columns {_listed(still)}", "Expect no answer for policies that move them."
        )
    outside = np.flatnonzero((low < -1.001) | (high > 1.001))
    if len(outside):
        column = int(outside[0])
        row = _farthest(actions[:, column], 0.0)
        what = f"actions leave [-1, 1]: column {column} lies in [{low[column]:.4g}, {high[column]:.4g}]."
        do = "This is right if the policy acts on the same scale; check it with --policy."
        yield Finding("note", what, _step_place(dataset, row), do)
    bound = 0.999 * np.maximum(np.abs(low), np.abs(high)).clip(1e-12)
    edge = sum(int((np.abs(actions[piece]) >= bound).sum()) for piece in pieces(actions)) / actions.size
    if edge > 0.5 and not len(still):
        what = f"{edge:.0%} of the logged actions are at the edge of their range."
        yield Finding("note", what, "every row", "The data hardly cover actions inside the range.")


def _whole_numbers(column: Array) -> int:
    """How many different numbers there are, all of them whole; 0 for others, and for more than 32."""
    found: set[float] = set()
    for piece in pieces(column):
        some = np.unique(column[piece])
        found.update(some.tolist())
        if len(found) > 32 or (some != np.round(some)).any():
            return 0
    return len(found)


def action_counts(dataset: Dataset) -> NDArray[np.int64]:
    """How often each discrete action was taken."""
    total = np.zeros(dataset.action_dim, dtype=np.int64)
    for piece in pieces(dataset.actions):
        total += np.bincount(dataset.actions[piece], minlength=dataset.action_dim)
    return total


def _discrete(dataset: Dataset) -> Iterator[Finding]:
    counts = action_counts(dataset)
    never = np.flatnonzero(counts == 0)
    if len(counts) - len(never) == 1:
        what = f"Every logged action is {int(np.argmax(counts))}: no other action can be judged."
        yield Finding("warning", what, "every row", "Log data in which actions vary.")
    elif len(never):
        what = f"{len(never)} of {len(counts)} actions were never taken."
        yield Finding(
            "warning", what, f"actions {_listed(never)}", "Policies that take them cannot be judged."
        )


def _probabilities(dataset: Dataset) -> Iterator[Finding]:
    log_prob = dataset.log_prob
    if log_prob is None or not len(log_prob) or first_bad(log_prob) is not None:
        return
    low, high = log_prob.min(), log_prob.max()
    if dataset.discrete and high > 1e-6:
        row = int(np.argmax(log_prob))
        what = f"log_prob is {log_prob[row]:.4g}: a probability above 1."
        yield Finding(
            "error", what, _step_place(dataset, row), "Pass logarithms of probabilities, not probabilities."
        )
    elif dataset.discrete and low == high == 0.0:
        what = "log_prob is 0 everywhere: the logging policy never chose at random."
        do = "Importance weights cannot work; use another method."
        yield Finding("warning", what, "every row", do, Bearing("log_prob", log_prob=True))
    elif 0.0 <= low < high <= 1.0:
        what = "log_prob lies in [0, 1] everywhere: these look like probabilities, not their logarithms."
        bears = Bearing("log_prob", log_prob=True)
        yield Finding("warning", what, "every row", "Pass np.log(probability).", bears)
    else:
        yield from examine_probabilities(dataset, log_prob)


def _listed(items: Array) -> str:
    return ", ".join(map(str, items[:8].tolist())) + (" ..." if len(items) > 8 else "")


def examine_episodes(dataset: Dataset) -> Iterator[Finding]:
    """Findings about episodes; for unordered transitions, only what makes sense without order."""
    if not dataset.ordered:
        yield from _unordered(dataset)
        return
    yield from _inside(dataset)
    yield from _ends(dataset)
    yield from _successes(dataset)
    yield from _counts(dataset)
    yield from _repeats(dataset)
    yield from _starts(dataset)
    if dataset.cluster is None and dataset.num_episodes >= LEAST_EPISODES:
        yield from hidden_groups(dataset)
    yield from _dropped(dataset)


def _dropped(dataset: Dataset) -> Iterator[Finding]:
    where, do = "ends of episodes", "Pass next_observations to keep them."
    if dataset.dropped_reward > 0.0:
        share = dataset.dropped_reward / (dataset.dropped_reward + float(np.abs(dataset.rewards).sum()))
        what = (
            f"{dataset.dropped} last rows of episodes were dropped with their reward, {share:.0%} of all "
            "reward in size: what happens there is missing from the value."
        )
        do = "Pass next_observations to keep them, or ends='terminated' if the world ended there."
        yield Finding(
            "warning", what, where, do, Bearing("dropped reward", beyond=int(dataset.lengths.min()))
        )
    elif dataset.dropped:
        what = (
            f"{dataset.dropped} rows were dropped: the last of a truncated episode has no next observation."
        )
        yield Finding("note", what, where, do)


def _unordered(dataset: Dataset) -> Iterator[Finding]:
    if dataset.given_starts is None:
        what = "The transitions have no order, and no start states were given."
        yield Finding(
            "warning", what, "start_observations", "Pass start_observations, or starts= to evaluate."
        )
    if not dataset.terminated.any():
        yield Finding(
            "note", "No transition terminates.", "terminated", "This is right for a task that never ends."
        )
    if dataset.cluster is None:
        what = "Each transition counts as independent: the interval is too narrow if they come from episodes."
        yield Finding("note", what, "cluster", "Pass cluster= with the episode or person of each transition.")


def _inside(dataset: Dataset) -> Iterator[Finding]:
    last = dataset.offsets[1:] - 1
    for name in ("terminated", "truncated"):
        flag = getattr(dataset, name)
        count = int(np.count_nonzero(flag)) - int(np.count_nonzero(flag[last]))
        if count:
            what = f"{name} is set inside an episode, {count} times."
            inside = np.array(flag)
            inside[last] = False
            where = _step_place(dataset, int(inside.argmax()))
            yield Finding("error", what, where, "Begin a new episode after that row.")
    silent = last[~(dataset.terminated[last] | dataset.truncated[last])]
    if len(silent):
        what = f"{len(silent)} episodes end with neither terminated nor truncated; they count as truncated."
        yield Finding("note", what, _step_place(dataset, int(silent[0])), "Mark their last row as truncated.")
    twice = [
        piece.start + np.flatnonzero(dataset.terminated[piece] & dataset.truncated[piece])
        for piece in pieces(dataset.terminated)
    ]
    both = np.concatenate([np.zeros(0, dtype=np.int64), *twice])
    if len(both):
        what = f"{len(both)} rows are both terminated and truncated; they count as terminated."
        do = "Clear terminated where only a time limit was reached."
        # A world that ends at the very step of the time limit is rare: one in many is no mistake.
        many = len(both) > 0.02 * dataset.num_episodes
        bears = (
            Bearing(_LIMITS, beyond=int(dataset.lengths[dataset.episodes_at(both)].min())) if many else None
        )
        yield Finding("warning", what, _step_place(dataset, int(both[0])), do, bears)


def _ends(dataset: Dataset) -> Iterator[Finding]:
    lengths, ended = dataset.lengths, dataset.terminated[dataset.offsets[1:] - 1]
    if dataset.num_episodes < 2:
        return
    if ended.all() and lengths.min() == lengths.max() and lengths.max() > 1:
        what = (
            f"ALL {len(lengths)} EPISODES ARE TERMINATED AFTER EXACTLY {lengths[0]} STEPS: probably a time "
            "limit, not the world's end. Every value will be too small in size, as if nothing came "
            "afterwards."
        )
        do = "Mark these rows truncated, not terminated, unless the task itself ends after that many steps."
        bears = None if _shows_the_end(dataset) else Bearing(_LIMITS, beyond=int(lengths[0]))
        yield Finding("warning", what, f"row {lengths[0] - 1} of every episode", do, bears)
    elif not ended.any() and lengths.max() > 1.2 * lengths.min():
        what = f"No episode terminates, and their lengths differ ({lengths.min()} to {lengths.max()})."
        do = (
            "If the world ended in some, mark their last row terminated: otherwise the value counts "
            "rewards after the end."
        )
        yield Finding("warning", what, f"episode {int(lengths.argmin())}, last row", do)
    elif not ended.any():
        what = f"No episode terminates; all are cut off after about {int(np.median(lengths))} steps."
        yield Finding(
            "note",
            what,
            "terminated",
            "This is right for a task that never ends: the value counts rewards after the cut too.",
        )
    longest = int((lengths == lengths.max()).sum())
    if ended.all() and lengths.min() != lengths.max() and longest > max(5, 0.2 * len(lengths)):
        what = f"{longest} of {len(lengths)} episodes end terminated at the longest length, {lengths.max()}."
        do = "If that is a time limit, mark those last rows truncated, not terminated."
        spike = longest > 3 * int((lengths == lengths.max() - 1).sum()) and not _shows_the_end(dataset)
        bears = Bearing(_LIMITS, beyond=int(lengths.max())) if spike else None
        yield Finding("warning", what, f"episode {int(lengths.argmax())}, last row", do, bears)
    if ended.sum() >= LEAST_ENDS and np.ptp(lengths[ended]) > 0:
        yield from random_ends(dataset)


def _successes(dataset: Dataset) -> Iterator[Finding]:
    """One and the same reward at every end of the world, and no other: nothing shows what a failure is."""
    last = dataset.offsets[1:] - 1
    paid = dataset.rewards[last]
    if dataset.num_episodes < 2 or not dataset.terminated[last].all() or not (paid == paid[0]).all():
        return
    if paid[0] > 0.0 and np.count_nonzero(dataset.rewards) == dataset.num_episodes:
        what = (
            f"All {len(last)} episodes end in success, and nothing else is rewarded: no failure was logged."
        )
        do = "Add the attempts that failed; demonstrations alone cannot say how often a policy fails."
        yield Finding("warning", what, "last rows of episodes", do, Bearing("successes only", "distrust"))


def _shows_the_end(dataset: Dataset) -> bool:
    """Whether some column of the observation (a clock, a stage) lies beyond a line at last steps only.

    Then methods can learn when the world ends, and that it does so after so many steps is no odd thing.
    """
    end = dataset.offsets[1:] - 1 + np.arange(dataset.num_episodes)
    for value in dataset.observations.values():
        if value.ndim > 2 or len(dataset) == dataset.num_episodes:
            continue
        flat = value.reshape(len(value), -1)
        at, lows, highs = flat[end], [], []
        for piece in pieces(flat):
            here = np.ones(piece.stop - piece.start, dtype=np.bool_)
            for rows in (end, end + 1):  # a last step, and what follows it, is no step before
                here[rows[(rows >= piece.start) & (rows < piece.stop)] - piece.start] = False
            if here.any():
                lows.append(flat[piece][here].min(axis=0))
                highs.append(flat[piece][here].max(axis=0))
        low, high = np.min(lows, axis=0), np.max(highs, axis=0)
        if ((at.min(axis=0) > high) | (at.max(axis=0) < low)).any():
            return True
    return False


def _counts(dataset: Dataset) -> Iterator[Finding]:
    units = dataset.num_units
    word = "episodes" if dataset.cluster is None else "clusters"
    if units == 1:
        what = f"There is one independent unit ({word[:-1]}): no interval can be computed from it."
        do = "Log more episodes, or mark where episodes end."
        yield Finding("warning", what, "the whole dataset", do, Bearing(_UNITS))
    elif units < 10:
        what = f"There are only {units} independent {word}: intervals will be wide and inexact."
        do = f"Log more {word}; 30 or more is the usual minimum."
        yield Finding("warning", what, "the whole dataset", do, Bearing(_UNITS))
    if len(dataset) < 200:
        what = f"There are only {len(dataset)} transitions."
        do = "Expect no trustworthy answer from so few."
        yield Finding("warning", what, "the whole dataset", do, Bearing("few transitions"))


def _repeats(dataset: Dataset) -> Iterator[Finding]:
    """Episodes that may be copies: alike in eight numbers that each is pressed into."""
    columns = list(_columns(dataset))
    with np.errstate(over="ignore", invalid="ignore"):
        marks = _pressed(dataset, columns)
        order = np.lexsort(marks.T)
        near = np.abs(np.diff(marks[order], axis=0)).max(axis=1, initial=0.0) <= NEAR
    near &= np.diff(dataset.lengths[order]) == 0
    if near.any():
        pairs = np.stack([order[:-1][near], order[1:][near]], axis=1)
        yield from examine_copies(dataset, columns, np.sort(pairs, axis=1))


def _columns(dataset: Dataset) -> Iterator[tuple[Array, bool]]:
    """Rewards, actions and vectors as (n, k), and whether the rows are observations (one more an episode)."""
    yield dataset.rewards[:, None], False
    yield np.asarray(dataset.actions).reshape(len(dataset), -1), False
    for value in dataset.observations.values():
        if value.ndim <= 2:
            yield np.asarray(value).reshape(len(value), -1), True


def _pressed(dataset: Dataset, columns: list[tuple[Array, bool]]) -> FloatArray:
    """Eight numbers an episode, of about unit size: random sums over its rows and columns."""
    generator = np.random.default_rng(0)
    in_time = generator.normal(size=(int(dataset.lengths.max()) + 1, 8))
    found = np.zeros((dataset.num_episodes, 8))
    for column, observed in columns:
        lengths = dataset.lengths + observed
        begins = np.cumsum(lengths) - lengths
        spread = deviation(column)
        weights = generator.normal(size=(column.shape[1], 8)) / np.sqrt(max(column.shape[1], 1))
        weights /= np.where(spread > 0.0, spread, 1.0)[:, None]
        for piece in pieces(column):
            row = np.arange(piece.start, piece.stop)
            owner = np.searchsorted(begins, row, side="right") - 1
            mixed = _around_first(column, piece) @ weights * in_time[row - begins[owner]]
            first, stop = int(owner[0]), int(owner[-1]) + 1
            for k in range(8):
                sums = np.bincount(owner - first, weights=mixed[:, k])
                found[first:stop, k] += sums / np.sqrt(lengths[first:stop])
    return found


def _around_first(column: Array, piece: slice) -> FloatArray:
    """Some rows of a column as `centred` has them."""
    return centred(np.concatenate([column[:1], column[piece]]))[1:]


def _starts(dataset: Dataset) -> Iterator[Finding]:
    if dataset.num_episodes < 2:
        return
    rows = dataset.start_rows[
        np.linspace(0, dataset.num_episodes - 1, min(dataset.num_episodes, 512)).astype(np.int64)
    ]
    starts = [np.asarray(value[rows]).reshape(len(rows), -1) for value in dataset.observations.values()]
    if all((start == start[0]).all() for start in starts):
        what = "All episodes start in the same observation: the value is for that one start."
        yield Finding(
            "note", what, "first rows of episodes", "This is right if the task always starts there."
        )
    if dataset.num_episodes == len(dataset) and len(dataset) > 1:
        what = "Every episode has one transition."
        do = "Right for one-step decisions; otherwise terminated or truncated is set in every row by mistake."
        yield Finding("warning", what, "every row", do)


def _step_place(dataset: Dataset, transition: int) -> str:
    """A transition by episode and row within it."""
    episode = int(dataset.episodes_at(np.array([transition]))[0])
    return f"episode {episode}, row {transition - int(dataset.offsets[episode])} (transition {transition})"


def _observation_place(dataset: Dataset, row: int) -> str:
    """An observation row by episode and row within it."""
    starts = dataset.start_rows
    episode = int(starts.searchsorted(row, side="right")) - 1
    return f"episode {episode}, observation {row - int(starts[episode])} (row {row})"
