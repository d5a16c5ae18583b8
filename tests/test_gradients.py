"""Gradients by hand and by tiles: against autograd, gradcheck, the grid, and counted against formulas."""

import dataclasses
import itertools

import pytest
import torch

import flashlearn as fl
from flashlearn.cost import fused_backward_cost, standard_backward_cost, stored_backward_cost, two_pass_backward_cost
from tests.grid import CASES, Case, check, fp16, fp32, fp64, largest_error, make, oracle, plain, probabilities
from tests.slow import across, slow

FORMS = [False, True]
FORM_NAMES = ["two sweeps", "fused"]


def random(*shape, dtype=fp64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def options(case: Case) -> dict:
    return {"causal": case.causal, "scale": case.scale}


def blocks(case: Case) -> dict:
    return {**options(case), "block_q": case.block_q, "block_k": case.block_k}


def forward(case, q, k, v):
    return fl.tiled_attention_v2(q, k, v, **blocks(case), return_lse=True)


def forms_agree_with_rule(case, q, k, v, do, results):
    check(case, results, oracle(case, q, k, v, do), plain(case, q, k, v, do))


# matrix product and softmax


@pytest.mark.parametrize(("shape", "M"), [((3, 4), 5), ((1, 1), 1), ((2, 3, 4, 5), 2), ((0, 4), 3), ((3, 0), 2)])
def test_matmul_backward_equals_autograd(shape, M):
    x, w = random(*shape).requires_grad_(), random(shape[-1], M, seed=1).requires_grad_()
    dy = random(*shape[:-1], M, seed=2)
    want = torch.autograd.grad(x @ w, (x, w), dy)
    torch.testing.assert_close(fl.matmul_backward(dy, x.detach(), w.detach()), want)


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 3, 4, 6), (0,), (2, 0)])
def test_softmax_backward_equals_autograd(shape):
    s, dp = random(*shape).requires_grad_(), random(*shape, seed=1)
    p = torch.softmax(s, -1)
    (want,) = torch.autograd.grad(p, s, dp)
    torch.testing.assert_close(fl.softmax_backward(dp, p.detach()), want)


def test_rows_of_ds_add_up_to_zero():
    p = torch.softmax(10 * random(50, 33), -1)
    assert fl.softmax_backward(random(50, 33, seed=1), p).sum(-1).abs().max() < 1e-12


class ByHand(torch.autograd.Function):
    """Any function with its gradient by hand, so that gradcheck can be run on it."""

    @staticmethod
    def forward(ctx, function, backward, *inputs):
        ctx.backward = backward
        out = function(*inputs)
        ctx.save_for_backward(*inputs, out)
        return out

    @staticmethod
    def backward(ctx, d_out):
        *inputs, out = ctx.saved_tensors
        grads = ctx.backward(d_out, inputs, out)
        return None, None, *(grads if isinstance(grads, tuple) else (grads,))


def gradcheck(function, backward, *inputs, fast_mode=False):
    inputs = [t.clone().requires_grad_() for t in inputs]
    return torch.autograd.gradcheck(lambda *ts: ByHand.apply(function, backward, *ts), inputs, fast_mode=fast_mode)


KNOWN: dict = {}  # what forward_once has computed


def forward_once(case, *qkv):
    """As `forward`; differences of the same numbers are asked for by every form, and the same o by every row."""
    key = case, *(t.detach().numpy().tobytes() for t in qkv)
    if key not in KNOWN:
        KNOWN[key] = forward(case, *qkv)
    return KNOWN[key]


