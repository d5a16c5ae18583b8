"""The merge tree: blocks of a row at the bottom, their (m, l) pairs merging upwards to one."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import CENTRED, traffic_note
from flashlearn.show.draw.sheet import Sheet
from flashlearn.show.draw.style import INK, PALE, QUIET, colour, number, tint
from flashlearn.show.draw.values import check_steps_of, first, first_row, not_of

WIDTH, HEIGHT = 1280, 520
LEFT, RIGHT, TOP, FLOOR = 30, 1250, 90, 400  # where nodes go
NUMBERS_UP_TO = 10  # leaves; larger trees show dots


def draw_tree(ax: Axes, step: Step) -> None:
    """Paint one step of a merge: nodes made so far, the current one outlined, edges to what it joined."""
    check_steps_of("a merge", step, shapes=["x"], values=["x"])
    nodes = {s.values["span"]: s for s in step.run or (step,) if "span" in s.values}
    if not nodes and step.values["x"].numel():
        raise not_of("a merge", "span in their values", (), run=True)
    sheet = Sheet(ax, WIDTH, HEIGHT)
    sheet.text(16, 8, step.phase, va="top", weight="bold", fontsize=20)
    sheet.text(WIDTH - 16, 12, traffic_note(step), va="top", ha="right", family="monospace", fontsize=15)
    made = {s.values["span"] for s in step.so_far if "span" in s.values}
    leaves = sum(not s.values["parts"] for s in nodes.values())
    centres = _centres(nodes)
    _edges(sheet, nodes, centres, made)
    now = step.values.get("span")
    if leaves <= NUMBERS_UP_TO:
        wide = min(134.0, max(104.0, (RIGHT - LEFT) / max(1, leaves) - 16))
        for span, node in nodes.items():
            _node(sheet, centres[span], wide, node, span in made, span == now)
    else:
        _dots(sheet, centres, made, now)
        m, l = first(step.values["m_i"]), first(step.values["l_i"])
        sheet.text(WIDTH - 16, 44, f"this pair: m = {number(m)}, l = {number(l)}", va="top", ha="right")
    reads = step.reads[0].cols if step.reads else (0, 0)
    _leaves(sheet, first_row(step.values["x"]), reads, leaves <= NUMBERS_UP_TO)
    sheet.paint()


def _edges(sheet: Sheet, nodes, centres, made) -> None:
    """From every pair to those it joined, in ink once it is made."""
    edges = [(centres[span], centres[part], span in made) for span in nodes for part in nodes[span].values["parts"]]
    for done, ink in ((False, PALE), (True, INK)):
        sheet.lines([(a, b) for a, b, both in edges if both == done], ink, 1.5)


def _centres(nodes) -> dict[tuple[int, int], tuple[float, float]]:
    """Centre of every node: over its span, as high as it has levels below it. Parts come before what they make."""
    level: dict[tuple[int, int], int] = {}
    for span, node in nodes.items():
        level[span] = max((1 + level[part] for part in node.values["parts"]), default=0)
    tallest, length = max(level.values(), default=1) or 1, max((stop for _, stop in nodes), default=1)
    return {
        span: (LEFT + (RIGHT - LEFT) * sum(span) / 2 / length, FLOOR - (FLOOR - TOP) * level[span] / tallest)
        for span in nodes
    }


def _dots(sheet: Sheet, centres, made, now) -> None:
    """A large tree: a dot for every pair, filled once it is made, large while it is being made."""
    for spans, face, size in (
        ([span for span in centres if span not in made], "white", 9),
        ([span for span in centres if span in made and span != now], tint("m_i", 0.35), 9),
        ([span for span in centres if span == now], colour("m_i"), 15),
    ):
        x, y = [centres[span][0] for span in spans], [centres[span][1] for span in spans]
        edge = PALE if face == "white" else INK if size > 9 else QUIET
        style = {"color": face, "markeredgecolor": edge, "markeredgewidth": 3 if size > 9 else 1.5}
        sheet.line(x, y, marker="o", linestyle="none", markersize=size, **style)


def _node(sheet: Sheet, centre, wide: float, node, made, current) -> None:
    """A small tree: a box for every pair, with its numbers once it is made."""
    (x, y), m, l = centre, first(node.values["m_i"]), first(node.values["l_i"])
    face = colour("m_i") if current else tint("m_i", 0.35) if made else "white"
    edge, width = (INK, 3) if current else (QUIET if made else PALE, 1.5)
    sheet.box((x - wide / 2, y - 31, wide, 62), face, edge, width, raised=True)
    if made:
        size, digits = (16, 4) if wide > 120 else (14, 2)
        sheet.text(x, y, f"m {number(m, digits)}\nl {number(l, digits)}", fontsize=size, zorder=3, **CENTRED)


def _leaves(sheet: Sheet, values, now, numbers) -> None:
    """The row x itself, at the bottom; what is being read lies above the rest."""
    each = (RIGHT - LEFT) / max(1, len(values))
    sheet.text(LEFT, 508, "x in HBM", va="bottom", color=QUIET)
    corners = [LEFT + j * each for j in range(len(values))]
    for chosen, face, edge, width in ((False, tint("x", 0.3), colour("x"), 0.6), (True, colour("x"), INK, 2)):
        for j, x in enumerate(corners):
            if (now[0] <= j < now[1]) == chosen:
                sheet.fill((x, 440, each, 38), face, edge, width)
    for x, value in zip(corners, values, strict=True):
        if numbers and each >= 50:
            sheet.text(x + each / 2, 459, number(value, 1), fontsize=13, **CENTRED)
