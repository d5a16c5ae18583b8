"""What wrong answers to the exercises of notebook 12 get wrong."""

from __future__ import annotations

import math

import torch

from flashlearn.course.triton_forward.exercises import LOG2_E, mask_kernel, visit_kernel
from flashlearn.exercises.formulas import slips_of
from flashlearn.exercises.launching import launch, launched

INF = float("inf")
SCALE = 0.25


def _seen(hide, start_m, start_n, N_q, N_k, shape=(16, 32)):
    """Which scores of a block are left; none is -inf before."""
    s, got = torch.zeros(shape), torch.full(shape, torch.nan)
    launch(mask_kernel, s, got, start_m, start_n, N_q, N_k, HIDE=hide, BLOCK_M=shape[0], BLOCK_N=shape[1])
    return got, got != -INF


def hidden_is_minus_inf(hide):
    """The first query of a square problem attends to one key: what do the others hold?"""
    got, seen = _seen(hide, 0, 0, 64, 64)
    left = got[0, 1:]
    if seen.all() and (left != 0).any() and left.unique().numel() == 1:
        return f"hidden scores become {left[0].item():.4g}: they must be -inf, the only score whose weight is always 0"
    if not (got[seen] == 0).all():
        return f"a visible score changes from 0 to {got[seen][got[seen] != 0][0].item():.4g}: it must stay as it is"
    return ""


def who_sees_whom(hide):
    """Query i attends to the keys 0 to i + N_k - N_q: how many does each query keep in five blocks?"""
    for block in ((0, 0, 64, 64), (16, 0, 64, 64), (16, 16, 64, 64), (0, 0, 16, 40), (32, 0, 64, 48)):
        start_m, start_n, N_q, N_k = block
        _, seen = _seen(hide, *block)
        i, j = torch.arange(16)[:, None] + start_m, torch.arange(32)[None, :] + start_n
        if torch.equal(seen, j <= i + N_k - N_q):
            continue
        told = f"for queries from {start_m} on and keys from {start_n} on, with N_q = {N_q} and N_k = {N_k}"
        if torch.equal(seen, j >= i + N_k - N_q) or torch.equal(seen, j > i + N_k - N_q):
            return f"{told}: the comparison is reversed, a query attends to the keys after it and not to those before"
        for off in (1, -1, N_q - N_k, 2 * (N_q - N_k), start_m, -start_m, start_n, -start_n):
            if off and torch.equal(seen, j <= i + N_k - N_q + off):
                return (
                    f"{told}: query i attends to the keys up to {_offset(N_k - N_q + off)}, expected up to {_offset(N_k - N_q)}, j <= i + N_k - N_q"
                    + (": one key too many" if off == 1 else ": its own key is missing" if off == -1 else "")
                )
        return f"{told}: query {start_m} attends to {int(seen[0].sum())} of these 32 keys, expected {int((j <= i + N_k - N_q)[0].sum())}, j <= i + N_k - N_q"
    return ""


def _offset(by: int) -> str:
    return "i" if not by else f"i {'+' if by >= 0 else '-'} {abs(by)}"


# What may be wrong in a visit, as a switch of `_simulated`
SLIPS = {
    "scale": "the scale is missing: s is q.k times qk_scale",
    "base": "tl.exp is used instead of tl.exp2: qk_scale includes the factor log2(e), so the base is 2",
    "upside": "alpha is upside down: it is exp2 of the old maximum minus the new, m_i - m_new",
    "acc": "acc is not rescaled: alpha converts it to the new maximum",
    "l": "l_i is not rescaled: alpha converts it to the new maximum",
    "new acc": "the new terms of acc are multiplied by alpha: they are measured from the new maximum already",
    "new l": "the new terms of l_i are multiplied by alpha: they are measured from the new maximum already",
    "top left": "the mask is aligned to the top left: query i attends to the keys j <= i + N_k - N_q",
    "no mask": "there is no mask: query i attends to the keys j <= i + N_k - N_q",
    "late mask": "the mask comes after the maximum: a hidden score must not raise it",
    "strict": "a query does not attend to its own key: j <= i + N_k - N_q, not <",
}


