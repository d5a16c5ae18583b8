"""Exercises of notebook 08: the bytes of a variant, the time of kernels, and the smallest block that is compute-bound."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import torch

from flashlearn.algorithms import captions
from flashlearn.algorithms.attention import online_update
from flashlearn.algorithms.problem import Problem, start
from flashlearn.core.numerics import divide, log_sum_exp, spans
from flashlearn.core.steps import Step, hbm_bytes
from flashlearn.cost import A100_40GB, H100_SXM, RTX_4060_LAPTOP, Hardware, standard_kernels
from flashlearn.course.why_it_is_fast.solutions import block_solution, bytes_solution, time_solution
from flashlearn.exercises.assessment import Case, Exercise


def reread_q_steps(q, k, v, *, block_q: int, block_k: int) -> Iterator[Step]:
    """`tiled_attention_v2` by a program that cannot keep its Q block: Q_i is read again for every K_j.

    Nothing else changes: K_j and V_j are read at every visit, O_i and lse are written after the last.
    """
    p = Problem.of(q, k, v)
    hbm = p.memory(captions.tiled, {"O": p.dtype, "lse": p.wide}, lse=p.column)
    for i, rows in enumerate(spans(p.sizes.N_q, block_q)):
        m_i, l_i, acc = start(hbm, rows)
        for j, cols in p.mask.key_blocks(rows, block_k):
            Q_i, K_j, V_j = hbm.load("Q", rows), hbm.load("K", cols), hbm.load("V", cols)
            m_i, l_i, alpha, P = online_update(m_i, l_i, Q_i @ K_j.mT * p.scale)
            acc = acc * alpha + P @ V_j
            yield hbm.step("blocks", program=(i,), **p.coordinates(i, rows, j, cols), P=P, m_i=m_i, l_i=l_i, acc=acc)
        hbm.store("O", rows, divide(acc, l_i))
        hbm.store("lse", rows, log_sum_exp(m_i, l_i))
        yield hbm.step("write", program=(i,), **p.coordinates(i, rows))
    yield hbm.done(hbm.output("O"))


def _counted(N_q, N_k, D, block_q, block_k, dtype=torch.float16):
    @functools.cache
    def count():
        q, k, v = (torch.zeros(1, 1, N, D, dtype=dtype) for N in (N_q, N_k, N_k))
        return tuple(hbm_bytes(reread_q_steps(q, k, v, block_q=block_q, block_k=block_k)))

    return lambda function: (function(N_q, N_k, D, block_q, block_k, dtype.itemsize), count())


# FLOP/s: half a FLOP a byte, and 1200
SLOW = replace(A100_40GB, name="slow", peak={torch.float16: A100_40GB.bandwidth / 2})
FAST = replace(A100_40GB, name="fast", peak={torch.float16: A100_40GB.bandwidth * 1200})


def _block(N, D, hardware):
    expected = functools.cache(lambda: block_solution(N, D, hardware))
    return lambda function: (function(N, D, hardware), expected())


def _time(*kernels, peak=2.0, bandwidth=4.0):
    return lambda function: (function(list(kernels), peak, bandwidth), time_solution(kernels, peak, bandwidth))


def _standard(hardware: Hardware):
    """Standard attention over 1000 heads, N = 4096, D = 64, as its three kernels."""
    kernels = [(cost.flops, cost.bytes) for cost in standard_kernels(1, 1000, 4096, 4096, 64).values()]
    return _time(*kernels, peak=hardware.peak[torch.float16], bandwidth=hardware.bandwidth)


TIME_CASES = (
    Case("memory-bound", _time((6, 20)), "loading and computing overlap: the kernel takes the longer of its two times"),
    Case("compute-bound", _time((30, 20)), "the compute time is flops / peak, the memory time is bytes / bandwidth"),
    Case("one of each", _time((6, 20), (30, 20)),
         "kernels run one after another: take the longer time of each, then add these up"),
    Case("three kernels", _time((8, 4), (1, 36), (2, 4)), "every kernel counts, also one whose two times are equal"),
    Case("a copy", _time((0, 12), (10, 8)), "a kernel without arithmetic takes its memory time"),
    Case("no kernel", _time(), "without a kernel the time is 0"),
    Case("another GPU", _time((6, 20), (30, 20), peak=10.0, bandwidth=1.0), "use the peak and the bandwidth given"),
    Case("standard attention on an A100", _standard(A100_40GB), "its three kernels are memory-bound", 1e-9),
)  # fmt: skip

BYTES_CASES = (
    Case("one block", _counted(8, 8, 4, 8, 8),
         "read Q, K and V once each; write O once, and lse with 4 bytes for each query"),
    Case("four blocks of keys", _counted(8, 32, 4, 8, 8),
         "read all of Q once for each of the N_k / block_k blocks of keys"),
    Case("four blocks of queries", _counted(32, 8, 4, 8, 8),
         "read K and V once for each of the N_q / block_q blocks of queries"),
    Case("large head", _counted(16, 24, 64, 4, 6),
         "a query has D elements in Q and in O, and one number in lse"),
    Case("ragged", _counted(21, 11, 4, 8, 4),
         "round the numbers of blocks up with ceil; all blocks of Q together have N_q queries, not a multiple of block_q"),
    Case("float32", _counted(16, 16, 4, 4, 4, torch.float32),
         "elements of Q, K, V and O have itemsize bytes; a number of lse has 4 in any case"),
    Case("one query left over", _counted(17, 9, 4, 8, 4),
         "a last block of one query is a block, too: round the number of blocks up, not to the nearest"),
)  # fmt: skip

BLOCK_CASES = (
    Case("A100, N = 4096", _block(4096, 64, A100_40GB),
         "try block_q = 1, 2, 3, ... and ask placement(v2_cost(...), hardware).bound for each"),
    Case("H100, N = 4096", _block(4096, 64, H100_SXM), "use the ridge of the hardware that you are given, not 201"),
    Case("laptop, N = 1000", _block(1000, 128, RTX_4060_LAPTOP),
         "N need not be a multiple of the block: v2_cost rounds the number of blocks up itself"),
    Case("short text", _block(300, 64, A100_40GB),
         "with one block for all queries the intensity is below N / 2; if even that is below the ridge, return 0"),
    Case("one block of all N queries", _block(620, 64, H100_SXM),
         "no smaller block is enough, but the block of all N queries is: range(1, N + 1)"),
    Case("D = 128 at the edge", _block(403, 128, A100_40GB),
         "D counts a little: with D = 64 the answer would be 0 here. Pass D on to v2_cost"),
    Case("D = 64 at the edge", _block(403, 64, A100_40GB),
         "D counts a little: with D = 128 the answer would be 403 here. Pass D on to v2_cost"),
    Case("a ridge below 1", _block(64, 64, SLOW),
         "a slow processor is compute-bound with one query in a block: start at 1"),
    Case("a ridge above 1000", _block(4100, 64, FAST),
         "a fast processor needs 2050 queries in a block: search up to N, not up to a fixed number"),
)  # fmt: skip

EXERCISES = (
    Exercise(
        "bytes",
        "reread_bytes(N_q, N_k, D, block_q, block_k, itemsize) -> (read, written), for one head of FlashAttention-2 "
        "that reads Q_i again for every K_j",
        bytes_solution,
        BYTES_CASES,
        hints=(
            "FlashAttention-2 reads Q once, and K and V once for each block of queries. Which of these reads changes if Q_i cannot stay on chip?",
            "All of Q is read once for each of the ceil(N_k / block_k) blocks of keys. All of K and V is read once for each of the ceil(N_q / block_q) blocks of queries.",
            "read = itemsize * D * (... * N_q + ... * 2 * N_k) and written = N_q * (... + ...). The first two gaps are numbers of "
            "blocks, rounded up. The other two are the bytes of one query in O and in lse.",
        ),
        core=("four blocks of keys", "four blocks of queries"),
        values=("read", "written"),
    ),
    Exercise(
        "time",
        "minimum_time(kernels, peak, bandwidth) -> seconds that kernels take at least, one after another; each is (flops, bytes)",
        time_solution,
        TIME_CASES,
        hints=(
            "One kernel first: how long does its arithmetic take, how long its loads, and how long both together?",
            "max(flops / peak, bytes / bandwidth) for each kernel. The next kernel starts when this one has ended.",
            "return sum(max(... / ..., ... / ...) for flops, moved in kernels)",
        ),
        core=("one of each",),
    ),
    Exercise(
        "block",
        "smallest_block(N, D, hardware) -> the smallest block_q with which FlashAttention-2 is compute-bound in float16, "
        "0 if there is none",
        block_solution,
        BLOCK_CASES,
        hints=(
            "A block of more queries needs fewer reads for the same arithmetic. Which function tells on which side of the ridge a cost is?",
            "placement(v2_cost(1, 1, N, N, D, block_q=b), hardware).bound. Compute it for b = 1, 2, 3, ...",
            "Write a loop over b with a return inside, and another return after it. How large can b become?",
        ),
        core=("H100, N = 4096",),
    ),
)
