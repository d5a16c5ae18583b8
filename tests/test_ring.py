"""The ring, by threads that play processes: results, gradients, and errors that are the same for all."""

from __future__ import annotations

import importlib.util

import numpy
import pytest
import torch
from torch import Tensor

from flashlearn.core.mask import Mask
from flashlearn.core.steps import last
from flashlearn.ring import Places, join, local, ring_attention, ring_attention_steps, split, ulysses_attention
from flashlearn.ring.plan import plan_of, shares
from flashlearn.ring.processes import processes, threads
from tests.grid import Case, answers
from tests.slow import slow

if importlib.util.find_spec("triton"):
    from flashlearn.core.target import INTERPRETED

    DEVICE = "cpu" if INTERPRETED else "cuda"
else:
    DEVICE = "cpu"
NAMES = ("o", "lse", "dq", "dk", "dv")
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed here")
needs_interpreter = pytest.mark.skipif(
    DEVICE != "cpu", reason="kernels are compiled here, and threads that play processes send no tensors of a GPU"
)


def problem(N: int, dtype: torch.dtype, H_q: int = 4, H_kv: int = 2, D: int = 8, B: int = 2) -> list[Tensor]:
    """q, k, v, do and dlse, all different."""
    source = torch.Generator().manual_seed(N)
    random = lambda *shape: torch.randn(shape, generator=source, dtype=torch.float64)  # noqa: E731
    tensors = [random(B, H, N, D).to(dtype) for H in (H_q, H_kv, H_kv, H_q)]
    return [*tensors, random(B, H_q, N).to(torch.promote_types(dtype, torch.float32))]


def plain(tensors: list[Tensor], mask: Mask, dtype: torch.dtype) -> list[Tensor]:
    """o, lse, dq, dk and dv by plain PyTorch and autograd, computed in this dtype."""
    *inputs, dlse = tensors
    (B, H_q, N, D), H_kv = inputs[0].shape, inputs[1].shape[1]
    case = Case(N, N, D, B=B, H_q=H_q, H_kv=H_kv, window=(mask.left, mask.right))
    want = answers(case, inputs, {}, dlse, dtype)
    return [want[name] for name in NAMES]


def ring(tensors: list[Tensor], P: int, order: str, attend=ring_attention, **options) -> list[Tensor]:
    """The same by a ring of P threads; every one of them has the whole result, and they agree to the bit."""

    def go(group):
        here = {"order": order, "group": group}
        q, k, v, do, dlse = (split(t, **here) for t in tensors)
        q, k, v = (t.requires_grad_() for t in (q, k, v))
        o, lse = attend(q, k, v, return_lse=True, **here, **options)
        grads = torch.autograd.grad((o, lse), (q, k, v), (do, dlse))
        return [join(t, **here) for t in (o, lse, *grads)]

    results = threads(P, go, limit=20)
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))
    return results[0]


def check(found: list[Tensor], tensors: list[Tensor], mask: Mask, dtype: torch.dtype) -> None:
    """Each within twice the error of plain PyTorch in the same dtype, and a floor."""
    exact, theirs = plain(tensors, mask, torch.float64), plain(tensors, mask, dtype)
    for name, ours, other, true in zip(NAMES, found, theirs, exact, strict=True):
        assert ours.shape == true.shape, name
        if true.numel():
            error, allowed = (ours - true).abs().max(), 2 * (other - true).abs().max()
            roundings = 16 if dtype == torch.float64 else 4  # in float64 plain PyTorch is what is exact: no yardstick
            floor = roundings * torch.finfo(dtype).eps * true.abs().max()
            assert error <= allowed + floor, f"{name}: {error:.2e}, allowed {allowed + floor:.2e}"


MASKS = [{}, {"causal": True}, {"causal": True, "window": (3, 0)}, {"window": (2, 5)}, {"window": (0, None)}]
CASES = [  # processes, tokens, order, mask: every mask in both orders, shares that differ, and some that are empty
    (P, N, order, options)
    for order in ("plain", "zigzag")
    for options in MASKS
    for P, N in ((3, 16), (4, 13), (4, 3), (2, 9), (5, 21))
]
QUICK = {("plain", 3, 16), ("zigzag", 3, 16), ("zigzag", 4, 3)}


