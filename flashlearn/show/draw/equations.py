"""Matrices with their numbers, set in a line as an equation: names above, signs between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import Grid, Sheet
from flashlearn.show.draw.style import PALE, contrast, fixed, tint

CELL, LINE, GAP = 58, 32, 9  # pixels: width and height of an entry, and beside a sign
NAMED = 27  # pixels above a matrix, for its name
NUMBER, SIGN = 13, 18  # sizes of type
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


Equation = Sequence[Matrix | str]
LARGEST = 1.6  # times the plain size that an equation may grow to


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


def equation(sheet: Sheet, x: float, y: float, parts: Equation, scale: float = 1.0) -> float:
    """Set parts from x on, the names above y, each in the middle of the tallest; returns where it ends."""
    tallest, y = LINE * scale * max(_rows(parts)), y + NAMED * scale
    for each in parts:
        if isinstance(each, str):
            sheet.text(x + _width(each) * scale / 2, y + tallest / 2, each, fontsize=SIGN * scale, **CENTRED)
        else:
            _paint(sheet, x, y + (tallest - LINE * scale * each.shape[0]) / 2, each, scale)
        x += _width(each) * scale
    return x


def length(parts: Equation) -> float:
    """The width of an equation of plain size, in pixels."""
    return sum(map(_width, parts))


def height(parts: Equation) -> float:
    """The height of an equation of plain size, names and all."""
    return LINE * max(_rows(parts)) + NAMED


def fitting(lines: Sequence[Sequence[Equation]], width: float, tall: float, between: float = 24.0) -> float:
    """How many times the plain size some lines of equations may have in that room, at most LARGEST.

    Less than 1, at which numbers are hard to read, only where they would not fit at all.
    """
    if not lines:
        return 1.0
    broad = max(sum(map(length, line)) for line in lines)
    high = sum(max(map(height, line)) for line in lines)
    roomy = min(LARGEST, (width - between * max(map(len, lines))) / broad, (tall - 8 * len(lines)) / high)
    return max(roomy, min(1.0, width / broad, tall / high))


def _rows(parts: Equation) -> list[int]:
    return [each.shape[0] for each in parts if isinstance(each, Matrix)]


def _width(each: Matrix | str) -> float:
    if isinstance(each, str):
        return 0.74 * SIGN * max(1, len(each.strip())) + 2 * GAP
    return CELL * each.shape[1]


def _paint(sheet: Sheet, x: float, y: float, matrix: Matrix, scale: float) -> None:
    """The name, and every entry in its cell; pale and empty where it is not there yet."""
    rows, cols = matrix.shape
    grid = Grid(x, y, rows, cols, CELL * scale, LINE * scale)
    there = matrix.rows is not None
    face = tint(matrix.name, SHADES.get(matrix.name, SHADE)) if there else (1.0, 1.0, 1.0)
    sheet.fill(grid.rect(), face)
    ink = "black" if contrast(face, "black") >= contrast(face, "white") else "white"
    for r, row in enumerate(matrix.rows or ()):
        for c, value in enumerate(row):
            sheet.text(*grid.cell(r, c).centre, short(value), color=ink, fontsize=NUMBER * scale, zorder=5, **CENTRED)
    sheet.cell_lines(grid)
    style = {"weight": "bold", "fontsize": 16 * scale, "zorder": 5, **({} if there else {"color": PALE})}
    sheet.text(grid.x, y - 5, matrix.label, va="bottom", **style)
