"""Known wrong answers to the exercises of notebook 00."""

from flashlearn.exercises.assessment import Mistake

MISTAKES = {
    "00.scores": (
        Mistake("the scores are not divided by sqrt(D)", lambda q, k: q @ k.T, "one query, one key"),
        Mistake(
            "the scores are divided by D, not by its square root", lambda q, k: q @ k.T / q.shape[-1], "D is not 4"
        ),
        Mistake("D is taken to be 4, whatever it is", lambda q, k: q @ k.T / 2, "D is not 4"),
        Mistake(
            "the result is transposed: row i must belong to query i",
            lambda q, k: k @ q.T / q.shape[-1] ** 0.5,
            "as many queries as keys",
        ),
        Mistake(
            "k is reshaped where it must be transposed",
            lambda q, k: q @ k.reshape(q.shape[-1], -1) / q.shape[-1] ** 0.5,
            "more keys than queries",
        ),
    ),
}
