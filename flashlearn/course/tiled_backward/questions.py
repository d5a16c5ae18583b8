"""Questions of notebook 10."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="10.again",
        text="On chip are a block of S and lse of its rows; the other keys are not. How does the block of P come back?",
        right="as e^(S − lse)",
        wrong=(
            Wrong(
                "as softmax of the block",
                "the weights of a block add up to 1",
                "mistake: 10.dv: softmax is taken over this block of keys alone",
            ),
            Wrong(
                "it cannot: P has to be stored",
                "a weight needs all scores of its row at hand",
                "myth: training needs the N × N table, because the backward pass uses P",
            ),
        ),
        why="lse holds all that a weight needs from the other keys: the logarithm of their common sum.",
        shown="P_block = torch.exp(S_block - lse[:, :, rows, None])",
    ),
    Question(
        name="10.dv0",
        text="P is ((3/4, 1/4), (1/2, 1/2)), dO is ((1, 2), (2, −1)). What is dV_0, the gradient of the first value?",
        right="(1.75, 1)",
        wrong=(
            Wrong(
                "(1.25, 1.25)",
                "row 0 of P weighs the rows of dO",
                "mistake: 09.dv: row j of P is taken, not column j",
            ),
            Wrong(
                "(1, −0.5)",
                "the last block of queries decides",
                "mistake: 10.dv: each block of queries overwrites dV instead of adding to it",
            ),
            Wrong(
                "(3, 1)",
                "each query brings its dO whole",
                "mistake: 09.dv: dO is summed without the weights",
            ),
        ),
        why="V_0 helped both outputs, by 3/4 and by 1/2: 3/4 · (1, 2) + 1/2 · (2, −1).",
        shown="torch.testing.assert_close(terms[0] + terms[1], torch.tensor([1.75, 1.0]).double())",
    ),
    Question(
        name="10.delta",
        text="Row 0 of P is (3/4, 1/4), that of dP (1, 5). Blocks hold one key each. "
        "Which δ_0 does the block of key 0 subtract?",
        right="2",
        wrong=(
            Wrong(
                "0.75",
                "a block needs the part of δ that its own keys make",
                "mistake: 10.ds: delta is summed over the keys of this block alone",
            ),
            Wrong(
                "3",
                "δ is the plain mean of dP",
                "mistake: 09.softmax_backward: the plain mean of dP is subtracted, not the one weighted by P",
            ),
        ),
        why="δ belongs to the row, all keys of it; dO_0 · O_0 gives it without meeting them.",
        shown="torch.testing.assert_close(delta2[0, 0], torch.tensor([2.0, 1.0]).double())",
    ),
    Question(
        name="10.products",
        text="Two sweeps do 14 N²d FLOPs where autograd, which kept P, does 8. N is large, d = 64 in blocks of 128, and the GPU is an A100. "
        "What is the least time of two sweeps under the roof?",
        right="about 1/3 of autograd's",
        wrong=(
            Wrong(
                "14/8 of autograd's, as the FLOPs",
                "time goes by FLOPs",
                "myth: computing things twice makes it slower",
            ),
            Wrong(
                "7/5 of autograd's, as the products",
                "seven products stand against five, and nothing else counts",
                "myth: computing things twice makes it slower",
            ),
        ),
        why="Autograd is bound by memory: three tables of N × N that go through HBM weigh more than products made twice.",
        shown='assert tiled.flops * 8 == kept.flops * (14 if name == "two sweeps" else 10)',
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="10.recall.a",
        text="Y = X W, with X (N, D) and W (D, M), and dY has arrived. What is dW?",
        right="Xᵀ dY",
        wrong=(
            Wrong(
                "dYᵀ X", "either order of the factors will do", "mistake: 09.matmul_backward: dW comes out transposed"
            ),
            Wrong(
                "dY Wᵀ",
                "each factor comes back with itself",
                "mistake: 09.matmul_backward: dX and dW are returned in the wrong order",
            ),
            Wrong("X dY", "nothing turns over on the way back", "mistake: 09.matmul_backward: nothing is transposed"),
        ),
        why="dW is (D, M), and adds up over the N rows.",
        shown="09",
    ),
    Question(
        name="10.recall.b",
        text="A block of keys raises the maximum of a row. What is multiplied by e^(m_old − m_new)?",
        right="ℓ and the row of acc",
        wrong=(
            Wrong(
                "the row of acc alone",
                "ℓ is a sum of its own",
                "mistake: 07.update: l is not rescaled when the maximum rises",
            ),
            Wrong(
                "ℓ alone",
                "the division at the end mends acc",
                "mistake: 07.update: acc is not rescaled when the maximum rises",
            ),
            Wrong(
                "ℓ and the columns of acc",
                "diag(α) acts along the columns",
                "myth: diag(α) X scales the columns of X",
            ),
        ),
        why="Both are sums of terms that were measured from the old maximum.",
        shown="07",
    ),
    Question(
        name="10.recall.c",
        text="FlashAttention-2, forward: how often is K read from HBM?",
        right="once for every block of queries",
        wrong=(
            Wrong(
                "once for every block of keys",
                "what is cut is read again for each of its pieces",
                "mistake: 08.bytes: the numbers of blocks of queries and of keys are swapped",
            ),
            Wrong(
                "once in all", "a tile stays on chip once it is there", "mistake: 08.bytes: K and V are read only once"
            ),
        ),
        why="A block of queries stays on chip, and all of K and V comes by.",
        shown="08",
    ),
)
