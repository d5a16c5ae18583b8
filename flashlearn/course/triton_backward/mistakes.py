"""Known wrong answers to the exercises of notebook 13."""

from typing import Any

from flashlearn.course.triton_backward.solutions import kernel_solution
from flashlearn.exercises.altered import altered
from flashlearn.exercises.assessment import Mistake

tl: Any = None  # triton.language once a check runs: this module must import where Triton is missing


def dv_overwritten(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_softmax_over_the_block(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - tl.max(s_t, 0)[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    p_t = p_t / tl.maximum(tl.sum(p_t, 0), 1e-30)[None, :]
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_lse_in_other_units(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * (scale * 1.4426950408889634)
    p_t = tl.exp2(s_t - lse[None, :])
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_fixed_scale(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * 0.25
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_aligned_top_left(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :], p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_mask_multiplied(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = p_t * (keys[:, None] <= rows[None, :] + N_k - N_q).to(tl.float32)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


def dv_dtypes_mixed(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(p_t, do, input_precision="ieee")


def ds_without_delta(p_t, v, do, delta):
    return p_t * tl.dot(v, tl.trans(do), input_precision="ieee")


def ds_delta_along_the_keys(p_t, v, do, delta):
    return p_t * (tl.dot(v, tl.trans(do), input_precision="ieee") - delta[:, None])


def ds_not_transposed(p_t, v, do, delta):
    return p_t * (tl.dot(do, tl.trans(v), input_precision="ieee") - delta[None, :])


def ds_delta_of_the_block(p_t, v, do, delta):
    dp_t = tl.dot(v, tl.trans(do), input_precision="ieee")
    return p_t * (dp_t - tl.sum(p_t * dp_t, 0)[None, :])


def ds_without_p(p_t, v, do, delta):
    return tl.dot(v, tl.trans(do), input_precision="ieee") - delta[None, :]


# Bugs planted in the kernel of the exercise
BUGS = (
    ("every program takes the first block of keys", "one block of queries", (("tl.program_id(0) * BLOCK_N", "0"),)),
    ("dK is not multiplied by the scale", "one block of queries", (("dk = dk * scale", "dk = dk * 1.0"),)),
    ("delta is left out of dS", "one block of queries", ((" - delta[None, :])", ")"),)),
    ("lse, a natural logarithm, goes into exp2 as it is", "one block of queries",
     (("(s_t - lse[None, :]) * 1.4426950408889634", "s_t * 1.4426950408889634 - lse[None, :]"),)),
    ("dV is made from dS in place of P", "one block of queries",
     (("dv = tl.dot(p_t.to(do.dtype), do, dv", "dv = tl.dot((p_t * (tl.dot(v, tl.trans(do)) - delta[None, :])).to(do.dtype), do, dv"),)),
    ("dV is kept in float16", "compiles for sm_90",
     (("dv = tl.zeros((BLOCK_N, D), dtype=tl.float32)", "dv = tl.zeros((BLOCK_N, D), dtype=tl.float16)"),)),
    ("dK is one number before the loop, and a tile in it", "compiles for sm_90",
     (("dk = tl.zeros((BLOCK_N, D), dtype=tl.float32)", "dk = 0.0"),
      ("dk = tl.dot(ds_t.to(q.dtype), q, dk, input", "dk = dk + tl.dot(ds_t.to(q.dtype), q, input"))),
    ("each block of queries overwrites dV instead of adding to it", "three blocks of queries", (("do, dv, input", "do, input"),)),
    ("each block of queries overwrites dK instead of adding to it", "three blocks of queries", (("q, dk, input", "q, input"),)),
    ("delta is that of the first block of queries in every turn", "three blocks of queries",
     (("delta_ptr + head * N_q + rows, mask=rows < N_q", "delta_ptr + head * N_q + tl.arange(0, BLOCK_M), mask=rows < N_q"),)),
    ("the last, incomplete block of queries is left out", "ragged lengths", (("range(first, N_q,", "range(first, N_q // BLOCK_M * BLOCK_M,"),)),
    ("the rows of Q behind the last are loaded too", "ragged lengths",
     (("tl.load(q_ptr + at_q, mask=(rows < N_q)[:, None], other=0.0)", "tl.load(q_ptr + at_q)"),)),
    ("lse is loaded with a mask and no other", "ragged lengths",
     (('mask=rows < N_q, other=float("inf"))', "mask=rows < N_q)"),)),
    ("there is no mask", "causal", (("p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)", "p_t = p_t"),)),
    ("a query does not see its own key", "causal", (("keys[:, None] <= rows", "keys[:, None] < rows"),)),
    ("the mask is aligned to the top left", "more keys than queries",
     (("rows[None, :] + N_k - N_q", "rows[None, :]"), ("tl.maximum(start_n + N_q - N_k, 0)", "start_n"))),
    ("P is multiplied by the mask, where inf times 0 is NaN", "queries that see no key",
     (("tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)", "p_t * (keys[:, None] <= rows[None, :] + N_k - N_q).to(tl.float32)"),)),
    ("every program works on the first head", "three heads", (("head = tl.program_id(1).to(tl.int64)", "head = 0"),)),
    ("the loop begins one query too late", "more keys than queries", (("start_n + N_q - N_k", "start_n + 1 + N_q - N_k"),)),
    ("dV is kept in the dtype of the inputs", "float16",
     (("dv = tl.dot(p_t.to(do.dtype), do, dv, input_precision=\"ieee\")",
       "dv = (dv + tl.dot(p_t.to(do.dtype), do, input_precision=\"ieee\")).to(do.dtype).to(tl.float32)"),)),
    ("dK is kept in the dtype of the inputs", "float16",
     (("dk = tl.dot(ds_t.to(q.dtype), q, dk, input_precision=\"ieee\")",
       "dk = (dk + tl.dot(ds_t.to(q.dtype), q, input_precision=\"ieee\")).to(q.dtype).to(tl.float32)"),)),
    ("the offsets of a head are computed in 32 bits", "heads far apart", ((".to(tl.int64)", ""),)),
    ("float32 is rounded to TF32 on a GPU, in S^T", "float32, as on a GPU", (("tl.dot(k, tl.trans(q), input_precision=\"ieee\")", "tl.dot(k, tl.trans(q))"),)),
    ("blocks of queries are loaded of which none sees a key of the block", "bytes",
     (("tl.maximum(start_n + N_q - N_k, 0) // BLOCK_M * BLOCK_M", "0"),)),
)  # fmt: skip

MISTAKES = {
    "13.dv": (
        Mistake(
            "each block of queries overwrites dV instead of adding to it", dv_overwritten, "several blocks of queries"
        ),
        Mistake("softmax is taken over this block of keys alone", dv_softmax_over_the_block, "some of the keys"),
        Mistake("lse, a natural logarithm, goes into exp2 as it is", dv_lse_in_other_units, "one block of queries"),
        Mistake("the scale is typed in as 1 / sqrt(D)", dv_fixed_scale, "another scale"),
        Mistake("the mask is aligned to the top left", dv_aligned_top_left, "more keys than queries"),
        Mistake("P is multiplied by the mask, where inf times 0 is NaN", dv_mask_multiplied, "queries that see no key"),
        Mistake("factors of tl.dot are float32 and float16", dv_dtypes_mixed, "float16"),
    ),
    "13.ds": (
        Mistake("delta is left out", ds_without_delta, "more keys than queries"),
        Mistake(
            "delta is laid along the keys instead of the queries", ds_delta_along_the_keys, "as many queries as keys"
        ),
        Mistake("dP is computed where dP^T is needed", ds_not_transposed, "more queries than keys"),
        Mistake("delta is summed over the keys of this block alone", ds_delta_of_the_block, "more keys than queries"),
        Mistake("the factor P is left out", ds_without_p, "part of it masked"),
    ),
    "13.kernel": tuple(
        Mistake(what, altered(kernel_solution, *changes), caught_by) for what, caught_by, changes in BUGS
    ),
}
