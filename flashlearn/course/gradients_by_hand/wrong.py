"""Answers to the exercises of gradients_by_hand that are no edit of the solution: `wrong.toml` names them."""

import math

import torch

from flashlearn.course.one_pass_attention.wrong import in_float32


def matmul_backward_by_shapes(dy, x, w):
    """The first product of the right shape, tried with and without transposes."""

    def first(a, b, shape):
        pairs = [(s, t) for one, other in ((a, b), (b, a)) for s in (one, one.mT) for t in (other, other.mT)]
        return next(s @ t for s, t in pairs if s.shape[1] == t.shape[0] and (s.shape[0], t.shape[1]) == shape)

    return first(dy, w, x.shape), first(x, dy, w.shape)


def bug_autograd(do, q, k, v):
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    o = torch.softmax(leaves[0] @ leaves[1].mT / math.sqrt(q.shape[-1]), -1) @ leaves[2]
    return torch.autograd.grad(o, leaves, do)
