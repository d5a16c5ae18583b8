"""Answers to the exercises of tiled_attention that are no edit of the solution: `wrong.toml` names them."""

import math

import torch

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


def parts(m, S, m_new=None):
    m_new = torch.maximum(m, S.max(-1, keepdim=True).values) if m_new is None else m_new
    base = m_new.masked_fill(m_new == -INF, 0)
    return m_new, torch.exp(m - base), torch.exp(S - base)


def without_keepdim(m, l, acc, S, V):
    m_new, alpha, P = parts(m, S)
    return m_new, alpha * l + P.sum(-1), alpha * acc + P @ V


def forgets_the_old_maximum(m, l, acc, S, V):
    m_new, alpha, P = parts(m, S, S.max(-1, keepdim=True).values)
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


def one_maximum_for_all(m, l, acc, S, V):
    m_new, alpha, P = parts(m, S, torch.maximum(m, S.max()))
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


def unshifted(m, l, acc, S, V):
    m_new, alpha, _ = parts(m, S)
    P = torch.exp(S)
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


def keys_seen(i, N_q, N_k):
    return max(0, i + 1 + N_k - N_q)


def pairs_of_elements(N_q, N_k, block_q, block_k):
    return sum(keys_seen(i, N_q, N_k) for i in range(N_q))


def rounded_down(N_q, N_k, block_q, block_k):
    ends = (min(start + block_q, N_q) for start in range(0, N_q, block_q))
    return sum(keys_seen(end - 1, N_q, N_k) // block_k for end in ends)


def without_its_own_key(N_q, N_k, block_q, block_k):
    ends = (min(start + block_q, N_q) for start in range(0, N_q, block_q))
    return sum(math.ceil(max(0, keys_seen(end - 1, N_q, N_k) - 1) / block_k) for end in ends)


def shifted_the_wrong_way(N_q, N_k, block_q, block_k):
    ends = (min(start + block_q, N_q) for start in range(0, N_q, block_q))
    return sum(math.ceil(max(0, end + N_q - N_k) / block_k) for end in ends)


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
