"""Answers to the exercises of triton_forward that are no edit of the solution: `wrong.toml` names them."""

import triton.language as tl

from flashlearn.course.triton_forward.solutions import kernel_solution
from flashlearn.exercises.altered import altered


def causal_without_diagonal(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] < rows[:, None] + N_k - N_q, s, float("-inf"))


def causal_aligned_top_left(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] <= rows[:, None], s, float("-inf"))


def causal_rows_of_the_block(s, start_m, start_n, N_q, N_k):
    rows, keys = tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, s, float("-inf"))


def causal_keys_of_the_block(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, s, float("-inf"))


def causal_zeros(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, s, 0.0)


def causal_shifted_the_wrong_way(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, s.shape[0]), start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] <= rows[:, None] + N_q - N_k, s, float("-inf"))


def causal_of_fixed_size(s, start_m, start_n, N_q, N_k):
    rows, keys = start_m + tl.arange(0, 16), start_n + tl.arange(0, 32)
    return tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, s, float("-inf"))


def bug_mask_after_maximum(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale):
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale
    m_new = tl.maximum(m_i, tl.max(s, 1))
    visible = keys[None, :] <= rows[:, None] + N_k - N_q
    p = tl.where(visible, tl.exp2(s - m_new[:, None]), 0.0)
    alpha = tl.exp2(m_i - m_new)
    l_i = l_i * alpha + tl.sum(p, 1)
    acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, l_i, acc


def bug_all_three(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale):
    """The function of the notebook as it is handed out."""
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale
    m_new = tl.maximum(m_i, tl.max(s, 1))
    s = tl.where(keys[None, :] <= rows[:, None], s, float("-inf"))
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(s - m_safe[:, None])
    alpha = tl.exp2(m_i - m_safe)
    l_i = l_i * alpha + tl.sum(p, 1)
    acc = acc + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, l_i, acc


def arange_without_start(s, start_m, start_n, N_q, N_k):
    rows = start_m + tl.arange(s.shape[0])
    keys = start_n + tl.arange(s.shape[1])
    return tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, s, float("-inf"))


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


def bugs_no_maximum(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale):
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale
    visible = keys[None, :] <= rows[:, None] + N_k - N_q
    p = tl.exp2(tl.where(visible, s, float("-inf")))
    m_new = tl.where(rows < N_q - N_k, float("-inf"), 0.0)
    return m_new, l_i + tl.sum(p, 1), acc + tl.dot(p.to(v.dtype), v, input_precision="ieee")


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
