"""Other ways to compute a consumer's 64 queries, which some settings take (`flashlearn.fast.dispatch`).

Two CTAs per SM leave a consumer 104 registers a thread: it does one thing after the other, and the other CTA fills its gaps.
Three consumers at D = 64 keep an old maximum until a row sum grows too large.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma_wait

from flashlearn.fast.hopper.consumer import State, release_q_before, waited
from flashlearn.fast.hopper.mask import hide, iterations_of
from flashlearn.fast.hopper.softmax import capped, in_pairs, rescaled, thread_sums
from flashlearn.fast.hopper.versions import barrier

# Up to such a sum of 32 exponentials, each of them, of at most as much, is a number in 16 bits
TRUSTED = gl.constexpr(2.0**15)


@gluon.jit
def attend_sequentially(tile, q, cta):
    """As `attend` of the forward kernel: softmax and acc of 64 queries, with nothing under way while exponentials are computed."""
    q_tile, softmax, acc = cta.begin_tile(tile, q)
    its = iterations_of(tile, cta.problem, cta.BLOCK_N)
    for t in range(tile.t0, its.first):  # only consumers of later queries attend to these keys
        cta.release_unread(t)
    q_tile.wait()
    for t in range(its.first, gl.minimum(its.masked, its.stop)):
        softmax, acc = sequential_iteration(t, q_tile, softmax, acc, cta, True)
    release_q_before(tile.i, q)
    for t in range(its.masked, its.full):
        softmax, acc = sequential_iteration(t, q_tile, softmax, acc, cta, False)
    if cta.problem.MASK == "ranges":
        for t in range(its.full, its.stop):
            softmax, acc = sequential_iteration(t, q_tile, softmax, acc, cta, True)
        for t in range(its.stop, tile.end()):  # only consumers of earlier queries attend to these keys
            cta.release_unread(t)
    return softmax, acc


@gluon.jit
def sequential_iteration(t, q_tile, softmax, acc, cta, HIDE: gl.constexpr):
    """Softmax and acc after iteration t, of which nothing is under way before it or after it."""
    cta.k.consumer_wait(t)
    s = capped(warpgroup_mma_wait(0, deps=[cta.scores(t, q_tile.chunks)]), cta.problem.inner)
    cta.k.consumer_release(t)
    if HIDE:
        s = hide(s, t, q_tile, cta.problem)
    softmax, p, alpha = softmax.update(s, cta.problem.qk_scale)
    softmax = softmax.plus(thread_sums(p))
    acc = cta.last_product(t, in_pairs(p, cta.v.smem.dtype), rescaled(acc, alpha))
    return softmax, waited(acc)


@gluon.jit
def update_with_old_maximum(t, s, acc, q_tile, state, cta):
    """As `update` of the forward kernel: the new state, where m stays as it is unless some row sum grows too large with it.

    exp2(s - m) is exact for any m with which nothing overflows, and the sum is needed anyhow. Where m is too old, which it is for
    a query that has seen no key too, S is computed again: K is still there.
    """
    problem = cta.problem
    softmax = state.softmax
    p = gl.exp2(capped(s, problem.inner) * problem.qk_scale - softmax.m_i[:, None])
    sums = thread_sums(p)
    row_sums = cta.row_sums.index(q_tile.consumer * 2 + t % 2)
    row_sums.store(gl.max(sums, 1))
    barrier()
    largest = gl.max(
        row_sums.load(gl.BlockedLayout([2], [32], [4], [0])), 0
    )  # of all queries: every warp branches alike
    acc = waited(acc)
    if not (largest <= TRUSTED):
        s = capped(warpgroup_mma_wait(0, deps=[cta.scores(t, q_tile.chunks)]), problem.inner)
        softmax, p, alpha = softmax.update(s, problem.qk_scale)
        acc, sums = rescaled(acc, alpha), thread_sums(p)
    pairs = in_pairs(p, cta.v.smem.dtype)
    cta.k.consumer_release(t)
    return State(softmax.plus(sums), acc, pairs)
