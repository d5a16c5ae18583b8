"""Documents, key ranges, softcap, slopes and sinks through the algorithms: against float64 by brute force."""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import replace

import pytest
import torch

import flashlearn as fl
from flashlearn.algorithms import attention as attention_module
from flashlearn.algorithms import tiled as tiled_module
from flashlearn.algorithms.attention import softmax_of
from flashlearn.algorithms.problem import Problem, start
from flashlearn.core.hbm import OnChip
from flashlearn.core.mask import Mask
from flashlearn.core.scores import Scores
from tests import grid, masked
from tests.grid import fp32, fp64, make
from tests.slow import slow

sum_rows = OnChip.sum_rows

ALGORITHMS = {
    "standard_attention": (),
    "two_pass_attention": ("block_k",),
    "one_pass_attention": ("block_k",),
    "tiled_attention_v1": ("block_q", "block_k"),
    "tiled_attention_v2": ("block_q", "block_k"),
}
LENGTHS = [(1, 1), (2, 2), (7, 7), (16, 16), (13, 13), (5, 11), (11, 5), (1, 9), (9, 1)]
FACTORS = {
    "lengths": LENGTHS,
    "causal": [False, True],
    "window": [None, (0, 0), (2, None), (None, 1), (1, 2), (3, 0), (20, 20)],
    "documents": [None, "one each", "one", "mixed", "empty ones"],
    "key_range": [None, "left", "right", "both", "none exist", "all exist"],
    "softcap": [None, 0.5, 50.0],
    "alibi": [False, True],
    "sinks": [False, True],
    "heads": [(2, 2), (4, 2), (3, 1)],
    "scale": [None, 0.3],
    "blocks": [(1, 1), (2, 3), (4, 2), (64, 64)],
}


def possible(case: dict) -> bool:
    """Documents need as many queries as keys."""
    N_q, N_k = case.get("lengths", (1, 1))
    return case.get("documents") is None or N_q == N_k


def pairwise(factors: dict[str, list]) -> list[dict]:
    """Cases in which every two values of two factors that can meet do meet: greedy, the most new pairs first."""
    rng, names = random.Random(0), list(factors)
    pairs = {
        ((a, x), (b, y))
        for n, a in enumerate(names)
        for b in names[n + 1 :]
        for x in range(len(factors[a]))
        for y in range(len(factors[b]))
        if possible({a: factors[a][x], b: factors[b][y]})
    }
    cases = []
    while pairs:
        best, most = {}, set()
        first = min(pairs)
        for _ in range(30):
            places = {name: rng.randrange(len(factors[name])) for name in names} | dict(first)
            if not possible({name: factors[name][place] for name, place in places.items()}):
                continue
            items = list(places.items())
            new = {(x, y) for n, x in enumerate(items) for y in items[n + 1 :]} & pairs
            best, most = (places, new) if len(new) > len(most) else (best, most)
        if best:
            cases.append({name: factors[name][place] for name, place in best.items()})
            pairs -= most
    return cases


