"""Wrong answers to the exercises of notebook 07."""

import math

import torch

INF = float("inf")


def safe(m):
    return m.masked_fill(m == -INF, 0)


def update_by(base=safe, maximum=lambda S: S.max(-1, keepdim=True).values):
    """The update, measured from `base(m_new)`, with the maximum of a block; either may be a wrong one."""

    def update(m, l, acc, S, V):
        m_new = torch.maximum(m, maximum(S))
        alpha, P = torch.exp(m - base(m_new)), torch.exp(S - base(m_new))
        return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V

    return update


right = update_by()


def update_guards_all_or_nothing(m, l, acc, S, V):
    m_new = torch.maximum(m, S.max(-1, keepdim=True).values)
    return (m, l, acc) if (m_new == -INF).all() else update_by(base=lambda m: m)(m, l, acc, S, V)


def update_skips_where_one_sees_nothing(m, l, acc, S, V):
    return (m, l, acc) if (S.amax(-1) == -INF).any() else right(m, l, acc, S, V)


def update_skips_masked_keys(m, l, acc, S, V):
    """A key hidden from one query is hidden from all."""
    seen = (S > -INF).all(0)
    return right(m, l, acc, S[:, seen], V[seen]) if seen.any() else (m, l, acc)


def update_takes_negative_for_nothing(m, l, acc, S, V):
    """Rows whose old maximum is below 0 start anew."""
    seen = m > 0
    return right(m.masked_fill(~seen & (m < S.amax(-1, keepdim=True)), -INF), l, acc, S, V)


def update_in_float32(m, l, acc, S, V):
    return tuple(t.double() for t in right(*(t.float() for t in (m, l, acc, S, V))))


def update_with_epsilon(m, l, acc, S, V):
    m, l, acc = right(m, l, acc, S, V)
    return m, l + 1e-8, acc


def update_with_probabilities_in_16_bits(m, l, acc, S, V):
    m_new, l_new, _ = right(m, l, acc, S, V)
    alpha, P = torch.exp(m - safe(m_new)), torch.exp(S - safe(m_new))
    return m_new, l_new, alpha * acc + P.bfloat16().double() @ V


def update_adds_the_block_without_its_weights(m, l, acc, S, V):
    m_new, l_new, _ = right(m, l, acc, S, V)
    P = torch.softmax(S, -1).nan_to_num(0)
    return m_new, l_new, torch.exp(m - safe(m_new)) * acc + P @ V


def update_returns_the_old_maximum(m, l, acc, S, V):
    return torch.where(m > -INF, m, right(m, l, acc, S, V)[0]), *right(m, l, acc, S, V)[1:]


def update_scales_the_block_too(m, l, acc, S, V):
    m_new, l_new, _ = right(m, l, acc, S, V)
    alpha, P = torch.exp(m - safe(m_new)), torch.exp(S - safe(m_new))
    return m_new, l_new, torch.where(m == -INF, P @ V, alpha * (acc + P @ V))


def update_one_factor_for_all_rows(m, l, acc, S, V):
    m_new = torch.maximum(m, S.max(-1, keepdim=True).values)
    alpha, P = torch.exp(m - safe(m_new)).max(), torch.exp(S - safe(m_new))
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


def update_loses_dimensions_of_one(m, l, acc, S, V):
    m_new = torch.maximum(m.squeeze(), S.squeeze().amax(-1))[..., None]
    alpha, P = torch.exp(m - safe(m_new)), torch.exp(S - safe(m_new))
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


def counted(sees):
    """Every pair of blocks asked whether `sees(last query, first key, offset)`."""

    def visited(N_q, N_k, block_q, block_k):
        return sum(
            sees(min(i + block_q, N_q) - 1, j, N_k - N_q)
            for i in range(0, N_q, block_q)
            for j in range(0, N_k, block_k)
        )

    return visited


def visited_by_area(N_q, N_k, block_q, block_k):
    pairs = sum(max(0, i + 1 + N_k - N_q) for i in range(N_q))
    return math.ceil(pairs / (block_q * block_k))


def visited_half_of_all(N_q, N_k, block_q, block_k):
    rows, columns = math.ceil(N_q / block_q), math.ceil(N_k / block_k)
    return math.ceil((rows * columns + max(rows, columns)) / 2)


def visited_every_row_sees_one(N_q, N_k, block_q, block_k):
    return sum(max(1, math.ceil((min(start + block_q, N_q) + N_k - N_q) / block_k)) for start in range(0, N_q, block_q))


def visited_offset_in_blocks(N_q, N_k, block_q, block_k):
    offset = (N_k - N_q) // block_k
    return sum(max(0, math.ceil(min(start + block_q, N_q) / block_k) + offset) for start in range(0, N_q, block_q))


