"""A still picture as a widget: in a notebook an image in an output can have no alternative text, but this one has."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import ClassVar

import anywidget
from traitlets import Bytes, Int, Unicode

from flashlearn.show.bundle import browser_text


class Still(anywidget.AnyWidget):
    """A picture with its words. `projected()` gives its bytes, plain or for a projector; `width` is in pixels."""

    all: ClassVar[weakref.WeakSet[Still]] = weakref.WeakSet()
    _esm = Unicode(browser_text("saved.js", "still.js")).tag(sync=True)
    png = Bytes().tag(sync=True)
    alt = Unicode().tag(sync=True)
    width = Int().tag(sync=True)

    def __init__(self, projected: Callable[[], bytes], alt: str, width: int):
        self.projected = projected
        super().__init__(png=projected(), alt=alt, width=width)
        Still.all.add(self)

    def paint(self) -> None:
        """Show it plain or for a projector, as `frame.look` says."""
        self.png = self.projected()
