"""Answers to the exercises of serving that are no edit of the solution: `wrong.toml` names them."""

import math

import torch


def page_by_rows(table, b, h, t, page, strides):
    row = table.to(torch.int64)[b]
    offsets = [int(row[int(i) // page]) * strides[0] + h * strides[1] + int(i) % page * strides[2] for i in t]
    return torch.tensor(offsets)


def page_in_float64(table, b, h, t, page, strides):
    column = torch.div(t, page, rounding_mode="floor")
    number = table[b].gather(0, column.long()).double()
    return number * strides[0] + h * strides[1] + (t - page * column) * strides[2]


def waste_box_by_box(lengths, page):
    longest = max(lengths)
    return float(sum(longest - n for n in lengths)), sum(math.ceil(n / page) * page - n for n in lengths)


def splits_counted_up(B, H_q, H_kv, N_k, at_once, least):
    s = 1
    while (s + 1) * B * H_kv <= at_once and N_k // (s + 1) >= least:
        s += 1
    return s
