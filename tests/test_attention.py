"""The shape grid over every algorithm of attention in plain PyTorch, and what each of them claims."""

import math
from functools import partial

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import flashlearn as fl
from flashlearn.core.steps import last
from flashlearn.cost import operations
from tests import grid
from tests.grid import Case, check, make, oracle, plain
from tests.slow import covering, slow

BLOCKS = ("block_q", "block_k")
# name -> the function, and which of a case's block sizes it takes (one_pass: a key at a time)
ALGORITHMS = {
    "standard": (fl.standard_attention, ()),
    "two_pass": (fl.two_pass_attention, ("block_k",)),
    "two_pass recompute": (partial(fl.two_pass_attention, recompute=True), ("block_k",)),
    "one_pass": (fl.one_pass_attention, ()),
    "one_pass normalised": (partial(fl.one_pass_attention, normalised=True), ("block_k",)),
    "tiled_v1": (fl.tiled_attention_v1, BLOCKS),
    "tiled_v2": (partial(fl.tiled_attention_v2, return_lse=True), BLOCKS),
}
STEPS = {
    "standard": (fl.standard_attention_steps, ()),
    "two_pass": (fl.two_pass_attention_steps, ("block_k",)),
    "one_pass": (fl.one_pass_attention_steps, ("block_k",)),
    "tiled_v1": (fl.tiled_attention_v1_steps, BLOCKS),
    "tiled_v2": (fl.tiled_attention_v2_steps, BLOCKS),
}


def forward(name: str, case: Case, algorithms=ALGORITHMS):
    """The algorithm as a function of q, k and v, with the options of the case."""
    function, blocks = algorithms[name]
    return partial(function, causal=case.causal, scale=case.scale, **{b: getattr(case, b) for b in blocks})


@pytest.mark.parametrize("case", covering(grid.CASES, grid.traits, grid.work), ids=str)
def test_every_algorithm_meets_the_error_rule(case):
    q, k, v, do = make(case)
    want, yardstick = oracle(case, q, k, v, do), plain(case, q, k, v, do)
    for name in ALGORITHMS:
        # Dividing at every key loses more bits in autograd than in the forward pass: float64 only.
        with_gradients = name != "one_pass normalised" or case.dtype == torch.float64
        check(case, grid.results(forward(name, case), q, k, v, do if with_gradients else None), want, yardstick)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "standard"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_16_bit_inputs_are_rounded_once(name, dtype):
    case = Case(8, 33, 16, causal=True, dtype=dtype, block_q=4, block_k=1)
    q, k, v, _ = make(case)
    ours, in_float32 = (as_output(forward(name, case)(*qkv)) for qkv in ((q, k, v), (q.float(), k.float(), v.float())))
    assert torch.equal(ours, in_float32.to(dtype))  # no running value, not even O of version 1, was rounded before


def test_the_gradient_of_lse_is_right():
    case = Case(9, 7, 16, causal=True, dtype=torch.float64, H_q=4, H_kv=2, block_q=4, block_k=3)
    q, k, v, do = make(case)
    dlse = torch.linspace(-1, 1, 36, dtype=torch.float64).reshape(1, 4, 9)
    want, yardstick = oracle(case, q, k, v, do, dlse), plain(case, q, k, v, do, dlse)
    check(case, grid.results(forward("tiled_v2", case), q, k, v, do, dlse), want, yardstick)
    assert (want["dq"] - oracle(case, q, k, v, do)["dq"]).abs().max() > 0.01  # it does contribute


@pytest.mark.parametrize("fast_mode", [True, slow(False)])
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("shape", [(3, 5, 2), (5, 3, 2), (4, 4, 3)])
def test_gradcheck(name, shape, fast_mode):
    N_q, N_k, D = shape  # with (5, 3) the first two rows see no key
    case = Case(N_q, N_k, D, causal=True, dtype=torch.float64, H_q=2, H_kv=1, block_q=2, block_k=2)
    q, k, v, _ = (t.requires_grad_() for t in make(case))
    attention = lambda *qkv: as_output(forward(name, case)(*qkv))  # noqa: E731
    assert torch.autograd.gradcheck(attention, (q, k, v), fast_mode=fast_mode)


