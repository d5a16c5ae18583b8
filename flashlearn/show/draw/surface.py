"""What frames are painted on: matplotlib's pixels, which all frames of one size share, one after the other.

Three quarters of the time to fill them goes into words, most of which are in the next frame too, at the same place.
So their sizes, which matplotlib keeps with the pixels, and the pictures of their letters are there for the next frame.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg

MOST = 1000  # words in their places that are kept, some 5 KB each; a picture has up to 150


class Surface(FigureCanvasAgg):
    """The canvas of a frame."""

    def get_renderer(self) -> RendererAgg:
        """The pixels of this size, of this thread."""
        return _pixels(*self.get_width_height(physical=True), self.figure.dpi, threading.get_ident())


class _Pixels(RendererAgg):
    """Pixels that know the letters of words they have seen; colour and clipping are not part of them."""

    _renderer: Any  # matplotlib's own part in C++

    def __init__(self, width: int, height: int, dpi: float):
        super().__init__(width, height, dpi)
        self._seen: dict[tuple, list[tuple]] = {}

    def draw_text(self, gc, *text: Any, **how: Any) -> None:
        """Words as matplotlib has them: x, y, words, font, angle. Formulas are left to it: not all in them is letters."""
        if len(text) > 5 or how.get("ismath"):
            return super().draw_text(gc, *text, **how)
        x, y, s, prop, angle = text
        key = x, y, s, hash(prop), angle, gc.get_antialiased()
        if key not in self._seen:
            if len(self._seen) >= MOST:
                self._seen.clear()
            self._seen[key] = self._letters(gc, *text, **how)
        for letter in self._seen[key]:
            self._renderer.draw_text_image(*letter, gc)

    def _letters(self, *text: Any, **how: Any) -> list[tuple]:
        """The letters that matplotlib would paint now."""
        letters = _Letters()
        painter, self._renderer = self._renderer, letters
        try:
            super().draw_text(*text, **how)
        finally:
            self._renderer = painter
        return letters.kept


class _Letters:
    """Takes the pictures of letters in place of the pixels."""

    def __init__(self) -> None:
        self.kept: list[tuple] = []

    def draw_text_image(self, image, x: int, y: int, angle: float, gc) -> None:
        """One letter; a copy, for the font paints the next one there."""
        self.kept.append((np.array(image), x, y, angle))


@lru_cache(maxsize=4)
def _pixels(width: int, height: int, dpi: float, thread: int) -> RendererAgg:
    return _Pixels(width, height, dpi)