def documents_of(kind: str, N: int) -> tuple[int, ...]:
    inner = {"one each": range(1, N), "one": [], "mixed": [1, N // 2], "empty ones": [0, N // 3, N // 3, N]}[kind]
    return tuple(stop - start for start, stop in itertools.pairwise([0, *sorted(min(n, N) for n in inner), N]))


def key_range_of(kind: str, N_k: int) -> tuple[tuple[int, int], ...]:
    """For two sequences; one of them may have no key at all."""
    return {
        "left": ((N_k // 2, N_k), (0, N_k)),
        "right": ((0, N_k // 2), (0, N_k)),
        "both": ((0, N_k // 4), (N_k - N_k // 4, N_k)),
        "none exist": ((N_k // 2, N_k // 2), (0, N_k)),
        "all exist": ((0, N_k), (0, N_k)),
    }[kind]


def problem(case: dict, dtype=fp64, D: int = 3, B: int = 2) -> masked.Problem:
    N_q, N_k = case["lengths"]
    hidden = {
        "documents": case["documents"] and documents_of(case["documents"], N_q),
        "key_range": case["key_range"] and key_range_of(case["key_range"], N_k),
    }
    sizes = zip(("H_q", "H_kv", "block_q", "block_k"), (*case["heads"], *case["blocks"]), strict=True)
    same = {name: case[name] for name in ("causal", "window", "softcap", "alibi", "sinks", "scale")}
    return masked.Problem(N_q, N_k, D, dtype=dtype, B=B, **dict(sizes), **same, **hidden)


def blocks_of(problem: masked.Problem, name: str = "tiled_attention_v2") -> dict:
    """The block sizes that an algorithm takes."""
    return {block: getattr(problem, block) for block in ALGORITHMS[name]}


@pytest.mark.parametrize("name", ["standard_attention", "tiled_attention_v1", "tiled_attention_v2"])
def test_keys_that_do_not_exist_may_hold_anything(name):
    p = problem({**ALONE, "lengths": (9, 8), "key_range": "both"})
    (q, k, v, do), options = make(p), masked.given(p)
    gone = ~grid.seen(p).any(1)[:, None, :, None]
    assert gone.any() and not gone.all()
    attend = functools.partial(getattr(fl, name), **blocks_of(p, name), **options)
    spoilt = k.masked_fill(gone, torch.nan), v.masked_fill(gone, torch.inf)
    torch.testing.assert_close(attend(q, *spoilt), attend(q, k, v))
    gradients = fl.attention_backward(do, q, *spoilt, **options)
    torch.testing.assert_close(gradients, fl.attention_backward(do, q, k, v, **options))


ALONE = {
    **{name: values[0] for name, values in FACTORS.items()},
    **{"lengths": (7, 7), "heads": (4, 2), "blocks": (2, 3)},
}
TRIPLES = list(itertools.product(FACTORS["window"][1:], [(7, 7), *LENGTHS[5:]], (False, True)))
WINDOWS = [
    {**ALONE, "window": window, "lengths": lengths, "causal": causal}
    for window, lengths, causal in random.Random(2).sample(TRIPLES, 40)
]
CASES = (
    [{**ALONE, name: value} for name, values in FACTORS.items() for value in values[1:]] + WINDOWS + pairwise(FACTORS)
)
SINGLE = sum(len(values) - 1 for values in FACTORS.values()) + len(WINDOWS)
# Every value of every factor alone, windows at many sizes, and a quarter of the pairs; `make test-slow` has the rest.
FEW = [n for n in range(len(CASES)) if n < SINGLE or n % 4 == 0]
REST = [n for n in range(len(CASES)) if n not in FEW]


@functools.cache
def answer(n: int) -> dict:
    """What is right of case n in float64, by brute force: o, lse, and the gradients of all that has one."""
    p = problem(CASES[n])
    return grid.answers(p, make(p), masked.given(p))


def detached(options: dict) -> dict:
    return {name: option.detach() if isinstance(option, torch.Tensor) else option for name, option in options.items()}


def forward_of(name: str, p: masked.Problem) -> dict:
    """o, and of version 2 lse."""
    (q, k, v, _), lse = make(p), {"return_lse": True} if name == "tiled_attention_v2" else {}
    got = getattr(fl, name)(q, k, v, **detached(masked.given(p)), **blocks_of(p, name), **lse)
    return dict(zip(("o", "lse"), got if isinstance(got, tuple) else (got,), strict=False))


def backward_of(form: str, p: masked.Problem) -> dict:
    """The gradients, by name; those of sinks and slopes last."""
    (*qkv, do), options = make(p), detached(masked.given(p))
    if form == "dense":
        got = fl.attention_backward(do, *qkv, **options)
    elif form == "stored":
        P = fl.last(fl.standard_attention_steps(*qkv, **options)).values["P"]
        got = fl.attention_backward(do, *qkv, stored=P, **options)
    else:
        o, lse = fl.tiled_attention_v2(*qkv, return_lse=True, **options, **blocks_of(p))
        got = fl.tiled_attention_backward(do, *qkv, o, lse, fused=form == "fused", **options, **blocks_of(p))
    names = ("dq", "dk", "dv", *(f"d{name}" for name in ("sinks", "alibi") if name in options))
    return dict(zip(names, got, strict=True))


FORMS = {name: forward_of for name in ALGORITHMS} | dict.fromkeys(
    ("dense", "stored", "two sweeps", "fused"), backward_of
)


def wrong_in(form: str, n: int) -> set[str]:
    """The names of what is not as brute force has it."""
    right = answer(n)
    found = FORMS[form](form, problem(CASES[n]))
    return {name for name, mine in found.items() if not torch.allclose(mine, right[name], 1e-7, 1e-9)}


@pytest.mark.parametrize("form, numbers", [(form, FEW) for form in FORMS] + [slow(form, REST) for form in FORMS])
def test_results_and_gradients_are_those_of_brute_force(form, numbers):
    for n in numbers:
        assert not wrong_in(form, n), CASES[n]


def test_the_cases_are_few_and_have_every_pair_of_choices():
    assert len(CASES) < 250, "every pair of choices needs no more"
    names = list(FACTORS)
    for n, a in enumerate(names):
        for b in names[n + 1 :]:
            for x, y in itertools.product(FACTORS[a], FACTORS[b]):
                assert not possible({a: x, b: y}) or any(case[a] == x and case[b] == y for case in CASES), (a, x, b, y)
    rows = [answer(n)["lse"].isneginf() for n in range(len(CASES))]
    assert any(row.any() for row in rows), "some row sees nothing and has no sink"
    unseen = [n for n, case in enumerate(CASES) if case["sinks"] and (answer(n)["o"] == 0).all(-1).any()]
    assert unseen and all(answer(n)["lse"].isfinite().all() for n in unseen), "some row has its sink alone"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, fp32])
def test_errors_in_narrow_types_are_at_most_twice_those_of_plain_pytorch(dtype):
    for case in CASES[::8]:
        p = problem(case, dtype)
        inputs, options = make(p), masked.given(p)
        right, plain = (grid.answers(p, inputs, options, dtype=each)["o"] for each in (fp64, dtype))
        bound = 2 * (plain.double() - right).abs().amax() + 4 * torch.finfo(dtype).eps
        for name in ALGORITHMS:
            o = forward_of(name, p)["o"]
            assert o.dtype == dtype and (o.double() - right).abs().amax() <= bound, (name, case)


LARGE = [(63, 64, 16), (100, 257, 40), (192, 111, 64), (257, 257, 128), (64, 64, 96), (1, 257, 64), (111, 111, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("N_q", "N_k", "D"), LARGE)
def test_large_and_awkward_sizes_under_every_kind_of_mask(N_q, N_k, D):
    """FlashAttention's sizes, blocks of 64 x 32, float32: results and gradients within its rule."""
    rng = random.Random(N_q * 1000 + N_k)
    for _ in range(3):
        case = {name: rng.choice(values) for name, values in FACTORS.items()}
        case |= {"lengths": (N_q, N_k), "blocks": (64, 32), "documents": case["documents"] if N_q == N_k else None}
        p = problem(case, fp32, D)
        for name, form in (("tiled_attention_v2", "two sweeps"), ("tiled_attention_v1", "fused")):
            ours = forward_of("tiled_attention_v2", p) | forward_of(name, p) | backward_of(form, p)
            masked.check(p, make(p), ours, masked.given(p))


# Planted: one mistake each, in the one place that all forms share.


def cap_after_the_mask(self, product, rows, cols):
    S = self.mask.hide(self.lower(product * self.scale), rows, cols)
    return S if self.scores.softcap is None else torch.tanh(S / self.scores.softcap) * self.scores.softcap


def cap_after_the_slopes(self, product, rows, cols):
    S = self.lower(product * self.scale)
    S = S if self.scores.softcap is None else torch.tanh(S / self.scores.softcap) * self.scores.softcap
    return self.mask.hide(S, rows, cols)


def cap_before_the_scale(self, product):
    return (
        product * self.scale if self.softcap is None else torch.tanh(product / self.softcap) * self.softcap * self.scale
    )


def slopes_aligned_top_left(self, S):
    return S - S.distance(0) * S.hbm.loaded("alibi") if "alibi" in self.given else S


def slopes_added(self, S):
    return S + S.distance(self.mask.diagonal) * S.hbm.loaded("alibi") if "alibi" in self.given else S


def sink_with_a_value(hbm, rows, programs=1):
    m_i, l_i, acc = start(hbm, rows, programs)
    return m_i, l_i, acc + 1 if "sinks" in hbm.given else acc


def sink_that_is_0(hbm, rows, programs=1):
    m_i, l_i, acc = start(hbm, rows, programs)
    return m_i * 0 if "sinks" in hbm.given else m_i, l_i, acc


def mask_with(**changes):
    """`Mask.visible` of a mask that is a little off."""
    plain = Mask.visible

    def visible(self, rows, cols, device=None):
        return plain(replace(self, **{name: change(self) for name, change in changes.items()}), rows, cols, device)

    return visible


def shifted(mask):
    """Every text but the first starts a token too late."""
    return mask.documents and (0, *(min(at + 1, mask.N_k) for at in mask.documents[1:-1]), mask.documents[-1])


def one_key_more(mask):
    return mask.key_range and tuple((start, min(stop + 1, mask.N_k)) for start, stop in mask.key_range)


def one_key_too_few(mask):
    return mask.left and mask.left - 1


def not_squared(self, dS, capped):
    return dS * (1 - capped / self.softcap) if self.softcap else dS


FORWARD, BACKWARD = tuple(ALGORITHMS), ("dense", "two sweeps", "fused")
PLANTED = {  # what: (option, where, function, mistake, forms, what comes out wrong)
    "softcap after the mask": ("softcap", Problem, "score", cap_after_the_mask, FORWARD, {"o"}),
    "softcap after the slopes": ("softcap", Problem, "score", cap_after_the_slopes, FORWARD, {"o"}),
    "softcap before the scale": ("softcap", Scores, "cap", cap_before_the_scale, FORWARD, {"o"}),
    "slopes aligned to the top left": ("alibi", Problem, "lower", slopes_aligned_top_left, FORWARD, {"o"}),
    "slopes added": ("alibi", Problem, "lower", slopes_added, FORWARD, {"o"}),
    "a sink with a value": ("sinks", tiled_module, "start", sink_with_a_value, FORWARD[3:], {"o"}),
    "a sink that is 0": ("sinks", tiled_module, "start", sink_that_is_0, FORWARD[3:], {"o"}),
    "no sinks in softmax": ("sinks", attention_module, "softmax_of", lambda S, _: softmax_of(S), FORWARD[:1], {"o"}),
    "documents off by one": ("documents", Mask, "visible", mask_with(documents=shifted), FORWARD, {"o"}),
    "documents not masked": ("documents", Mask, "_meet_two_documents", lambda *_: False, FORWARD, {"o"}),
    "a window bound exclusive": ("window", Mask, "visible", mask_with(left=one_key_too_few), FORWARD, {"o"}),
    "a key too many exists": ("key_range", Mask, "visible", mask_with(key_range=one_key_more), FORWARD, {"o"}),
    "no way back through the cap": ("softcap", Scores, "uncap", lambda self, dS, a: dS, BACKWARD, {"dq", "dk"}),
    "the cap's slope not squared": ("softcap", Scores, "uncap", not_squared, BACKWARD, {"dq", "dk"}),
    "sinks get nothing": ("sinks", OnChip, "sum_rows", lambda self: sum_rows(self) * 0, BACKWARD, {"dsinks"}),
    "slopes pull the other way": ("alibi", OnChip, "sum_rows", lambda self: -sum_rows(self), BACKWARD, {"dalibi"}),
}
QUICK = ("standard_attention", "tiled_attention_v2", "two sweeps")


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, form) if form in QUICK else slow(name, form) for name in PLANTED for form in PLANTED[name][4]],
)
def test_planted_mistakes_are_caught(name, form, monkeypatch):
    option, where, what, mistake, _, names = PLANTED[name]
    monkeypatch.setattr(where, what, mistake)
    cases = (n for n in FEW if CASES[n][option])  # by what `make test` computes, too
    found: set[str] = set()
    while not names <= found and (n := next(cases, None)) is not None:
        found |= wrong_in(form, n)
    assert names <= found


def wrong(error, message, name="standard_attention", lengths=(4, 4), **options):
    """A call of an algorithm with bad options is rejected, in words."""
    q, k = (torch.randn(2, 4, N, 3) for N in lengths)
    with pytest.raises(error, match=message):
        getattr(fl, name)(q, k[:, :2], k[:, :2], **options)


def int32(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


@pytest.mark.parametrize("name", ["standard_attention", "tiled_attention_v2"])
@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (TypeError, "expected documents to be a torch.Tensor, got list", {"documents": [0, 4]}),
        (TypeError, "expected documents in int32, got torch.int64", {"documents": torch.tensor([0, 4])}),
        (ValueError, r"expected documents of shape \(n \+ 1,\), got \(1, 2\)", {"documents": int32(0, 4)[None]}),
        (ValueError, r"expected documents of shape \(n \+ 1,\), got \(0,\)", {"documents": int32()}),
        (ValueError, "expected documents to start at 0, got 1", {"documents": int32(1, 4)}),
        (ValueError, "documents that do not fall, got 3 and then 2 at 1 and 2", {"documents": int32(0, 3, 2, 4)}),
        (ValueError, "expected documents to end at N = 4, got 3", {"documents": int32(0, 3)}),
        (ValueError, "expected documents to end at N = 4, got 5", {"documents": int32(0, 5)}),
        (
            ValueError,
            "N_q = N_k with documents, got N_q = 3 and N_k = 4",
            {"documents": int32(0, 4), "lengths": (3, 4)},
        ),
        (TypeError, r"expected key_range to be a tuple \(start, stop\) of tensors or None, got 3", {"key_range": 3}),
        (TypeError, "expected the stop of key_range to be a torch.Tensor, got int", {"key_range": (int32(0, 0), 4)}),
        (TypeError, "expected the start of key_range in int32, got", {"key_range": (torch.zeros(2), int32(4, 4))}),
        (
            ValueError,
            r"stop of key_range of shape .* = \(2,\), got \(3,\)",
            {"key_range": (int32(0, 0), int32(4, 4, 4))},
        ),
        (ValueError, "start <= stop <= 4 in key_range, got 0 and 5 at 1", {"key_range": (int32(0, 0), int32(4, 5))}),
        (ValueError, "stop <= 4 in key_range, got -1 and 4 at 0", {"key_range": (int32(-1, 0), int32(4, 4))}),
        (ValueError, "stop <= 4 in key_range, got 3 and 2 at 1", {"key_range": (int32(0, 3), int32(4, 2))}),
        (TypeError, "expected softcap to be a number or None, got str", {"softcap": "50"}),
        (TypeError, "expected softcap to be a number or None, got bool", {"softcap": True}),
        (ValueError, "expected softcap to be positive and finite, or None for no cap, got 0", {"softcap": 0}),
        (ValueError, "expected softcap to be positive and finite, got -1.0", {"softcap": -1.0}),
        (ValueError, "expected softcap to be positive and finite, got inf", {"softcap": float("inf")}),
        (ValueError, "expected softcap to be positive and finite, got nan", {"softcap": float("nan")}),
        (TypeError, "expected alibi to be a torch.Tensor, got float", {"alibi": 0.5}),
        (TypeError, "expected alibi in float32, got torch.float64", {"alibi": torch.zeros(4, dtype=torch.float64)}),
        (TypeError, "expected sinks in float32, got torch.int64", {"sinks": torch.zeros(4, dtype=torch.int64)}),
        (ValueError, r"expected alibi of shape \(H_q,\) = \(4,\), got \(2,\)", {"alibi": torch.zeros(2)}),
        (ValueError, r"expected sinks of shape \(H_q,\) = \(4,\), got \(2, 4\)", {"sinks": torch.zeros(2, 4)}),
        (ValueError, "the left of window to be at least 0, or None .*, got -1", {"window": (-1, None)}),
        (TypeError, "expected options of documents, .*sinks.*, got 'slopes'", {"slopes": 1}),
    ],
)
def test_bad_options_are_rejected(name, error, message, options):
    wrong(error, message, name, **options)


@pytest.mark.parametrize("H_kv", [1, slow(2)])
def test_gradcheck_of_the_reference(H_kv):
    """Autograd through `standard_attention` against finite differences, of every input that has a gradient."""
    g = torch.Generator().manual_seed(H_kv)
    q, *kv = (torch.randn(2, H, 5, 2, generator=g, dtype=torch.float64) for H in (2, H_kv, H_kv))
    sinks, alibi = torch.randn(2, 2, generator=g, dtype=torch.float64)
    hidden = {"causal": True, "window": (2, None), "documents": int32(0, 3, 5), "key_range": (int32(0, 1), int32(4, 5))}

    def reference(q, k, v, sinks, alibi):
        return fl.standard_attention(q, k, v, softcap=1.5, alibi=alibi, sinks=sinks, **hidden)

    assert torch.autograd.gradcheck(reference, [t.requires_grad_() for t in (q, *kv, sinks, alibi)])


def test_a_sink_of_minus_infinity_is_none():
    p = problem({**ALONE, "lengths": (9, 4), "causal": True, "key_range": "right"})
    (q, k, v, do), options, blocks = make(p), masked.given(p), blocks_of(p)
    none = {**options, "sinks": torch.full((4,), -float("inf"), dtype=fp64)}
    for name in ALGORITHMS:
        attend = functools.partial(getattr(fl, name), q, k, v, **blocks_of(p, name))
        assert torch.equal(attend(**none), attend(**options))
    o, lse = fl.tiled_attention_v2(q, k, v, return_lse=True, **none, **blocks)
    assert lse.isneginf().any()
    for fused in (False, True):
        *grads, dsinks = fl.tiled_attention_backward(do, q, k, v, o, lse, fused=fused, **none, **blocks)
        expected = fl.tiled_attention_backward(do, q, k, v, o, lse, fused=fused, **options, **blocks)
        assert all(torch.equal(*pair) for pair in zip(grads, expected, strict=True)) and (dsinks == 0).all()
    *_, dsinks = fl.attention_backward(do, q, k, v, **none)
    torch.testing.assert_close(dsinks, torch.zeros(4, dtype=fp64))


def nothing_to_attend_to() -> dict[str, tuple[int, int, int, dict]]:
    """Problems (B, N_q, N_k, options) in which no query attends to any key."""
    ends = torch.tensor([3], dtype=torch.int32)
    return {
        "no key exists": (1, 4, 6, {"key_range": (ends, ends)}),
        "no key": (1, 4, 0, {}),
        "no key under a mask": (1, 4, 0, {"causal": True, "window": (1, 0)}),
        "no query": (1, 0, 6, {"causal": True}),
        "no sequence": (0, 4, 6, {}),
        "no token": (1, 0, 0, {"documents": torch.zeros(1, dtype=torch.int32)}),
        "the window hides the one key": (1, 4, 6, {"window": (0, 0), "key_range": (ends - 3, ends - 2)}),
    }


@pytest.mark.parametrize("learned", (False, True))
@pytest.mark.parametrize("case", nothing_to_attend_to())
@pytest.mark.parametrize("name", ("standard", "two_pass", "one_pass", "tiled_v1", "tiled_v2"))
def test_gradients_are_zero_where_no_query_attends_to_a_key(name, case, learned):
    """The results belong to the graph of all inputs: a backward pass runs, and leaves zeros."""
    B, N_q, N_k, options = nothing_to_attend_to()[case]
    inputs = [torch.randn(B, heads, N, 3, dtype=torch.float64) for heads, N in ((2, N_q), (1, N_k), (1, N_k))]
    if case == "no key exists":
        inputs[1].fill_(float("nan"))
    if learned:
        options |= {"sinks": torch.zeros(2, dtype=torch.float64), "alibi": torch.ones(2, dtype=torch.float64)}
        inputs += [options["sinks"], options["alibi"]]
    for t in inputs:
        t.requires_grad_()
    attention = getattr(
        fl, {"tiled_v1": "tiled_attention_v1", "tiled_v2": "tiled_attention_v2"}.get(name, f"{name}_attention")
    )
    o = attention(*inputs[:3], **options)
    assert o.shape == inputs[0].shape and not o.any()
    o.sum().backward()
    for t in inputs:
        assert t.grad is not None and t.grad.shape == t.shape and not t.grad.any()
    with torch.no_grad():
        assert not attention(*inputs[:3], **options).requires_grad


def test_lse_and_paged_results_belong_to_the_graph_too():
    q, pages = torch.randn(2, 2, 1, 4, requires_grad=True), torch.randn(1, 1, 4, 4, requires_grad=True)
    table, lengths = torch.zeros(2, 1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    o, lse = fl.paged_attention(q, pages, pages, table, lengths, return_lse=True)
    assert lse.isneginf().all()
    (o.sum() + lse.where(lse.isfinite(), 0).sum()).backward()
    assert not q.grad.any() and not pages.grad.any()
    q, k, v = (torch.randn(1, 1, n, 4, requires_grad=True) for n in (3, 0, 0))
    sinks = torch.zeros(1, requires_grad=True)
    _, lse = fl.tiled_attention_v2(q, k, v, sinks=sinks, return_lse=True)
    lse.sum().backward()  # each query's lse is its sink
    assert sinks.grad.tolist() == [3.0] and not q.grad.any() and not k.grad.any()


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_sinks_and_slopes_in_16_bits_are_converted(dtype):
    """As a model in 16 bits keeps them; gradients come back in their dtype."""
    q, k, v = (torch.randn(1, 2, 5, 4) for _ in range(3))
    for name in ("sinks", "alibi"):
        narrow = torch.tensor([0.3, -1.2], dtype=dtype, requires_grad=True)
        wide = narrow.detach().float().requires_grad_()
        for attention in (fl.standard_attention, fl.tiled_attention_v2):
            narrow.grad = wide.grad = None
            got, want = attention(q, k, v, **{name: narrow}), attention(q, k, v, **{name: wide})
            assert torch.equal(got, want)
            got.sum().backward()
            want.sum().backward()
            assert narrow.grad.dtype == dtype and torch.equal(narrow.grad, wide.grad.to(dtype))
        assert torch.equal(
            fl.attention_backward(q, q, k, v, **{name: narrow.detach()})[3],
            fl.attention_backward(q, q, k, v, **{name: wide.detach()})[3],
        )
