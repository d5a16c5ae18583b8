"""Answers to the exercises of tiled_backward that are no edit of the solution: `wrong.toml` names them."""

import math

import torch


def _dv(*problem, stop=None, weights=None, join=torch.add, scale=True):
    q, k_j, do, lse, block_q = problem
    dv_j = torch.zeros_like(k_j)
    for i in range(0, len(q) if stop is None else stop(len(q), block_q), block_q):
        rows = slice(i, i + block_q)
        S = q[rows] @ k_j.mT / (math.sqrt(q.shape[-1]) if scale else 1)
        P = weights(S, lse[rows, None]) if weights else torch.exp(S - lse[rows, None])
        dv_j = join(dv_j, P.mT @ do[rows])
    return dv_j


def dv_softmax_over_the_block(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, weights=lambda S, lse: torch.softmax(S, -1))


def dv_overwritten(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, join=lambda old, new: new)


def dv_drops_the_rest(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, stop=lambda n, block: n - n % block)


def dv_without_scale(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, scale=False)


def dv_exp_first(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, weights=lambda S, lse: torch.exp(S) / torch.exp(lse))


def dv_not_transposed(q, k_j, do, lse, block_q):
    S = q @ k_j.mT / math.sqrt(q.shape[-1])
    return torch.exp(S - lse[:, None]) @ do


def _dq(*problem, join=torch.add, stop=None, weights=None, delta=None, factor=None):
    q_i, k, v, do_i, o_i, lse_i, block_k = problem
    scale = 1 / math.sqrt(q_i.shape[-1])
    dq_i = torch.zeros_like(q_i)
    for j in range(0, len(k) if stop is None else stop(len(k), block_k), block_k):
        cols = slice(j, j + block_k)
        S = scale * q_i @ k[cols].mT
        P = weights(S) if weights else torch.exp(S - lse_i[:, None])
        dP = do_i @ v[cols].mT
        dS = P * (dP - (delta(P, dP) if delta else (do_i * o_i).sum(-1, keepdim=True)))
        dq_i = join(dq_i, (scale if factor is None else factor) * dS @ k[cols])
    return dq_i


def dq_overwritten(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, join=lambda old, new: new)


def dq_drops_the_rest(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, stop=lambda n, block: n - n % block)


def dq_without_scale(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, factor=1.0)


def dq_softmax_over_the_block(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, weights=lambda S: torch.softmax(S, -1))


def dq_delta_of_the_block(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, delta=lambda P, dP: (P * dP).sum(-1, keepdim=True))


def dq_without_delta(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, delta=lambda P, dP: 0)


def dv(q, k_j, do, lse, block_q, weights, scale=None):
    dv_j = torch.zeros_like(k_j)
    for i in range(0, len(q), block_q):
        rows = slice(i, i + block_q)
        S = q[rows] @ k_j.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        dv_j = dv_j + weights(S, lse[rows]).mT @ do[rows]
    return dv_j


def without_lse(q, k_j, do, lse, block_q):
    return dv(q, k_j, do, lse, block_q, lambda S, lse: torch.exp(S))


def lse_along_the_keys(q, k_j, do, lse, block_q):
    return dv(q, k_j, do, lse, block_q, lambda S, lse: torch.exp(S - lse))


def divided_by_d(q, k_j, do, lse, block_q):
    return dv(q, k_j, do, lse, block_q, lambda S, lse: torch.exp(S - lse[:, None]), 1 / q.shape[-1])


def transposed(q, k_j, do, lse, block_q):
    return dv(q, k_j, do, lse, block_q, lambda S, lse: torch.exp(S - lse[:, None])).mT


def lse_added(q, k_j, do, lse, block_q):
    return dv(q, k_j, do, lse, block_q, lambda S, lse: torch.exp(S + lse[:, None]))


def dq(q_i, k, v, do_i, o_i, lse_i, block_k, ds_of, factor=lambda dS, k_j: dS @ k_j):
    scale = 1 / math.sqrt(q_i.shape[-1])
    delta, dq_i = (do_i * o_i).sum(-1, keepdim=True), torch.zeros_like(q_i)
    for j in range(0, len(k), block_k):
        cols = slice(j, j + block_k)
        P = torch.exp(scale * q_i @ k[cols].mT - lse_i[:, None])
        dq_i = dq_i + scale * factor(ds_of(P, do_i @ v[cols].mT, delta), k[cols])
    return dq_i


def dq_delta_added(*problem):
    return dq(*problem, lambda P, dP, delta: P * (dP + delta))


def dq_without_p(*problem):
    return dq(*problem, lambda P, dP, delta: dP - delta)


