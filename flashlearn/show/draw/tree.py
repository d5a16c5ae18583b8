"""The merge tree: blocks of a row at the bottom, their (m, l) pairs merging upwards to one."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.patches import Rectangle

from flashlearn.core.steps import Step
from flashlearn.show.draw.row import _first, _row
from flashlearn.show.draw.style import INK, QUIET, box, canvas, colour, number, tint, traffic_note

WIDTH, HEIGHT = 1280, 520
LEFT, RIGHT, TOP, FLOOR = 30, 1250, 90, 400  # where nodes go
PALE = "#8A8A8A"
NUMBERS_UP_TO = 10  # leaves; larger trees show dots


def draw_tree(ax: Axes, step: Step) -> None:
    """Paint one step of a merge: nodes made so far, the current one outlined, edges to what it joined."""
    canvas(ax, WIDTH, HEIGHT)
    ax.text(16, 8, step.phase, va="top", weight="bold", fontsize=20)
    ax.text(WIDTH - 16, 12, traffic_note(step), va="top", ha="right", family="monospace", fontsize=15)
    nodes = {s.values["span"]: s for s in step.run or (step,) if "span" in s.values}
    made = {s.values["span"] for s in step.so_far if "span" in s.values}
    leaves = sum(not s.values["parts"] for s in nodes.values())
    place = _places(nodes)
    edges = [(place[span], place[part], span in made) for span in nodes for part in nodes[span].values["parts"]]
    for done, edge_colour in ((False, PALE), (True, INK)):
        lines = [(a, b) for a, b, both in edges if both == done]
        ax.add_collection(LineCollection(lines, colors=edge_colour, linewidths=1.5, zorder=1))
    now = step.values.get("span")
    if leaves <= NUMBERS_UP_TO:
        for span, node in nodes.items():
            _node(ax, place[span], node, span in made, span == now)
    else:
        _dots(ax, place, made, now)
        m, l = _first(step.values["m_i"]), _first(step.values["l_i"])
        ax.text(WIDTH - 16, 44, f"this pair: m = {number(m)}, l = {number(l)}", va="top", ha="right")
    _leaves(ax, _row(step.values["x"]), step.reads[0].cols if step.reads else (0, 0), leaves <= NUMBERS_UP_TO)


def _places(nodes) -> dict[tuple[int, int], tuple[float, float]]:
    """Centre of every node: over its span, as high as it has levels below it. Parts come before what they make."""
    level = {}
    for span, node in nodes.items():
        level[span] = max((1 + level[part] for part in node.values["parts"]), default=0)
    tallest, length = max(level.values(), default=1) or 1, max((stop for _, stop in nodes), default=1)
    return {
        span: (LEFT + (RIGHT - LEFT) * sum(span) / 2 / length, FLOOR - (FLOOR - TOP) * level[span] / tallest)
        for span in nodes
    }


def _dots(ax, place, made, now):
    """A large tree: a dot for every pair, filled once it is made, large while it is being made."""
    for spans, face, size in (
        ([span for span in place if span not in made], "white", 9),
        ([span for span in place if span in made and span != now], tint("m_i", 0.35), 9),
        ([span for span in place if span == now], colour("m_i"), 15),
    ):
        x, y = [place[span][0] for span in spans], [place[span][1] for span in spans]
        edge = PALE if face == "white" else INK if size > 9 else QUIET
        ax.plot(x, y, "o", markersize=size, color=face, markeredgecolor=edge, markeredgewidth=3 if size > 9 else 1.5)


def _node(ax, place, node, made, current):
    """A small tree: a box for every pair, with its numbers once it is made."""
    (x, y), m, l = place, _first(node.values["m_i"]), _first(node.values["l_i"])
    face = colour("m_i") if current else tint("m_i", 0.35) if made else "white"
    edge, width = (INK, 3) if current else (QUIET if made else PALE, 1.5)
    box(ax, x - 52, y - 27, 104, 54, face=face, edge=edge, width=width, zorder=2)
    if made:
        ax.text(x, y, f"m {number(m, 2)}\nl {number(l, 2)}", ha="center", va="center", fontsize=14, zorder=3)


def _leaves(ax, values, now, numbers):
    """The row x itself, at the bottom."""
    each = (RIGHT - LEFT) / max(1, len(values))
    ax.text(LEFT, 508, "x in HBM", va="bottom", color=QUIET)
    corners = [LEFT + j * each for j in range(len(values))]
    for chosen, face, edge, width in ((False, tint("x", 0.3), colour("x"), 0.6), (True, colour("x"), INK, 2)):
        cells = [Rectangle((x, 440), each, 38) for j, x in enumerate(corners) if (now[0] <= j < now[1]) == chosen]
        ax.add_collection(PatchCollection(cells, facecolor=face, edgecolor=edge, linewidth=width))
    for x, value in zip(corners, values, strict=True):
        if numbers and each >= 50:
            ax.text(x + each / 2, 459, number(value, 1), ha="center", va="center", fontsize=13)
