"""Wrong answers to the exercises of notebook 07."""

import math

import torch

from tests.variants import variant

INF = float("inf")


def parts(m, S, m_new=None):
    m_new = torch.maximum(m, S.max(-1, keepdim=True).values) if m_new is None else m_new
    base = m_new.masked_fill(m_new == -INF, 0)
    return m_new, torch.exp(m - base), torch.exp(S - base)


@variant("07.update", "the sum of P lacks keepdim", r"keepdim|\(B_r, 1\)|a column|shape")
def without_keepdim(m, l, acc, S, V):
    m_new, alpha, P = parts(m, S)
    return m_new, alpha * l + P.sum(-1), alpha * acc + P @ V


@variant(
    "07.update",
    "the old maximum is forgotten: that of the block is the new one",
    r"larger of|old maximum|maximum of both|torch\.maximum|m_old|never falls|must not fall",
)
def forgets_the_old_maximum(m, l, acc, S, V):
    m_new, alpha, P = parts(m, S, S.max(-1, keepdim=True).values)
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


@variant("07.update", "one maximum for all rows", r"each row|every row|row's own|own maximum|of its own|all rows")
def one_maximum_for_all(m, l, acc, S, V):
    m_new, alpha, P = parts(m, S, torch.maximum(m, S.max()))
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


@variant("07.update", "P is the exponential of S as it is", r"subtract|exp\(S - m|minus the|measured from|S - m")
def unshifted(m, l, acc, S, V):
    m_new, alpha, _ = parts(m, S)
    P = torch.exp(S)
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


def keys_seen(i, N_q, N_k):
    return max(0, i + 1 + N_k - N_q)


@variant(
    "07.visited",
    "pairs of a query and a key are counted, not of blocks",
    r"pairs of blocks|blocks, not|blocks of|block_k|divide by",
)
def pairs_of_elements(N_q, N_k, block_q, block_k):
    return sum(keys_seen(i, N_q, N_k) for i in range(N_q))


@variant(
    "07.visited",
    "the number of blocks is rounded down",
    r"round(ed)? up|ceil|rounded down|count as soon|counts as soon|first key is seen|part of a block",
)
def rounded_down(N_q, N_k, block_q, block_k):
    ends = (min(start + block_q, N_q) for start in range(0, N_q, block_q))
    return sum(keys_seen(end - 1, N_q, N_k) // block_k for end in ends)


@variant("07.visited", "a query does not see its own key", r"\+ 1|diagonal|own key|own position|sees itself|up to i\b")
def without_its_own_key(N_q, N_k, block_q, block_k):
    ends = (min(start + block_q, N_q) for start in range(0, N_q, block_q))
    return sum(math.ceil(max(0, keys_seen(end - 1, N_q, N_k) - 1) / block_k) for end in ends)


@variant("07.visited", "N_q - N_k is added where it must be N_k - N_q", r"N_k - N_q|wrong way|sign")
def shifted_the_wrong_way(N_q, N_k, block_q, block_k):
    ends = (min(start + block_q, N_q) for start in range(0, N_q, block_q))
    return sum(math.ceil(max(0, end + N_q - N_k) / block_k) for end in ends)


@variant(
    "07.order", "the old O is not multiplied by its l, and P comes after m_new", r"multiplied by its l|count as one"
)
def old_weighs_as_one_key():
    return ["F", "A", "C", "D", "B", "G"]


@variant("07.order", "the old O keeps its weight", r"keeps its weight|as if l had not grown")
def old_keeps_its_weight():
    return ["A", "F", "E", "D", "H", "G"]


@variant("07.order", "nothing is stored but O", r"never stored|counts alone|lines, and 5 were given")
def state_not_stored():
    return ["F", "A", "E", "D", "B"]
