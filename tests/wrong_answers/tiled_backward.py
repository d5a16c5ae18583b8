"""Wrong answers to the exercises of notebook 10."""

import math

import torch


def dv_one_product(q, k_j, do, lse, block_q):
    P = torch.exp(q @ k_j.mT / math.sqrt(q.shape[-1]) - lse[:, None])
    return P.mT @ do


def dv_one_query_at_a_time(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, 1)


def dv_block_of_four(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, 4)


def dv_blocks_of_keys(q, k_j, do, lse, block_q):
    parts = []
    for j in range(0, len(k_j), block_q):
        P = torch.exp(q @ k_j[j : j + block_q].mT / math.sqrt(q.shape[-1]) - lse[:, None])
        parts.append(P.mT @ do)
    return torch.cat(parts)


def dv_scores_before_the_loop(q, k_j, do, lse, block_q):
    S, dv_j = q @ k_j.mT / math.sqrt(q.shape[-1]), torch.zeros_like(k_j)
    for i in range(0, len(q), block_q):
        rows = slice(i, i + block_q)
        dv_j = dv_j + torch.exp(S[rows] - lse[rows, None]).mT @ do[rows]
    return dv_j


def dv_product_after_the_loop(q, k_j, do, lse, block_q):
    P = []
    for i in range(0, len(q), block_q):
        rows = slice(i, i + block_q)
        P.append(torch.exp(q[rows] @ k_j.mT / math.sqrt(q.shape[-1]) - lse[rows, None]))
    return torch.cat(P).mT @ do


def dv_in_float32(q, k_j, do, lse, block_q):
    dv_j = torch.zeros(k_j.shape)  # float32, whatever came in
    for i in range(0, len(q), block_q):
        rows = slice(i, i + block_q)
        P = torch.exp(q[rows] @ k_j.mT / math.sqrt(q.shape[-1]) - lse[rows, None])
        dv_j += P.mT @ do[rows]
    return dv_j


def _dv(q, k_j, do, lse, block_q, *, rows=lambda i, block_q: slice(i, i + block_q), scale=None, lse_of=None):
    dv_j = torch.zeros_like(k_j)
    for i in range(0, len(q), block_q):
        here = rows(i, block_q)
        S = q[here] @ k_j.mT / (scale or math.sqrt(q.shape[-1]))
        P = torch.exp(S - (lse_of(lse[here]) if lse_of else lse[here, None]))
        dv_j = dv_j + P.mT @ do[here]
    return dv_j


def dv_overlapping(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, rows=lambda i, b: slice(min(i, len(q) - b), min(i, len(q) - b) + b))


def dv_stop_is_the_block(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, rows=lambda i, b: slice(i, b))


def dv_scale_of_the_keys(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, scale=math.sqrt(len(k_j)))


def dv_scale_typed_in(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, scale=2.0)


def dv_half_d(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, scale=q.shape[-1] / 2)


def dv_causal(q, k_j, do, lse, block_q):
    dv_j = torch.zeros_like(k_j)
    for i in range(0, len(q), block_q):
        rows = slice(i, i + block_q)
        S = q[rows] @ k_j.mT / math.sqrt(q.shape[-1])
        P = torch.exp(S - lse[rows, None]).tril(i)
        dv_j = dv_j + P.mT @ do[rows]
    return dv_j


def dv_lse_as_maximum(q, k_j, do, lse, block_q):
    dv_j = torch.zeros_like(k_j)
    for i in range(0, len(q), block_q):
        rows = slice(i, i + block_q)
        P = torch.exp(q[rows] @ k_j.mT / math.sqrt(q.shape[-1]) - lse[rows, None])
        dv_j = dv_j + (P / P.sum(-1, keepdim=True)).mT @ do[rows]
    return dv_j


def ds_in_float32(p, do, o, v_j):
    delta = torch.zeros(len(do), 1)  # float32, whatever came in
    delta += (do * o).sum(-1, keepdim=True)
    return p * (do @ v_j.mT - delta)


def ds_delta_row_by_column(p, do, o, v_j):
    return p * (do @ v_j.mT - (do * o).sum(-1))


def ds_normalised_here(p, do, o, v_j):
    p = p / p.sum(-1, keepdim=True)
    return p * (do @ v_j.mT - (do * o).sum(-1, keepdim=True))


def ds_scaled(p, do, o, v_j):
    return p * (do @ v_j.mT - (do * o).sum(-1, keepdim=True)) / math.sqrt(do.shape[-1])