@pytest.mark.parametrize("fast_mode", [True, slow(False)])
@pytest.mark.parametrize("form", ["dense", *FORM_NAMES])
@pytest.mark.parametrize(
    "case",
    [
        Case(5, 7, 3, block_q=2, block_k=3),
        Case(7, 5, 4, causal=True, block_q=3, block_k=2),  # 2 queries see no key
        Case(4, 6, 2, causal=True, H_q=4, H_kv=2, B=2, scale=0.7, block_q=8, block_k=1),
        Case(6, 6, 1, H_q=3, H_kv=1, block_q=4, block_k=4),
    ],
    ids=str,
)
def test_gradcheck_attention(form, case, fast_mode):
    q, k, v, _ = make(dataclasses.replace(case, dtype=fp64))

    def backward(do, inputs, o):
        if form == "dense":
            return fl.attention_backward(do, *inputs, **options(case))
        o, lse = forward_once(case, *inputs)
        return fl.tiled_attention_backward(do, *inputs, o, lse, **blocks(case), fused=form == "fused")

    assert gradcheck(lambda *qkv: forward_once(case, *qkv)[0].clone(), backward, q, k, v, fast_mode=fast_mode)


# attention over the grid


@pytest.mark.parametrize("case", CASES, ids=str)
def test_dense_over_the_grid(case):
    q, k, v, do = make(case)
    grads = fl.attention_backward(do, q, k, v, **options(case))
    forms_agree_with_rule(case, q, k, v, do, dict(zip(("dq", "dk", "dv"), grads, strict=True)))


@pytest.mark.parametrize("case, fused", across(CASES, FORMS), ids=str)
def test_tiled_over_the_grid(case, fused):
    q, k, v, do = make(case)
    o, lse = forward(case, q, k, v)
    results = {"o": o, "lse": lse}
    if case.tame or case.dtype.itemsize > 2:  # 16 bits of o are too few for delta otherwise; see tests.grid
        grads = fl.tiled_attention_backward(do, q, k, v, o, lse, **blocks(case), fused=fused)
        results |= dict(zip(("dq", "dk", "dv"), grads, strict=True))
    if case.logits == "extreme" and "dv" in results:
        want = oracle(case, q, k, v, do)["dv"]
        assert largest_error(results.pop("dv").double(), want) <= lse_rounding(case, q, k, do)
    forms_agree_with_rule(case, q, k, v, do, results)


def lse_rounding(case: Case, q, k, do) -> float:
    """What the rounding of lse costs dV: exp(S - lse) is off by the factor exp(eps |lse| / 2), S by as much.

    One number has replaced two here: m and log l apart would each be exact to their own last digit. It shows
    only where |lse| is in the thousands (plain PyTorch keeps P itself).
    """
    P, lse = probabilities(q.double(), k.double(), **options(case))
    eps = torch.finfo(torch.promote_types(case.dtype, fp32)).eps
    terms = (P.mT @ do.double().abs()).max().item()
    return eps * lse[lse.isfinite()].abs().max().item() * terms


BLOCKS = [(1, 29), (5, 1), (16, 7), (37, 64), (100, 7)]  # every size once; the slow test has all pairs


@pytest.mark.parametrize(
    "blocks", [BLOCKS, slow(list(itertools.product((1, 5, 16, 37, 100), (1, 7, 29, 64))))], ids=["few", "all"]
)
@pytest.mark.parametrize("fused", FORMS, ids=FORM_NAMES)
def test_block_sizes_do_not_change_the_result(fused, blocks):
    case = Case(37, 29, 8, causal=True, dtype=fp64, H_q=4, H_kv=2)
    q, k, v, do = make(case)
    o, lse = forward(case, q, k, v)
    want = fl.attention_backward(do, q, k, v, causal=True)
    for block_q, block_k in blocks:
        sizes = {"block_q": block_q, "block_k": block_k}
        got = fl.tiled_attention_backward(do, q, k, v, o, lse, **sizes, causal=True, fused=fused)
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize("fused", (False, True))
def test_keys_of_minus_infinity_take_no_gradient_with_them(fused, causal):
    """A row to which no key weighs anything has lse = -inf and P = 0; dq is 0 times -inf, as in PyTorch."""
    torch.manual_seed(0)
    q, (k, v, do) = torch.rand(1, 1, 5, 3) + 0.1, torch.randn(3, 1, 1, 5, 3)
    k[:, :, : 1 if causal else 5] = -torch.inf
    o, lse = fl.tiled_attention_v2(q, k, v, causal=causal, return_lse=True)
    got = fl.tiled_attention_backward(do, q, k, v, o, lse, causal=causal, fused=fused, block_q=2, block_k=2)
    for name, ours, dense in zip(
        ("dq", "dk", "dv"), got, fl.attention_backward(do, q, k, v, causal=causal), strict=True
    ):
        torch.testing.assert_close(ours, dense, equal_nan=True, msg=name)
        assert ours.isnan().all() == (name == "dq")