def visited_whole_blocks_of_queries(N_q, N_k, block_q, block_k):
    return sum(math.ceil(max(0, (i + 1) * block_q + N_k - N_q) / block_k) for i in range(N_q // block_q)) + (
        math.ceil(N_k / block_k) if N_q % block_q and N_k <= N_q else 0
    )


def visited_by_the_middle_query(N_q, N_k, block_q, block_k):
    return sum(
        math.ceil(max(0, (start + min(start + block_q, N_q)) // 2 + 1 + N_k - N_q) / block_k)
        for start in range(0, N_q, block_q)
    )


def visited_at_most_the_keys_of_a_block(N_q, N_k, block_q, block_k):
    """Rounded to the nearest number of blocks."""
    return sum(round(max(0, min(start + block_q, N_q) + N_k - N_q) / block_k) for start in range(0, N_q, block_q))


def update_in_place(m, l, acc, S, V):
    m_new = torch.maximum(m, S.amax(-1, keepdim=True))
    base = torch.where(m_new.isinf(), 0.0, m_new)
    alpha = torch.exp(m - base)
    S.sub_(base).exp_()
    return m_new, l.mul_(alpha).add_(S.sum(-1, keepdim=True)), acc.mul_(alpha).addmm_(S, V)


def update_row_by_row(m, l, acc, S, V):
    rows = []
    for i in range(len(S)):
        state = m[i], l[i], acc[i]
        for s, v in zip(S[i], V, strict=True):
            new = torch.maximum(state[0], s)
            if new != -INF:
                alpha, p = torch.exp(state[0] - new), torch.exp(s - new)
                state = new, state[1] * alpha + p, state[2] * alpha + p * v
        rows.append(state)
    return [torch.stack(parts) for parts in zip(*rows, strict=True)]


def update_repairs_nan(m, l, acc, S, V):
    m_new = torch.cat([m, S], -1).max(-1, keepdim=True).values
    alpha, P = (torch.exp(t - m_new).nan_to_num(0.0) for t in (m, S))
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


def visited_by_the_mask(N_q, N_k, block_q, block_k):
    sees = torch.arange(N_k)[None, :] <= torch.arange(N_q)[:, None] + N_k - N_q
    return sum(bool(b.any()) for rows in sees.split(block_q) for b in rows.split(block_k, 1))


def visited_by_columns(N_q, N_k, block_q, block_k):
    """For each block of keys, the blocks of queries from the one that sees its first key."""
    total = math.ceil(N_q / block_q)
    firsts = (max(0, j - (N_k - N_q)) for j in range(0, N_k, block_k))
    return sum(total - first // block_q for first in firsts if first < N_q)


WRONG = {
    "07.update": (
        ("l and acc are overwritten", update_in_place, "expected the input (m|l|acc) as it was"),
        ("NaN is repaired in the factors", update_repairs_nan, "repair nothing after it, as nan_to_num"),
        ("one row that has seen a key lets the others be NaN", update_guards_all_or_nothing, "every row"),
        ("a row without a key stops the others", update_skips_where_one_sees_nothing, "every row"),
        ("a key hidden from one row is hidden from all", update_skips_masked_keys, "every row"),
        ("-1e9 is taken for lower than any score", update_by(base=lambda m: m.clamp(min=-1e9)), "-inf"),
        ("one maximum serves the whole block", update_by(maximum=lambda S: S.max().expand(len(S), 1))),
        ("the maximum of the first entries is taken", update_by(maximum=lambda S: S[:, :1])),
        ("a negative maximum is taken for none", update_takes_negative_for_nothing),
        ("the work is done in float32", update_in_float32),
        ("1e-8 is added to l", update_with_epsilon, "nothing is added"),
        ("P is rounded to bfloat16", update_with_probabilities_in_16_bits),
        ("the block is added as if it were alone", update_adds_the_block_without_its_weights),
        ("the old maximum is returned", update_returns_the_old_maximum),
        ("the new block is rescaled together with acc", update_scales_the_block_too),
        ("one factor serves all rows", update_one_factor_for_all_rows),
        ("dimensions of size 1 are lost", update_loses_dimensions_of_one),
    ),
    "07.order": (
        ("the line that stores l and m is missing", lambda: "AFEDB", "never stored"),
        ("l_new is missing", lambda: "AFEBG", "l_new is used before"),
        ("P is missing", lambda: "FEDBG", "P is used before"),
        ("the weights are computed before m_new", lambda: "AEFDBG", "m_new is used before"),
        ("O is written twice", lambda: "AFEDBHG", "line H"),
        ("both pairs of weights are taken", lambda: "AFECDBG", "multiplied by its l"),
        ("the old O keeps its weight, and l is its neighbour's", lambda: "AFCDHG", "line"),
        ("no lines at all", lambda: "", "0 were given"),
        ("a line that is not there", lambda: "AFEDBGX", "A to H"),
        ("a line twice", lambda: "AFEDBGG", "once at most"),
        ("numbers for letters", lambda: [1, 6, 5, 4, 2, 7], "letters of lines"),
    ),
    "07.visited": (
        ("a key at the edge is not seen", counted(lambda last, first, offset: first < last + offset)),
        ("one key too many is seen", counted(lambda last, first, offset: first <= last + offset + 1)),
        ("the offset is forgotten", counted(lambda last, first, offset: first <= last)),
        ("the offset has the wrong sign", counted(lambda last, first, offset: first <= last - offset)),
        ("keys after the query are counted", counted(lambda last, first, offset: first >= last + offset)),
        ("the pairs of query and key are divided by the size of a block", visited_by_area),
        ("half of all blocks and the diagonal are counted", visited_half_of_all),
        ("every block of queries visits one block at least", visited_every_row_sees_one),
        ("the offset is rounded to blocks", visited_offset_in_blocks),
        ("queries left over see all keys", visited_whole_blocks_of_queries),
        ("the query in the middle decides", visited_by_the_middle_query),
        ("blocks are rounded to the nearest number", visited_at_most_the_keys_of_a_block),
    ),
}

RIGHT = {
    "07.update": (("row by row", update_row_by_row),),
    "07.order": (
        ("m_new before P", lambda: "FAEDBG"),
        ("P as late as it can be", lambda: "FEADBG"),
        ("l and m are stored before O", lambda: "AFEDGB"),
        ("a list of small letters", lambda: ["a", "f", "e", "d", "b", "g"]),
        ("commas between", lambda: "A, F, E, D, B, G"),
    ),
    "07.visited": (
        ("the mask itself", visited_by_the_mask),
        ("by blocks of keys", visited_by_columns),
        ("every pair asked", counted(lambda last, first, offset: first <= last + offset)),
        ("as a float", lambda *sizes: float(visited_by_the_mask(*sizes))),
    ),
}
