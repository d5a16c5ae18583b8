"""Questions of notebook 19."""

from flashlearn.exercises.question import Question, Wrong

HALF = "myth: skipping half of the work halves the time"
TWICE = "myth: twice as many GPUs take half the time"
QUESTIONS: tuple[Question, ...] = (
    Question(
        name="19.bytes",
        text="Sixteen processes share N tokens, and every query sees every key. The keys and values of how many tokens does each "
        "process send, in the whole forward pass?",
        right="15 N / 16",
        wrong=(
            Wrong(
                "N / 16",
                "each sends its own once, and all others receive it",
                "mistake: 19.owners: in step s all have the K and V of process s",
            ),
            Wrong(
                "N / 8",
                "each sends its own to either neighbour, and that is all",
                "mistake: 19.owners: K and V travel the other way, from r + 1 to r",
            ),
        ),
        why="Fifteen times it passes on a share of N / 16: all that comes by, but for what its neighbour began with.",
        shown="formula = 2 * N * 8 * 4 * (P - 1) * 2  # of all processes; D = 8, float32, 2 heads",
    ),
    Question(
        name="19.idle",
        text="Sixteen tokens, four to each of four processes, in their order. A causal mask now hides nearly half of the 256 "
        "pairs, and what it hides is skipped. By how much does the time fall?",
        right="by about a tenth",
        wrong=(
            Wrong("by nearly half", "time is work over processes", HALF),
            Wrong("by about a quarter", "three go on as before, and the fourth's work is gone", HALF),
        ),
        why="The last process sees nearly all keys in every step, and the others wait for it.",
        shown="assert (full_work, full_time, work, time) == (256, 64, 136, 58)",
    ),
    Question(
        name="19.pair",
        text="The tokens are cut into eight chunks, 0 to 7, two for each of four processes, and under a causal mask all shall have "
        "the same to do. Which two does process 1 get?",
        right="1 and 6",
        wrong=(
            Wrong(
                "2 and 3",
                "neighbours belong together",
                "mistake: 19.zigzag: every process gets one piece of neighbours, the plain order",
            ),
            Wrong(
                "1 and 5",
                "the second round is dealt like the first",
                "mistake: 19.zigzag: the late chunks are not turned round: chunks r and P + r",
            ),
        ),
        why="The second chunk from the front and the second from the back: what one sees less, the other sees more.",
        shown='print(shares(16, 4, "zigzag"))',
    ),
    Question(
        name="19.hide",
        text="A row of N tokens moves from 8 processes to 16. What becomes of one visit: the time to compute it, and the time "
        "to send its keys and values?",
        right="a quarter, and half",
        wrong=(
            Wrong("half, and half", "twice the machines, half of everything", TWICE),
            Wrong("half, and the same", "there are as many keys as before", TWICE),
        ),
        why="Half the queries meet half the keys, but half the keys are half the bytes.",
        shown="sending = 2 * n * D * H * 2 / link.bandwidth",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="19.recall.merge",
        text="One half of the keys gave lse = 0, the other lse = log 3. With what weight does the o of the second enter the whole?",
        right="3/4",
        wrong=(
            Wrong("1/2", "halves count alike", "mistake: 05.merge_outputs: the halves are averaged with equal weights"),
            Wrong(
                "1", "the lse themselves are the weights, 0 and log 3", "mistake: 05.merge_outputs: lse itself is taken"
            ),
        ),
        why="The sums of exponentials are 1 and 3.",
        shown="05",
    ),
    Question(
        name="19.recall.visited",
        text="Four blocks of queries, four of keys, causal. How many of the 16 pairs are visited?",
        right="10",
        wrong=(
            Wrong("16", "a masked block is computed, then hidden", "mistake: 07.visited: no block is skipped"),
            Wrong("6", "the diagonal is not seen", "mistake: 07.visited: the blocks that the diagonal crosses"),
        ),
        why="1 + 2 + 3 + 4: the blocks on the diagonal count.",
        shown="07",
    ),
    Question(
        name="19.recall.dv",
        text="Three blocks of queries see a block of keys. What is its dV?",
        right="the sum of what the three give",
        wrong=(
            Wrong(
                "what the last of the three gives",
                "each writes its result",
                "mistake: 10.dv: each block of queries overwrites dV instead of adding to it",
            ),
            Wrong(
                "made from weights that add up to 1 within the block",
                "a softmax belongs to a block",
                "mistake: 10.dv: softmax is taken over this block of keys alone",
            ),
        ),
        why="A value helped to make the outputs of all three, so all three send it a part of its gradient.",
        shown="10",
    ),
)
