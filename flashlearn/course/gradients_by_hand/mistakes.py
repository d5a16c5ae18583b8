"""Known wrong answers to the exercises of notebook 09."""

import math

import torch

from flashlearn.exercises.assessment import Mistake


def matmul_no_transposes(dy, x, w):
    return dy @ w, x @ dy


def matmul_other_way_round(dy, x, w):
    return x.mT @ dy, dy @ w.mT


def matmul_dw_transposed(dy, x, w):
    return dy @ w.mT, dy.mT @ x


def matmul_mean_over_rows(dy, x, w):
    return dy @ w.mT, x.mT @ dy / len(x)


def matmul_first_row_only(dy, x, w):
    return dy @ w.mT, x[:1].mT @ dy[:1]


def softmax_without_delta(dp, p):
    return p * dp


def softmax_diagonal_only(dp, p):
    return p * (1 - p) * dp


def softmax_plain_mean(dp, p):
    return p * (dp - dp.mean(-1, keepdim=True))


def softmax_one_delta_for_all_rows(dp, p):
    return p * (dp - (p * dp).sum())


def softmax_two_dimensions_only(dp, p):
    return p * (dp - (p * dp).sum(1 if p.ndim > 1 else 0, keepdim=True))


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


MISTAKES = {
    "09.matmul_backward": (
        Mistake("nothing is transposed", matmul_no_transposes, "all sizes equal"),
        Mistake("dX and dW are returned in the wrong order", matmul_other_way_round, "all sizes differ"),
        Mistake("dW comes out transposed", matmul_dw_transposed, "all sizes equal"),
        Mistake("dW is averaged over the rows of X, not summed", matmul_mean_over_rows, "many rows"),
        Mistake("only the first row of X adds to dW", matmul_first_row_only, "many rows"),
    ),
    "09.softmax_backward": (
        Mistake("delta is left out", softmax_without_delta, "one row"),
        Mistake("only the diagonal of the Jacobian is used", softmax_diagonal_only, "one row"),
        Mistake("the plain mean of dP is subtracted, not the one weighted by P", softmax_plain_mean, "uneven weights"),
        Mistake("one delta is used for all rows", softmax_one_delta_for_all_rows, "several rows"),
        Mistake("the sum runs over dimension 1 instead of the last", softmax_two_dimensions_only, "two batches"),
    ),
    "09.dv": (
        Mistake("row j of P is taken, not column j", dv_row_of_p, "two queries, two keys"),
        Mistake("only the first query is counted", dv_first_query_only, "two queries, two keys"),
        Mistake("the terms are averaged over the queries, not summed", dv_averaged, "two queries, two keys"),
        Mistake("the weights of a key are made to add up to 1", dv_weights_made_one, "two queries, two keys"),
        Mistake("dO is summed without the weights", dv_unweighted, "two queries, two keys"),
    ),
    "09.bug": (
        Mistake(
            "delta lies along the keys: keepdim=True is missing", bug_delta_along_the_keys, "as many keys as queries"
        ),
        Mistake("delta is left out of dS", bug_delta_left_out, "as many keys as queries"),
        Mistake(
            "delta is summed over the queries, not over the keys", bug_delta_over_queries, "more keys than queries"
        ),
        Mistake("the scale is in dQ and not in dK", bug_scale_in_dq_only, "as many keys as queries"),
        Mistake("dV is scaled too, which V never was", bug_scale_in_dv, "as many keys as queries"),
    ),
}
