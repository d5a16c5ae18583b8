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

    They have at most 10 rows and 11 columns; of three, the second has at most 7 rows and the third 2. ValueError for
    more, or for masks that do not fit there; TypeError for what are no booleans under names.
    """
    places = [(COLUMNS[0], TOP), (COLUMNS[1], TOP), (COLUMNS[1], 330)]
    _check(masks)
    sheet = Sheet(ax, WIDTH, HEIGHT)
    for (left, top), (name, mask) in zip(places, masks.items(), strict=False):
        sheet.text(left, top - 10, name, va="bottom", weight="bold")
        for i, row in enumerate(mask.tolist()):
            for j, sees in enumerate(row):
                face = tint("S", 0.7) if sees else colour("masked")
                sheet.box((left + WIDE * j, top + HIGH * i, WIDE, HIGH), face, edge="white", hatched=not sees)
    sheet.text(COLUMNS[0] - 10, TOP + 165, "queries ↓\nkeys →", ha="right", va="center")
    sheet.paint()


def _check(masks: Mapping[str, Tensor]) -> None:
    check_booleans(masks)
    shapes = [tuple(mask.shape) for mask in masks.values()]
    rows = (10, 7, 2) if len(shapes) == 3 else (10, 10)
    fits = len(shapes) <= len(rows) and all(
        len(shape) == 2 and shape[0] <= most and shape[1] <= 11 for shape, most in zip(shapes, rows, strict=False)
    )
    if not fits:
        raise ValueError(
            "expected up to three masks of at most 10 x 11, of three the second of at most 7 x 11 and the third 2 x 11, "
            f"got {shapes}"
        )


def check_booleans(masks: Mapping[str, Tensor]) -> None:
    """TypeError for what are no tensors of booleans under names."""
    if not isinstance(masks, Mapping):
        raise TypeError(f"expected masks by their names, {{name: mask}}, got {type(masks).__name__}")
    for name, mask in masks.items():
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise TypeError(f"expected masks as tensors of booleans, got {got} for {name!r}")
