"""`HBM`: what is loaded, multiplied, held and stored is noted, there is no way round it, and planted cheats are caught."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

import flashlearn as fl
from flashlearn.algorithms import captions
from flashlearn.algorithms.attention import online_update, softmax_of
from flashlearn.algorithms.gradients import matmul_backward_steps
from flashlearn.algorithms.own_scales import own_scales_steps
from flashlearn.algorithms.problem import Problem, start
from flashlearn.algorithms.projection import projection_steps
from flashlearn.algorithms.tiled import tiled_attention_v1_lines, tiled_attention_v2_steps
from flashlearn.core.hbm import HBM, OnChip
from flashlearn.core.numerics import divide, log_sum_exp, spans
from flashlearn.core.steps import hbm_bytes, matmul_flops, record, sram_peak
from flashlearn.cost import v2_cost

B, H, N, D, BLOCK = 1, 2, 12, 4, 4


def tensors(dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.randn(B, H, N, D, dtype=dtype) for _ in range(3)]


def memory(**given):
    return HBM(given, {"y": torch.float32}, {**{name: t.shape for name, t in given.items()}, "y": (4, 4)})


# What is noted.


def test_loads_products_and_stores_are_noted():
    x = torch.randn(4, 6)
    hbm = memory(x=x)
    a = hbm.load("x", (0, 2))
    b = hbm.load("x", (2, 4))
    S = a @ b.mT
    hbm.store("y", (0, 2), S, (2, 4))
    step = hbm.step("once", S=S)
    assert [str(t) for t in step.reads] == ["x[0:2, 0:6]", "x[2:4, 0:6]"]
    assert step.matmuls == ((1, 2, 6, 2),)
    assert [str(t) for t in step.writes] == ["y[0:2, 2:4]"] and torch.equal(step.values["y"], x[:2] @ x[2:].mT)
    assert sorted(str(t) for t in step.on_chip) == ["S[0:2, 2:4]", "x[0:2, 0:6]", "x[2:4, 0:6]"]
    assert not hbm.step("nothing").reads and hbm.output("y")[0, 0].isnan()  # never written


def on_chip(hbm, *, program=(), **values):
    return [str(tile) for tile in hbm.step("", program=program, **values).on_chip]


def test_a_tile_stays_until_a_later_step_loads_the_next_of_its_matrix():
    hbm = memory(x=torch.randn(4, 6), z=torch.randn(4, 6))
    a, z = hbm.load("x", (0, 2)), hbm.load("z", (0, 1))
    hbm.load("x", (2, 4))
    assert on_chip(hbm) == ["x[0:2, 0:6]", "z[0:1, 0:6]", "x[2:4, 0:6]"]  # in one step both stay
    assert a + 1 is not None and on_chip(hbm) == ["x[0:2, 0:6]", "z[0:1, 0:6]", "x[2:4, 0:6]"]
    hbm.load("x", (1, 2))
    with pytest.raises(ValueError, match=r"got x\[0:2, 0:6\], whose place a later one has taken"):
        a + 1
    assert on_chip(hbm) == ["z[0:1, 0:6]", "x[1:2, 0:6]"]
    hbm.drop("x")
    assert on_chip(hbm) == ["z[0:1, 0:6]"]
    hbm.clear()
    with pytest.raises(ValueError, match="which another kernel had"):
        z + 1
    assert on_chip(hbm) == []


def test_a_tile_that_is_kept_stays_while_others_come():
    hbm = memory(x=torch.randn(4, 6))
    for row in range(3):
        hbm.keep(tile := hbm.load("x", (row, row + 1)), total := tile.sum(-1, keepdim=True))
        assert len(on_chip(hbm, total=total)) == 2 * row + 2
    assert on_chip(hbm)[3:] == [f"total[{row}:{row + 1}, 0:1]" for row in range(3)]


def test_a_computed_tile_stays_while_steps_name_it():
    hbm = memory(x=torch.randn(4, 6))
    l_i = hbm.load("x").sum(-1, keepdim=True)
    assert on_chip(hbm, l_i=l_i) == ["x[0:4, 0:6]", "l_i[0:4, 0:1]"]
    assert on_chip(hbm, l_i=l_i * 2) == ["x[0:4, 0:6]", "l_i[0:4, 0:1]"]
    assert on_chip(hbm) == ["x[0:4, 0:6]"]
    with pytest.raises(ValueError, match=r"got l_i\[0:4, 0:1\], which the last step did not name"):
        l_i + 1


def test_another_program_starts_with_an_empty_chip():
    hbm = memory(x=torch.randn(4, 6))
    first = hbm.load("x", (0, 2))
    hbm.keep(first)
    assert on_chip(hbm, program=(0,)) == ["x[0:2, 0:6]"]
    acc = hbm.fill("y")
    assert on_chip(hbm, program=(1,), acc=acc) == ["acc[0:4, 0:4]"]
    with pytest.raises(ValueError, match="which another program had"):
        first + 1


def test_a_step_shows_a_tile_that_was_dropped_in_it():
    hbm = memory(x=torch.randn(4, 6))
    m = hbm.load("x").amax(-1, keepdim=True)
    hbm.drop(m)
    step = hbm.step("", m=m)
    assert [tile.name for tile in step.on_chip] == ["x"] and step.values["m"].shape == (4, 1)


def test_entry_by_entry_work_takes_the_place_of_a_tile_and_sums_do_not():
    hbm = memory(x=torch.randn(4, 6))
    S = hbm.load("x")
    P = torch.exp(S - S.amax(-1, keepdim=True))
    l_i = P.sum(-1, keepdim=True)
    assert sum(t.nbytes for t in hbm.step("", S=S, P=P, l_i=l_i).on_chip) == (4 * 6 + 4) * 4


def test_a_distance_is_that_of_the_place_where_a_tile_stands():
    x = torch.randn(1, 2, 6, 4)
    hbm = HBM({"Q": x, "K": x}, {}, {"Q": x.shape, "K": x.shape})
    S = hbm.load("Q", (2, 5)) @ hbm.load("K", (1, 3)).mT
    far = S.distance(1)
    assert far.shape == S.shape and far.held()[0, 1].tolist() == [[2, 1], [3, 2], [4, 3]]
    assert on_chip(hbm, S=S, far=far)[2:] == ["S[0:1, 0:2, 2:5, 1:3]", "far[0:1, 0:2, 2:5, 1:3]"]


def test_a_copy_takes_a_buffer_of_its_own():
    hbm = memory(x=torch.randn(4, 6))
    x = hbm.load("x")
    kept = x.copy("kept")
    P = torch.exp(x)
    assert [str(t) for t in hbm.step("", P=P).on_chip] == ["x[0:4, 0:6]", "kept[0:4, 0:6]"]
    assert torch.equal(kept.held(), x.held())


def test_rows_of_all_sequences_add_up_to_a_number_for_each_head():
    x = torch.randn(3, 2, 5, 1)
    hbm = HBM({"Q": x}, {"d": torch.float32}, {"Q": x.shape, "d": (1, 2, 1, 1)})
    hbm.store("d", None, hbm.load("Q").sum_rows(), times=3)
    step = hbm.step("")
    torch.testing.assert_close(hbm.output("d").flatten(), x.sum((0, 2, 3)))
    assert step.writes[0].nbytes == 3 * 2 * 4


def test_operations_are_counted_for_one_row():
    hbm = memory(x=torch.randn(4, 6))
    x = hbm.load("x")
    torch.exp(x * 2 - x.amax(-1, keepdim=True)).sum(-1)
    assert hbm.step("").operations == {"multiply": 6, "max": 5, "add": 6 + 5, "exp": 6}


def test_adding_a_product_is_part_of_the_product():
    hbm = memory(x=torch.randn(4, 4))
    x = hbm.load("x")
    x * 3 + x @ x
    assert hbm.step("").operations == {"multiply": 4}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tiles_take_16_bits_and_are_computed_with_in_32(dtype):
    hbm = memory(x=torch.randn(4, 6).to(dtype))
    x = hbm.load("x")
    assert x.dtype == torch.float32 and hbm.step("").on_chip[0].nbytes == 4 * 6 * 2


def test_flops_are_those_that_pytorch_counts():
    """Of every algorithm: what multiplies past the tiles, to look ahead for example, is seen by PyTorch's counter."""
    q, k, v = tensors()
    o, lse = fl.tiled_attention_v2(q, k, v, causal=True, return_lse=True)
    blocks = {"block_q": 5, "block_k": 3}
    for steps in (
        fl.standard_attention_steps(q, k, v),
        fl.two_pass_attention_steps(q, k, v, causal=True, block_k=5),
        fl.two_pass_attention_steps(q, k, v, block_k=5, recompute=True),
        fl.one_pass_attention_steps(q, k, v, causal=True, block_k=5),
        fl.one_pass_attention_steps(q, k, v, block_k=5, normalised=True),
        fl.tiled_attention_v1_steps(q, k, v, **blocks, causal=True),
        tiled_attention_v1_lines(q, k, v, **blocks, window=(2, 1)),
        tiled_attention_v2_steps(q, k, v, **blocks, causal=True),
        fl.attention_backward_steps(q, q, k, v, causal=True),
        fl.tiled_attention_backward_steps(q, q, k, v, o, lse, **blocks, causal=True),
        fl.tiled_attention_backward_steps(q, q, k, v, o, lse, **blocks, causal=True, fused=True),
        fl.tiled_matmul_steps(q[0, 0], k[0, 0].mT, block_m=5, block_n=3, block_k=2),
        fl.tiled_qkv_steps(q[0, 0], k[0, 0], v[0, 0], **blocks),
        matmul_backward_steps(q[0, 0], q[0, 0], torch.eye(D)),
        own_scales_steps(q[0, 0, :1] @ k[0, 0].mT, v[0, 0], 2),
        projection_steps(q[0, 0], *(torch.randn(D, 2) for _ in range(3))),
    ):
        with FlopCounterMode(display=False) as counter:
            flops = matmul_flops(steps)
        assert flops == counter.get_total_flops() > 0


