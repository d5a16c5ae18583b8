"""Pictures for notebooks: recorded steps as an animated PNG, and plots as a still one, both with alt text.

An animated PNG is an ordinary picture: no script, so it moves on a code host too and prints as a still.
"""

from __future__ import annotations

import base64
import html
import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from IPython.display import display
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, PngImagePlugin

from flashlearn.show.draw.style import STYLE
from flashlearn.show.frame import DPI, Draw, Steps, as_runs, check_alt, count, paint, png, table, table_html, transcript

_moving = True


def reduced_motion(on: bool = True) -> None:
    """Let every animation made from now on be its still: one frame painted, and all its steps in words."""
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
    runs = as_runs(steps)
    numbers = range(count(runs))
    frames = [paint(runs, number, draw, figsize, caption=True) for number in (numbers if _moving else [numbers[still]])]
    data = _animated(frames, seconds, still) if _moving else png(frames[0])
    words = tuple(transcript(runs, number) for number in numbers)
    return Picture(data, alt, frames[0].size, words, table(runs))


def picture(plot: Callable[[Axes], Any], *, alt: str, figsize=(12.8, 4.8)) -> Picture:
    """A still picture in the style of the course: `plot(ax)` draws it.

    alt      what the picture shows, in words
    figsize  inches at 100 pixels per inch
    """
    check_alt(alt)
    with style.context(STYLE):
        fig = Figure(figsize=figsize, dpi=DPI, layout="constrained")
        plot(fig.add_subplot())
        stream = io.BytesIO()
        fig.savefig(stream, format="png", dpi=DPI)
    return Picture(stream.getvalue(), alt, tuple(round(DPI * inches) for inches in figsize))


def _animated(frames: list[Image.Image], seconds: float, still: int) -> bytes:
    """The frames as an animated PNG."""
    frames = share_palette(frames)
    changes, clear = only_changes(frames)
    stream = io.BytesIO()
    frames[still].save(
        stream,
        "png",
        save_all=True,
        default_image=True,
        append_images=changes,
        duration=[round(1000 * seconds)] * (len(frames) - 1) + [round(3000 * seconds)],
        loop=0,
        blend=PngImagePlugin.Blend.OP_OVER,
        transparency=clear,
        optimize=True,
    )
    return stream.getvalue()


def share_palette(frames: list[Image.Image]) -> list[Image.Image]:
    """The frames in one palette, which makes the file a third of the size: flat colours exact, the rest near."""
    width, height = frames[0].size
    most: Counter = Counter()  # colour -> the most pixels it has in any frame
    for frame in frames:
        most |= Counter({colour: pixels for pixels, colour in frame.getcolors(width * height)})
    flat = [colour for colour, _ in most.most_common(64)]
    sample = Image.new("RGB", (width, 3 * height))
    for place, frame in enumerate((frames[0], frames[len(frames) // 2], frames[-1])):
        sample.paste(frame, (0, place * height))
    near = sample.quantize(48, dither=Image.Dither.NONE).convert("RGB").getcolors(48)
    palette = np.array(flat + [colour for _, colour in near])
    return [_in_palette(frame, palette) for frame in frames]


def only_changes(frames: list[Image.Image]) -> tuple[list[Image.Image], int]:
    """The frames, clear where they repeat the one before, which halves the file; and the index of "clear"."""
    palette = frames[0].getpalette()
    clear = len(palette) // 3
    used = set(zip(palette[::3], palette[1::3], palette[2::3], strict=True))
    unused = next((shade, 0, 255) for shade in range(256) if (shade, 0, 255) not in used)
    for frame in frames:  # a colour of its own, or Pillow would take "clear" for white and leave out changes
        frame.putpalette([*palette, *unused])
    pixels = [np.asarray(frame) for frame in frames]
    changes = [frames[0]]
    for before, now in zip(pixels, pixels[1:], strict=False):
        changed = Image.fromarray(np.where(before == now, clear, now).astype(np.uint8), "P")
        changed.putpalette(frames[0].getpalette())
        changes.append(changed)
    return changes, clear


def _in_palette(frame: Image.Image, palette: np.ndarray) -> Image.Image:
    """Every pixel in the nearest colour of the palette. (Pillow's own matching is off by a few shades.)"""
    width, height = frame.size
    colours = np.array([colour for _, colour in frame.getcolors(width * height)])
    index = np.empty((256, 256, 256), np.uint8)  # by red, green and blue; only those of this frame are filled in
    index[tuple(colours.T)] = ((colours[:, None] - palette) ** 2).sum(-1).argmin(1)
    image = Image.fromarray(index[tuple(np.moveaxis(np.asarray(frame), -1, 0))], "P")
    image.putpalette(palette.astype(np.uint8).tobytes())
    return image
