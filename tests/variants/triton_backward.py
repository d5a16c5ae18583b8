"""Wrong answers to the exercises of notebook 13."""

from typing import Any

from flashlearn.course.triton_backward.solutions import kernel_solution
from flashlearn.exercises.altered import altered
from tests.variants import variant

tl: Any = None  # triton.language once a check runs


@variant(
    "13.dv",
    "the mask comes before the exponential: -inf - -inf is NaN",
    r"before the exp|after the exp|-inf (minus|-) -inf|lse is -inf|their lse",
    r"multiplied by the mask",
)
def mask_before_exp(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    s_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, s_t, float("-inf"))
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


@variant("13.dv", "P is turned although it is P^T already", r"trans|shape|inner|P\^T")
def turned_twice(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(tl.trans(p_t).to(do.dtype), do, input_precision="ieee")


@variant("13.dv", "there is no mask", r"mask|hid(e|den)|causal|j <= i")
def without_mask(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


@variant("13.dv", "the scale is left out", r"scale")
def without_scale(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee")
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


@variant("13.dv", "exp2 without the factor log2(e)", r"log2\(e\)|1\.44|exp2")
def exp2_of_natural_units(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2(s_t - lse[None, :])
    p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


@variant("13.ds", "delta is added", r"subtract|sign|minus|added|- delta|take delta")
def delta_added(p_t, v, do, delta):
    return p_t * (tl.dot(v, tl.trans(do), input_precision="ieee") + delta[None, :])


@variant(
    "13.ds",
    "brackets are missing: delta is not weighed by P",
    r"bracket|parenthes|weigh|\(dP\^T - delta\)|times P|P is 0|the factor P",
)
def without_brackets(p_t, v, do, delta):
    return p_t * tl.dot(v, tl.trans(do), input_precision="ieee") - delta[None, :]


@variant("13.ds", "dO is not turned", r"trans|turned|V dO\^T|inner|shape")
def do_not_turned(p_t, v, do, delta):
    return p_t * (tl.dot(v, do, input_precision="ieee") - delta[None, :])


@variant("13.ds", "a scale of its own", r"scale|factor|times what|times too|constant")
def scaled(p_t, v, do, delta):
    return p_t * (tl.dot(v, tl.trans(do), input_precision="ieee") - delta[None, :]) * 0.25


variant("13.kernel", "delta is added", r"delta must be subtracted|delta")(
    altered(kernel_solution, ("dp_t - delta", "dp_t + delta"))
)
variant("13.kernel", "the scale is left out of dK", r"scale")(altered(kernel_solution, ("dk = dk * scale", "dk = dk")))
variant("13.kernel", "lse is in other units than S", r"log2\(e\)|1\.44|exp2")(
    altered(kernel_solution, ("(s_t - lse[None, :]) * 1.4426950408889634", "s_t * 1.4426950408889634 - lse[None, :]"))
)
FIRST = "first = tl.maximum(start_n + N_q - N_k, 0) // BLOCK_M * BLOCK_M"
variant("13.kernel", "the loop begins a block too late", r"the loop begins too late|bytes read", r"ends too early")(
    altered(kernel_solution, (FIRST, FIRST.replace("N_k, 0)", "N_k + BLOCK_M, 0)")))
)
variant(
    "13.kernel",
    "the loop begins where square lengths would",
    r"32 queries, 64 keys.* the loop begins too late|bytes read",
)(altered(kernel_solution, (FIRST, "first = start_n // BLOCK_M * BLOCK_M")))
variant(
    "13.kernel", "the last block of queries is left out", r"the loop ends too early|bytes read", r"begins too late"
)(altered(kernel_solution, ("range(first, N_q, BLOCK_M)", "range(first, N_q - BLOCK_M, BLOCK_M)")))