def test_two_stores_of_a_step_are_two_writes():
    hbm = memory(x=torch.randn(4, 4))
    for rows in ((0, 2), (2, 4)):
        hbm.store("y", rows, hbm.load("x", rows))
    step = hbm.step("")
    assert hbm_bytes([step]).written == 4 * 4 * 4 and len(step.writes) == 2


def test_a_piece_takes_the_bytes_that_it_was_stored_with():
    """Unfinished pieces are wide, also when they are read together; half finished, half not, is no piece."""
    hbm = HBM({"x": torch.randn(4, 4).half()}, {"y": torch.float16}, {"x": (4, 4), "y": (4, 4)})
    for rows in ((0, 2), (2, 4)):
        hbm.store("y", rows, hbm.load("x", rows), unfinished=True)
    hbm.load("y")
    assert hbm_bytes([hbm.step("")], "y").read == 4 * 4 * 4
    hbm.store("y", (0, 2), hbm.load("x", (0, 2)))
    hbm.load("y", (0, 1))
    assert hbm.step("").reads[0].itemsize == 2
    with pytest.raises(ValueError, match="expected a piece of y that is finished or unfinished, got one of both"):
        hbm.load("y")


# There is no way round it.


def test_a_tensor_that_was_not_loaded_meets_no_tile():
    x = torch.randn(4, 4)
    tile = memory(x=x).load("x")
    for work in (lambda: tile @ x, lambda: x @ tile, lambda: tile + x, lambda: torch.maximum(tile, x[:1, :1])):
        with pytest.raises(TypeError, match="expected a tile, which `HBM.load` gives, in (matmul|add|maximum), got"):
            work()


