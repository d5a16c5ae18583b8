"""Exercises of notebook 11: three first kernels.

A kernel can write anywhere, so every answer runs under the recorder. An address outside the tensors, or one element
touched by two programs, raises an error before memory is touched. An element that was never written counts as NaN.
"""

from __future__ import annotations

import math
import zlib

import torch

from flashlearn.core.steps import hbm_bytes
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.launching import recorded
from flashlearn.exercises.watching import WrongWay


def scale_solution(x, factor):
    from flashlearn.course.gpu_and_triton.solutions import scale

    return scale(x, factor)


def row_lse_solution(x):
    from flashlearn.course.gpu_and_triton.solutions import row_lse

    return row_lse(x)


def transpose_solution(x):
    from flashlearn.course.gpu_and_triton.solutions import transpose

    return transpose(x)


def _result(function, *args):
    """What the kernel wrote into the tensor returned, NaN where it wrote nothing."""
    steps, output, *_ = recorded(function, *args)
    for name in dict.fromkeys(tile.name for step in steps for tile in step.writes):
        if math.prod(steps[-1].shapes.get(name, ())) == output.numel():
            written = steps[-1].written(name).reshape(output.shape)
            return torch.where(written.isnan(), torch.nan, output.double())
    raise RuntimeError("expected the kernel to write the tensor that is returned, got no such write")


def _by_the_kernel(x, *args):
    """Whether the kernel read x itself and wrote the returned tensor, and PyTorch did nothing else."""

    def compare(function):
        _, output, own, given, _ = recorded(function, x, *args)
        if not torch.equal(own, x):
            raise WrongWay("expected x as it was, got other numbers in it: return a new tensor")
        if not any(_share(tensor, own) for tensor, _ in given):
            raise WrongWay(
                f"expected a kernel that reads x itself, of strides {x.stride()}, got one that never reads x"
            )
        mine = [(tensor, left) for tensor, left in given if _share(tensor, output)]
        if not mine:
            raise WrongWay("expected the tensor that the kernel wrote, got one that PyTorch made")
        if not torch.allclose(*mine[-1], rtol=0, atol=0, equal_nan=True):  # what nobody wrote may be NaN
            raise WrongWay("expected what the kernel wrote, got other numbers: PyTorch changed them after the launch")
        if output.dtype != x.dtype:
            raise TypeError(f"expected {x.dtype}, as x, got {output.dtype}")
        return 1.0, 1.0

    return compare


