"""Answers to the exercises of tiled_backward that are no edit of the solution: `wrong.toml` names them."""

import math

import torch


def weights(q, k_j, lse):
    return torch.exp(q @ k_j.mT / math.sqrt(q.shape[-1]) - lse[:, None])


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
