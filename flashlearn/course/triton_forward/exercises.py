"""Exercises of notebook 12: the causal mask, a loop body with three bugs, and a whole kernel.

The first two answers are functions of tiles that are already loaded, so they can touch no other memory. The kernels
around them are below. They run on a GPU or in Triton's interpreter.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from flashlearn.core.mask import causal_mask
from flashlearn.course.triton_forward.solutions import bugs_solution, causal_solution, kernel_solution
from flashlearn.exercises.assessment import Case, Exercise, Part
from flashlearn.exercises.launching import compiles, launch, launched, launched_far, launched_with_tf32, traffic
from flashlearn.exercises.watching import WrongWay

tl: Any = None  # triton.language once a check runs: this module must import where Triton is missing
LOG2_E = math.log2(math.e)


def mask_kernel(
    s_ptr, out_ptr, start_m, start_n, N_q, N_k,
    HIDE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Pass one block of scores (BLOCK_M, BLOCK_N) to HIDE and store the result."""
    at = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    s = tl.load(s_ptr + at)
    hidden = HIDE(s, start_m, start_n, N_q, N_k)
    tl.store(out_ptr + at, tl.broadcast_to(hidden, (BLOCK_M, BLOCK_N)))


def visit_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, start_m, N_q, N_k, qk_scale,
    VISIT: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Attention of one block of queries to all keys, with VISIT as the loop body; tensors are (N, D), contiguous."""
    rows = start_m + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + rows[:, None] * D + d, mask=(rows < N_q)[:, None], other=0.0)
    m_i = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    for start_n in range(0, N_k, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        mask = (keys < N_k)[:, None]
        k = tl.load(k_ptr + keys[:, None] * D + d, mask=mask, other=0.0)
        v = tl.load(v_ptr + keys[:, None] * D + d, mask=mask, other=0.0)
        m_i, l_i, acc = VISIT(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale)
    l_i = tl.where(l_i == 0.0, 1.0, l_i)
    at = tl.arange(0, BLOCK_M)
    tl.store(o_ptr + at[:, None] * D + d, tl.broadcast_to(acc / l_i[:, None], (BLOCK_M, D)))
    tl.store(lse_ptr + at, tl.broadcast_to((m_i + tl.log2(l_i)) * 0.6931471805599453, (BLOCK_M,)))


def _causal(N_q, N_k, start_m, start_n, shape=(16, 32)):
    """A block of scores, and the same with -inf where the mask hides; queries past the last do not count."""

    def compare(function):
        s = torch.randn(shape, generator=torch.Generator().manual_seed(N_q + N_k))
        got = torch.full(shape, torch.nan)
        launch(mask_kernel, s, got, start_m, start_n, N_q, N_k, HIDE=function, BLOCK_M=shape[0], BLOCK_N=shape[1])
        visible = torch.zeros(start_m + shape[0], start_n + shape[1], dtype=torch.bool)
        visible[:N_q, :N_k] = causal_mask(N_q, N_k)[: len(visible), : visible.shape[1]]
        want = s.masked_fill(~visible[start_m:, start_n:], -math.inf)
        real = max(0, min(shape[0], N_q - start_m))
        return got[:real], want[:real]

    return compare


def _normal(N_q, N_k, seed, *heads, D=16):
    """q, k and v, of (*heads, N, D)."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*heads, n, D, generator=generator) for n in (N_q, N_k, N_k)]


def _wanted(q, k, v, scale, causal=True):
    """o and lse in float64; (0, -inf) for a query that attends to no key."""
    s = q.double() @ k.double().mT * scale
    s = s.masked_fill(~causal_mask(q.shape[-2], k.shape[-2]), -math.inf) if causal else s
    return torch.softmax(s, -1).nan_to_num(0.0) @ v.double(), torch.logsumexp(s, -1)


def _visits(N_q, N_k, start_m=0, hidden_key=None, scale=0.25, size=1.0, signs=False, mean=0.0, dtype=torch.float32):
    """o and lse of the 32 queries from start_m on, over blocks of 16 keys; one key may be huge.

    size   the factor on q;  signs  the scores of a query have one sign, alternately + and -
    mean   of the values; o is compared in units of it
    """

    def compare(function):
        q, k, v = _normal(N_q, N_k, N_q + N_k)
        if hidden_key is not None:
            q, k[hidden_key] = q.abs(), 100.0
        if signs:
            q, k = q.abs() * torch.tensor([1.0, -1.0]).repeat(N_q)[:N_q, None], k.abs()
        q, k, v = (size * q).to(dtype), k.to(dtype), (v + mean + mean * v / 4).to(dtype)
        o, lse = torch.full((32, 16), torch.nan), torch.full((32,), torch.nan)
        constants = {"VISIT": function, "D": 16, "BLOCK_M": 32, "BLOCK_N": 16}
        launch(visit_kernel, q, k, v, o, lse, start_m, N_q, N_k, scale * LOG2_E, **constants)
        real = slice(start_m, min(N_q, start_m + 32))
        want_o, want_lse = (t[real] for t in _wanted(q, k, v, scale))
        count, unit = len(want_o), max(mean, 1.0)
        return (o[:count] / unit, lse[:count]), (want_o / unit, want_lse)

    return compare