def test_both_forms_are_the_same_sums():
    case = Case(40, 56, 16, causal=True, block_q=8, block_k=16)
    q, k, v, do = make(case)
    args = (do, q, k, v, *forward(case, q, k, v))
    two, one = (fl.tiled_attention_backward(*args, **blocks(case), fused=fused) for fused in FORMS)
    for a, b in zip(two, one, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("fused", FORMS, ids=FORM_NAMES)
def test_rows_that_see_no_key_have_zero_gradients(fused):
    case = Case(23, 9, 4, causal=True, dtype=fp16, block_q=5, block_k=4)
    q, k, v, do = make(case)
    o, lse = forward(case, q, k, v)
    assert lse[:, :, : case.masked_rows].isinf().all()
    for grads in (
        fl.attention_backward(do, q, k, v, causal=True),
        fl.tiled_attention_backward(do, q, k, v, o, lse, **blocks(case), fused=fused),
    ):
        assert (grads[0][:, :, : case.masked_rows] == 0).all()
        assert all(t.isfinite().all() for t in grads)


@pytest.mark.parametrize("fused", FORMS, ids=FORM_NAMES)
@pytest.mark.parametrize(("B", "N_q", "N_k"), [(1, 0, 5), (1, 5, 0), (1, 0, 0), (0, 3, 3)])
def test_empty(fused, B, N_q, N_k):
    q, k = torch.randn(B, 2, N_q, 4), torch.randn(B, 2, N_k, 4)
    o, lse = fl.tiled_attention_v2(q, k, k, return_lse=True)
    for grads in (
        fl.attention_backward(q, q, k, k),
        fl.tiled_attention_backward(q, q, k, k, o, lse, block_q=2, block_k=2, fused=fused),
    ):
        assert [g.shape for g in grads] == [q.shape, k.shape, k.shape]
        assert all((g == 0).all() for g in grads if not (N_q and N_k))


# steps: what they count equals the formulas

COUNTED = [
    Case(64, 64, 16, block_q=16, block_k=16),
    Case(64, 64, 16, causal=True, block_q=16, block_k=32),
    Case(33, 50, 8, dtype=fp16, H_q=4, H_kv=2, B=2, block_q=7, block_k=12),
    Case(33, 50, 8, causal=True, dtype=fp16, H_q=4, H_kv=1, block_q=7, block_k=12),
    Case(50, 33, 8, causal=True, dtype=fp64, block_q=10, block_k=10),
    Case(50, 20, 4, causal=True, dtype=fp16, H_q=2, H_kv=1, block_q=8, block_k=6),  # whole blocks see no key
    Case(1, 40, 4, causal=True, block_q=8, block_k=6),
]


def steps_of(case, form):
    q, k, v, do = make(case)
    if form == "dense":
        return fl.record(fl.attention_backward_steps(do, q, k, v, **options(case)))
    if form == "stored":
        return fl.record(fl.attention_backward_steps(do, q, k, v, **options(case), stored=stored_p(case)))
    o, lse = forward(case, q, k, v)
    fused = form == "fused"
    return fl.record(fl.tiled_attention_backward_steps(do, q, k, v, o, lse, **blocks(case), fused=fused))


def stored_p(case):
    """The P that the forward pass left in HBM."""
    q, k, v, _ = make(case)
    return fl.record(fl.standard_attention_steps(q, k, v, **options(case)))[-1].values["P"]


@pytest.mark.parametrize("form", ["dense", "stored", *FORM_NAMES])
@pytest.mark.parametrize("case", COUNTED, ids=str)
def test_bytes_and_flops_counted_equal_the_formulas(case, form):
    steps = steps_of(case, form)
    sizes = (case.B, case.H_q, case.N_q, case.N_k, case.D)
    known = {"dtype": case.dtype, "causal": case.causal, "H_kv": case.H_kv}
    if form in ("dense", "stored"):
        cost = {"dense": standard_backward_cost, "stored": stored_backward_cost}[form](*sizes, **known)
    else:
        formula = fused_backward_cost if form == "fused" else two_pass_backward_cost
        cost = formula(*sizes, **known, block_q=case.block_q, block_k=case.block_k)
    assert fl.hbm_bytes(steps) == (cost.read, cost.written)
    assert fl.matmul_flops(steps) == cost.flops
    assert extra_bytes(steps) == cost.extra


def extra_bytes(steps) -> int:
    """HBM for what is written and is not a result, at its widest, and for results while they are wider."""
    held = {}
    for step in steps:
        for tile in step.writes:
            held[tile.name] = max(held.get(tile.name, 0), tile.itemsize)
    results = {"dQ", "dK", "dV"}
    elements = {name: torch.Size(steps[0].shapes[name]).numel() for name in held}
    size = min(tile.itemsize for step in steps for tile in step.reads)
    return sum(elements[n] * (bytes_ - size * (n in results)) for n, bytes_ in held.items())


@pytest.mark.parametrize("case", COUNTED[:2], ids=str)
def test_seven_block_products_against_five(case):
    visits = fl.visited_blocks(case.N_q, case.N_k, case.block_q, case.block_k, case.causal)
    for form, per_visit in zip(FORM_NAMES, (7, 5), strict=True):
        steps = steps_of(case, form)
        assert sum(len(step.matmuls) for step in steps) == per_visit * visits
        assert all(len(step.matmuls) == len(step.values.get("products", ())) for step in steps)
    for form, products in (("dense", 5), ("stored", 4)):
        assert sum(len(step.matmuls) for step in steps_of(case, form)) == products


@pytest.mark.parametrize("case", COUNTED, ids=str)
def test_a_stored_p_saves_two_operations_and_gives_the_same(case):
    again, stored = steps_of(case, "dense"), steps_of(case, "stored")
    assert [step.phase for step in stored] == [step.phase for step in again][2:]
    assert "P" not in {tile.name for step in stored for tile in step.writes}
    for a, b in zip(stored[-1].output, again[-1].output, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_stored_p_is_what_autograd_keeps():
    q, k, v = (t.requires_grad_() for t in make(Case(6, 7, 3))[:3])
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        (torch.softmax(q @ k.mT, -1) @ v).sum().backward()
    tables = {t.data_ptr() for t in kept if t.shape[-2:] == (6, 7)}
    assert len(tables) == 1  # P alone, kept by the softmax and by the product with V


def test_the_stored_backward_uses_the_p_that_it_is_given():
    q, k, v, do = make(Case(6, 7, 3))
    dq, dk, dv = fl.attention_backward(do, q, k, v, stored=torch.zeros(1, 2, 6, 7))
    assert not dq.any() and not dk.any() and not dv.any()


@pytest.mark.parametrize("form", ["dense", "stored", *FORM_NAMES])
def test_what_steps_write_is_the_result(form):
    case = Case(33, 50, 8, causal=True, dtype=fp16, H_q=4, H_kv=2, block_q=7, block_k=12)
    steps = steps_of(case, form)
    for name, result in zip(("dQ", "dK", "dV"), steps[-1].output, strict=True):
        torch.testing.assert_close(steps[-1].written(name), result.double(), rtol=0, atol=0)


def test_wholly_masked_blocks_are_never_visited():
    case = Case(64, 64, 4, causal=True, block_q=16, block_k=16)
    for form in FORM_NAMES:
        visited = [s.values for s in steps_of(case, form) if s.values.get("j") is not None]
        assert all(v["cols"][0] < v["rows"][1] for v in visited)
        assert {v["masked"] for v in visited if v["i"] == v["j"]} == {True}
        assert {v["masked"] for v in visited if v["i"] != v["j"]} == {False}


def test_nothing_n_by_n_is_stored():
    for form in FORM_NAMES:
        steps = steps_of(Case(64, 64, 4, block_q=16, block_k=16), form)
        assert not {tile.name for s in steps for tile in (*s.reads, *s.writes)} & {"S", "P", "dP", "dS"}


def test_p_comes_back_exactly():
    case = Case(24, 40, 8, causal=True, dtype=fp64, block_q=8, block_k=10)
    q, k, v, do = make(case)
    P = fl.last(fl.attention_backward_steps(do, q, k, v, causal=True)).values["P"]
    for step in steps_of(case, "two sweeps"):
        if step.phase == "dQ":
            (i0, i1), (j0, j1) = step.values["rows"], step.values["cols"]
            torch.testing.assert_close(step.values["P"], P[:, :, i0:i1, j0:j1], rtol=0, atol=1e-14)


def test_delta_two_ways():
    case = Case(24, 40, 8, dtype=fp64, block_q=24)
    (step,) = [s for s in steps_of(case, "fused") if s.phase == "delta"]
    dense = steps_of(case, "dense")[-1].values
    torch.testing.assert_close(step.values["delta"], (dense["P"] * dense["dP"]).sum(-1, keepdim=True))


def test_small_steps_count():
    x, w, dy = random(3, 4), random(4, 5), random(3, 5)
    steps = fl.record(fl.matmul_backward_steps(dy, x, w))
    assert fl.matmul_flops(steps) == 2 * 2 * 3 * 4 * 5
    assert fl.hbm_bytes(steps) == (8 * (2 * 15 + 12 + 20), 8 * (12 + 20))
    p = torch.softmax(x, -1)
    steps = fl.record(fl.softmax_backward_steps(x, p))
    assert fl.hbm_bytes(steps) == (8 * (4 * 12 + 3), 8 * (3 + 12))
    steps = fl.record(fl.contract_steps(dy[0], random(5, 6)))
    assert len(steps) == 7 and fl.hbm_bytes(steps, "J").read == 8 * 30


def test_contract_equals_the_short_ways():
    p, dp = torch.softmax(random(6), -1), random(6, seed=1)
    jacobian = torch.autograd.functional.jacobian(lambda s: torch.softmax(s, -1), p.log())
    torch.testing.assert_close(jacobian, torch.diag(p) - torch.outer(p, p))
    torch.testing.assert_close(fl.contract(dp, jacobian), fl.softmax_backward(dp, p))
    x, w, dy = random(3, 2), random(2, 4, seed=1), random(3, 4, seed=2)
    jacobian = torch.autograd.functional.jacobian(lambda x: x @ w, x).reshape(12, 6)
    torch.testing.assert_close(fl.contract(dy.flatten(), jacobian).reshape(3, 2), fl.matmul_backward(dy, x, w)[0])


def test_contraction_by_other_names():
    p, dp = torch.softmax(random(4), -1), random(4, seed=1)
    jacobian = torch.diag(p) - torch.outer(p, p)
    usual, named = fl.record(fl.contract_steps(dp, jacobian)), fl.record(fl.contract_steps(dp, jacobian, ("dp", "ds")))
    assert fl.hbm_bytes(usual) == fl.hbm_bytes(named) and torch.equal(usual[-1].output, named[-1].output)
    assert torch.equal(named[-1].values["ds"], named[-1].output) and torch.equal(named[0].values["dp"], dp)
    for a, b in zip(usual, named, strict=True):
        assert a.sentence.replace("dy", "dp").replace("dx", "ds") == b.sentence
    for names in (("dp", "dp"), ("J", "ds"), ("dp",)):
        with pytest.raises(ValueError, match="two different names"):
            fl.run(fl.contract_steps(dp, jacobian, names))


# bad input


def attention_inputs():
    q, k = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 6, 8)
    return {"do": q, "q": q, "k": k, "v": k, "o": q, "lse": torch.randn(1, 2, 4)}


@pytest.mark.parametrize("name", ["do", "o", "lse"])
def test_wrong_shapes_and_dtypes_are_rejected(name):
    good = attention_inputs()
    shape = str(tuple(good[name].shape)).replace("(", r"\(").replace(")", r"\)")
    for bad, error, message in [
        (good[name][:, :, :3], ValueError, rf"expected {name} shaped as .*, {shape}, got \(1, 2, 3"),
        (good[name].double(), TypeError, rf"expected {name} in the dtype of .*float32, got torch.float64"),
        (good[name].int(), TypeError, rf"expected {name} in float16, .*, got torch.int32"),
        (None, TypeError, rf"expected {name} to be a torch.Tensor, got NoneType"),
    ]:
        with pytest.raises(error, match=message):
            fl.tiled_attention_backward(*{**good, name: bad}.values(), block_q=2, block_k=2)


def test_lse_is_wide_for_narrow_inputs():
    good = {name: t.half() for name, t in attention_inputs().items()}
    with pytest.raises(TypeError, match="expected lse in the dtype of .*float32, got torch.float16"):
        fl.tiled_attention_backward(*good.values(), block_q=2, block_k=2)
    fl.tiled_attention_backward(*{**good, "lse": good["lse"].float()}.values(), block_q=2, block_k=2)


GOOD = attention_inputs()
x34, x35, x45, x53 = (random(*sizes) for sizes in ((3, 4), (3, 5), (4, 5), (5, 3)))


def dense(do=GOOD["do"], stored=None):
    return fl.attention_backward(do, GOOD["q"], GOOD["k"], GOOD["v"], stored=stored)


def tiled(block_q, block_k):
    return fl.tiled_attention_backward(*GOOD.values(), block_q=block_q, block_k=block_k)


@pytest.mark.parametrize(
    ("error", "message", "function", "given"),
    [
        (ValueError, "block_q of at least 1, got 0", tiled, (0, 2)),
        (TypeError, "block_k to be an int, got float", tiled, (2, 2.0)),
        (ValueError, r"do shaped as q, .*\(1, 2, 6, 8\)", dense, (GOOD["k"],)),
        (ValueError, r"stored .* S, \(1, 2, 4, 6\), got \(1, 2, 6, 4\)", dense, (GOOD["do"], torch.ones(1, 2, 6, 4))),
        (TypeError, "stored .* S, torch.float32, got torch.float64", dense, (GOOD["do"], random(1, 2, 4, 6))),
        (TypeError, "stored to be a torch.Tensor, got list", dense, (GOOD["do"], [1.0])),
        (ValueError, r"shape of x w, \(3, 5\), got \(5, 3\)", fl.matmul_backward, (x53, x34, x45)),
        (ValueError, r"x \(..., N, D\) and w \(D, M\)", fl.matmul_backward, (x35, x34, x53)),
        (TypeError, "dy, x and w in one dtype", fl.matmul_backward, (x35, x34, x45.float())),
        (ValueError, "one device, got x on cpu and w on meta", fl.matmul_backward, (x35, x34, x45.to("meta"))),
        (ValueError, "one device, got jacobian on meta and dy on cpu", fl.contract, (random(3), x34.to("meta"))),
        (TypeError, r"one dtype, got jacobian torch\.float32 and dy", fl.contract, (random(3), x34.float())),
        (ValueError, r"jacobian \(m, n\) and dy \(m,\)", fl.contract, (random(4), x34)),
        (ValueError, r"dp shaped as p, \(3,\), got \(4,\)", fl.softmax_backward, (random(4), random(3))),
        (ValueError, "at least one dimension", fl.softmax_backward, (torch.tensor(1.0), torch.tensor(1.0))),
    ],
)
def test_other_bad_input_is_rejected(error, message, function, given):
    with pytest.raises(error, match="expected .*" + message):
        function(*given)
