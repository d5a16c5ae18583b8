"""The exercise of notebook 00: a first one, to see how exercises work."""

from __future__ import annotations

import torch

from flashlearn.course.start_here.solutions import scores_solution
from flashlearn.exercises.assessment import Case, Exercise


def _scores_of(N_q, N_k, D):
    q, k = (torch.randn(N, D, generator=torch.Generator().manual_seed(seed)) for seed, N in enumerate((N_q, N_k)))
    return lambda scores: (scores(q.clone(), k.clone()), scores_solution(q, k))


EXERCISES = (
    Exercise(
        "scores",
        "scores(q, k): (N_q, D), (N_k, D) -> (N_q, N_k): entry i, j is the product of q_i and k_j over sqrt(D)",
        scores_solution,
        (
            Case("one query, one key", _scores_of(1, 1, 4), "sum q_i k_i, then divide by sqrt(D)"),
            Case("as many queries as keys", _scores_of(3, 3, 4), "row i belongs to query i: q @ k.T"),
            Case("more keys than queries", _scores_of(2, 5, 4), "transpose k: (D, N_k)"),
            Case("D is not 4", _scores_of(2, 5, 64), "D is q.shape[-1], not a constant"),
            Case(
                "D is no square number",
                _scores_of(12, 3, 10),
                "D is 10, with 12 queries: math.sqrt(10) is no integer, do not round it",
            ),
        ),
        hints=(
            "Entry i, j needs the D numbers of query i and of key j. Which product multiplies every row of q with every row of k?",
            "k is (N_k, D); transposed it is (D, N_k), and the inner sizes match. D is the last size of q.",
            "q @ k.T holds all products. What is missing is the division by math.sqrt(q.shape[-1]).",
        ),
        core=("D is not 4",),
    ),
)
