"""Known wrong answers to the exercises of notebook 12."""

from typing import Any

from flashlearn.course.triton_forward.solutions import bugs_solution, kernel_solution
from flashlearn.exercises.altered import altered
from flashlearn.exercises.assessment import Mistake

tl: Any = None  # triton.language once a check runs: this module must import where Triton is missing


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


# one line of the right answer, written otherwise
bug_new_sum_rescaled = altered(bugs_solution, ("l_i * alpha + tl.sum(p, 1)", "(l_i + tl.sum(p, 1)) * alpha"))
bug_acc_not_rescaled = altered(bugs_solution, ("acc * alpha[:, None]", "acc"))
bug_aligned_top_left = altered(
    bugs_solution,
    ("rows[:, None] + N_k - N_q", "rows[:, None]"),
    ("where(visible,", "where(visible & (keys < N_k)[None, :],"),
)
bug_unguarded = altered(bugs_solution, ('tl.where(m_new == float("-inf"), 0.0, m_new)', "m_new"))


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


# Bugs planted in the kernel of the package's mutation lab, and some more, here in the kernel of the exercise
BUGS = (
    ("every program takes the first block of queries", "one block of keys", (("tl.program_id(0) * BLOCK_M", "0"),)),
    ("l is not divided by", "one block of keys", (("o = acc / l[:, None]", "o = acc"),)),
    ("lse is m + l, without the logarithm", "one block of keys", (("m + tl.log2(l)", "m + l"),)),
    (
        "lse is left in units of log2",
        "one block of keys",
        (("(m + tl.log2(l)) * 0.6931471805599453", "m + tl.log2(l)"),),
    ),
    ("the scale is left out", "one block of keys", (("tl.trans(k), input_precision=\"ieee\") * qk_scale", "tl.trans(k))"),)),
    ("acc is kept in float16", "compiles for sm_90", (("acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)",
                                                     "acc = tl.zeros((BLOCK_M, D), dtype=tl.float16)"),)),  # fmt: skip
    ("m is one number before the loop, and one number for each row in it", "compiles for sm_90",
     (('m = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)', 'm = float("-inf")'),)),  # fmt: skip
    (
        "acc is not moved to the new maximum",
        "three blocks of keys",
        (("acc * alpha[:, None], input", "acc, input"),),
    ),
    ("l is not moved to the new maximum", "three blocks of keys", (("l * alpha + tl.sum", "l + tl.sum"),)),
    ("the last, incomplete block of keys is left out", "ragged lengths", (("    end = N_k\n    if", "    end = N_k // BLOCK_N * BLOCK_N\n    if"),)),
    ("the places behind the last key count as keys of score 0", "ragged lengths", (("visible = (keys < N_k)[None, :]", "visible = (keys >= 0)[None, :]"),)),
    ("the rows of Q behind the last are loaded too", "ragged lengths", (("tl.load(q_ptr + at_q, mask=(rows < N_q)[:, None], other=0.0)", "tl.load(q_ptr + at_q)"),)),
    ("a query does not see its own key", "causal", (("keys[None, :] <= rows", "keys[None, :] < rows"),)),
    ("the mask is aligned to the top left", "more keys than queries",
     (("rows[:, None] + N_k - N_q", "rows[:, None]"), ("start_m + BLOCK_M + N_k - N_q", "start_m + BLOCK_M"))),  # fmt: skip
    ("-inf is subtracted from -inf where no key is seen", "queries that see no key", (('tl.where(m_new == float("-inf"), 0.0, m_new)', "m_new"),)),
    ("l = 0 is divided by where no key is seen", "queries that see no key", (("l = tl.where(l == 0.0, 1.0, l)", "l = l"),)),
    ("every program works on the first head", "three heads", (("head = tl.program_id(1).to(tl.int64)", "head = 0"),)),
    ("the loop ends one key too early", "more keys than queries", (("start_m + BLOCK_M + N_k - N_q", "start_m + BLOCK_M - 1 + N_k - N_q"),)),
    ("acc is kept in the dtype of the inputs", "float16",
     (("acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)", "acc = tl.zeros((BLOCK_M, D), dtype=q.dtype)"),
      ("acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=\"ieee\")",
       "acc = (acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision=\"ieee\")).to(q.dtype)"))),
    ("the offsets of a head are computed in 32 bits", "heads far apart", ((".to(tl.int64)", ""),)),
    ("float32 is rounded to TF32 on a GPU", "float32, as on a GPU", (("tl.trans(k), input_precision=\"ieee\")", "tl.trans(k))"),)),
    ("blocks of keys are loaded that no query of the block sees", "bytes", (("tl.minimum(tl.maximum(start_m + BLOCK_M + N_k - N_q, 0), N_k)", "N_k"),)),
)  # fmt: skip

MISTAKES = {
    "12.causal": (
        Mistake("a query does not see the key of its own position", causal_without_diagonal, "on the diagonal"),
        Mistake("the mask is aligned to the top left", causal_aligned_top_left, "more keys than queries"),
        Mistake("queries are counted from 0 in every block", causal_rows_of_the_block, "left of the diagonal"),
        Mistake("keys are counted from 0 in every block", causal_keys_of_the_block, "right of the diagonal"),
        Mistake("hidden scores become 0 instead of -inf", causal_zeros, "right of the diagonal"),
        Mistake(
            "N_q - N_k is added where it must be N_k - N_q", causal_shifted_the_wrong_way, "more queries than keys"
        ),
        Mistake("the lengths of a block are typed in, not taken from s.shape", causal_of_fixed_size, "a tall block"),
    ),
    "12.bugs": (
        Mistake("hidden scores still raise the maximum", bug_mask_after_maximum, "a hidden key of large score"),
        Mistake(
            "the new terms of l are rescaled together with the old ones", bug_new_sum_rescaled, "several blocks of keys"
        ),
        Mistake("acc is not rescaled", bug_acc_not_rescaled, "several blocks of keys"),
        Mistake("the mask is aligned to the top left", bug_aligned_top_left, "more keys than queries"),
        Mistake("-inf is subtracted from -inf where no key is seen", bug_unguarded, "queries that see no key"),
        Mistake("all three bugs are left in", bug_all_three, "the first block of queries"),
    ),
    "12.kernel": tuple(
        Mistake(what, altered(kernel_solution, *changes), caught_by) for what, caught_by, changes in BUGS
    ),
}
