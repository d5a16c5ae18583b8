"""What the search of the book looks through: every section of every page, by its heading and its text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

LEFT_OUT = {"script", "style", "svg", "math", "noscript", "table", "nav"}
BLOCKS = {"p", "li", "div", "section", "h1", "h2", "h3", "pre", "dt", "dd", "figcaption"}


@dataclass
class Section:
    """A section: the page's file, the anchor ('' for the page itself), its heading and its text."""

    page: str
    anchor: str
    heading: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)


class Reader(HTMLParser):
    """Collects the sections of one page, from its <article>."""

    def __init__(self, page: str):
        super().__init__()
        self.page = page
        self.sections: list[Section] = []
        self.open: list[Section] = []
        self.inside = self.silent = 0
        self.in_heading = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "article":
            self.inside += 1
        elif tag in LEFT_OUT:
            self.silent += 1
        elif tag == "section" and self.inside and not self.silent and (name := dict(attributes).get("id")):
            self.sections.append(Section(self.page, name if self.open else ""))
            self.open.append(self.sections[-1])
        elif tag == "section":
            self.open.append(self.open[-1] if self.open else Section(self.page, ""))
        elif tag in ("h1", "h2", "h3"):
            self.in_heading = True
        if tag in BLOCKS:
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self.inside -= 1
        elif tag in LEFT_OUT:
            self.silent -= 1
        elif tag == "section" and self.open:
            self.open.pop()
        elif tag in ("h1", "h2", "h3"):
            self.in_heading = False

    def handle_data(self, data: str) -> None:
        if self.inside and self.open and not self.silent and data != "¶":
            (self.open[-1].heading if self.in_heading else self.open[-1].text).append(data)


def of_page(page: str, html: str) -> list[list[str]]:
    """[page, anchor, the page's title, heading, text] of every section.

    >>> of_page("a.html", '<article><section id="t"><h1>T</h1>a <b>b</b><section id="u"><h2>U</h2>c</section></section></article>')
    [['a.html', '', 'T', 'T', 'a b'], ['a.html', 'u', 'T', 'U', 'c']]
    """
    reader = Reader(page)
    reader.feed(html)
    found = [[each.page, each.anchor, _plain(each.heading), _plain(each.text)] for each in reader.sections]
    return [[name, anchor, found[0][2], heading, text] for name, anchor, heading, text in found if heading]


def _plain(parts: list[str]) -> str:
    return re.sub(r"\s+", " ", "".join(parts)).strip()


def write(texts: dict[Path, str], pages: Path) -> None:
    """Write `_static/sections.js` for these pages."""
    rows = [row for path, text in texts.items() for row in of_page(path.relative_to(pages).as_posix(), text)]
    data = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    (pages / "_static" / "sections.js").write_text(f"flashlearnSections({data});\n", encoding="utf-8")
