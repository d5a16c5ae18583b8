"""Exercises of notebook 08: the bytes of a variant, and the block that leaves the memory-bound side."""

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
from flashlearn.cost import A100_40GB, H100_SXM, RTX_4060_LAPTOP
from flashlearn.course.why_it_is_fast.solutions import block_solution, bytes_solution
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


BYTES_CASES = (
    Case("one block", _counted(8, 8, 4, 8, 8), "Q, K and V once each; O, and lse at 4 bytes a row"),
    Case("four blocks of keys", _counted(8, 32, 4, 8, 8),
         "all of Q is read once for each of the N_k / block_k K blocks"),
    Case("four blocks of queries", _counted(32, 8, 4, 8, 8),
         "K and V are read once for each of the N_q / block_q Q blocks"),
    Case("large head", _counted(16, 24, 64, 4, 6), "a row of Q, K, V or O has D elements, a row of lse has one"),
    Case("ragged", _counted(21, 11, 4, 8, 4),
         "count blocks with ceil; the rows of all Q blocks add up to N_q, not to a multiple"),
    Case("float32", _counted(16, 16, 4, 4, 4, torch.float32),
         "elements of Q, K, V and O have itemsize bytes; lse has 4 in any case"),
    Case("one row left over", _counted(17, 9, 4, 8, 4),
         "a last block of one row is a block too: round the number of blocks up, not to the nearest"),
)  # fmt: skip

BLOCK_CASES = (
    Case("A100, N = 4096", _block(4096, 64, A100_40GB),
         "try block_q = 1, 2, 3, ...: placement(v2_cost(...), hardware).bound"),
    Case("H100, N = 4096", _block(4096, 64, H100_SXM), "the ridge is that of the hardware you are given, not 201"),
    Case("laptop, N = 1000", _block(1000, 128, RTX_4060_LAPTOP),
         "N need not be a multiple of the block: leave ceil to v2_cost"),
    Case("short text", _block(300, 64, A100_40GB),
         "with one block for all queries the intensity is below N / 2: return 0 if even that is below the ridge"),
    Case("one block of all N queries", _block(620, 64, H100_SXM),
         "nothing smaller will do, but the block of all N queries does: range(1, N + 1)"),
    Case("D = 128 at the edge", _block(403, 128, A100_40GB),
         "D counts, if little: with D = 64 the answer would be 0 here. Pass D on to v2_cost"),
    Case("D = 64 at the edge", _block(403, 64, A100_40GB),
         "D counts, if little: with D = 128 the answer would be 403 here. Pass D on to v2_cost"),
    Case("a ridge below 1", _block(64, 64, SLOW),
         "a slow processor is compute-bound with one query in a block: start at 1"),
    Case("a ridge above 1000", _block(4100, 64, FAST),
         "a fast processor needs 2050 queries in a block: the search ends at N, and at no number of yours"),
)  # fmt: skip

EXERCISES = (
    Exercise(
        "bytes",
        "bytes_moved(N_q, N_k, D, block_q, block_k, itemsize) -> (read, written), for one head of version 2 "
        "when Q_i is read again for every K_j",
        bytes_solution,
        BYTES_CASES,
        hints=(
            "Version 2 reads Q once, and K and V once for every block of queries. What changes if Q_i cannot stay on chip?",
            "All of Q is read for each of the ceil(N_k / block_k) blocks of keys, all of K and V for each of the ceil(N_q / block_q) blocks of queries.",
            "read = itemsize * D * (... * N_q + ... * 2 * N_k) and written = N_q * (... + ...): the first two gaps are numbers of "
            "blocks, rounded up, the other two the bytes of a row of O and of lse.",
        ),
        core=("four blocks of keys", "four blocks of queries"),
        values=("read", "written"),
    ),
    Exercise(
        "block",
        "smallest_block(N, D, hardware) -> the smallest block_q with which version 2 is compute-bound in float16, "
        "0 if there is none",
        block_solution,
        BLOCK_CASES,
        hints=(
            "More queries in a block mean fewer reads for the same arithmetic. What in the package tells on which side of the ridge a cost lies?",
            "placement(v2_cost(1, 1, N, N, D, block_q=b), hardware).bound. Ask it for b = 1, 2, 3, ...",
            "A loop over b with a return inside, and another return after it. How large may b become?",
        ),
        core=("H100, N = 4096",),
    ),
)
