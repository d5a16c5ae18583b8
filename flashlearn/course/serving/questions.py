"""Questions of notebook 18."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="18.longest",
        text="Every request gets room for as many tokens as the longest of all has at its end. At an average step, how much of "
        "that room is in use?",
        right="about a seventh",
        wrong=(
            Wrong(
                "about half",
                "lengths lie evenly between nothing and the longest",
                "mistake: 18.waste: every request is taken to be half as long as the longest",
            ),
            Wrong(
                "nearly all, but for the end of each",
                "requests that run together are about as long",
                "mistake: 18.waste: every request gets as many pages as the longest",
            ),
            Wrong(
                "all: it was reserved for that",
                "memory that is reserved is used",
                "mistake: 18.waste: all the room is counted, used or not",
            ),
        ),
        why="One request of hundreds decides the room of all, and even that one is short at first.",
        shown='assert 1 / 8 < used / longest < 1 / 6, "most of the room is empty"',
    ),
    Question(
        name="18.order",
        text="The pages of a sequence lie in the pool as numbers 5, 2 and 7. What does that change in its attention?",
        right="the addresses at which keys are read",
        wrong=(
            Wrong(
                "the sums: each page has a softmax of its own",
                "pages are blocks that are never merged",
                "myth: paged attention is another attention",
            ),
            Wrong(
                "the mask: page 2 now comes before page 5",
                "a token's place is its address",
                "myth: paged attention is another attention",
            ),
        ),
        why="Row, column and mask go by the place in the sequence; the table is asked for addresses alone.",
        shown="torch.testing.assert_close(s[:N], k @ q)  # the scores, in the order of tokens",
    ),
    Question(
        name="18.fork",
        text="Pages of 4 tokens. A has 10 tokens, B begins with the same 10 and gets one more. How many pages does B take from "
        "the pool?",
        right="one",
        wrong=(
            Wrong(
                "none",
                "the last page has two places left, and two may write into it",
                "mistake: 18.waste: requests share a last page, as if they were one",
            ),
            Wrong(
                "three",
                "who has as many tokens as A takes as many pages",
                "mistake: 18.waste: every request gets as many pages as the longest",
            ),
        ),
        why="Two full pages are shared; of the third, into which B writes, it takes a copy.",
        shown="assert before - pool.free_pages == 1",
    ),
    Question(
        name="18.pieces",
        text="One request, 32 query heads, 8 key heads, 65,536 keys; 264 programs run at once on this GPU. Into how many pieces "
        "may the keys of a key head be cut at most, so that no program waits for a place?",
        right="33",
        wrong=(
            Wrong(
                "264",
                "all programs work on one head",
                "mistake: 18.splits: heads are not counted",
            ),
            Wrong(
                "8",
                "every query head has programs of its own",
                "mistake: 18.splits: query heads are counted, which share a program",
            ),
            Wrong(
                "256, of 256 keys each",
                "the more programs, the better",
                "mistake: 18.splits: more programs are made than run at once",
            ),
        ),
        why="8 key heads share 264 places: 33 each, and the query heads of a group share a program.",
        shown="assert pieces == 33",
    ),
    Question(
        name="18.batch",
        text="A model of 16 GB writes alone: reading it takes 5 ms a token. Now 16 requests, each with 0.25 GB of keys and values, are "
        "served together. How long does each wait for its next token?",
        right="6 ms: 16 caches are read too",
        wrong=(
            Wrong(
                "80 ms: 16 have to be served",
                "requests take turns",
                "myth: in a batch of 16, each request waits 16 times as long",
            ),
            Wrong(
                "5 ms: the model is read anyway",
                "requests cost nothing once the model is there",
                "mistake: 18.splits: requests are not counted",
            ),
        ),
        why="The weights are read once for all, 16 GB, and the caches are 4 GB together.",
        shown="assert 1.2 < times[16] / times[1] < 1.3",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="18.recall.sums",
        text="Two blocks of a row gave (m_a, ℓ_a) and (m_b, ℓ_b), and m_b is the larger. What is ℓ of both together?",
        right="ℓ_a exp(m_a - m_b) + ℓ_b",
        wrong=(
            Wrong("ℓ_a + ℓ_b", "sums add", "mistake: 03.merge: the sums are added without rescaling"),
            Wrong(
                "ℓ_a exp(m_b - m_a) + ℓ_b",
                "what is older becomes larger",
                "mistake: 03.merge: the factors are upside down",
            ),
        ),
        why="ℓ_a was measured from m_a, and must be measured from m_b.",
        shown="03",
    ),
    Question(
        name="18.recall.address",
        text="y has 4 rows of 3 numbers, one behind the other in memory, and x is y transposed. How far from the start is x[2, 1]?",
        right="5",
        wrong=(
            Wrong("9", "a view is arranged like its shape", "mistake: 11.transpose: x is taken to be contiguous"),
            Wrong("3", "every index moves by one", "mistake: 11.scale: the stride of x is taken to be 1"),
        ),
        why="The strides of x are 1 and 3: 2 times 1 and once 3.",
        shown="11",
    ),
    Question(
        name="18.recall.intensity",
        text="One query, one head, 16 bits: how many FLOPs does attention do for each byte of K and V that it reads?",
        right="1",
        wrong=(
            Wrong("2", "an element is a byte", "mistake: 14.stages: elements are counted as bytes"),
            Wrong(
                "201 on an A100",
                "the intensity is that of the hardware",
                "mistake: 08.block: the ridge point is taken for the block size",
            ),
        ),
        why="Four FLOPs for a number of K and one of V, and both together are four bytes.",
        shown="16",
    ),
)
