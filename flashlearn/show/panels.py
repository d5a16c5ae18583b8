"""The scenes of one frame as one picture: that of one run, or of several next to each other, on a phone one above the other."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import NamedTuple

from matplotlib.figure import Figure

from flashlearn.core.steps import Step
from flashlearn.show.draw.scene import EDGE, WIDE, Rect, Scene, scene_of, short

TITLE, GAP = 34, 16  # pixels: above a scene that has a title, and between two scenes
SIZE = 18  # pixels of a title
KEY = "scene"  # what the names in an SVG begin with; picture.js puts others in their place
STORED = 1280  # pixels: how wide a picture is that a notebook stores, if it is as wide as a page; otherwise less
DPI = 100


class Panel(NamedTuple):
    """A scene in its place."""

    title: str
    scene: Scene
    at: Rect


class Panels(NamedTuple):
    """All scenes of a frame, in a picture of so many pixels."""

    width: float
    height: float
    all: list[Panel]

    @property
    def size(self) -> list[int]:
        """Of the SVG, with the room around one scene."""
        edge = 0 if self.titled else 2 * EDGE
        return [round(self.width + edge), round(self.height + edge)]

    @property
    def titled(self) -> bool:
        return len(self.all) > 1 or bool(self.all[0].title)

    def svg(self) -> str:
        """All of it as one SVG."""
        if not self.titled:
            return self.all[0].scene.svg(key=KEY)
        inside = "".join(_inside(number, panel) for number, panel in enumerate(self.all))
        return f'<svg class="scene" viewBox="0 0 {short(self.width)} {short(self.height)}" aria-hidden="true">{inside}</svg>'

    def figure(self) -> Figure:
        """All of it on matplotlib's axes."""
        scale = min(STORED / WIDE, STORED / self.width)
        fig = Figure(figsize=(scale * self.width / DPI, scale * self.height / DPI), dpi=DPI)
        for title, scene, at in self.all:
            x, y, w, h = at
            place = x / self.width, 1 - (y + h) / self.height, w / self.width, h / self.height
            scene.axes(fig.add_axes(place))
            top = 1 - (y - TITLE / 2) / self.height
            fig.text(place[0], top, title, va="center", weight="bold", fontsize=72 / DPI * scale * SIZE)
        return fig


def _inside(number: int, panel: Panel) -> str:
    """A scene within another SVG, with its title."""
    x, y, w, h = map(short, panel.at)
    place = f'<svg data-panel="{number}" x="{x}" y="{y}" width="{w}" height="{h}"'
    title = f'<text class="b" font-size="{SIZE}" x="{x}" y="{short(panel.at.y - TITLE / 3)}">{html.escape(panel.title)}</text>'
    return title + panel.scene.svg(key=KEY).replace("<svg", place, 1)


def panels(steps: Mapping[str, Step], draw: Callable, narrow: bool = False) -> Panels | None:
    """The scenes of these steps, by title; None if the painter wants axes. Several take their narrow layout each."""
    placed, x, y = [], 0.0, 0.0
    for title, step in steps.items():
        scene = scene_of(draw, step, narrow or len(steps) > 1)
        if scene is None:
            return None
        placed.append(Panel(title, scene, Rect(x, y + TITLE * bool(title), scene.width, scene.height)))
        x, y = (x, placed[-1].at.bottom + GAP) if narrow else (placed[-1].at.right + GAP, y)
    return Panels(max(each.at.right for each in placed), max(each.at.bottom for each in placed), placed)
