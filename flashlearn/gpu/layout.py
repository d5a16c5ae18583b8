"""From an index to an address by the strides of a tensor, as steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from flashlearn.core.steps import Step, Tile


def layout_steps(x: Tensor) -> Iterator[Step]:
    """Visit x in index order, the last index fastest; yield the position of each element in memory.

    offset = start + sum_d index_d stride_d, in elements

    x       any tensor, views included; what a view leaves out is in `values["memory"]` all the same
    values  memory (all elements of the storage), start, shape, strides, index, offset, offsets
    output  the offset of every element, shaped as x
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"expected x to be a torch.Tensor, got {type(x).__name__}")
    memory = x.new_empty(0).set_(x.untyped_storage())
    start, strides = int(x.storage_offset()), x.stride()
    layout = {"memory": memory, "start": start, "shape": tuple(x.shape), "strides": strides}
    offsets = torch.full(x.shape, start, dtype=torch.long, device="cpu")
    for d, stride in enumerate(strides):
        offsets += (stride * torch.arange(x.shape[d], device="cpu")).reshape(-1, *[1] * (x.ndim - d - 1))
    layout["offsets"] = offsets
    shapes = {"memory": tuple(memory.shape)}
    for index in np.ndindex(*x.shape):
        offset = int(offsets[index])
        sum_of = " + ".join(f"{i} × {stride}" for i, stride in zip(index, strides, strict=True))
        begin = f"{start} + " if start else ""
        yield Step(
            sentence=f"Element {list(index)} is at offset {begin}{sum_of} = {offset}.",
            phase="in index order",
            shapes=shapes,
            reads=(Tile("memory", ((offset, offset + 1),), x.element_size()),),
            values={**layout, "index": index, "offset": offset},
        )
    kind = (
        "contiguous: index order is memory order" if x.is_contiguous() else "not contiguous: the walk jumps in memory"
    )
    sentence = f"Done: shape {tuple(x.shape)}, strides {strides}: {kind}."
    yield Step(sentence=sentence, phase="done", shapes=shapes, values=layout, output=offsets)
