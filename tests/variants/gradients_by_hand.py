"""Wrong answers to the exercises of notebook 09."""

import math

import torch

from tests.variants import variant


@variant(
    "09.matmul_backward",
    "W is not transposed in dX",
    r"dy w\^t|W(\^T| transposed|\.mT)|transpose W|W must be transposed|W is not transposed",
)
def w_not_transposed(dy, x, w):
    return dy @ w, x.mT @ dy


@variant("09.matmul_backward", "the signs are turned, as in a step downhill", r"sign|minus|negative|-1")
def downhill(dy, x, w):
    return -(dy @ w.mT), -(x.mT @ dy)


@variant("09.matmul_backward", "dW is not returned", r"2 values|two|dX and dW|dw.*return|return.*dw")
def only_dx(dy, x, w):
    return dy @ w.mT


@variant(
    "09.matmul_backward", "dW is divided by the number of columns of Y", r"divi|mean|averag|factor|times too|times what"
)
def divided(dy, x, w):
    return dy @ w.mT, x.mT @ dy / dy.shape[-1]


@variant("09.matmul_backward", "X stands for dY in dW", r"\bdY\b|dW")
def x_squared(dy, x, w):
    return dy @ w.mT, x.mT @ (x @ w)


@variant("09.softmax_backward", "the sign is turned", r"sign|minus|negative|-1|other way|turned")
def sign_turned(dp, p):
    return p * ((p * dp).sum(-1, keepdim=True) - dp)


@variant("09.softmax_backward", "delta is the plain sum of dP", r"weighted by P|P o dP|times P|weigh")
def plain_sum(dp, p):
    return p * (dp - dp.sum(-1, keepdim=True))


@variant("09.softmax_backward", "the factor P is missing", r"factor P|weigh|P o \(|times P|by P|multipl")
def without_p(dp, p):
    return dp - (p * dp).sum(-1, keepdim=True)


@variant("09.softmax_backward", "keepdim is missing", r"keepdim|column|dimension")
def without_keepdim(dp, p):
    return p * (dp - (p * dp).sum(-1))


@variant("09.dv", "the weights are those of query j", r"column j|column of P")
def row_for_column(p, do, j):
    return (p[j, : len(do), None] * do).sum(0)


@variant("09.dv", "every query brings dO_j", r"own row of dO")
def one_row_of_do(p, do, j):
    return p[:, j].sum() * do[min(j, len(do) - 1)]


@variant("09.dv", "only the last query counts", r"add up|each query|every query|one term")
def last_query(p, do, j):
    return p[-1, j] * do[-1]


def attention(do, q, k, v, ds_of, dv=None):
    scale = 1 / math.sqrt(q.shape[-1])
    p = torch.softmax(scale * q @ k.mT, -1)
    ds = ds_of(p, do @ v.mT)
    return scale * ds @ k, scale * ds.mT @ q, p.mT @ do if dv is None else dv(p)


@variant("09.bug", "delta is added", r"delta added|minus|subtract")
def delta_added(do, q, k, v):
    return attention(do, q, k, v, lambda p, dp: p * (dp + (p * dp).sum(-1, keepdim=True)))


@variant("09.bug", "delta is a plain mean", r"mean")
def delta_a_mean(do, q, k, v):
    return attention(do, q, k, v, lambda p, dp: p * (dp - dp.mean(-1, keepdim=True)))


@variant("09.bug", "the factor P is missing in dS", r"factor P")
def without_the_factor(do, q, k, v):
    return attention(do, q, k, v, lambda p, dp: dp - (p * dp).sum(-1, keepdim=True))
