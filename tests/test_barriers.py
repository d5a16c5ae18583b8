"""The simulator of barriers and buffers: it computes, it deadlocks and races where a real GPU would."""

import inspect
import math
import re
from functools import partial
from types import FunctionType, SimpleNamespace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlearn.core.steps import record
from flashlearn.exercises.altered import altered
from flashlearn.show.draw import draw_barriers
from flashlearn.simulator.barriers import Race, Times
from flashlearn.simulator.gluon_names import UINT32, values
from flashlearn.simulator.scheduler import Deadlock
from flashlearn.simulator.simulated import simulate, tiles, timeline_steps
from tests.drawing import sound

pytest.importorskip("triton", reason="Triton is not installed here: there are no kernels to simulate")
from flashlearn.fast import decode
from flashlearn.fast.hopper import (
    backward,
    backward_common,
    backward_launch,
    backward_wide,
    consumer,
    forward_kernel,
    semaphores,
    tile_scheduler,
    variants,
)
from flashlearn.fast.hopper.dq_accumulator import Preprocessed, block_of_queries, tiles_of_dq
from flashlearn.fast.hopper.ranges import Ranges
from flashlearn.fast.hopper.softmax import score_scale, with_softcap
from flashlearn.fast.hopper.tile_scheduler import LAGS, PersistentTileScheduler, beside
from flashlearn.kernels import INTERPRETED, lesson
from flashlearn.kernels.forward import LOG2_E
from tests.slow import across
from tests.summed import as_dq

DEVICE = "cpu" if INTERPRETED else "cuda"
TILE = (64, 64)
ARRIVE = "        mbarrier.arrive(free.index(t % free.shape[0]), count=1)\n"
FULL = "    mbarrier.wait(full.index(stage), t // STAGES & 1)\n"
FREE = (
    "        mbarrier.wait(free.index(t % STAGES), t // STAGES & 1 ^ 1)  # a fresh barrier lets the first round pass\n"
)


