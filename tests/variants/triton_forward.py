"""Wrong answers to the exercises of notebook 12."""

from typing import Any

from flashlearn.course.triton_forward.solutions import bugs_solution, kernel_solution
from flashlearn.exercises.altered import altered
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


variant("12.bugs", "alpha rescales the new terms of acc, not the old ones", r"\bacc\b")(
    altered(bugs_solution, ("acc * alpha[:, None]", "acc"), ("p.to(v.dtype)", "(p * alpha[:, None]).to(v.dtype)"))
)
variant("12.bugs", "alpha is upside down", r"upside|alpha|m_i - m|old minus")(
    altered(
        bugs_solution,
        ("tl.exp2(m_i - m_safe)", "tl.where(l_i == 0.0, 0.0, tl.exp2(tl.minimum(m_safe - m_i, 60.0)))"),
    )
)
variant("12.bugs", "exp where the units ask for exp2", r"exp2|base 2|log2|base-2")(
    altered(bugs_solution, ("tl.exp2(s", "tl.exp(s"), ("tl.exp2(m_i", "tl.exp(m_i"))
)
variant("12.bugs", "the scale is left out", r"scale")(altered(bugs_solution, (" * qk_scale", "")))
variant("12.kernel", "exp where the units ask for exp2", r"exp2|base 2|log2|base-2")(
    altered(kernel_solution, ("tl.exp2(s", "tl.exp(s"), ("tl.exp2(m -", "tl.exp(m -"))
)
variant("12.kernel", "a tile is set in one branch alone", r"set inside an if|one branch|before")(
    altered(kernel_solution, ("base = tl.where", "if start_n >= 0:\n            base = tl.where"))
)
variant("12.kernel", "lse is stored past the last query", r"outside|mask|rows < N_q|rectangle")(
    altered(kernel_solution, ("0.6931471805599453, mask=rows < N_q", "0.6931471805599453"))
)
