"""Questions of notebook 17."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="17.longer",
        text="Causal, a window of 1,024 keys back, and a text of 8,192 tokens. The text becomes twice as long. How many blocks of "
        "scores does the kernel visit now?",
        right="a little more than twice as many",
        wrong=(
            Wrong(
                "four times as many: the table has four times the cells",
                "a window hides, and hides only",
                "mistake: 07.visited: no block is skipped",
            ),
            Wrong(
                "somewhat less than four times as many",
                "a loop of a window has a start and no end, or an end and no start",
                "mistake: 17.bounds: the loop runs to the last query, as without a window",
            ),
            Wrong(
                "as many: the window did not grow",
                "the window decides, however many tokens have one",
                "myth: with a KV cache, every token costs the same",
            ),
        ),
        why="Every block of queries visits as many blocks of keys as the window is wide: the work is N times W. Only the first blocks, which the text has as before, visit fewer.",
        shown="    assert blocks == in_a_window(N, 1024, 64)",
    ),
    Question(
        name="17.layers",
        text="Causal, and in every layer a query sees itself and 3 keys back. From how far back can the last token of the fourth "
        "layer know anything?",
        right="12 tokens",
        wrong=(
            Wrong("3 tokens", "what one layer hides stays hidden", "myth: a window of W makes attention see only W"),
            Wrong("6 tokens", "a layer more is a token more", "myth: a window of W makes attention see only W"),
            Wrong("16 tokens", "each layer adds itself to its 3", "myth: a window of W makes attention see only W"),
        ),
        why="The token 3 back knows what lies 3 behind it: each layer adds W.",
        shown='    assert table[-1].nonzero()[0] == 15 - 3 * layers, "L layers see L W back"',
    ),
    Question(
        name="17.offsets",
        text="Seven documents lie in one row of 16,384 tokens. What must a kernel be told, so that none sees another?",
        right="eight offsets",
        wrong=(
            Wrong(
                "a table of 16,384 × 16,384 booleans",
                "who sees whom is told pair by pair",
                "myth: packing needs a mask",
            ),
            Wrong(
                "for each pair of blocks whether it counts",
                "a mask is a table, if a small one",
                "myth: packing needs a mask",
            ),
        ),
        why="Of a block of queries, the first row's document says where its keys start, the last row's where they end.",
        shown="assert offsets.numel() * offsets.element_size() == 16",
    ),
    Question(
        name="17.padding",
        text="Four texts of 32, 8, 8 and 8 tokens are padded to 32. Standard attention makes their tables of scores and masks the "
        "padding. Of the scores that are multiplied, how many are of two tokens?",
        right="about 3 in 10",
        wrong=(
            Wrong("all: what is masked is not multiplied", "a mask saves what it hides", "myth: padding is free"),
            Wrong(
                "about 4 in 10, as of the tokens",
                "scores go with tokens, not with pairs",
                "mistake: 07.visited: T (T + 1) / 2 is used where",
            ),
        ),
        why="32² + 3 · 8² of 4 · 32²: a mask hides a score after it was computed.",
        shown="assert useful / padded < 0.3 < 56 / 128",
    ),
    Question(
        name="17.nothing",
        text="All scores of a query are -10: nothing suits it. Beside its 8 keys a sink takes part, with a logit of 0. What do the "
        "weights of the keys add up to?",
        right="nearly 0",
        wrong=(
            Wrong(
                "1, as in every softmax",
                "weights add up to 1, whatever else takes part",
                "mistake: 09.dv: the weights of a key are made to add up to 1",
            ),
            Wrong(
                "8/9: one term of nine is the sink's",
                "terms count alike, large or small",
                "mistake: 05.merge_outputs: the halves are averaged with equal weights",
            ),
        ),
        why="8 exp(-10) beside exp(0) is next to nothing.",
        shown="assert weights.sum() < 1e-3",
    ),
    Question(
        name="17.sink",
        text="A sink has no value: nothing of it reaches o. Does its logit get a gradient from a query?",
        right="yes, minus its weight times δ",
        wrong=(
            Wrong(
                "no: its dP is 0, and so is P times dP",
                "a gradient through softmax is P times dP",
                "mistake: 09.softmax_backward: delta is left out",
            ),
            Wrong(
                "yes: p (1 - p), as of any softmax",
                "a weight depends on its own score alone",
                "myth: the gradient of softmax is p (1",
            ),
        ),
        why="dS = P (dP - δ) with dP = 0: what the sink takes, the others lose.",
        shown="dsinks = -(p_sink * delta).sum((0, 2))",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="17.recall.triangle",
        text="Five blocks of queries, five of keys, all of one size, causal. How many of the 25 pairs of blocks are visited?",
        right="15",
        wrong=(
            Wrong("25", "a masked block is computed, then hidden", "mistake: 07.visited: no block is skipped"),
            Wrong("10", "the diagonal is not seen", "mistake: 07.visited: the blocks that the diagonal crosses"),
        ),
        why="1 + 2 + 3 + 4 + 5: the blocks on the diagonal count.",
        shown="07",
    ),
    Question(
        name="17.recall.nobody",
        text="A query sees no key at all. What are its m and its o, in this course?",
        right="-∞ and 0",
        wrong=(
            Wrong("0 and 0", "no score is a score of 0", "mistake: 05.recurrence: a hidden key counts as one with"),
            Wrong("-∞ and NaN", "-∞ minus -∞ cannot be helped", "mistake: 05.recurrence: -inf is subtracted from -inf"),
            Wrong("-100 and 0", "a maximum starts very low", "mistake: 05.recurrence: the maximum starts at -100"),
        ),
        why="Nothing raised the maximum, and nothing was added; 0 is subtracted in place of -∞.",
        shown="05",
    ),
    Question(
        name="17.recall.delta",
        text="dS = P (dP - δ). What is δ of a row, from what the forward pass kept?",
        right="the sum of dO times o",
        wrong=(
            Wrong("the sum of dO", "o does not matter to it", "mistake: 17.sink: dO is summed in place of dO times o"),
            Wrong(
                "the mean of dP over the keys",
                "all keys count alike in it",
                "mistake: 09.softmax_backward: the plain mean of dP is subtracted",
            ),
        ),
        why="It is the mean of dP weighted by P, which dO · o is without any P.",
        shown="09",
    ),
)
