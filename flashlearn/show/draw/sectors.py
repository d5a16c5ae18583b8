"""The sectors of memory that one load of a warp touches, for several strides: wanted elements full, the others pale."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.cost.sectors import SECTOR
from flashlearn.show.draw.parts import ground
from flashlearn.show.draw.sheet import Grid, Rect, Sheet
from flashlearn.show.draw.style import QUIET, colour, tint
from flashlearn.show.draw.values import check_step, check_steps_of

MOST, GAP = 32, 7  # sectors in a row; pixels between them


def draw_sectors(ax: Axes, step: Step) -> None:
    """Paint a run of `sector_steps`: a row of sectors for each stride, up to this step."""
    check_step("sectors of a load", step)
    rows = [s for s in (step.so_far or (step,)) if "sectors" in s.values]
    check_steps_of("sectors of a load", rows[-1] if rows else step, values=["sectors", "stride", "moved", "wanted"])
    sheet = Sheet(ax)
    area = Rect(8, 4, sheet.width - 16, sheet.height - 8)
    ground(sheet, area, "HBM", f"HBM: a box is a sector of {SECTOR} bytes; a load of a warp wants the dark elements")
    all_rows = [s for s in (step.run or rows) if "sectors" in s.values]
    high = (area.h - 50) / len(all_rows)
    for at, one in enumerate(rows):
        _row(sheet, one, Rect(area.x + 14, area.y + 44 + at * high, area.w - 28, high))
    sheet.paint()


def _row(sheet: Sheet, step: Step, area: Rect) -> None:
    """One stride: what is moved and wanted, and the sectors in the order of their addresses."""
    found, each = step.values["sectors"], SECTOR // step.values["itemsize"]
    moved, wanted = step.values["moved"], step.values["wanted"]
    head = f"stride {step.values['stride']:,}: {len(found)} sectors"
    sheet.text(area.x, area.y + 18, head, va="center", fontsize=18, weight="bold")
    note = f"{moved:,} bytes move, {wanted} of them wanted ({100 * wanted / moved:.3g} %)"
    sheet.text(area.x + 380, area.y + 18, note, va="center", fontsize=17)
    wide = (area.w - (MOST - 1) * GAP) / MOST
    for n, (sector, elements) in enumerate(sorted(found.items())):
        grid = Grid(area.x + n * (wide + GAP), area.y + 36, 1, each, wide / each, min(54, area.h - 62))
        sheet.fill(grid.rect(), tint("x", 0.15))
        for element in elements:
            sheet.fill(grid.cell(0, element), colour("x"))
        sheet.box(grid.rect(), "none", QUIET, 1.2, raised=True)
        if n in (0, len(found) - 1) or len(found) <= 8:
            end = n == MOST - 1
            below = {"va": "top", "ha": "right" if end else "center", "fontsize": 13, "color": QUIET}
            sheet.text(grid.right if end else grid.x + wide / 2, grid.bottom + 3, f"{sector * SECTOR:,}", **below)
