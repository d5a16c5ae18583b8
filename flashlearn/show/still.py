"""A still picture as a widget: in a notebook an image in an output can have no alternative text, but this one has."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import anywidget
from traitlets import Bytes, Int, Unicode

from flashlearn.show.bundle import browser_text

if TYPE_CHECKING:
    from flashlearn.show.animation import Picture


class Still(anywidget.AnyWidget):
    """A picture with its words, plain or for a projector."""

    all: weakref.WeakSet[Still] = weakref.WeakSet()
    _esm = Unicode(browser_text("saved.js", "still.js")).tag(sync=True)
    png = Bytes().tag(sync=True)
    alt = Unicode().tag(sync=True)
    width = Int().tag(sync=True)

    def __init__(self, picture: Picture):
        self.picture = picture
        super().__init__(png=picture.projected(), alt=picture.alt, width=picture.size[0])
        Still.all.add(self)

    def paint(self) -> None:
        """Show it plain or for a projector, as `frame.look` says."""
        self.png = self.picture.projected()
