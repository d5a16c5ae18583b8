"""Matrices with their numbers, set in a line as an equation: names above, signs between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import Place, Sheet
from flashlearn.show.draw.style import PALE, contrast, fixed, tint

CELL, LINE, GAP = 58, 32, 9  # pixels: width and height of an entry, and beside a sign
NAMED = 27  # pixels above a matrix, for its name
# S, P, dP and dS are four things in one colour: four shades, of which the last is dark.
SHADES = {"S": 0.2, "P": 0.75, "dP": 0.4, "dS": 1.0}
SHADE = 0.35  # of every other matrix
Rows = Sequence[Sequence[float]]


class Matrix(NamedTuple):
    """A matrix of an equation: what it is called, whose colour it has, its rows or None where it is not there yet."""

    label: str
    name: str
    rows: Rows | None
    shape: tuple[int, int]

    @property
    def width(self) -> float:
        return CELL * self.shape[1]


def matrix(label: str, name: str, values: Tensor | None, shape: tuple[int, int] | None = None) -> Matrix:
    """A two-dimensional tensor as a matrix; one that is not there yet needs a shape."""
    if values is None:
        return Matrix(label, name, None, shape or (1, 1))
    rows = values.detach().double().tolist()
    return Matrix(label, name, rows, (len(rows), len(rows[0]) if rows else 0))


def part(step: Step, name: str, rows: tuple[int, int] | None = None, cols: tuple[int, int] | None = None) -> Tensor:
    """Some rows and columns of a named value of a step, of the first head of the first batch entry."""
    t = step.values[name].detach()[0, 0]
    return t[slice(*(rows or (None,))), slice(*(cols or (None,)))]


def short(value: float) -> str:
    """A number with at most two decimals."""
    text = fixed(value, 2)
    return text.rstrip("0").rstrip(".") if "." in text else text


def equation(sheet: Sheet, x: float, y: float, parts: Sequence[Matrix | str], size: int = 20) -> float:
    """Set parts from x on, the top of the matrices at y, each in the middle of the tallest; returns where it ends."""
    tallest = LINE * max(each.shape[0] for each in parts if isinstance(each, Matrix))
    for each in parts:
        if isinstance(each, str):
            width = _width(each, size)
            sheet.text(x + width / 2, y + tallest / 2, each, fontsize=size, **CENTRED)
        else:
            width = each.width
            _paint(sheet, x, y + (tallest - LINE * each.shape[0]) / 2, each)
        x += width
    return x


def length(parts: Sequence[Matrix | str], size: int = 20) -> float:
    """The width of an equation in pixels."""
    return sum(_width(each, size) if isinstance(each, str) else each.width for each in parts)


def _width(sign: str, size: int) -> float:
    return 0.74 * size * max(1, len(sign.strip())) + 2 * GAP


def _paint(sheet: Sheet, x: float, y: float, matrix: Matrix) -> None:
    """The name, and every entry in its cell; pale and empty where it is not there yet."""
    rows, cols = matrix.shape
    place = Place(x, y, rows, cols, CELL, LINE)
    there = matrix.rows is not None
    face = tint(matrix.name, SHADES.get(matrix.name, SHADE)) if there else (1.0, 1.0, 1.0)
    sheet.fill(place.rect(), face)
    ink = "black" if contrast(face, "black") >= contrast(face, "white") else "white"
    for r, row in enumerate(matrix.rows or ()):
        for c, value in enumerate(row):
            sheet.text(*place.cell(r, c).centre, short(value), color=ink, fontsize=13, zorder=5, **CENTRED)
    sheet.grid(place)
    style = {"weight": "bold", "fontsize": 16, "zorder": 5, **({} if there else {"color": PALE})}
    sheet.text(place.x, y - 5, matrix.label, va="bottom", **style)
