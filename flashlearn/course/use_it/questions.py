"""Questions of notebook 16."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="16.losses",
        text="One model is trained three times in float32, from the same weights and batches, with three attentions. How far apart "
        "are the losses after 10 steps?",
        right="no further than rounding takes them",
        wrong=(
            Wrong(
                "a little: FlashAttention leaves small weights out",
                "tiles drop what hardly counts",
                "myth: FlashAttention is an approximation",
            ),
            Wrong(
                "far: a softmax for each block is another model",
                "a softmax in blocks is another softmax",
                "myth: FlashAttention is an approximation",
            ),
        ),
        why="All three take the same sums, in other orders.",
        shown="    assert max(abs(a - b) for a, b in zip(losses, reference, strict=True)) < TOLERANCE, name",
    ),
    Question(
        name="16.bytes",
        text="One token attends behind a cache of 512 tokens, another behind 128. How many bytes of K and V does the first read?",
        right="four times as many",
        wrong=(
            Wrong(
                "as many: the old ones are in the cache",
                "what is cached is not read",
                "myth: with a KV cache, every token costs the same",
            ),
            Wrong(
                "those of one token: all others were read before",
                "what was read once stays on chip",
                "myth: with a KV cache, every token costs the same",
            ),
        ),
        why="The cache saves computing keys and values, not reading them.",
        shown="    assert (read, flops) == (2 * N * 16 * 2, 4 * N * 16)",
    ),
    Question(
        name="16.head",
        text="Six query heads, two key heads. Which key head serves query head 4?",
        right="key head 1",
        wrong=(
            Wrong(
                "key head 0", "heads are dealt out like cards", "mistake: 16.gqa: heads of k and v are taken in turn"
            ),
            Wrong(
                "both, averaged", "a group shares the mean of all", "mistake: 16.gqa: the heads of k and v are averaged"
            ),
            Wrong(
                "key head 0, like all others",
                "to share is to have one for all",
                "mistake: 16.gqa: the first head of k and v serves all groups",
            ),
        ),
        why="Neighbours share: query heads 0 to 2 use key head 0, 3 to 5 key head 1.",
        shown="each = torch.arange(6) // 3  # query heads 0, 1, 2 use key head 0; 3, 4, 5 use key head 1",
    ),
    Question(
        name="16.causal",
        text="Ten keys are in the cache, and one query comes, the last. What does it see with PyTorch's is_causal=True?",
        right="key 0 alone",
        wrong=(
            Wrong(
                "all ten keys",
                "causal means: all that was written so far",
                "myth: is_causal=True is right for decoding",
            ),
            Wrong("key 9 alone", "a mask of one row is its last entry", "myth: is_causal=True is right for decoding"),
        ),
        why="Its triangle begins in the top left corner: the first query sees the first key.",
        shown="torch.testing.assert_close(top_left, v[:, :, :1])  # all the weight on key 0",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="16.recall.merge",
        text="Two halves of the keys gave (o_a, lse_a) and (o_b, lse_b). With what weight does o_a enter the whole?",
        right="exp(lse_a - lse)",
        wrong=(
            Wrong("1/2", "halves count alike", "mistake: 05.merge_outputs: the halves are averaged with equal weights"),
            Wrong(
                "lse_a / (lse_a + lse_b)",
                "lse is a sum of weights",
                "mistake: 05.merge_outputs: lse itself is taken as the weight",
            ),
            Wrong(
                "1: they are sums",
                "outputs add",
                "mistake: 05.merge_outputs: the two outputs are added without weights",
            ),
        ),
        why="exp(lse_a) is the sum of the weights of its half, exp(lse) that of all.",
        shown="05",
    ),
    Question(
        name="16.recall.corner",
        text="Three queries, two keys, causal, as in this course. What is o of query 0?",
        right="0, with an lse of -inf",
        wrong=(
            Wrong(
                "the first row of V, all of it",
                "the triangle begins in the top left corner",
                "mistake: 12.causal: the mask is aligned to the top left",
            ),
            Wrong(
                "NaN: its sum ℓ is 0",
                "what is divided by is never 0",
                "mistake: 12.kernel: l = 0 is divided by where no key is seen",
            ),
        ),
        why="j is at most i + N_k - N_q = 0 + 2 - 3: it sees no key. Nothing is added up, and nothing is divided by 0.",
        shown="12",
    ),
    Question(
        name="16.recall.kept",
        text="What does FlashAttention keep of the forward pass for the backward pass, beside q, k, v and o?",
        right="one number a row",
        wrong=(
            Wrong("P", "a gradient needs what the pass computed", "myth: training needs the N × N table"),
            Wrong("S and P, by tiles", "tiles are kept for later", "myth: training needs the N × N table"),
        ),
        why="With lse, P is computed again tile by tile.",
        shown="10",
    ),
)
