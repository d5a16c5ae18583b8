"""Documents, key ranges, softcap, slopes and sinks through the rungs: against float64 by brute force."""

from __future__ import annotations

import random

import pytest
import torch

import flashlearn as fl

RUNGS = {
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


def offsets(kind: str, N: int) -> torch.Tensor:
    inner = {"one each": range(1, N), "one": [], "mixed": [1, N // 2], "empty ones": [0, N // 3, N // 3, N]}[kind]
    return torch.tensor([0, *sorted(min(n, N) for n in inner), N], dtype=torch.int32)


def ranges(kind: str, N_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """For two sequences; one of them may have no key at all."""
    both = {
        "left": [(N_k // 2, N_k), (0, N_k)],
        "right": [(0, N_k // 2), (0, N_k)],
        "both": [(0, N_k // 4), (N_k - N_k // 4, N_k)],
        "none exist": [(N_k // 2, N_k // 2), (0, N_k)],
        "all exist": [(0, N_k), (0, N_k)],
    }[kind]
    return tuple(torch.tensor(ends, dtype=torch.int32) for ends in zip(*both, strict=True))  # type: ignore[return-value]


def problem(case: dict, dtype=torch.float64, seed: int = 0):
    """(do, q, k, v), the options, and the blocks of a case."""
    g = torch.Generator().manual_seed(seed)
    (N_q, N_k), (H_q, H_kv), D = case["lengths"], case["heads"], 3
    q, do = (torch.randn(2, H_q, N_q, D, generator=g, dtype=torch.float64).to(dtype) for _ in range(2))
    k, v = (torch.randn(2, H_kv, N_k, D, generator=g, dtype=torch.float64).to(dtype) for _ in range(2))
    per_head = torch.float64 if dtype == torch.float64 else torch.float32
    options = {
        "causal": case["causal"],
        "window": case["window"],
        "documents": offsets(case["documents"], N_q) if case["documents"] else None,
        "key_range": ranges(case["key_range"], N_k) if case["key_range"] else None,
        "softcap": case["softcap"],
        "alibi": torch.rand(H_q, generator=g, dtype=per_head) if case["alibi"] else None,
        "sinks": torch.randn(H_q, generator=g, dtype=per_head) if case["sinks"] else None,
        "scale": case["scale"],
    }
    return (do, q, k, v), options, dict(zip(("block_q", "block_k"), case["blocks"], strict=True))


def brute_force(q, k, v, *, causal, window, documents, key_range, softcap, alibi, sinks, scale):
    """(o, lse) in float64, the mask worked out pair by pair from the words of the definition."""
    q, k, v = q.double(), k.double(), v.double()
    (B, H, N_q, D), N_k = q.shape, k.shape[2]
    k, v = (t.repeat_interleave(H // t.shape[1], 1) for t in (k, v))
    left, right = window or (None, None)
    hidden = torch.zeros(B, 1, N_q, N_k, dtype=torch.bool)
    distance = torch.zeros(N_q, N_k, dtype=torch.float64)
    for i in range(N_q):
        for j in range(N_k):
            at = i + N_k - N_q
            distance[i, j] = abs(at - j)
            hides = causal and j > at
            hides |= left is not None and j < at - left
            hides |= right is not None and j > at + right
            if documents is not None:
                starts = documents[1:].tolist()
                hides |= sum(i >= start for start in starts) != sum(j >= start for start in starts)
            for b in range(B):
                exists = key_range is None or int(key_range[0][b]) <= j < int(key_range[1][b])
                hidden[b, 0, i, j] = hides or not exists
    S = q @ k.mT * (D**-0.5 if scale is None else scale)
    S = S if softcap is None else softcap * torch.tanh(S / softcap)
    S = S if alibi is None else S - alibi.double()[:, None, None] * distance
    weights = torch.exp(S).masked_fill(hidden, 0)
    total = weights.sum(-1, keepdim=True)
    total = total if sinks is None else total + torch.exp(sinks.double())[:, None, None]
    o = (weights / total.masked_fill(total == 0, 1)) @ v
    return o, torch.log(total).squeeze(-1)


CASES = pairwise(FACTORS)


@pytest.mark.parametrize("name", RUNGS)
def test_every_rung_gives_what_brute_force_gives(name):
    for case in CASES:
        (_, q, k, v), options, blocks = problem(case)
        mine = {b: blocks[b] for b in RUNGS[name]}
        o = getattr(fl, name)(q, k, v, **options, **mine)
        torch.testing.assert_close(o, brute_force(q, k, v, **options)[0], msg=lambda said, case=case: f"{case}: {said}")


def test_lse_has_the_sink_in_it():
    for case in CASES:
        (_, q, k, v), options, blocks = problem(case)
        o, lse = fl.tiled_attention_v2(q, k, v, return_lse=True, **options, **blocks)
        expected = brute_force(q, k, v, **options)
        torch.testing.assert_close((o, lse), expected, msg=lambda said, case=case: f"{case}: {said}")


def wrong(error, message, name="standard_attention", lengths=(4, 4), **options):
    """A call of a rung with bad options is refused, in words."""
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
        (
            ValueError,
            "expected documents that do not fall, got 3 and then 2 at 1 and 2",
            {"documents": int32(0, 3, 2, 4)},
        ),
        (ValueError, "expected documents to end at N = 4, got 3", {"documents": int32(0, 3)}),
        (ValueError, "expected documents to end at N = 4, got 5", {"documents": int32(0, 5)}),
        (
            ValueError,
            "expected N_q = N_k with documents, got N_q = 3 and N_k = 4",
            {"documents": int32(0, 4), "lengths": (3, 4)},
        ),
        (TypeError, r"expected key_range to be \(start, stop\) or None, got 3", {"key_range": 3}),
        (TypeError, "expected the stop of key_range to be a torch.Tensor, got int", {"key_range": (int32(0, 0), 4)}),
        (TypeError, "expected the start of key_range in int32, got", {"key_range": (torch.zeros(2), int32(4, 4))}),
        (
            ValueError,
            r"expected the stop of key_range of shape \(B,\) = \(2,\), got \(3,\)",
            {"key_range": (int32(0, 0), int32(4, 4, 4))},
        ),
        (
            ValueError,
            "expected 0 <= start <= stop <= 4 in key_range, got 0 and 5 at 1",
            {"key_range": (int32(0, 0), int32(4, 5))},
        ),
        (ValueError, "stop <= 4 in key_range, got -1 and 4 at 0", {"key_range": (int32(-1, 0), int32(4, 4))}),
        (ValueError, "stop <= 4 in key_range, got 3 and 2 at 1", {"key_range": (int32(0, 3), int32(4, 2))}),
        (TypeError, "expected softcap to be a number or None, got str", {"softcap": "50"}),
        (TypeError, "expected softcap to be a number or None, got bool", {"softcap": True}),
        (ValueError, "expected softcap to be positive and finite, got 0", {"softcap": 0}),
        (ValueError, "expected softcap to be positive and finite, got -1.0", {"softcap": -1.0}),
        (ValueError, "expected softcap to be positive and finite, got inf", {"softcap": float("inf")}),
        (ValueError, "expected softcap to be positive and finite, got nan", {"softcap": float("nan")}),
        (TypeError, "expected alibi to be a torch.Tensor, got float", {"alibi": 0.5}),
        (TypeError, "expected alibi in float32, got torch.float64", {"alibi": torch.zeros(4, dtype=torch.float64)}),
        (TypeError, "expected sinks in float32, got torch.int64", {"sinks": torch.zeros(4, dtype=torch.int64)}),
        (ValueError, r"expected alibi of shape \(H_q,\) = \(4,\), got \(2,\)", {"alibi": torch.zeros(2)}),
        (ValueError, r"expected sinks of shape \(H_q,\) = \(4,\), got \(2, 4\)", {"sinks": torch.zeros(2, 4)}),
        (ValueError, "expected the left of window to be at least 0, got -1", {"window": (-1, None)}),
        (TypeError, "expected options of documents, .*sinks, causal, window, scale, got 'slopes'", {"slopes": 1}),
    ],
)
def test_bad_options_are_refused(name, error, message, options):
    wrong(error, message, name, **options)


def gradients(case, form):
    """(names, those of `form`, those of autograd through brute force) in float64."""
    (do, *qkv), options, blocks = problem(case)
    leaves = {**dict(zip("qkv", qkv, strict=True)), "sinks": options["sinks"], "alibi": options["alibi"]}
    leaves = {name: t.clone().requires_grad_() for name, t in leaves.items() if t is not None}
    asked = {**options, **{name: leaves[name] for name in ("sinks", "alibi") if name in leaves}}
    o = brute_force(leaves["q"], leaves["k"], leaves["v"], **asked)[0]
    expected = torch.autograd.grad(o, list(leaves.values()), do, allow_unused=True)
    expected = [torch.zeros_like(t) if g is None else g for t, g in zip(leaves.values(), expected, strict=True)]
    if form == "dense":
        got = fl.attention_backward(do, *qkv, **options)
    elif form == "stored":
        P = fl.last(fl.standard_attention_steps(*qkv, **options)).values["P"]
        got = fl.attention_backward(do, *qkv, stored=P, **options)
    else:
        o, lse = fl.tiled_attention_v2(*qkv, return_lse=True, **options, **blocks)
        fused = form == "fused"
        got = fl.tiled_attention_backward(do, *qkv, o, lse, fused=fused, **options, **blocks)
    return list(leaves), got, expected


@pytest.mark.parametrize("form", ["dense", "stored", "two sweeps", "fused"])
def test_gradients_are_those_of_autograd_through_brute_force(form):
    for case in CASES:
        names, got, expected = gradients(case, form)
        assert len(got) == len(names)
        for name, mine, theirs in zip(names, got, expected, strict=True):
            torch.testing.assert_close(mine, theirs, msg=lambda said, at=(name, case): f"{at}: {said}")


@pytest.mark.parametrize("H_kv", [1, 2])
def test_gradcheck_of_the_reference(H_kv):
    """Autograd through `standard_attention` against finite differences, of every input that has a gradient."""
    g = torch.Generator().manual_seed(H_kv)
    q, *kv = (torch.randn(2, H, 5, 2, generator=g, dtype=torch.float64) for H in (2, H_kv, H_kv))
    sinks, alibi = torch.randn(2, 2, generator=g, dtype=torch.float64)
    hidden = {"causal": True, "window": (2, None), "documents": int32(0, 3, 5), "key_range": (int32(0, 1), int32(4, 5))}

    def reference(q, k, v, sinks, alibi):
        return fl.standard_attention(q, k, v, softcap=1.5, alibi=alibi, sinks=sinks, **hidden)

    assert torch.autograd.gradcheck(reference, [t.requires_grad_() for t in (q, *kv, sinks, alibi)])