@pytest.mark.parametrize(
    "P, N, order, options", [case if (case[2], *case[:2]) in QUICK else slow(*case) for case in CASES]
)
def test_ring_equals_one_process(P, N, order, options):
    tensors = problem(N, torch.float64)
    mask = Mask(N, N, *(options.get("window") or (None, None)))
    mask = Mask(N, N, mask.left, 0 if options.get("causal") else mask.right)
    check(ring(tensors, P, order, **options), tensors, mask, torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_are_kept_wide(dtype):
    """Of 24 visits: summed in 16 bits o, dq, dk and dv would have 1.4 to 2.5 times the error of plain PyTorch; here they have less."""
    *tensors, dlse = problem(48, dtype, H_q=2, H_kv=1, D=16, B=1)
    q, k, v, do = tensors
    found = last(ring_attention_steps(q, k, v, P=24, order="plain", do=do)).output
    exact, theirs = (plain([*tensors, 0 * dlse], Mask(48, 48), each) for each in (torch.float64, dtype))
    for name, ours, other, true in zip(NAMES, found, theirs, exact, strict=True):
        error, allowed = (ours - true).abs().max(), 1.2 * (other - true).abs().max()
        assert error <= allowed + torch.finfo(torch.float32).eps * true.abs().max(), (
            f"{name}: {error:.2e}, {allowed:.2e}"
        )


@pytest.mark.parametrize("order", ["plain", "zigzag"])
@pytest.mark.parametrize("dtype", [torch.float32, slow(torch.bfloat16)])
def test_ring_of_six_in_other_dtypes(order, dtype):
    tensors = problem(48, dtype, H_q=3, H_kv=1, D=16)
    check(ring(tensors, 6, order, causal=True), tensors, Mask(48, 48, right=0), dtype)


def test_autocast_casts_as_it_does_for_other_attention():
    def go(group):
        q, k, v = (split(t, order="plain", group=group) for t in problem(6, torch.float32)[:3])
        with torch.autocast("cpu", torch.bfloat16):
            return ring_attention(q, k, v, order="plain", group=group).dtype

    assert threads(2, go) == [torch.bfloat16] * 2


def test_a_group_of_one_is_plain_attention():
    tensors = problem(7, torch.float64)
    check(ring(tensors, 1, "zigzag", causal=True), tensors, Mask(7, 7, right=0), torch.float64)


def test_scale_reaches_every_visit():
    tensors = problem(8, torch.float64)
    scaled = [tensors[0] * 0.7 * 8**0.5, *tensors[1:]]
    assert torch.allclose(ring(tensors, 2, "plain", scale=0.7)[0], plain(scaled, Mask(8, 8), torch.float64)[0])


@pytest.mark.parametrize("attend", [ring_attention, ulysses_attention])
@pytest.mark.parametrize("P", [1, 2])
def test_second_derivatives_are_rejected(attend, P):
    """Also where the gradient of o needs none itself: PyTorch would leave the second derivatives out in silence."""
    whole = problem(6, torch.float64)[:3]

    def go(group, which, gradient):
        q, k, v = (split(t, order="zigzag", group=group).requires_grad_() for t in whole)
        o, lse = attend(q, k, v, order="zigzag", group=group, return_lse=True)
        given = {"o": o, "lse": lse}[which]
        (first,) = torch.autograd.grad(given, q, gradient(given), create_graph=True)  # first order is fine
        with pytest.raises(NotImplementedError, match="ring_attention and ulysses_attention are differentiable once"):
            first.square().sum().backward()
        return torch.equal(
            first, torch.autograd.grad(attend(q, k, v, order="zigzag", group=group), q, torch.ones_like(o))[0]
        )

    assert threads(P, go, "o", torch.ones_like) == [True] * P
    threads(P, go, "o", lambda o: torch.ones_like(o).requires_grad_())
    threads(P, go, "lse", torch.ones_like)


@pytest.mark.parametrize("attend", [ring_attention, ulysses_attention])
@pytest.mark.parametrize(
    "transform",
    [
        lambda f, q: torch.func.grad(f)(q),
        lambda f, q: torch.func.vjp(f, q),
        lambda f, q: torch.func.jvp(f, (q,), (q,)),
        lambda f, q: torch.func.jacrev(f)(q),
        lambda f, q: torch.vmap(f)(q[None]),
    ],
)
def test_torch_func_is_rejected_before_anything_is_sent(attend, transform):
    def go(group):
        q = torch.ones(1, 2, 3, 4)
        transform(lambda q: attend(q, q.detach(), q.detach(), order="plain", group=group).sum(), q)

    message = "have a derivative for torch.autograd, not for torch.func"
    for P in (1, 2):
        with pytest.raises(NotImplementedError, match=message):
            threads(P, go, limit=10)


@pytest.mark.parametrize("attend", [ring_attention, ulysses_attention])
def test_forward_mode_is_rejected(attend):
    q = torch.ones(1, 2, 3, 4)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, q)

        def call(group):
            attend(q, q, dual if group.rank() else q, order="plain", group=group)

        told = every_error(2, call)
    assert all(text.startswith("NotImplementedError: ") and "no forward-mode derivative" in text for text in told), told


