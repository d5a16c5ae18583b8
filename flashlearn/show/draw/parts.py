"""What several pictures have in common: the memories, the bytes that moved, and what a step is called."""

from __future__ import annotations

from flashlearn.core.steps import Step, hbm_bytes
from flashlearn.show.draw.sheet import Grid, Rect, Sheet
from flashlearn.show.draw.style import COLOURS, EDGE, INK, MOVED, QUIET, colour, tint

MONO = {"family": "monospace", "fontsize": 20, "va": "center"}
CENTRED = {"ha": "center", "va": "center"}
PALEST = 0.14  # strength of the colour of what is in HBM only


def panel(sheet: Sheet, area: Rect, where: str, note: str = "") -> None:
    """A memory with sharp corners, named HBM or SRAM, with a note at its right."""
    sheet.box(area, COLOURS[where], QUIET, 1.5)
    sheet.text(area.x + 12, area.y + 10, where, weight="bold", va="top", color=QUIET)
    style = {"va": "top", "ha": "right", "color": INK, "family": "monospace", "fontsize": 15}
    room = area.w - 120 > 17 * len(note)  # for totals in large type, which a projector wants
    sheet.text(area.right - 12, area.y + 10, note, gid="total" if room else None, **style)


def ground(sheet: Sheet, area: Rect, where: str, name: str = "", down: float = 7) -> None:
    """The ground of HBM or SRAM, for matrices to stand on; called so unless `name` says otherwise, so far down."""
    sheet.fill(area, COLOURS[where], EDGE[where], 1.5 if where == "HBM" else 2)
    sheet.text(area.x + 10, area.y + down, name or where, weight="bold", va="top", color=QUIET)


def on_chip_note(sheet: Sheet, area: Rect, step: Step, down: float) -> None:
    """The bytes on chip, at the upper right of the SRAM."""
    note = f"{sum(tile.nbytes for tile in step.on_chip):,} B on chip"
    sheet.text(area.right - 10, area.y + down, note, va="top", ha="right", fontsize=14)


def matrix_read(sheet: Sheet, step: Step, name: str, grid: Grid, lying: bool = False) -> None:
    """A matrix in HBM, transposed if `lying`: rows with a copy on chip full, others pale; framed if this step read them."""
    sheet.fill(grid.rect(), tint(name, PALEST))
    for tiles, read in ((step.on_chip, False), (step.reads, True)):
        for tile in (tile for tile in tiles if tile.name == name):
            rect = grid.rect(cols=tile.rows) if lying else grid.rect(tile.rows)
            sheet.fill(rect, colour(name))
            if read:
                sheet.outline(rect)


def traffic_bars(sheet: Sheet, step: Step, x: float, y: float, w: float, full: int | None = None) -> None:
    """Bytes read and written so far, as numbers and as bars on one scale; what this step moved is dark.

    `full` is the number of bytes that fills a bar; that of the whole run unless given. 42 pixels high.
    """
    so_far, now = hbm_bytes(step.so_far), hbm_bytes([step])
    full = full or max(hbm_bytes(step.run or (step,)))
    each = (w - 24) / 2
    unit = each / full if full else 0
    for left, name, total, new in (
        (x, "▼ read", so_far.read, now.read),
        (x + each + 24, "▲ written", so_far.written, now.written),
    ):
        bold = {"va": "center", "weight": "bold", "fontsize": 14, "gid": "total" if each >= 280 else None}
        sheet.text(left, y + 11, f"{name} {total:,} B", **bold)
        if new and each >= 200:  # there is room
            sheet.text(left + each, y + 11, f"+{new:,}", va="center", ha="right", fontsize=14, gid="gain")
        sheet.fill((left, y + 25, each, 13), "white", QUIET, 1)
        sheet.fill((left, y + 25, (total - new) * unit, 13), MOVED)
        sheet.fill((left + (total - new) * unit, y + 25, new * unit, 13), INK)


def traffic_note(step: Step) -> str:
    """The bytes moved so far in this run."""
    read, written = hbm_bytes(step.so_far)
    return f"read {read:,} B   written {written:,} B"


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
