"""Every picture of the book, in the sharpest form that there is of it: scenes, plots, or what the notebook has stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from flashlearn.show.player import size_of
from tools.book import figures


class Cover(NamedTuple):
    """The first picture of a notebook: where it is, and how it looks where there is much room and little."""

    slug: str
    wide: str
    narrow: str


class Pictures:
    """Writes the files of pictures into the source of the book and gives their figures, as HTML for a page in a folder.

    A slug is the number of a notebook and that of a picture in it, "07-3".
    """

    def __init__(self, source: Path):
        self.folder = source / "frames"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.covers: dict[str, Cover] = {}  # by the number of a notebook
        self.pair = ""  # the first figure of notebook 07 that has two runs next to each other

    def figure(self, slug: str, data: bytes, alt: str, shown: Mapping[str, Any] | None) -> str:
        """The figure of a stored picture, which `alt` describes; `shown` is what the cell displays now."""
        if shown and shown["kind"] == "plot":
            self._cover(slug, shown["wide"], shown["narrow"])
            return figures.plot(slug, shown)
        if shown and "scenes" in shown["run"]:
            return self._scenes(slug, shown["run"], shown["still"], len(shown["titles"]))
        return self._stored(slug, data, alt)

    def _scenes(self, slug: str, run: Mapping[str, Any], still: int, titles: int) -> str:
        self._cover(slug, *figures.unpacked(run["scenes"], still))
        figures.write_scenes(self.folder / f"{slug}.js", run["scenes"])
        figure = figures.run(slug, run, still, f"frames/{slug}.js")
        if slug.startswith("07") and titles == 2:
            self.pair = self.pair or figure
        return figure

    def _stored(self, slug: str, data: bytes, alt: str) -> str:
        """The file as it is: of a painter on axes, whose run it plays."""
        (self.folder / f"{slug}.png").write_bytes(data)
        file, size = f"../frames/{slug}.png", size_of(data)
        self._cover(slug, figures.image(file, "", size))
        return figures.still(slug, file, alt, size)

    def _cover(self, slug: str, wide: str, narrow: str = "") -> None:
        names = (f"{slug}-cover", f"{slug}-small")
        plain = (re.sub(' style="min-width:[^"]*"', "", svg) for svg in (wide, narrow or wide))  # all of it is seen
        wide, narrow = (figures.named(svg, name) for svg, name in zip(plain, names, strict=True))
        self.covers.setdefault(slug[:2], Cover(slug, wide, narrow))