def dq_of_p(*problem):
    return dq(*problem, lambda P, dP, delta: P)


def dv_one_product(q, k_j, do, lse, block_q):
    P = torch.exp(q @ k_j.mT / math.sqrt(q.shape[-1]) - lse[:, None])
    return P.mT @ do


def dv_one_query_at_a_time(q, k_j, do, lse, block_q):
    return other_dv(q, k_j, do, lse, 1)


def dv_block_of_four(q, k_j, do, lse, block_q):
    return other_dv(q, k_j, do, lse, 4)


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


def other_dv(q, k_j, do, lse, block_q, *, rows=lambda i, block_q: slice(i, i + block_q), scale=None, lse_of=None):
    dv_j = torch.zeros_like(k_j)
    for i in range(0, len(q), block_q):
        here = rows(i, block_q)
        S = q[here] @ k_j.mT / (scale or math.sqrt(q.shape[-1]))
        P = torch.exp(S - (lse_of(lse[here]) if lse_of else lse[here, None]))
        dv_j = dv_j + P.mT @ do[here]
    return dv_j


def dv_overlapping(q, k_j, do, lse, block_q):
    return other_dv(q, k_j, do, lse, block_q, rows=lambda i, b: slice(min(i, len(q) - b), min(i, len(q) - b) + b))


def dv_stop_is_the_block(q, k_j, do, lse, block_q):
    return other_dv(q, k_j, do, lse, block_q, rows=lambda i, b: slice(i, b))


def dv_scale_of_the_keys(q, k_j, do, lse, block_q):
    return other_dv(q, k_j, do, lse, block_q, scale=math.sqrt(len(k_j)))


def dv_scale_typed_in(q, k_j, do, lse, block_q):
    return other_dv(q, k_j, do, lse, block_q, scale=2.0)


def dv_half_d(q, k_j, do, lse, block_q):
    return other_dv(q, k_j, do, lse, block_q, scale=q.shape[-1] / 2)


def dv_lse_as_maximum(q, k_j, do, lse, block_q):
    dv_j = torch.zeros_like(k_j)
    for i in range(0, len(q), block_q):
        rows = slice(i, i + block_q)
        P = torch.exp(q[rows] @ k_j.mT / math.sqrt(q.shape[-1]) - lse[rows, None])
        dv_j = dv_j + (P / P.sum(-1, keepdim=True)).mT @ do[rows]
    return dv_j


def other_dq(
    q_i, k, v, do_i, o_i, lse_i, block_k, *, scale=None, cols=lambda j, block_k: slice(j, j + block_k), turned=1
):
    scale = scale or 1 / math.sqrt(q_i.shape[-1])
    delta, dq_i = (do_i * o_i).sum(-1, keepdim=True), torch.zeros_like(q_i)
    for j in range(0, len(k), block_k):
        here = cols(j, block_k)
        P = torch.exp(scale * q_i @ k[here].mT - lse_i[:, None])
        dq_i = dq_i + turned * scale * (P * (do_i @ v[here].mT - delta)) @ k[here]
    return dq_i


def dq_one_product(q_i, k, v, do_i, o_i, lse_i, block_k):
    return other_dq(q_i, k, v, do_i, o_i, lse_i, len(k))


def dq_one_key_at_a_time(q_i, k, v, do_i, o_i, lse_i, block_k):
    return other_dq(q_i, k, v, do_i, o_i, lse_i, 1)


def dq_block_of_four(q_i, k, v, do_i, o_i, lse_i, block_k):
    return other_dq(q_i, k, v, do_i, o_i, lse_i, 4)


def dq_in_float32(q_i, k, v, do_i, o_i, lse_i, block_k):
    dq_i = torch.zeros(q_i.shape)  # float32, whatever came in
    dq_i += other_dq(q_i, k, v, do_i, o_i, lse_i, block_k)
    return dq_i


def dq_stop_is_the_block(q_i, k, v, do_i, o_i, lse_i, block_k):
    return other_dq(q_i, k, v, do_i, o_i, lse_i, block_k, cols=slice)


def dq_scale_of_the_keys(q_i, k, v, do_i, o_i, lse_i, block_k):
    return other_dq(q_i, k, v, do_i, o_i, lse_i, block_k, scale=1 / math.sqrt(len(k)))


def dq_downhill(q_i, k, v, do_i, o_i, lse_i, block_k):
    return other_dq(q_i, k, v, do_i, o_i, lse_i, block_k, turned=-1)


def dq_values_for_keys(q_i, k, v, do_i, o_i, lse_i, block_k):
    return other_dq(q_i, v, k, do_i, o_i, lse_i, block_k)


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
