"""How things print: a recipe as the shortest call that makes it, foreign text as text and nothing else."""

import dataclasses
from typing import Any


def short_call(recipe: Any) -> str:  # noqa: ANN401 - any dataclass of settings
    """`Name(field=value)` with the fields that differ from their defaults; bcrl/methods.py reads such text.

    A recipe that a recipe begins with is always shown, without its name: `LSPE(BellmanComplete(dim=64))`.
    """
    shown = []
    for number, field in enumerate(dataclasses.fields(recipe)):
        value = getattr(recipe, field.name)
        if number == 0 and dataclasses.is_dataclass(value):
            shown.append(repr(value))
        elif field.default_factory is not dataclasses.MISSING and value == field.default_factory():
            continue
        elif value != field.default:
            shown.append(f"{field.name}={value!r}")
    return f"{type(recipe).__name__}({', '.join(shown)})"


def printable(text: object) -> str:
    """Text for one line of a terminal: whatever a terminal would obey or hide is shown as an escape.

    Keys, headers, names and paths come from others. An escape sequence among them could clear the screen or
    paint a verdict; a bidi control could turn a line around; half a character cannot be printed at all.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
