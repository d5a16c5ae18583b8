"""Run a notebook's cells again, for the pictures of its page: scenes of its runs and plots as SVG, nothing painted.

    python -m tools.book.rerun notebooks/03_online_softmax.ipynb pictures.json

`pictures.json` has a list of what was displayed, in order. Each has `cell`, the id of its cell, and `kind`:

    run    {run, titles, still}: the run as `player.mount` takes it, with all its `scenes`, if its painter makes scenes;
           the titles of runs next to each other; and the step that stands for the whole
    plot   {alt, wide, narrow}: a plot as SVG in two layouts, or a scene
"""

from __future__ import annotations

import functools
import inspect
import io
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flashlearn.show.draw.scene import SIZE, Scene

NARROW = ((5.2, 4.2), (6.0, 4.6), (6.0, 6.0), (6.0, 8.0), (7.4, 5.0), (8.8, 5.2))  # inches on a phone: the first
#                                                                     in which no words collide; the last two scroll
PHONE = 358  # pixels: what a phone of 390 shows
SMALLEST = 12  # pixels of a word there
RECTANGLE = re.compile(r'd="M(\S+) (\S+)L([^\sLz]+) \2L\3 ([^\sLz]+)L\1 \4(?:L\1 \2)?z"')


class Gallery:
    """What the cells of a notebook display while it runs, without anything being painted."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []
        self.cell = ""

    def hang(self) -> None:
        """From now on players, explorers and plots come here when they are displayed."""
        from flashlearn.show import animation, player
        from flashlearn.show.explorers.explorer import Explorer

        in_two_layouts()
        picture = animation.picture

        def noted(plot, *, alt, figsize=(12.8, 4.8)):
            shown = picture(plot, alt=alt, figsize=figsize)
            vars(shown)["drawn_by"] = plot, figsize
            return shown

        here: list[tuple[Any, str, Callable]] = [
            (animation, "picture", noted),
            (animation.Picture, "_ipython_display_", lambda shown: self.plot(shown)),
            *((kind, "_ipython_display_", lambda shown: self.run(shown)) for kind in (player.Player, Explorer)),
            *((player.Player, name, lambda shown: b"") for name in ("_film", "_still")),  # painted for notebooks alone
        ]
        for owner, name, act in here:
            setattr(owner, name, act)

    def run(self, shown: Any) -> None:
        """A player or an explorer: its run with all scenes."""
        from flashlearn.show.player import page_run

        about = getattr(shown, "run", {})
        how = {"alt": shown.alt, "figsize": shown.figsize, "seconds": getattr(shown, "seconds", 1.2)}
        run = page_run(shown.runs, shown.draw_step, **how)
        run |= {name: about[name] for name in ("predict", "questions") if name in about}
        still = getattr(shown, "still", 0) % len(run["captions"])
        self.shown.append({"cell": self.cell, "kind": "run", "titles": list(shown.runs), "run": run, "still": still})

    def plot(self, shown: Any) -> None:
        """A scene as it is, or a plot, drawn once more for a page and once for a phone."""
        plot, figsize = shown.drawn_by
        if isinstance(plot, Scene):
            wide, narrow = plot.svg(key="scene"), legible(narrow_of(plot).svg(key="scene"))
        else:
            wide, collisions = svg_of(plot, figsize)
            tried = (svg_of(plot, size, phone=True) for size in NARROW)
            narrow = legible(next((svg for svg, words in tried if words <= collisions), wide))
        self.shown.append({"cell": self.cell, "kind": "plot", "alt": shown.alt, "wide": wide, "narrow": narrow})


def in_two_layouts() -> None:
    """From now on a scene of a painter of `flashlearn.show.draw` can be painted for a phone too: see `narrow_of`."""
    from flashlearn.show import draw

    for name in draw.__all__:
        painter = getattr(draw, name)
        if name.startswith("draw_") and "narrow" in inspect.signature(painter).parameters:
            setattr(draw, name, _twice(painter))


def _twice(painter: Callable[..., Scene]) -> Callable[..., Scene]:
    """The painter, whose scenes know how they were made."""

    @functools.wraps(painter)
    def made(*given: Any, **options: Any) -> Scene:
        scene = painter(*given, **options)
        vars(scene)["again"] = functools.partial(painter, *given, **{**options, "narrow": True})
        return scene

    return made


def narrow_of(scene: Scene) -> Scene:
    """A scene as it looks on a phone, if its painter has two layouts."""
    return vars(scene).get("again", lambda: scene)()


def svg_of(plot: Callable[[Any], Any], figsize: tuple[float, float], phone: bool = False) -> tuple[str, int]:
    """A plot as SVG for a page, text as text and without a ground; and how many of its words collide."""
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from flashlearn.show.animation import DPI, STYLE

    stream = io.StringIO()
    with style.context([STYLE, {"svg.fonttype": "none", "svg.hashsalt": "flashlearn", "svg.image_inline": True}]):
        fig = Figure(figsize=figsize, dpi=DPI, layout="constrained")
        FigureCanvasAgg(fig)
        plot(fig.add_subplot())
        if phone:
            for_a_phone(fig)
        fig.draw_without_rendering()
        words = collisions(fig)
        fig.savefig(
            stream,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    return for_page(stream.getvalue()), words


def legible(svg: str) -> str:
    """A picture that is not made smaller than its smallest words allow: what does not fit a phone is scrolled."""
    found = re.findall(r'<text [^>]*?([\d.]+)px|font-size="([\d.]+)"', svg)
    sizes = [float(plot or scene) for plot, scene in found] + [SIZE] * ('class="scene"' in svg)
    view = re.search(r'viewBox="\S+ \S+ (\S+)', svg)
    least = math.ceil(SMALLEST * float(view[1]) / min(sizes)) if view and sizes else 0
    return svg.replace("<svg ", f'<svg style="min-width:{least}px" ', 1) if least > 1.05 * PHONE else svg


def for_a_phone(fig: Any) -> None:
    """Words as large as they must be, in as many lines as they need; legends in two columns at most."""
    from matplotlib.text import Text

    least = SMALLEST * min(72 * fig.get_figwidth(), 72 * 6.0) / PHONE  # points
    for text in fig.findobj(Text):
        text.set_fontsize(max(least, text.get_fontsize()))
    for ax in fig.axes:
        ax.title.set_wrap(True)
    if fig._supxlabel is not None:
        fig._supxlabel.set_wrap(True)
    for legend in fig.legends:
        legend.set_ncols(min(2, len(legend.get_texts())))


def collisions(fig: Any) -> int:
    """How many pairs of words in a figure lie on each other, and how many stick out of it."""
    from matplotlib.text import Text

    beyond = {label for ax in fig.axes for axis in (ax.xaxis, ax.yaxis) for label in not_drawn(axis)}
    found = (each for each in fig.findobj(Text) if each.get_visible() and each.get_text().strip())
    texts = [each for each in found if each not in beyond]
    boxes = [each.get_window_extent() for each in texts]
    out = sum(box.x0 < -1 or box.x1 > fig.bbox.x1 + 1 for box in boxes)
    smaller = [box.shrunk(0.9, 0.7) for box in boxes]
    return out + sum(one.overlaps(other) for one, other in itertools.combinations(smaller, 2))


def not_drawn(axis: Any) -> list[Any]:
    """The labels of an axis's ticks that are outside its range."""
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
    return [label for at, label in ticks if not low <= at <= high]


