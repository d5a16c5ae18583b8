"""Questions of notebook 15."""

from flashlearn.exercises.question import Question, Wrong

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="15.fresh",
        text="Nobody has arrived at the barrier free yet, and the loader waits for phase 1 of it, with the bit ^ 1. What if it waited with "
        "the same bit as the groups, for phase 0?",
        right="all wait for ever, from the start",
        wrong=(
            Wrong(
                "nothing: the bits need only change together",
                "loader and groups may count alike",
                "mistake: 15.deadlock: loader and groups wait for the same phase",
            ),
            Wrong(
                "it would load one tile ahead of what is free",
                "a wait for phase 0 lets a newcomer pass",
                "mistake: 15.deadlock: the phases of loader and groups are exchanged",
            ),
            Wrong(
                "it works for one stage, where each tile is a round",
                "a phase ends with every tile",
                "mistake: 15.deadlock: a phase is taken to end with every tile",
            ),
        ),
        why="The phase before phase 0 counts as over, phase 0 of a fresh barrier does not.",
        shown="    run_with(shared_kernel, 2, 1.0, load=load_alike)",
    ),
    Question(
        name="15.without",
        text="Two stages, six tiles, and the arrive of the groups is deleted. What happens?",
        right="two tiles are multiplied, then all wait",
        wrong=(
            Wrong(
                "tile 2 overwrites tile 0",
                "a copy does not wait for its buffer",
                "mistake: 15.stages: copies never wait for a free buffer",
            ),
            Wrong(
                "nothing is ever multiplied",
                "a loader without arrivals does not begin",
                "mistake: 15.deadlock: loader and groups wait for the same phase",
            ),
            Wrong(
                "nothing changes but the end: the last stage is not freed",
                "an arrive tidies up, and nobody waits for it",
                "mistake: 15.arrive: V is never handed back",
            ),
        ),
        why="The first round of every stage needs no arrival; tile 2 needs that of tile 0.",
        shown='assert deadlock.stopped.startswith("slot 16: consume 0 waits for phase 1 of full[0]")',
    ),
    Question(
        name="15.early",
        text="The groups arrive at the barrier free as soon as they begin with a tile, before its products. What can happen?",
        right="a copy lands in a tile that is still to be read",
        wrong=(
            Wrong(
                "nothing: the copy takes longer than the products",
                "what is slow enough need not be kept apart",
                "mistake: 15.arrive: K is handed back while its product may still read it",
            ),
            Wrong(
                "a deadlock: the loader misses the phase",
                "who arrives early has not arrived",
                "mistake: 15.arrive: V is never handed back",
            ),
        ),
        why="Whoever arrives says: I shall not read this again.",
        shown='    ("arrive before the products", shared_kernel, {"consume": early}),',
    ),
    Question(
        name="15.third",
        text="6 tiles; a copy lands after 8 slots, a tile takes 4. Two stages: 40 slots. How many with a third?",
        right="32",
        wrong=(
            Wrong(
                "24: the tensor cores never wait",
                "the first landing is free",
                "mistake: 15.stages: the time of a round is multiplied",
            ),
            Wrong(
                "40: the copies are not quicker",
                "a stage more is not asked for earlier",
                "myth: more stages are always faster",
            ),
            Wrong(
                "72: 12 slots for each tile",
                "landing and multiplying take turns",
                "mistake: 15.stages: nothing overlaps",
            ),
        ),
        why="8 slots until the first tile is there, and then 6 times 4 without a gap.",
        shown="assert slots == [40, 32]",
    ),
)
RECALLS: tuple[Question, ...] = (
    Question(
        name="15.recall.rescale",
        text="A new block brings a larger maximum. What is done to ℓ and acc before the block is added?",
        right="both are multiplied by exp(old maximum - new maximum)",
        wrong=(
            Wrong(
                "ℓ is, acc is divided by ℓ at the end anyway",
                "the division heals acc",
                "mistake: 05.recurrence: l is rescaled, but acc is not",
            ),
            Wrong(
                "acc is, ℓ only counts",
                "ℓ is not measured from the maximum",
                "mistake: 05.recurrence: acc is rescaled, but l is not",
            ),
            Wrong(
                "both are multiplied by exp(new maximum - old maximum)",
                "what was small becomes larger",
                "mistake: 05.recurrence: the factor is upside down",
            ),
        ),
        why="Both are sums of exponentials measured from the old maximum.",
        shown="05",
    ),
    Question(
        name="15.recall.stage",
        text="A kernel for attention has three stages. Of which tiles are there three in shared memory?",
        right="of K and V",
        wrong=(
            Wrong("of K", "V needs no buffer", "mistake: 14.stages: K is counted and V is not"),
            Wrong(
                "of Q, K and V",
                "a stage has all that a product needs",
                "mistake: 14.stages: every stage has a tile of Q",
            ),
        ),
        why="Q is loaded once, and stays.",
        shown="14",
    ),
    Question(
        name="15.recall.load",
        text="In a Triton kernel, where does tl.load put a tile?",
        right="the compiler decides",
        wrong=(
            Wrong("in shared memory", "who loads has chosen a place", "myth: tl.load puts things in shared memory"),
            Wrong(
                "in shared memory, if a dot reads it",
                "a product of Triton names its buffers",
                "myth: tl.load puts things in shared memory",
            ),
        ),
        why="It makes a value; in Gluon the place is yours to choose, and to keep free of races.",
        shown="11",
    ),
)
