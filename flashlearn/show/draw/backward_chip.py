"""The backward pass by tiles with every number: one step as the equations worked out on chip; a gradient as its sum."""

from __future__ import annotations

from flashlearn.core.steps import Step, hbm_bytes, matmul_flops
from flashlearn.show.draw.equations import Equation, Line, Matrix, matrix, part, put, tall, wrapped
from flashlearn.show.draw.memories import PAD, memory, on_chip_note
from flashlearn.show.draw.pairs import Block, Visit, pairs
from flashlearn.show.draw.scene import NARROW, WIDE, Grid, Rect, Scene, Span
from flashlearn.show.draw.style import index
from flashlearn.show.draw.values import check_steps_of

MAP = 214  # pixels: the part for the square of pairs
SQUARES, OF_KEYS = ("S", "P", "dP", "dS"), ("K", "V", "dK", "dV")  # no number; numbered as keys are
LABELS = {"delta": "δ"}


def draw_backward_chip(step: Step, *, narrow: bool = False) -> Scene:
    """One step of the backward pass by tiles: which pair of blocks it is, and its products in numbers."""
    check_steps_of("the backward pass by tiles", step, shapes=["Q", "K", "dQ", "dK", "lse"], values=["dO", "O"])
    room = (NARROW if narrow else WIDE - MAP - 10) - 2 * PAD
    kinds = {(s.phase, "P" in s.values): s for s in step.run or (step,)}.values()
    high = max(300 if not narrow else 200, *(34 + tall(wrapped(_lines(s), room)) for s in kinds))
    if narrow:
        scene, square, area = Scene(NARROW, 200 + high), Rect(0, 0, NARROW, 190), Rect(0, 200, NARROW, high)
    else:
        scene, square, area = Scene(WIDE, high), Rect(0, 0, MAP, high), Rect(MAP + 10, 0, WIDE - MAP - 10, high)
    _map(scene, step, square)
    memory(scene, area, "sram", on_chip_note(step))
    lines = wrapped(_lines(step), room)
    if lines:
        put(scene, lines, Rect(area.x + PAD, area.y + 30, room, area.h - 34))
    else:
        scene.text(*area.centre, "nothing is on chip", role="quiet", anchor="middle")
    return scene


def _lines(step: Step) -> list[Line]:
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
    lines: list[Line] = [
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
    return "" if number is None else index(number)


def _map(scene: Scene, step: Step, area: Rect) -> None:
    """The square of pairs: what this run meets, has met and meets now; next to it or below it bytes and FLOPs so far."""
    memory(scene, area, "hbm", name="pairs of blocks")
    run, narrow = step.run or (step,), scene.width == NARROW
    N_q, N_k = step.shapes["S"][-2:]
    size = min((area.w - 60) / max(N_k, 1), 112 / max(N_q, 1))
    grid = Grid(area.x + 44, area.y + 60, N_q, N_k, size, size)
    scene.rect(grid.rect(), "blank")
    visits = [Visit(s.number, block) for s in run if (block := _block(s))]
    entries = pairs(scene, grid, visits, step.number, _block(step))
    scene.cell_lines(grid)
    met = [s.values for s in run if _block(s) is not None]
    for i, rows in sorted({(v["i"], v["rows"]) for v in met}):
        scene.text(grid.x - 6, grid.rect(rows).centre[1], f"Q{index(i)}", 13, anchor="end", bold=True)
    for j, cols in sorted({(v["j"], v["cols"]) for v in met}):
        scene.text(
            grid.rect(cols=cols).centre[0], grid.y - 5, f"K{index(j)}", 13, anchor="middle", va="bottom", bold=True
        )
    x, y = (grid.right + 20, 60) if narrow else (area.x + PAD, grid.bottom + 22)
    words = {"done": "met", "never visited": "not met"}
    y = scene.legend(x, y, [(words.get(word, word), look) for word, look in entries], right=area.right)
    _counts(scene, step, Rect(x, y + 26, area.right - PAD - x, 0))


def _block(step: Step) -> Block | None:
    """(rows, cols) of the pair of blocks that a step works on, if any."""
    values = step.values
    return (values["rows"], values["cols"]) if "P" in values else None


def _counts(scene: Scene, step: Step, area: Rect) -> None:
    """Bytes and FLOPs of products since the first step shown, and of this one."""
    so_far, now = hbm_bytes(step.so_far), hbm_bytes([step])
    flops, more = matmul_flops(step.so_far), matmul_flops([step])
    counts = (
        ("▼ read", so_far.read, now.read, " B"),
        ("▲ written", so_far.written, now.written, " B"),
        ("FLOPs", flops, more, ""),
    )
    for line, (name, total, new, unit) in enumerate(counts):
        y = area.y + 24 * line
        scene.text(area.x, y, f"{name} {total:,}{unit}", 13, bold=True)
        if new:
            scene.text(area.right, y, f"+{new:,}", 13, anchor="end")


# Of each pass: what it adds up, the factor that a pair of blocks brings, the block it is multiplied with
SUMS = {
    "dK and dV": (("dV", "P", "dO"), ("dK", "dS", "Q")),
    "dQ": (("dQ", "dS", "K"),),
}


def draw_sums(step: Step, *, narrow: bool = False) -> Scene:
    """The sums of the block that stays at this step, as far as its terms are there: dV and dK, or dQ."""
    check_steps_of("the backward pass by tiles", step, shapes=["Q", "K", "dQ", "dK", "lse"], values=["dO", "O"])
    width = NARROW if narrow else WIDE
    kinds = {(s.phase, s.values.get("i"), s.values.get("j")): s for s in step.run or (step,) if "P" in s.values}
    first = {(phase, i if phase == "dQ" else j): s for (phase, i, j), s in kinds.items()}
    high = max((tall(_sums(s, width - 2 * PAD)) for s in first.values()), default=100)
    scene = Scene(width, high)
    lines = _sums(step, width - 2 * PAD)
    if lines:
        put(scene, lines, Rect(PAD, 0, width - 2 * PAD, high))
    return scene


def _sums(step: Step, room: float) -> list[Line]:
    """The sums of a step, line by line."""
    return wrapped([[_sum(step, *names)] for names in SUMS.get(step.phase, ()) if "P" in step.values], room)


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
        name = f"{other}{index(s.values[comes])}"
        right = matrix(name, other, block if there else None, (block.shape[0], block.shape[1]))
        parts += [sign, left, "·", right]
        sign = "+" if made == "dV" else "+ τ"
    return parts