def test_scale_is_one_that_sums_can_hold():
    """As `flash_attention` has it for float32 and less; in float64 a score may be what it likes."""
    for dtype in (torch.float32, torch.float16):
        with pytest.raises(ValueError, match=r"expected scale log2\(e\) finite in float32"):
            ring(problem(6, dtype), 2, "plain", scale=1e300)
        with pytest.raises(ValueError, match=r"expected scale log2\(e\) finite in float32"):
            next(ring_attention_steps(*problem(6, dtype)[:3], P=2, order="plain", scale=1e300))
    q, k, v = (1e-150 * t for t in problem(6, torch.float64, H_q=2)[:3])
    (o,) = threads(1, lambda group: ring_attention(q, k, v, order="plain", group=group, scale=1e300))
    expected = torch.nn.functional.scaled_dot_product_attention(q * 1e150, k * 1e150, v, scale=1.0)
    torch.testing.assert_close(o * 1e150, expected * 1e150)


def test_a_window_may_be_of_numbers_of_numpy():
    tensors = problem(9, torch.float64)
    window = (numpy.int64(3), numpy.int32(1))
    check(ring(tensors, 2, "zigzag", window=window), tensors, Mask(9, 9, 3, 1), torch.float64)


@pytest.mark.parametrize(
    "P, N, order, options", [(2, 9, "zigzag", MASKS[2]), (4, 3, "plain", MASKS[1]), slow(4, 17, "zigzag", MASKS[3])]
)
def test_ulysses_equals_one_process(P, N, order, options):
    tensors = problem(N, torch.float64, H_q=8, H_kv=4)
    left, right = options.get("window") or (None, None)
    mask = Mask(N, N, left, 0 if options.get("causal") else right)
    check(ring(tensors, P, order, ulysses_attention, **options), tensors, mask, torch.float64)


def test_ulysses_wants_heads_for_every_process():
    tensors = problem(9, torch.float64, H_q=4, H_kv=2)
    with pytest.raises(ValueError, match="multiples of the 4 processes, got 4 and 2"):
        ring(tensors, 4, "plain", ulysses_attention)


@needs_triton
@needs_interpreter
@pytest.mark.parametrize("order", ["zigzag", slow("plain")])
def test_ring_of_kernels(order, monkeypatch):
    """The path of a GPU, in the interpreter: flash_attention and its backward operator with the o and lse of all."""
    monkeypatch.setattr(local, "INTERPRET", True)
    tensors = problem(9, torch.float32, B=1, H_q=2, H_kv=1, D=16)
    check(ring(tensors, 2, order, causal=True), tensors, Mask(9, 9, right=0), torch.float32)


@needs_triton
@needs_interpreter
@pytest.mark.slow
def test_ring_of_kernels_with_a_window(monkeypatch):
    monkeypatch.setattr(local, "INTERPRET", True)
    tensors = problem(9, torch.float32, B=1, H_q=2, H_kv=1, D=16)
    check(ring(tensors, 2, "zigzag", window=(3, 1)), tensors, Mask(9, 9, 3, 1), torch.float32)