def for_page(svg: str) -> str:
    """matplotlib's SVG as a part of a page, without what only a file needs."""
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!.*?>|<\?xml.*?\?>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg class="plot" viewBox="\1">', svg, count=1)
    svg = re.sub(r"<[^>]*>", lambda tag: _short(tag[0]), svg)
    return re.sub(r"\s*\n\s*", "\n", svg).strip()


def _short(tag: str) -> str:
    """A tag with tenths of a point, its path on one line, its text in the page's face."""
    tag = re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), tag)
    tag = re.sub(r"\s*\n\s*", " ", tag)
    tag = re.sub(r" ?(?<![a-z])([MLCQz])(?: |(?=\"))", r"\1", tag) if tag.startswith("<path") else tag
    tag = RECTANGLE.sub(r'd="M\1 \2H\3V\4H\1z"', tag)
    tag = re.sub(r"font: ([^;\"]*?)([\d.]+px)[^;\"]*", r"font: \1\2 var(--labels)", tag)
    return re.sub(
        r"font-family: [^;\"]*", lambda face: f"font-family: var(--{'mono' if 'Mono' in face[0] else 'labels'})", tag
    )


def run(path: Path, gallery: Gallery) -> None:
    """Run every code cell of a notebook in this process; what they display goes to the gallery. The first error ends it."""
    import nbformat
    from IPython.core.interactiveshell import InteractiveShell

    gallery.hang()
    shell = InteractiveShell.instance()
    os.chdir(path.parent)
    for cell in nbformat.read(path.name, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        gallery.cell = cell.id
        done = shell.run_cell(cell.source, store_history=True)
        if not done.success and "raises-exception" not in cell.metadata.get("tags", []):
            raise SystemExit(f"{path.name}, cell {cell.id}: {done.error_before_exec or done.error_in_exec!r}")


if __name__ == "__main__":
    notebook, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # what the cells print
    everything = Gallery()
    run(notebook, everything)
    out.write_text(json.dumps(everything.shown, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
