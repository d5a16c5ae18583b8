"""Questions of notebook 14."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="14.exponentials",
        text="An SM of an H200 does 4096 FLOP of products in a cycle, or 16 exponentials. For D = 64, how long do the "
        "exponentials take, compared with both products?",
        right="as long",
        wrong=(
            Wrong(
                "a few per cent of it",
                "what is rare among the operations is rare in the time",
                "myth: attention is matrix products, so the exponentials do not count",
            ),
            Wrong(
                "twice as long",
                "one of the two products is all that a score costs",
                "mistake: 14.flops: one of the two matrix products is left out",
            ),
        ),
        why="A score costs 4 · 64 = 256 FLOP and one exponential, on units that are 256 times slower.",
        shown="        assert round(exponentials / products, 2) == part and 2 * once < products < every",
    ),
    Question(
        name="14.skip",
        text="N = 1024, blocks of 128 queries by 64 keys, causal. Of what a kernel without skipping visits, how much is left?",
        right="more than half: 72 of 128 blocks",
        wrong=(
            Wrong(
                "half: 64 of 128 blocks",
                "half of the scores are half of the blocks",
                "myth: a causal kernel that skips is twice as fast",
            ),
            Wrong(
                "all: 128 blocks, the mask comes later",
                "a causal pass costs what a full one does",
                "mistake: 14.flops: a causal pass counts like a full one",
            ),
        ),
        why="Blocks at the diagonal are done whole; the longer the sequence, the less they count.",
        shown="assert skipped[1024] < skipped[4096] < skipped[16384] < 2",
    ),
    Question(
        name="14.fits",
        text="Blocks of 128 queries by 128 keys, D = 128, float16: how many stages of K and V fit beside Q into 227 KB?",
        right="3",
        wrong=(
            Wrong(
                "2", "each stage holds a tile of Q, too", "mistake: 14.stages: every stage has a tile of Q of its own"
            ),
            Wrong("6", "a stage is a tile of K", "mistake: 14.stages: K is counted and V is not"),
            Wrong("13", "an element takes one byte", "mistake: 14.stages: elements are counted as bytes"),
        ),
        why="Q takes 32 KB once, a stage 64 KB: 3 stages make 224 KB.",
        shown="assert fits == [1, 2, 3]",
    ),
    Question(
        name="14.credit",
        text="Two backward passes report 400 TFLOP/s each: one with five products, one with seven. Which multiplies more in a second?",
        right="the one with seven",
        wrong=(
            Wrong(
                "both the same: 400 are 400",
                "a rate says what the tensor cores do",
                "myth: the higher TFLOP/s does more arithmetic per second",
            ),
            Wrong(
                "the one with five: it is done sooner",
                "seven products are credited as seven",
                "mistake: 14.flops: the two products that two sweeps do twice are counted",
            ),
        ),
        why="Both are credited with five products and take as long; the second does 7/5 of that.",
        shown="assert two.flops / one.flops == 7 / 5",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="14.recall.a",
        text="A grid of 8 programs, each with num_warps = 4. How many threads run?",
        right="1024",
        wrong=(
            Wrong("4", "num_warps counts threads", "myth: num_warps is the number of threads in the grid"),
            Wrong("128", "num_warps is for the whole grid", "myth: num_warps is the number of threads in the grid"),
        ),
        why="A warp has 32 threads, and every program has num_warps of them: 8 · 4 · 32.",
        shown="11",
    ),
    Question(
        name="14.recall.b",
        text="How does the backward kernel get P back from S and lse?",
        right="exp(S − lse)",
        wrong=(
            Wrong(
                "exp(S − m), divided by the sum over the block",
                "a block of keys is a row",
                "mistake: 13.dv: softmax is taken over this block of keys alone",
            ),
            Wrong(
                "exp2(S − lse)",
                "exp2 takes natural logarithms",
                "mistake: 13.dv: lse, a natural logarithm, goes into exp2 as it is",
            ),
        ),
        why="lse holds the maximum and the logarithm of the sum, over all keys.",
        shown="13",
    ),
    Question(
        name="14.recall.c",
        text="Write dS from P, dP and δ.",
        right="P ∘ (dP − δ)",
        wrong=(
            Wrong("P ∘ dP", "a score moves its own weight alone", "mistake: 13.ds: delta is left out"),
            Wrong("dP − δ", "the slope of e^x is 1", "mistake: 13.ds: the factor P is left out"),
        ),
        why="All weights of a row share one sum: δ is what that costs.",
        shown="10",
    ),
)
