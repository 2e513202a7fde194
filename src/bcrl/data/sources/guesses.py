"""Which column is which, where nobody said so: by its name, and what is guessed is said.

Our own words (`reward`, `observation_1`, ...) are no guess. Others are looked for in this order, in any case.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

VECTORS = {"observation": "observations", "action": "actions", "next_observation": "next_observations"}
_PEOPLE = "patient_id patient subject_id subject person_id user_id user customer_id customer robot_id robot"
_WHO = tuple(_PEOPLE.split())
USUAL: dict[str, tuple[str, ...]] = {
    "episode": (
        *("episode_id", "trajectory", "trajectory_id", "traj_id", "session_id", "session", "stay_id", "stay"),
        *("icustay_id", "hadm_id", "admission_id", "encounter_id", "visit_id", "visit", *_WHO),
    ),
    "step": (
        *("step", "timestep", "time_step", "t", "time", "timestamp", "datetime", "charttime", "date"),
        *("visit_date", "visit_number", "visit_no", "visit", "day", "hour"),
    ),
    "action": ("action", "actions", "treatment", "arm", "decision", "choice", "dose", "drug"),
    "reward": ("rewards", "outcome", "payoff", "revenue", "click"),
    "propensity": ("propensity_score", "pscore", "action_prob", "action_probability"),
    "log_prob": ("logprob", "action_log_prob"),
    "terminated": ("terminal", "terminals"),
    "truncated": ("timeout", "timeouts"),
    "cluster": _WHO,
    "behaviour": ("behavior", "behaviour_policy", "behavior_policy"),
}
WORDS = (*VECTORS, *USUAL, "cohort")
# Say that something ended, not what: neither a mark nor an observation.
_VAGUE = {"done", "dones", "end", "ended", "last", "discount"}


def by_name(table: Any, given: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401
    """Column names by our words, and which of them are guesses.

    Args:
        table: a pyarrow table.
        given: what the user said; with it, our own words are read still, but of other names only what an
            evaluation cannot do without is looked for.
    """
    names = list(table.column_names)
    found: dict[str, Any] = dict(given or {})
    free = [name for name in names if name not in _names_in(found)]
    for word in VECTORS:
        parts = [name for name in free if name == word or re.fullmatch(rf"{word}_.+", name)]
        if word == "action":
            parts = [name for name in parts if _plain(name) not in _usual_but("action")]
        if parts and word not in found:
            found[word] = sorted(parts, key=_numbered)
    found |= {word: word for word in USUAL if word in free and word not in found}
    own = set(found)
    wanted = [word for word in USUAL if given is None or word in ("episode", "step", "action", "reward")]
    for word in wanted:
        if word not in found and not (word == "episode" and {"terminated", "truncated"} & own):
            name = _usual(table, word, found)
            if name is not None:
                found[word] = name
    if "observation" not in found:
        rest = _observations(table, found)
        if rest:
            found["observation"] = rest
    return found, {word: found[word] for word in found if word not in own}


def _usual(table: Any, word: str, found: Mapping[str, Any]) -> str | None:  # noqa: ANN401
    taken = _names_in({word: name for word, name in found.items() if word != "cohort"})
    named = {_plain(name): name for name in table.column_names if name not in taken}
    for usual in USUAL[word]:
        name = named.get(usual)
        if name is None:
            continue
        if word == "episode" and not _groups(table, name, [named.get(who) for who in _WHO]):
            continue
        if word == "cluster" and not _holds(table, name, found.get("episode")):
            continue
        return str(name)
    return None


def _groups(table: Any, name: str, people: Sequence[str | None]) -> bool:  # noqa: ANN401
    """Whether a column can be the episode: rows share its values, and none of them is two people's.

    A visit's number, counted again for each patient, is a step.
    """
    if len(pc.unique(table[name])) == table.num_rows:
        return False
    return all(who is None or who == name or _holds(table, who, name) for who in people)


def _holds(table: Any, outer: str, inner: Any) -> bool:  # noqa: ANN401
    """Whether each value of `inner` belongs to one value of `outer`, and some value has several."""
    if not isinstance(inner, str) or outer == inner:
        return False
    pairs = pa.table({"o": table[outer], "i": table[inner]}).group_by(["o", "i"]).aggregate([])
    inside = len(pc.unique(table[inner]))
    return bool(pairs.num_rows == inside and len(pc.unique(table[outer])) < inside)


def _observations(table: Any, found: Mapping[str, Any]) -> list[str]:  # noqa: ANN401
    """Every other column of numbers, dates or few words; no ids, no marks of ends, no next rows."""
    taken = _names_in(found)
    return [
        name
        for name in table.column_names
        if name not in taken
        and _plain(name) not in _VAGUE
        and not re.search(r"(^|_)(id|index)$|^next_|^unnamed", _plain(name))
        and _sortable(table, name)
    ]


MOST_LABELS = 30


def _sortable(table: Any, name: str) -> bool:  # noqa: ANN401
    kind = table.schema.field(name).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return len(pc.unique(table[name])) <= MOST_LABELS
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return bool(numeric or pa.types.is_decimal(kind) or pa.types.is_temporal(kind))


def _usual_but(word: str) -> set[str]:
    return {usual for other, names in USUAL.items() if other != word for usual in names}


def _names_in(found: Mapping[str, Any]) -> set[str]:
    return {name for value in found.values() for name in ([value] if isinstance(value, str) else value)}


def _plain(name: str) -> str:
    return re.sub(r"[\s.-]+", "_", name.strip().lower())


def _numbered(name: str) -> tuple[str, int, str]:
    """observation_2 comes before observation_10."""
    stem, _, tail = name.rpartition("_")
    return (stem, int(tail), "") if tail.isdigit() else (stem, -1, tail)