def as_output(out):
    return out[0] if isinstance(out, tuple) else out


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("dtype", grid.DTYPES, ids=str)
def test_rows_that_see_no_key_give_zero(name, dtype):
    case = Case(7, 3, 4, causal=True, dtype=dtype, block_q=2, block_k=2)
    q, k, v, do = make(case)
    ours = grid.results(forward(name, case), q, k, v, do)
    unseen = case.masked_rows
    assert unseen == 4
    assert not ours["o"][:, :, :unseen].any() and not ours["dq"][:, :, :unseen].any()
    assert all(ours[g].isfinite().all() and ours[g].any() for g in ("o", "dq", "dk", "dv"))
    if "lse" in ours:
        assert (ours["lse"][:, :, :unseen] == -math.inf).all() and ours["lse"][:, :, unseen:].isfinite().all()


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("sizes", [(3, 0), (0, 3), (0, 0)])
@pytest.mark.parametrize("causal", [False, True])
def test_nothing_to_attend_to(name, sizes, causal):
    q, k = torch.ones(2, 2, sizes[0], 4), torch.ones(2, 1, sizes[1], 4)
    out = forward(name, Case(*sizes, 4, causal=causal))(q, k, k)
    assert as_output(out).shape == q.shape and not as_output(out).any()
    if isinstance(out, tuple):
        assert out[1].shape == q.shape[:3] and (out[1] == -math.inf).all()
    none = forward(name, Case(*sizes, 4, causal=causal))(q[:0], k[:0], k[:0])
    assert as_output(none).shape == (0, 2, sizes[0], 4)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_worked_example(name):
    x = torch.arange(1.0, 7.0).reshape(1, 1, 6, 1)
    function, _ = ALGORITHMS[name]
    assert round(as_output(function(torch.ones(1, 1, 1, 1), x, x, scale=1.0)).item(), 4) == 5.4329


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize(
    "case",
    [
        Case(5, 7, 4, block_q=2, block_k=3),
        Case(6, 4, 4, causal=True, dtype=torch.float16, H_q=4, B=2, block_q=2, block_k=2),
    ],
    ids=str,
)
def test_steps_tell_what_was_written_and_never_change(name, case):
    q, k, v, _ = make(case)
    before = [t.clone() for t in (q, k, v)]
    steps, seen = [], []
    for step in forward(name, case, STEPS)(q, k, v):
        tensors = {n: t for n, t in step.values.items() if isinstance(t, torch.Tensor)}
        steps.append(step)
        seen.append((tensors, {n: t.clone() for n, t in tensors.items()}))
    for tensors, copies in seen:
        assert all(torch.equal(tensors[n], copies[n]) for n in tensors)
    assert all(torch.equal(a, b) for a, b in zip((q, k, v), before, strict=True))
    for step in steps:
        for tile in step.writes:
            assert step.values[tile.name].shape == tile.shape
            assert step.values[tile.name].element_size() == tile.itemsize
        assert step.sentence.endswith(".") and "nan" not in step.sentence
    assert steps[-1].phase == "done" and all(step.output is None for step in steps[:-1])
    assert torch.equal(fl.record(steps)[-1].written("O"), steps[-1].output.double())


def test_matrices_are_read_as_often_as_claimed():
    q, k, v, _ = make(Case(1, 10, 4, B=2))
    functions = (fl.standard_attention_steps, fl.two_pass_attention_steps, fl.one_pass_attention_steps)
    standard, two, one = (list(function(q, k, v)) for function in functions)
    again = list(fl.two_pass_attention_steps(q, k, v, recompute=True))
    assert [fl.passes(steps, "K") for steps in (standard, two, again, one)] == [1, 1, 2, 1]
    assert len(two) == 2 * 10 + 2 and len(one) == 10 + 2
    assert fl.hbm_bytes(standard, "S", "P").total > 0 == fl.hbm_bytes(two, "S", "P").total
    K = k.numel() * k.element_size()
    assert [fl.hbm_bytes(steps, "K").read for steps in (standard, two, again, one)] == [K, K, 2 * K, K]
    kept = [[t.cols for t in step.on_chip if t.name == "S"] for step in two if step.phase == "maximum and sum"]
    assert kept == [[(j, j + 1) for j in range(n)] for n in range(1, 11)]  # scores stay on chip, and grow with N_k


