"""The bytes that a warp reads: the L2 cache delivers whole sectors of 32 bytes.

Source: NVIDIA, CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from numbers import Integral

from flashlearn.core.steps import Step

WARP, SECTOR = 32, 32  # threads; bytes


def sectors(stride: int, itemsize: int = 4) -> dict[int, list[int]]:
    """The sectors that a warp reads when thread t reads element t * stride: {sector: wanted elements in it, from 0}.

    >>> len(sectors(1)), len(sectors(2)), len(sectors(1000))
    (4, 8, 32)
    """
    for name, number in (("stride", stride), ("itemsize", itemsize)):
        if not isinstance(number, Integral) or isinstance(number, bool):
            raise TypeError(f"expected {name} to be an int, got {number!r}")
    if stride < 0 or itemsize not in (1, 2, 4, 8):
        raise ValueError(f"expected a stride of 0 or more and an itemsize of 1, 2, 4 or 8, got {stride}, {itemsize}")
    found: dict[int, list[int]] = {}
    for thread in range(WARP):
        sector, byte = divmod(thread * stride * itemsize, SECTOR)
        wanted = found.setdefault(sector, [])
        wanted += [byte // itemsize] * (byte // itemsize not in wanted)
    return found


def sector_steps(strides: Iterable[int], itemsize: int = 4) -> Iterator[Step]:
    """A step for each stride: the sectors that one load of one warp touches.

    values  stride, itemsize, sectors (as `sectors` gives them), moved and wanted (bytes)
    output  moved bytes for each stride, in the last step
    """
    moved = []
    for stride in strides:
        found = sectors(stride, itemsize)
        wanted = itemsize * sum(map(len, found.values()))
        moved.append(SECTOR * len(found))
        values = {"stride": stride, "itemsize": itemsize, "sectors": found, "moved": moved[-1], "wanted": wanted}
        sentence = f"Stride {stride}: {len(found)} sectors, {wanted} of {moved[-1]} bytes wanted."
        yield Step(sentence=sentence, phase="load", values=values)
    yield Step(sentence=f"Done: {len(moved)} strides.", phase="done", output=tuple(moved))
