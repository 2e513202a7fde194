"""Names of the columns: which array of a file is which argument of `Dataset.from_arrays`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bcrl.data.build.arrays import LoggedArrays, from_arrays, from_transitions
from bcrl.data.dataset import Array, Dataset, Ends
from bcrl.errors import BadInput, did_you_mean

# The names that files use for an argument, in the order in which they are looked for.
NAMES: dict[str, tuple[str, ...]] = {
    "observations": ("observations",),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "terminated": ("terminated", "terminals", "terminations"),
    "truncated": ("truncated", "timeouts", "truncations"),
    "next_observations": ("next_observations",),
    "log_prob": ("log_prob",),
    "cluster": ("cluster",),
    "behaviour": ("behaviour",),
    "cohort": ("cohort",),
    "episode": ("episode",),
    "start_observations": ("start_observations",),
}
_NEEDED = ("observations", "actions", "rewards", "terminated")


def from_named(
    place: str,
    names: Iterable[str],
    read: Callable[[str], Array],
    columns: Mapping[str, str] | None,
    *,
    stack: int = 1,
    num_actions: int | None = None,
    ordered: bool = True,
    ends: Ends | None = None,
) -> Dataset:
    """Build a dataset from the arrays of one file.

    Args:
        place: the file, for messages.
        names: names of the arrays in it; `observations/pixels` is key `pixels` of the observations.
        read: gives an array by name.
        columns: argument -> name of the array, where it differs from the usual ones.
        stack: as in `Dataset.from_arrays`.
        num_actions: as in `Dataset.from_arrays`.
        ordered: False for transitions in no order.
        ends: as in `Dataset.from_arrays`.
    """
    named = names_of(place, names, columns, ordered=ordered)
    found: dict[str, Any] = {argument: each(one, read) for argument, one in named.items()}
    if ordered:
        return from_arrays(
            LoggedArrays(**found, stack=stack, num_actions=num_actions, ends=ends, source=place)
        )
    if "next_observations" not in found:
        raise BadInput(f"{place} lacks next_observations; rows in no order need them.")
    for extra in ("truncated", "episode", "behaviour", "cohort"):
        found.pop(extra, None)
    return from_transitions(LoggedArrays(**found, num_actions=num_actions, source=place))


def names_of(
    place: str, names: Iterable[str], columns: Mapping[str, str] | None, *, ordered: bool = True
) -> dict[str, str | dict[str, str]]:
    """The array of the file that each argument is, by key where they are several; as in `from_named`."""
    present = list(names)
    _check_map(place, columns, present)
    found: dict[str, str | dict[str, str]] = {}
    for argument, usual in NAMES.items():
        wanted = (columns[argument],) if columns and argument in columns else usual
        one = _find(wanted, present)
        if one is not None:
            found[argument] = one
    for argument in _NEEDED:
        if argument not in found:
            raise BadInput(_missing(place, argument, present))
    if ordered and "start_observations" in found:
        raise BadInput(f"{place} holds start_observations, which go with unordered rows; pass ordered=False.")
    return found


def each(one: str | dict[str, str], read: Callable[[str], Any]) -> Any:  # noqa: ANN401 - an array, or some by key
    """What `read` gives for a name, or for each of several by key."""
    return read(one) if isinstance(one, str) else {key: read(name) for key, name in one.items()}


def _find(wanted: tuple[str, ...], present: list[str]) -> str | dict[str, str] | None:
    for name in wanted:
        if name in present:
            return name
        parts = [other for other in present if other.startswith(f"{name}/")]
        if parts:
            return {part.removeprefix(f"{name}/"): part for part in parts}
    return None


def _check_map(place: str, columns: Mapping[str, str] | None, present: list[str]) -> None:
    for argument, name in (columns or {}).items():
        if argument not in NAMES:
            raise BadInput(f"columns has the key {argument!r}. {did_you_mean(argument, NAMES)}")
        if not isinstance(name, str):
            raise BadInput(f"columns[{argument!r}] is {name!r}; expected the name of an array.")
        if name not in present and not any(other.startswith(f"{name}/") for other in present):
            raise BadInput(
                f"{place} has no array {name!r} (columns[{argument!r}]). {did_you_mean(str(name), present)}"
            )


def _missing(place: str, argument: str, present: list[str]) -> str:
    done = next((name for name in ("done", "dones") if name in present), None)
    if argument == "terminated" and done:
        return (
            f"{place} has {done!r}, which does not say whether the world ended or the record stopped. Pass "
            f"columns={{'terminated': {done!r}}} or columns={{'truncated': {done!r}, 'terminated': ...}}."
        )
    return (
        f"{place} lacks {argument} (looked for {', '.join(NAMES[argument])}); it has "
        f"{', '.join(sorted(present)[:12])}. Pass columns={{{argument!r}: NAME}}."
    )
