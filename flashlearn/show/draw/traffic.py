"""Bytes through HBM: a race of several runs at the same bandwidth; the three operations of standard attention."""

from __future__ import annotations

from collections.abc import Mapping

from flashlearn.core.steps import Step, Tile
from flashlearn.cost import Runner
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD, arrows, byte_counters, memory
from flashlearn.show.draw.scene import NARROW, WIDE, Grid, Rect, Scene
from flashlearn.show.draw.style import MEANING, role
from flashlearn.show.draw.values import check_steps_of

ORDER = ("Q", "K", "V", "S", "P", "m, l", "O")


def draw_traffic(step: Step, *, narrow: bool = False) -> Scene:
    """One step of `flashlearn.cost.race`: a bar for each runner, on one scale of bytes."""
    check_steps_of("a race", step, values=["runners", "full", "moved"])
    runners, full, moved = (step.values[name] for name in ("runners", "full", "moved"))
    each, top = 96 if narrow else 92, 44
    scene = Scene(NARROW if narrow else WIDE, top + each * len(runners))
    scene.text(PAD, 20, f"In the time that it takes to move {moved:,} B", 14, role="quiet")
    room = scene.width - 2 * PAD
    for n, (title, runner) in enumerate(runners.items()):
        _runner(scene, title, runner, Rect(PAD, top + n * each, room, each), room / max(1, full), n)
    return scene


def _runner(scene: Scene, title: str, runner: Runner, area: Rect, unit: float, number: int) -> None:
    """Title, state and bar of one run; a byte is `unit` pixels long."""
    state = f"done with {sum(runner.moved.values()):,} B" if runner.over else f"products done: {runner.work:.0%}"
    below = width(title, 15, True) + width(state, 13, True) + 16 > area.w
    scene.text(area.x, area.y + 12, title, 15, bold=True)
    scene.text(
        area.x if below else area.right,
        area.y + (30 if below else 12),
        state,
        13,
        bold=True,
        anchor="start" if below else "end",
    )
    bar = Rect(area.x, area.y + 44 if scene.width == NARROW else area.y + 26, area.w, 44)
    scene.rect(bar, "blank", edge="hatch")
    end = _segments(scene, runner.moved, unit, bar, number)
    if runner.under_way:
        scene.rect((end, bar.y, runner.under_way * unit, bar.h), "blank", edge="quiet", stroke=1.5, dashed=True)
    if runner.over:
        scene.line((end, bar.y - 4), (end, bar.bottom + 4), stroke=4, id=f"over{number}")


def _segments(scene: Scene, moved: Mapping[str, int], unit: float, bar: Rect, number: int) -> float:
    """The bytes of each matrix, end to end; returns where they end."""
    together = dict.fromkeys(ORDER, 0)
    for name, size in moved.items():
        shown = "m, l" if MEANING.get(name) == "m, l" else name
        together[shown] = together.get(shown, 0) + size
    at = bar.x
    for name, size in together.items():
        if size:
            segment = Rect(at, bar.y, size * unit, bar.h)
            scene.rect(segment, role(name), edge="quiet", id=f"bytes{number}-{name.replace(', ', '')}")
            if segment.w > width(name, 15, True) + 4:
                ink = "on-Q" if name == "Q" else "on"
                scene.text(*segment.centre, name, 15, anchor="middle", bold=True, role=ink)
            at = segment.right
    return at


NAMES = ("Q", "K", "S", "P", "V", "O")
DOES = {"scores": "S = Q Kᵀ / √d", "softmax": "P = softmax of each row of S", "weighted sum": "O = P V"}


