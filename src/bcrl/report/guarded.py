"""The page of `bcrl guard`: value, honest interval and verdict along the dial, from its JSON alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from bcrl.report.words import VERDICT_WORDS, number
from bcrl.writing import atomic_write

_HERE = Path(__file__).parent


def write_guarded(record: Mapping[str, Any], path: str | Path) -> Path:
    """Write the page of what `GuardedResult.to_dict` gave, and return its path."""
    path = Path(path)
    text = render_guarded(record)
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
    return path


def render_guarded(record: Mapping[str, Any]) -> str:
    """The page as text: a row for each setting, drawn on one axis with the log's own value."""
    ends = [end for row in record["dial"] for end in (row["honest"] or [row["value"]])]
    # The new policy itself may be known so badly that nothing else could be seen beside it.
    guarded = [end for row in record["dial"][:-1] for end in (row["honest"] or [row["value"]])] or ends
    logged = record["logged"]
    low, high = (f([*guarded, *([] if logged is None else [logged])]) for f in (min, max))
    width = max(high - low, 1e-12)

    def place(value: float) -> float:
        return float(min(max(100.0 * (value - low + 0.05 * width) / (1.1 * width), 0.0), 100.0))

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(number=number, place=place)
    return environment.get_template("guarded.html.jinja").render(
        found=record, words=VERDICT_WORDS, style=Markup((_HERE / "page.css").read_text(encoding="utf-8"))
    )
