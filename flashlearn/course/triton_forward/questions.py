"""Questions of notebook 12."""

from flashlearn.exercises.question import Question, Wrong

LATE = "mistake: 12.kernel: the places behind the last key count as keys of score 0"
EMPTY = "mistake: 12.kernel: -inf is subtracted from -inf where no key is seen"

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="12.ragged",
        text="50 keys in blocks of 32. Loads of the 14 rows that do not exist give zeros, and nothing else is done. "
        "What does the kernel answer?",
        right="attention over 64 keys, 14 of them zeros",
        wrong=(
            Wrong("attention over 50 keys", "zeros loaded for missing keys add nothing to a softmax", LATE),
            Wrong("NaN in every row: all meet the last block", "a masked load gives -inf or NaN", EMPTY),
        ),
        why="Zeros add nothing to the output, but the scores of missing keys are 0, and exp(0) = 1 enters ℓ.",
        shown="torch.testing.assert_close(o, padded)",
    ),
    Question(
        name="12.visited",
        text="56 queries, 56 keys, blocks of 16, causal. How many of the 16 blocks of scores does the kernel compute?",
        right="10",
        wrong=(
            Wrong(
                "16",
                "a hidden block is computed and then masked",
                "mistake: 12.kernel: blocks of keys are loaded that no query of the block sees",
            ),
            Wrong(
                "6",
                "blocks on the diagonal are hidden",
                "mistake: 12.kernel: a query does not see its own key",
            ),
        ),
        why="1 + 2 + 3 + 4: each program stops behind its diagonal block, of which a part is masked.",
        shown="assert len(visits) == fl.visited_blocks(56, 56, 16, 16, causal=True) == 10",
    ),
    Question(
        name="12.start",
        text="The kernel starts with ℓ = 1000 in place of ℓ = 0. What becomes of O?",
        right="every row stays the same, to the bit",
        wrong=(
            Wrong(
                "every row becomes smaller",
                "the start value stays in the sum",
                "myth: a kernel that starts with l_i = 1 has a bug",
            ),
            Wrong(
                "the first block of keys counts for less",
                "the start value is weighed against the first block",
                "myth: a kernel that starts with l_i = 1 has a bug",
            ),
        ),
        why="On the first block alpha = exp2(-inf - m) = 0 multiplies whatever stood there.",
        shown='assert torch.equal(o, bits), "to the last bit"',
    ),
    Question(
        name="12.strict",
        text="The causal mask keeps a score if the row number is greater than the column number. What does query 0 answer?",
        right="0: it sees no key",
        wrong=(
            Wrong(
                "its own value: it sees itself",
                "a query always sees its own key",
                "myth: the causal mask keeps a score where the row number is greater than the column number",
            ),
            Wrong("NaN: it sees no key", "a row without keys is 0 / 0 in this kernel too", EMPTY),
        ),
        why="The diagonal is lost, and a row without keys gets O = 0 here; it must be ≥.",
        shown='assert (o[:, :, 0] == 0).all(), "the first query sees no key"',
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="12.recall.mask",
        text="Why does a kernel need a mask at its loads?",
        right="the grid overshoots the length",
        wrong=(
            Wrong(
                "threads come in groups of 32",
                "a length must be a multiple of a warp",
                "myth: the mask exists because threads come in 32s",
            ),
            Wrong(
                "shared memory is filled in whole tiles",
                "a load copies a tile into shared memory",
                "myth: tl.load puts things in shared memory",
            ),
        ),
        why="ceil(N / BLOCK) programs have more lanes than there are elements, unless BLOCK divides N.",
        shown="11",
    ),
    Question(
        name="12.recall.update",
        text="A new block of scores raises the maximum from m to m′. What becomes of ℓ?",
        right="ℓ exp(m − m′), plus the new terms",
        wrong=(
            Wrong(
                "ℓ, plus the new terms",
                "terms measured from two maxima may be added",
                "mistake: 03.merge: the sums are added without rescaling",
            ),
            Wrong(
                "(ℓ + the new terms) exp(m − m′)",
                "the new terms need the correction too",
                "mistake: 12.bugs: the new terms of l are rescaled together with the old ones",
            ),
        ),
        why="Only what was collected before is measured from m; the new terms are exp(s − m′) already.",
        shown="03",
    ),
    Question(
        name="12.recall.fast",
        text="Standard attention and FlashAttention, forward: which has fewer floating-point operations?",
        right="neither: the counts are about equal",
        wrong=(
            Wrong(
                "FlashAttention, by far",
                "it is fast because it computes less",
                "myth: FlashAttention is fast because it computes less",
            ),
            Wrong(
                "FlashAttention: it leaves out the softmax of N × N entries",
                "exact attention without the table leaves something out",
                "myth: exact attention must store the N × N matrix",
            ),
        ),
        why="It moves fewer bytes; it even computes a little more, to rescale.",
        shown="08",
    ),
)
