"""The way through the course: every notebook's algorithms and what each moves, counted from its steps or by its formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

import flashlearn as fl
from flashlearn import cost

TOKENS, WIDTH, BLOCK = 64, 16, 16  # what is counted: one head of so many tokens, in blocks
LARGE, HEAD, TILES = 4096, 64, (128, 64)  # what notebook 08 takes its formulas for, in float16
RESULTS = {"y", "C", "O", "dQ", "dK", "dV"}  # everything else that is written is extra
SIGNS = {"m_i": "m", "l_i": "ℓ", "delta": "δ"}


@dataclass(frozen=True)
class Count:
    """What an algorithm moves.

    loops           how many of its loops read from HBM
    reads           how many times the matrix `of` is read in all
    read, written   bytes
    extra           bytes of HBM in addition to inputs and result
    on_chip, held   the most bytes that one program holds on chip, and of what; 0 if a library decides that
    """

    of: str
    loops: int
    reads: float
    read: int
    written: int
    extra: int
    on_chip: int
    held: tuple[str, ...]


@dataclass(frozen=True)
class Algorithm:
    """A function of the package; `kind` names those that compute the same, `sizes` says of what it is counted."""

    name: str
    kind: str
    sizes: str
    how: Callable[[], Count]

    @property
    def count(self) -> Count:
        return _counted(self.how)


@dataclass(frozen=True)
class Stage:
    """A notebook: its number, its title, the part that it belongs to, what is new in it."""

    number: str
    title: str
    part: str
    new: str
    algorithms: tuple[Algorithm, ...]


@cache
def _counted(how: Callable[[], Count]) -> Count:
    return how()


def count(steps: Iterable[fl.Step], of: str, alone: Iterable[fl.Step] | None = None) -> Count:
    """Count the steps; `alone` are those of one program, where `steps` are of many that run next to each other."""
    run = fl.record(steps)
    shapes, size = run[0].shapes, torch.float32.itemsize
    read, written = fl.hbm_bytes(run)
    stored = {tile.name for step in run for tile in step.writes} - RESULTS
    fullest = max(run if alone is None else fl.record(alone), key=lambda step: fl.sram_peak([step]))
    return Count(
        of=of,
        loops=len({step.phase for step in run if step.reads}),
        reads=fl.hbm_bytes(run, of).read / (size * math.prod(shapes[of])),
        read=read,
        written=written,
        extra=sum(size * math.prod(shapes[name]) for name in stored),
        on_chip=fl.sram_peak([fullest]),
        held=tuple(dict.fromkeys(SIGNS.get(tile.name, tile.name) for tile in fullest.on_chip)),
    )


def priced(algorithm: cost.Cost, loops: int, reads: float, on_chip: int, held: tuple[str, ...]) -> Count:
    """The same from the closed formula, for sizes that are too large to step through."""
    return Count("K", loops, reads, algorithm.read, algorithm.written, algorithm.extra, on_chip, held)


# --- inputs ---


@cache
def row() -> Tensor:
    """The row that softmax is counted on."""
    return torch.randn(TOKENS, generator=torch.Generator().manual_seed(0))


@cache
def qkv() -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values."""
    q, k, v = torch.randn(3, 1, 1, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    return q, k, v


def one_query() -> tuple[Tensor, Tensor, Tensor]:
    """The last query, and all keys and values: a program of its own, and a step of decoding."""
    q, k, v = qkv()
    return q[:, :, -1:], k, v


BLOCKS: dict[str, Any] = {"block_q": BLOCK, "block_k": BLOCK}


# --- how each is counted ---


def _row(steps: Callable[..., Iterable[fl.Step]], *more: int) -> Count:
    return count(steps(row(), *more), "x")


def _whole_row(x: Tensor) -> Iterator[fl.Step]:
    """Softmax of a row that fits on chip, as the kernel of notebook 11 does it: one load, one store."""
    hbm = fl.HBM({"x": x}, {"y": x.dtype}, {"x": tuple(x.shape), "y": tuple(x.shape)})
    entries = hbm.load("x")
    weights = (entries - entries.amax(-1, keepdim=True)).exp()
    hbm.store("y", None, weights / weights.sum(-1, keepdim=True))
    yield hbm.step("row")


def _by_query(steps: Callable[..., Iterable[fl.Step]]) -> Count:
    return count(steps(*qkv()), "K", alone=steps(*one_query()))


def _whole(steps: Callable[..., Iterable[fl.Step]], **options: Any) -> Count:
    return count(steps(*qkv(), **options), "K")


def _paged() -> Count:
    """The same, the keys in pages that lie the other way round."""
    q, k, v = one_query()
    k, v = (t[0].unflatten(1, (-1, BLOCK)).transpose(0, 1).flip(0) for t in (k, v))  # (P, 1, BLOCK, WIDTH)
    table = torch.arange(len(k), dtype=torch.int32).flip(0)[None]
    lengths = torch.tensor([TOKENS], dtype=torch.int32)
    return count(fl.paged_attention_steps(q, k, v, table, lengths), "K")


def _matmul() -> Count:
    q, k, _ = (matrix[0, 0] for matrix in qkv())
    return count(fl.tiled_matmul_steps(q, k.mT, block_m=BLOCK, block_n=BLOCK, block_k=BLOCK), "B")


def _backward() -> Count:
    return count(fl.attention_backward_steps(torch.ones(1, 1, TOKENS, WIDTH), *qkv()), "K")


def _tiled_backward() -> Count:
    o, lse = fl.tiled_attention_v2(*qkv(), return_lse=True, **BLOCKS)
    return count(fl.tiled_attention_backward_steps(torch.ones_like(o), *qkv(), o, lse, **BLOCKS), "K")


def _flash_large() -> Count:
    q, k = TILES
    priced_at = cost.v2_cost(1, 1, LARGE, LARGE, HEAD, block_q=q, block_k=k)
    one_query_block, keys = (torch.zeros(1, 1, n, HEAD, dtype=torch.float16) for n in (q, k))
    pair = count(fl.tiled_attention_v2_steps(one_query_block, keys, keys, block_q=q, block_k=k), "K")
    return priced(priced_at, 1, math.ceil(LARGE / q), pair.on_chip, pair.held)


# --- the course ---

ROW, QUERY, TILE, GRADIENT, TRITON = "One row of softmax", "One query, all keys", "Tiles", "Gradients", "Triton"
FIELD = "In the field"

A_ROW = f"a row of {TOKENS} numbers, float32"
ROW_BLOCKS = f"{A_ROW}, blocks of {BLOCK}"
A_HEAD = f"a head of {TOKENS} tokens, D = {WIDTH}, float32"
HEAD_BLOCKS = f"{A_HEAD}, blocks of {BLOCK}"
PRODUCT = f"({TOKENS}, {WIDTH}) times ({WIDTH}, {TOKENS}), float32, blocks of {BLOCK}"
BY_FORMULA = (
    f"a head of {LARGE:,} tokens, D = {HEAD}, float16, blocks of {TILES[0]} and {TILES[1]}, by the closed formulas"
)

NAIVE = Algorithm("naive_softmax", "softmax", A_ROW, partial(_row, fl.naive_softmax_steps))
SAFE = Algorithm("safe_softmax", "softmax", A_ROW, partial(_row, fl.safe_softmax_steps))
ONLINE = Algorithm("online_softmax", "softmax", A_ROW, partial(_row, fl.online_softmax_steps))
BLOCKED = Algorithm("blocked_softmax", "softmax", ROW_BLOCKS, partial(_row, fl.blocked_softmax_steps, BLOCK))
STANDARD = Algorithm("standard_attention", "attention", A_HEAD, partial(_whole, fl.standard_attention_steps))
TWO_PASS = Algorithm("two_pass_attention", "attention", A_HEAD, partial(_by_query, fl.two_pass_attention_steps))
ONE_PASS = Algorithm("one_pass_attention", "attention", A_HEAD, partial(_by_query, fl.one_pass_attention_steps))
MATMUL = Algorithm("tiled_matmul", "matmul", PRODUCT, _matmul)
FLASH_1 = Algorithm(
    "tiled_attention_v1", "attention", HEAD_BLOCKS, partial(_whole, fl.tiled_attention_v1_steps, **BLOCKS)
)
FLASH_2 = Algorithm(
    "tiled_attention_v2", "attention", HEAD_BLOCKS, partial(_whole, fl.tiled_attention_v2_steps, **BLOCKS)
)
BACKWARD = Algorithm("attention_backward", "gradients", A_HEAD, _backward)
TILED_BACKWARD = Algorithm("tiled_attention_backward", "gradients", HEAD_BLOCKS, _tiled_backward)
LARGE_STANDARD = Algorithm(
    "standard_attention", "large", BY_FORMULA, lambda: priced(cost.standard_cost(1, 1, LARGE, LARGE, HEAD), 3, 1, 0, ())
)
LARGE_FLASH = Algorithm("tiled_attention_v2", "large", BY_FORMULA, _flash_large)
ROW_KERNEL = Algorithm("kernels.softmax", "softmax", A_ROW, partial(_row, _whole_row))
MATMUL_KERNEL = Algorithm("kernels.matmul", "matmul", PRODUCT, _matmul)
FLASH = Algorithm("flash_attention", "attention", HEAD_BLOCKS, FLASH_2.how)
FLASH_BACKWARD = Algorithm("kernels.attention_backward", "gradients", HEAD_BLOCKS, TILED_BACKWARD.how)
DECODING = Algorithm(
    "flash_attention, one query",
    "decoding",
    HEAD_BLOCKS,
    lambda: count(fl.tiled_attention_v2_steps(*one_query(), **BLOCKS), "K"),
)
PAGED = Algorithm("flash_attention_paged", "decoding", HEAD_BLOCKS, _paged)
WINDOWED_STEPS = partial(_whole, fl.tiled_attention_v2_steps, window=(BLOCK, 0), **BLOCKS)
WINDOWED = Algorithm(f"flash_attention, window ({BLOCK}, 0)", "masked", HEAD_BLOCKS, WINDOWED_STEPS)

STAGES = (
    Stage("00", "Start here", "", "words, symbols, pictures, and the two ends of the way", (STANDARD, FLASH_2)),
    Stage("01", "Naive softmax", ROW, "softmax by its definition", (NAIVE,)),
    Stage("02", "Safe softmax", ROW, "the maximum comes off first", (SAFE,)),
    Stage("03", "Online softmax", ROW, "maximum and sum in one loop: rescale, then add", (ONLINE, BLOCKED)),
    Stage("04", "Two-pass attention", QUERY, "no table of scores", (STANDARD, TWO_PASS)),
    Stage("05", "One-pass attention", QUERY, "the output is rescaled with the sum", (ONE_PASS,)),
    Stage("06", "Tiled matmul", TILE, "many rows share what was read", (MATMUL,)),
    Stage("07", "Tiled attention", TILE, "FlashAttention: tiles and a running sum together", (FLASH_1, FLASH_2)),
    Stage("08", "Why it is fast", TILE, "bytes, not products, take the time", (LARGE_STANDARD, LARGE_FLASH)),
    Stage("09", "Gradients by hand", GRADIENT, "the way back, with tables", (BACKWARD,)),
    Stage("10", "Tiled backward", GRADIENT, "the way back, a tile at a time", (TILED_BACKWARD,)),
    Stage("11", "GPU and Triton", TRITON, "programs, offsets, masks", (ROW_KERNEL, MATMUL_KERNEL)),
    Stage("12", "Triton forward", TRITON, "the same tiles, from a kernel", (FLASH,)),
    Stage("13", "Triton backward", TRITON, "the same passes, from kernels", (FLASH_BACKWARD,)),
    Stage("14", "Making it fast", TRITON, "the same bytes, sooner", (FLASH,)),
    Stage("15", "Inside a fast kernel", TRITON, "who loads, who multiplies, who waits", (FLASH,)),
    Stage("16", "Use it", TRITON, "a model that trains and writes with it", (FLASH, DECODING)),
    Stage(
        "17", "Which keys a query attends to", FIELD, "two numbers for a block, whatever the mask", (FLASH, WINDOWED)
    ),
    Stage("18", "Serving", FIELD, "keys and values in pages, found through a table", (PAGED,)),
    Stage("19", "Many GPUs", FIELD, "keys and values travel, queries stay, results merge", (FLASH,)),
)


def before(stage: Stage) -> Algorithm | None:
    """What the first algorithm of a notebook takes the place of: the last of its kind in an earlier one."""
    earlier = (each for one in STAGES[1 : STAGES.index(stage)] for each in one.algorithms)
    same = [each for each in earlier if each.kind == stage.algorithms[0].kind] if stage is not STAGES[0] else []
    return same[-1] if same and same[-1] is not stage.algorithms[0] else None
