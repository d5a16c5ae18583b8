"""Solutions of the exercises of notebook 18."""

from __future__ import annotations


# 18.page
def page_solution(page_table, b, h, t, page, strides):
    stride_p, stride_h, stride_n = strides
    number = page_table[b, t // page].long()  # the table is int32, and a large pool has more numbers than that
    return number * stride_p + h * stride_h + t % page * stride_n


# 18.waste
def waste_solution(lengths, page):
    by_longest = len(lengths) * max(lengths) - sum(lengths)
    by_pages = sum(-n % page for n in lengths)  # what is missing to the next multiple, 0 for a full page
    return by_longest, by_pages


# 18.splits
def splits_solution(B, H_q, H_kv, N_k, at_once, least):
    room = at_once // (B * H_kv)  # query heads of a group share a program
    return max(1, min(room, N_k // least))
