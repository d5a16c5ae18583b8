"""What wrong answers to the exercises of notebook 13 get wrong."""

from __future__ import annotations

from unittest import mock

import torch

from flashlearn.course.triton_backward.exercises import ds_kernel, dv_kernel
from flashlearn.exercises.formulas import follows, slips_of
from flashlearn.exercises.launching import launch, launched

INF = float("inf")
LOG2_E = 1.4426950408889634
# What may be wrong in dV, as a switch of `_simulated`
SLIPS = {
    "scale": "the scale is missing: S^T is K Q^T times the argument scale",
    "no mask": "there is no mask: query i attends to the keys j <= i + N_k - N_q, and P is 0 elsewhere",
    "units": "exp2 needs the factor log2(e) = 1.4427: S and lse are in natural units",
    "units of S": "lse is multiplied by log2(e), but S is not: exp2 needs the factor in both",
    "units of lse": "S is multiplied by log2(e), but lse is not: exp2 needs the factor in both",
    "no lse": "lse is not subtracted: P = exp(S - lse)",
    "plus": "lse is added: P = exp(S - lse)",
    "overwrite": "the dv that was passed in is lost: add to it",
    "top left": "the mask is aligned to the top left: query i attends to the keys j <= i + N_k - N_q",
    "strict": "a query does not attend to its own key: j <= i + N_k - N_q, not <",
    "turned": "the comparison of the mask is reversed: a query attends to the keys before it, not to those after it",
    "keys are columns": "the factor P is missing: dV = P^T dO",
}


def _problem(N_q, N_k):
    generator = torch.Generator().manual_seed(0)
    q, k, do = (torch.randn(n, 16, generator=generator) for n in (N_q, N_k, N_q))
    seen = torch.arange(N_k)[None, :] <= torch.arange(N_q)[:, None] + N_k - N_q
    lse = torch.logsumexp((q @ k.mT * 0.5).masked_fill(~seen, -INF), -1)
    return q, k, do, lse