def draw_round_trip(step: Step, *, narrow: bool = False) -> Scene:
    """The matrices in HBM to scale; a pipe for all that moved so far, as wide as its bytes, dark in this step."""
    check_steps_of("standard attention", step, shapes=NAMES, writes=["O", "S", "P"])
    floor, pipes = (150, 62) if narrow else (190, 70)
    scene = Scene(NARROW if narrow else WIDE, floor + pipes + 46 + 46)
    memory(scene, Rect(0, 0, scene.width, floor), "hbm")
    chip = Rect(0, floor + pipes, scene.width, 42)
    memory(scene, chip, "sram", name="SRAM" if narrow else "")
    words = DOES.get(step.phase, "done")
    scene.text(chip.x + chip.w / 2 + 20, chip.centre[1], words, 15 if narrow else 17, anchor="middle", bold=True)
    for name, grid in _grids(step, scene.width, floor).items():
        _matrix(scene, step, name, grid)
        _pipes(scene, step, name, grid.middle, Rect(0, floor, scene.width / len(NAMES), pipes))
    byte_counters(scene, step, Rect(PAD, chip.bottom + 8, scene.width - 2 * PAD, 32), size=12 if narrow else 13)
    return scene


def _grids(step: Step, across: float, floor: float) -> dict[str, Grid]:
    """In the order in which they are used, on one line, a number as large in each."""
    sizes = {name: step.shapes[name][-2:] for name in NAMES}
    each = across / len(NAMES)
    most_rows, most_cols = (max(size[at] for size in sizes.values()) for at in (0, 1))
    unit = min((floor - 84) / max(most_rows, 1), (each - 8) / max(most_cols, 1))
    return {
        name: Grid((n + 0.5) * each - unit * cols / 2, floor - 14 - unit * rows, rows, cols, unit, unit)
        for n, (name, (rows, cols)) in enumerate(sizes.items())
    }


def _matrix(scene: Scene, step: Step, name: str, grid: Grid) -> None:
    """Full in the step that moves it, half-tone while it is in HBM, a dashed outline before it is there."""
    moved = [tile.name for tile in (*step.reads, *step.writes)]
    there = name in "QKV" or any(tile.name == name for s in step.so_far for tile in s.writes)
    if there:
        scene.rect(grid.rect(), "blank")
        scene.rect(grid.rect(), role(name), "" if name in moved else "half", id=f"stored-{name}")
        scene.outline(grid.rect(), 2 if name in moved else 1)
    else:
        scene.rect(grid.rect(), edge="quiet", dashed=True)
    scene.text(grid.middle, grid.y - 22, f"{name}{arrows(step, name)}", 14, va="bottom", anchor="middle", bold=True)
    scene.text(grid.middle, grid.y - 5, f"{grid.rows} × {grid.cols}", 12, va="bottom", anchor="middle", role="quiet")


def _pipes(scene: Scene, step: Step, name: str, middle: float, room: Rect) -> None:
    """The last tile of a matrix that was written so far, and to its right the last that was read."""
    most = max(tile.nbytes for s in step.run or (step,) for tile in (*s.reads, *s.writes) or (Tile("", (), 1),))
    both = name in "SP"
    widest = room.w / 2 - (6 if room.w > 100 else 0.5)
    aside = 0 if both or room.w > 100 else -8  # room for a number next to a pipe that is too thin for it
    apart = room.w / 4 if both else 0
    for sign, way, x in (("▲", "writes", middle + aside - apart), ("▼", "reads", middle + aside + apart)):
        moved = [(s, tile) for s in step.so_far for tile in getattr(s, way) if tile.name == name]
        for s, tile in moved[-1:]:
            now, wide = s.number == step.number, max(3.0, widest * tile.nbytes / most)
            size = f"{tile.nbytes:,}"
            scene.rect((x - wide / 2, room.y, wide, room.h), "ink" if now else "moved", id=f"{way}-{name}")
            inside = wide > max(width(size, 12, True) + 2, 20)
            at, anchor, ink = x, "middle", "paper" if now else "on"
            if not inside:
                at, anchor, ink = x + wide / 2 + 2, "start", "ink"
            for down, words in ((-9, sign), (9, size)):
                scene.text(at, room.centre[1] + down, words, 12, anchor=anchor, bold=inside, role=ink)
