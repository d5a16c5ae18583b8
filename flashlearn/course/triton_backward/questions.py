"""Questions of notebook 13."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="13.turn",
        text="dV = PᵀdO needs Pᵀ. Which tile does the kernel turn to get it?",
        right="Q, as it was loaded",
        wrong=(
            Wrong(
                "P, after the exponential",
                "a computed tile is turned as cheaply as a loaded one",
                "mistake: 13.ds: dP is computed where dP^T is needed",
            ),
            Wrong(
                "none: P will do", "a product sums over the right side by itself", "mistake: 10.dv: P is not transposed"
            ),
        ),
        why="K Qᵀ is Sᵀ already, so that nothing computed has to be turned.",
        shown="torch.testing.assert_close(torch.exp(S_t - their_lse[..., None, :]), P.mT)",
    ),
    Question(
        name="13.products",
        text="A causal mask leaves 6 of 8 pairs of blocks. How many block products do the two sweeps make together?",
        right="42",
        wrong=(
            Wrong(
                "12", "a backward pass does what a forward pass does", "mistake: 14.flops: a backward pass counts like"
            ),
            Wrong(
                "30",
                "all three gradients come out of one sweep",
                "myth: the backward pass of attention needs atomic additions",
            ),
            Wrong("56", "hidden blocks are multiplied too", "mistake: 14.flops: a causal pass counts like a full one"),
        ),
        why="4 products for dK and dV and 3 for dQ: S and dP are made twice, in each of the 6 pairs.",
        shown="assert products == 7 * causal_pairs",
    ),
    Question(
        name="13.saved",
        text="One head, 1000 queries and 1000 keys, D = 64. How many numbers does flash_attention save for the backward pass?",
        right="257,000",
        wrong=(
            Wrong(
                "256,000",
                "each block has a softmax of its own, so q, k, v and o will do",
                "mistake: 13.dv: softmax is taken over this block of keys alone",
            ),
            Wrong(
                "1,256,000",
                "the backward pass needs the table as it was",
                "myth: training needs the N × N table, because the backward pass uses P",
            ),
            Wrong(
                "1,257,000",
                "somewhere the scores of all pairs must be kept",
                "myth: exact attention must store the N × N matrix",
            ),
        ),
        why="64,000 each of q, k, v and o, and one number a query: lse, from which every block of P is made again.",
        shown='assert sum(t.numel() for t in saved) == 4 * q.numel() + q[..., 0].numel(), "linear in N"',
    ),
    Question(
        name="13.owner",
        text="Two sweeps, four blocks of keys. How many programs write to one row of dQ?",
        right="one",
        wrong=(
            Wrong(
                "four, with atomic additions",
                "each block of keys has a share to add in memory",
                "myth: the backward pass of attention needs atomic additions",
            ),
            Wrong(
                "four, and the last one stays",
                "a later share takes the place of an earlier one",
                "mistake: 13.dv: each block of queries overwrites dV instead of adding to it",
            ),
        ),
        why="The second sweep gives each block of queries a program that loops over the keys.",
        shown="    assert rows == [1] * 56",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="13.recall.a",
        text="What is δ of a row, from P and dP of that row?",
        right="the sum of P ∘ dP",
        wrong=(
            Wrong(
                "the mean of dP",
                "all weights count alike",
                "mistake: 09.softmax_backward: the plain mean of dP is subtracted",
            ),
            Wrong(
                "the sum of P ∘ dP over all rows",
                "rows share their softmax",
                "mistake: 09.softmax_backward: one delta is used for all rows",
            ),
        ),
        why="Each weight pulls in proportion to itself; it is also the sum of dO ∘ O.",
        shown="09",
    ),
    Question(
        name="13.recall.b",
        text="2 queries, 4 keys, causal. Which keys does the first query see?",
        right="0, 1 and 2",
        wrong=(
            Wrong("0", "query i sees keys up to i", "mistake: 12.causal: the mask is aligned to the top left"),
            Wrong(
                "0 and 1",
                "its own position is hidden",
                "mistake: 12.causal: a query does not see the key of its own position",
            ),
        ),
        why="Aligned to the bottom right: query i sees the keys j ≤ i + N_k − N_q.",
        shown="12",
    ),
    Question(
        name="13.recall.c",
        text="K_j and V_j stay, blocks of queries come by. What becomes of dV_j?",
        right="each adds PᵀdO to it",
        wrong=(
            Wrong(
                "the last one sets it",
                "every visit has the whole result",
                "mistake: 10.dv: each block of queries overwrites dV instead of adding to it",
            ),
            Wrong("each adds P dO to it", "P and Pᵀ give the same", "mistake: 10.dv: P is not transposed"),
        ),
        why="dV_j is a sum over all queries, one block after the other.",
        shown="10",
    ),
)
