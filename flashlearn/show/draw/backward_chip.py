"""The backward pass by tiles with every number: one step as the equations worked out on chip; a gradient as its sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from flashlearn.core.steps import Step, hbm_bytes, matmul_flops
from flashlearn.show.draw.equations import Equation, Matrix, equation, fitting, height, length, matrix, part
from flashlearn.show.draw.parts import CENTRED, ground
from flashlearn.show.draw.sheet import Grid, Rect, Sheet, Span
from flashlearn.show.draw.style import COLOURS, INK, QUIET, colour, index, tint
from flashlearn.show.draw.values import check_steps_of

MAP = 290  # pixels: the part for the square of pairs
DONE = 0.32  # strength of the colour of pairs that were met
SQUARES, OF_KEYS = ("S", "P", "dP", "dS"), ("K", "V", "dK", "dV")  # no number; numbered as keys are
LABELS = {"delta": "δ"}


def draw_backward_chip(ax: Axes, step: Step) -> None:
    """Paint one step of the backward pass by tiles: which pair of blocks it is, and its products in numbers."""
    check_steps_of("the backward pass by tiles", step, shapes=["Q", "K", "dQ", "dK", "lse"], values=["dO", "O"])
    sheet = Sheet(ax)
    _map(sheet, step, Rect(12, 2, MAP, sheet.height - 6))
    area = Rect(MAP + 24, 2, sheet.width - MAP - 36, sheet.height - 6)
    ground(sheet, area, "SRAM", "SRAM: on chip")
    lines: list[list[Equation]] = []
    for line in _lines(step):  # one that is too wide becomes a line for each of its equations
        lines += [line] if sum(map(length, line)) < area.w - 10 else [[parts] for parts in line]
    if not lines:
        sheet.text(*area.centre, "nothing is on chip", color=QUIET, **CENTRED)
    room = area.h - 34
    scale = fitting(lines, area.w, room)
    free = (room - scale * sum(max(map(height, line)) for line in lines)) / (len(lines) + 1)
    y = area.y + 30
    for line in lines:
        y += free
        gap = (area.w - scale * sum(map(length, line))) / (len(line) + 1)
        x = area.x
        for parts in line:
            x = equation(sheet, x + gap, y, parts, scale)
        y += scale * max(map(height, line))
    sheet.paint()


def _lines(step: Step) -> list[list[Equation]]:
    """The equations of a step, line by line; a factor that is turned over is shown as it is used."""
    values, rows, cols = step.values, step.values.get("rows"), step.values.get("cols")

    def of(name: str, span: Span | None = None, turned: bool = False) -> Matrix:
        t = part(step, name, span)
        label = f"{LABELS.get(name, name)}{_number(step, name)}{'ᵀ' * turned}"
        return matrix(label, name, t.mT if turned else t)

    if step.phase == "delta":
        return [[[of("delta"), "= rowsum(", of("dO", rows), "∘", of("O", rows), ")"]]]
    if "P" not in values:
        written: list[Equation] = [[of(tile.name)] for tile in step.writes if step.phase != "initialise"]
        return [written] if written else []
    lines: list[list[Equation]] = [
        [
            [of("P"), "= exp(", of("S"), "−", of("lse", rows), ")"],
            [of("dS"), "= P ∘ (", of("dP"), "−", of("delta"), ")"],
        ]
    ]
    if step.phase != "dQ":
        of_keys: Equation = [of("dV"), "+=", of("P", turned=True), "·", of("dO", rows)]
        lines.append([of_keys, [of("dK"), "+= τ", of("dS", turned=True), "·", of("Q", rows)]])
    if step.phase != "dK and dV":
        lines.append([[of("dQ"), "+= τ", of("dS"), "·", of("K", cols)]])
    return lines


def _number(step: Step, name: str) -> str:
    """The number of the block, of queries or of keys; what has both has none."""
    number = None if name in SQUARES else step.values.get("j" if name in OF_KEYS else "i")
    return "" if number is None else str(number)


def _map(sheet: Sheet, step: Step, area: Rect) -> None:
    """The square of pairs: what this run meets, has met and meets now; below it bytes and FLOPs so far."""
    ground(sheet, area, "HBM", "pairs of blocks")
    N_q, N_k = step.shapes["S"][-2:]
    size = min((area.w - 84) / max(N_k, 1), (area.h - 190) / max(N_q, 1))
    grid = Grid(area.x + 54, area.y + 66, N_q, N_k, size, size)
    sheet.fill(grid.rect(), "white")
    met = np.zeros((N_q, N_k), bool)
    for s in step.run or [step]:
        if (block := _block(s)) is not None:
            met[tuple(slice(*span) for span in block)] = True
            if s.number < step.number:
                sheet.fill(grid.rect(*block), tint("P", DONE))
    _names(sheet, step.run or [step], grid)
    sheet.hatch_cells(grid, ~met, COLOURS["masked"])
    sheet.cell_lines(grid)
    if (now := _block(step)) is not None:
        sheet.fill(grid.rect(*now), colour("P"))
        sheet.outline(grid.rect(*now))
    _counts(sheet, step, Rect(area.x + 14, grid.bottom + 16, area.w - 28, area.bottom - grid.bottom - 16))


def _block(step: Step) -> tuple[Span, Span] | None:
    """(rows, cols) of the pair of blocks that a step works on, if any."""
    values = step.values
    return (values["rows"], values["cols"]) if "P" in values else None


def _names(sheet: Sheet, run: Sequence[Step], grid: Grid) -> None:
    """Q_i at the left of its rows, K_j above its columns, of the blocks that are met."""
    values = [s.values for s in run if _block(s) is not None]
    style = {"fontsize": 15, "weight": "bold", "zorder": 5}
    for i, rows in sorted({(v["i"], v["rows"]) for v in values}):
        sheet.text(grid.x - 8, grid.rect(rows).centre[1], f"Q{i}", ha="right", va="center", **style)
    for j, cols in sorted({(v["j"], v["cols"]) for v in values}):
        sheet.text(grid.rect(cols=cols).centre[0], grid.y - 6, f"K{j}", ha="center", va="bottom", **style)


def _counts(sheet: Sheet, step: Step, area: Rect) -> None:
    """What the shades mean; bytes and FLOPs of products since the first step shown, and of this one."""
    x, shades = area.x, [(tint("P", DONE), "met"), (colour("P"), "now"), (COLOURS["masked"], "not met")]
    for face, word in shades:
        sheet.box((x, area.y, 18, 18), face, QUIET, 1, hatched=word == "not met")
        sheet.text(x + 24, area.y + 9, word, fontsize=14, va="center")
        x += 34 + 12 * len(word)
    so_far, now = hbm_bytes(step.so_far), hbm_bytes([step])
    flops, more = matmul_flops(step.so_far), matmul_flops([step])
    rows = (
        ("▼ read", so_far.read, now.read, "B"),
        ("▲ written", so_far.written, now.written, "B"),
        ("FLOPs", flops, more, ""),
    )
    for line, (name, total, new, unit) in enumerate(rows):
        y = area.y + 42 + 26 * line
        sheet.text(area.x, y, f"{name} {total:,} {unit}".rstrip(), fontsize=15, va="center", weight="bold", color=INK)
        if new:
            sheet.text(area.right, y, f"+{new:,}", fontsize=14, va="center", ha="right")


# Of each pass: what it adds up, the factor that a pair of blocks brings, the block it is multiplied with
SUMS = {
    "dK and dV": (("dV", "P", "dO"), ("dK", "dS", "Q")),
    "dQ": (("dQ", "dS", "K"),),
}


def draw_sums(ax: Axes, step: Step) -> None:
    """Paint the sums of the block that stays at this step, as far as its terms are there: dV and dK, or dQ."""
    check_steps_of("the backward pass by tiles", step, shapes=["Q", "K", "dQ", "dK", "lse"], values=["dO", "O"])
    sheet = Sheet(ax)
    lines = [_sum(step, *names) for names in SUMS.get(step.phase, ()) if "P" in step.values]
    scale = fitting([[line] for line in lines], sheet.width, sheet.height - 20)
    free = (sheet.height - scale * sum(map(height, lines))) / (len(lines) + 1)
    y = free
    for line in lines:
        equation(sheet, (sheet.width - scale * length(line)) / 2, y, line, scale)
        y += scale * height(line) + free
    sheet.paint()


def _sum(step: Step, made: str, factor: str, other: str) -> list[Matrix | str]:
    """`made` = factor · other + factor · other + ..., a term for each visit of the block that stays; later ones empty."""
    over_queries = made != "dQ"
    stays, comes, span = ("j", "i", "rows") if over_queries else ("i", "j", "cols")
    number = step.values[stays]
    visits = [s for s in step.run or [step] if s.phase == step.phase and s.values.get(stays) == number]
    parts: list[Matrix | str] = [matrix(f"{made}{index(number)}", made, part(step, made))]
    sign = "=" if made == "dV" else "= τ"
    for s in visits:
        there = s.number <= step.number
        pair = part(s, factor).mT if over_queries else part(s, factor)
        block = part(s, other, s.values[span])
        label = f"{factor}{index(s.values['i'], s.values['j'])}{'ᵀ' * over_queries}"
        left = matrix(label, factor, pair if there else None, (pair.shape[0], pair.shape[1]))
        right = matrix(
            f"{other}{index(s.values[comes])}", other, block if there else None, (block.shape[0], block.shape[1])
        )
        parts += [sign, left, "·", right]
        sign = "+" if made == "dV" else "+ τ"
    return parts
