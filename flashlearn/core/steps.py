"""One record for every iteration of every algorithm in the course.

Each algorithm is a generator that yields a `Step` at the end of each iteration; the plain function is
that generator run to its end. A `Step` says which tiles moved between HBM (the GPU's large, slow memory)
and the chip, what sits on chip now, what the running values are, and, in one sentence, what happened.
From the same steps come the result (`run`), the bytes (`hbm_bytes`), the on-chip memory (`sram_peak`),
the floating-point work (`matmul_flops`) and every picture (`record`, then `flashlearn.show.draw`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch


@dataclass(frozen=True)
class Tile:
    """A rectangular piece of a named tensor.

    `index` gives (start, stop) for every dimension, in elements; `itemsize` is the bytes of one element;
    `times` counts how many programs move this same piece (grouped-query attention: every query head
    of a group reads the K and V of its group for itself).

    >>> Tile("K", ((0, 1), (2, 4), (0, 64)), itemsize=2).nbytes
    256
    """

    name: str
    index: tuple[tuple[int, int], ...]
    itemsize: int
    times: int = 1

    def __post_init__(self):
        for start, stop in self.index:
            if not 0 <= start <= stop:
                raise ValueError(f"tile {self.name}: expected 0 <= start <= stop, got {start}:{stop}")

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor, *index: slice | Any, times: int = 1) -> Tile:
        """The tile `tensor[index]`, by slices and at most one `...`; no index means the whole tensor.

        >>> Tile.of("x", torch.zeros(2, 10), ..., slice(4, 8)).index
        ((0, 2), (4, 8))
        """
        if Ellipsis in index:
            dots = index.index(Ellipsis)
            index = index[:dots] + (slice(None),) * (tensor.ndim - len(index) + 1) + index[dots + 1 :]
        index = index + (slice(None),) * (tensor.ndim - len(index))
        bounds = (part.indices(size)[:2] for part, size in zip(index, tensor.shape, strict=True))
        return cls(name, tuple((start, max(start, stop)) for start, stop in bounds), tensor.element_size(), times)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along every dimension."""
        return tuple(stop - start for start, stop in self.index)

    @property
    def nbytes(self) -> int:
        """Bytes moved when this tile is read or written once by each of its `times` programs."""
        elements = self.times
        for size in self.shape:
            elements *= size
        return elements * self.itemsize

    @property
    def rows(self) -> tuple[int, int]:
        """(start, stop) of the last dimension but one; a vector is one row."""
        return self.index[-2] if len(self.index) > 1 else (0, 1)

    @property
    def cols(self) -> tuple[int, int]:
        """(start, stop) of the last dimension; a scalar is one column."""
        return self.index[-1] if self.index else (0, 1)

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(f'{start}:{stop}' for start, stop in self.index)}]"


class Traffic(NamedTuple):
    """Bytes moved between HBM and the chip."""

    read: int
    written: int

    @property
    def total(self) -> int:
        return self.read + self.written


@dataclass(frozen=True, eq=False)
class Step:
    """What one iteration of an algorithm did.

    sentence   what happened, for people (it is the caption and the screen reader's text)
    phase      the pass or loop this iteration belongs to, e.g. "maximum", "sum", "divide"
    shapes     shape of every named matrix in the picture, stored in HBM or not (S never is)
    reads      tiles read from HBM in this iteration
    writes     tiles written to HBM; `values[tile.name]` is what was written
    on_chip    tiles in SRAM or registers at the end of this iteration, before any is dropped
    values     named running values (m_i, l_i, acc, ...) and the inputs; tensors, never changed afterwards
    matmuls    matrix products done, each (batch, m, n, p) for (m, n) times (n, p)
    program    the GPU program that did it: its position in the launch grid
    output     the result; only the last step has it

    `record` adds the step's place in its run: `number`, from 0, and the whole `run`.
    """

    sentence: str
    phase: str = ""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reads: tuple[Tile, ...] = ()
    writes: tuple[Tile, ...] = ()
    on_chip: tuple[Tile, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    matmuls: tuple[tuple[int, int, int, int], ...] = ()
    program: tuple[int, ...] = ()
    output: Any = None
    number: int = 0
    run: Sequence[Step] = field(default=(), repr=False)

    def __post_init__(self):
        for tile in (*self.reads, *self.writes):
            shape = self.shapes.get(tile.name)
            if shape is None:
                raise ValueError(f"expected the shape of {tile.name} in `shapes`, got {sorted(self.shapes)}")
            inside = len(shape) == len(tile.index) and all(
                stop <= size for (_, stop), size in zip(tile.index, shape, strict=True)
            )
            if not inside:
                raise ValueError(f"expected a tile inside {tile.name} of shape {tuple(shape)}, got {tile}")

    @property
    def so_far(self) -> Sequence[Step]:
        """This step and those before it in its run."""
        return self.run[: self.number + 1] if self.run else (self,)

    def written(self, name: str) -> torch.Tensor:
        """The matrix `name` as HBM holds it after this step, NaN where nothing was written yet."""
        content = torch.full(tuple(self.shapes[name]), float("nan"), dtype=torch.float64)
        for step in self.so_far:
            for tile in step.writes:
                if tile.name == name:
                    content[tuple(slice(*bounds) for bounds in tile.index)] = step.values[name].detach().double().cpu()
        return content


def last(steps: Iterable[Step]) -> Step:
    """Run to the end and return the last step, keeping no other."""
    step = None
    for step in steps:  # noqa: B007 (only the last one is wanted)
        pass
    if step is None:
        raise ValueError("expected at least one step, got none")
    return step


def run(steps: Iterable[Step]) -> Any:
    """Run to the end and return the result."""
    return last(steps).output


def record(steps: Iterable[Step]) -> list[Step]:
    """Run to the end and return every step, each knowing its `number` and the `run` it belongs to."""
    kept: list[Step] = []
    for number, step in enumerate(steps):
        kept.append(replace(step, number=number, run=kept))
    if not kept:
        raise ValueError("expected at least one step, got none")
    return kept


def hbm_bytes(steps: Iterable[Step], *names: str) -> Traffic:
    """Bytes read from and written to HBM, of the matrices in `names` or of all."""
    read = written = 0
    for step in steps:
        read += sum(tile.nbytes for tile in step.reads if not names or tile.name in names)
        written += sum(tile.nbytes for tile in step.writes if not names or tile.name in names)
    return Traffic(read, written)


def sram_peak(steps: Iterable[Step]) -> int:
    """The most bytes on chip at once."""
    return max((sum(tile.nbytes for tile in step.on_chip) for step in steps), default=0)


def matmul_flops(steps: Iterable[Step]) -> int:
    """Floating-point operations of all matrix products: an (m, n) by (n, p) product costs 2 m n p."""
    return sum(2 * batch * m * n * p for step in steps for batch, m, n, p in step.matmuls)


def passes(steps: Iterable[Step], name: str) -> int:
    """How many phases read the matrix `name` from HBM."""
    return len({step.phase for step in steps if any(tile.name == name for tile in step.reads)})
