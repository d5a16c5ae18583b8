"""Questions of notebook 11."""

from flashlearn.exercises.question import Question, Wrong

WARPS = "myth: num_warps is the number of threads in the grid"
SHARED = "myth: tl.load puts things in shared memory"
MASK = "myth: the mask exists because threads come in 32s"

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="11.warps",
        text="97 programs of 1024 elements run with num_warps = 4, then with num_warps = 8. What changes?",
        right="each program has 256 threads, not 128",
        wrong=(
            Wrong("there are 194 programs, not 97", "more warps make more programs", WARPS),
            Wrong("the whole grid has 8 threads, not 4", "num_warps counts the threads of the grid", WARPS),
        ),
        why="num_warps is a number per program; the grid follows from N and BLOCK alone.",
        shown="    assert fact.threads == 32 * warps",
    ),
    Question(
        name="11.shared",
        text="Vector addition: two loads, one store, blocks of 1024 float16. How much shared memory has a program?",
        right="0 bytes, for no block",
        wrong=(
            Wrong("4,096 bytes, for two blocks", "every tl.load fills a block of shared memory", SHARED),
            Wrong("6,144 bytes, for three blocks", "loads and stores both pass through shared memory", SHARED),
        ),
        why="A loaded value lives where the compiler puts it; here, in registers.",
        shown='assert all(fact.shared == 0 for fact in facts[4:6]), "vector_add: three loads and stores, no shared memory"',
    ),
    Question(
        name="11.mask",
        text="98,432 is a multiple of 32 and of 128. Of blocks of 32, 128 and 1024, which leave lanes to be masked?",
        right="1024 alone: its grid overshoots",
        wrong=(
            Wrong("none: whole warps need no mask", "a mask fills up the last warp", MASK),
            Wrong("all: a kernel always needs its mask", "the mask belongs to the threads, not to the length", MASK),
        ),
        why="97 blocks of 1024 overshoot by 896 lanes; the other sizes divide 98,432.",
        shown="assert masked == [0, 0, 896]",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="11.recall.tiling",
        text="A matrix product is cut into larger blocks. What becomes fewer?",
        right="bytes that are read",
        wrong=(
            Wrong("multiplications", "tiling leaves products out", "myth: tiling does less arithmetic"),
            Wrong(
                "bytes and multiplications alike",
                "what is loaded once is multiplied once",
                "myth: tiling does less arithmetic",
            ),
        ),
        why="2MKN operations stay; a loaded block is used more often.",
        shown="06",
    ),
    Question(
        name="11.recall.start",
        text="Where must a running maximum start?",
        right="at −∞, below all floats",
        wrong=(
            Wrong(
                "at −1000, below all scores",
                "a very small number is below every score",
                "myth: start the maximum at a very small number such as −1000",
            ),
            Wrong(
                "at −3.4e38: −∞ is no float",
                "floating-point numbers have no infinity",
                "myth: floating-point numbers cannot hold −inf",
            ),
        ),
        why="−∞ is a floating-point number, exp(−∞) is 0, and no score lies below it.",
        shown="02",
    ),
    Question(
        name="11.recall.table",
        text="The backward pass of attention uses P, which is N × N. Where does it get it from?",
        right="it is computed again, tile by tile",
        wrong=(
            Wrong(
                "the forward pass stored it",
                "what is used must have been kept",
                "myth: training needs the N × N table, because the backward pass uses P",
            ),
            Wrong(
                "it is stored in 16 bits: computing it again is slower",
                "arithmetic costs more than traffic",
                "myth: computing things twice makes it slower",
            ),
        ),
        why="Q, K and lse are enough: P = exp(S − lse).",
        shown="10",
    ),
)
