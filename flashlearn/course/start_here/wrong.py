"""Answers to the exercises of start_here that are no edit of the solution: `wrong.toml` names them."""

import torch


def scores_entry_by_entry(q, k):
    return torch.stack([torch.stack([(a * b).sum() / len(a) ** 0.5 for b in k]) for a in q])