def test_only_tiles_are_stored():
    hbm = memory(x=torch.randn(4, 4))
    with pytest.raises(TypeError, match="expected a tile to store in y, got Tensor"):
        hbm.store("y", None, torch.zeros(4, 4))
    with pytest.raises(ValueError, match=r"expected a tile of shape \(2, 4\) for y, got \(4, 4\)"):
        hbm.store("y", (0, 2), hbm.load("x"))


def test_products_by_other_names_are_rejected():
    tile = memory(x=torch.randn(4, 4)).load("x")
    for work in (
        lambda: torch.einsum("ij,jk->ik", tile, tile),
        lambda: torch.nn.functional.linear(tile, tile),
        lambda: torch.exp_(tile),
        lambda: torch.zeros(4, 4, dtype=torch.bool).logical_or_(tile),
    ):
        with pytest.raises(TypeError, match="expected one of @, add, .* with tiles, got"):
            work()
    for name in ("mm", "numpy", "cumsum", "mul_", "ndim", "requires_grad", "T"):
        with pytest.raises(AttributeError, match=f"expected one of @, add, .* of a tile, got {name}"):
            getattr(tile, name)
    row, column = tile.rows((0, 1)), tile.rows((0, 1)).mT
    with pytest.raises(TypeError, match="a product of every row with every column is written @"):
        row * column


