"""Questions of notebook 01."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="01.bytes",
        text="x holds 6 numbers in float32. How many bytes does softmax read from HBM, by its definition?",
        right="48 B, in two passes",
        wrong=(
            Wrong(
                "24 B, in one pass",
                "a weight can be written while its sum still grows",
                "myth: one-pass attention computes softmax in one pass",
            ),
            Wrong(
                "12 B, in two passes", "a number takes one byte", "mistake: 14.stages: elements are counted as bytes"
            ),
            Wrong(
                "24 B, in two passes",
                "every number takes two bytes",
                "mistake: 14.stages: every element is taken for 2 bytes",
            ),
        ),
        why="The first pass ends with the sum, the second divides by it: 2 × 6 numbers of 4 bytes.",
        shown="assert traffic.read == 2 * N * itemsize",
    ),
    Question(
        name="01.edge",
        text="The largest number of float16 is 65,504. Which is the first of these logits whose exponential is infinite there?",
        right="11.1",
        wrong=(
            Wrong(
                "11",
                "e^11 is too large for float16",
                "myth: float16 holds numbers up to 65536, and e^11 overflows it",
            ),
            Wrong("12", "only whole logits count", "mistake: 01.overflow: the edge is rounded up to an integer"),
            Wrong(
                "88.8",
                "every format overflows where float32 does",
                "mistake: 01.overflow: the answer for float32 is given for every dtype",
            ),
        ),
        why="The logarithm of 65,504 is 11.0899.",
        shown="edge = torch.tensor(largest, dtype=torch.float64).log()",
    ),
    Question(
        name="01.pair",
        text="In float16 e^11 is 59,872, and the largest number is 65,504. What is naive softmax of (11, 11)?",
        right="(0, 0)",
        wrong=(
            Wrong(
                "(0.5, 0.5)",
                "the sum is kept in a wider format",
                "mistake: 01.softmax: the work is done in float32, whatever the dtype of x",
            ),
            Wrong(
                "(nan, nan)",
                "e^11 itself is infinite already, and inf / inf is nan",
                "myth: float16 holds numbers up to 65536, and e^11 overflows it",
            ),
        ),
        why="Each exponential fits, their sum is inf, and 59,872 / inf is 0: no nan warns you.",
        shown="assert fl.naive_softmax(pair).sum() == 0",
    ),
    Question(
        name="01.after",
        text="The logits are 1 to 6. Somebody subtracts the largest after the exponential, e^x − max, then divides by the sum. What comes out?",
        right="other weights, one of them negative",
        wrong=(
            Wrong(
                "the right weights: a shift changes nothing",
                "it does not matter where the maximum is subtracted",
                "myth: subtract the maximum: e^x − max",
            ),
            Wrong(
                "the right weights, until e^x overflows",
                "only the protection against overflow is lost",
                "mistake: 02.safe: the maximum is subtracted after the exponential, from e^x",
            ),
        ),
        why="e^1 − 6 is negative, and so is its weight. In the exponent the same shift would cancel.",
        shown='assert (wrong(x) < 0).any(), "a weight must never be negative"',
    ),
)
RECALLS: tuple[Question, ...] = ()
