"""What the templates of `book/theme` need in addition to what Sphinx says of a page: its part of the course, its place in it."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

from flashlearn.course import MINUTES
from flashlearn.show.course import STAGES

STYLES = ("player.css", "explorer.css", "question.css", "scene.css", "book.css")


def about(app: Sphinx | None, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Add to the context of a page: `styles`, `kind` (a class of its body), `over` (the line above its title), `place`."""
    folder, _, name = page.rpartition("/")
    context |= {"styles": STYLES, "kind": folder or "page", "over": "", "place": ""}
    number = name[:2]
    part = next((stage.part for stage in STAGES if stage.number == number), None)
    if folder == "notebooks" and part is not None:
        appendix = name.endswith("_appendix")
        what, minutes = ("Appendix to notebook", "") if appendix else ("Notebook", f"{MINUTES[number]} minutes")
        context |= {
            "kind": "chapter",
            "over": " · ".join(filter(None, (f"{what} {number}", part, minutes))),
            "place": f"{int(number)} of {int(STAGES[-1].number)}",
        }


def without_number(title: str) -> str:
    """A notebook's title without its number, which is above it.

    >>> without_number("# 03 · Online softmax")
    '# Online softmax'
    """
    return re.sub(r"^# \d\d · ", "# ", title)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what templates need."""
    app.connect("html-page-context", about)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
