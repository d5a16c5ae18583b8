"""Answers to the exercises of gradients_by_hand that are no edit of the solution: `wrong.toml` names them."""

import math

import torch


def dv_row_of_p(p, do, j):
    return sum(p[j, i] * do[i] for i in range(len(do)))


def dv_first_query_only(p, do, j):
    return p[0, j] * do[0]


def dv_averaged(p, do, j):
    return p[:, j] @ do / len(do)


def dv_weights_made_one(p, do, j):
    return p[:, j] / p[:, j].sum() @ do


def dv_unweighted(p, do, j):
    return do.sum(0)


def _backward(do, q, k, v, *, delta=None, scale_dk=True, scale_dv=False, transposed=True):
    scale = 1 / math.sqrt(q.shape[-1])
    p = torch.softmax(scale * q @ k.mT, -1)
    dp = do @ v.mT
    ds = p * (dp - ((p * dp).sum(-1, keepdim=True) if delta is None else delta(p, dp)))
    dk, dv = (ds.mT if transposed else ds) @ q, p.mT @ do
    return scale * ds @ k, scale * dk if scale_dk else dk, scale * dv if scale_dv else dv


def bug_delta_along_the_keys(do, q, k, v):
    return _backward(do, q, k, v, delta=lambda p, dp: (p * dp).sum(-1))


def bug_delta_left_out(do, q, k, v):
    return _backward(do, q, k, v, delta=lambda p, dp: 0)


def bug_delta_over_queries(do, q, k, v):
    return _backward(do, q, k, v, delta=lambda p, dp: (p * dp).sum(-2, keepdim=True))


def bug_scale_in_dq_only(do, q, k, v):
    return _backward(do, q, k, v, scale_dk=False)


def bug_scale_in_dv(do, q, k, v):
    return _backward(do, q, k, v, scale_dv=True)


def row_for_column(p, do, j):
    return (p[j, : len(do), None] * do).sum(0)


def one_row_of_do(p, do, j):
    return p[:, j].sum() * do[min(j, len(do) - 1)]


def last_query(p, do, j):
    return p[-1, j] * do[-1]


def attention(do, q, k, v, ds_of, dv=None):
    scale = 1 / math.sqrt(q.shape[-1])
    p = torch.softmax(scale * q @ k.mT, -1)
    ds = ds_of(p, do @ v.mT)
    return scale * ds @ k, scale * ds.mT @ q, p.mT @ do if dv is None else dv(p)


def delta_added(do, q, k, v):
    return attention(do, q, k, v, lambda p, dp: p * (dp + (p * dp).sum(-1, keepdim=True)))


def delta_a_mean(do, q, k, v):
    return attention(do, q, k, v, lambda p, dp: p * (dp - dp.mean(-1, keepdim=True)))


def without_the_factor(do, q, k, v):
    return attention(do, q, k, v, lambda p, dp: dp - (p * dp).sum(-1, keepdim=True))


def matmul_in_float32(dy, x, w):
    dw = torch.zeros(w.shape)  # float32, whatever came in
    for n in range(len(x)):
        dw += torch.outer(x[n], dy[n]).float()
    return dy @ w.mT, dw


def matmul_by_shapes(dy, x, w):
    """The first product of the right shape, tried with and without transposes."""

    def first(a, b, shape):
        pairs = [(s, t) for one, other in ((a, b), (b, a)) for s in (one, one.mT) for t in (other, other.mT)]
        return next(s @ t for s, t in pairs if s.shape[1] == t.shape[0] and (s.shape[0], t.shape[1]) == shape)

    return first(dy, w, x.shape), first(x, dy, w.shape)


def matmul_last_row(dy, x, w):
    dw = torch.zeros_like(w)
    for n in range(len(x)):
        dw = torch.outer(x[n], dy[n])
    return dy @ w.mT, dw


def softmax_two_terms(dp, p):
    return p * dp - p * (p * dp).sum(-1, keepdim=True)


def dv_of_all_keys(p, do, j):
    return (p.mT @ do)[j]


def dv_loop_over_keys(p, do, j):
    return sum(p[i, j] * do[i] for i in range(min(p.shape[1], len(do))))


def other_backward(do, q, k, v, *, scale=None, dp=None, softmax=-1, turned=1):
    scale = scale or 1 / math.sqrt(q.shape[-1])
    p = torch.softmax(scale * q @ k.mT, softmax)
    dp = do @ v.mT if dp is None else dp
    ds = turned * p * (dp - (p * dp).sum(-1, keepdim=True))
    return scale * ds @ k, scale * ds.mT @ q, p.mT @ do


def bug_by_autograd(do, q, k, v):
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    o = torch.softmax(leaves[0] @ leaves[1].mT / math.sqrt(q.shape[-1]), -1) @ leaves[2]
    return torch.autograd.grad(o, leaves, do)


def bug_in_float32(do, q, k, v):
    return tuple(t.double() for t in other_backward(*(t.float() for t in (do, q, k, v))))


def bug_other_order(do, q, k, v):
    dq, dk, dv = other_backward(do, q, k, v)
    return dk, dq, dv


def delta_from_o(do, q, k, v):
    scale = q.shape[-1] ** -0.5
    p = torch.softmax(q @ k.mT * scale, -1)
    ds = p * (do @ v.mT - (do * (p @ v)).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.mT @ q, p.mT @ do
