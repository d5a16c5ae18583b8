"""Answers to the exercises of many_gpus that are no edit of the solution: `wrong.toml` names them."""

import torch


def owners_by_hand(s, P):
    held = list(range(P))
    for _ in range(s):
        held = held[-1:] + held[:-1]
    return held


def weighed(weight, o, lse):
    return (weight[..., None] * o).sum(0), lse


def merge_one_after_the_other(o, lse):
    total, found = lse[0], o[0]
    for o_s, lse_s in zip(o[1:], lse[1:], strict=True):
        both = torch.logaddexp(total, lse_s)
        safe = both.masked_fill(both == -torch.inf, 0)
        found = torch.exp(total - safe)[..., None] * found + torch.exp(lse_s - safe)[..., None] * o_s
        total = both
    return found, total