def ds_o_of_the_block(p, do, o, v_j):
    return p * (do @ v_j.mT - (do * (p @ v_j)).sum(-1, keepdim=True))


def ds_mean(p, do, o, v_j):
    return p * (do @ v_j.mT - (do * o).mean(-1, keepdim=True))


def ds_one_delta(p, do, o, v_j):
    return p * (do @ v_j.mT - (do * o).sum())


def ds_dp_of_o(p, do, o, v_j):
    return p * (o @ v_j.mT - (do * o).sum(-1, keepdim=True))


def ds_delta_outside(p, do, o, v_j):
    return p * (do @ v_j.mT) - (do * o).sum(-1, keepdim=True)


def _dq(q_i, k, v, do_i, o_i, lse_i, block_k, *, scale=None, cols=lambda j, block_k: slice(j, j + block_k), turned=1):
    scale = scale or 1 / math.sqrt(q_i.shape[-1])
    delta, dq_i = (do_i * o_i).sum(-1, keepdim=True), torch.zeros_like(q_i)
    for j in range(0, len(k), block_k):
        here = cols(j, block_k)
        P = torch.exp(scale * q_i @ k[here].mT - lse_i[:, None])
        dq_i = dq_i + turned * scale * (P * (do_i @ v[here].mT - delta)) @ k[here]
    return dq_i


def dq_one_product(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, len(k))


def dq_one_key_at_a_time(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, 1)


def dq_block_of_four(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, 4)


def dq_in_float32(q_i, k, v, do_i, o_i, lse_i, block_k):
    dq_i = torch.zeros(q_i.shape)  # float32, whatever came in
    dq_i += _dq(q_i, k, v, do_i, o_i, lse_i, block_k)
    return dq_i


def dq_stop_is_the_block(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, cols=slice)


def dq_scale_of_the_keys(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, scale=1 / math.sqrt(len(k)))


def dq_downhill(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, turned=-1)


def dq_values_for_keys(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, v, k, do_i, o_i, lse_i, block_k)


WRONG = {
    "10.dv": (
        ("one product for all queries", dv_one_product, "31 queries at once"),
        ("one query at a time", dv_one_query_at_a_time, "for 7 queries at once, .* got it for 1(\\n|$)"),
        ("the size of a block is typed in", dv_block_of_four, "for 7 queries at once, .* got it for 3, 4(\\n|$)"),
        ("the blocks are of keys, not of queries", dv_blocks_of_keys, "31 queries at once"),
        ("all scores are computed before the loop", dv_scores_before_the_loop, "31 queries at once"),
        ("all of P is kept for one product after the loop", dv_product_after_the_loop, "31 queries at once"),
        ("dV is summed in float32", dv_in_float32, "float32 unless told"),
        ("the last block overlaps the one before it", dv_overlapping),
        ("a block ends at block_q, not block_q further on", dv_stop_is_the_block),
        ("the scale is that of the number of keys", dv_scale_of_the_keys),
        ("the scale is typed in for d = 4", dv_scale_typed_in),
        ("scores are divided by d / 2", dv_half_d),
        ("a causal mask that nobody asked for", dv_causal),
        ("P is divided by its sum over this block", dv_lse_as_maximum),
    ),
    "10.ds": (
        ("delta is summed in float32", ds_in_float32, "float32 unless told"),
        ("delta is no column", ds_delta_row_by_column),
        ("P is divided by its sum over this block", ds_normalised_here),
        ("the scale comes in twice", ds_scaled),
        ("o is that of this block alone", ds_o_of_the_block),
        ("delta is a mean over d", ds_mean),
        ("one delta for all rows", ds_one_delta),
        ("dP comes from O", ds_dp_of_o),
        ("delta is taken off P o dP, not off dP", ds_delta_outside),
    ),
    "10.dq": (
        ("one product for all keys", dq_one_product, "31 keys at once"),
        ("one key at a time", dq_one_key_at_a_time, "for 7 keys at once, .* got it for 1(\\n|$)"),
        ("the size of a block is typed in", dq_block_of_four, "for 7 keys at once, .* got it for 3, 4(\\n|$)"),
        ("dQ is summed in float32", dq_in_float32, "float32 unless told"),
        ("a block ends at block_k, not block_k further on", dq_stop_is_the_block),
        ("the scale is that of the number of keys", dq_scale_of_the_keys),
        ("the sign is that of a step down", dq_downhill, "minus|sign"),
        ("K and V change places", dq_values_for_keys),
    ),
    "10.order": (
        ("dK is never made", lambda: "EBC", "3 were given"),
        ("no P is made", lambda: "BCA", "tile"),
        ("dS is made twice", lambda: "EBCFA", "line F"),
        ("the values come last, from dS", lambda: "ECAB", "taken the place of P already"),
        ("no lines at all", lambda: "", "0 were given"),
        ("a line that is not there", lambda: "EBCAX", "A to G"),
        ("a line twice", lambda: "EBBCA", "once at most"),
        ("numbers for letters", lambda: [5, 2, 3, 1], "letters of lines"),
    ),
}