def _attention(
    N_q, N_k, *blocks, H=1, D=16, causal=False, scale=0.3, size=1.0, mean=0.0, dtype=torch.float32, bytes_too=False,
    launched=launched,
):  # fmt: skip
    """o and lse of a whole kernel with `blocks`, queries and keys at once; with `bytes_too` what it reads and writes.

    size   the factor on the queries; several are used alternately
    mean   of every other column of v
    Both results are compared in units of their size, o in float16 in units of 200 times that: lse stays float32.
    """

    def compare(kernel):
        q, k, v = _normal(N_q, N_k, 100 * N_q + N_k, H, D=D)
        q = q * torch.tensor(size).reshape(-1).repeat(N_q)[:N_q, None]
        v = mean * (v / 2 + torch.tensor([1.0, 0.0]).repeat(D // 2)) if mean else v
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        o, lse = torch.full_like(q, torch.nan), torch.full((H, N_q), torch.nan)
        constants = {"D": D, "BLOCK_M": blocks[0], "BLOCK_N": blocks[1], "CAUSAL": causal}
        grid = -(-N_q // blocks[0]), H
        steps = launched(kernel, grid, constants, q, k, v, o, lse, N_q, N_k, scale * LOG2_E)
        if bytes_too:
            _check_bytes(steps, q, k, blocks)
        want_o, want_lse = _wanted(q, k, v, scale, causal)
        unit, lse_unit = max(mean, 1.0) * (200.0 if dtype == torch.float16 else 1.0), want_lse.abs().clamp(1, 1e30)
        return (o / unit, lse / lse_unit), (want_o / unit, want_lse / lse_unit)

    return compare


def _check_bytes(steps, q, k, blocks):
    """WrongWay unless Q is read once at most, K and V up to the last block that is needed, O and lse written once."""
    N_q, N_k = q.shape[-2], k.shape[-2]
    last = [min(start + blocks[0] + N_k - N_q, N_k) for start in range(0, N_q, blocks[0])]  # keys of each block
    keys = sum(min(-(-end // blocks[1]) * blocks[1], N_k) for end in last)
    read = q.element_size() * (q.numel() + 2 * len(q) * q.shape[-1] * keys)
    written = q.element_size() * q.numel() + 4 * q.shape[0] * N_q
    got = traffic(steps)
    if got[0] > read or got[1] != written:
        raise WrongWay(
            f"expected at most {read} bytes read and {written} written, got {got[0]:.0f} and {got[1]:.0f}: "
            "read Q once, and no block of K and V that is hidden from all queries of the program; write O and lse once"
        )


def _compiles(kernel):
    """Whether the compiler accepts it, for an H100."""
    pointers = {f"{name}_ptr": "*fp16" for name in ("q", "k", "v", "o")} | {"lse_ptr": "*fp32"}
    numbers = {"N_q": "i32", "N_k": "i32", "qk_scale": "fp32"}
    compiles(kernel, pointers | numbers, {"D": 64, "BLOCK_M": 64, "BLOCK_N": 64, "CAUSAL": True})
    return 1.0, 1.0


# fmt: off
CAUSAL = (
    Case("on the diagonal", _causal(64, 64, 0, 0), "query i attends to the keys j <= i, its own key too: <=, not <"),
    Case("left of the diagonal", _causal(64, 64, 48, 0), "every key is visible here: the queries of the block begin at start_m, not at 0"),
    Case("right of the diagonal", _causal(64, 64, 0, 32), "every key is hidden here: the keys of the block begin at start_n, not at 0"),
    Case("more keys than queries", _causal(16, 40, 0, 0),
         "the mask is aligned to the bottom right: query i attends to the keys j <= i + N_k - N_q"),
    Case("more queries than keys", _causal(48, 24, 16, 0),
         "the first N_q - N_k queries attend to no key: all their scores are -inf"),
    Case("a tall block", _causal(40, 40, 32, 32, (32, 16)), "take both lengths from s.shape"),
    Case("left, but all hidden", _causal(96, 24, 48, 0),
         "on which side of the diagonal a block is depends on N_k - N_q too: compare entry by entry"),
    Case("right, but all visible", _causal(16, 80, 0, 32),
         "on which side of the diagonal a block is depends on N_k - N_q too: compare entry by entry"),
)

case = functools.partial(Case, tolerance=1e-2)
BUGS = (
    case("the first block of queries", _visits(32, 32), "compare with lines 8 to 10 of the algorithm"),
    case("several blocks of keys", _visits(64, 64, 32),
         "alpha rescales the old l_i and acc to the new maximum; the new terms are measured from it already"),
    case("large scores", _visits(48, 48, size=80.0, signs=True),
         "subtract the running maximum, of this block and all before it: it may have any size and either sign"),
    case("a hidden key of large score", _visits(32, 32, hidden_key=31),
         "a hidden score must not raise the maximum: all other exponentials would round to 0"),
    case("more keys than queries", _visits(20, 50),
         "the mask is aligned to the bottom right: query i attends to the keys j <= i + N_k - N_q"),
    case("queries that attend to no key", _visits(40, 24), "m stays -inf there, and -inf - -inf is NaN: subtract 0 instead"),
    case("another scale", _visits(32, 32, scale=0.75), "multiply the scores by qk_scale, which includes log2(e)"),
    case("float16", _visits(32, 32, size=40.0, dtype=torch.float16),
         "both factors of tl.dot have one dtype, so p.to(v.dtype); round nothing else: scores stay float32"),
    case("float16, large values", _visits(48, 48, 16, size=0.2, mean=20000.0, dtype=torch.float16),
         "the result of tl.dot is float32, and so is acc: keep both. Sums in float16 end at 65,504"),
)

FLOAT16 = {"scale": 0.5, "size": (0.2, 10.0, 15000.0), "mean": 15000.0, "dtype": torch.float16}
KERNEL = (
    Case("one block of keys", _attention(48, 16, 16, 16), step=1,
         hint="rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M); multiply s by qk_scale"),
    Case("three blocks of keys", _attention(16, 48, 16, 16), step=2,
         hint="alpha = exp2(m - m_new) rescales l and acc to the new maximum, before the new terms are added"),
    Case("large scores", _attention(32, 64, 32, 16, size=60.0), "subtract the running maximum before exp2", 1e-4, 2),
    Case("ragged lengths", _attention(50, 33, 32, 16), step=3,
         hint="mask Q, O and lse with rows < N_q, K and V with keys < N_k; scores of missing keys become -inf"),
    Case("causal", _attention(40, 40, 16, 16, size=150.0, causal=True), tolerance=1e-3, step=4,
         hint="set hidden scores to -inf before the maximum is taken: a hidden score must not raise it"),
    Case("more keys than queries", _attention(16, 33, 16, 32, causal=True), step=4,
         hint="the mask is aligned to the bottom right: query i attends to the keys j <= i + N_k - N_q. The loop may end after "
         "the last key of the last query, at start_m + BLOCK_M + N_k - N_q"),
    Case("queries that attend to no key", _attention(45, 20, 16, 16, causal=True), step=4,
         hint="expected o = 0 and lse = -inf there: subtract 0 where the maximum is -inf, divide by 1 where l is 0"),
    Case("three heads", _attention(40, 24, 16, 32, H=3, scale=0.75), step=5,
         hint="tl.program_id(1) is the head; head h begins at row h * N of its tensor"),
    Case("float16", _attention(33, 40, 16, 16, H=2, D=32, causal=True, **FLOAT16), step=5,
         hint="the second product takes p.to(v.dtype); s, m, alpha, l and acc stay float32: float16 ends at 65,504 and has "
         "11 bits"),
    Case("float32, as on a GPU", _attention(50, 50, 16, 32, launched=launched_with_tf32), step=5,
         hint='a GPU rounds the factors of tl.dot to TF32, 10 bits of mantissa: input_precision="ieee" in both products'),
    Case("heads far apart", _attention(16, 16, 16, 16, launched=launched_far), step=5,
         hint="a head may begin at element 2^31 or later, which 32 bits cannot hold: tl.program_id(1).to(tl.int64)"),
    Case("bytes", _attention(80, 64, 16, 32, H=2, causal=True, bytes_too=True), step=5,
         hint="the loop ends after the last key of the last query: start_m + BLOCK_M + N_k - N_q"),
    Case("compiles for sm_90", _compiles, step=1,
         hint="the compiler wants one shape and one dtype for a name, set before it is used; it names the line below"),
)

KERNEL_PATH = (
    Part("one head, one block of keys: load, S, softmax, then store O and lse", (
        "There is no loop yet. First write down the shape of everything: rows, the addresses of Q, S, m, l, O.",
        "Row i of (N, D) starts at i * D. qk_scale includes log2(e): use exp2 and log2, and multiply lse by ln 2. "
        "tl.dot takes one dtype, and a number from outside must be a tl.constexpr.",
        "rows (BLOCK_M,) -> addresses (BLOCK_M, D) -> q, k, v -> s -> m = row maximum -> p -> l = row sum -> two stores",
    )),
    Part("several blocks of keys: the online softmax of notebook 05, in a loop", (
        "Which tiles must live longer than one iteration? Which values do they have before the first?",
        "m starts at -inf, l and acc at 0, as float32 tiles. In each iteration: new maximum, p, alpha; rescale l and acc.",
        "Three tiles before the loop. In it: load K and V, s, m_new, p, alpha, l = ? + ?, acc = ? + ?, m = m_new. Then acc / l",
    )),
    Part("lengths that are not multiples of the blocks", (
        "Which of the five tensors have rows that do not exist? What does a load give there, and what is exp of such a score?",
        "Mask every load and every store. A key that does not exist has the score -inf, before the maximum is taken.",
        "mask = (rows < ...)[:, None] for tiles of Q and O, (keys < ...)[:, None] for K and V, s = tl.where(exists, s, ...)",
    )),
    Part("causal, also for queries that attend to no key", (
        "The last query attends to the last key. Query i is N_q - 1 - i rows before the last. Which is its last key?",
        "A row holds -inf alone. What is its maximum, and what is the maximum minus itself? And what is 0 / 0?",
        "if CAUSAL: exists = exists & (keys along the row <= queries along the column); two tl.where: one for the base, one for l",
    )),
    Part("all heads, float16, no byte too many", (
        "Where does head h begin in Q, in K, in lse? And which is the last key that any query of this block attends to?",
        "tl.program_id(1).to(tl.int64) is the head, in 64 bits, because offsets may pass 2^31. The end of the loop depends on "
        "the block of queries: clamp it to 0 .. N_k.",
        "(head * N + row) instead of row in every address, with the N of that tensor; end = tl.minimum(..., N_k) if CAUSAL",
    )),
)

EXERCISES = (
    Exercise(
        "causal", "hide(s, start_m, start_n, N_q, N_k): scores (BLOCK_M, BLOCK_N) -> the same, -inf where the mask hides",
        causal_solution, CAUSAL, core=("more keys than queries",), hints=(
            "First compute the indices of the queries in the block: start_m + tl.arange(0, s.shape[0]). Do the same for the "
            "keys. Which query attends to which key?",
            "Query i attends to key j if j <= i + N_k - N_q. Put the queries along one axis, the keys along the other: "
            "rows[:, None], keys[None, :].",
            "rows = ? (s.shape[0] of them), keys = ? (s.shape[1]) -> visible, a comparison of a column with a row -> "
            "tl.where(visible, ?, ?)",
        ),
    ),
    Exercise(
        "bugs", "visit(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale) -> (m_i, l_i, acc), causal",
        bugs_solution, BUGS, core=("a hidden key of large score",), values=("o", "lse"), hints=(
            "Compare it with lines 8 to 10 of the algorithm. One bug is the order of two lines, one a missing factor, one an alignment.",
            "Which scores may raise the maximum? What does alpha rescale? Which keys does the last query attend to if N_k > N_q?",
            "s -> hidden -> m_new -> p, alpha -> l_i = l_i * ? + ?, acc = ? + ?. Check the order, then each factor, then the offset.",
        ),
    ),
    Exercise(
        "kernel", "kernel(q_ptr, ..., CAUSAL): attention forward, q (H, N_q, D), k, v (H, N_k, D), one program for each block and head",
        kernel_solution, KERNEL, core=("three blocks of keys", "causal"), values=("o", "lse"), path=KERNEL_PATH, hints=(
            "Follow the steps 12.kernel.1 to 12.kernel.5. Each has its own hints: hint('12.kernel.1').",
            "Each line of the algorithm at the top of the notebook becomes a line of code. The masks come in addition.",
            "indices of the program; load q; m, l, acc; for each block of keys: load, s, hide, update; divide, store o and lse",
        ),
    ),
)
