"""Questions of notebook 06."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="06.workers",
        text="A is 8 × 4 in blocks of 4 × 2, B is 4 × 8 in blocks of 2 × 2. "
        "Each block of C has a worker: how many, with how many block products each?",
        right="8 workers with 2 products",
        wrong=(
            Wrong(
                "8 workers with 1 product",
                "a block of C is the product of one block of A and one of B",
                "mistake: 06.tiled_matmul: each product overwrites the block of C",
            ),
            Wrong(
                "8 workers with 4 products",
                "the sum runs over as many blocks as C is wide",
                "mistake: 06.tiled_matmul: the sum runs over the rows of A instead of its columns",
            ),
            Wrong(
                "4 workers with 2 products",
                "one block size, 4, cuts the rows of A and the columns of B",
                "mistake: 06.blocks: block_q is used for the keys too",
            ),
        ),
        why="C is 2 × 4 blocks, and the inner dimension of 4 falls into 2 blocks.",
        shown="assert len(workers) == 8 and len(steps) - 1 == 16",
    ),
    Question(
        name="06.bytes",
        text="The sides of all blocks are doubled. What becomes of the bytes read and of the floating-point operations?",
        right="half the bytes, as many operations",
        wrong=(
            Wrong(
                "half the bytes, half the operations",
                "what is read less often is computed less often",
                "myth: tiling does less arithmetic",
            ),
            Wrong(
                "a quarter of the bytes and of the operations",
                "work goes down with the area of a block",
                "myth: tiling does less arithmetic",
            ),
        ),
        why="Half as many workers in a row of C read each block of A; every pair of entries is multiplied once, whatever the blocks.",
        shown="assert traffic.written == 4 * M * N and fl.matmul_flops(steps_16) == 2 * M * R * N",
    ),
    Question(
        name="06.scales",
        text="P̃ = e^(S − maximum), where each block of a row of scores subtracts its own maximum. P̃V and the row sums of P̃ "
        "are added over the blocks, and one is divided by the other at the end. Is that O?",
        right="no: every block is on a scale of its own",
        wrong=(
            Wrong(
                "yes: what was left out is made up for by the division",
                "dividing by the sum of the same terms puts them on one scale",
                "mistake: 03.merge: the sums are added without rescaling",
            ),
            Wrong(
                "yes: softmax does not change when scores are shifted",
                "each part of a row may be shifted by something else",
                "mistake: 03.tree: the sums of the halves are added without rescaling",
            ),
        ),
        why="A shift cancels only if the whole row is shifted alike.",
        shown="assert not torch.allclose(wrong, right, atol=0.1)",
    ),
    Question(
        name="06.on_chip",
        text="The inner dimension of a product grows tenfold, the blocks stay. What does a worker need on chip?",
        right="as much as before",
        wrong=(
            Wrong(
                "ten times as much",
                "a worker holds its row of A and its column of B",
                "myth: a worker needs all of its row of A on chip",
            ),
            Wrong(
                "ten times as much for A, as much as before for B",
                "a worker holds its row of A and walks along B",
                "myth: a worker needs all of its row of A on chip",
            ),
        ),
        why="It holds one block of each at a time, and its sum; it only loops more often.",
        shown="assert fl.sram_peak(recorded) == 3 * 4 * 4 * 4",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="06.recall.a",
        text="m = 3 and acc = 4. The next key has the score 5 and the value 2. What is acc then?",
        right="4 e^(3 − 5) + 2",
        wrong=(
            Wrong("4 + 2", "acc keeps its scale", "mistake: 05.recurrence: l is rescaled, but acc is not"),
            Wrong("4 e^(5 − 3) + 2", "old terms grow", "mistake: 05.recurrence: the factor is upside down"),
            Wrong(
                "4 + 2 e^(5 − 3)",
                "the maximum of the first keys stays the reference",
                "mistake: 05.recurrence: the new weight is measured from the old maximum",
            ),
        ),
        why="The old acc takes e^(3 − 5), the new value the weight e^(5 − 5) = 1.",
        shown="05",
    ),
    Question(
        name="06.recall.b",
        text="What does one-pass attention keep of the keys and values it has read?",
        right="m, ℓ and acc",
        wrong=(
            Wrong(
                "m, ℓ and their scores",
                "old weights have to be corrected one by one",
                "myth: one-pass attention computes softmax in one pass",
            ),
            Wrong(
                "acc and their final weights",
                "a weight is final when its key has been read",
                "myth: one-pass attention computes softmax in one pass",
            ),
        ),
        why="One factor repairs ℓ and acc together, so no score is needed twice: D + 2 numbers, however long the text.",
        shown="05",
    ),
    Question(
        name="06.recall.c",
        text="Which is the weight of key j, from its score and lse alone?",
        right="e^(s_j − lse)",
        wrong=(
            Wrong(
                "s_j / lse",
                "lse is the sum of the scores",
                "mistake: 05.merge_outputs: lse itself is taken as the weight, not e^lse",
            ),
            Wrong(
                "e^(s_j) / lse",
                "lse is the sum of the exponentials, not its logarithm",
                "mistake: 05.merge_outputs: the sum of the weights is returned for lse",
            ),
        ),
        why="e^lse is the sum of all e^(s_j), so dividing by it is subtracting lse in the exponent.",
        shown="05",
    ),
)