def _simulated(qkv, slips):
    """o and lse (base e) of all queries, in blocks of 16 keys, with these slips."""
    q, k, v = (t.double() for t in qkv)
    N_q, N_k = len(q), len(k)
    m, l, acc = torch.full((N_q, 1), -INF).double(), torch.zeros(N_q, 1).double(), torch.zeros(N_q, 16).double()
    power = torch.exp if "base" in slips else torch.exp2
    i = torch.arange(N_q)[:, None] + (0 if "top left" in slips else N_k - N_q) - int("strict" in slips)
    for start in range(0, N_k, 16):
        s = q @ k[start : start + 16].mT * (1 if "scale" in slips else SCALE * LOG2_E)
        hidden = (torch.arange(start, start + s.shape[1])[None, :] > i) & ("no mask" not in slips)
        shown = s.masked_fill(hidden, -INF)
        m_new = torch.maximum(m, (s if "late mask" in slips else shown).max(-1, keepdim=True).values)
        base = m_new.masked_fill(m_new == -INF, 0)
        p, alpha = power(shown - base), power(m - base)
        alpha = (1 / alpha).nan_to_num(0, 0, 0) if "upside" in slips else alpha
        l = l * (1 if "l" in slips else alpha) + p.sum(-1, keepdim=True) * (alpha if "new l" in slips else 1)
        acc = acc * (1 if "acc" in slips else alpha) + p @ v[start : start + 16] * (alpha if "new acc" in slips else 1)
        m = m_new
    l = l.masked_fill(l == 0, 1)
    return acc / l, ((m + l.log2()) * math.log(2))[:, 0]


def _inputs(*heads):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*heads, n, 16, generator=generator) for n in (32, 48, 48)]


def which_slips(visit):
    """Run the loop in PyTorch with one thing wrong, then with two: which gives the same?"""
    qkv, o, lse = _inputs(), torch.full((32, 16), torch.nan), torch.full((32,), torch.nan)
    constants = {"VISIT": visit, "D": 16, "BLOCK_M": 32, "BLOCK_N": 16}
    launch(visit_kernel, *qkv, o, lse, 0, 32, 48, SCALE * LOG2_E, **constants)
    return slips_of((o, lse), lambda slips: _simulated(qkv, slips), SLIPS)


def _launched(kernel, qkv, qk_scale, causal, block_m):
    """o and lse of a whole kernel."""
    N_q, N_k = qkv[0].shape[1], qkv[1].shape[1]
    o, lse = torch.full((1, N_q, 16), torch.nan), torch.full((1, N_q), torch.nan)
    constants = {"D": 16, "BLOCK_M": block_m, "BLOCK_N": 16, "CAUSAL": causal}
    launched(kernel, (1, 1), constants, *qkv, o, lse, N_q, N_k, qk_scale)
    return o, lse


def slips_of_a_kernel(kernel):
    """The same of a whole kernel, causal, with more keys than queries."""
    qkv = _inputs(1)
    o, lse = _launched(kernel, qkv, SCALE * LOG2_E, True, 32)
    return slips_of((o[0], lse[0]), lambda slips: _simulated([t[0] for t in qkv], slips), SLIPS)


def lse_of_a_kernel(kernel):
    """Equal scores: o is right whatever becomes of lse."""
    ones = torch.ones(1, 16, 16)
    o, lse = _launched(kernel, (torch.zeros_like(ones), ones, ones), 1.0, False, 16)
    if torch.allclose(o, ones) and not torch.allclose(lse, torch.full_like(lse, math.log(16))):
        return f"o is right, but lse is not: for 16 keys of score 0, expected lse = log 16 = 2.773, got {lse[0, 0].item():.4g}"
    return ""


CAUSES = {
    "causal": (hidden_is_minus_inf, who_sees_whom),
    "bugs": (which_slips,),
    "kernel": (lse_of_a_kernel, slips_of_a_kernel),
}
