"""Answers to the exercises of start_here that are no edit of the solution: `wrong.toml` names them."""

import math

import torch


def softmax_already(q, k):
    return torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), -1)


def _divided(products, D):
    return products / math.sqrt(D)


def entry_by_entry(q, k):
    return torch.stack([torch.stack([(a * b).sum() / len(a) ** 0.5 for b in k]) for a in q])
