"""A hook of mkdocs: links out of docs/ become paths, since the site has no such pages."""

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:  # noqa: ANN401 - mkdocs' own
    docs, here = Path(config["docs_dir"]).resolve(), Path(page.file.abs_src_path).parent

    def plain(found: re.Match[str]) -> str:
        target = (here / found[2]).resolve()
        if ":" in found[2] or (target.is_relative_to(docs) and not target.is_dir()):
            return found[0]
        return f"{found[1]} (`{target.relative_to(docs.parent)}`)"

    return _LINK.sub(plain, markdown)
