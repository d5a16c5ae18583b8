"""Exercises of notebook 13: dV, then dS transposed, inside the kernel; then the whole kernel for dK and dV.

As in notebook 12, the first two answers are functions of tiles that are already loaded. The kernels around them are below.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from flashlearn.core.mask import causal_mask
from flashlearn.course.triton_backward.solutions import ds_solution, dv_solution, kernel_solution
from flashlearn.exercises.assessment import Case, Exercise, Part
from flashlearn.exercises.launching import compiles, launch, launched, launched_far, launched_with_tf32, traffic
from flashlearn.exercises.watching import WrongWay

tl: Any = None  # triton.language once a check runs: this module must import where Triton is missing


def dv_kernel(
    q_ptr, k_ptr, do_ptr, lse_ptr, dv_ptr, start_n, N_q, N_k, scale,
    ADD_DV: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """dV of one block of keys, with ADD_DV for every block of queries; tensors are (N, D), contiguous."""
    keys = start_n + tl.arange(0, BLOCK_N)
    d = tl.arange(0, D)[None, :]
    k = tl.load(k_ptr + keys[:, None] * D + d, mask=(keys < N_k)[:, None], other=0.0)
    dv = tl.zeros((BLOCK_N, D), dtype=tl.float32)
    for start_m in range(0, N_q, BLOCK_M):
        rows = start_m + tl.arange(0, BLOCK_M)
        mask = (rows < N_q)[:, None]
        q = tl.load(q_ptr + rows[:, None] * D + d, mask=mask, other=0.0)
        do = tl.load(do_ptr + rows[:, None] * D + d, mask=mask, other=0.0)
        lse = tl.load(lse_ptr + rows, mask=rows < N_q, other=float("inf"))
        dv = ADD_DV(dv, k, q, do, lse, rows, keys, N_q, N_k, scale)
    tl.store(dv_ptr + tl.arange(0, BLOCK_N)[:, None] * D + d, tl.broadcast_to(dv, (BLOCK_N, D)))


def ds_kernel(
    p_ptr, v_ptr, do_ptr, delta_ptr, ds_ptr,
    DS: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Pass one pair of blocks to DS; P^T and dS^T are (BLOCK_N, BLOCK_M)."""
    rows, keys, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, D)[None, :]
    square = keys[:, None] * BLOCK_M + rows[None, :]
    p_t = tl.load(p_ptr + square)
    v = tl.load(v_ptr + keys[:, None] * D + d)
    do = tl.load(do_ptr + rows[:, None] * D + d)
    ds_t = DS(p_t, v, do, tl.load(delta_ptr + rows))
    tl.store(ds_ptr + square, tl.broadcast_to(ds_t, (BLOCK_N, BLOCK_M)))


