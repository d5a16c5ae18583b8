"""Who sees whom: masks of booleans, side by side."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from matplotlib.axes import Axes
from torch import Tensor

from flashlearn.show.draw.sheet import Sheet
from flashlearn.show.draw.style import colour, tint

WIDTH, HEIGHT = 1280, 420
WIDE, HIGH = 42, 33  # of a cell
COLUMNS, TOP = (190, 680), 60  # where masks start


def draw_masks(ax: Axes, masks: Mapping[str, Tensor]) -> None:
    """Paint up to three masks (N_q, N_k), each under its name: hatched what is hidden; the third below the second.

    ValueError for more, or for masks that do not fit there; TypeError for what are no booleans under names.
    """
    places = [(COLUMNS[0], TOP), (COLUMNS[1], TOP), (COLUMNS[1], 330)]
    _check(masks, len(places))
    sheet = Sheet(ax, WIDTH, HEIGHT)
    for (left, top), (name, mask) in zip(places, masks.items(), strict=False):
        sheet.text(left, top - 10, name, va="bottom", weight="bold")
        for i, row in enumerate(mask.tolist()):
            for j, sees in enumerate(row):
                face = tint("S", 0.7) if sees else colour("masked")
                sheet.box((left + WIDE * j, top + HIGH * i, WIDE, HIGH), face, edge="white", hatched=not sees)
    sheet.text(COLUMNS[0] - 10, TOP + 165, "queries ↓\nkeys →", ha="right", va="center")
    sheet.paint()


def _check(masks: Mapping[str, Tensor], most: int) -> None:
    if not isinstance(masks, Mapping):
        raise TypeError(f"expected masks by their names, {{name: mask}}, got {type(masks).__name__}")
    for name, mask in masks.items():
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise TypeError(f"expected masks as tensors of booleans, got {got} for {name!r}")
    shapes = [tuple(mask.shape) for mask in masks.values()]
    if len(shapes) > most or any(len(shape) != 2 or shape[0] > 10 or shape[1] > 11 for shape in shapes):
        raise ValueError(f"expected up to three masks of at most 10 x 11, got {shapes}")
