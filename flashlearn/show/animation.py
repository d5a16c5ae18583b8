"""Pictures as notebooks store them, an animated PNG of a run or a still one of a plot, both with alt text.

An animated PNG is an ordinary picture: no script, so it moves on a code host too and prints as a still.
"""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.display import display
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flashlearn.core.inputs import check_bool
from flashlearn.show.bundle import parts
from flashlearn.show.draw.scene import Scene
from flashlearn.show.draw.style import STYLE
from flashlearn.show.frame import DPI, look, table_html, thicken
from flashlearn.show.inputs import check_alt, check_draw, check_figsize

WIDTH = 12.8  # inches of a scene as it is stored
_moving = not os.environ.get("FLASHLEARN_REDUCED_MOTION")


def reduced_motion(on: bool = True) -> None:
    """Let every run that is played from now on be stored as its still, with all its steps in words.

    FLASHLEARN_REDUCED_MOTION=1, set before Python starts, does so from the beginning.
    """
    global _moving
    check_bool(on, "on")
    _moving = not on


def moving() -> bool:
    """Whether runs are stored as animations."""
    return _moving


class Picture:
    """A PNG with its alternative text; displays itself in a notebook, where its words are those of the image.

    `transcript` has one line per frame of an animation, and `steps` one row of a table per step (`frame.table`);
    both are empty for a still picture.
    """

    def __init__(self, png: bytes, alt: str, size: tuple[int, int], transcript: tuple[str, ...] = (), steps=()):
        self.png, self.alt, self.size = png, check_alt(alt), size
        self.transcript, self.steps = transcript, list(steps)
        self.figure: Figure | None = None  # of a plot, until a projector has it painted again
        self._thick = b""

    def __repr__(self) -> str:
        kind = f"animation, {len(self.transcript)} steps" if self.transcript else "picture"
        return f"[{kind}] {self.alt}"

    def _repr_mimebundle_(self, include=None, exclude=None):
        width, height = self.size
        data = {"image/png": base64.b64encode(self.png).decode(), "text/plain": repr(self)}
        return data, {"image/png": {"alt": self.alt, "width": width, "height": height}}

    def in_words(self) -> str:
        """What it shows, as HTML: a sentence, and for an animation a table of its steps that can be unfolded."""
        words = html.escape(self.alt)
        if not self.steps:
            return f"<p>Picture: {words}</p>"
        return f"<details><summary>This animation in words</summary>{table_html(self.steps, self.alt)}</details>"

    def _ipython_display_(self):
        """In one output the picture to store and the widget to show, whose image has the words."""
        from flashlearn.show.still import Still

        data, about = self._repr_mimebundle_()
        live, how = parts(Still(self.projected, self.alt, self.size[0])._repr_mimebundle_())
        display({**live, **data}, metadata={**how, **about}, raw=True)

    def projected(self) -> bytes:
        """The picture as `frame.look` wants it: a plot with thicker lines and more pixels on a projector."""
        if look.key == (1.0, 1.0):
            return self.png
        if self.figure is not None:
            with style.context(STYLE):
                thicken(self.figure)
                self._thick, self.figure = file_of(self.figure, DPI * look.scale), None
        return self._thick or self.png

    def save(self, path: str | Path) -> None:
        """Write the picture to a file (.png or .apng)."""
        Path(path).write_bytes(self.png)


def picture(plot: Callable[[Axes], Any] | Scene, *, alt: str, figsize=(12.8, 4.8)) -> Picture:
    """A still picture in the style of the course: a scene, or `plot(ax)` draws it.

    alt      what the picture shows, in words
    figsize  inches at 100 pixels per inch; a scene has a shape of its own
    """
    check_alt(alt)
    if isinstance(plot, Scene):
        figsize = (WIDTH, round(WIDTH * plot.height / plot.width, 2))
        plot = plot.axes
    check_draw(plot, "plot(ax)")
    check_figsize(figsize)
    with style.context(STYLE):
        fig = Figure(figsize=figsize, dpi=DPI, layout="constrained")
        plot(fig.add_subplot())
        shown = Picture(file_of(fig, DPI), alt, tuple(round(DPI * inches) for inches in figsize))
    shown.figure = fig
    return shown


def file_of(figure: Figure, dpi: float) -> bytes:
    """The PNG file of a figure."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=dpi)
    return stream.getvalue()
