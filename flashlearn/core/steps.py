"""One record for every iteration of every algorithm in the course.

Each algorithm is a generator that yields a `Step` at the end of each iteration; the plain function is that generator
run to its end. A `Step` has the tiles that moved between HBM (the GPU's large, slow memory) and the chip, the tiles on
chip now, the running values, and a sentence about it. The same steps give the result (`run`), the bytes (`hbm_bytes`),
the on-chip memory (`sram_peak`) and the floating-point work (`matmul_flops`). They give every picture, too (`record`,
then `flashlearn.show.draw`).
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import torch

from flashlearn.core.inputs import check_block, check_count
from flashlearn.core.signs import signed

R = TypeVar("R")


@dataclass(frozen=True)
class Tile:
    """A rectangular piece of a named tensor.

    `index` gives (start, stop) for every dimension, in elements. `itemsize` is the bytes of one element. `times` is the
    number of programs that move this same piece: with grouped-query attention every query head reads the K and V of its
    group for itself.

    >>> Tile("K", ((0, 1), (2, 4), (0, 64)), itemsize=2).nbytes
    256
    """

    name: str
    index: tuple[tuple[int, int], ...]
    itemsize: int
    times: int = 1

    def __post_init__(self) -> None:
        for start, stop in self.index:
            if not 0 <= start <= stop:
                raise ValueError(f"tile {self.name}: expected 0 <= start <= stop, got {start}:{stop}")
        if type(self.itemsize) is not int or type(self.times) is not int or self.itemsize < 1 or self.times < 0:
            check_block(self.itemsize, "itemsize")
            check_count(self.times, "times")

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along every dimension."""
        return tuple(stop - start for start, stop in self.index)

    @cached_property
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


# The names in `Step.values` that are not matrices, with their meaning, for code that draws, describes or tests a step.
VALUES = {
    "m_i": "running maximum of every row, (..., 1)",
    "l_i": "running sum of exponentials against that maximum, (..., 1)",
    "m_old": "m_i before this step",
    "l_old": "l_i before this step",
    "alpha": "exp(m_old - m_i): the factor of sums against the old maximum",
    "beta": "exp(m~ - m_i): the same for the sum of this block, in FlashAttention-1",
    "factor": "the factor of the old acc, o' or O",
    "m_block": "m~: the maximum of every row over this block alone, in FlashAttention-1",
    "l_block": "l~: the sum of exponentials of every row over this block alone, against m~",
    "term": "the contribution of this element or block to l_i",
    "acc": "the output so far, not divided; in the second of two passes the sum of finished terms",
    "o'": "the attention over the keys so far: acc / l_i, kept divided at every step",
    "S": "block of scores",
    "P": "block of exp(S - m), of weights once they are divided by l",
    "m_own": "maximum of this block alone, where every block wrongly keeps its own scale",
    "P_own": "block of exp(S - m_own)",
    "l_own": "sum of all P_own so far",
    "acc_own": "sum of all P_own V so far",
    "dP": "block of dO V^T",
    "capped": "block of scores after the softcap, before slopes and mask",
    "dS": "block of P o (dP - delta)",
    "i": "number of the block of queries, or of the row of C; None if no query attends to the keys",
    "j": "number of the block of keys, or of the column of C; None if the queries attend to no key",
    "p": "number of the inner block of a matrix product",
    "rows": "(start, stop) of the queries",
    "cols": "(start, stop) of the keys",
    "masked": "whether the mask hides part of the block, or all of it",
    "mask": "the `Mask` of the sequence, in a recorded kernel",
    "registers": "a recorded kernel's variables m_i, l_i and alpha, by name, one number for each row",
    "products": "the step's matrix products as formulas, in order",
    "span": "(start, stop) of the elements that a pair (m, l) covers",
    "parts": "the ranges that were merged; () for a block that was reduced",
    "merged": "(m, l) of each of these two ranges before the merge",
    "normalised": "whether o' is kept, divided at every step, and not acc",
    "fused": "whether dQ is made in the pass of dK and dV",
    "page": "number of the page in the pool; None if no key is attended to",
    "visits": "pairs of blocks that were visited; pages that were read",
    "pairs": "all pairs of blocks",
    "blocks": "blocks of C",
    "lse": "log sum exp of every row, (..., 1)",
    "s": "number of the step of a ring of processes",
    "processes": "the number of processes of a ring",
    "order": "of the shares of a ring: plain or zigzag",
    "owners": "the owner of the K and V of each process of a ring",
    "work": "the blocks of S that the processes of a ring compute in this step",
    "messages": "the messages of a ring in this step",
}


