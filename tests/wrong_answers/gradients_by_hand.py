"""Wrong answers to the exercises of notebook 09."""

import math

import torch


def matmul_by_autograd(dy, x, w):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    return torch.autograd.grad(x @ w, (x, w), dy)


def matmul_by_backward(dy, x, w):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    (x @ w).backward(dy)
    return x.grad, w.grad


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


def matmul_reshaped(dy, x, w):
    return dy @ w.reshape(w.shape[::-1]), x.reshape(x.shape[::-1]) @ dy


def matmul_last_row(dy, x, w):
    dw = torch.zeros_like(w)
    for n in range(len(x)):
        dw = torch.outer(x[n], dy[n])
    return dy @ w.mT, dw


def matmul_of_the_sum(dy, x, w):
    ones = torch.ones_like(dy)
    return ones @ w.mT, x.mT @ ones


def matmul_descends(dy, x, w):
    return -(dy @ w.mT), -(x.mT @ dy)


def matmul_inverse(dy, x, w):
    return dy @ torch.linalg.pinv(w), torch.linalg.pinv(x) @ dy


def softmax_by_jacobian(dp, p):
    jacobian = torch.diag_embed(p) - p[..., :, None] * p[..., None, :]
    return (jacobian @ dp[..., None]).squeeze(-1)


def softmax_by_autograd(dp, p):
    s = p.log().requires_grad_()
    return torch.autograd.grad(torch.softmax(s, -1), s, dp)[0]


def softmax_in_float32(dp, p):
    delta = (p * dp).float().sum(-1, keepdim=True)
    return p * (dp - delta)


def softmax_three_dimensions(dp, p):
    delta = (p * dp).sum(min(p.ndim, 3) - 1, keepdim=True)
    return p * (dp - delta)


def softmax_of_p(dp, p):
    p = torch.softmax(p, -1)
    return p * (dp - (p * dp).sum(-1, keepdim=True))


def softmax_delta_not_weighed(dp, p):
    return p * dp - (p * dp).sum(-1, keepdim=True)


def softmax_delta_of_dp(dp, p):
    return p * (dp - dp.sum(-1, keepdim=True))


def softmax_adds_delta(dp, p):
    return p * (dp + (p * dp).sum(-1, keepdim=True))


def softmax_mean_of_products(dp, p):
    return p * (dp - (p * dp).mean(-1, keepdim=True))


def softmax_divides_by_p(dp, p):
    weighed = p * dp
    return p * (weighed / p - weighed.sum(-1, keepdim=True))


def softmax_two_terms(dp, p):
    return p * dp - p * (p * dp).sum(-1, keepdim=True)


def dv_of_all_keys(p, do, j):
    return (p.mT @ do)[j]


def dv_loop_over_keys(p, do, j):
    return sum(p[i, j] * do[i] for i in range(min(p.shape[1], len(do))))


def dv_in_float32(p, do, j):
    dv_j = torch.zeros(do.shape[1])  # float32, whatever came in
    for i in range(len(do)):
        dv_j += p[i, j] * do[i]
    return dv_j


def _backward(do, q, k, v, *, scale=None, dp=None, softmax=-1, turned=1):
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
    return tuple(t.double() for t in _backward(*(t.float() for t in (do, q, k, v))))


def bug_other_order(do, q, k, v):
    dq, dk, dv = _backward(do, q, k, v)
    return dk, dq, dv


