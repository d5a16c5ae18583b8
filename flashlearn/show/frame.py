"""From steps to pixels: the one place where animation and widget make a figure."""

from __future__ import annotations

import html
import io
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from PIL import Image
from torch import Tensor

from flashlearn.core.steps import Step, hbm_bytes, record
from flashlearn.show.draw.style import INK, QUIET, STYLE
from flashlearn.show.draw.style import number as shown
from flashlearn.show.inputs import check_steps

Draw = Callable[[Axes, Step], Any]
Steps = Iterable[Step] | Mapping[str, Iterable[Step]]
DPI = 100
TITLE, CAPTION = 0.45, 0.75  # inches kept for a panel's title and for the sentence below
CAPTIONS = 1.45  # for sentences side by side, which take more lines


class Look:
    """How pictures are painted: pixels and lines enlarged by these factors. `flashlearn.projector` sets them."""

    scale, lines = 1.0, 1.0


look = Look()


def as_runs(steps: Steps) -> dict[str, list[Step]]:
    """Recorded runs by title: one run without a title, or several to be shown side by side."""
    runs = steps if isinstance(steps, Mapping) else {"": steps}
    if not runs:
        raise ValueError("expected at least one run of steps, got an empty mapping")
    return {title: record(check_steps(each)) for title, each in runs.items()}


def count(runs: Mapping[str, list[Step]]) -> int:
    """Frames needed: as many as the longest run has steps."""
    return max(len(run) for run in runs.values())


def at(runs: Mapping[str, list[Step]], number: int) -> dict[str, Step]:
    """Every run at frame `number`; one that is over stays at its last step."""
    return {title: run[min(number, len(run) - 1)] for title, run in runs.items()}


def transcript(runs: Mapping[str, list[Step]], number: int) -> str:
    """What one frame shows, in words: "Step 3 of 9 · ..."; one line per run."""
    lines = []
    for title, step in at(runs, number).items():
        name = f"{title}: " if title else ""
        lines.append(f"{name}{words(step)}")
    return "\n".join(lines)


def words(step: Step) -> str:
    """One step in words, without its title."""
    return f"Step {step.number + 1} of {len(step.run)} · {step.sentence}"


def table(runs: Mapping[str, list[Step]]) -> list[list[str]]:
    """All steps as rows of a table: run, step, bytes read, bytes written, values that are one number, sentence."""
    rows = []
    for title, run in runs.items():
        for step in run:
            read, written = hbm_bytes([step])
            one = {name: v for name, v in step.values.items() if isinstance(v, Tensor) and v.numel() == 1}
            values = ", ".join(f"{name} = {shown(float(v))}" for name, v in one.items())
            rows.append([title, f"{step.number + 1}", f"{read:,}", f"{written:,}", values, step.sentence])
    return rows


def columns(rows: list[list[str]]) -> dict[str, list]:
    """Such rows under the heads of their columns, those without content left out: {"heads": [...], "rows": [...]}."""
    heads = ["run", "step", "bytes read", "bytes written", "values", "what happens"]
    kept = [column for column in range(len(heads)) if any(row[column] for row in rows)]
    return {"heads": [heads[column] for column in kept], "rows": [[row[column] for column in kept] for row in rows]}


def table_html(rows: list[list[str]], caption: str) -> str:
    """Such rows as an HTML table whose columns screen readers can name; columns without content are left out."""
    shown = columns(rows)
    head = "".join(f'<th scope="col">{name}</th>' for name in shown["heads"])
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in shown["rows"]]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f"<table><caption>{html.escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def rescales(step: Step) -> bool:
    """Whether the maximum of some row rises from a number to a higher one, so that what is older is scaled."""
    if "m_old" not in step.values:
        return False
    old, new = step.values["m_old"], step.values["m_i"]
    return bool(((new > old) & old.isfinite()).any())


def paint(runs: Mapping[str, list[Step]], number: int, draw: Draw, figsize, caption: bool = False) -> Image.Image:
    """One frame as an RGB picture: a panel for every run, and the sentence below if `caption`.

    `figsize` is in inches at 100 pixels per inch and does not count titles and caption.
    """
    width, height = figsize
    top = TITLE if any(runs) else 0.0
    bottom = (CAPTION if len(runs) == 1 else CAPTIONS) if caption else 0.0
    full = height + top + bottom
    wide = round(width * (8.6 if len(runs) == 1 else 8.2 / len(runs)))  # characters that fit a line
    with style.context(STYLE):
        fig = Figure(figsize=(width, full), dpi=DPI)
        surface = FigureCanvasAgg(fig)
        for column, (title, step) in enumerate(at(runs, number).items()):
            left = column / len(runs)
            ax = fig.add_axes((left, bottom / full, 1 / len(runs), height / full))
            draw(ax, step)
            if title:
                fig.text(left + 0.0125, 1 - 0.1 / full, title, va="top", weight="bold", fontsize=22)
            if caption:
                lines = "\n".join(textwrap.wrap(words(step), wide))
                y, va, size = (0.36, "center", 15.5) if len(runs) == 1 else (bottom - 0.1, "top", 15)
                fig.text(left + 0.0125, y / full, lines, va=va, fontsize=size, color=INK, linespacing=1.2)
        if look.lines != 1:
            thicken(fig)
        fig.dpi = DPI * look.scale  # only now: draw functions measure in pixels at 100 per inch
        surface.draw()
    pixels = surface.get_width_height(physical=True)
    return Image.frombuffer("RGBA", pixels, surface.buffer_rgba()).convert("RGB")


def thicken(fig: Figure) -> None:
    """Thicker lines, except those between the cells of a grid, and every text in full ink."""
    found: list[Any] = fig.findobj(lambda artist: isinstance(artist, (Line2D, Patch, Collection)))
    for artist in found:
        width = np.asarray(artist.get_linewidth())
        artist.set_linewidth(np.where(width < 1, width, look.lines * width))
    for text in fig.findobj(Text):
        if text.get_color() == QUIET:
            text.set_color(INK)


def png(picture: Image.Image) -> bytes:
    """A picture as PNG bytes, packed fast rather than small."""
    stream = io.BytesIO()
    picture.save(stream, "png", compress_level=1)
    return stream.getvalue()
