"""Pictures for notebooks: recorded steps as an animated PNG, and plots as a still one, both with alt text.

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

from flashlearn.show.draw.style import STYLE
from flashlearn.show.film import Film, animated
from flashlearn.show.frame import DPI, Draw, Steps, as_runs, count, paint, png, table, table_html, transcript
from flashlearn.show.inputs import check_alt, check_draw, check_figsize, check_frame, check_seconds

_moving = not os.environ.get("FLASHLEARN_REDUCED_MOTION")


def reduced_motion(on: bool = True) -> None:
    """Let every animation made from now on be its still: one frame painted, and all its steps in words.

    FLASHLEARN_REDUCED_MOTION=1, set before Python starts, does so from the beginning.
    """
    global _moving
    _moving = not on


class Picture:
    """A PNG with its alternative text; displays itself in a notebook, with its words below for screen readers.

    `transcript` has one line per frame of an animation, and `steps` one row of a table per step (`frame.table`);
    both are empty for a still picture.
    """

    def __init__(self, png: bytes, alt: str, size: tuple[int, int], transcript: tuple[str, ...] = (), steps=()):
        self.png, self.alt, self.size = png, check_alt(alt), size
        self.transcript, self.steps = transcript, list(steps)

    def __repr__(self) -> str:
        kind = f"animation, {len(self.transcript)} steps" if self.transcript else "picture"
        return f"[{kind}] {self.alt}"

    def _repr_mimebundle_(self, include=None, exclude=None):
        width, height = self.size
        data = {"image/png": base64.b64encode(self.png).decode(), "text/plain": repr(self)}
        about = {"alt": self.alt, "width": width, "height": height}
        if self.steps:
            about["steps"] = self.steps  # for pages that cannot run: the book makes a table of them
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


def animate(
    steps: Steps, draw: Draw, *, alt: str, figsize=(12.8, 5.0), seconds: float = 1.2, still: int = -1
) -> Picture:
    """Run `steps` and paint every one with `draw`; the frames are the steps.

    steps    an iterable of `Step`, or a mapping {title: steps} for runs side by side
    draw     draw(ax, step), e.g. `flashlearn.show.draw.draw_row`
    alt      what the picture shows, in words, for those who cannot see it
    figsize  inches at 100 pixels per inch, without titles and caption
    seconds  how long a frame stands; the last stands three times as long
    still    the frame that stands for the whole where pictures do not move (print, reduced motion)
    """
    check_alt(alt)
    check_draw(draw)
    check_figsize(figsize)
    check_seconds(seconds)
    runs = as_runs(steps)
    numbers = range(count(runs))
    check_frame(still, len(numbers))
    painted = (
        paint(runs, number, draw, figsize, caption=True) for number in (numbers if _moving else [numbers[still]])
    )
    film = Film(painted)
    data = animated(film, seconds, still) if _moving else png(film[0])
    words = tuple(transcript(runs, number) for number in numbers)
    return Picture(data, alt, film.size, words, table(runs))


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