def dv_by_split(q, k_j, do, lse, block_q):
    parts = zip(q.split(block_q), do.split(block_q), lse.split(block_q), strict=True)
    return sum(torch.exp(k_j @ q_i.T / q.shape[-1] ** 0.5 - lse_i) @ do_i for q_i, do_i, lse_i in parts)


def dv_in_place(q, k_j, do, lse, block_q):
    dv_j = torch.zeros_like(k_j)
    for start in range(0, q.shape[0], block_q):
        rows = slice(start, min(start + block_q, q.shape[0]))
        P = torch.einsum("id,jd->ij", q[rows], k_j).div_(math.sqrt(q.shape[1])).sub_(lse[rows].unsqueeze(1)).exp_()
        dv_j.addmm_(P.T, do[rows])
    return dv_j


def dv_without_products(q, k_j, do, lse, block_q):
    dv_j = torch.zeros(k_j.shape, dtype=q.dtype)
    for i in range(0, len(q), block_q):
        rows = slice(i, i + block_q)
        S = (q[rows, None] * k_j).sum(-1) * q.shape[-1] ** -0.5
        P = 2 ** ((S - lse[rows, None]) * math.log2(math.e))
        dv_j += (P[:, :, None] * do[rows, None]).sum(0)
    return dv_j


def dq_by_split(q_i, k, v, do_i, o_i, lse_i, block_k):
    root, delta = q_i.shape[-1] ** 0.5, (do_i * o_i).sum(-1)
    parts = zip(k.split(block_k), v.split(block_k), strict=True)
    return sum(((k_j @ q_i.T / root - lse_i).exp() * (v_j @ do_i.T - delta)).T @ k_j for k_j, v_j in parts) / root


def dq_in_place(q_i, k, v, do_i, o_i, lse_i, block_k):
    dq_i, scale = torch.zeros_like(q_i), q_i.shape[-1] ** -0.5
    for start in range(0, len(k), block_k):
        cols = slice(start, min(start + block_k, len(k)))
        P = (scale * q_i @ k[cols].T).sub_(lse_i[:, None]).exp_()
        dq_i.addmm_(P.mul_((do_i @ v[cols].T).sub_((do_i * o_i).sum(-1, keepdim=True))), k[cols], alpha=scale)
    return dq_i


def dq_by_einsum(q_i, k, v, do_i, o_i, lse_i, block_k):
    dq_i, scale = 0 * q_i, q_i.shape[-1] ** -0.5
    for j in range(0, len(k), block_k):
        k_j, v_j = k[j : j + block_k], v[j : j + block_k]
        P = torch.exp(scale * torch.einsum("id,jd->ij", q_i, k_j) - lse_i.unsqueeze(-1))
        dS = P * (torch.einsum("id,jd->ij", do_i, v_j) - torch.einsum("id,id->i", do_i, o_i)[:, None])
        dq_i = dq_i + scale * torch.einsum("ij,jd->id", dS, k_j)
    return dq_i


RIGHT = {
    "10.dv": (
        ("split, and P transposed at once", dv_by_split),
        ("in place", dv_in_place),
        ("no matmul, 2 to the power", dv_without_products),
    ),
    "10.ds": (
        (
            "einsum",
            lambda p, do, o, v: p * (torch.einsum("id,jd->ij", do, v) - torch.einsum("id,id->i", do, o)[:, None]),
        ),
        ("two terms", lambda p, do, o, v: p * (do @ v.T) - p * (do * o).sum(1)[:, None]),
        ("o taken off v", lambda p, do, o, v: p * (do[:, None] * (v - o[:, None])).sum(-1)),
    ),
    "10.dq": (
        ("split, and the scale at the end", dq_by_split),
        ("in place", dq_in_place),
        ("einsum", dq_by_einsum),
    ),
    "10.order": (
        ("a list of small letters", lambda: ["e", "b", "c", "a"]),
        ("commas between", lambda: "E, B, C, A"),
    ),
}
