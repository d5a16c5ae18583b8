"""A gradient of the backward pass by tiles as the sum that it is, written out: one term for every block that it meets."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.equations import Matrix, equation, fitting, height, length, matrix, part
from flashlearn.show.draw.sheet import Sheet
from flashlearn.show.draw.style import index
from flashlearn.show.draw.values import check_steps_of

# Of each sweep: what it adds up, the factor that a pair of blocks brings, the block it is multiplied with
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
