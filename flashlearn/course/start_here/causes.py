"""What a wrong answer to the exercise of notebook 00 gets wrong."""

from __future__ import annotations

import torch


def both_are_used(scores):
    """A query of zeros has no score but 0, nor has a key of zeros."""
    t, zero = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.zeros(1, 4)
    for name, q, k in (("q", zero, t), ("k", t, zero)):
        if scores(q, k).abs().item() > 1e-6:
            if torch.allclose(scores(q, k), torch.ones(1, 1)):
                return "a single score becomes 1: is there a softmax? The task asks for scores, not for weights"
            return f"with {name} = 0 a score is {scores(q, k).item():.3g}, not 0: row i belongs to query i, column j to key j"
    return ""


def the_factor(scores):
    """A score of two equal rows of ones is D times the factor; other sizes must not change it."""
    factors = {}
    for D, N_q, N_k in ((4, 1, 1), (16, 1, 1), (16, 9, 1), (16, 1, 9), (10, 1, 1)):
        s = scores(torch.ones(N_q, D), torch.ones(N_k, D))
        if s.shape != (N_q, N_k):
            return ""  # no scores at all
        factors[D, N_q, N_k] = s.flatten()[0].item() / D
        twice = scores(torch.ones(N_q, D), 2 * torch.ones(N_k, D)).flatten()[0].item() / D
        if abs(twice - 2 * factors[D, N_q, N_k]) > 1e-4:
            return ""  # no multiple of q.k
    wrong = [sizes for sizes, factor in factors.items() if abs(factor - sizes[0] ** -0.5) > 1e-4]
    if not wrong:
        return ""
    D, N_q, N_k = wrong[0]
    said = f"with D = {D}, {N_q} queries and {N_k} keys a score is {factors[wrong[0]]:.4g} times q.k"
    return f"{said}, not 1 / sqrt(D) = {D**-0.5:.4g}: D is the last size of q and k"


CAUSES = {"scores": (both_are_used, the_factor)}