def _share(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _random(*shape, scale=1.0, shift=0.0):
    seed = zlib.crc32(repr(shape).encode())  # no two shapes share their numbers
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + shift


def _scaled(x, factor):
    return lambda function: (_result(function, x, factor), (factor * x).double())


def _programs(x):
    """Whether there is more than one program."""
    return lambda function: (float(recorded(function, x, 2.0).programs > 1), 1.0)


def _lse(x):
    return lambda function: (_result(function, x), torch.logsumexp(x.double(), -1))


def _read_once(x):
    """Bytes read."""
    return lambda function: (float(hbm_bytes(recorded(function, x).steps).read), 4.0 * x.numel())


def _program_per_row(x):
    def compare(function):
        programs = recorded(function, x).programs
        if programs != len(x):
            raise WrongWay(f"expected {len(x)} programs for {len(x)} rows, got {programs}")
        return 1.0, 1.0

    return compare


def _transposed(x):
    return lambda function: (_result(function, x), x.T.double())


def _blocks_of_16(x):
    """Whether there is a program for every block of 16 by 16, on a grid with two axes."""

    def compare(function):
        run = recorded(function, x)
        tiles, blocks = {tile.shape for step in run.steps for tile in step.reads}, x.numel() // 16**2
        if {len(grid) for grid in run.grids} != {2}:
            raise WrongWay(f"expected a grid with two axes, got {' and '.join(map(str, run.grids))}")
        if tiles != {(16, 16)}:
            raise WrongWay(f"expected reads of 16 by 16 elements, got {sorted(tiles)}")
        if run.programs != blocks:
            raise WrongWay(f"expected {blocks} programs, one for each block, got {run.programs}")
        return 1.0, 1.0

    return compare


def _contiguous(x):
    """Whether the result is contiguous."""
    return lambda function: (float(recorded(function, x).output.is_contiguous()), 1.0)


# fmt: off
SCALE = (
    Case("1024 elements", _scaled(_random(1024), -2.5),
         "offs = pid * BLOCK + tl.arange(0, BLOCK): each program has its own block"),
    Case("1000 elements", _scaled(_random(1000), 3.25),
         "round the number of programs up with triton.cdiv, and mask offs < N in tl.load and tl.store"),
    Case("one element", _scaled(_random(1), -0.75), "one program, and a mask that keeps one element"),
    Case("every second element", _scaled(_random(600)[::2], 0.3),
         "x may have any stride: multiply offs by x.stride(0) for x, not for y"),
    Case("many programs", _programs(_random(5_000)),
         "cut the vector into blocks of 256, for example: one program uses one SM only", 0.0),
    Case("the kernel does it all", _by_the_kernel(_random(1200)[::3], 1.5),
         "pass x itself, with its stride: no .contiguous(), no product before or after the launch"),
)

ROW_LSE = (
    Case("rows of 64", _lse(_random(5, 64)), "m + log(sum(exp(x - m))) with m = tl.max(x, 0)"),
    Case("rows of 50", _lse(_random(5, 50)),
         "tl.arange takes a power of two: mask the elements past N, or they read the next row"),
    Case("negative logits", _lse(_random(3, 50, shift=-200.0)),
         "masked elements must not raise the maximum nor add to the sum: other=float('-inf')"),
    Case("very negative logits", _lse(_random(3, 50, shift=-(2.0**17))),
         "no finite number is low enough for elements past N: only -inf is below all floats, float('-inf')", 0.1),
    Case("large logits", _lse(_random(3, 40, scale=300.0)),
         "subtract the maximum before tl.exp, as safe softmax does", 1e-3),
    Case("transposed x", _lse(_random(50, 4).T),
         "row r starts at r * x.stride(0), and its elements are x.stride(1) apart"),
    Case("long rows", _lse(_random(2, 300)),
         "BLOCK_N = triton.next_power_of_2(N) holds a row of any length; a constant cuts it off"),
    Case("one program per row", _program_per_row(_random(7, 12)),
         "the grid is (M,), and tl.program_id(0) is the row: no loop over rows in a kernel"),
    Case("the kernel does it all", _by_the_kernel(_random(30, 6).T),
         "pass x itself, with both strides: no .contiguous(), nothing before or after the launch"),
    Case("x is read once", _read_once(_random(4, 100)),
         "keep the row on chip: one tl.load, then the maximum and the sum of its result", 0.0),
)

TRANSPOSE = (
    Case("whole blocks", _transposed(_random(48, 16)),
         "element (m, n) of x goes to row n, column m of y: exchange the strides of y"),
    Case("50 by 37", _transposed(_random(50, 37)),
         "mask with m < M and n < N, both in the load and in the store: the block is the same"),
    Case("one row", _transposed(_random(1, 100)), "the grid has cdiv(M, BLOCK_M) by cdiv(N, BLOCK_N) programs"),
    Case("x is a view", _transposed(_random(30, 40)[:, ::2].T), "use both strides of x: they need not be (N, 1)"),
    Case("blocks of 16 by 16", _blocks_of_16(_random(48, 32)),
         "the grid is (cdiv(M, 16), cdiv(N, 16)): program (i, j) has the block in row i, column j of the blocks"),
    Case("the kernel does it all", _by_the_kernel(_random(21, 36)[:, ::2].T),
         "pass x itself, with both strides: no .contiguous(), no .T before or after the launch"),
    Case("contiguous result", _contiguous(_random(20, 30)),
         "allocate y as (N, M) and let the kernel write the elements there; y.T of a copy is a view", 0.0),
)

EXERCISES = (
    Exercise(
        "scale", "scale(x, factor): x (N,) float32, any stride -> factor * x, (N,), by a kernel with many programs",
        scale_solution, SCALE, core=("1000 elements",), hints=(
            "This is vector addition with one input less. What in its kernel assumes that neighbours are one element apart?",
            "The kernel needs pid, offs, mask, one load, one store. The launcher allocates y and starts triton.cdiv(N, 256) programs.",
            "offs = ? ; mask = ? ; x = tl.load(x_ptr + offs times something, mask=...) ; tl.store(y_ptr + ..., ..., mask=...)",
        ),
    ),
    Exercise(
        "row_lse",
        "row_lse(x): x (M, N) float32, any strides -> log(sum(exp(x))) of every row, (M,), one program per row",
        row_lse_solution, ROW_LSE, core=("negative logits",), hints=(
            "The fused softmax kernel does nearly all of it. What does it store, and what do you need instead?",
            "Use one program per row and BLOCK_N = triton.next_power_of_2(N). Elements past N are masked and hold -inf.",
            "row, offs -> x (BLOCK_N,) -> m, one number -> a sum, one number -> one tl.store without a mask, at out_ptr + ...",
        ),
    ),
    Exercise(
        "transpose", "transpose(x): x (M, N) float32, any strides -> a contiguous copy of x.T, (N, M), in blocks",
        transpose_solution, TRANSPOSE, core=("50 by 37",), hints=(
            "The copy kernel above transposes if its strides are exchanged. Which two of the four strides do you exchange here?",
            "Load a block of x as usual. For the store, keep the block as it is, and compute other addresses for its elements.",
            "tl.load(x_ptr + offs_m[:, None] * ? + offs_n[None, :] * ?), tl.store(y_ptr + offs_m[:, None] * ? + offs_n[None, :] * ?)",
        ),
    ),
)
