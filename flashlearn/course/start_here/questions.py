"""Questions of notebook 00."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="00.table",
        text="A text of 4,096 tokens: attention makes a table with one number for every pair of them. Must the table lie in HBM?",
        right="no: a piece of it at a time is enough",
        wrong=(
            Wrong(
                "yes, or the result is not exact",
                "what is used must have been stored",
                "myth: exact attention must store the N × N matrix",
            ),
            Wrong(
                "no, but without it the result is close, not the same",
                "less memory is bought with accuracy",
                "myth: FlashAttention is an approximation",
            ),
        ),
        why="That is what this course is about: the same numbers, but for rounding, without the table.",
        shown='    torch.testing.assert_close(steps[-1].output, torch.softmax(row, -1) if "softmax" in name else attention)',
    ),
    Question(
        name="00.rescale",
        text="ℓ adds up e^(x − m) for the numbers read so far. Now the maximum m rises from 4 to 5. What becomes of the old ℓ?",
        right="it is multiplied by e^(4 − 5)",
        wrong=(
            Wrong(
                "it stays, and new terms are added",
                "sums need no common maximum",
                "mistake: 03.merge: the sums are added without rescaling",
            ),
            Wrong(
                "it is multiplied by e^(5 − 4)",
                "a larger maximum makes old terms larger",
                "mistake: 03.merge: the factors are upside down, e^(m - m_a) for e^(m_a - m)",
            ),
        ),
        why="Each old term was e^(x − 4) and has to become e^(x − 5).",
        shown="print(steps[2].sentence)",
    ),
    Question(
        name="00.scale",
        text="Queries and keys have D = 16 numbers each. By what is a product of a query and a key divided, to be a score?",
        right="4",
        wrong=(
            Wrong(
                "nothing", "a score is the product itself", "mistake: 00.scores: the scores are not divided by sqrt(D)"
            ),
            Wrong(
                "16",
                "the products are averaged over D",
                "mistake: 00.scores: the scores are divided by D, not by its square root",
            ),
            Wrong("2", "the divisor is the same for every D", "mistake: 00.scores: D is taken to be 4, whatever it is"),
        ),
        why="S = Q Kᵀ / √D, and the square root of 16 is 4.",
        shown='check("00.scores", lambda q, k: q @ k.T)',
    ),
)
RECALLS: tuple[Question, ...] = ()
