"""Wrong answers to the exercises of notebook 12."""

from __future__ import annotations

from typing import Any

from flashlearn.course.triton_forward.solutions import bugs_solution, kernel_solution
from flashlearn.exercises.altered import altered

tl: Any = None  # triton.language once a check runs: this module must import where Triton is missing


def causal_left_is_visible(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    left = start_n + s.shape[1] - 1 <= start_m
    return tl.where(left | (keys[None, :] <= rows[:, None] + N_k - N_q), s, float("-inf"))


def causal_right_is_hidden(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    right = start_n > start_m + s.shape[0] - 1
    return tl.where((right == 0) & (keys[None, :] <= rows[:, None] + N_k - N_q), s, float("-inf"))


def causal_large_number(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, s, -1.0e9)


def causal_one_key_more(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] <= rows[:, None] + N_k - N_q + 1, s, float("-inf"))


def causal_the_other_side(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] >= rows[:, None] + N_k - N_q, s, float("-inf"))


def causal_never_to_the_left(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] <= rows[:, None] + tl.maximum(N_k - N_q, 0), s, float("-inf"))


def causal_distance(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] <= rows[:, None] + tl.maximum(N_k - N_q, N_q - N_k), s, float("-inf"))


def causal_multiplied(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    return s * tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, 1.0, float("-inf"))