class _Sentence:
    """The field `sentence` of a step: a text, or a function of the step, called when somebody reads it."""

    def __get__(self, step: Step | None, owner: type) -> str:
        if step is None:
            return ""
        caption: str | Callable[[Step], str] = step.__dict__["_caption"]
        if callable(caption):
            caption = step.__dict__["_caption"] = signed(caption(step))
        return caption

    def __set__(self, step: Step, caption: str | Callable[[Step], str]) -> None:
        step.__dict__["_caption"] = caption


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """What one iteration of an algorithm did.

    sentence   what happened, for people (it is the caption and the screen reader's text); when a step is made, also
               a function of the step that returns it, called when the sentence is first read
    phase      the pass or loop this iteration belongs to, e.g. "maximum", "sum", "divide"
    shapes     shape of every named matrix in the picture, stored in HBM or not (S never is)
    reads      tiles read from HBM in this iteration
    writes     tiles written to HBM; `values[tile.name]` is what was written
    on_chip    tiles in SRAM or registers at the end of this iteration, with all that was loaded in it
    values     named values, tensors never changed afterwards: the inputs, and those of `VALUES`
    matmuls    matrix products done, each (batch, m, n, p) for (m, n) times (n, p)
    operations operations of one row, without matrix products: how many of "add", "multiply", "max", "exp", "divide"
    program    the GPU program that did it: its position in the launch grid
    output     the result; only the last step has it

    `record` adds the step's place in its run: `number`, from 0, and the whole `run`.
    """

    sentence: _Sentence = _Sentence()
    phase: str = ""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reads: tuple[Tile, ...] = ()
    writes: tuple[Tile, ...] = ()
    on_chip: tuple[Tile, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    matmuls: tuple[tuple[int, ...], ...] = ()
    operations: Counter[str] = field(default_factory=Counter)
    program: tuple[int, ...] = ()
    output: Any = None
    number: int = 0
    run: Sequence[Step] = field(default=(), repr=False)

    def __post_init__(self) -> None:
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
        content = torch.full(tuple(self.shapes[name]), float("nan"), dtype=torch.float64, device="cpu")
        for step in self.so_far:
            for tile in step.writes:
                if tile.name == name:
                    content[tuple(slice(*bounds) for bounds in tile.index)] = step.values[name].detach().double().cpu()
        return content


def each_step(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps one by one. TypeError for anything else, ValueError for a generator that has no step left."""
    try:
        each = iter(steps)
    except TypeError:
        raise _no_step(steps) from None
    step: Step | None = None
    for step in each:
        if not isinstance(step, Step):
            raise _no_step(step)
        yield step
    if step is None and each is steps:  # a list is known to be empty: a launch of no programs has no steps
        raise ValueError("expected at least one step, got none: a generator gives its steps once")


def _no_step(what: Any) -> TypeError:
    return TypeError(f"expected steps, e.g. those of online_softmax_steps(x), got {type(what).__name__}: {what!r:.80}")


def last(steps: Iterable[Step]) -> Step:
    """Run to the end and return the last step, keeping no other."""
    step = None
    for step in each_step(steps):  # noqa: B007 (only the last one is wanted)
        pass
    if step is None:
        raise ValueError("expected at least one step, got none")
    return step


def run(steps: Iterable[Step]) -> R:  # type: ignore[type-var]  # whatever the caller says that it is
    """Run to the end and return the result."""
    output: R = last(steps).output
    return output


def record(steps: Iterable[Step]) -> list[Step]:
    """Run to the end and return every step, each knowing its `number` and the `run` it belongs to."""
    kept: list[Step] = []
    for number, step in enumerate(each_step(steps)):
        here = copy.copy(step)  # not `replace`, which would make its sentence
        here.__dict__.update(number=number, run=kept)
        kept.append(here)
    if not kept:
        raise ValueError("expected at least one step, got none")
    return kept


def hbm_bytes(steps: Iterable[Step], *names: str) -> Traffic:
    """Bytes read from and written to HBM, of the matrices in `names` or of all.

    ValueError for a name that the steps do not know.
    """
    read = written = 0
    known: set[str] = set()
    for step in each_step(steps):
        known.update(step.shapes, step.values)  # a matrix that is never stored, such as P on chip, moves no bytes
        read += sum(tile.nbytes for tile in step.reads if not names or tile.name in names)
        written += sum(tile.nbytes for tile in step.writes if not names or tile.name in names)
    _check_known(names, known)
    return Traffic(read, written)


def sram_peak(steps: Iterable[Step]) -> int:
    """The maximum of bytes on chip at once."""
    return max((sum(tile.nbytes for tile in step.on_chip) for step in each_step(steps)), default=0)


def matmul_flops(steps: Iterable[Step]) -> int:
    """Floating-point operations of all matrix products: an (m, n) by (n, p) product costs 2 m n p."""
    return sum(2 * batch * m * n * p for step in each_step(steps) for batch, m, n, p in step.matmuls)


def passes(steps: Iterable[Step], name: str) -> int:
    """The number of phases that read the matrix `name` from HBM. ValueError for a name that the steps do not know."""
    phases, known = set(), set[str]()
    for step in each_step(steps):
        known.update(step.shapes, step.values)
        if any(tile.name == name for tile in step.reads):
            phases.add(step.phase)
    _check_known((name,), known)
    return len(phases)


def _check_known(names: Sequence[str], known: set[str]) -> None:
    if not known.issuperset(names):
        raise ValueError(f"expected names of matrices, one of {sorted(known)}, got {sorted(set(names) - known)}")