def test_what_would_be_counted_wrongly_is_rejected():
    x = torch.randn(4, 4)
    hbm, other = memory(x=x), memory(x=x)
    tile, stranger = hbm.load("x", (2, 4)), other.load("x", (2, 4))
    for work, said in (
        (lambda: tile.sum(-2), "expected sum over the last dimension, -1, of a tile, got -2"),
        (lambda: torch.amax(tile, 0), "expected amax over the last dimension, -1, of a tile, got 0"),
        (lambda: tile.sum(), "expected sum over the last dimension, -1, of a tile, got None"),
        (lambda: copy.deepcopy(tile), "expected a tile to stay where it is, got a copy of it"),
    ):
        with pytest.raises(TypeError, match=re.escape(said)):
            work()
    for work, said in (
        (lambda: tile.rows((0, 3)), "expected rows of this tile, inside (2, 4), got (0, 3)"),
        (lambda: tile.rows((3, 8)), "expected rows of this tile, inside (2, 4), got (3, 8)"),
        (lambda: tile.put((4, 5), tile.rows((2, 3))), "expected rows of this tile, inside (2, 4), got (4, 5)"),
        (lambda: tile.put((2, 3), tile), "expected a tile of shape (1, 4) for the rows (2, 3), got (2, 4)"),
        (lambda: tile @ stranger.mT, "expected tiles of one memory in matmul, got some of two"),
        (lambda: hbm.store("y", (0, 2), stranger), "and a tile to store there, got a tile of another memory"),
        (lambda: hbm.store("x", (0, 2), tile * 0), "one of ['y'] and a tile to store there, got x, which is given"),
        (lambda: HBM({"x": x}, {}, {"x": (40, 4)}), "expected x of shape (40, 4), got (4, 4)"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            work()
    assert torch.equal(hbm.load("x").held(), x), "what is given stays as it was"


def test_what_is_looked_at_is_a_copy():
    hbm = memory(x=torch.ones(4, 4))
    tile = hbm.load("x")
    tile.held().zero_()
    hbm.store("y", None, tile)
    hbm.output("y").zero_()
    assert hbm.output("y").sum() == tile.held().sum() == 16


def test_a_dropped_tile_is_not_used_again():
    hbm = memory(x=torch.randn(4, 4))
    tile = hbm.load("x", (0, 2))
    view = tile.mT
    hbm.drop(tile)
    for work in (lambda: tile + 1, lambda: view @ view, lambda: hbm.store("y", (0, 2), tile), tile.held):
        with pytest.raises(ValueError, match=r"expected a tile on chip, got x\[0:2, 0:4\], which was dropped"):
            work()


def test_pieces_outside_a_matrix_and_unknown_matrices_are_rejected():
    hbm = memory(x=torch.randn(4, 4))
    with pytest.raises(ValueError, match=r"expected a piece inside x of shape \(4, 4\), got"):
        hbm.load("x", (2, 6))
    with pytest.raises(KeyError, match=r"expected a matrix, one of \['x', 'y'\], got 'z'"):
        hbm.shapes["z"] = (4, 4)
        hbm.load("z")


@pytest.mark.parametrize(
    ("given", "made", "shapes", "error", "message"),
    [
        ({}, {"O": torch.float32}, {"O": (2, 2)}, ValueError, "expected at least one given matrix, got none"),
        ({"Q": torch.zeros(2, 2)}, {}, {}, ValueError, "expected a shape for every matrix, got none for Q"),
        ({"Q": torch.zeros(2, 2)}, {"O": torch.float32}, {"Q": (2, 2)}, ValueError, "got none for O"),
        ({"Q": [[0.0]]}, {}, {"Q": (1, 1)}, TypeError, "expected a tensor for Q, which is given, got list"),
        ({"Q": torch.zeros(2, 2)}, {"O": "float32"}, {"Q": (2, 2), "O": (2, 2)}, TypeError, "for O.* got 'float32'"),
    ],
)
def test_a_memory_of_no_matrices_is_rejected(given, made, shapes, error, message):
    with pytest.raises(error, match=message):
        HBM(given, made, shapes)


def test_what_is_no_span_is_rejected():
    hbm = HBM({"Q": torch.zeros(4, 2)}, {}, {"Q": (4, 2)})
    with pytest.raises(TypeError, match=re.escape("expected a range (start, stop) of Q, got 2")):
        hbm.load("Q", 2)
    with pytest.raises(KeyError, match="expected a matrix, one of .*'Q'.*, got 'X'"):
        hbm.fill("X")


def test_autocast_changes_no_product():
    """It is the algorithm that says in which dtype it multiplies."""
    q, k, v = torch.randn(3, 1, 2, 9, 16, generator=torch.Generator().manual_seed(5))
    want = fl.tiled_attention_v2(q, k, v, block_q=4, block_k=3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = fl.tiled_attention_v2(q, k, v, block_q=4, block_k=3)
    assert torch.equal(got, want)


@pytest.mark.parametrize("dims", [(0, 0, 0), (None, 0, None), (0, None, None)])
def test_algorithms_run_under_vmap(dims):
    q, k, v = torch.randn(3, 4, 1, 2, 5, 8, generator=torch.Generator().manual_seed(5))
    given = [t if dim == 0 else t[0] for t, dim in zip((q, k, v), dims, strict=True)]
    got = torch.func.vmap(fl.standard_attention, dims)(*given)
    for i, o in enumerate(got):
        one = [t[i] if dim == 0 else t for t, dim in zip(given, dims, strict=True)]
        torch.testing.assert_close(o, fl.standard_attention(*one))
    gradients = torch.func.vmap(torch.func.grad(lambda *qkv: fl.standard_attention(*qkv).square().sum()))(q, k, v)
    torch.testing.assert_close(
        gradients[1], torch.func.grad(lambda *t: fl.standard_attention(*t).square().sum())(q[1], k[1], v[1])
    )


def test_a_tile_is_a_copy():
    x = torch.zeros(4, 4)
    hbm = memory(x=x)
    tile = hbm.load("x")
    x += 1
    assert tile.held().sum() == 0 and hbm.load("x").held().sum() == 16


def test_the_record_lets_no_tile_out():
    steps = record(tiled_attention_v2_steps(*tensors(), block_q=BLOCK, block_k=BLOCK))
    assert not any(isinstance(value, OnChip) for step in steps for value in step.values.values())


# Planted: FlashAttention-2 with one mistake each. The right one is the yardstick.


def flash(q, k, v, cheat="", block=BLOCK):
    """FlashAttention-2 as the package has it, and nine ways to get it wrong."""
    p = Problem.of(q, k, v, causal=False, window=None, scale=None)
    hbm = p.memory(captions.tiled, {"O": p.dtype, "lse": p.wide}, lse=p.column)

    def in_a_helper(rows):
        """The same block of rows, from all of K and V at once; what it holds is gone when it returns."""
        S = hbm.load("Q", rows) @ hbm.load("K").mT * p.scale
        return softmax_of(S) @ hbm.load("V")

    for i, rows in enumerate(spans(N, block)):
        m_i, l_i, acc = start(hbm, rows)
        Q_i, former = hbm.load("Q", rows), None
        for j, cols in p.mask.key_blocks(rows, block):
            if cheat == "Q at every visit":
                Q_i = hbm.load("Q", rows)
            K_j, V_j, m_old = hbm.load("K", cols), hbm.load("V", cols), m_i
            if cheat == "all of K":
                K_j = hbm.load("K").rows(cols)
            if cheat == "a former tile":
                K_j = K_j + (former := former if cols[0] else K_j) * 0
            if cheat == "a closure":
                K_j = k[:, :, slice(*cols)]
            S = Q_i @ K_j.mT * p.scale
            if cheat == "multiplies twice":
                S = Q_i @ K_j.mT * p.scale
            if cheat == "whole rows of S":
                whole = Q_i @ hbm.load("K").mT * p.scale
                S = whole.mT.rows(cols).mT
            if cheat == "keeps a tile":
                hbm.keep(K_j)
            m_i, l_i, alpha, P = online_update(m_old, l_i, S)
            if cheat == "a dropped tile":
                hbm.drop(V_j)
            raw = P.held() @ V_j.held() if cheat == "a raw product" else None
            acc = acc * alpha + (P @ V_j if raw is None else raw)
            if cheat == "O in two halves" and cols[1] == N:
                for part in ((rows[0], rows[0] + 1), (rows[0] + 1, rows[1])):
                    hbm.store("O", part, divide(acc.rows(part), l_i.rows(part)))
            elif cheat == "zeros first" and cols[1] == N:
                hbm.store("O", rows, acc * 0)
                hbm.store("O", rows, divide(acc, l_i))
            elif cheat == "O at every visit" or cols[1] == N:
                hbm.store("O", rows, in_a_helper(rows) if cheat == "a helper" else divide(acc, l_i))
            if cols[1] == N and cheat != "forgets lse":
                hbm.store("lse", rows, log_sum_exp(m_i, l_i))
            yield hbm.step(
                "blocks", program=(i,), **p.coordinates(i, rows, j, cols), S=S, P=P, m_i=m_i, l_i=l_i, acc=acc
            )
    if cheat == "an epilogue":
        hbm.store("O", None, hbm.load("O") * 1)
    yield hbm.done((hbm.output("O"), hbm.output("lse")), visits=9, pairs=9)


def measured(steps):
    steps = record(steps)
    return {"bytes": hbm_bytes(steps), "flops": matmul_flops(steps), "on chip": sram_peak(steps)}


def test_the_right_one_is_what_the_package_and_its_formula_say():
    q, k, v = tensors()
    right = measured(flash(q, k, v))
    assert right == measured(tiled_attention_v2_steps(q, k, v, block_q=BLOCK, block_k=BLOCK))
    cost = v2_cost(B, H, N, N, D, dtype=torch.float32, block_q=BLOCK, block_k=BLOCK)
    assert (right["bytes"], right["flops"]) == ((cost.read, cost.written), cost.flops)
    torch.testing.assert_close(fl.run(flash(q, k, v))[0], scaled_dot_product_attention(q, k, v))


CAUGHT_BY = {
    "all of K": "bytes",
    "Q at every visit": "bytes",
    "forgets lse": "bytes",
    "O at every visit": "bytes",
    "zeros first": "bytes",
    "multiplies twice": "flops",
    "whole rows of S": "flops",
    "keeps a tile": "on chip",
    "a helper": "on chip",
}


@pytest.mark.parametrize(("cheat", "by"), CAUGHT_BY.items())
def test_planted_mistakes_are_measured(cheat, by):
    q, k, v = tensors()
    wrong, right = measured(flash(q, k, v, cheat)), measured(flash(q, k, v))
    assert wrong[by] != right[by]
    if cheat == "forgets lse":
        assert fl.run(flash(q, k, v, cheat))[1].isnan().all()
    else:  # the result alone does not tell
        torch.testing.assert_close(fl.run(flash(q, k, v, cheat))[0], fl.run(flash(q, k, v))[0])


def test_o_in_two_halves_is_as_many_bytes():
    assert measured(flash(*tensors(), "O in two halves"))["bytes"] == measured(flash(*tensors()))["bytes"]


@pytest.mark.parametrize(
    ("cheat", "error", "message"),
    [
        ("a closure", TypeError, r"expected a tile, which `HBM.load` gives, in matmul, got a tensor \(1, 2, 4, 4\)"),
        ("a raw product", TypeError, r"expected a tile, which `HBM.load` gives, in add, got a tensor \(1, 2, 4, 4\)"),
        ("a former tile", ValueError, r"got K\[0:1, 0:2, 0:4, 0:4\], whose place a later one has taken"),
        ("a dropped tile", ValueError, r"got V\[0:1, 0:2, 0:4, 0:4\], which was dropped"),
        ("an epilogue", RuntimeError, "a step for all work before the last one, got 1 loads, 0 products, 1 stores"),
    ],
)
def test_planted_ways_round_it_raise(cheat, error, message):
    with pytest.raises(error, match=message):
        fl.run(flash(*tensors(), cheat))


def test_matrices_are_where_the_inputs_are_whatever_the_default_device_is():
    q, k, v = tensors()
    with torch.device("meta"):
        for attention in (fl.standard_attention, fl.two_pass_attention, fl.one_pass_attention, fl.tiled_attention_v2):
            assert torch.isfinite(attention(q, k, v, causal=True)).all()
        o, lse = fl.tiled_attention_v2(q, k, v, return_lse=True)
        grads = fl.tiled_attention_backward(q, q, k, v, o, lse, block_q=BLOCK, block_k=BLOCK, fused=True)
        made = record(tiled_attention_v2_steps(q, k, v))[-1].written("O")
    assert all(t.device.type == "cpu" for t in (*grads, made))


def test_tensors_without_numbers_have_shapes():
    """As for a model that is built on the device "meta": results have their shapes, and bytes are counted."""
    q, k, v = (t.to("meta") for t in tensors())
    for attention in (fl.standard_attention, fl.two_pass_attention, fl.one_pass_attention, fl.tiled_attention_v2):
        o = attention(q, k, v, causal=True)
        assert o.is_meta and o.shape == q.shape
    blocks = {"block_q": BLOCK, "block_k": BLOCK}
    assert hbm_bytes(fl.tiled_attention_v2_steps(q, k, v, **blocks)) == hbm_bytes(
        fl.tiled_attention_v2_steps(*tensors(), **blocks)
    )
