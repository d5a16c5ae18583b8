"""Pictures in tests: painted on axes of their own, and what can be read in them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from flashlearn.show.draw.style import STYLE


def painted(draw: Callable, *arguments: Any, size=(12.8, 5.0), layout: str | None = None, render=False) -> Axes:
    """The axes of `draw(ax, *arguments)`, in the style of the course."""
    with style.context(STYLE):
        figure = Figure(figsize=size, dpi=100, layout=layout)
        canvas = FigureCanvasAgg(figure)
        ax = figure.add_subplot() if layout else figure.add_axes((0, 0, 1, 1))
        draw(ax, *arguments)
        if render:
            canvas.draw()
    return ax


def texts(draw: Callable, *arguments: Any, **how: Any) -> list[str]:
    """Every text that `draw` puts on the axes."""
    return [text.get_text() for text in painted(draw, *arguments, **how).texts]


def readable(ax: Axes, *, smallest: float = 13, apart: tuple[float, float] | None = (0, 0)) -> list[tuple[str, Any]]:
    """Check that every text is large enough, inside the figure, and apart from others; (text, extent) of each.

    apart   pixels (across, down) by which two may overlap; None: not checked
    """
    width, height = 100 * ax.figure.get_size_inches()
    shown = [text for text in ax.findobj(Text) if text.get_text().strip() and text.get_visible()]
    found = [(text.get_text(), text.get_window_extent()) for text in shown]
    for text, (words, box) in zip(shown, found, strict=True):
        assert text.get_fontsize() >= smallest, words
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, f"clipped: {words!r}"
    for (words, box), (others, near) in itertools.combinations(found if apart else (), 2):
        across, down = min(box.x1, near.x1) - max(box.x0, near.x0), min(box.y1, near.y1) - max(box.y0, near.y0)
        assert across <= apart[0] or down <= apart[1], f"{words!r} and {others!r} overlap"
    return found
