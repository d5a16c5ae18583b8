"""Questions of notebook 09."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="09.jacobian",
        text="X has three rows, and Y = X W. What is the Jacobian of Y with respect to X, laid out as a flat table?",
        right="three copies of Wᵀ along the diagonal, and zeros",
        wrong=(
            Wrong(
                "Wᵀ",
                "all rows of X share one small table",
                "myth: the Jacobian of XW is Wᵀ",
            ),
            Wrong(
                "three copies of W, not turned over, along the diagonal",
                "what multiplies on the way forward multiplies on the way back",
                "mistake: 09.matmul_backward: nothing is transposed",
            ),
        ),
        why="Row n of Y is made from row n of X alone, and each row has the Jacobian of one row, Wᵀ.",
        shown="flat = J.reshape(N * M, N * D)  # (12, 6)",
    ),
    Question(
        name="09.dw",
        text="X has 50 rows, and every row of it meets the same W. What is dW?",
        right="the sum of what the 50 rows bring",
        wrong=(
            Wrong(
                "the mean of what the 50 rows bring",
                "a gradient must not grow with the number of rows",
                "mistake: 09.matmul_backward: dW is averaged over the rows of X, not summed",
            ),
            Wrong(
                "what the first row brings, as W is the same for all",
                "one use of a weight stands for all its uses",
                "mistake: 09.matmul_backward: only the first row of X adds to dW",
            ),
        ),
        why="A change of W reaches the loss through every row, and the ways are added up: Xᵀ dY.",
        shown="dW = X.mT @ dY  # (D, N) (N, M) -> (D, M)",
    ),
    Question(
        name="09.alike",
        text="The upstream gradient is the same for all keys of a row: dp = (2, 2, 2, 2, 2, 2). What is ds?",
        right="0 for every key",
        wrong=(
            Wrong(
                "2p",
                "a key is paid for its weight alone, whatever the others get",
                "mistake: 09.softmax_backward: delta is left out",
            ),
            Wrong(
                "2p (1 − p)",
                "a score changes its own weight only",
                "myth: the gradient of softmax is p (1 − p)",
            ),
        ),
        why="Weight that moves from key to key gains nothing if all are paid alike: key i gains 2p_i (1 − p_i), and the others lose as much.",
        shown="assert softmax_backward(torch.full((6,), 2.0).double(), p).abs().max() < 1e-15  # dp the same for all keys",
    ),
    Question(
        name="09.worked",
        text="Row 0 of P is (3/4, 1/4), and row 0 of dP is (1, 5). What is dS_00?",
        right="−0.75",
        wrong=(
            Wrong(
                "0.75",
                "dS is P times dP",
                "mistake: 09.softmax_backward: delta is left out",
            ),
            Wrong(
                "−1.5",
                "δ is the plain mean of dP, here 3",
                "mistake: 09.softmax_backward: the plain mean of dP is subtracted, not the one weighted by P",
            ),
            Wrong(
                "0.1875",
                "only the diagonal of the Jacobian counts",
                "mistake: 09.softmax_backward: only the diagonal of the Jacobian is used",
            ),
        ),
        why="δ is 3/4 · 1 + 1/4 · 5 = 2, and 3/4 · (1 − 2) = −0.75.",
        shown="torch.testing.assert_close(dS2, torch.tensor([[-0.75, 0.75], [0.5, -0.5]]).double())",
    ),
    Question(
        name="09.delta",
        text="A program holds rows i of dO and O, and one block of the keys. Which sum is δ_i?",
        right="the sum over c of dO_ic O_ic",
        wrong=(
            Wrong(
                "the sum of P_ij dP_ij over the keys of the block",
                "a block stands for the whole row",
                "mistake: 10.ds: delta is summed over the keys of this block alone",
            ),
            Wrong(
                "the mean of dP_ij over the keys",
                "every key has the same say in the average",
                "mistake: 09.softmax_backward: the plain mean of dP is subtracted, not the one weighted by P",
            ),
        ),
        why="Both sums run over all keys in the end; Σ_j P_ij V_j has them all in O_i already.",
        shown="torch.testing.assert_close(first_way, second_way)",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="09.recall.a",
        text="A row has the maximum m = 5 and the sum ℓ = 1. What is its log-sum-exp?",
        right="5",
        wrong=(
            Wrong("0", "the logarithm of ℓ is all", "mistake: 02.lse: m is not added back"),
            Wrong("−5", "m goes off twice", "mistake: 02.lse: m is subtracted at the end where it must be added"),
        ),
        why="lse = m + log ℓ, and log 1 is 0.",
        shown="02",
    ),
    Question(
        name="09.recall.b",
        text="S is (N_q, N_k). Which of its numbers does one softmax turn into weights that add up to 1?",
        right="those of a row: one query, all keys",
        wrong=(
            Wrong(
                "those of a column: one key, all queries",
                "keys share out their queries",
                "mistake: 04.attention: softmax goes over the queries instead of the keys",
            ),
            Wrong(
                "all of them together",
                "the table has one sum",
                "mistake: 01.softmax: one sum is taken over all rows together",
            ),
        ),
        why="Every query spreads its attention over the keys.",
        shown="04",
    ),
    Question(
        name="09.recall.c",
        text="Why is FlashAttention's forward pass faster than the standard one?",
        right="it moves fewer bytes",
        wrong=(
            Wrong(
                "it does fewer FLOPs",
                "time goes by arithmetic",
                "myth: FlashAttention is fast because it computes less",
            ),
            Wrong("it rounds more", "speed is bought with accuracy", "myth: FlashAttention is an approximation"),
        ),
        why="It does the same products and a little more; S and P never go to HBM.",
        shown="08",
    ),
)
