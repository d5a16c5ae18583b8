"""Questions of notebook 02."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="02.shift",
        text="100 is taken off every logit of (1, 2, ..., 6). What becomes of the weights?",
        right="nothing, but for rounding",
        wrong=(
            Wrong(
                "all shrink by the factor e^(−100)",
                "the sum below the line stays as it was",
                "mistake: 03.merge: the sums are added without rescaling",
            ),
            Wrong(
                "they are 0: e^(−99) is too small",
                "only small shifts are safe",
                "mistake: 02.shift: only small shifts are tried",
            ),
        ),
        why="e^(−100) stands above and below the line and cancels.",
        shown='print(f"k = {k:6}: largest difference {(fl.naive_softmax(x - k) - torch.softmax(x, -1)).abs().max():.0e}")',
    ),
    Question(
        name="02.sum",
        text="The maximum is subtracted in the exponent. How small can the sum of a row with finite logits get?",
        right="never below 1",
        wrong=(
            Wrong(
                "as near to 0 as you like",
                "all terms may be small at once, so an epsilon must be added",
                "mistake: 02.safe: a small number is added to l",
            ),
            Wrong(
                "0, for logits below −1000",
                "very low logits leave nothing",
                "mistake: 02.safe: the maximum starts at -1000 instead of -inf",
            ),
        ),
        why="The entry that is the maximum adds e^0 = 1, whatever it is.",
        shown="assert torch.exp(row - row.max()).sum() >= 1",
    ),
    Question(
        name="02.bytes",
        text="A row is too long to stay on chip. Safe softmax has three passes in place of two. How many more bytes move, reads and "
        "writes together?",
        right="a third more",
        wrong=(
            Wrong(
                "half as much again",
                "writes do not count",
                "mistake: 08.bytes: lse is not counted",
            ),
            Wrong(
                "none: what was read stays on chip",
                "what was read once need not be read again, however long the row",
                "mistake: 08.bytes: K and V are read only once",
            ),
        ),
        why="From 2N + N to 3N + N numbers: 4 in place of 3. Only a row that fits on chip is read once.",
        shown='assert 3 * moved["safe"].total == 4 * moved["naive"].total, "a third more"',
    ),
    Question(
        name="02.start",
        text="The search for the maximum starts at −1000, and the row is (−2000, −2001). What comes out?",
        right="nan",
        wrong=(
            Wrong(
                "the right weights: −1000 is small enough",
                "no logit is that low",
                "myth: start the maximum at a very small number such as −1000",
            ),
            Wrong(
                "the right weights: any shift will do",
                "a shift changes nothing in a program either",
                "mistake: 02.shift: the answer is always True",
            ),
        ),
        why="The “maximum” −1000 is no entry of the row: both exponentials are 0, and 0 / 0 is nan.",
        shown="assert starts_at(-1000.0, low).isnan().all()",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="02.recall.definition",
        text="Write softmax by its definition. Weight j is ...",
        right="e^(x_j) / Σ e^(x_k)",
        wrong=(
            Wrong(
                "x_j / Σ x_k",
                "weights are shares of the logits",
                "mistake: 01.softmax: the logits are divided by their sum, without an exponential",
            ),
            Wrong(
                "e^|x_j| / Σ e^|x_k|",
                "weights go by size, not by sign",
                "mistake: 01.softmax: the logits lose their sign",
            ),
        ),
        why="The exponential makes weights positive, the sum over the row makes them add up to 1.",
        shown="01",
    ),
    Question(
        name="02.recall.rows",
        text="x is a matrix of 4 rows. How many sums does softmax over the last dimension divide by?",
        right="4",
        wrong=(
            Wrong("1", "one sum serves all rows", "mistake: 01.softmax: one sum is taken over all rows together"),
            Wrong(
                "as many as there are columns",
                "softmax goes down the columns",
                "mistake: 04.attention: softmax goes over the queries instead of the keys",
            ),
        ),
        why="Every row is a softmax of its own.",
        shown="01",
    ),
    Question(
        name="02.recall.edge",
        text="Above which logit does the exponential overflow in float32?",
        right="88.7",
        wrong=(
            Wrong(
                "11.1",
                "all formats end where float16 does",
                "mistake: 01.overflow: the answer for float32 is given for every dtype",
            ),
            Wrong(
                "3.4e38",
                "a logit may be as large as the largest number",
                "mistake: 02.safe: nothing is subtracted before the exponential",
            ),
        ),
        why="It is the logarithm of the largest number, 3.4e38.",
        shown="01",
    ),
)
