"""What several scenes have in common: the memories, the matrices in them, and the bytes that moved."""

from __future__ import annotations

from flashlearn.core.steps import Step, hbm_bytes
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.scene import Grid, Rect, Scene
from flashlearn.show.draw.style import role

NAMES = {"hbm": "HBM", "sram": "On chip (SRAM)"}
ROUND, PAD = 8, 14  # pixels


def memory(scene: Scene, area: Rect, where: str, note: str = "", name: str = "") -> None:
    """A memory, `where` "hbm" or "sram", with its name and a note at its right."""
    scene.rect(area, where, edge=f"{where}-edge", round=ROUND, id=where)
    scene.text(area.x + PAD, area.y + 19, name or NAMES[where], 15, bold=True)
    if note:
        scene.text(area.right - PAD, area.y + 19, note, 13, role="quiet", anchor="end")


def on_chip_note(step: Step) -> str:
    """The bytes on chip."""
    return f"{sum(tile.nbytes for tile in step.on_chip):,} B"


def matrix(scene: Scene, step: Step, name: str, grid: Grid, lying: bool = False) -> None:
    """A matrix in HBM, transposed if `lying`: rows with a copy on chip full, others pale; framed if this step read them."""
    face = role(name)
    scene.rect(grid.rect(), "blank")
    scene.rect(grid.rect(), face, "pale")
    for tiles, read in ((step.on_chip, False), (step.reads, True)):
        for n, tile in enumerate(tile for tile in tiles if tile.name == name):
            rect = grid.rect(cols=tile.rows) if lying else grid.rect(tile.rows)
            scene.rect(rect, face)
            if read:
                scene.outline(rect, id=numbered(f"read-{name}", n))


def numbered(id: str, n: int) -> str:
    """The id of the n-th of several: the first has it as it is."""
    return f"{id}-{n}" if n else id


def byte_counters(scene: Scene, step: Step, area: Rect, full: int | None = None, size: float = 13) -> None:
    """Bytes read and written so far, as numbers and as bars on one scale; what this step moved is dark.

    Next to each other, or one above the other where `area` is as high. `full` is the number of bytes that fills a bar; that
    of the whole run unless given. A counter is 32 pixels high.
    """
    so_far, now = hbm_bytes(step.so_far), hbm_bytes([step])
    full = full or max(hbm_bytes(step.run or (step,))) or 1
    stacked = area.h >= 64
    each = area.w if stacked else (area.w - 16) / 2
    counters = ("▼ read", so_far.read, now.read), ("▲ written", so_far.written, now.written)
    for at, (what, total, new) in enumerate(counters):
        left, top = (area.x, area.y + 38 * at) if stacked else (area.x + (each + 16) * at, area.y)
        words = f"{what} {total:,} B"
        scene.text(left, top + 9, words, size, bold=True)
        gain = f"+{new:,}"
        if new and width(words, size, True) + width(gain, size) + 16 < each:
            scene.text(left + each, top + 9, gain, size, anchor="end")
        unit, bar = each / full, Rect(left, top + 21, each, 10)
        scene.rect(bar, "blank")
        scene.rect((left, bar.y, (total - new) * unit, bar.h), "moved", id=f"bytes{at}-before")
        scene.rect((left + (total - new) * unit, bar.y, new * unit, bar.h), "ink", id=f"bytes{at}-now")
        scene.rect(bar, edge="quiet")


def bytes_note(step: Step) -> str:
    """The bytes moved so far in this run."""
    read, written = hbm_bytes(step.so_far)
    return f"read {read:,} B · written {written:,} B"


def pass_note(step: Step) -> str:
    """Which pass over HBM this is, e.g. "pass 2 of 3: sum"."""
    phases = list(dict.fromkeys(s.phase for s in step.run or (step,) if s.reads))
    if step.phase not in phases:
        return step.phase
    return f"pass {phases.index(step.phase) + 1} of {len(phases)}: {step.phase}"


def arrows(step: Step, name: str) -> str:
    """▼ after the name of a matrix that this step read from HBM, ▲ if it wrote there."""
    read, written = (any(tile.name == name for tile in tiles) for tiles in (step.reads, step.writes))
    return f" {'▼' * read}{'▲' * written}".rstrip()
