"""Questions of notebook 08."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="08.most",
        text="128 queries and keys, d = 16. Which moves the most bytes?",
        right="one-pass attention",
        wrong=(
            Wrong(
                "standard attention, which stores S and P",
                "K and V are read once, however many queries there are",
                "mistake: 08.bytes: K and V are read only once",
            ),
            Wrong(
                "FlashAttention-1",
                "an unfinished O costs more than K and V read for every query",
                "mistake: 08.bytes: the numbers of blocks of queries and of keys are swapped",
            ),
        ),
        why="It stores no scores, and reads all of K and V for every single query.",
        shown="assert count.flops == 4 * N * N * d and count.bytes <= 1_056_768",
    ),
    Question(
        name="08.kernels",
        text="Standard attention as three kernels on an A100, N = 4096, d = 64. Which are memory-bound?",
        right="all three",
        wrong=(
            Wrong(
                "the softmax alone",
                "a matrix product always computes more than it moves",
                "mistake: 08.block: the ridge point is taken for the block size",
            ),
            Wrong(
                "none: attention is matrix products",
                "only the products count",
                "myth: attention is matrix products, so the exponentials do not count",
            ),
        ),
        why="Each moves an N × N matrix: a product does about d = 64 FLOPs a byte, below the ridge, and softmax about one.",
        shown='assert {at.bound for at in three} == {"memory-bound"}',
    ),
    Question(
        name="08.constant",
        text="FlashAttention-2, M/4d queries a block, float16. What stands before N²d²/M in its bytes?",
        right="16",
        wrong=(
            Wrong(
                "40",
                "the other order of loops moves the same matrices as often",
                "mistake: 08.bytes: the numbers of blocks of queries and of keys are swapped",
            ),
            Wrong("8", "one of K and V is read for each block", "mistake: 14.stages: K is counted and V is not"),
        ),
        why="4 (2 + 2): K and V are read for each of the 4Nd/M blocks of queries, and O waits on chip.",
        shown="assert v1 == [4 * (2 + 4 + 4), 4 * 16, 2 + 2 + 4 - 2, 4 + 4] and v2 == [4 * (2 + 2), 0, 2 + 2, 4]",
    ),
    Question(
        name="08.few",
        text="FlashAttention-2 with few queries a block, d of them, as the paper's rule has it. The SRAM is doubled: what becomes of the bytes?",
        right="they stay as they are",
        wrong=(
            Wrong(
                "they are halved",
                "whichever block grows, less is read",
                "myth: a larger block is always better",
            ),
            Wrong(
                "they fall to a quarter",
                "bytes go down with the area of a block",
                "myth: a larger block is always better",
            ),
        ),
        why="K and V are read N/d times, and M is not in N/d.",
        shown="assert few[0] == 4",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="08.recall.unfinished",
        text="What does FlashAttention-1 send through HBM at every visit that FlashAttention-2 does not?",
        right="O, ℓ and m",
        wrong=(
            Wrong("the block of scores S", "exact attention stores its scores", "myth: exact attention must store"),
            Wrong("lse of the rows", "FlashAttention-1 needs lse", "mistake: 08.bytes: lse is not counted"),
        ),
        why="Its rows are unfinished until the last block of keys, and wait in HBM.",
        shown="07",
    ),
    Question(
        name="08.recall.rereading",
        text="A product by blocks: the sides of all blocks are doubled. How many bytes are read?",
        right="half as many",
        wrong=(
            Wrong("a quarter", "bytes go down with the area of a block", "myth: tiling does less arithmetic"),
            Wrong(
                "as many as before", "blocks change the order of the work alone", "myth: tiling does less arithmetic"
            ),
        ),
        why="Half as many workers in a row read each block of A again.",
        shown="06",
    ),
    Question(
        name="08.recall.stored",
        text="What does standard attention write to HBM for N queries and keys, besides O?",
        right="S and P",
        wrong=(
            Wrong("P alone", "scores are kept on chip", "mistake: 08.bytes: K and V are read only once"),
            Wrong("m and ℓ", "it runs as one kernel", "myth: one-pass attention computes softmax in one pass"),
        ),
        why="Its three operations hand each other whole matrices.",
        shown="04",
    ),
)