@needs_triton
def test_merge_kernel_is_the_merge():
    """On a CPU `merge` is PyTorch's; on a GPU it is the kernel itself."""
    from flashlearn.ring.merge_kernel import merge_on_gpu

    a, b = torch.randn(2, 2, 3, 21, 12, device=DEVICE)
    lse_a, lse_b = torch.randn(2, 3, 40, device=DEVICE)[:, :, :21], torch.randn(2, 3, 21, device=DEVICE)
    lse_a[:, 0, :4], lse_b[:, :, 2:6] = -float("inf"), -float("inf")
    expected, kept = torch.empty(2, 3, 21, 12), lse_a.clone().cpu()
    local.merge(a.cpu(), kept, b.cpu(), lse_b.cpu(), expected)
    out = torch.full((2, 3, 50, 12), 7.0, device=DEVICE)
    merge_on_gpu(a, lse_a, b, lse_b, out[:, :, 5:26])
    torch.testing.assert_close(out[:, :, 5:26].cpu(), expected)
    torch.testing.assert_close(lse_a.cpu(), kept)
    assert (out[:, :, :5] == 7).all() and (out[:, :, 26:] == 7).all()


# the plan


@pytest.mark.parametrize("P", [1, 2, 3, 5])
@pytest.mark.parametrize("N", [0, 1, 7, 24])
@pytest.mark.parametrize("order", ["plain", "zigzag"])
def test_shares_hold_every_token_once(N, P, order):
    tokens = [i for chunks in shares(N, P, order) for start, stop in chunks for i in range(start, stop)]
    assert sorted(tokens) == list(range(N))


@pytest.mark.parametrize("order", ["plain", "zigzag"])
@pytest.mark.parametrize("left, right", [(None, None), (None, 0), (3, 0), (2, 5), (0, None)])
def test_visits_compute_every_visible_pair_once(order, left, right):
    N, P = 17, 4
    plan, mask = plan_of(N, P, order, left, right), Mask(N, N, left, right)
    count = torch.zeros(N, N, dtype=torch.int64)
    at = [[i for start, stop in chunks for i in range(start, stop)] for chunks in plan.chunks]
    for r in range(P):
        for j in range(P):
            for visit in plan.visits[r][j]:
                rows, cols = at[r][slice(*visit.rows)], at[j][slice(*visit.cols)]
                seen = Mask(len(rows), len(cols), visit.left, visit.right).visible((0, len(rows)), (0, len(cols)))
                count[torch.tensor(rows)[:, None], torch.tensor(cols)] += seen
                assert visit.pairs == seen.sum()
    assert torch.equal(count, mask.visible((0, N), (0, N)).long())


def test_zigzag_gives_all_the_same_work_and_few_calls():
    plan = plan_of(64, 4, "zigzag", None, 0)
    assert {tuple(plan.pairs(r)) for r in range(4)} == {(136, 128, 128, 128)}
    assert all(len(visits) == 1 for row in plan.visits for visits in row)
    lazy = plan_of(64, 4, "plain", None, 0)
    assert [sum(lazy.pairs(r)) for r in range(4)] == [136, 392, 648, 904]


# errors: the same in every process, and soon


def every_error(P: int, call, limit: float = 10.0) -> list[str]:
    """What each of P threads was told."""

    def go(group):
        try:
            call(group)
        except (ValueError, TypeError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"
        return "no error"

    return threads(P, go, limit=limit)


def shared(N: int = 8, **changes) -> dict:
    return {"shape": (1, 2, N // 2, 4), "dtype": torch.float32, "grad": False, "order": "plain"} | changes


def call_with(first: dict, second: dict):
    """A call in which process 0 has the first's inputs and process 1 the second's."""

    def call(group):
        given = dict((first, second)[group.rank()])
        q, k, v = (torch.randn(given["shape"]).to(given["dtype"]).requires_grad_(given["grad"]) for _ in range(3))
        options = {name: value for name, value in given.items() if name not in ("shape", "dtype", "grad")}
        ring_attention(q, k, v, group=group, **options)

    return call


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"shape": (1, 2, 3, 4)}, "no error"),  # 4 and 3 are the shares of 7
        ({"shape": (1, 2, 6, 4)}, "expected shares as `split` makes them in plain order, of [5, 5] tokens, got [4, 6]"),
        ({"shape": (2, 2, 4, 4)}, "the same B, got 1 in process 0 and 2 in 1"),
        ({"shape": (1, 2, 4, 5)}, "the same D"),
        ({"shape": (1, 2, 4)}, "expected q of shape (B, H, N, D), got (1, 2, 4)"),
        ({"dtype": torch.float64}, "TypeError: expected every process to hand in the same dtype"),
        ({"dtype": torch.int64}, "TypeError"),
        ({"order": "zigzag"}, "the same order"),
        ({"order": "reversed"}, "expected order to be 'plain' or 'zigzag', got 'reversed'"),
        (
            {"causal": True},
            "the same causal and window, got causal=False, window=None in process 0 and causal=True, window=None in 1",
        ),
        (
            {"window": (1, None)},
            "the same causal and window, got causal=False, window=None in process 0 and causal=False, window=(1, None)",
        ),
        ({"window": (None, None)}, "no error"),  # the same in other words
        ({"scale": 2.0}, "the same scale"),
        ({"scale": 1e300}, "expected scale log2(e) finite in float32, so |scale| up to 2.359e+38, got 1e+300"),
        ({"scale": -2.4e38}, "expected scale log2(e) finite in float32"),
        ({"return_lse": "no"}, "expected return_lse to be True or False, got 'no'"),
        ({"grad": True}, "the same gradients wanted"),
    ],
)
def test_what_does_not_fit_is_told_to_all(changes, words):
    told = every_error(2, call_with(shared(), shared(**changes)))
    assert all(words in text for text in told), told


