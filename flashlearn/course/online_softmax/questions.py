"""Questions of notebook 03."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="03.wrong",
        text="Logits 1 to 6 come in order. A program keeps the maximum, adds e^(x − m) of each to ℓ and corrects nothing. "
        "The right ℓ is 1.58. What does it end with?",
        right="6",
        wrong=(
            Wrong(
                "1.58",
                "old terms need no correction",
                "mistake: 03.merge: the sums are added without rescaling",
            ),
            Wrong(
                "636.6, the sum of all e^x",
                "without a correction nothing is shifted at all",
                "mistake: 03.order: the new term is added as e^(x_i), not measured from the maximum",
            ),
        ),
        why="Each logit is the maximum when it comes, so each adds e^0 = 1.",
        shown='assert wrong[-1].values["l_i"] == 6',
    ),
    Question(
        name="03.correction",
        text="ℓ was measured from m = 3. Now 5 arrives. What becomes of ℓ before the new term joins it?",
        right="it is multiplied by e^(3 − 5)",
        wrong=(
            Wrong(
                "it is multiplied by e^(5 − 3)",
                "sums grow when the maximum does",
                "mistake: 03.merge: the factors are upside down",
            ),
            Wrong("nothing", "terms do not depend on the maximum", "mistake: 03.merge: the sums are added without"),
            Wrong(
                "nothing yet: both are scaled together",
                "the new term is measured from the old maximum too",
                "mistake: 03.order: the new term is added before the correction",
            ),
        ),
        why="e^(x − 3) · e^(3 − 5) = e^(x − 5): one factor moves every old term to the new maximum.",
        shown="alpha = torch.exp(m - m_new)",
    ),
    Question(
        name="03.any_order",
        text="15 blocks are merged in float32, in 200 random orders. How many different ℓ come out?",
        right="a few, alike to six digits",
        wrong=(
            Wrong(
                "one, to the last bit",
                "what is associative on paper is so in a program",
                "mistake: 02.shift: the rounding of x + c counts as a difference",
            ),
            Wrong(
                "many: the block with the maximum must come first",
                "a merge cannot correct the right side",
                "mistake: 03.merge: only the left sum is rescaled",
            ),
        ),
        why="The merge is associative on paper; every rounding depends on the order.",
        shown="assert 1 < len(sums) < 200 and max(sums) / min(sums) < 1 + 1e-6",
    ),
    Question(
        name="03.hidden",
        text="A block holds nothing but −∞. What are its m and ℓ, if the program computes ℓ as the sum of e^(x − m)?",
        right="m = −∞, ℓ = nan",
        wrong=(
            Wrong(
                "m = −∞, ℓ = 0",
                "e^(−∞) is 0, so all terms are",
                "mistake: 03.merge: -inf is subtracted from -inf when both sides are empty",
            ),
            Wrong(
                "an error: no number is −∞",
                "a program cannot start from −∞",
                "myth: floating-point numbers cannot hold −inf",
            ),
        ),
        why="−∞ − (−∞) is nan, and so is its exponential: the one subtraction that needs a guard.",
        shown="assert unguarded[1].isnan()",
    ),
    Question(
        name="03.complexity",
        text="Online softmax finds the maximum and the sum in one loop, where safe softmax has two. What falls?",
        right="the bytes read, from 3N to 2N numbers",
        wrong=(
            Wrong(
                "the time complexity, from O(N²) to O(N)",
                "fewer passes mean another complexity class",
                "myth: online softmax lowers the time complexity",
            ),
            Wrong(
                "the exponentials: one fewer for each element",
                "fewer passes mean less arithmetic",
                "myth: FlashAttention is fast because it computes less",
            ),
        ),
        why="A pass over memory is saved. The exponentials do not become fewer: the correction has one too.",
        shown='assert exps == [2 * n, 4 * n], "more work, not less"',
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="03.recall.one",
        text="Why can the sum of safe softmax never be 0, for finite logits?",
        right="the maximum itself adds e^0 = 1",
        wrong=(
            Wrong(
                "a small number is added to it, to be safe",
                "the sum may vanish otherwise",
                "mistake: 02.safe: a small number is added to l",
            ),
            Wrong(
                "the maximum starts at −1000, and no logit is lower",
                "some number is low enough for every row",
                "myth: start the maximum at a very small number such as −1000",
            ),
        ),
        why="One of the logits is the maximum, whatever it is.",
        shown="02",
    ),
    Question(
        name="03.recall.lse",
        text="m is the maximum of a row, ℓ the sum of e^(x − m). Write the log of the sum of all e^x.",
        right="m + log ℓ",
        wrong=(
            Wrong("log ℓ", "the shift is gone by then", "mistake: 02.lse: m is not added back"),
            Wrong(
                "log ℓ − m",
                "what was subtracted stays subtracted",
                "mistake: 02.lse: m is subtracted at the end where it must be added",
            ),
        ),
        why="Σ e^x = e^m · ℓ, and the logarithm of a product is a sum.",
        shown="02",
    ),
    Question(
        name="03.recall.pair",
        text="What does naive softmax make of (11, 11) in float16?",
        right="(0, 0), silently",
        wrong=(
            Wrong(
                "(nan, nan)",
                "e^11 is infinite in float16",
                "myth: float16 holds numbers up to 65536, and e^11 overflows it",
            ),
            Wrong(
                "(0.5, 0.5), as it should",
                "the sum is kept in a wider format",
                "mistake: 01.softmax: the work is done in float32, whatever the dtype of x",
            ),
        ),
        why="Both exponentials fit, their sum does not: each weight is finite / inf.",
        shown="01",
    ),
)