def _simulated(problem, slips):
    """dK and dV in float64, in blocks of 32 queries, with these slips."""
    q, k, v, do, lse, delta = (t.double() for t in problem)
    N_q, N_k = len(q), len(k)
    s = q @ k.mT * (1 if "scale" in slips else 0.5)
    lse = lse[:, None] * (0 if "no lse" in slips else -1 if "plus" in slips else 1)
    a = 1 if {"units", "units of S"} & set(slips) else LOG2_E
    b = 1 if {"units", "units of lse"} & set(slips) else LOG2_E
    i = torch.arange(N_q)[:, None] + (0 if "top left" in slips else N_k - N_q) - int("strict" in slips)
    j = torch.arange(N_k)[None, :]
    seen = torch.ones_like(s, dtype=torch.bool) if "no mask" in slips else j >= i if "turned" in slips else j <= i
    p = torch.exp2(a * s - b * lse).masked_fill(~seen, 0)
    sign = 0 if "no delta" in slips else -1 if "delta added" in slips else 1
    ds = (seen if "no P" in slips else p) * (do @ v.mT - sign * delta[:, None])
    dk = (1 if "scale of dK" in slips else 0.25 if "scale twice" in slips else 0.5) * ds.mT @ q
    rows = slice((N_q - 1) // 32 * 32 if "overwrite" in slips else 0, N_q)
    dv = (torch.ones_like(p) if "keys are columns" in slips else p)[rows].mT @ do[rows]
    return (dv, dk) if "V for dO" in slips else (dk, dv)


def _dv(add_dv, q, k, do, lse):
    got = torch.full((16, 16), torch.nan)
    launch(dv_kernel, q, k, do, lse, got, 0, len(q), len(k), 0.5, ADD_DV=add_dv, D=16, BLOCK_M=32, BLOCK_N=16)
    return got


def which_slips(add_dv):
    """Compute dV in PyTorch with one thing wrong, then with two: which gives the same?"""
    q, k, do, lse = _problem(40, 48)
    got = _dv(add_dv, q, k, do, lse)
    return slips_of([got], lambda slips: [_simulated((q, k, k, do, lse, lse), slips)[1][:16]], SLIPS)


def a_query_that_sees_nothing(add_dv):
    """Its lse is -inf. A hidden score may be so large that exp overflows. Neither may give NaN."""
    q, k, do, lse = _problem(32, 16)
    if not _dv(add_dv, q, k, do, lse).isnan().any():
        return ""
    q, k, do, lse = _problem(32, 32)
    hidden = k.clone()
    hidden[15] = 1e4 * q[0]  # a score of the first query, which does not see key 15
    lse = torch.where(torch.arange(32) >= 15, 1e30, lse)  # nobody who sees it minds
    if _dv(add_dv, q, hidden, do, lse).isnan().any():
        return "P is multiplied by the mask: where exp overflows or lse is -inf, inf times 0 is NaN; tl.where selects and does not multiply"
    return (
        "a query without keys has lse = -inf, and the result is NaN: the mask comes before the exponential, and -inf - -inf is NaN; "
        "apply tl.where after the exponential"
    )


def the_formula(ds_t):
    """A square block, all tiles random: dS^T = P^T o (dP^T - delta)."""
    generator = torch.Generator().manual_seed(0)
    p, v, do, delta = (torch.randn(shape, generator=generator) for shape in ((16, 16), (16, 16), (16, 16), (16,)))
    got = torch.full((16, 16), torch.nan)
    launch(ds_kernel, p, v, do, delta, got, DS=ds_t, D=16, BLOCK_M=16, BLOCK_N=16)
    p, v, do, row = (t.double() for t in (p, v, do, delta[None, :]))
    dp = v @ do.mT
    candidates = {
        "P^T o dP^T | delta is missing": p * dp,
        "dP^T - delta | the factor P^T is missing": dp - row,
        "P^T o (dP^T + delta) | delta must be subtracted": p * (dp + row),
        "P^T o dP^T - delta | brackets are missing: multiply the difference by P^T": p * dp - row,
        "P^T o (dP^T - delta along the keys) | queries are the columns here: delta[None, :]": p * (dp - row.mT),
        "P^T o (dP - delta) | dP^T is V dO^T, not dO V^T": p * (dp.mT - row),
        "P^T o (V dO - delta) | dO must be transposed, tl.trans(do)": p * (v @ do - row),
        "P o (dP^T - delta) | p_t is P^T already, it needs no tl.trans": p.mT * (dp - row),
        "P^T o (dP^T - sum of P^T o dP^T) | this block holds only some of the keys: use the argument delta": p
        * (dp - (p * dp).sum(0)),
    }
    return follows(got, candidates, "P^T o (dP^T - delta)", p * (dp - row))


KERNEL_SLIPS = {
    "scale of dK": "the scale of dK is missing: dK = scale dS^T Q",
    "scale twice": "dK is scaled twice: dK = scale dS^T Q",
    "no delta": "delta is missing: dS = P o (dP - delta)",
    "delta added": "delta must be subtracted: dS = P o (dP - delta)",
    "no P": "the factor P is missing in dS = P o (dP - delta)",
    "V for dO": "dK and dV are exchanged: dK is the sum of dS^T Q, and dV the sum of P^T dO",
    **{slip: told for slip, told in SLIPS.items() if slip not in ("plus", "overwrite", "turned", "keys are columns")},
}


def _launched(kernel, given, block_m, causal):
    """dK and dV of a whole kernel."""
    N_q, N_k = len(given[0]), len(given[1])
    results = [torch.full((1, N_k, 16), torch.nan) for _ in range(2)]
    constants = {"D": 16, "BLOCK_M": block_m, "BLOCK_N": 16, "CAUSAL": causal}
    launched(kernel, (-(-N_k // 16), 1), constants, *(t[None] for t in given), *results, N_q, N_k, 0.5)
    return [t[0] for t in results]


def slips_of_a_kernel(kernel):
    """Compute dK and dV in PyTorch with one thing wrong, then with two: which gives the same?"""
    q, k, do, lse = _problem(32, 48)
    v = torch.randn(48, 16, generator=torch.Generator().manual_seed(1))
    seen = torch.arange(48)[None, :] <= torch.arange(32)[:, None] + 16
    p = torch.exp((q @ k.mT * 0.5).masked_fill(~seen, -INF) - lse[:, None])
    problem = q, k, v, do, lse, (p * (do @ v.mT)).sum(-1)
    return slips_of(_launched(kernel, problem, 32, True), lambda slips: _simulated(problem, slips), KERNEL_SLIPS)


def blocks_of_queries(kernel):
    """Column i of dO is 1 in block i of the queries alone: column i of dV is 0 where the loop leaves that block out."""
    for N_q, N_k, causal in ((64, 64, False), (64, 64, True), (64, 32, True), (32, 64, True)):
        q, k, _, lse = _problem(N_q, N_k)
        block = torch.arange(N_q) // 16
        do = torch.nn.functional.one_hot(block, 16).float()
        seen = torch.arange(N_k)[None, :] <= torch.arange(N_q)[:, None] + N_k - N_q
        lse = lse if causal else torch.logsumexp(q @ k.mT * 0.5, -1)
        _, dv = _launched(kernel, (q, k, k, do, lse, torch.zeros(N_q)), 16, causal)
        reached = dv.reshape(N_k // 16, 16, 16).ne(0).any(1)  # [block of keys, block of queries]
        for j, row in enumerate(reached.tolist()):
            wanted = [i for i in range(N_q // 16) if not causal or seen[block == i, 16 * j : 16 * j + 16].any()]
            missing = [i for i in wanted if not row[i]]
            if missing and len(missing) < len(wanted):
                end = "begins too late" if missing[0] == wanted[0] else "ends too early"
                return (
                    f"{N_q} queries, {N_k} keys{', causal' if causal else ''}, blocks of 16: queries from {16 * wanted[0]} on attend to "
                    f"the keys {16 * j} to {16 * j + 15}, but the queries {16 * missing[0]} to {16 * missing[-1] + 15} are missing: "
                    f"the loop {end}"
                )
    return ""


def an_other_is_missing(kernel):
    """Is the result NaN only because of what a load gives where its mask hides?"""
    from flashlearn.kernels import recorder

    def gives_nan():
        q, k, do, lse = _problem(20, 20)
        return any(t.isnan().any() for t in _launched(kernel, (q, k, k, do, lse, lse), 16, True))

    with mock.patch.object(recorder, "UNDEFINED", 0.0):
        if gives_nan():
            return ""
    if not gives_nan():
        return ""
    return "a load has a mask, but no other=...: a GPU returns any value where the mask hides, here NaN; pass other=..."


CAUSES = {
    "dv": (which_slips, a_query_that_sees_nothing),
    "ds": (the_formula,),
    "kernel": (slips_of_a_kernel, blocks_of_queries, an_other_is_missing),
}