@pytest.mark.parametrize(
    "changes", [{"order": 3000 * "x"}, {"order": 3000 * "\U0001f600"}, {"causal": torch.ones(30, 30, dtype=torch.bool)}]
)
def test_a_long_refusal_is_told_to_all_in_the_same_words(changes):
    told = every_error(2, call_with(shared(), shared(**changes)))
    assert len(set(told)) == 1 and "process 1 of 2: expected" in told[0], told
    assert str(*changes.values())[:5] in told[0] and len(told[0]) < 400, told


ONE = torch.ones(1, 2, 4, 3)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"dim": -2}, "no error"),  # the same in other words
        ({"t": ONE[:, :, :3]}, "no error"),  # 4 and 3 are the shares of 7
        ({"t": ONE.half()}, "TypeError: expected every process to hand in the same dtype"),
        ({"t": ONE.int()}, "the same dtype, got torch.float32 in process 0 and torch.int32 in 1"),
        ({"t": torch.ones(1, 4, 4, 3)}, "besides the tokens, got [1, 2, 3] in process 0 and [1, 4, 3] in 1"),
        ({"t": ONE[0], "dim": 1}, "the same number of dimensions, got 4 in process 0 and 3 in 1"),
        ({"dim": 1}, "the same dim, got 2 in process 0 and 1 in 1"),
        ({"order": "zigzag"}, "the same order, got plain in process 0 and zigzag in 1"),
        ({"order": "x"}, "ValueError: process 1 of 2: expected order to be 'plain' or 'zigzag', got 'x'"),
        ({"dim": 7}, "process 1 of 2: expected dim to be one of the 4 dimensions of t, (1, 2, 4, 3), got 7"),
        ({"dim": "2"}, "TypeError: process 1 of 2: expected dim to be an int, got str"),
        ({"t": [1]}, "TypeError: process 1 of 2: expected t to be a torch.Tensor, got list"),
        ({"t": ONE.to_sparse()}, "process 1 of 2: expected t to be a dense tensor, got torch.sparse_coo"),
        ({"t": torch.ones(1, 2, 6, 3)}, "as `split` makes them in plain order, of [5, 5] tokens, got [4, 6]"),
    ],
)
def test_shares_that_cannot_be_joined_are_told_to_all(changes, words):
    """Process 1 hands in something else: another size would end the interpreter, another dtype give other numbers."""

    def call(group):
        given = {"t": ONE, "order": "plain", "dim": 2} | (changes if group.rank() else {})
        join(given.pop("t"), group=group, **given)

    told = every_error(2, call)
    assert len(set(told)) == 1 and words in told[0], told


@pytest.mark.parametrize("attend", [ring_attention, ulysses_attention])
@pytest.mark.parametrize("who", [(0,), (1,), (0, 1)])
def test_tensors_without_numbers_are_rejected(attend, who):
    def tensor(group):
        return torch.ones(1, 2, 4, 4, device="meta" if group.rank() in who else "cpu")

    told = every_error(2, lambda group: attend(*[tensor(group)] * 3, order="plain", group=group))
    told += every_error(2, lambda group: join(tensor(group), order="plain", group=group))
    assert all("with numbers in them, on a GPU or the CPU, got tensors on meta" in text for text in told), told


