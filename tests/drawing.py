"""Pictures in tests: painted on axes of their own, and what can be read in them."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from flashlearn.show.draw.scene import SMALLEST, Scene, Shape, paint
from flashlearn.show.draw.style import STYLE

LARGEST = 15_000  # bytes of a usual frame


def painted(draw: Callable, *arguments: Any, size=(12.8, 5.0), layout: str | None = None, render=False) -> Axes:
    """The axes of `draw(ax, *arguments)`, in the style of the course."""
    with style.context(STYLE):
        figure = Figure(figsize=size, dpi=100, layout=layout)
        canvas = FigureCanvasAgg(figure)
        ax = figure.add_subplot() if layout else figure.add_axes((0, 0, 1, 1))
        if len(arguments) == 1 and hasattr(arguments[0], "so_far"):
            paint(draw, ax, arguments[0])
        else:
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


def sound(scene: Scene, usual: bool = True, apart: float = 3.0) -> Scene:
    """The scene, once its SVG is well formed and its words are inside, large enough and apart from others.

    usual   whether it must fit into `LARGEST` bytes
    apart   pixels by which words may overlap, across and down
    """
    text = scene.svg("a picture")
    root = ET.fromstring(text)
    assert not usual or len(text.encode()) <= LARGEST, len(text)
    found = [element.get("data-id") for element in root.iter() if element.get("data-id")]
    assert len(found) == len(set(found)), sorted(name for name in found if found.count(name) > 1)
    words = [item for item in scene.words() if item.text.strip()]
    for item in words:
        box = item.box
        assert item.type.size >= SMALLEST, item.text
        assert box.x >= -1 and box.y >= -1, f"clipped: {item.text!r}"
        assert box.right <= scene.width + 1 and box.bottom <= scene.height + 1, f"clipped: {item.text!r}"
    for one, other in itertools.combinations(words, 2):
        a, b = one.box, other.box
        across, down = min(a.right, b.right) - max(a.x, b.x), min(a.bottom, b.bottom) - max(a.y, b.y)
        assert across <= apart or down <= apart, f"{one.text!r} and {other.text!r} overlap"
    for item in scene.walk():
        if isinstance(item, Shape):
            xs, ys = zip(*(point for ring in item.rings for point in ring), strict=True)
            assert min(*xs, 0) >= -3 and min(*ys, 0) >= -3, item
            assert max(xs) <= scene.width + 3 and max(ys) <= scene.height + 3, item
    return scene