def causal_only_the_end(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    return tl.where((keys < N_k)[None, :] & (rows < N_q)[:, None], s, float("-inf"))


def causal_by_blocks(s, start_m, start_n, N_q, N_k):
    rows = start_m + tl.zeros((s.shape[0], s.shape[1]), dtype=tl.int32)
    return tl.where(start_n <= rows + N_k - N_q, s, float("-inf"))


DOT = 'tl.dot(q, tl.trans(k), input_precision="ieee")'
MAXIMUM = "    m_new = tl.maximum(m_i, tl.max(s, 1))\n"
P, PRODUCT = "p = tl.exp2(s", 'tl.dot(p.to(v.dtype), v, input_precision="ieee")'
RETURN = "return m_new, l_i, acc"
bugs_p_not_converted = altered(bugs_solution, ("p.to(v.dtype)", "p"))
bugs_acc_in_the_dtype_of_v = altered(bugs_solution, (RETURN, f"{RETURN}.to(v.dtype).to(tl.float32)"))
bugs_product_in_the_dtype_of_v = altered(bugs_solution, (PRODUCT, f"{PRODUCT}.to(v.dtype)"))
bugs_scores_in_the_dtype_of_q = altered(
    bugs_solution, (DOT, f"{DOT}.to(q.dtype)"), ("tl.where(visible, s,", "tl.where(visible, s.to(tl.float32),")
)
bugs_scale_typed_in = altered(bugs_solution, ("* qk_scale", "* (0.25 * 1.4426950408889634)"))
bugs_maximum_of_this_block = altered(
    bugs_solution,
    (MAXIMUM, '    m_new = tl.max(s, 1)\n    m_new = tl.where(m_new == float("-inf"), m_i, m_new)\n'),
)
bugs_maximum_from_zero = altered(
    bugs_solution,
    (MAXIMUM, f'{MAXIMUM}    m_new = tl.where(m_new == float("-inf"), m_new, tl.maximum(m_new, 0.0))\n'),
)
bugs_safe_maximum_returned = altered(bugs_solution, (RETURN, "return m_safe, l_i, acc"))
bugs_old_maximum_returned = altered(bugs_solution, (RETURN, "return m_i, l_i, acc"))
bugs_exp = altered(bugs_solution, (P, "p = tl.exp(s"), ("alpha = tl.exp2", "alpha = tl.exp"))
bugs_finite_mask = altered(
    bugs_solution,
    ('tl.where(visible, s, float("-inf"))', "tl.where(visible, s, -1.0e9)"),
    ('m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)', "m_safe = m_new"),
)
bugs_alpha_upside_down = altered(
    bugs_solution, ("tl.exp2(m_i - m_safe)", 'tl.where(m_i == float("-inf"), 0.0, tl.exp2(m_safe - m_i))')
)
bugs_strict_mask = altered(bugs_solution, ("keys[None, :] <= rows", "keys[None, :] < rows"))


def bugs_no_maximum(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale):
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale
    visible = keys[None, :] <= rows[:, None] + N_k - N_q
    p = tl.exp2(tl.where(visible, s, float("-inf")))
    m_new = tl.where(rows < N_q - N_k, float("-inf"), 0.0)
    return m_new, l_i + tl.sum(p, 1), acc + tl.dot(p.to(v.dtype), v, input_precision="ieee")


WRONG = {
    "12.causal": (
        (
            "a block left of the diagonal of a square is visible",
            causal_left_is_visible,
            "depends on N_k - N_q too|j <= i \\+ N_k - N_q",
        ),
        (
            "a block right of the diagonal of a square is hidden",
            causal_right_is_hidden,
            "depends on N_k - N_q too|j <= i \\+ N_k - N_q",
        ),
        ("a large number stands for infinity", causal_large_number),
        ("one key too many is seen", causal_one_key_more),
        ("the other side is hidden", causal_the_other_side),
        ("the diagonal never moves to the left", causal_never_to_the_left),
        ("the diagonal moves to the right whichever is longer", causal_distance),
        ("scores are multiplied by -inf", causal_multiplied),
        ("only what lies past the end is hidden", causal_only_the_end),
        ("a block is hidden whole or not at all", causal_by_blocks),
    ),
    "12.bugs": (
        ("P stays float32 beside V in float16", bugs_p_not_converted, "one dtype, p\\.to\\(v\\.dtype\\)"),
        ("acc is kept in the dtype of V", bugs_acc_in_the_dtype_of_v, "acc is: keep both"),
        ("the product with V is rounded to its dtype", bugs_product_in_the_dtype_of_v, "acc is: keep both"),
        ("the scores are rounded to the dtype of Q", bugs_scores_in_the_dtype_of_q, "scores stay float32"),
        ("the scale is typed in", bugs_scale_typed_in, "qk_scale is handed over"),
        ("no maximum is subtracted", bugs_no_maximum, "either sign: subtract it"),
        ("the maximum is that of this block alone", bugs_maximum_of_this_block, "of this block and all before it"),
        ("the maximum starts at 0", bugs_maximum_from_zero, "either sign: subtract it"),
        ("the guarded maximum comes back", bugs_safe_maximum_returned),
        ("the old maximum comes back", bugs_old_maximum_returned),
        ("exp where the factor is for exp2", bugs_exp),
        ("a large number stands for infinity", bugs_finite_mask),
        ("alpha is upside down", bugs_alpha_upside_down),
        ("a query does not see its own key", bugs_strict_mask),
    ),
}


def causal_added(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    return s + tl.where((N_k - keys)[None, :] >= (N_q - rows)[:, None], 0.0, float("-inf"))


def bugs_v_converted(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale):
    visible = (rows[:, None] - N_q) >= (keys[None, :] - N_k)
    s = tl.where(visible, tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale, float("-inf"))
    m_new = tl.maximum(tl.max(s, 1), m_i)
    p = tl.where(visible, tl.exp2(s - m_new[:, None]), 0.0)
    alpha = tl.where(m_i == float("-inf"), 0.0, tl.exp2(m_i - m_new))
    acc = tl.dot(p, v.to(tl.float32), acc * alpha[:, None], input_precision="ieee")
    return m_new, tl.sum(p, 1) + alpha * l_i, acc


def kernel_from_the_last_block(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, N_q, N_k, qk_scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Blocks of keys are counted and taken from the last to the first; K is loaded as its transpose; pointers hold the head."""
    head = tl.cast(tl.program_id(1), tl.int64)
    d, n = tl.arange(0, D), tl.arange(0, BLOCK_N)
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    own = q_ptr + head * N_q * D + i[:, None] * D + d[None, :]
    k_ptr += head * N_k * D
    v_ptr += head * N_k * D
    real = i[:, None] < N_q
    q = tl.load(own, mask=real, other=0.0)
    count = tl.cdiv(N_k, BLOCK_N)
    last = N_k + tl.zeros((BLOCK_M,), dtype=tl.int32) - 1  # the last key that each query sees
    if CAUSAL:
        last = i - N_q + N_k
        count = tl.cdiv(tl.minimum(tl.max(tl.where(i < N_q, last, -1), 0) + 1, N_k), BLOCK_N)
    m = tl.full((BLOCK_M,), -1e30, dtype=tl.float32)  # finite: nothing to guard
    l = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    for j in range(count):
        cols = (count - 1 - j) * BLOCK_N + n
        k_t = tl.load(k_ptr + d[:, None] + cols[None, :] * D, mask=cols[None, :] < N_k, other=0.0)
        v = tl.load(v_ptr + cols[:, None] * D + d[None, :], mask=cols[:, None] < N_k, other=0.0)
        s = tl.dot(q, k_t, input_precision="ieee") * qk_scale
        s += tl.where((cols[None, :] <= last[:, None]) & (cols[None, :] < N_k), 0.0, float("-inf"))
        top = tl.maximum(tl.max(s, 1), m)
        moved = tl.exp2(m - top)
        p = tl.exp2(s - top[:, None])
        acc *= moved[:, None]
        acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")
        l = tl.sum(p, 1) + moved * l
        m = top
    seen = l > 0.0
    o = tl.where(seen[:, None], acc / tl.where(seen, l, 1.0)[:, None], 0.0)
    lse = tl.where(seen, 0.6931471805599453 * m + tl.log(tl.where(seen, l, 1.0)), float("-inf"))
    tl.store(lse_ptr + head * N_q + i, lse, mask=i < N_q)
    tl.store(o_ptr + head * N_q * D + i[:, None] * D + d[None, :], o.to(q.dtype), mask=real)


def _kernel(*changes):
    return altered(kernel_solution, *changes)


HIDE = 's = tl.where(visible, s, float("-inf"))'
LATE = (HIDE, "s = s"), ("p = tl.exp2(s - base[:, None])", "p = tl.where(visible, tl.exp2(s - base[:, None]), 0.0)")
RESCALED = 'acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")'
WRONG["12.kernel"] = (
    ("the scores are hidden after the maximum", _kernel(*LATE), "FAIL  causal"),
    ("the last block alone counts", _kernel(("l * alpha + tl.sum(p, 1)", "tl.sum(p, 1)"), ("acc * alpha[:, None], ", "")), ""),
    ("the maximum is that of the block", _kernel(("tl.maximum(m, tl.max(s, 1))", "tl.max(s, 1)")), ""),
    ("the loop goes in steps of BLOCK_M", _kernel(("range(0, end, BLOCK_N)", "range(0, end, BLOCK_M)")), ""),
    ("lse is stored past the end", _kernel(("0.6931471805599453, mask=rows < N_q", "0.6931471805599453")), "lies outside"),
    ("o is stored past the end", _kernel(("element_ty), mask=(rows < N_q)[:, None]", "element_ty)")), "lies outside"),
    ("K and V are those of the first head", _kernel(("(head * N_k + keys)", "keys")), ""),
    ("heads are N_k rows apart in Q too", _kernel(("(head * N_q + rows)", "(head * N_k + rows)")), ""),
    ("p stays float32", _kernel(("p.to(v.dtype)", "p")), "one dtype"),
    ("scores are rounded to float16", _kernel(("* qk_scale", "* qk_scale\n        s = s.to(tl.float16).to(tl.float32)")), ""),
    ("Q is loaded in every turn", _kernel(("        keys = start_n", "        q = tl.load(q_ptr + at_q, mask=(rows < N_q)[:, None], other=0.0)\n        keys = start_n")), "bytes read"),
    ("a name is set in one branch", _kernel(("visible = (keys < N_k)[None, :]", "pass"), ("visible = visible & (keys[None, :] <= rows[:, None] + N_k - N_q)", "visible = (keys < N_k)[None, :] & (keys[None, :] <= rows[:, None] + N_k - N_q)")), ""),
    ("l is kept in the dtype of the inputs", _kernel(("l * alpha + tl.sum(p, 1)", "(l * alpha + tl.sum(p, 1)).to(q.dtype).to(tl.float32)")), "alpha, l and acc stay float32"),
    ("the scores are rounded to the dtype of Q", _kernel(('input_precision="ieee") * qk_scale', 'input_precision="ieee").to(q.dtype).to(tl.float32) * qk_scale')), "alpha, l and acc stay float32"),
    ("the loop ends one key too early, whether causal or not", _kernel(("range(0, end, BLOCK_N)", "range(0, end - 1, BLOCK_N)")), "FAIL  ragged lengths"),
    ("the loop ends before the last key of all", _kernel(("start_m + BLOCK_M + N_k - N_q, 0), N_k)", "start_m + BLOCK_M + N_k - N_q, 0), N_k - 1)")), "FAIL  more keys than queries"),
    ("the head is multiplied in 32 bits, and made wide too late", _kernel((".to(tl.int64)", ""), ("at_q = (head * N_q + rows)[:, None] * D + d", "at_q = ((head * N_q + rows)[:, None] * D).to(tl.int64) + d")), "passes the range of int32"),
    ("both products are rounded to TF32 on a GPU", _kernel(('tl.trans(k), input_precision="ieee")', "tl.trans(k))"), ('acc * alpha[:, None], input_precision="ieee")', "acc * alpha[:, None])")), 'input_precision="ieee" in both'),
    ("the length of a block is kept in a variable", _kernel(("visible = (keys < N_k)[None, :]", "M, N = s.shape\n        visible = (start_n + tl.arange(0, N) < N_k)[None, :]")), "lengths that are known when the kernel is compiled"),
)  # fmt: skip

RIGHT = {
    "12.causal": (("-inf is added, counted from the end", causal_added),),
    "12.bugs": (("V in float32, P hidden, acc handed to tl.dot", bugs_v_converted),),
    "12.kernel": (
        (
            "the product is added, not handed to tl.dot",
            _kernel((RESCALED, 'acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")')),
        ),
        (
            "products of float32 in three parts of TF32",
            _kernel(
                ('tl.trans(k), input_precision="ieee")', 'tl.trans(k), input_precision="tf32x3")'),
                ('acc * alpha[:, None], input_precision="ieee")', 'acc * alpha[:, None], input_precision="tf32x3")'),
            ),
        ),
        ("from the last block to the first, K transposed, a finite first maximum", kernel_from_the_last_block),
        (
            "exp2 of the difference in float32",
            _kernel(("alpha = tl.exp2(m - base)", "alpha = tl.exp2((m - base).to(tl.float32))")),
        ),
    ),
}
