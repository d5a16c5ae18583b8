"""Steps that were recorded from a kernel, with what the pictures of the algorithms show in addition to loads and stores.

accumulators   what a program stores at its end is on chip from its first step on, in float32
masked part    of a block that the mask crosses, by the mask among the kernel's arguments
m, l, scaled   the kernel's own variables: m in its units, scaled is alpha
products       by what the kernel writes, in `PRODUCTS`; their shapes must fit those that were recorded
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import torch

from flashlearn.core.steps import Step, Tile

PRODUCTS = {  # by what a kernel writes, in the order in which it multiplies
    "O": ("S = Q Kᵀ", "acc += P V"),
    "dK": ("Sᵀ = K Qᵀ", "dV += Pᵀ dO", "dPᵀ = V dOᵀ", "dK += dSᵀ Q"),
    "dQ": ("S = Q Kᵀ", "dP = dO Vᵀ", "dQ += dS K"),
}
WIDE = 4  # bytes of a float32


def drawable(steps: Iterable[Step]) -> Iterator[Step]:
    """Steps of `kernel_steps` for attention, with the accumulators, masks and products that pictures show.

    In a masked block values["S"] (forward) is -inf, or values["P"] (backward) 0, where the mask hides. ValueError if a
    step multiplied other shapes than those of its products.
    """
    steps = list(steps)
    shapes: dict[str, tuple[int, ...]] = {}
    stores: dict[tuple, list[Tile]] = {}
    for step in steps:
        shapes |= step.shapes
        stores.setdefault((step.phase, step.program), []).extend(step.writes)
    before: dict[tuple, torch.Tensor] = {}  # m of every program, as the step before left it
    for step in steps:
        owned = stores[step.phase, step.program]
        meets = any(tile.name == "S" for tile in step.on_chip)
        values = {**step.values, "products": _products(step, owned) if meets else ()}
        if meets and step.values["masked"]:
            values |= _mask(step, owned)
        if meets and _writes(owned, "O"):
            values |= _columns(step, before)
        yield replace(step, shapes=shapes, values=values, on_chip=tuple(_on_chip(step, owned)))


def without_numbers(steps: Iterable[Step]) -> Iterator[Step]:
    """Steps of an algorithm as a recorder would see them: places, tiles and masks, but no running values."""
    for step in steps:
        yield replace(step, values={name: step.values[name] for name in ("S", "masked") if name in step.values})


def _writes(owned: Iterable[Tile], name: str) -> bool:
    return any(tile.name == name for tile in owned)


def _on_chip(step: Step, owned: list[Tile]) -> Iterator[Tile]:
    """The tiles that were loaded, the blocks of scores, and the accumulators."""
    for tile in step.on_chip:
        if tile.name == "S" and not _writes(owned, "O"):  # P takes the place of S, dS that of dP
            yield replace(tile, name="P")
            yield replace(tile, name="dS")
        else:
            yield tile
    for tile in owned if step.reads or step.writes else ():
        if tile.name == "O":
            yield replace(tile, name="acc", itemsize=WIDE)
            for name in ("l_i", "m_i"):
                yield Tile(name, (*tile.index[:-1], (0, 1)), WIDE)
        elif tile.name not in ("lse", "delta"):
            yield replace(tile, itemsize=WIDE)


def _mask(step: Step, owned: list[Tile]) -> dict[str, torch.Tensor]:
    """What the mask hides in this block, as the pictures read it: scores of -inf, or probabilities of 0."""
    visible = step.values["mask"].visible(step.values["rows"], step.values["cols"])
    visible = visible.expand(1, 1, *visible.shape[-2:])
    scores = torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))
    return {"S": scores} if _writes(owned, "O") else {"P": visible.float()}


def _columns(step: Step, before: dict[tuple, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What the table of rows shows, (rows, 1) each: m, l, m before, and the factor on acc; nothing if alpha was not found."""
    held = step.values.get("registers", {})
    if len(held) < 3:
        return {}
    rows = step.values["rows"][1] - step.values["rows"][0]
    m, l, alpha = (held[name][:rows, None] for name in ("m_i", "l_i", "alpha"))
    m_old = before.get(step.program, torch.full_like(m, float("-inf")))
    before[step.program] = m
    return {"m_i": m, "l_i": l, "m_old": m_old, "factor": alpha}


def _products(step: Step, owned: list[Tile]) -> tuple[str, ...]:
    """The products of this step by name; each must fit into the padded shapes that were multiplied."""
    products = next((PRODUCTS[name] for name in PRODUCTS if _writes(owned, name)), ())
    if len(products) != len(step.matmuls) or not all(
        _fits(step, product, sizes) for product, sizes in zip(products, step.matmuls, strict=True)
    ):
        raise ValueError(f"expected the products {products} in {step.phase}, got the shapes {step.matmuls}")
    return products


def _fits(step: Step, product: str, matmul: tuple[int, ...]) -> bool:
    """Whether both factors fit into a product of (m, n) by (n, p)."""
    _, m, n, p = matmul
    left, right = (factor_shape(step, factor, {"P": "S", "dS": "S"}) for factor in product.split()[2:])
    return left[0] <= m and left[1] == right[0] <= n and right[1] <= p


def factor_shape(step: Step, factor: str, on_chip: Mapping[str, str]) -> tuple[int, int]:
    """Rows and columns of a factor as it is used, "Kᵀ" transposed; `on_chip` names the tiles that take another's room."""
    plain = factor.rstrip("ᵀ")
    tile = next(tile for tile in step.on_chip if tile.name == on_chip.get(plain, plain))
    rows, cols = (stop - start for start, stop in (tile.rows, tile.cols))
    return (cols, rows) if factor.endswith("ᵀ") else (rows, cols)
