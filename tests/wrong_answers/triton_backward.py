"""Wrong answers to the exercises of notebook 13."""

from __future__ import annotations

from typing import Any

from flashlearn.course.triton_backward.solutions import kernel_solution
from flashlearn.exercises.altered import altered

tl: Any = None  # triton.language once a check runs: this module must import where Triton is missing


def dv_product_in_the_dtype_of_do(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee").to(do.dtype)


def dv_in_the_dtype_of_do(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    dv += tl.dot(p_t.to(do.dtype), do, input_precision="ieee")
    return dv.to(do.dtype).to(tl.float32)


def dv_scores_in_the_dtype_of_q(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee").to(q.dtype).to(tl.float32) * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_few_digits(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.44)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_exp_first(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp(s_t) / tl.exp(lse)[None, :]
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_masked_before(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    s_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, s_t, float("-inf"))
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_strict_mask(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] < rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_lse_added(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t + lse[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_scaled(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + scale * tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_without_a_mask(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = tl.where((keys < N_k)[:, None] & (rows < N_q)[None, :], p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_lse_along_the_keys(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[:, None]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_of_p_clamped(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.minimum(tl.dot(k, tl.trans(q), input_precision="ieee") * scale, 10.0)
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def ds_turned_at_the_end(p_t, v, do, delta):
    dp = tl.dot(do, tl.trans(v), input_precision="ieee")
    return tl.trans(tl.trans(p_t) * (dp - delta[:, None]))


def ds_product_turned(p_t, v, do, delta):
    return p_t * (tl.trans(tl.dot(do, tl.trans(v), input_precision="ieee")) - delta[None, :])


def ds_product_in_the_dtype_of_v(p_t, v, do, delta):
    return p_t * (tl.dot(v, tl.trans(do), input_precision="ieee").to(v.dtype) - delta[None, :])


def ds_delta_in_the_dtype_of_v(p_t, v, do, delta):
    return p_t * (tl.dot(v, tl.trans(do), input_precision="ieee") - delta.to(v.dtype)[None, :])


def ds_difference_in_the_dtype_of_v(p_t, v, do, delta):
    dp_t = tl.dot(v, tl.trans(do), input_precision="ieee")
    return p_t * (dp_t.to(v.dtype) - delta[None, :].to(v.dtype))


def ds_delta_added(p_t, v, do, delta):
    return p_t * (tl.dot(v, tl.trans(do), input_precision="ieee") + delta[None, :])


def ds_delta_outside(p_t, v, do, delta):
    return p_t * tl.dot(v, tl.trans(do), input_precision="ieee") - delta[None, :]


def ds_scaled(p_t, v, do, delta):
    return p_t * (tl.dot(v, tl.trans(do), input_precision="ieee") - delta[None, :]) * 0.25


def ds_delta_weighed(p_t, v, do, delta):
    return p_t * (tl.dot(v, tl.trans(do), input_precision="ieee") - p_t * delta[None, :])


def ds_one_delta(p_t, v, do, delta):
    return p_t * (tl.dot(v, tl.trans(do), input_precision="ieee") - tl.sum(delta, 0))


def ds_p_squared(p_t, v, do, delta):
    return p_t * (1 - p_t) * (tl.dot(v, tl.trans(do), input_precision="ieee") - delta[None, :])


WRONG = {
    "13.dv": (
        ("a product is rounded to the dtype of dO", dv_product_in_the_dtype_of_do, "and dv is: keep both"),
        ("dV is kept in the dtype of dO", dv_in_the_dtype_of_do, "and dv is: keep both"),
        ("the scores are rounded to the dtype of Q", dv_scores_in_the_dtype_of_q, "what tl.dot gives is float32"),
        ("log2(e) is taken for 1.44", dv_few_digits, "with all digits"),
        ("exp is taken before lse is subtracted, which overflows", dv_exp_first, "subtract lse before the exponential"),
        ("large scores are cut off", dv_of_p_clamped),
        ("the mask comes before the exponential", dv_masked_before),
        ("a query does not see its own key", dv_strict_mask),
        ("lse is added", dv_lse_added),
        ("the scale comes in twice", dv_scaled),
        ("only what lies past the end is hidden", dv_without_a_mask),
        ("lse is laid along the keys", dv_lse_along_the_keys),
    ),
    "13.ds": (
        ("dS is computed, and turned at the end", ds_turned_at_the_end, "turning it is dear"),
        ("dP is computed, and turned", ds_product_turned, "turning it is dear"),
        ("dP is rounded to the dtype of V", ds_product_in_the_dtype_of_v, "their difference is noise"),
        ("delta is rounded to the dtype of V", ds_delta_in_the_dtype_of_v, "their difference is noise"),
        ("the difference is taken in the dtype of V", ds_difference_in_the_dtype_of_v, "their difference is noise"),
        ("delta is added", ds_delta_added),
        ("delta is taken off P o dP, not off dP", ds_delta_outside),
        ("the scale comes in here as well", ds_scaled),
        ("delta is weighed twice", ds_delta_weighed),
        ("one delta for all queries", ds_one_delta),
        ("P (1 - P) in place of P", ds_p_squared),
    ),
}


def dv_by_exp(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    p = tl.exp(tl.dot(q, tl.trans(k), input_precision="ieee") * scale - lse[:, None])
    p = tl.where((keys[None, :] - N_k <= rows[:, None] - N_q) & (lse > float("-inf"))[:, None], p, 0.0)
    return tl.dot(tl.trans(p), do.to(tl.float32), dv, input_precision="ieee")


def ds_two_terms(p_t, v, do, delta):
    dp_t = tl.dot(v.to(tl.float32), tl.trans(do.to(tl.float32)), input_precision="ieee")
    return p_t * dp_t - p_t * tl.expand_dims(delta, 0)


def _kernel(*changes):
    return altered(kernel_solution, *changes)


WRONG["13.kernel"] = (
    ("dK and dV change places", _kernel(("tl.store(dk_ptr + at_k, dk", "tl.store(dk_ptr + at_k, dv"), ("tl.store(dv_ptr + at_k, dv", "tl.store(dv_ptr + at_k, dk")), ""),
    ("the scale comes in at dS and at dK", _kernel(("p_t * (dp_t", "scale * p_t * (dp_t")), "dK takes the scale once"),
    ("delta is added", _kernel(("dp_t - delta", "dp_t + delta")), "delta must be subtracted"),
    ("the scale is left out of S", _kernel((') * scale\n        p_t', ')\n        p_t')), "the scale is left out"),
    ("dS is weighed twice", _kernel(("ds_t = p_t * (", "ds_t = p_t * p_t * (")), ""),
    ("the loop goes in steps of BLOCK_N", _kernel(("range(first, N_q, BLOCK_M)", "range(first, N_q, BLOCK_N)")), ""),
    ("dV is stored past the end", _kernel(("tl.store(dv_ptr + at_k, dv.to(dv_ptr.dtype.element_ty), mask=(keys < N_k)[:, None])", "tl.store(dv_ptr + at_k, dv.to(dv_ptr.dtype.element_ty))")), ""),
    ("lse is 0 past the end, and the rows of dO are not masked", _kernel(('other=float("inf")', "other=0.0"), ("tl.load(do_ptr + at_q, mask=(rows < N_q)[:, None], other=0.0)", "tl.load(do_ptr + at_q)")), "lies outside"),
    ("Q and dO are those of the first head", _kernel(("(head * N_q + rows)[:, None]", "rows[:, None]")), ""),
    ("lse is that of the first head", _kernel(("lse_ptr + head * N_q + rows", "lse_ptr + rows")), ""),
    ("P stays float32", _kernel(("p_t.to(do.dtype)", "p_t")), ""),
    ("K is loaded in every turn", _kernel(("        rows = start_m", "        k = tl.load(k_ptr + at_k, mask=(keys < N_k)[:, None], other=0.0)\n        rows = start_m")), "bytes read"),
    ("the loop ends before the last query", _kernel(("range(first, N_q, BLOCK_M)", "range(first, N_q - 1, BLOCK_M)")), "FAIL  ragged lengths"),
    ("lse is rounded to the dtype of Q", _kernel(('other=float("inf"))', 'other=float("inf")).to(q.dtype).to(tl.float32)')), "all else stays float32"),
    ("dP is rounded to the dtype of V", _kernel(('tl.dot(v, tl.trans(do), input_precision="ieee")', 'tl.dot(v, tl.trans(do), input_precision="ieee").to(v.dtype).to(tl.float32)')), ""),
    ("one product of four is rounded to TF32 on a GPU", _kernel(('ds_t.to(q.dtype), q, dk, input_precision="ieee")', "ds_t.to(q.dtype), q, dk)")), 'input_precision="ieee" in all four'),
    ("all programs write to the first block", _kernel(("at_k = (head * N_k + keys)[:, None] * D + d", "at_k = (head * N_k + keys % BLOCK_N)[:, None] * D + d")), ""),
)  # fmt: skip


def kernel_of_untransposed_scores(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, N_q, N_k, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """S, P and dS lie as in the forward pass, and are turned for the sums; blocks of queries go from the last to the first."""
    head, d = tl.cast(tl.program_id(1), tl.int64), tl.arange(0, D)[None, :]
    j = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    own = head * N_k * D + j[:, None] * D + d
    k = tl.load(k_ptr + own, mask=j[:, None] < N_k, other=0.0)
    v = tl.load(v_ptr + own, mask=j[:, None] < N_k, other=0.0)
    dk, dv = tl.zeros((BLOCK_N, D), dtype=tl.float32), tl.zeros((BLOCK_N, D), dtype=tl.float32)
    skipped = 0
    if CAUSAL:
        skipped = tl.maximum(tl.program_id(0) * BLOCK_N - (N_k - N_q), 0) // BLOCK_M
    count = tl.cdiv(N_q, BLOCK_M)
    for n in range(count - skipped):
        i = (count - 1 - n) * BLOCK_M + tl.arange(0, BLOCK_M)
        there = head * N_q * D + i[:, None] * D + d
        q = tl.load(q_ptr + there, mask=i[:, None] < N_q, other=0.0)
        do = tl.load(do_ptr + there, mask=i[:, None] < N_q, other=0.0)
        lse = tl.load(lse_ptr + head * N_q + i, mask=i < N_q, other=0.0)
        delta = tl.load(delta_ptr + head * N_q + i, mask=i < N_q, other=0.0)
        seen = (i[:, None] < N_q) & (j[None, :] < N_k)
        if CAUSAL:
            seen = seen & (j[None, :] - N_k <= i[:, None] - N_q)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        p = tl.exp(tl.where(seen, s - lse[:, None], float("-inf")))
        dv += tl.dot(tl.trans(p.to(do.dtype)), do, input_precision="ieee")
        ds = p * (tl.dot(do, tl.trans(v), input_precision="ieee") - delta[:, None])
        dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee")
    tl.store(dv_ptr + own, dv.to(v.dtype), mask=j[:, None] < N_k)
    tl.store(dk_ptr + own, (scale * dk).to(k.dtype), mask=j[:, None] < N_k)


RIGHT = {
    "13.kernel": (
        ("S and dS as in the forward pass, blocks from the last to the first", kernel_of_untransposed_scores),
        (
            "products of float32 in three parts of TF32",
            _kernel(
                ('k, tl.trans(q), input_precision="ieee")', 'k, tl.trans(q), input_precision="tf32x3")'),
                ('v, tl.trans(do), input_precision="ieee")', 'v, tl.trans(do), input_precision="tf32x3")'),
                ('do, dv, input_precision="ieee")', 'do, dv, input_precision="tf32x3")'),
                ('q, dk, input_precision="ieee")', 'q, dk, input_precision="tf32x3")'),
            ),
        ),
        (
            "products are added, not handed to tl.dot, and lse is masked by tl.where",
            _kernel(
                ("dv = tl.dot(p_t.to(do.dtype), do, dv, input", "dv += tl.dot(p_t.to(do.dtype), do, input"),
                ('mask=rows < N_q, other=float("inf"))', "mask=rows < N_q, other=0.0)"),
                (
                    "        if CAUSAL:\n            p_t",
                    "        p_t = tl.where((rows < N_q)[None, :], p_t, 0.0)\n        if CAUSAL:\n            p_t",
                ),
            ),
        ),
    ),
    "13.dv": (("P by exp, turned, dV handed to tl.dot", dv_by_exp),),
    "13.ds": (("two terms, in float32", ds_two_terms),),
}
