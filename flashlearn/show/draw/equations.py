"""Matrices with their numbers, set in lines as equations: names above, signs between."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from torch import Tensor

from flashlearn.core.signs import fixed
from flashlearn.core.steps import Step
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.scene import SMALLEST, Grid, Rect, Scene
from flashlearn.show.draw.style import role

CELL, LINE, GAP = 40, 20, 6  # pixels: width and height of an entry, and next to a sign
NAMED = 18  # pixels above a matrix, for its name
NUMBER, SIGN = 12, 15  # sizes of type
ACROSS, DOWN = 28, 12  # pixels between equations of a line, and between lines
# S, P, dP and dS are four things in one colour: four shades, of which the last is full.
SHADES = {"S": "pale", "P": "half", "dP": "light", "dS": ""}
LARGEST = 1.5  # times the plain size that an equation may grow to


class Matrix(NamedTuple):
    """A matrix of an equation: what it is called, whose colour it has, its values or None where it is not there yet."""

    label: str
    name: str
    values: Tensor | None
    shape: tuple[int, int]


Equation = Sequence[Matrix | str]
Line = Sequence[Equation]


def matrix(label: str, name: str, values: Tensor | None, shape: tuple[int, int] | None = None) -> Matrix:
    """A two-dimensional tensor as a matrix; one that is not there yet needs a shape."""
    if values is None:
        return Matrix(label, name, None, shape or (1, 1))
    return Matrix(label, name, values, (values.shape[0], values.shape[1]))


def part(step: Step, name: str, rows: tuple[int, int] | None = None, cols: tuple[int, int] | None = None) -> Tensor:
    """Some rows and columns of a named value of a step, of the first head of the first batch entry."""
    t = step.values[name].detach()[0, 0]
    return t[slice(*(rows or (None,))), slice(*(cols or (None,)))]


def short(value: float, digits: int = 2) -> str:
    """A number with at most so many decimals."""
    text = fixed(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def length(parts: Equation) -> float:
    """The width of an equation of plain size, in pixels."""
    return sum(map(_width, parts))


def height(parts: Equation) -> float:
    """The height of an equation of plain size, names and all."""
    return LINE * max(_rows(parts)) + NAMED


def wrapped(lines: Sequence[Line], room: float) -> list[Line]:
    """Lines that fit a width: one that is too wide becomes a line for each equation, and these break before a +."""
    found: list[Line] = []
    for line in lines:
        if sum(map(length, line)) + ACROSS * (len(line) - 1) <= room:
            found.append(line)
        else:
            found += [[piece] for parts in line for piece in _broken(parts, room)]
    return found


def _broken(parts: Equation, room: float) -> list[Equation]:
    """An equation in pieces, each from a "+" on that would not fit the piece before."""
    if length(parts) <= room:
        return [parts]
    pieces: list[list[Matrix | str]] = [[]]
    for at, each in enumerate(parts):
        if isinstance(each, str) and each[:1] == "+" and "=" not in each and pieces[-1]:
            stop = next((n for n in range(at + 1, len(parts)) if str(parts[n])[:1] == "+"), len(parts))
            if length(pieces[-1]) + length(parts[at:stop]) > room:
                pieces.append([])
        pieces[-1].append(each)
    return list(pieces)


def tall(lines: Sequence[Line]) -> float:
    """The height of lines of plain size, with what is between them."""
    return sum(max(map(height, line)) for line in lines) + DOWN * (len(lines) + 1)


def fitting(lines: Sequence[Line], room: float, high: float) -> float:
    """How many times the plain size lines may have in that room, at most LARGEST; less than 1 where they must."""
    if not lines:
        return 1.0
    return min(LARGEST, high / tall(lines), *(_fits(line, room) for line in lines))


def _fits(line: Line, room: float) -> float:
    return room / (sum(map(length, line)) + ACROSS * (len(line) - 1))


def put(scene: Scene, lines: Sequence[Line], area: Rect, framed: Equation | None = None) -> None:
    """Set lines in the middle of an area; a frame around one equation."""
    common = min(max(1.0, fitting(lines, area.w, 1e9)), area.h / tall(lines))
    scales = [min(common, _fits(line, area.w)) for line in lines]  # only what is too wide is smaller
    used = sum(_high(scale) * max(map(height, line)) for scale, line in zip(scales, lines, strict=True))
    free = (area.h - used) / (len(lines) + 1)
    y = area.y
    for scale, line in zip(scales, lines, strict=True):
        y += free
        high = _high(scale) * max(map(height, line))
        spare = area.w - scale * sum(map(length, line))
        gap = max(spare / (len(line) + 1), min(ACROSS * scale, spare / len(line[1:] or line)))
        x = area.x + (spare - gap * len(line[1:])) / 2
        for parts in line:
            end = _equation(scene, x, y, parts, scale)
            if parts is framed:
                scene.outline((x - 8, y - 3, end - x + 16, high + 10), id="now")
            x = end + gap
        y += high


def _high(scale: float) -> float:
    """How many times the plain height: rows keep room for their numbers."""
    return max(scale, 0.9)


def _equation(scene: Scene, x: float, y: float, parts: Equation, scale: float) -> float:
    """Set parts from x on, the names above y, each in the middle of the tallest; returns where it ends."""
    row = LINE * _high(scale)
    tallest, y = row * max(_rows(parts)), y + NAMED * _high(scale)
    for each in parts:
        if isinstance(each, str):
            size = max(SMALLEST, SIGN * scale)
            scene.text(x + _width(each) * scale / 2, y + tallest / 2, each, size, anchor="middle")
        else:
            _paint(scene, x, y + (tallest - row * each.shape[0]) / 2, each, scale)
        x += _width(each) * scale
    return x


def _rows(parts: Equation) -> list[int]:
    return [each.shape[0] for each in parts if isinstance(each, Matrix)]


def _width(each: Matrix | str) -> float:
    return width(each.strip(), SIGN) + 2 * GAP if isinstance(each, str) else CELL * max(each.shape[1], 1)


def _paint(scene: Scene, x: float, y: float, matrix: Matrix, scale: float) -> None:
    """The name, and every entry in its cell; pale and empty where it is not there yet."""
    grid = Grid(x, y, *matrix.shape, CELL * scale, LINE * _high(scale))
    there = matrix.values is not None
    tone = SHADES.get(matrix.name, "light")
    scene.rect(grid.rect(), "blank")  # tones let through what is below them
    if matrix.values is not None:
        scene.rect(grid.rect(), role(matrix.name), tone)
        size = max(SMALLEST, round(NUMBER * scale))
        rows = matrix.values.double().tolist()
        every = [value for row in rows for value in row]
        fits = (d for d in (2, 1) if all(width(short(value, d), size) <= grid.w + 2 for value in every))
        show, ink = partial(short, digits=next(fits, 0)), "on" if tone == "" else "ink"
        scene.numbers(grid, rows, show, size=size, role=ink)
    scene.cell_lines(grid)
    name = max(SMALLEST, 13 * scale)
    scene.text(grid.x, y - 4, matrix.label, name, va="bottom", bold=True, role="ink" if there else "quiet")