def test_who_waits_for_a_process_that_ended_is_told():
    def call(group):
        if group.rank() == 1:
            group.abort()  # as when the process has died
            raise RuntimeError("gone")
        ring_attention(*(torch.randn(1, 2, 4, 4) for _ in range(3)), order="plain", group=group)

    told = every_error(3, call, limit=3)
    assert all("expected all 3 processes of the ring to take part" in told[r] for r in (0, 2)), told


def test_without_a_group_it_says_how_to_get_one():
    with pytest.raises(RuntimeError, match="torchrun"):
        ring_attention(*(torch.randn(1, 2, 4, 4) for _ in range(3)), order="plain")


@pytest.mark.parametrize("attend", [ring_attention, ulysses_attention, split])
@pytest.mark.parametrize("group", ["g", 3])
def test_what_is_no_group_is_rejected(attend, group):
    tensors = (torch.randn(1, 2, 4, 4),) * (1 if attend is split else 3)
    with pytest.raises(
        TypeError, match=f"expected group to be a group of processes or None, got {type(group).__name__}"
    ):
        attend(*tensors, order="plain", group=group)


@pytest.mark.parametrize(
    ("do", "error", "message"),
    [
        (torch.ones(1, 2, 9, 4), ValueError, r"expected do shaped as q, \(1, 2, 8, 4\), got \(1, 2, 9, 4\)"),
        (torch.ones(1, 2, 8, 4).double(), TypeError, "expected do in the dtype of q, torch.float32, got torch.float64"),
        (torch.ones(1, 2, 8, 4, device="meta"), ValueError, "expected do on the device of q, cpu, got meta"),
        ("x", TypeError, "expected do to be a torch.Tensor, got str"),
    ],
)
def test_the_gradient_belongs_to_the_queries(do, error, message):
    """It is told at once, not after the forward pass."""
    with pytest.raises(error, match=message):
        next(ring_attention_steps(*torch.ones(3, 1, 2, 8, 4), P=2, order="plain", do=do))


@pytest.mark.parametrize("share", [split, join])
@pytest.mark.parametrize(
    ("t", "dim", "error", "message"),
    [
        ([1, 2], 0, TypeError, "expected t to be a torch.Tensor, got list"),
        (torch.ones(1, 8), 2, ValueError, r"expected dim to be one of the 2 dimensions of t, \(1, 8\), got 2"),
        (torch.ones(1, 8), -3, ValueError, r"expected dim to be one of the 2 dimensions of t, \(1, 8\), got -3"),
        (torch.ones(1, 8), "1", TypeError, "expected dim to be an int, got str"),
    ],
)
def test_tokens_lie_along_a_dimension(share, t, dim, error, message):
    with pytest.raises(error, match=message):
        threads(1, lambda group: share(t, order="plain", group=group, dim=dim))
    there = torch.arange(8)[None]
    assert torch.equal(threads(1, lambda group: share(there, order="plain", group=group, dim=-1))[0], there)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: threads(-1, print), ValueError, "expected P of at least 1, got -1"),
        (lambda: threads(0, print), ValueError, "expected P of at least 1, got 0"),
        (lambda: threads("2", print), TypeError, "expected P to be an int, got str"),
        (lambda: threads(2, 3), TypeError, "expected a function to run in every thread, got int"),
        (lambda: processes(0, problem), ValueError, "expected P of at least 1, got 0"),
        (lambda: processes(1, print), TypeError, "expected a function made with def, whose source .*, got print"),
        (lambda: processes(1, lambda group: 1), TypeError, "expected a function made with def, .*, got <lambda>"),
        (lambda: shares(8, 0, "plain"), ValueError, "expected P of at least 1, got 0"),
        (lambda: shares(-8, 2, "plain"), ValueError, "expected N of at least 0, got -8"),
        (lambda: Places(-8, order="plain"), ValueError, "expected N of at least 0, got -8"),
    ],
)
def test_nobody_is_no_ring(call, error, message):
    with pytest.raises(error, match=message):
        call()
