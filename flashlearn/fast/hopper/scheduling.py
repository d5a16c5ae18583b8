"""Which tile a CTA of a Hopper kernel takes: heads one after the other, or a few side by side.

CTAs that run at the same time should read the same K and V, so that the L2 cache serves them: one head after the other. And all
should end at the same time: the longest blocks of all heads first. A few heads side by side are between the two.

Deterministic, the next block of keys of a head should begin an iteration or more after the one before, which has then added
to dQ (`flashlearn.fast.hopper.semaphores`). So a few heads run side by side; with more than needed, less of Q, dO and dQ is
shared in the L2 cache.
"""

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashlearn.fast.decode import workspace
from flashlearn.fast.hopper.ranges import Ranges
from flashlearn.fast.launcher import sm_count

# Iterations after which the next block of keys of a head begins, measured; with ranges, of those that attend to a key in the mean
LAGS = {"none": 1.5, "causal": 2.0, "long causal": 6.0, "ranges": 1.0}
LONG = 4096  # keys of a long causal head
IN_L2 = 2**24  # bytes of K and V of heads that run side by side with masks


def beside(heads: int, iterations: int, resident: int, lag: float) -> int:
    """How many heads run side by side, if a CTA takes so many iterations and `resident` CTAs run at a time.

    A CTA ends, and another begins, every iterations / resident iterations; of one head, every `lag` iterations.
    """
    return in_even_sets(heads, max(1, min(heads, round(lag * resident / iterations))))


def in_even_sets(heads: int, side: int) -> int:
    """So many heads at a time, or a few more, so that all sets are about as large: a small last set keeps few CTAs busy."""
    return -(-heads // max(heads // side, 1))


def heads_of_a_wave(tiles: int, resident: int) -> int:
    """How many heads of so many causal tiles run side by side: as many as keep all CTAs busy, 2 to 16.

    With more, CTAs read K and V of too many heads for the L2 cache; with fewer, the last head ends late.
    """
    return max(2, min(16, resident // max(tiles, 1)))


def heads_of_shared_keys(heads: int, blocks: int, resident: int) -> int | None:
    """How many key heads, of so many blocks of keys, run side by side backward under a causal mask with grouped query heads.

    A head then has few CTAs, and the longest takes far longer than the others. So it is as many as keep all SMs busy.
    None: one head after the other.
    """
    side = resident // blocks
    if heads < 2 or not 2 <= side <= 16:
        return None
    return in_even_sets(heads, side)


def heads_with_masks(heads: int, nbytes: int) -> int:
    """The same with windows and documents, which make the same tiles long in all heads.

    It is as many as fit into the L2 cache, with so many bytes each: K and V that one query attends to, or Q, dO and dQ of the
    queries that attend to one key.
    """
    return min(heads, max(2, min(8, IN_L2 // max(nbytes, 1))))


def heads_beside(q: Tensor, k: Tensor, *, causal: bool, block_n: int) -> int | None:
    """How many key heads run side by side backward, nondeterministic and without ranges; None: one after the other."""
    (B, H, _, _), (_, H_kv, N_k, _) = q.shape, k.shape
    if not causal or H == H_kv:
        return None
    return heads_of_shared_keys(B * H_kv, -(-N_k // block_n), sm_count(q.device))


def heads_beside_deterministic(
    q: Tensor, k: Tensor, ranges: Ranges | None, *, causal: bool, block_m: int, block_n: int
) -> int:
    """How many key heads run side by side where CTAs of `block_n` keys wait for semaphores of `block_m` queries.

    With grouped heads they are twice as many as nondeterministic: more of the CTAs that wait are then of other heads.
    With ranges `causal` is ignored.
    """
    (B, H, N_q, _), (_, H_kv, N_k, _) = q.shape, k.shape
    attending = N_q if ranges is None else min(N_q, round(ranges.mean) + block_n)  # to the keys of a CTA
    heads, iterations = B * H_kv, H // H_kv * -(-attending // block_m)
    mask = "ranges" if ranges is not None else "none" if not causal else "causal" if N_k < LONG else "long causal"
    shared = heads_beside(q, k, causal="causal" in mask, block_n=block_n)
    if shared is not None:
        return min(heads, 2 * shared)
    return beside(heads, iterations, sm_count(q.device), LAGS[mask])


def tile_counter(device: torch.device) -> Tensor:
    """int32, the first of which is the atomic counter of tile indices: 0, and reset to 0 by the CTA that takes the last.

    It is one of the counters that decoding keeps for each stream (`flashlearn.fast.decode.workspace`), so that no kernel
    has to write a 0 first. A CUDA graph gets its own.
    """
    kept = device.type != "cpu" and not torch.cuda.is_current_stream_capturing()
    return workspace(device, kept, 0, 0, 1)[2]


@gluon.jit
def side_by_side(index, side, blocks, heads):
    """The block and the head of tile number `index`, if heads of so many blocks are taken `side` at a time: block 0 of each of
    them, then block 1 of each, ..."""
    first = index // (side * blocks) * side
    within = index % (side * blocks)
    width = gl.minimum(side, heads - first)  # the last heads may be fewer
    return within // width, first + within % width


@gluon.jit
def store_tile_index(index):
    """Keep a CTA's tile index in shared memory, where each partition finds it: they part at a barrier."""
    smem = gl.allocate_shared_memory(gl.int32, [1], gl.SwizzledSharedLayout(1, 1, 1, order=[0]))
    smem.store(gl.full([1], index, gl.int32, gl.BlockedLayout([1], [32], [gl.num_warps()], [0])))
    return smem


@gluon.jit
def load_tile_index(smem):
    """The index that `store_tile_index` has stored."""
    return gl.sum(smem.load(gl.BlockedLayout([1], [32], [gl.num_warps()], [0])), 0)


@gluon.jit
def opaque(n):
    """n, as a value that the compiler knows nothing of: it computes what depends on it here, and again where it is asked again.

    Kept from before the iterations of a kernel until after them, it would take registers in all of them.
    """
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [n], dtype=gl.int32, is_pure=False, pack=1)