def small(rows, blocks, seed=0):
    """Q, K and V of whole numbers, so that sums in any order are exact."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(-1, 2, (n, 64), generator=generator).half() for n in (rows, 64 * blocks, 64 * blocks)]


def run(kernel, q, k, v, *scale, catch=False, times=None, **options):
    """O and the run of one of the lesson's kernels; functions among the options replace those it calls."""
    o = torch.full_like(q, float("nan"))
    given = [tiles(name, t, TILE) for name, t in zip("QKVO", (q, k, v, o), strict=True)]
    replaced = {name: value for name, value in options.items() if callable(value)}
    stages = options.get("STAGES", 2)
    grid = (len(q) // (64 if kernel is lesson.alone_kernel else 128),)
    ran = simulate(
        kernel, *given, len(k) // 64, *scale, grid=grid, STAGES=stages, replaced=replaced, catch=catch, times=times
    )
    return o, ran


# The lesson's kernels


def test_a_tile_goes_there_and_back():
    x = torch.randn(192, 64).half()
    y = torch.zeros_like(x)
    ran = simulate(lesson.double_kernel, tiles("X", x, TILE), tiles("Y", y, TILE), grid=(3,))
    assert torch.equal(y, 2 * x) and ran.slots == Times().land


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_products_in_blocks_are_the_products(blocks, stages):
    q, k, v = small(256, blocks)
    want = ((q.float() @ k.float().T) @ v.float()).half()
    for kernel, scale in ((lesson.alone_kernel, ()), (lesson.shared_kernel, (1.0,))):
        o, _ = run(kernel, q, k, v, *scale, STAGES=stages)
        assert torch.equal(o, want)


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_with_the_softmax_it_is_attention(stages):
    q, k, v = (torch.randn(n, 64).half() for n in (128, 320, 320))
    o, _ = run(lesson.shared_kernel, q, k, v, 64**-0.5 * LOG2_E, STAGES=stages, consume=lesson.attend)
    torch.testing.assert_close(
        o.float(), scaled_dot_product_attention(*(t.float() for t in (q, k, v))), atol=2e-3, rtol=0
    )


def test_a_third_stage_hides_the_copies_and_a_fourth_brings_nothing():
    slots = [run(lesson.shared_kernel, *small(128, 6), 1.0, STAGES=stages)[1].slots for stages in (1, 2, 3, 4)]
    assert slots == [6 * 12, 40, 32, 32]
    fast = [run(lesson.shared_kernel, *small(128, 6), 1.0, STAGES=s, times=Times(land=2))[1].slots for s in (2, 3)]
    assert fast[0] == fast[1] == 2 + 6 * 4  # where copies are quick, two are enough


# What goes wrong


def consume(*changes):
    return altered(lesson.consume.fn, *changes)


def test_without_the_arrive_all_wait_for_ever():
    with pytest.raises(Deadlock) as caught:
        run(lesson.shared_kernel, *small(128, 6), 1.0, consume=consume((ARRIVE, "")))
    assert str(caught.value) == (
        "slot 16: consume 0 waits for phase 1 of full[0], for which 1 more must arrive; consume 1 waits for phase 1 of "
        "full[0], for which 1 more must arrive; load waits for phase 0 of free[0], for which 2 more must arrive"
    )
    o, _ = run(
        lesson.shared_kernel, *(few := small(128, 2)), 1.0, consume=consume((ARRIVE, ""))
    )  # enough buffers for all
    assert torch.equal(o, ((few[0].float() @ few[1].float().T) @ few[2].float()).half())


def test_a_barrier_that_was_not_made_ready_is_rejected():
    changed = altered(lesson.shared_kernel.fn, ("mbarrier.init(full.index(i), count=1)", "None"))
    with pytest.raises(RuntimeError, match="expected mbarrier.init of full.0. before its use, got none"):
        run(changed, *small(128, 6), 1.0)


def test_a_wait_for_the_wrong_phase_never_ends():
    load = altered(lesson.load.fn, ("t // STAGES & 1 ^ 1", "t // STAGES & 1"))
    with pytest.raises(Deadlock, match=r"^slot 8: .*load waits for phase 0 of free\[0\]"):
        run(lesson.shared_kernel, *small(128, 6), 1.0, load=load)


RACES = {
    "arrive before the products": (
        {"consume": consume((ARRIVE, ""), ("        acc = multiply", f"{ARRIVE}        acc = multiply"))},
        r"K2 lands in k_smem\[0\].*: K0 lands in k_smem\[0\]|K2 lands in k_smem\[0\].*reads k_smem\[0\]",
    ),
    "load without a wait": (
        {"load": altered(lesson.load.fn, (FREE, ""))}, r"^slot 0: K2 lands in k_smem\[0\].*: K0 lands in k_smem\[0\]",
    ),
    "multiply without a wait": (
        {"multiply": altered(lesson.multiply.fn, (FULL, ""))}, r"consume 0 reads k_smem\[0\].*: K0 lands in k_smem\[0\]",
    ),
    "one group alone frees a stage": (
        {"consume": consume((ARRIVE, ARRIVE.replace("        mbarrier", "        if index == 0:\n            mbarrier")
                             .replace("count=1", "count=2")))}, r"consume 1 reads k_smem",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_what_no_barrier_keeps_apart_is_a_race(name):
    replaced, words = RACES[name]
    with pytest.raises(Race, match=words):
        run(lesson.shared_kernel, *small(128, 6), 1.0, **replaced)


def test_one_stage_too_few_overwrites_what_lies_behind():
    kernel = altered(
        lesson.shared_kernel.fn,
        (
            "k_smem = gl.allocate_shared_memory(gl.float16, [STAGES,",
            "k_smem = gl.allocate_shared_memory(gl.float16, [STAGES - 1,",
        ),
    )
    with pytest.raises(Race, match=r"K2 lands in k_smem\[2\].*: V0 lands in v_smem\[0\]"):
        run(kernel, *small(128, 6), 1.0, STAGES=3)
    kernel = altered(lesson.shared_kernel.fn, ("v_smem = gl.allocate_shared_memory(gl.float16, [STAGES,", "v_smem = gl.allocate_shared_memory(gl.float16, [STAGES - 1,"))  # fmt: skip
    with pytest.raises(IndexError, match="v_smem"):
        run(kernel, *small(128, 6), 1.0, STAGES=3)


def test_a_missing_fence_is_seen():
    fence = "    fence_async_shared()  # TMA must see what the threads stored\n"
    x = torch.zeros(64, 64).half()
    with pytest.raises(Race, match="a fence is missing"):
        simulate(lesson.double_kernel, tiles("X", x, TILE), tiles("Y", x, TILE), replaced={"write": altered(lesson.write.fn, (fence, ""))})  # fmt: skip


def test_a_product_that_is_not_awaited_is_not_a_number():
    multiply = altered(lesson.multiply.fn, ("    s = warpgroup_mma_wait(0, deps=[s])  # wait\n", ""))
    o, _ = run(lesson.alone_kernel, *small(64, 2), multiply=multiply)
    assert o.isnan().all()


def test_less_than_nothing_is_very_much_without_a_sign():
    since = values(torch.tensor([-1, 0, 4, 5])).to(UINT32)
    assert (since < values(torch.tensor(5)).to(UINT32)).tolist() == [False, True, True, False]


def test_too_much_shared_memory_or_too_many_registers_are_rejected():
    with pytest.raises(RuntimeError, match="232448 bytes of shared memory"):
        run(lesson.shared_kernel, *small(128, 2), 1.0, STAGES=14)
    greedy = altered(lesson.shared_kernel.fn, ("[240, 24]", "[256, 256]"))
    with pytest.raises(RuntimeError, match="65536 registers"):
        run(greedy, *small(128, 2), 1.0)


# The package's own kernels


def problem(B, H, H_kv, N_q, N_k, D, causal, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q, do = (torch.randn(B, H, N_q, D, generator=generator).half() for _ in range(2))
    k, v = (torch.randn(B, H_kv, N_k, D, generator=generator).half() for _ in range(2))
    mask = torch.ones(N_q, N_k, dtype=torch.bool).tril(N_k - N_q) if causal else None
    wide = [t.float().requires_grad_() for t in (q, k, v)]
    o = scaled_dot_product_attention(*wide, attn_mask=mask, enable_gqa=True)
    return q, k, v, do, o.detach(), torch.autograd.grad(o, wide, do.float())


def mask_of(causal, ranges):
    return "causal" if causal else "none" if ranges is None else "ranges"


def step(ranges, N):
    """How far apart the ranges of two sequences lie: 0 if all have the same."""
    return 0 if ranges is None or len(ranges) == 1 else 2 * N


def forward_run(
    q, k, v, causal, block_n=64, stages=2, consumers=2, programs=2, tickets=True, ranges=None, side=2, sinks=None,
    softcap=None, ctas_per_sm=1, replaced=None,
):  # fmt: skip
    """o and lse by the package's kernel; under a mask so many rows side by side."""
    (B, H, N_q, D), (_, H_kv, N_k, _) = q.shape, k.shape
    o, lse = torch.zeros_like(q), torch.zeros(B, H, N_q)
    columns = 64 if D == 192 else D  # of a part of a tile
    q_tile, kv_tile = (1, 1, 64, columns), (1, 1, block_n, columns)
    given = [tiles(*each) for each in (("Q", q, q_tile), ("K", k, kv_tile), ("V", v, kv_tile), ("O", o, q_tile))]
    taken = torch.zeros(1, dtype=torch.int32)
    simulate(
        forward_kernel.attention_forward_hopper_kernel, *given, lse, lse if ranges is None else ranges, step(ranges, N_q),
        taken if tickets else None, side, lse if sinks is None else sinks, B, H, N_q, N_k, H // H_kv, *with_softcap(D**-0.5, softcap),
        grid=(programs,), HEAD_DIM=D, BLOCK_N=block_n, STAGES=stages, CONSUMERS=consumers, MASK=mask_of(causal, ranges),
        SINKS=sinks is not None, CTAS_PER_SM=ctas_per_sm, replaced=replaced,
    )  # fmt: skip
    assert taken == 0, "who takes the last ticket, one for each tile, begins anew"
    return o, lse


def visits(N_q, N_k, block_m, causal, ranges=None, own=128):
    """(B or 1, blocks of queries): how many blocks of `own` keys add to each."""
    if ranges is None:  # those of which it sees a key
        seen = torch.ones(N_q, N_k).tril(N_k - N_q) if causal else torch.ones(N_q, N_k)
        return torch.tensor([[-(-int(rows.any(0).sum()) // own) for rows in seen.split(block_m)]], dtype=torch.int32)
    # those of which the first key's span begins before it ends, and the last key's ends after it begins
    last = [min(start + own - 1, N_k - 1) for start in range(0, N_k, own)]
    bounds = [list(zip(lows[::own], [highs[j] for j in last], strict=True)) for lows, highs in ranges.tolist()]
    starts = range(0, N_q, block_m)
    adds = [[sum(low < m + block_m and high > m for low, high in each) for m in starts] for each in bounds]
    return torch.tensor(adds, dtype=torch.int32)


def backward_run(
    q, k, v, do, o, lse, causal, ranges=None, side=0, beside=None, softcap=None, by_rows=False, replaced=None
):
    """dq, dk and dv by the package's kernel; in order, so many rows side by side, if `side` is given, or `beside` in any order.

    If not in order, it begins while `attention_preprocess_kernel` runs, which writes lse, delta and dq's zeros; by_rows: those of
    the first rows, as many as run side by side, or in order none, and the rest of the memory holds NaN. More than 128 columns: by
    the kernel for them.
    """
    deterministic, side = side > 0, side or beside or (None if ranges is None else 2)
    (B, H, N_q, D), (_, H_kv, N_k, _) = q.shape, k.shape
    wide = D > 128
    own = 64 if wide else 128  # keys of a program
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    block_m = block_of_queries(D)
    key_blocks, m_blocks = -(-N_k // own), -(-N_q // block_m)
    sums = torch.zeros(B, H, m_blocks * tiles_of_dq(D) * 128, 32)
    rows = torch.stack((torch.full((B, H, m_blocks * block_m), math.inf), torch.zeros(B, H, m_blocks * block_m)), 2)
    rows[:, :, 0, :N_q] = (lse / score_scale(D**-0.5, softcap)).masked_fill(lse == -math.inf, math.inf)
    rows[:, :, 1, :N_q] = (o.float() * do.float()).sum(-1)
    columns = 64 if wide else D  # of a tile
    shapes = {"Q": q, "dO": do, "K": k, "V": v, "rows": rows, "dQ": sums, "dK": dk, "dV": dv}
    blocks = {"Q": (block_m, columns), "dO": (block_m, columns), "rows": (2, block_m), "dQ": (128, 32)}
    given = [tiles(name, t, (1, 1, *blocks.get(name, (64, columns)))) for name, t in shapes.items()]
    programs = key_blocks * H_kv * B
    turns = torch.zeros(B, H, 2, dtype=torch.int32)
    if deterministic:
        there = None if ranges is None else Ranges(ranges.to(DEVICE), N_q, N_q)
        turns = semaphores.make_semaphores(
            q.to(DEVICE), k.to(DEVICE), there, block_m, own
        ).cpu()  # by a kernel of its own
    if by_rows:
        sums.view(B * H, -1)[0 if deterministic else H // H_kv * (side or 1) :] = torch.nan
    constants = {"HEAD_DIM": D, "BLOCK_M": block_m, "STAGES": 2, "ZEROED": not by_rows}
    simulate(
        backward_wide.attention_backward_wide_kernel if wide else backward.attention_backward_hopper_kernel,
        *given, *(() if wide else (turns,)), turns if deterministic else None, ranges, step(ranges, N_k),
        N_q, N_k, H_kv, H // H_kv, D**-0.5, softcap, side or 0, replaced=replaced,
        last=() if deterministic else (rows, sums, turns),
        grid=(key_blocks * H_kv * B, 1, 1) if side else (key_blocks, H_kv, B),
        DETERMINISTIC=deterministic, MASK=mask_of(causal, ranges), SIDE_BY_SIDE=side is not None, **({"CHUNKS": tiles_of_dq(D)} if wide else constants),
    )  # fmt: skip
    if not deterministic:
        ready, added = turns.view(-1, 2)[: B * H_kv].T
        counted = D == 128 and ranges is None
        assert (added == (2 * key_blocks if counted else 0)).all(), "of every row that is counted all programs say so"
        first = side or 1
        assert (ready[:first] == 0).all(), "nobody sees to the zeros of the first rows"
        assert (ready[first:] == (2 * key_blocks if by_rows else 0)).all(), "all programs of a row see to a later one"
    if deterministic:
        assert turns[0] == programs
        ends = turns[1:][: B * H * m_blocks * 2].view(B, H, m_blocks, 2)
        want = visits(N_q, N_k, block_m, causal, ranges, own)
        assert torch.equal(ends, want[:, None, :, None].expand_as(ends))
    return as_dq(sums, N_q, D) * D**-0.5, dk, dv


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((1, 2, 1, 200, 300, 64, True), {"block_n": 128, "programs": 3}),
        ((1, 2, 2, 300, 300, 64, True), {"consumers": 3, "tickets": False}),
        ((1, 3, 1, 150, 300, 64, True), {"stages": 3, "ctas_per_sm": 2}),
        ((1, 3, 1, 150, 300, 64, False), {"stages": 3, "ctas_per_sm": 2, "tickets": False}),
        ((1, 3, 1, 150, 300, 64, True), {"stages": 2, "ctas_per_sm": 2, "programs": 1}),
        ((1, 3, 1, 300, 300, 64, True), {"programs": 4}),  # three tiles of three rows, two and then one side by side
        ((2, 1, 1, 100, 192, 128, False), {"stages": 3, "tickets": False}),
        ((1, 4, 2, 300, 200, 64, False), {"stages": 3, "programs": 3}),
        ((1, 2, 1, 400, 130, 64, False), {"consumers": 3, "stages": 3}),
        ((1, 3, 1, 300, 256, 128, False), {"block_n": 128}),
        ((1, 2, 1, 200, 300, 256, True), {"programs": 3}),
        ((2, 2, 1, 300, 150, 192, False), {"programs": 3}),
        ((1, 2, 1, 130, 130, 192, False), {"tickets": False}),
        ((1, 2, 1, 150, 200, 192, True), {}),
        ((2, 2, 2, 130, 70, 256, False), {}),
    ],
)
def test_the_package_s_kernels_run_clean(shape, options):
    """Ragged, causal, grouped: the kernels' own text, forward and then backward."""
    *_, _N_q, _N_k, _D, causal = shape
    q, k, v, do, want, gradients = problem(*shape)
    o, lse = forward_run(q, k, v, causal, **options)
    torch.testing.assert_close(o.float(), want, atol=3e-3, rtol=0)
    for got, wanted in zip(backward_run(q, k, v, do, o, lse, causal), gradients, strict=True):
        torch.testing.assert_close(got.float(), wanted, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("side", (0, 2))
@pytest.mark.parametrize(
    "shape", [(1, 4, 2, 150, 200, 192, True), (2, 1, 1, 200, 65, 136, False), (1, 1, 1, 70, 30, 184, True)]
)
def test_one_group_has_dv_and_the_other_dk(shape, side):
    """Three slabs of columns, the last of them filled up with zeros; queries that see no key."""
    q, k, v, do, _, gradients = problem(*shape)
    N_q, N_k, D, causal = shape[3:]
    s = q.float() @ k.float().repeat_interleave(shape[1] // shape[2], 1).mT * D**-0.5
    mask = torch.ones(N_q, N_k, dtype=torch.bool).tril(N_k - N_q if causal else N_k)
    s = s.masked_fill(~mask, -math.inf)
    o = s.softmax(-1).nan_to_num() @ v.float().repeat_interleave(shape[1] // shape[2], 1)
    got = backward_run(q, k, v, do, o, s.logsumexp(-1), causal, side=side)
    for each, wanted in zip(got, gradients, strict=True):
        torch.testing.assert_close(each.float(), wanted.nan_to_num(), atol=1e-2, rtol=1e-2)


def gradients_are_right(shape, atol=1e-2, **options):
    """Of the kernels' own text, forward and then backward."""
    q, k, v, do, _, gradients = problem(*shape)
    o, lse = forward_run(q, k, v, shape[-1])
    for got, wanted in zip(backward_run(q, k, v, do, o, lse, shape[-1], **options), gradients, strict=True):
        torch.testing.assert_close(got.float(), wanted, atol=atol, rtol=1e-2)


ADD = r"add_dq\w* \d "
WAITS, EARLY = ADD + "waits for a semaphore", ADD + "releases a semaphore, and dQ may not have arrived"
PASSED = "{}barrier()\n{}release_semaphore({})\n".format
IN_ORDER, ANY_ORDER = PASSED(" " * 4, " " * 12, "semaphore_ptr"), PASSED("", " " * 8, "counter_ptr")
GROUPS, TURNS, ONE_ROW, ROWS, ZEROS = (  # B, H, H_kv, N_q, N_k, and whether it is causal
    (1, 1, 1, 400, 64, False), (1, 1, 1, 128, 256, False), (1, 1, 1, 128, 128, False), (2, 4, 2, 64, 100, True), (1, 2, 2, 128, 128, False),
)  # fmt: skip
P_FREE, P_FULL = "        cta.p.producer_acquire(t)\n", "        cta.p.consumer_wait(t)\n"
BACKWARD_FAULTS = [  # function, what it does not say, what it says instead, problem, D, options, error, words
    ("consume_values", P_FREE, "", GROUPS, 256, {}, Race, "p_smem"),
    ("consume_keys", P_FULL, "", GROUPS, 256, {}, Race, "p_smem"),
    ("consume_values", "        wait_for_ds_before(t, cta)\n", "", GROUPS, 256, {}, Race, "ds_smem"),
    ("store_dq", "        mbarrier.wait(cta.dq_free.index(buffer.index), buffer.phase ^ 1)\n", "", GROUPS, 256, {}, Race, "dq_smem"),
    ("consume_keys", "        cta.q.consumer_wait(t)\n", "", GROUPS, 256, {}, Race, "stats_smem"),
    *(("add_dq" if D < 192 else "add_dq_deterministic", "release_semaphore(semaphore_ptr)\n", "pass\n", TURNS, D, {"side": 1}, Deadlock, WAITS) for D in (64, 128, 192, 256)),
    ("add_dq", f"wait_for_additions()\n        {IN_ORDER}", IN_ORDER.lstrip(), ONE_ROW, 128, {"side": 1}, Race, EARLY),
    ("add_dq", f"wait_for_additions()\n        {ANY_ORDER}", ANY_ORDER, ONE_ROW, 128, {}, Race, EARLY),
    *(("add_dq_deterministic", "        wait_for_additions()\n", "", ONE_ROW, D, {"side": 1}, Race, EARLY) for D in (192, 256)),
    *(("dq_barrier", "4 * c + t % 4, t // 4 & 1", "4 * c, t & 1", (1, 1, 1, 640, 64, False), D, {"side": 1}, (Deadlock, Race), "dq_f") for D in (192, 256)),
    ("zero_next_head", "        release_semaphore(cta.counters_ptr + 2 * later)\n", "", ZEROS, 64, {"by_rows": True}, Deadlock, WAITS),
    ("zero_next_head", "        mbarrier.wait(full, 0)\n", "", ZEROS, 64, {"by_rows": True}, Race, "dq_smem"),
    ("zero_next_head", "        wait_for_additions()\n", "", ZEROS, 64, {"by_rows": True}, Race, EARLY),
    ("zero_next_head", "    cta.dq_halves.tile(CONSUMER).consumer_release(0)\n", "", ZEROS, 64, {"by_rows": True}, Deadlock, "dq_free"),
    ("store_dq", "    parts.producer_acquire(t)\n", "", ZEROS, 64, {"by_rows": True}, Race, "dq_smem"),
    # heads of the first set that wait for zeros, zeros for a head of the same set, and for one after the next
    ("zero_next_head", "    if number >= at_once:\n", "    if number > 0:\n", ROWS, 64, {"by_rows": True, "beside": 2}, Deadlock, WAITS),
    ("zero_next_head", "later = number + at_once\n", "later = number + 1\n", ROWS, 64, {"by_rows": True, "beside": 2}, AssertionError, "first rows"),
    ("zero_next_head", "later = number + at_once\n", "later = number + 2 * at_once\n", ROWS, 64, {"by_rows": True, "beside": 2}, Deadlock, WAITS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "sizes", "D", "options", "error", "words"), BACKWARD_FAULTS)
def test_every_wait_of_the_backward_kernels_is_needed(name, old, new, sizes, D, options, error, words):
    """Without it, or with another, the simulator says who waits for ever, or what is overwritten."""
    q, k, v, do, *_ = problem(*sizes[:-1], D, sizes[-1])
    wrong = {name: altered(getattr(backward_wide if D > 128 else backward, name).fn, (old, new))}
    with pytest.raises(error, match=words):
        backward_run(q, k, v, do, q, torch.zeros(q.shape[:3]), sizes[-1], replaced=wrong, **options)


@pytest.mark.parametrize("D, causal", ((192, True), (256, False), (256, True)))
def test_a_group_that_has_one_buffer_for_q(D, causal):
    """At D = 256, and 192 under a mask, the next tile's Q comes when this one's o has left; some tiles see no key."""
    q, k, v, _, want, _ = problem(1, 4, 2, 300, 200, D, causal)
    o, _ = forward_run(q, k, v, causal, programs=3, tickets=causal)
    torch.testing.assert_close(o.float(), want, atol=3e-3, rtol=0)


def test_q_that_is_handed_back_before_o_has_left_is_overwritten():
    q, k, v, *_ = problem(1, 2, 1, 300, 130, 256, False)
    early = altered(consumer.release_stored.fn, ("        tma.store_wait(0)\n", ""))
    with pytest.raises(Race, match="q_smem"):
        forward_run(q, k, v, False, programs=1, tickets=False, replaced={"release_stored": early})


@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize("D, side", across((64, 128, 192, 256), (1, 2, 3, 8)))
def test_programs_add_to_dq_one_after_the_other(D, side, causal):
    gradients_are_right((2, 4, 2, 150, 300, D, causal), side=side)


@pytest.mark.parametrize("deterministic", (False, True))
def test_in_order_a_program_takes_a_block_for_all_heads_before_the_block_above(deterministic):
    """Head by head it would wait, at the last block of each head, for programs that see more blocks: no result tells."""
    gl = SimpleNamespace(where=lambda condition, a, b: a if condition else b)
    at, tile = SimpleNamespace(head=4, block=5), SimpleNamespace(first=3, blocks=3)
    after = FunctionType(
        backward_common.next_query_block.fn.__code__,
        {"gl": gl, "QueryBlock": lambda head, block: SimpleNamespace(head=head, block=block)},
    )
    rounds = []
    for _ in range(6):
        rounds.append((at.head, at.block))
        at = after(at, 4, tile, SimpleNamespace(group=2, DETERMINISTIC=deterministic))
    if deterministic:
        assert rounds == [(4, 5), (5, 5), (4, 4), (5, 4), (4, 3), (5, 3)]
    else:
        assert rounds == [(4, 5), (4, 4), (4, 3), (5, 5), (5, 4), (5, 3)]


def test_as_many_rows_run_side_by_side_as_keep_programs_from_waiting():
    """A program of 64 iterations ends every half an iteration on 132 SMs: six heads, for three iterations between two of a head."""
    assert beside(1000, 64, 132, lag=3) == 6 + 1 and beside(996, 64, 132, lag=3) == 6 and beside(4, 64, 132, lag=3) == 4
    assert beside(1000, 8, 132, lag=3) == 50 and beside(1000, 10**6, 132, lag=3) == 1
    assert [beside(64, 64, 132, lag=LAGS[mask]) for mask in ("none", "causal", "long causal")] == [4, 4, 13]


def test_how_many_rows_run_side_by_side_in_order(monkeypatch):
    """On 132 SMs, 16384 tokens, hidden size 2048: as the lags say, or twice as many as in any order."""
    monkeypatch.setattr(tile_scheduler, "sm_count", lambda device: 132)

    def rows(D, N, H_kv, mask, mean=None):
        q = torch.empty(16384 // N, 2048 // D, N, D, device="meta")
        own, block_m = (64, 64) if D > 128 else (128, 64 if D > 64 else 128)
        ranges = None if mean is None else Ranges(q, N, mean)
        return tile_scheduler.heads_beside_deterministic(
            q, q[:, :H_kv], ranges, causal=mask == "causal", block_m=block_m, block_n=own
        )

    assert [rows(128, N, 16, "none") for N in (512, 4096, 16384)] == [26, 4, 1]
    assert [rows(128, N, 16, "causal") for N in (512, 2048, 4096, 16384)] == [35, 8, 13, 4]
    assert rows(64, 4096, 32, "causal") == rows(64, 1024, 32, "none") == 26
    assert [rows(128, N, 4, "causal") for N in (1024, 4096, 16384)] == [32, 8, 1], "four query heads to a key head"
    assert rows(128, 4096, 4, "none") == 1
    assert rows(128, 4096, 16, "ranges", 1025) == 8, (
        "of 4096 queries 1025 see a key, and 19 blocks of 64 one of 128 keys"
    )
    assert rows(128, 4096, 16, "ranges", 500.5) == 16 and rows(128, 4096, 4, "ranges", 1025) == 2
    assert rows(64, 512, 32, "ranges", 512) == rows(64, 512, 32, "ranges", 500), "no more than there are"
    assert rows(256, 2048, 2, "causal") == 8 and rows(256, 8192, 8, "causal") == 8


def test_tickets_are_kept_for_a_stream_and_in_a_graph_made_anew(monkeypatch):
    state = {"stream": 1, "capturing": False}
    monkeypatch.setattr(decode, "_workspaces", {})
    monkeypatch.setattr(decode, "current_stream", lambda device: state["stream"])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state["capturing"])
    zeros, empty = torch.zeros, torch.empty
    monkeypatch.setattr(torch, "zeros", lambda *shape, dtype, device: zeros(*shape, dtype=dtype))
    monkeypatch.setattr(torch, "empty", lambda *shape, dtype, device: empty(*shape, dtype=dtype))
    gpu = torch.device("cuda", 0)
    first = tile_scheduler.tile_counter(gpu)
    assert first.tolist() == [0] and tile_scheduler.tile_counter(gpu) is first
    state["stream"] = 2
    second = tile_scheduler.tile_counter(gpu)
    assert second is not first and tile_scheduler.tile_counter(gpu) is second
    state["capturing"] = True
    assert (
        tile_scheduler.tile_counter(gpu) is not second and tile_scheduler.tile_counter(torch.device("cpu")) is not first
    )
    state.update(stream=1, capturing=False)
    assert tile_scheduler.tile_counter(gpu) is first


@pytest.mark.parametrize("causal", (False, True))
def test_whoever_takes_the_last_ticket_begins_anew(causal):
    """Without it the next launch on this stream would find all tickets taken, and leave most of its tiles out."""
    q, k, v, *_ = problem(1, 3, 1, 300, 300, 64, causal)
    silent = altered(PersistentTileScheduler.fetch_next.fn, ("if taken == self.tiles() - 1:", "if taken < 0:"))
    with pytest.raises(AssertionError, match="begins anew"):
        forward_run(q, k, v, causal, replaced={"PersistentTileScheduler.fetch_next": silent})


def test_dq_is_handed_out_before_the_sweep_is_launched(monkeypatch):
    """The kernel that writes it may begin before the sweep has ended, which may read memory that was freed since its launch."""
    told, empty_like = [], torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda t: (told.append("memory"), empty_like(t))[1])
    monkeypatch.setattr(backward_launch, "launch_hopper", lambda *_, **given: told.append("sweep"))
    monkeypatch.setattr(backward_launch, "postprocess", lambda *_: told.append("end"))
    q, k, v, do, lse = (torch.empty(1, 2, 128, 64, dtype=torch.float16) for _ in range(5))
    preprocessed = Preprocessed(
        torch.empty(1, 2, 2, 128), torch.empty(1, 2, 256, 32), torch.zeros(1, 2, 2, dtype=torch.int32), None
    )
    backward_launch.attention_backward_hopper(
        do, q, k, v, q, lse[..., 0], causal=True, scale=1.0, preprocessed=preprocessed
    )
    assert told == ["memory"] * 3 + ["sweep", "end"]


BY_HEADS = [
    (2, 2, 2, 200, 300, 64, True), (2, 4, 2, 100, 300, 128, False), (1, 3, 3, 300, 100, 64, False), (3, 2, 1, 64, 64, 128, True),
]  # fmt: skip
SIDE_BY_SIDE = [(2, 4, 2, 200, 300, 64, True), (3, 2, 1, 130, 260, 128, True), (1, 6, 3, 70, 200, 192, True)]


@pytest.mark.parametrize("side", (0, 2))
@pytest.mark.parametrize("shape", BY_HEADS)
def test_sums_need_not_be_zero(shape, side):
    """More blocks of queries than programs and fewer, grouped heads, several sequences: the programs of a head set the sums of the
    next to zero; deterministic, two heads side by side, the first block of keys stores."""
    gradients_are_right(shape, side=side, by_rows=True)


@pytest.mark.parametrize("by_rows", (False, True))
@pytest.mark.parametrize("beside", (2, 3))
@pytest.mark.parametrize("shape", SIDE_BY_SIDE)
def test_heads_that_share_keys_run_side_by_side(shape, beside, by_rows):
    """Two or three at once of two to four, in any order; each sets the sums of the head to zero that comes so many later."""
    if not by_rows or shape[-2] <= 128:  # the kernel for wide heads finds zeros
        gradients_are_right(shape, beside=beside, by_rows=by_rows)


@pytest.mark.parametrize(
    ("N", "heads", "causal", "deterministic", "zeroed"),
    [
        (300, (4, 2), True, True, None), (300, (4, 2), False, True, 0), (300, (4, 2), True, False, 2), (200, (2, 1), True, False, 2),
        (2049, (4, 4), False, False, None), (2049, (4, 4), False, True, None), (2049, (4, 4), True, False, 1),
        (2049, (4, 4), True, True, None), (4097, (4, 4), True, False, None),
    ],
)  # fmt: skip
def test_where_a_query_may_attend_to_no_key_sums_begin_at_zero(N, heads, causal, deterministic, zeroed):
    """Deterministic, nobody would store its part of dQ."""
    q, k = (
        torch.empty(1, H, n, 64, device=DEVICE) for H, n in zip(heads, (N, min(N, 200) if N == 300 else N), strict=True)
    )
    assert backward_launch.heads_zeroed(q, k, None, causal=causal, deterministic=deterministic) == zeroed


def test_a_row_that_is_not_set_to_zero_is_noticed():
    q, k, v, do, _, _ = problem(1, 2, 2, 128, 128, 64, False)
    o, lse = forward_run(q, k, v, False)
    store = "            async_store(cta.dq_desc, [later // problem.kv_heads, head, (2 * block + CONSUMER) * 128, 0], zeros)\n"
    none = {"zero_next_head": altered(backward.zero_next_head.fn, (store, "            pass\n"))}
    dq, _, _ = backward_run(q, k, v, do, o, lse, False, by_rows=True, replaced=none)
    assert dq[:, 0].isfinite().all() and dq[:, 1].isnan().all()


GDC, V_FULL = r" *gdc_wait\(\).*\n", r"mbarrier\.wait\(cta\.kv_full\.index\(1\), 0\).*\n"


@pytest.mark.parametrize(
    ("name", "wait", "new", "words"),
    [
        *((name, GDC, "", f"{does}.*, and has not waited for the kernel before") for name, does in
          (("load", "load reads rows"), ("add_dq", r"add_dq \d writes dQ"), ("finish", r"consume \d writes dV"))),
        # V comes after K: who multiplies by it waits for it, and who wants its room and had no iteration
        ("consume", V_FULL, "pass\n", "reads v_smem"),
        ("finish", V_FULL, "pass\n", "writes v_smem"),
    ],
)  # fmt: skip
def test_whoever_does_not_wait_is_too_early(name, wait, new, words):
    """No query attends to the last 128 keys: their warpgroups write zeros, and no Q and no delta comes that they would wait for."""
    q, k, v, do, _, _ = problem(1, 1, 1, 128, 256, 64, False)
    ranges = torch.tensor([0] * 256 + [128] * 128 + [0] * 128, dtype=torch.int32).view(1, 2, 256)
    run = partial(backward_run, q, k, v, do, torch.zeros(q.shape), torch.zeros(q.shape[:3]), False, ranges=ranges)
    run()
    function = getattr(backward, name).fn
    found = re.findall(wait, inspect.getsource(function))
    with pytest.raises(Race, match=words):
        run(replaced={name: altered(function, (found[0] if wait == GDC else found[-1], new))})


FREES = "    cta.k.consumer_release(t)\n"
ITERATIONS = {  # function: which one runs with so many consumers, and so many CTAs per SM; and where V or K is still read
    forward_kernel.first_iteration: ({"consumers": 2}, ""),
    forward_kernel.update: ({"consumers": 2}, "    acc = waited("),
    variants.update_with_old_maximum: ({"consumers": 3}, "    acc = waited("),
    variants.sequential_iteration: ({"ctas_per_sm": 2}, "    s = capped(warpgroup_mma_wait(0"),
}


@pytest.mark.parametrize("function", ITERATIONS, ids=lambda function: function.fn.__name__)
def test_the_package_s_forward_kernel_frees_each_stage_and_only_after_its_product(function):
    q, k, v, *_ = problem(1, 1, 1, 192, 448, 64, False)
    options, wait = ITERATIONS[function]
    run = partial(forward_run, q, k, v, False, **options, programs=1)
    name, function = function.fn.__name__, function.fn
    with pytest.raises(Deadlock, match=r"load waits for phase \d of free"):
        run(replaced={name: altered(function, (FREES, ""))})
    if wait:
        with pytest.raises(Race, match=r"lands in [kv]_smem.*reads [kv]_smem"):
            run(replaced={name: altered(function, (FREES, ""), (wait, f"{FREES}{wait}"))})


@pytest.mark.parametrize("ctas_per_sm", (1, 2))
def test_keys_that_no_query_sees_are_handed_back_when_they_have_landed(ctas_per_sm):
    """The first queries see the first block of keys, the others the last: eight blocks between are nobody's."""
    q, k, v, *_ = problem(1, 1, 1, 128, 640, 64, False)
    low, high = (torch.tensor(ends).repeat_interleave(64) for ends in ((0, 576), (64, 640)))
    ranges = torch.stack((low, high)).int()[None]
    run = partial(forward_run, q, k, v, False, ranges=ranges, programs=1, ctas_per_sm=ctas_per_sm)
    o, _ = run()
    keys = torch.arange(640)
    seen = (keys >= low[:, None]) & (keys < high[:, None])
    want = scaled_dot_product_attention(*(t.float() for t in (q, k, v)), attn_mask=seen)
    torch.testing.assert_close(o.float(), want, atol=3e-3, rtol=0)
    too_early = {
        "ForwardCTA.release_unread": altered(consumer.ForwardCTA.release_unread.fn, ("self.v.consumer_wait(t)", "pass"))
    }
    with pytest.raises(Race, match=r"lands in v_smem.*no barrier keeps that from what went before: V\d"):
        run(replaced=too_early)


def growing(N_k):
    """One head of 192 queries, D = 64: from the last block of keys to the first the scores of a third of the rows grow by
    30 a block, those of a third fall, and every eighth row has none above -200."""
    q, k, v, *_ = problem(1, 1, 1, 192, N_k, 64, False)
    k[..., 0], k[..., 1] = torch.linspace(210, -30, N_k), 100
    q[..., 0], q[..., 1] = torch.tensor((8.0, -8.0, 0.0)).repeat_interleave(64), 0
    q[..., ::8, 1] = -32 - 16 * q[..., ::8, 0].abs() / 8
    return q, k, v


@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize(
    "N_k", (192, 255, 448, 500)
)  # with 255 a row sees no key of the block before its first whole one
def test_old_maxima_are_trusted_no_longer_than_they_are_right(N_k, causal):
    """Three groups look for a new maximum only where a sum has grown too large."""
    q, k, v = growing(N_k)
    s = q.double() @ k.double().mT / 8
    assert s.amax(-1).max() > 200 and s.amax(-1).min() < -200
    if causal:
        s.masked_fill_(torch.ones(192, N_k, dtype=torch.bool).triu(N_k - 191), -torch.inf)
    o, lse = forward_run(q, k, v, causal, consumers=3, programs=1)
    assert (lse - s.logsumexp(-1)).abs().max() < 1e-3
    assert (o - s.softmax(-1) @ v.double()).abs().max() < 5e-3


def test_a_maximum_that_is_trusted_for_ever_is_seen():
    q, k, v = growing(448)
    for_ever = altered(variants.update_with_old_maximum.fn, ("if not (largest <= TRUSTED):", "if False:"))
    o, _ = forward_run(q, k, v, False, consumers=3, programs=1, replaced={"update_with_old_maximum": for_ever})
    assert not o.isfinite().all()


# Steps, picture, size


def test_steps_tell_who_waits_and_the_picture_changes():
    _, good = run(lesson.shared_kernel, *small(128, 6), 1.0)
    _, bad = run(lesson.shared_kernel, *small(128, 6), 1.0, catch=True, consume=consume((ARRIVE, "")))
    steps = record(timeline_steps({"as it is": good, "without the arrive": bad}))
    assert len(steps) == good.slots + 1 == 41 and bad.stopped.startswith("slot 16: consume 0 waits")
    assert "as it is: load waits for free[1], phase 0, K2 and V2 are on their way" in steps[14].sentence
    both = "consume 0 and consume 1 wait for q_full[0], phase 0, K0, V0, K1 and V1 are on their way, load waits for free[0]"
    assert both in steps[0].sentence
    beside = {
        f"{n} stages": run(lesson.shared_kernel, *small(128, 6), 1.0, STAGES=n)[1] for n in (2, 3)
    }  # as in notebook 15
    longest = max((step.sentence for step in timeline_steps(beside)), key=len)
    assert len(longest) < 300, f"three lines below the picture: {longest}"
    assert "load waits for phase 0 of free[0]" in steps[-1].sentence
    waits = [bar for bar in steps[-1].values["runs"]["as it is"] if bar.text == "q_full[0], phase 0"]
    assert [(bar.row, bar.what, bar.start) for bar in waits] == [("consume 0", "wait", 0), ("consume 1", "wait", 0)], (
        "for Q"
    )
    words = set(sound(draw_barriers(steps[-1]), usual=False, apart=6).texts())
    assert any("phase 1" in each for each in words) and not any("phase 2" in each for each in words), "its last bit"
    assert "phase 1" in steps[20].sentence + steps[30].sentence and not any(
        "phase 2" in step.sentence for step in steps
    )
    assert len({draw_barriers(steps[number]).svg() for number in (0, 9, 24, 40)}) == 4
