"""Solutions of the exercises of notebook 03."""

from __future__ import annotations

import torch

INF = float("inf")


# 03.mend
def mend_solution(m, l, x):
    m_new = torch.maximum(m, x)
    return m_new, l * torch.exp(m - m_new) + torch.exp(x - m_new)


# 03.merge
def merge_solution(a, b):
    (m_a, l_a), (m_b, l_b) = a, b
    m = torch.maximum(m_a, m_b)
    if m == -INF:  # neither side has an element
        return m, torch.zeros_like(l_a)
    return m, l_a * torch.exp(m_a - m) + l_b * torch.exp(m_b - m)


# 03.tree
def tree_solution(x, block_size):
    if len(x) <= block_size:
        m = x.max()
        return m, torch.exp(x - (0 if m == -INF else m)).sum()  # a block of nothing but -inf: (-inf, 0)
    middle = len(x) // 2
    return merge_solution(tree_solution(x[:middle], block_size), tree_solution(x[middle:], block_size))


def running_pair(x):
    m, l = torch.full_like(x[0], -INF), torch.zeros_like(x[0])
    for x_i in x:
        m_new = torch.maximum(m, x_i)
        alpha = torch.exp(m - m_new)
        l = l * alpha
        l = l + torch.exp(x_i - m_new)
        m = m_new
    return m, l


# 03.order
def order_solution():
    return "CGBEA"
