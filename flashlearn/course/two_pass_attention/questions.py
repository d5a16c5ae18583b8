"""Questions of notebook 04."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="04.scale",
        text="q and k have 64 independent entries each, with mean 0 and variance 1. "
        "By what must q·k be divided to have variance 1 as well?",
        right="by 8",
        wrong=(
            Wrong(
                "by 64",
                "a sum of 64 products has to be averaged",
                "mistake: 04.attention: the scores are divided by D, not by its square root",
            ),
            Wrong(
                "by nothing",
                "a dot product of numbers of size 1 has size 1 itself",
                "mistake: 04.attention: the scores are not divided by sqrt(D)",
            ),
            Wrong(
                "by 2",
                "the divisor is a constant of attention",
                "mistake: 00.scores: D is taken to be 4, whatever it is",
            ),
        ),
        why="The 64 variances add up to 64, and dividing by √64 = 8 divides the variance by 64.",
        shown="assert abs(s.var() / width - 1) < 0.1 and abs(scaled.var() - 1) < 0.1",
    ),
    Question(
        name="04.store",
        text="Must the scores of all pairs go to HBM on the way from Q, K and V to an exact O?",
        right="no: a row of scores can wait on chip",
        wrong=(
            Wrong(
                "yes: softmax needs whole rows, so S must be stored first",
                "what softmax needs it must read from HBM",
                "myth: exact attention must store the N × N matrix",
            ),
            Wrong(
                "no, but then some scores are dropped and O is close only",
                "less memory is bought with accuracy",
                "myth: FlashAttention is an approximation",
            ),
        ),
        why="Pass 1 makes each score from its key and keeps it on chip; pass 2 uses it there. No score is left out.",
        shown='assert fl.hbm_bytes(steps, "S", "P").total == 0',
    ),
    Question(
        name="04.sees",
        text="Causal attention, ten keys, and one query: that of the last token. Which keys does it see?",
        right="all ten, its own too",
        wrong=(
            Wrong(
                "the nine before its own",
                "a token does not see itself",
                "mistake: 04.decode: the query attends before its own key and value are appended",
            ),
            Wrong(
                "the first alone, as row 0 of the mask says",
                "rows of the mask are counted from the first token, whatever queries there are",
                "myth: is_causal=True is right for decoding",
            ),
        ),
        why="The query is the last of ten: the mask is aligned to the bottom right, and its last row hides nothing.",
        shown="assert causal_mask(4, 10).sum(-1).tolist() == [7, 8, 9, 10] and causal_mask(1, 10).all()",
    ),
    Question(
        name="04.cache",
        text="Ten tokens are decoded one by one from a KV cache. "
        "How do their rows of O compare with those of one run over the whole text?",
        right="they are the same rows",
        wrong=(
            Wrong(
                "they are close: a cache stands in for the real keys",
                "cached keys and values grow stale",
                "myth: a KV cache is an approximation",
            ),
            Wrong(
                "each lacks its own token, which joins the cache later",
                "the cache is filled after the token has asked",
                "mistake: 04.decode: the query attends before its own key and value are appended",
            ),
        ),
        why="A causal row depends on nothing that comes later, so nothing in the cache ever has to change.",
        shown="torch.testing.assert_close(token, whole[:, :, t : t + 1])",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="04.recall.a",
        text="Which form of softmax stays finite for logits near 1000?",
        right="e^(x − max) over its sum",
        wrong=(
            Wrong(
                "(e^x − max) over its sum",
                "the maximum is taken from the exponential, not from the exponent",
                "myth: subtract the maximum: e^x − max",
            ),
            Wrong(
                "e^x over its sum, in float32",
                "a wider dtype makes room for any exponential",
                "mistake: 01.softmax: the work is done in float32, whatever the dtype of x",
            ),
        ),
        why="No exponent is above 0 then, and the common factor e^(−max) cancels.",
        shown="02",
    ),
    Question(
        name="04.recall.b",
        text="Online softmax holds m = 3 and ℓ = 1.3679, and reads x = 5. What is ℓ now?",
        right="1.1851",
        wrong=(
            Wrong(
                "2.3679",
                "the old sum needs no correction when the maximum rises",
                "mistake: 03.merge: the sums are added without rescaling",
            ),
            Wrong(
                "11.1075",
                "the old sum is multiplied by e^(5 − 3)",
                "mistake: 03.merge: the factors are upside down, e^(m - m_a) for e^(m_a - m)",
            ),
        ),
        why="1.3679 · e^(3 − 5) + e^(5 − 5) = 0.1851 + 1.",
        shown="03",
    ),
    Question(
        name="04.recall.c",
        text="A row whose logits are all −∞: what is e^(x − m)?",
        right="nan",
        wrong=(
            Wrong(
                "1, as e^0 is",
                "−∞ − (−∞) is 0",
                "mistake: 03.merge: -inf is subtracted from -inf when both sides are empty",
            ),
            Wrong(
                "an error",
                "no floating-point number is −∞",
                "myth: floating-point numbers cannot hold −inf",
            ),
        ),
        why="−∞ − (−∞) is nan, and so is its exponential; such a row needs a guard.",
        shown="02",
    ),
)