def test_dividing_once_saves_divisions():
    N, D = 10, 4
    q, k, v, _ = make(Case(1, N, D))
    once, always = (operations(fl.one_pass_attention_steps(q, k, v, normalised=n)) for n in (False, True))
    assert once["divide"] == D and always["divide"] == 2 * N
    assert {n: once[n] for n in ("exp", "multiply", "max")} == {n: always[n] for n in ("exp", "multiply", "max")}
    assert once["exp"] == 2 * N and once["multiply"] == N * (D + 2)
    prefix = [step.values for step in fl.one_pass_attention_steps(q, k, v, normalised=True) if step.phase == "one pass"]
    for j, seen in enumerate(prefix):  # o' is the attention over the keys so far, at every step
        o = scaled_dot_product_attention(q, k[:, :, : j + 1], v[:, :, : j + 1])
        torch.testing.assert_close(seen["o'"], o)
        assert "acc" not in seen  # which is o' times l
        old = prefix[j - 1]["o'"] if j else torch.zeros_like(o)
        torch.testing.assert_close(old * seen["factor"] + seen["P"] * v[:, :, j : j + 1], o)  # as it is shown


def test_one_number_replaces_two():
    q, k, v, _ = make(Case(3, 8, 4, dtype=torch.float64))
    done = last(fl.one_pass_attention_steps(q, k, v))
    S = q @ k.mT / 2
    torch.testing.assert_close(done.values["lse"], torch.logsumexp(S, -1, keepdim=True))
    torch.testing.assert_close(torch.exp(S - done.values["lse"]), torch.softmax(S, -1))


@pytest.mark.parametrize("name", ["two_pass", "one_pass", "tiled_v1", "tiled_v2"])
def test_block_sizes_are_checked(name):
    x = torch.ones(1, 1, 2, 1)
    with pytest.raises(ValueError, match="expected block_k of at least 1, got 0"):
        list(STEPS[name][0](x, x, x, block_k=0))
    with pytest.raises(TypeError, match="expected block_k to be an int, got float"):
        list(STEPS[name][0](x, x, x, block_k=2.0))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_inputs_are_checked(name):
    function, x = ALGORITHMS[name][0], torch.ones(1, 2, 3, 4)
    with pytest.raises(ValueError, match=r"expected q of shape \(B, H, N, D\), got \(2, 3, 4\)"):
        function(x[0], x, x)
    with pytest.raises(ValueError, match="multiple of those of k and v, got 2 and 3"):
        function(x, torch.ones(1, 3, 3, 4), torch.ones(1, 3, 3, 4))
    with pytest.raises(TypeError, match="expected scale to be a number"):
        function(x, x, x, scale="1")


# The instruments themselves: the grid covers what it should, the oracle is right, and the rule can fail.


def test_the_grid_covers_every_value():
    assert len({str(case) for case in grid.CASES}) == len(grid.CASES)
    lists = {
        "N_q": grid.LENGTHS,
        "N_k": grid.LENGTHS,
        "D": grid.HEAD_DIMS,
        "layout": grid.LAYOUTS,
        "logits": grid.LOGITS,
        "dtype": grid.DTYPES,
        "causal": (True, False),
    }
    for name, values in lists.items():
        assert {getattr(case, name) for case in grid.CASES} == set(values), name
    for dtype in grid.DTYPES:
        mine = [case for case in grid.CASES if case.dtype == dtype]
        assert {case.causal for case in mine} == {True, False}
        assert any(case.masked_rows for case in mine) and any(case.H_q > case.H_kv for case in mine)
        assert any(case.N_q != case.N_k for case in mine)


