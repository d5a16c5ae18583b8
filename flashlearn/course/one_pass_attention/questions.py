"""Questions of notebook 05."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="05.weights",
        text="A program reads six logits one by one and writes each weight at once. How many are right in the end?",
        right="the last one alone",
        wrong=(
            Wrong(
                "all six: that is what one pass means",
                "each weight is final when its logit has been read",
                "myth: one-pass attention computes softmax in one pass",
            ),
            Wrong(
                "all but those before the largest logit",
                "a weight changes with the maximum only, not with the sum",
                "myth: one-pass attention computes softmax in one pass",
            ),
        ),
        why="Every logit raises the sum that all weights are divided by; only the last weight has seen the whole sum.",
        shown="weights = torch.softmax(x[:i], dim=0)",
    ),
    Question(
        name="05.factor",
        text="acc is the sum of e^(s_j − 3) v_j. The next key scores 5. What happens before its value is added?",
        right="acc is multiplied by e^(3 − 5)",
        wrong=(
            Wrong(
                "acc is multiplied by e^(5 − 3)",
                "terms grow when they are measured from a larger maximum",
                "mistake: 05.recurrence: the factor is upside down",
            ),
            Wrong(
                "nothing: ℓ takes the factor, acc does not",
                "the division by ℓ repairs acc too",
                "mistake: 05.recurrence: l is rescaled, but acc is not",
            ),
            Wrong(
                "nothing: both are scaled once it is in",
                "the new term is measured from the old maximum too",
                "mistake: 05.recurrence: the new value is rescaled together with the old ones",
            ),
        ),
        why="e^(s_j − 3) · e^(3 − 5) = e^(s_j − 5): the old terms are then measured from the new maximum, as ℓ's are.",
        shown="l, acc, m = l * alpha + p, acc * alpha + p * v_i, m_new",
    ),
    Question(
        name="05.rescalings",
        text="100 keys come in random order. How often does the maximum rise after the first, on average?",
        right="about 4 times",
        wrong=(
            Wrong(
                "99 times",
                "every new score becomes the maximum",
                "mistake: 05.recurrence: the newest score is taken for the maximum",
            ),
            Wrong(
                "about 50 times",
                "a score has to beat the one before it only",
                "mistake: 05.recurrence: the newest score is taken for the maximum",
            ),
        ),
        why="Key i beats all before it with probability 1/i, and 1/2 + 1/3 + ... + 1/100 is 4.2.",
        shown="assert abs(rescalings(s).double().mean() - expected) < 0.05",
    ),
    Question(
        name="05.share",
        text="Half a of the keys has lse = 0, half b has lse = log 3. With which weights do o_a and o_b merge?",
        right="1/4 and 3/4",
        wrong=(
            Wrong(
                "1/2 and 1/2",
                "two halves weigh the same",
                "mistake: 05.merge_outputs: the halves are averaged with equal weights",
            ),
            Wrong(
                "0 and 1",
                "lse is itself the weight of a half",
                "mistake: 05.merge_outputs: lse itself is taken as the weight, not e^lse",
            ),
            Wrong(
                "1 and 1",
                "outputs over different keys add up",
                "mistake: 05.merge_outputs: the two outputs are added without weights",
            ),
        ),
        why="e^lse is all the weight of a half: 1 and 3, of 4 together.",
        shown="merged = torch.exp(lse_a - both) * half_a.output + torch.exp(lse_b - both) * half_b.output",
    ),
    Question(
        name="05.smallest",
        text="Some keys have been read, and at least one is visible. How small can ℓ be?",
        right="never below 1",
        wrong=(
            Wrong(
                "as small as 1e-38: add an epsilon before dividing",
                "a sum of exponentials may be nearly 0",
                "myth: add a small epsilon to l, to be safe from dividing by 0",
            ),
            Wrong(
                "0, if the score is below −1000",
                "a low score leaves nothing behind",
                "mistake: 05.recurrence: the maximum starts at -100 instead of -inf",
            ),
        ),
        why="The key with the largest score contributes e^(m − m) = 1, whatever that score is.",
        shown='assert (last.values["l_i"] >= 1).all()',
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="05.recall.a",
        text="Write S for queries and keys of width D.",
        right="Q Kᵀ / √D",
        wrong=(
            Wrong("Q Kᵀ / D", "variance and size are the same", "mistake: 04.attention: the scores are divided by D"),
            Wrong("Q Kᵀ", "scores need no scale", "mistake: 04.attention: the scores are not divided by sqrt(D)"),
            Wrong(
                "K Kᵀ / √D",
                "keys are compared with keys",
                "mistake: 04.attention: K is multiplied by itself, in place of Q by K",
            ),
        ),
        why="A dot product of D terms has variance D; √D brings it back to 1.",
        shown="04",
    ),
    Question(
        name="05.recall.b",
        text="Merge the pairs (m, ℓ) = (3, 2) and (5, 1). What is ℓ?",
        right="2 e^(3 − 5) + 1",
        wrong=(
            Wrong(
                "2 + 1",
                "sums add up whatever they are measured from",
                "mistake: 03.merge: the sums are added without rescaling",
            ),
            Wrong(
                "2 e^(5 − 3) + 1",
                "terms grow when the maximum rises",
                "mistake: 03.merge: the factors are upside down, e^(m - m_a) for e^(m_a - m)",
            ),
        ),
        why="The left sum is measured from 3, the merged one from 5: its factor is e^(3 − 5).",
        shown="03",
    ),
    Question(
        name="05.recall.c",
        text="What waits on chip between the two passes of two-pass attention?",
        right="N scores of each query",
        wrong=(
            Wrong(
                "nothing: S waits in HBM",
                "scores have to be stored to be used again",
                "myth: exact attention must store the N × N matrix",
            ),
            Wrong(
                "N finished weights of each query",
                "the weights are final when the keys are read",
                "myth: one-pass attention computes softmax in one pass",
            ),
        ),
        why="A weight needs the final m and ℓ, so the scores wait for them (or are made again from K).",
        shown="04",
    ),
)
