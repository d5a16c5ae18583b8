"""Known wrong answers to the exercises of notebook 07."""

import math

import torch

from flashlearn.course.tiled_attention.solutions import keys_outside
from flashlearn.exercises.assessment import Mistake
from flashlearn.exercises.ordering import Decoy, Puzzle

INF = float("inf")


def _parts(m, S):
    m_new = torch.maximum(m, S.max(-1, keepdim=True).values)
    base = m_new.masked_fill(m_new == -INF, 0)
    return m_new, torch.exp(m - base), torch.exp(S - base)


def update_forgets_acc(m, l, acc, S, V):
    m_new, alpha, P = _parts(m, S)
    return m_new, alpha * l + P.sum(-1, keepdim=True), acc + P @ V


def update_forgets_l(m, l, acc, S, V):
    m_new, alpha, P = _parts(m, S)
    return m_new, l + P.sum(-1, keepdim=True), alpha * acc + P @ V


def update_scales_columns(m, l, acc, S, V):
    m_new, alpha, P = _parts(m, S)
    scaled = alpha.squeeze(-1) * acc if len(alpha) == acc.shape[1] else alpha * acc
    return m_new, alpha * l + P.sum(-1, keepdim=True), scaled + P @ V


def update_own_maximum(m, l, acc, S, V):
    m_block = S.max(-1, keepdim=True).values
    P = torch.exp(S - m_block)
    m_new, alpha, _ = _parts(m, S)
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


def update_by_quotients(m, l, acc, S, V):
    m_new, _, _ = _parts(m, S)
    alpha, P = torch.exp(m) / torch.exp(m_new), torch.exp(S) / torch.exp(m_new)
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


def update_unguarded(m, l, acc, S, V):
    m_new = torch.maximum(m, S.max(-1, keepdim=True).values)
    alpha, P = torch.exp(m - m_new), torch.exp(S - m_new)
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


def update_divides(m, l, acc, S, V):
    m_new, alpha, P = _parts(m, S)
    l_new = alpha * l + P.sum(-1, keepdim=True)
    return m_new, l_new, (alpha * acc + P @ V) / l_new


def visited_all(N_q, N_k, block_q, block_k):
    return math.ceil(N_q / block_q) * math.ceil(N_k / block_k)


def visited_without_the_diagonal(N_q, N_k, block_q, block_k):
    return sum(max(0, (min(start + block_q, N_q) + N_k - N_q - 1) // block_k) for start in range(0, N_q, block_q))


def visited_triangle(N_q, N_k, block_q, block_k):
    T = math.ceil(N_q / block_q)
    return T * (T + 1) // 2


def visited_first_query(N_q, N_k, block_q, block_k):
    return sum(math.ceil(max(0, start + 1 + N_k - N_q) / block_k) for start in range(0, N_q, block_q))


def visited_top_left(N_q, N_k, block_q, block_k):
    return sum(math.ceil(min(start + block_q, N_q, N_k) / block_k) for start in range(0, N_q, block_q))


def visited_past_the_end(N_q, N_k, block_q, block_k):
    return sum(math.ceil(max(0, start + block_q + N_k - N_q) / block_k) for start in range(0, N_q, block_q))


def visited_negative(N_q, N_k, block_q, block_k):
    return sum(math.ceil((min(start + block_q, N_q) + N_k - N_q) / block_k) for start in range(0, N_q, block_q))


ORDER = Puzzle(
    "07.order",
    keys_outside,
    (
        Decoy(
            "O[at] = O[at] + new * (P @ v[keys]) / l_new",
            4,
            "the old O keeps its weight, as if l had not grown",
            "maxima rise",
        ),
        Decoy(
            "old, new = torch.exp(m[at] - m_new), torch.exp(m_block - m_new)",
            2,
            "the old O is not multiplied by its l: all the keys so far count as one",
            "maxima rise",
        ),
    ),
    given=(3, 0),
)
MISTAKES = {
    "07.order": ORDER.mistakes(
        (
            "l and m are never stored: every visit finds l = 0 and m = -inf, and its block counts alone",
            (0, 1, 2, 3, 4),
            "maxima rise",
        ),
    ),
    "07.update": (
        Mistake("acc is not rescaled when the maximum rises", update_forgets_acc, "every maximum rises"),
        Mistake("l is not rescaled when the maximum rises", update_forgets_l, "every maximum rises"),
        Mistake(
            "alpha scales the columns of acc instead of its rows", update_scales_columns, "as many rows as columns"
        ),
        Mistake(
            "P is measured from the block's own maximum, not from the new one", update_own_maximum, "no maximum rises"
        ),
        Mistake("exp is taken of the maxima themselves, which overflows", update_by_quotients, "large scores"),
        Mistake("-inf is subtracted from -inf", update_unguarded, "nothing seen yet"),
        Mistake("acc is divided by l already", update_divides, "the first block"),
    ),
    "07.visited": (
        Mistake("no block is skipped", visited_all, "square blocks"),
        Mistake("the blocks that the diagonal crosses are not counted", visited_without_the_diagonal, "square blocks"),
        Mistake("T (T + 1) / 2 is used where blocks are not square", visited_triangle, "blocks of two sizes"),
        Mistake("the first query of a block decides, not the last", visited_first_query, "blocks of two sizes"),
        Mistake("the mask is aligned to the top left", visited_top_left, "more keys than queries"),
        Mistake(
            "the last block of queries is taken to be as long as the others", visited_past_the_end, "nothing divides"
        ),
        Mistake("a block of queries that sees no key counts less than 0", visited_negative, "rows that see nothing"),
    ),
}
