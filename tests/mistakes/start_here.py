"""Planted mistakes for the exercise of notebook 00: what is wrong, the function, the case that must catch it."""

MISTAKES = {
    "00.scores": [
        ("not scaled", lambda q, k: q @ k.T, "one query, one key"),
        ("divided by D", lambda q, k: q @ k.T / q.shape[-1], "D is not 4"),
        ("D taken for 4", lambda q, k: q @ k.T / 2, "D is not 4"),
        ("transposed", lambda q, k: k @ q.T / q.shape[-1] ** 0.5, "as many queries as keys"),
        (
            "k not transposed",
            lambda q, k: q @ k.reshape(q.shape[-1], -1) / q.shape[-1] ** 0.5,
            "more keys than queries",
        ),
    ],
}
