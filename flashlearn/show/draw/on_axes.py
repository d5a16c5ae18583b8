"""A scene on matplotlib's axes, for the pictures that notebooks store."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path
from matplotlib.patheffects import withStroke

from flashlearn.show.draw.letters import BOLD, width
from flashlearn.show.draw.scene import ANCHORS, EDGE, Group, Item, Look, Scene, Shape, Words, order
from flashlearn.show.draw.style import HATCH, ROLES, TONES, rgb

POINTS = 72  # to an inch
HALO = 4  # pixels
FACE = "DejaVu Sans"


def put(scene: Scene, ax: Axes) -> None:
    """Draw a scene as large as fits, in the middle."""
    if not isinstance(ax, Axes):
        raise TypeError(f"expected axes to draw on, got {type(ax).__name__}")
    window = ax.get_window_extent()
    scale = min(
        window.width / (scene.width + 2 * EDGE), window.height / (scene.height + 2 * EDGE)
    )  # pixels of the axes for one of the scene
    across, down = window.width / scale, window.height / scale
    left, top = (scene.width - across) / 2, (scene.height - down) / 2
    ax.set_xlim(left, left + across)
    ax.set_ylim(top + down, top)
    ax.set_axis_off()
    _put(scene.items, ax, scale * POINTS / ax.figure.dpi, 0.0, 1.0)


def _put(items: list[Item], ax: Axes, unit: float, low: float, span: float) -> None:
    """`unit` points to a pixel; all lie between the zorders `low` and `low + span`, so that a group covers what it may."""
    ordered = sorted(items, key=order)
    step = span / (len(ordered) + 2)
    for at, (alike, same) in enumerate(groupby(ordered, _alike)):
        zorder = low + (at + 1) * step
        for item in [_one(list(same))] if alike else same:
            if isinstance(item, Group):
                _put(item.items, ax, unit, zorder, step)
            elif isinstance(item, Words):
                _words(item, ax, unit, zorder)
            else:
                ax.add_artist(_shape(item, unit, zorder))


def _alike(item: Item) -> Any:
    """What neighbours have in common that are drawn as one."""
    return (item.look, item.open) if isinstance(item, Shape) and not item.round else None


def _one(shapes: list[Any]) -> Shape:
    rings = tuple(ring for shape in shapes for ring in shape.rings)
    return Shape(rings, shapes[0].look, shapes[0].layer, open=shapes[0].open)


def _shape(shape: Shape, unit: float, zorder: float) -> Any:
    style = {**_style(shape.look, unit), "zorder": zorder}
    if shape.round and shape.rect:
        x, y, w, h = shape.rect
        return FancyBboxPatch((x, y), w, h, boxstyle=f"round,pad=0,rounding_size={shape.round}", **style)
    if shape.open:
        look = {"colors": style["edgecolor"], "linewidths": style["linewidth"], "linestyles": [style["linestyle"]]}
        return LineCollection(shape.rings, **look, capstyle="butt", zorder=zorder)
    parts = [Path((*ring, ring[0]), closed=True) for ring in shape.rings]
    return PathPatch(Path.make_compound_path(*parts), **style)


def _style(look: Look, unit: float) -> dict[str, Any]:
    face = (*rgb(ROLES[look.face][0]), TONES.get(look.tone, 1.0)) if look.face else "none"
    edge = ROLES[look.edge][0] if look.edge else ROLES["hatch"][0]  # which is that of hatching too
    return {
        "facecolor": face,
        "edgecolor": edge if look.edge or look.hatched else "none",
        "linewidth": look.width * unit if look.edge else 0,
        "linestyle": (0, (3, 2)) if look.dashed else "solid",
        "joinstyle": "miter",
        "capstyle": "butt",
        "hatch": HATCH if look.hatched else None,
    }


def _words(item: Words, ax: Axes, unit: float, zorder: float) -> None:
    """Words, piece by piece where some are raised or lowered."""
    kind = item.type
    style: dict[str, Any] = {
        "color": ROLES[kind.role][0],
        "weight": "bold" if kind.bold else "normal",
        "family": ["DejaVu Sans Mono", FACE] if kind.mono else FACE,
        "zorder": zorder,
    }
    if kind.halo:
        style["path_effects"] = [withStroke(linewidth=HALO * unit, foreground=ROLES["hbm"][0])]
    if len(item.pieces) == 1:
        ha = {"start": "left", "middle": "center", "end": "right"}[kind.anchor]
        ax.text(item.x, item.y, item.text, fontsize=kind.size * unit, ha=ha, va="baseline", **style)
        return
    x = item.x - ANCHORS[kind.anchor] * item.breadth
    for piece in item.pieces:
        size = piece.size(kind.size)
        y = item.y + piece.shift * kind.size
        ax.text(x, y, piece.text, fontsize=size * unit, ha="left", va="baseline", **style)
        x += width(piece.text, size) * (BOLD if kind.bold else 1.0)
