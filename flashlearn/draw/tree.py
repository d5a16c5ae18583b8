"""The merge tree: blocks of a row at the bottom, their (m, l) pairs merging upwards to one."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.draw.row import _first, _row
from flashlearn.draw.style import INK, QUIET, box, canvas, colour, number, tint, traffic_note
from flashlearn.steps import Step

WIDTH, HEIGHT = 1280, 520
LEFT, RIGHT, TOP, FLOOR = 30, 1250, 90, 400  # where nodes go
NUMBERS_UP_TO = 10  # leaves; larger trees show dots


def draw_tree(ax: Axes, step: Step) -> None:
    """Paint one step of a merge: nodes made so far, the current one outlined, edges to what it joined."""
    canvas(ax, WIDTH, HEIGHT)
    ax.text(16, 8, step.phase, va="top", weight="bold", fontsize=20)
    ax.text(WIDTH - 16, 12, traffic_note(step), va="top", ha="right", family="monospace", fontsize=15)
    nodes = {s.values["span"]: s for s in step.run or (step,) if "span" in s.values}
    made = {s.values["span"] for s in step.so_far if "span" in s.values}
    leaves = sum(not s.values["parts"] for s in nodes.values())
    length = max((stop for _, stop in nodes), default=1)
    place = {span: _place(span, nodes, length) for span in nodes}
    for span, node in nodes.items():
        for part in node.values["parts"]:
            (x0, y0), (x1, y1) = place[span], place[part]
            ax.plot([x0, x1], [y0, y1], color=INK if span in made else "#CFCFCF", linewidth=1.5, zorder=1)
    for span, node in nodes.items():
        _node(ax, place[span], node, span in made, span == step.values.get("span"), leaves <= NUMBERS_UP_TO)
    _leaves(ax, _row(step.values["x"]), step.reads[0].cols if step.reads else (0, 0), leaves <= NUMBERS_UP_TO)
    if leaves > NUMBERS_UP_TO:
        m, l = _first(step.values["m_i"]), _first(step.values["l_i"])
        ax.text(WIDTH - 16, 44, f"this pair: m = {number(m)}, l = {number(l)}", va="top", ha="right")


def _place(span, nodes, length) -> tuple[float, float]:
    """Centre of a node: over its span, as high as it has levels below it."""
    tallest = max(_level(s, nodes) for s in nodes) or 1
    x = LEFT + (RIGHT - LEFT) * (span[0] + span[1]) / 2 / length
    return x, FLOOR - (FLOOR - TOP) * _level(span, nodes) / tallest


def _level(span, nodes) -> int:
    return max((1 + _level(part, nodes) for part in nodes[span].values["parts"]), default=0)


def _node(ax, place, node, made, current, numbers):
    """One pair: a box with its numbers, or a dot in a large tree; empty until it is made."""
    (x, y), m, l = place, _first(node.values["m_i"]), _first(node.values["l_i"])
    face = colour("m_i") if current else tint("m_i", 0.35) if made else "white"
    edge, width = (INK, 3) if current else (colour("m_i") if made else "#CFCFCF", 1.5)
    if not numbers:
        ax.plot(
            x,
            y,
            "o",
            markersize=15 if current else 9,
            color=face,
            markeredgecolor=edge,
            markeredgewidth=width,
        )
        return
    box(ax, x - 52, y - 27, 104, 54, face=face, edge=edge, width=width, zorder=2)
    if made:
        ax.text(x, y, f"m {number(m, 2)}\nl {number(l, 2)}", ha="center", va="center", fontsize=14, zorder=3)


def _leaves(ax, values, now, numbers):
    """The row x itself, at the bottom."""
    each = (RIGHT - LEFT) / max(1, len(values))
    ax.text(LEFT, 508, "x in HBM", va="bottom", color=QUIET)
    for j, value in enumerate(values):
        current = now[0] <= j < now[1]
        face, edge = tint("x", 1.0 if current else 0.3), INK if current else colour("x")
        box(ax, LEFT + j * each, 440, each, 38, face=face, edge=edge, width=2 if current else 0.6)
        if numbers and each >= 50:
            ax.text(LEFT + (j + 0.5) * each, 459, number(value, 1), ha="center", va="center", fontsize=13)
