"""The merge tree: blocks of a row at the bottom, their (m, l) pairs merging upwards to one."""

from __future__ import annotations

from flashlearn.core.signs import number
from flashlearn.core.steps import Step
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD, bytes_note
from flashlearn.show.draw.scene import LINES, NARROW, WIDE, Grid, Rect, Scene, Span
from flashlearn.show.draw.values import check_steps_of, first, first_row, not_of

TOP, FLOOR = 62, 262  # where nodes go
Nodes = dict[Span, Step]
Centres = dict[Span, tuple[float, float]]


def draw_tree(step: Step, *, narrow: bool = False) -> Scene:
    """One step of a merge: nodes made so far, the current one outlined, edges to what it joined."""
    check_steps_of("a merge", step, shapes=["x"], values=["x"])
    nodes = {s.values["span"]: s for s in step.run or (step,) if "span" in s.values}
    if not nodes and step.values["x"].numel():
        raise not_of("a merge", "span in their values", (), run=True)
    scene = Scene(NARROW if narrow else WIDE, 346)
    scene.text(PAD, 14, step.phase, 15, bold=True)
    scene.text(scene.width - PAD, 14, bytes_note(step), 13, role="quiet", anchor="end")
    made = {s.values["span"] for s in step.so_far if "span" in s.values}
    centres, now = _centres(nodes, scene.width), step.values.get("span")
    _edges(scene, nodes, centres, made)
    row = sorted(centres[span][0] for span, node in nodes.items() if not node.values["parts"])
    apart = min((b - a for a, b in zip(row, row[1:], strict=False)), default=110.0)
    wide = min(104.0, apart - 6, *(2 * min(x - 2, scene.width - 2 - x) for x in row))
    type = _fitting(nodes, wide - 6)
    for span, node in nodes.items():
        if type:
            _node(scene, centres[span], wide, node, span in made, span == now, type)
        else:
            _dot(scene, centres[span], span in made, span == now)
    if not type:
        m, l = first(step.values["m_i"]), first(step.values["l_i"])
        scene.text(PAD, 38, f"this pair: m = {number(m)}, l = {number(l)}", 14)
    _leaves(scene, first_row(step.values["x"]), step.reads[0].cols if step.reads else (0, 0))
    return scene


def _edges(scene: Scene, nodes: Nodes, centres: Centres, made: set[Span]) -> None:
    """From every pair to those it joined, in ink once it is made."""
    edges = [(centres[span], centres[part], span in made) for span in nodes for part in nodes[span].values["parts"]]
    for done, role in ((False, "hatch"), (True, "ink")):
        for a, b, both in edges:
            if both == done:
                scene.line(a, b, role=role, stroke=1.2, layer=0)


def _centres(nodes: Nodes, width: float) -> Centres:
    """Centre of every node: over its span, as high as it has levels below it. Parts come before what they make."""
    level: dict[Span, int] = {}
    for span, node in nodes.items():
        level[span] = max((1 + level[part] for part in node.values["parts"]), default=0)
    tallest, length = max(level.values(), default=1) or 1, max((stop for _, stop in nodes), default=1)
    return {
        span: (PAD + (width - 2 * PAD) * sum(span) / 2 / length, FLOOR - (FLOOR - TOP) * level[span] / tallest)
        for span in nodes
    }


def _pair(node: Step, digits: int) -> tuple[str, str]:
    m, l = first(node.values["m_i"]), first(node.values["l_i"])
    return f"m {number(m, digits)}", f"l {number(l, digits)}"


def _fitting(nodes: Nodes, room: float) -> tuple[int, int] | None:
    """Size and digits in which all pairs fit into boxes of that width; None if they are too many."""
    for size, digits in ((14, 4), (12, 4), (14, 2), (12, 2), (12, 1)):
        if all(width(words, size) <= room for node in nodes.values() for words in _pair(node, digits)):
            return size, digits
    return None


def _dot(scene: Scene, centre: tuple[float, float], made: bool, current: bool) -> None:
    """A large tree: a dot for every pair, filled once it is made, large while it is being made."""
    face = "m" if current or made else "blank"
    look = {"edge": "ink", "stroke": 2, "id": "now"} if current else {"edge": "quiet"}
    scene.dot(*centre, 7 if current else 4, face, layer=LINES, sides=16 if current else 8, **look)


def _node(
    scene: Scene,
    centre: tuple[float, float],
    wide: float,
    node: Step,
    made: bool,
    current: bool,
    type: tuple[int, int],
) -> None:
    """A small tree: a box for every pair, with its numbers once it is made."""
    (x, y), (size, digits) = centre, type
    rect = Rect(x - wide / 2, y - 20, wide, 40)
    name = "{}-{}".format(*node.values["span"])
    scene.rect(rect, "blank", layer=LINES)
    look = ("m", "", "ink", 2.5) if current else ("m", "light", "quiet", 1) if made else ("", "", "quiet", 1)
    scene.rect(rect, *look, dashed=not made, layer=LINES, id=f"pair{name}")
    for down, words in zip((-9, 9), _pair(node, digits) if made else (), strict=False):
        scene.text(x, y + down, words, size, anchor="middle", role="on" if current else "ink")


def _leaves(scene: Scene, values: list[float], now: Span) -> None:
    """The row x itself, at the bottom; what is being read is full and framed."""
    grid = Grid(PAD, 292, 1, max(1, len(values)), (scene.width - 2 * PAD) / max(1, len(values)), 26)
    scene.text(PAD, 334, "x in HBM", 13, role="quiet")
    if not values:
        return
    scene.rect(grid.rect(), "blank")
    scene.rect(grid.rect(), "S", "light")
    if now[1] > now[0]:
        scene.rect(grid.rect(cols=now), "S")
        scene.outline(grid.rect(cols=now), id="read")
    scene.cell_lines(grid)
    if max(width(number(value, 1), 12) for value in values) <= grid.w - 2:
        for j, value in enumerate(values):
            role = "on" if now[0] <= j < now[1] else "ink"
            scene.text(*grid.cell(0, j).centre, number(value, 1), 12, anchor="middle", role=role)