def _normal(N_q, N_k, seed, *heads, D=16):
    """q, k, v and do, of (*heads, N, D)."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*heads, n, D, generator=generator) for n in (N_q, N_k, N_k, N_q)]


def _wanted(q, k, v, do, scale, causal=True):
    """P, lse, delta, dS, dK and dV in float64, by the formulas of notebook 09; queries without keys give 0."""
    q, k, v, do = (t.double() for t in (q, k, v, do))
    s = q @ k.mT * scale
    if causal:
        s = s.masked_fill(~causal_mask(q.shape[-2], k.shape[-2]), -math.inf)
    p, dp = torch.softmax(s, -1).nan_to_num(0), do @ v.mT
    delta = (p * dp).sum(-1)
    ds = p * (dp - delta[..., None])
    return p, torch.logsumexp(s, -1), delta, ds, ds.mT @ q * scale, p.mT @ do


def _problem(N_q, N_k, dtype=torch.float32, scale=0.25, values=0.0, arriving=0.0):
    """q, k, v, do (N, 16), and the results of `_wanted`; `values` and `arriving` are the means of v and do."""
    q, k, v, do = _normal(N_q, N_k, N_q + N_k)
    q, k, v, do = (t.to(dtype) for t in (q, k, v + values, do + arriving + arriving * do / 4))
    return q, k, v, do, *_wanted(q, k, v, do, scale)


def _dv(N_q, N_k, start_n=0, scale=0.25, dtype=torch.float32, arriving=0.0, below=0.0):
    """dV of 16 keys from start_n on, over blocks of 32 queries.

    arriving   the mean of dO; dV is compared in units of it
    below      added to lse, which multiplies every P by e^-below; dV is compared in units of that
    """

    def compare(function):
        q, k, _, do, _, lse, *_, want = _problem(N_q, N_k, dtype, scale, arriving=arriving)
        got, want, unit = torch.full((16, 16), torch.nan), want[start_n : start_n + 16], max(arriving, 1.0)
        constants = {"ADD_DV": function, "D": 16, "BLOCK_M": 32, "BLOCK_N": 16}
        launch(dv_kernel, q, k, do, (lse + below).float(), got, start_n, N_q, N_k, scale, **constants)
        return got[: len(want)] * math.exp(below) / unit, want / unit

    return compare


def _ds(block_m, block_n, start_m, start_n, dtype=torch.float32, means=(0.0, 0.0)):
    """dS^T of one pair of blocks, of 64 queries and 64 keys; `means` are those of v and do."""

    def compare(function):
        _, _, v, do, p, _, delta, want, *_ = _problem(64, 64, dtype, values=means[0], arriving=means[1])
        rows, keys = slice(start_m, start_m + block_m), slice(start_n, start_n + block_n)
        p_t, got = p[rows, keys].mT.float().contiguous(), torch.full((block_n, block_m), torch.nan)
        given = p_t, v[keys].contiguous(), do[rows].contiguous(), delta[rows].float()
        launch(ds_kernel, *given, got, DS=function, D=16, BLOCK_M=block_m, BLOCK_N=block_n)
        return got, want[rows, keys].mT

    return compare


def _turned(function):
    """dS^T of 32 queries and 16 keys; WrongWay if a tile of the shape of dS is transposed."""
    M, N = 32, 16
    generator = torch.Generator().manual_seed(1)
    p_t, v, do, delta = (torch.randn(*shape, generator=generator) for shape in ((N, M), (N, 32), (M, 32), (M,)))
    got = torch.full((N, M), torch.nan)
    turned = launch(ds_kernel, p_t, v, do, delta, got, DS=function, D=32, BLOCK_M=M, BLOCK_N=N)
    if (M, N) in turned:
        raise WrongWay(
            f"expected only do or v to be transposed, got a computed tile of ({M}, {N}) transposed: that is expensive"
        )
    return got, p_t * (v @ do.T - delta)


def _backward(
    N_q, N_k, *blocks, H=1, D=16, causal=False, scale=0.3, dtype=torch.float32, bytes_too=False, launched=launched, hard=False,
):  # fmt: skip
    """dK and dV of a whole kernel with `blocks`, queries and keys at once; with `bytes_too` what it reads and writes.

    hard   Scores are alternately small and large, dP and delta are large and nearly equal. The last 8 queries repeat the
           first with dO large and of the other sign, so their contributions to dK and dV cancel. Both results are
           compared in units of their largest number.
    """

    def compare(kernel):
        q, k, v, do = _normal(N_q, N_k, 100 * N_q + N_k, H, D=D)
        if hard:
            q, v, do = q * torch.tensor([0.2, 10.0]).repeat(N_q)[:N_q, None], v + 60.0, do + 4.0
            do[:, :8] *= 1000.0
            q[:, -8:], do[:, -8:] = q[:, :8], -do[:, :8]
        q, k, v, do = (t.to(dtype) for t in (q, k, v, do))
        _, lse, delta, _, *want = _wanted(q, k, v, do, scale, causal)
        dk, dv = torch.full_like(k[None], torch.nan), torch.full_like(v[None], torch.nan)  # (1, H, N, D): a batch
        constants = {"D": D, "BLOCK_M": blocks[0], "BLOCK_N": blocks[1], "CAUSAL": causal}
        given = [t[None] for t in (q, k, v, do, lse.float(), delta.float())]
        steps = launched(kernel, (-(-N_k // blocks[1]), H), constants, *given, dk, dv, N_q, N_k, scale)
        if bytes_too:
            _check_bytes(steps, q, k, blocks)
        units = [t.abs().max() if hard else 1.0 for t in want]
        return (dk[0] / units[0], dv[0] / units[1]), (want[0] / units[0], want[1] / units[1])

    return compare


def _check_bytes(steps, q, k, blocks):
    """WrongWay unless K and V are read once at most, queries from the first that attends to a key on, dK and dV written once."""
    heads, N_q, D = q.shape
    N_k = k.shape[-2]
    firsts = [max(start + N_q - N_k, 0) // blocks[0] * blocks[0] for start in range(0, N_k, blocks[1])]
    rows = heads * sum(N_q - first for first in firsts)
    read = 2 * k.element_size() * k.numel() + rows * (2 * D * q.element_size() + 8)  # Q and dO, lse and delta
    written = 2 * k.element_size() * k.numel()
    got = traffic(steps)
    if got[0] > read or got[1] != written:
        raise WrongWay(
            f"expected at most {read} bytes read and {written} written, got {got[0]:.0f} and {got[1]:.0f}: read K and V "
            "once, and no block of queries that attends to none of the keys; write dK and dV once"
        )


def _compiles(kernel):
    """Whether the compiler accepts it, for an H100."""
    pointers = {f"{name}_ptr": "*fp16" for name in ("q", "k", "v", "do")} | {"lse_ptr": "*fp32", "delta_ptr": "*fp32"}
    results = {"dk_ptr": "*fp16", "dv_ptr": "*fp16", "N_q": "i32", "N_k": "i32", "scale": "fp32"}
    compiles(kernel, pointers | results, {"D": 64, "BLOCK_M": 64, "BLOCK_N": 64, "CAUSAL": True})
    return 1.0, 1.0


# fmt: off
case = functools.partial(Case, tolerance=1e-2)
DV = (
    case("one block of queries", _dv(32, 32),
         "P^T = exp(K Q^T scale - lse); with exp2, multiply both S and lse by log2(e)"),
    case("several blocks of queries", _dv(90, 90), "add to the dv that is passed in"),
    case("some of the keys", _dv(64, 64, 16), "the weights of a query sum to 1 over all keys: use lse, not a softmax of this block"),
    case("another scale", _dv(32, 32, scale=1.0), "use the argument scale"),
    case("more keys than queries", _dv(32, 48, 16),
         "the mask is aligned to the bottom right: query i attends to the keys j <= i + N_k - N_q"),
    case("queries that attend to no key", _dv(48, 20),
         "their lse is -inf, so P is inf: select 0 with tl.where, because inf * 0 is NaN"),
    Case("float16", _dv(32, 32, dtype=torch.float16), "both factors of tl.dot have one dtype: p_t.to(do.dtype)", 2e-2),
    case("large scores", _dv(48, 48, scale=20.0),
         "subtract lse before the exponential: exp(S) overflows, and so does exp(lse)"),
    case("small weights", _dv(32, 32, below=20.0),
         "use log2(e) with all digits, 1.4426950408889634: the larger x is, the more an error in it counts"),
    Case("float16, large sums", _dv(90, 90, scale=4.0, dtype=torch.float16, arriving=20000.0), tolerance=2e-2,
         hint="the result of tl.dot is float32, and so is dv: keep both. Sums in float16 end at 65,504"),
)

DS = (
    case("more keys than queries", _ds(16, 32, 32, 0), "dS^T = P^T o (dP^T - delta), dP^T = V dO^T"),
    case("more queries than keys", _ds(32, 16, 32, 16), "dP^T is (BLOCK_N, BLOCK_M): V dO^T, not dO V^T"),
    case("as many queries as keys", _ds(16, 16, 32, 16), "delta has one entry for each column of dS^T"),
    case("part of it masked", _ds(32, 32, 32, 32), "P is 0 where the mask hides, so dS is 0 there too"),
    case("float16", _ds(16, 32, 32, 0, torch.float16), "the result of tl.dot is float32: keep it"),
    case("float16, large dP and delta", _ds(16, 32, 32, 0, torch.float16, (60.0, 4.0)),
         "dP and delta are float32 and nearly equal: if you round them to float16, their difference is noise"),
    case("only a loaded tile is transposed", _turned,
         "V dO^T is dP^T already: transpose do with tl.trans(do), and nothing else"),
)

case = functools.partial(Case, tolerance=1e-4)
KERNEL = (
    case("one block of queries", _backward(16, 48, 16, 16), step=1,
         hint="P^T = exp(K Q^T scale - lse), dV = P^T dO, dS^T = P^T o (V dO^T - delta), dK = scale dS^T Q"),
    case("three blocks of queries", _backward(48, 16, 16, 16), "add to dk and dv in every iteration", step=2),
    case("ragged lengths", _backward(49, 37, 16, 32), step=3,
         hint="mask Q, dO, lse and delta with rows < N_q, K, V, dK and dV with keys < N_k; lse = inf past the end"),
    case("causal", _backward(40, 40, 16, 16, causal=True), step=4,
         hint="P^T is 0 where the key is hidden from the query: tl.where, after the exponential"),
    case("more keys than queries", _backward(20, 37, 16, 32, causal=True), step=4,
         hint="the mask is aligned to the bottom right: query i attends to the keys j <= i + N_k - N_q. The loop may begin "
         "at start_n + N_q - N_k, but not below 0"),
    case("queries that attend to no key", _backward(45, 20, 32, 16, causal=True), step=4,
         hint="their lse is -inf, so P is inf or NaN: hide after the exponential, and select with tl.where, because inf "
         "times 0 is NaN"),
    case("three heads", _backward(40, 24, 16, 32, H=3, scale=0.75), step=5,
         hint="tl.program_id(1) is the head; head h begins at row h * N of its tensor"),
    Case("float16", _backward(40, 33, 16, 16, H=2, D=32, dtype=torch.float16, hard=True), tolerance=3e-3, step=5,
         hint="the products take p_t.to(do.dtype) and ds_t.to(q.dtype); all else stays float32, above all dk and dv: "
         "float16 has 11 bits and ends at 65,504"),
    case("float32, as on a GPU", _backward(40, 33, 16, 16, launched=launched_with_tf32), step=5,
         hint='a GPU rounds the factors of tl.dot to TF32, 10 bits of mantissa: input_precision="ieee" in all four products'),
    case("heads far apart", _backward(16, 16, 16, 16, launched=launched_far), step=5,
         hint="a head may begin at element 2^31 or later, which 32 bits cannot hold: tl.program_id(1).to(tl.int64)"),
    case("bytes", _backward(80, 64, 16, 32, H=2, causal=True, bytes_too=True), step=5,
         hint="load K and V before the loop; it begins at the block of the first query that attends to key start_n: "
         "start_n + N_q - N_k, not below 0"),
    case("compiles for sm_90", _compiles, "the compiler's message names the line", step=1),
)

KERNEL_PATH = (
    Part("one head, one block of queries: load, P^T, dV, dS^T, dK, two stores", (
        "There is no loop yet. Write down the shape of every tile. Which have a row for each key, which for each query?",
        "tl.program_id(0) gives the keys. S^T, P^T, dP^T and dS^T are (BLOCK_N, BLOCK_M); only q and do are transposed.",
        "addresses of keys and of rows -> six loads -> s_t -> p_t -> dv -> dp_t -> ds_t -> dk, with the scale -> stores; "
        "p_t.to(...) and ds_t.to(...) before a product",
    )),
    Part("several blocks of queries: dK and dV are sums over them", (
        "Which tiles does the program keep from start to end, and which are new in each iteration?",
        "Load k and v before the loop, and set dk and dv to 0 as float32 tiles. Load what belongs to queries inside it.",
        "two tiles of zeros; for start_m in range(...): rows, four loads, products added to ? and ?; scale and stores after",
    )),
    Part("lengths that are not multiples of the blocks", (
        "A query past the end must add nothing. Which of its four loads can make sure of that?",
        "Mask all loads and stores. With zeros past the end, what are dP and dS there? With lse = inf, what is P itself?",
        "mask=(rows < ...)[:, None] or rows < ..., other=... in the four loads; keys < ... for k, v and both stores",
    )),
    Part("causal, also for queries that attend to no key", (
        "The last query attends to the last key. Which keys does query i attend to? Keys are the rows of P^T.",
        "A query without keys has lse = -inf, so P is inf before the mask. Do you multiply by 0, or select?",
        "if CAUSAL: p_t = tl.where(keys along the column <= queries along the row, p_t, ...), after the exponential",
    )),
    Part("all heads, float16, no byte too many", (
        "Where does head h begin in Q, in K, in lse? And which is the first query that attends to a key of this block?",
        "tl.program_id(1).to(tl.int64) is the head, in 64 bits, because offsets may pass 2^31. The loop begins at a multiple "
        "of BLOCK_M, at the block of the query that attends to key start_n.",
        "(head * N + row) instead of row in every address, with the N of that tensor; range(first, ...) with first >= 0",
    )),
)

EXERCISES = (
    Exercise(
        "dv", "add_dv(dv, k, q, do, lse, rows, keys, N_q, N_k, scale) -> dV_j + P^T dO, (BLOCK_N, D), causal",
        dv_solution, DV, core=("several blocks of queries",), hints=(
            "First compute P^T from K, Q and lse, then add P^T dO. Which tile must be transposed to get K Q^T?",
            "P^T = exp(K Q^T scale - lse), with one lse for each column: lse[None, :]. Hide with tl.where, after the exponential.",
            "s_t = tl.dot(..., tl.trans(...)); p_t = tl.exp2((...) * 1.4426950408889634); p_t = tl.where(keys[:, None] <= "
            "..., p_t, ...); dv + ...",
        ),
    ),
    Exercise(
        "ds", "ds_t(p_t, v, do, delta): (BLOCK_N, BLOCK_M), (BLOCK_N, D), (BLOCK_M, D), (BLOCK_M,) -> dS^T",
        ds_solution, DS, hints=(
            "You need dS = P o (dP - delta), transposed. Which product of V and dO is dP^T?",
            "V dO^T is (BLOCK_N, BLOCK_M), and only dO is transposed: tl.trans(do). delta belongs to the queries, which are "
            "the columns here.",
            "dp_t = tl.dot(a loaded tile, another one transposed); return a tile * (dp_t - delta as a row or a column)",
        ),
    ),
    Exercise(
        "kernel",
        "kernel(q_ptr, ..., CAUSAL): dK and dV of attention, q (H, N_q, D), k (H, N_k, D), one program for each block of keys and head",
        kernel_solution, KERNEL, core=("three blocks of queries", "causal"), values=("dk", "dv"), path=KERNEL_PATH, hints=(
            "Follow the steps 13.kernel.1 to 13.kernel.5. Each has its own hints: hint('13.kernel.1').",
            "The loop has six lines after its loads: the four formulas of Piece 1, and the sums dV and dK. 13.dv and 13.ds "
            "are two thirds of it.",
            "indices of the program; load k, v; dk, dv; for blocks of queries: load, p_t, hide, dv, ds_t, dk; scale, store both",
        ),
    ),
)
