"""What a cell was made with, by content: options and their numbers, never a class's name.

A method is the list of its options, each as the text `name=value`, with the fields that it lies in:
`LSPE(CURL(head=Head(hidden=256)))` has `representation.head.hidden=256`. Seeds, tasks and policies are in
the cell's own name; what is left are the profile's numbers.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

from bcrl_bench.experiments.baseline import method_of
from bcrl_bench.experiments.profile import Experiment, Profile

# Options of an image encoder; cells that see vectors alone do not depend on them.
PIXEL_OPTIONS = ("pixels", "feature_dim", "conv_layers", "channels", "strides", "shift", "crop")
Options = Mapping[str, list[str]]


def cell_settings(profile: Profile, experiment: Experiment) -> dict[str, Any]:
    """What a cell's number depends on, besides its name: the profile's numbers and the method's options."""
    method = method_of(profile, experiment.method)
    return profile.settings(experiment) | {"options": options_of(method, pixels=profile.pixels is not None)}


def options_of(method: Any, *, pixels: bool) -> dict[str, list[str]]:  # noqa: ANN401
    """A method's options, sorted: `chosen` differ from the class's default, `default` do not."""
    options: dict[str, list[str]] = {"chosen": [], "default": []}

    def collect(part: Any, usual: Any, within: str) -> None:  # noqa: ANN401
        for field in dataclasses.fields(part):
            if field.name in PIXEL_OPTIONS and not pixels:
                continue
            value, default = getattr(part, field.name), _default(field, usual)
            if dataclasses.is_dataclass(value):
                collect(value, default if type(default) is type(value) else None, f"{within}{field.name}.")
            else:
                text = f"{within}{field.name}={_text(value)}"
                options["default" if _text(value) == _text(default) else "chosen"].append(text)

    collect(method, None, "")
    return {kind: sorted(texts) for kind, texts in options.items()}


def same_settings(made: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a cell that was `made` with these settings answers for the `wanted` ones.

    Under the same text of the method, an option that only one side knows (it came or went since) must stand
    at its default there. Under another text the options must be the same ones: a class may have a new name,
    not a new meaning.
    """
    besides = ("method", "options")
    if {k: v for k, v in made.items() if k not in besides} != {
        k: v for k, v in wanted.items() if k not in besides
    }:
        return False
    return same_options(made["options"], wanted["options"], strict=made["method"] != wanted["method"])


def same_options(made: Options, wanted: Options, *, strict: bool = False) -> bool:
    """Whether every option that both know has the same value, and every other is at its default; `strict`:
    there is none.
    """
    before, now = (Counter(options["chosen"] + options["default"]) for options in (made, wanted))
    gone, come = before - now, now - before
    if strict or _names(gone) & _names(come):
        return not gone and not come
    return gone <= Counter(made["default"]) and come <= Counter(wanted["default"])


def _names(options: Mapping[str, int]) -> set[str]:
    return {option.partition("=")[0] for option in options}


def _default(field: Any, usual: Any) -> Any:  # noqa: ANN401 - a field of any type
    """A field's usual value: in the object that its owner has by default, or the class's own default."""
    if usual is not None:
        return getattr(usual, field.name)
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _text(value: Any) -> str:  # noqa: ANN401 - a number, a word, None or a tuple of these
    """The same text for 1 and 1.0, which are the same setting."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_text, value))})"
    return repr(int(value) if isinstance(value, float) and value.is_integer() else value)
