"""Pictures as notebooks store them, an animated PNG of a run or a still one of a plot, both with alt text.

An animated PNG is an ordinary picture: no script, so it moves on a code host too and prints as a still.
"""

from __future__ import annotations

import base64
import html
import io
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.display import display
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flashlearn.show.draw.style import STYLE
from flashlearn.show.frame import DPI, Draw, Steps, table_html
from flashlearn.show.inputs import check_alt, check_draw, check_figsize

if TYPE_CHECKING:
    from flashlearn.show.player import Player

_moving = not os.environ.get("FLASHLEARN_REDUCED_MOTION")


def reduced_motion(on: bool = True) -> None:
    """Let every run that is played from now on be stored as its still, with all its steps in words.

    FLASHLEARN_REDUCED_MOTION=1, set before Python starts, does so from the beginning.
    """
    global _moving
    _moving = not on


def moving() -> bool:
    """Whether runs are stored as animations."""
    return _moving


class Picture:
    """A PNG with its alternative text; displays itself in a notebook, with its words below for screen readers.

    `transcript` has one line per frame of an animation, and `steps` one row of a table per step (`frame.table`);
    both are empty for a still picture. `player` is what else a page needs to make a player of it.
    """

    def __init__(
        self,
        png: bytes,
        alt: str,
        size: tuple[int, int],
        transcript: tuple[str, ...] = (),
        steps=(),
        player: Mapping[str, Any] | None = None,
    ):
        self.png, self.alt, self.size = png, check_alt(alt), size
        self.transcript, self.steps, self.player = transcript, list(steps), player

    def __repr__(self) -> str:
        kind = f"animation, {len(self.transcript)} steps" if self.transcript else "picture"
        return f"[{kind}] {self.alt}"

    def _repr_mimebundle_(self, include=None, exclude=None):
        width, height = self.size
        data = {"image/png": base64.b64encode(self.png).decode(), "text/plain": repr(self)}
        about = {"alt": self.alt, "width": width, "height": height}
        if self.steps:
            about["steps"] = self.steps  # for pages that cannot run: the book makes a table of them
        if self.player:
            about["player"] = dict(self.player)
        return data, {"image/png": about}

    def in_words(self) -> str:
        """What it shows, as HTML: a sentence, and for an animation a table of its steps that can be unfolded."""
        words = html.escape(self.alt)
        if not self.steps:
            return f"<p>Picture: {words}</p>"
        return f"<details><summary>This animation in words</summary>{table_html(self.steps, self.alt)}</details>"

    def _ipython_display_(self):
        """The picture, and its words as a widget: JupyterLab gives an image in an output no alternative text."""
        from flashlearn.show.widgets import below

        data, about = self._repr_mimebundle_()
        display(data, metadata=about, raw=True)
        display(below(self.in_words(), seen=bool(self.steps)), raw=True)

    def save(self, path: str | Path) -> None:
        """Write the picture to a file (.png or .apng)."""
        Path(path).write_bytes(self.png)


def animate(steps: Steps, draw: Draw, **options) -> Player:
    """Deprecated since 0.2, gone in the release after it: `play` takes the same arguments."""
    warnings.warn("animate is play by now, with the same arguments", DeprecationWarning, stacklevel=2)
    from flashlearn.show.player import play

    return play(steps, draw, **options)


def picture(plot: Callable[[Axes], Any], *, alt: str, figsize=(12.8, 4.8)) -> Picture:
    """A still picture in the style of the course: `plot(ax)` draws it.

    alt      what the picture shows, in words
    figsize  inches at 100 pixels per inch
    """
    check_alt(alt)
    check_draw(plot, "plot(ax)")
    check_figsize(figsize)
    with style.context(STYLE):
        fig = Figure(figsize=figsize, dpi=DPI, layout="constrained")
        plot(fig.add_subplot())
        stream = io.BytesIO()
        fig.savefig(stream, format="png", dpi=DPI)
    return Picture(stream.getvalue(), alt, tuple(round(DPI * inches) for inches in figsize))
