"""Wrong answers to the exercises of notebook 12."""

from typing import Any

from tests.variants import variant

tl: Any = None  # triton.language once a check runs


@variant("12.causal", "a large negative number instead of -inf", r"-inf")
def minus_ten_thousand(s, start_m, start_n, N_q, N_k):
    rows = start_m + tl.arange(0, s.shape[0])
    keys = start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, s, -1e4)


@variant(
    "12.causal",
    "the comparison is turned: a query sees what comes after it",
    r"turned|other side|wrong side|after it|reversed|future|opposite|hides? what",
)
def comparison_turned(s, start_m, start_n, N_q, N_k):
    rows = start_m + tl.arange(0, s.shape[0])
    keys = start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] >= rows[:, None] + N_k - N_q, s, float("-inf"))


@variant("12.causal", "one key too many is seen", r"one (key )?(too|more)|key after|next key|off by one|j <= i")
def one_key_too_many(s, start_m, start_n, N_q, N_k):
    rows = start_m + tl.arange(0, s.shape[0])
    keys = start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[None, :] <= rows[:, None] + N_k - N_q + 1, s, float("-inf"))


@variant("12.causal", "queries are laid along the columns", r"shape|\[:, None\]|axis|axes|along")
def axes_exchanged(s, start_m, start_n, N_q, N_k):
    rows = start_m + tl.arange(0, s.shape[0])
    keys = start_n + tl.arange(0, s.shape[1])
    return tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, s, float("-inf"))


@variant("12.causal", "tl.arange without a start", r"arange")
def arange_without_start(s, start_m, start_n, N_q, N_k):
    rows = start_m + tl.arange(s.shape[0])
    keys = start_n + tl.arange(s.shape[1])
    return tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, s, float("-inf"))


@variant("12.bugs", "alpha rescales the new terms of acc, not the old ones", r"\bacc\b")
def alpha_at_the_wrong_term(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale):
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale
    s = tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, s, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(s, 1))
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(s - m_safe[:, None])
    alpha = tl.exp2(m_i - m_safe)
    acc = acc * 1.0 + tl.dot((p * alpha[:, None]).to(v.dtype), v, input_precision="ieee")
    return m_new, l_i * alpha + tl.sum(p, 1), acc


@variant("12.bugs", "alpha is upside down", r"upside|alpha|m_i - m|old minus")
def alpha_upside_down(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale):
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale
    s = tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, s, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(s, 1))
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(s - m_safe[:, None])
    alpha = tl.exp2(tl.minimum(m_safe - m_i, 60.0))
    alpha = tl.where(l_i == 0.0, 0.0, alpha)
    acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, l_i * alpha + tl.sum(p, 1), acc


@variant("12.bugs", "exp where the units ask for exp2", r"exp2|base 2|log2|base-2")
def exp_for_exp2(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale):
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale
    s = tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, s, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(s, 1))
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp(s - m_safe[:, None])
    alpha = tl.exp(m_i - m_safe)
    acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, l_i * alpha + tl.sum(p, 1), acc


@variant("12.bugs", "the scale is left out", r"scale")
def without_scale(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale):
    s = tl.dot(q, tl.trans(k), input_precision="ieee")
    s = tl.where(keys[None, :] <= rows[:, None] + N_k - N_q, s, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(s, 1))
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(s - m_safe[:, None])
    alpha = tl.exp2(m_i - m_safe)
    acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, l_i * alpha + tl.sum(p, 1), acc
