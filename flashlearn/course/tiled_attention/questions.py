"""Questions of notebook 07."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="07.rows",
        text="diag(α) has the numbers α = (½, 2) on its diagonal, X is a 2 × 3 matrix of ones. What is diag(α) X?",
        right="a row of ½ over a row of 2",
        wrong=(
            Wrong(
                "columns of ½ and 2",
                "a diagonal matrix scales columns from either side",
                "myth: diag(α) X scales the columns of X",
            ),
            Wrong(
                "not defined: three columns need three factors",
                "there is a factor for every column",
                "mistake: 07.update: alpha scales the columns of acc instead of its rows",
            ),
        ),
        why="From the left a diagonal matrix scales rows: every query has a factor of its own.",
        shown="print((alpha * X).tolist())",
    ),
    Question(
        name="07.written",
        text="Nine tokens in blocks of three, causal: both versions meet the same six pairs of blocks. Which writes more to HBM?",
        right="FlashAttention-1, whose O waits in HBM",
        wrong=(
            Wrong(
                "neither: the same output is written",
                "a row of O is finished wherever its block is met, and so written once in both",
                "mistake: 10.dv: softmax is taken over this block of keys alone",
            ),
            Wrong(
                "FlashAttention-2, which writes lse as well",
                "one number a row outweighs the unfinished rows",
                "mistake: 08.bytes: lse is counted as two elements a row",
            ),
        ),
        why="FlashAttention-1 writes O, l and m back at every visit, FlashAttention-2 writes O and lse once.",
        shown="assert sides == [(1008, 648), (720, 180)]",
    ),
    Question(
        name="07.fit",
        text="d = 3 and room for M = 59 elements: the rule takes blocks of 3 queries and 5 keys. "
        "How many elements do those of Q, K, V, S and O need?",
        right="63",
        wrong=(
            Wrong(
                "48",
                "V takes no room of its own",
                "mistake: 14.stages: K is counted and V is not",
            ),
            Wrong(
                "54",
                "the block of queries takes no room",
                "mistake: 14.stages: the tile of Q is forgotten",
            ),
        ),
        why="Q and O take 9 each, K and V 15 each, and S, never stored in HBM, 15 on chip: more than the 59.",
        shown="assert fl.paper_block_sizes(M, d) == (3, 5) and fl.sram_elements(3, 5, d) == 63",
    ),
    Question(
        name="07.unfinished",
        text="FlashAttention-1 has met Q0 with K0, the keys 0 to 3 of five. What stands in row 0 of O in HBM?",
        right="attention over keys 0 to 3",
        wrong=(
            Wrong(
                "a sum that is not divided yet",
                "the division waits until the end, as in FlashAttention-2",
                "mistake: 07.update: acc is divided by l already",
            ),
            Wrong(
                "the row as it will be in the end",
                "the softmax of a block of keys is the softmax of the row",
                "mistake: 10.dv: softmax is taken over this block of keys alone",
            ),
        ),
        why="FlashAttention-1 divides at every visit: the row is right, for the keys so far.",
        shown='for step in (step for step in walk if step.phase == "line 12"):',
    ),
    Question(
        name="07.visited_blocks",
        text="Causal, 16 × 16 square blocks of scores, the wholly hidden ones skipped. How many are visited?",
        right="136",
        wrong=(
            Wrong("256", "a masked block is computed, then hidden", "mistake: 07.visited: no block is skipped"),
            Wrong(
                "120",
                "a block on the diagonal has nothing to do",
                "mistake: 07.visited: the blocks that the diagonal crosses are not counted",
            ),
            Wrong("128", "a causal mask saves exactly half", "myth: a causal kernel that skips is twice as fast"),
        ),
        why="T (T + 1) / 2 for T = 16: the blocks on the diagonal are visited too, and masked.",
        shown="assert visited == T * (T + 1) // 2 and masked == T",
    ),
    Question(
        name="07.larger",
        text="FlashAttention-2 without a mask: the blocks of keys become twice as large. What becomes of the bytes moved?",
        right="nothing",
        wrong=(
            Wrong("they become fewer", "larger blocks are read less often", "myth: a larger block is always better"),
            Wrong(
                "they become more",
                "the number of blocks of queries depends on that of the keys",
                "mistake: 08.bytes: the numbers of blocks of queries and of keys are swapped",
            ),
        ),
        why="K and V are read once for every block of queries, in whatever pieces.",
        shown="assert by_q[0] > by_q[1] > by_q[2] and len(set(by_k)) == 1 and by_k_causal == [45_312, 49_408, 57_600]",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="07.recall.kept",
        text="A new key raises the maximum from m to m_new. What becomes of the running sum ℓ before its term is added?",
        right="it is multiplied by e^(m − m_new)",
        wrong=(
            Wrong(
                "it is multiplied by e^(m_new − m)",
                "a higher maximum makes old terms larger",
                "mistake: 03.merge: the factors are upside down",
            ),
            Wrong(
                "nothing: sums add up",
                "terms measured from different maxima may be added",
                "mistake: 03.merge: the sums are added without rescaling",
            ),
        ),
        why="Old terms were measured from m; on the scale of m_new they are smaller.",
        shown="03",
    ),
    Question(
        name="07.recall.both",
        text="In one-pass attention the maximum rises. What is rescaled?",
        right="ℓ and acc alike",
        wrong=(
            Wrong(
                "ℓ alone: acc is no sum", "acc keeps its scale", "mistake: 05.recurrence: l is rescaled, but acc is not"
            ),
            Wrong("acc alone: ℓ counts", "ℓ keeps its scale", "mistake: 05.recurrence: acc is rescaled, but l is not"),
        ),
        why="Both are sums of terms e^(s − m): numerator and denominator change scale together.",
        shown="05",
    ),
    Question(
        name="07.recall.lse",
        text="What is the lse of a row with maximum m and sum ℓ?",
        right="m + log ℓ",
        wrong=(
            Wrong("log ℓ", "the maximum has done its work", "mistake: 02.lse: m is not added back"),
            Wrong(
                "log ℓ − m",
                "what was subtracted stays subtracted",
                "mistake: 02.lse: m is subtracted at the end where it must be added",
            ),
        ),
        why="log Σ e^x = log(e^m Σ e^(x − m)) = m + log ℓ.",
        shown="02",
    ),
)