def test_layouts_are_what_they_say():
    q, k, v, _do = make(Case(4, 4, 2, layout="expanded"))
    assert k.stride(1) == 0 == v.stride(1)
    for layout in ("transposed", "strided", "packed"):
        q, k, v, _ = make(Case(4, 4, 2, layout=layout))
        assert not any(t.is_contiguous() for t in (q, k, v))
    assert make(Case(4, 4, 2, layout="strided"))[0].stride(-1) == 2


@pytest.mark.parametrize("case", [case for case in grid.CASES if not case.masked_rows], ids=str)
def test_the_oracle_agrees_with_pytorch(case):
    q, k, v, _ = (t.double() for t in make(case))
    mask = torch.ones(case.N_q, case.N_k, dtype=torch.bool).tril(case.N_k - case.N_q) if case.causal else None
    theirs = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=case.scale, enable_gqa=True)
    torch.testing.assert_close(oracle(case, q, k, v)["o"], theirs, rtol=1e-9, atol=1e-10)


def spoil(name, q, k, v):
    """Attention with a planted mistake."""
    o, lse = grid.reference(q, k, v, causal=True)
    if name == "diagonal lost":
        o = grid.reference(q, k[:, :, :-1], v[:, :, :-1], causal=True)[0]
    elif name == "one entry off":
        o = o.clone()
        o[0, 0, 3, 2] += 0.01 * o[0, 0, 3, 2].abs() + 1e-4
    elif name == "NaN":
        o = o.clone()
        o[0, 1, 5, 1] = math.nan
    elif name == "scale forgotten":
        o = grid.reference(q, k, v, causal=True, scale=1.0)[0]
    elif name == "log to base 2":
        lse = lse / math.log(2)
    elif name == "lse of an unseen row is finite":
        lse = lse.nan_to_num(neginf=-1e30)
    elif name == "wide output":
        o = o.double()
    return o, lse


MISTAKES = (
    "diagonal lost",
    "one entry off",
    "NaN",
    "scale forgotten",
    "log to base 2",
    "lse of an unseen row is finite",
    "wide output",
)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_rule_catches_mistakes(mistake):
    case = Case(40, 33, 8, causal=True)
    q, k, v, _ = make(case)
    want, yardstick = oracle(case, q, k, v), plain(case, q, k, v)
    check(case, grid.results(partial(spoil, "none"), q, k, v), want, yardstick)
    with pytest.raises(AssertionError, match=r"o: |lse: "):
        check(case, grid.results(partial(spoil, mistake), q, k, v), want, yardstick)


@pytest.mark.parametrize("option", ["causal", "normalised", "recompute", "return_lse", "fused"])
def test_words_do_not_count_as_true(option):
    q, k, v, _do = make(Case(3, 5, 2))
    lse = torch.zeros(q.shape[:3])
    functions = {
        "causal": lambda **o: fl.standard_attention(q, k, v, **o),
        "normalised": lambda **o: fl.one_pass_attention(q, k, v, **o),
        "recompute": lambda **o: fl.two_pass_attention(q, k, v, **o),
        "return_lse": lambda **o: fl.tiled_attention_v2(q, k, v, **o),
        "fused": lambda **o: fl.tiled_attention_backward(q, q, k, v, q, lse, block_q=2, block_k=2, **o),
    }
    with pytest.raises(TypeError, match=f"expected {option} to be True or False, got 'no'"):
        functions[option](**{option: "no"})


@pytest.mark.parametrize(
    "name", ["standard_attention", "two_pass_attention", "one_pass_attention", "tiled_attention_v1"]
)
def test_no_query_heads_are_rejected(name):
    q, k = torch.zeros(1, 0, 3, 2), torch.zeros(1, 2, 3, 2)
    with pytest.raises(ValueError, match="multiple of those of k and v, got 0 and 2"):
        getattr(fl, name)(q, k, k)


@pytest.mark.parametrize("name", ("scale", "softcap"))
def test_a_number_past_float64_is_rejected(name):
    q = torch.ones(1, 1, 2, 2)
    for attention in (fl.standard_attention, fl.tiled_attention_v2):
        with pytest.raises(ValueError, match=f"expected .*{name}.* finite, got a number past float64"):
            attention(q, q, q, **{name: 10**400})
