"""The report: one HTML file with everything in it, made from a `Comparison` (or its JSON) alone.

The page fetches nothing: its own content policy forbids it. That policy also allows one script only, by its
hash, so that text from the data can never become code, even if the escaping missed it.
"""

import base64
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from bcrl.comparison import Comparison
from bcrl.errors import BadInput
from bcrl.estimate import Check, Estimate
from bcrl.report.answers import answers, logged_row, ranked_rows, value_axis
from bcrl.report.budgets import bars
from bcrl.report.drawing import Figure
from bcrl.report.first_words import opening
from bcrl.report.ranking import cohort_rows, ranks
from bcrl.report.sections import (
    difference_rows,
    estimate_pictures,
    inside_panels,
    time_panels,
    training_panels,
)
from bcrl.report.words import (
    VERDICT_SENTENCES,
    VERDICT_WORDS,
    WIDTH_RULES,
    choice_sentence,
    decimals_of,
    decision_sentence,
    half_width,
    interval_text,
    known,
    level_text,
    number,
    percent,
    seconds,
    signed,
    sureness_of_decision,
    title,
    widest,
    width_sentence,
)
from bcrl.writing import atomic_write

_HERE = Path(__file__).parent
_LONGEST_METHOD = 600
_WORDS: tuple[Callable[..., Any], ...] = (
    number, percent, signed, title, seconds, known, interval_text,
    decimals_of, half_width, width_sentence, decision_sentence, sureness_of_decision,
    choice_sentence, bars,
)  # fmt: skip


def write_report(table: Comparison | Estimate, path: str | Path = "report.html") -> Path:
    """Write the page of a comparison, or of a single estimate, and return its path.

    Args:
        table: what `compare` or `evaluate` returned.
        path: the HTML file to write. It is written under another name and then renamed, so that a reader
            never sees half a page.
    """
    path = Path(path)
    text = render(table if isinstance(table, Comparison) else Comparison.of(table))
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))  # names of files may hold half characters
    return path


def render(table: Comparison) -> str:
    """The page as text."""
    if not table.estimates or not all(table.estimates.values()):
        raise BadInput("A report needs an estimate for every policy; one is missing here. Run compare again.")
    on, ranking_axis = value_axis(table), value_axis(table, table.ranking()[0])
    panels = {"inside": inside_panels(table), "time": time_panels(table), "training": training_panels(table)}
    figures = [figure for group in panels.values() for panel in group for figure in panel.figures]
    difference_axis, differences = difference_rows(table)
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    return _environment().get_template("page.html.jinja").render(
        table=table, axis=on, answers=answers(table, on), logged=logged_row(table, on),
        opening=opening(table), ranks=list(zip(ranks(table), ranked_rows(table, ranking_axis), strict=False)),
        ranking_axis=ranking_axis, ranking_logged=logged_row(table, ranking_axis),
        cohorts=cohort_rows(table), ranked_by=table.ranking()[0],
        differences=differences, difference_axis=difference_axis,
        panels=panels, pictures=estimate_pictures(table),
        number_of={id(figure): index for index, figure in enumerate(figures)},
        style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup(script), script_hash=_hash(script),
        data=script_json([_numbers(figure) for figure in figures]), run=run_text(table), timed=_timed(table),
        level=next((level_text(known) for e in _all(table) if (known := widest(e)) is not None), ""),
        budgeted=any(e.budget is not None for e in _all(table)),
        all_budgeted=all(e.budget is not None for e in _all(table)),
        decided=any(d.difference.decision is not None for d in differences),
        method_of={name: index for index, name in enumerate(table.methods)},
    )  # fmt: skip


def run_text(table: Comparison) -> str:
    """What was run, as text to paste into an issue or a notebook."""
    facts: list[tuple[str, Any]] = [
        ("command", table.command),
        ("seed", table.seed),
        ("discount", table.discount),
        ("horizon", table.horizon if table.horizon is not None else "the whole future"),
        ("dataset", table.dataset.get("name")),
        ("dataset hash", table.dataset.get("hash")),
        *((f"method {name}", _short(method)) for name, method in _methods(table).items()),
        ("versions", ", ".join(f"{name} {version}" for name, version in table.versions.items())),
    ]
    return "\n".join(f"{name}: {value}" for name, value in facts if value not in (None, ""))


def script_json(value: object) -> Markup:
    """JSON that is safe inside a script element: no character that could end it, and no NaN."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _short(method: str) -> str:
    """A method's text on one line; a function given by the user may print arrays."""
    line = " ".join(method.split())
    return line if len(line) <= _LONGEST_METHOD else line[: _LONGEST_METHOD - 1] + "…"


def _methods(table: Comparison) -> dict[str, str]:
    return {name: estimate.method for row in table.estimates.values() for name, estimate in row.items()}


def _all(table: Comparison) -> list[Estimate]:
    return [estimate for row in table.estimates.values() for estimate in row.values()]


def _timed(table: Comparison) -> list[tuple[str, int, str, int, Estimate]]:
    return [
        (policy, index, method, table.methods.index(method), estimate)
        for index, (policy, row) in enumerate(table.estimates.items())
        for method, estimate in row.items()
        if estimate.timings
    ]


def _severest_first(checks: Sequence[Check]) -> list[Check]:
    order = ("distrust", "caution", "trust")
    return sorted(checks, key=lambda check: order.index(check.verdict))


def _pairs(keys: Mapping[str, Any] | Sequence[str]) -> list[tuple[str, Any]]:
    return list(keys.items()) if isinstance(keys, Mapping) else [(str(key), None) for key in keys]


def _numbers(figure: Figure) -> dict[str, Any]:
    return {
        "x": [figure.x.low, figure.x.high, figure.x.scale],
        "y": [figure.y.low, figure.y.high, figure.y.scale],
        "label": figure.x_label.removesuffix(", log axis"),
        "lines": [
            {"name": line.name, "slot": line.slot, "x": _rounded(line.x), "y": _rounded(line.y)}
            for line in figure.lines
        ],
    }


def _rounded(values: Any) -> list[float | None]:  # noqa: ANN401 - any array of numbers
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values]


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update({word.__name__: word for word in _WORDS})
    environment.filters.update(severest_first=_severest_first, pairs=_pairs, identity=id)
    environment.globals.update(
        VERDICT_WORDS=VERDICT_WORDS, VERDICT_SENTENCES=VERDICT_SENTENCES, WIDTH_RULES=WIDTH_RULES
    )
    return environment