def delta_from_o(do, q, k, v):
    scale = q.shape[-1] ** -0.5
    p = torch.softmax(q @ k.mT * scale, -1)
    ds = p * (do @ v.mT - (do * (p @ v)).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.mT @ q, p.mT @ do


WRONG = {
    "09.matmul_backward": (
        ("autograd does it", matmul_by_autograd, "autograd was at work"),
        ("autograd does it, by backward()", matmul_by_backward, "autograd was at work"),
        ("dW is summed in float32", matmul_in_float32, "is float32 unless told"),
        (
            "the first product of the right shape is taken",
            matmul_by_shapes,
            "dX: the result is dY W, where dY W\\^T is expected",
        ),
        ("reshape is taken for a transpose", matmul_reshaped),
        ("every row overwrites dW", matmul_last_row),
        ("dY is taken to be 1", matmul_of_the_sum),
        ("the sign is that of a step down the gradient", matmul_descends),
        ("an inverse is taken where a transpose is meant", matmul_inverse),
    ),
    "09.softmax_backward": (
        ("the whole Jacobian is built", softmax_by_jacobian, "do without the Jacobian"),
        ("autograd does it", softmax_by_autograd, "leave autograd out"),
        ("delta is summed in float32", softmax_in_float32, "float32 knows seven digits"),
        ("at most three dimensions are thought of", softmax_three_dimensions, "four dimensions are as good"),
        ("P is divided by, which a mask makes 0", softmax_divides_by_p, "neither divide by P"),
        ("softmax is taken of P", softmax_of_p),
        ("delta is taken off P o dP, not off dP", softmax_delta_not_weighed),
        ("delta is the plain sum of dP", softmax_delta_of_dp),
        ("delta is added", softmax_adds_delta),
        ("delta is the mean of P o dP, not its sum", softmax_mean_of_products),
    ),
    "09.dv": (
        ("dV of all keys is made for one", dv_of_all_keys, "the sum for one key"),
        ("the loop goes over keys, not queries", dv_loop_over_keys, "as many terms as there are queries"),
        ("dV is summed in float32", dv_in_float32, "float32 unless told"),
        ("the weights meet the wrong rows", lambda p, do, j: p[:, j].sum() * do[j], "its own row of dO"),
        ("the key is always the first", lambda p, do, j: p[:, 0] @ do, "j says which key"),
        ("the sign is that of a step down", lambda p, do, j: -(p[:, j] @ do), "minus|sign"),
        ("one row of terms is not added up", lambda p, do, j: p[:, j, None] * do),
    ),
    "09.bug": (
        ("autograd does it", bug_by_autograd, "backward mended"),
        ("all is rounded to float32", bug_in_float32, "digits"),
        ("dQ and dK change places", bug_other_order),
        ("the scale is left out everywhere", lambda do, q, k, v: _backward(do, q, k, v, scale=1.0)),
        ("softmax goes over the queries", lambda do, q, k, v: _backward(do, q, k, v, softmax=-2)),
        ("dP is made of Q", lambda do, q, k, v: _backward(do, q, k, v, dp=q @ v.mT)),
        ("dS has its sign turned", lambda do, q, k, v: _backward(do, q, k, v, turned=-1), "minus|sign"),
    ),
}

RIGHT = {
    "09.matmul_backward": (
        ("einsum", lambda dy, x, w: (torch.einsum("nm,dm->nd", dy, w), torch.einsum("nd,nm->dm", x, dy))),
        ("a list, products turned", lambda dy, x, w: [(w @ dy.T).T, (dy.T @ x).T]),
        ("row by row", lambda dy, x, w: (dy @ w.T, sum(torch.outer(a, b) for a, b in zip(x, dy, strict=True)))),
        ("no matmul", lambda dy, x, w: ((dy[:, None] * w).sum(-1), (x[:, :, None] * dy[:, None]).sum(0))),
    ),
    "09.softmax_backward": (
        ("einsum", lambda dp, p: p * (dp - torch.einsum("...i,...i->...", p, dp)[..., None])),
        ("two terms", softmax_two_terms),
        ("a product of vectors", lambda dp, p: p * (dp - (p[..., None, :] @ dp[..., None]).squeeze(-1))),
        ("dP less its maximum", lambda dp, p: softmax_two_terms(dp - dp.amax(-1, keepdim=True), p)),
    ),
    "09.dv": (
        ("one product", lambda p, do, j: p[:, j] @ do),
        ("einsum", lambda p, do, j: torch.einsum("i,id->d", p[:, j], do)),
        ("a sum of terms", lambda p, do, j: sum(weight * row for weight, row in zip(p[:, j], do, strict=True))),
    ),
    "09.bug": (
        ("a list", lambda do, q, k, v: list(_backward(do, q, k, v))),
        ("delta from O", delta_from_o),
    ),
}
