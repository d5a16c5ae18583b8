"""Known wrong answers to the exercises of notebook 15."""

from flashlearn.course.inside_a_fast_kernel.solutions import arrive_solution
from flashlearn.exercises.altered import altered
from flashlearn.exercises.assessment import Mistake

K_ARRIVES = "    mbarrier.arrive(k_free.index(stage), count=1)\n"
V_ARRIVES = "    mbarrier.arrive(v_free.index(stage), count=1)\n"
S_AWAITED = "    s = warpgroup_mma_wait(0, deps=[s])\n"
ACC_AWAITED = "    acc = warpgroup_mma_wait(0, deps=[acc])\n"


def phases_alike(t, stages):
    return t // stages & 1, t // stages & 1


def phases_swapped(t, stages):
    return t // stages & 1, t // stages & 1 ^ 1


def phases_by_tile(t, stages):
    return t & 1 ^ 1, t & 1


def phases_rounds(t, stages):
    return t // stages + 1, t // stages


def _pipeline(blocks, stages, land, work, *, frees="done", reach=0):
    landed: list[int] = []
    done: list[int] = []
    for t in range(blocks):
        freed = {"done": done, "landed": landed, "never": []}[frees]
        at = t - stages - reach
        landed.append((freed[at] if freed and at >= 0 else 0) + land)
        done.append(max(landed[t], done[-1] if done else 0) + work)
    return done[-1]


def stages_never_waiting(*args):
    return _pipeline(*args, frees="never")


def stages_free_when_landed(*args):
    return _pipeline(*args, frees="landed")


def stages_one_more(*args):
    return _pipeline(*args, reach=1)


def stages_in_turn(blocks, stages, land, work):
    return blocks * (land + work)


def stages_steady(blocks, stages, land, work):
    return blocks * max(work, (land + work) / stages)


MISTAKES = {
    "15.deadlock": (
        Mistake("loader and groups wait for the same phase: nobody ever begins", phases_alike, "two stages"),
        Mistake("the phases of loader and groups are exchanged", phases_swapped, "two stages"),
        Mistake(
            "a phase is taken to end with every tile, not with every round of a buffer", phases_by_tile, "two stages"
        ),
        Mistake("the number of the round is returned, not its last bit", phases_rounds, "two stages"),
    ),
    "15.arrive": (
        Mistake(
            "K is handed back while its product may still read it",
            altered(arrive_solution, (K_ARRIVES, ""), (S_AWAITED, K_ARRIVES + S_AWAITED)),
            "one stage",
        ),
        Mistake("V is never handed back", altered(arrive_solution, (V_ARRIVES, "")), "one stage"),
        Mistake(
            "K is kept until the product with V is over, or V is awaited before the product with K",
            altered(arrive_solution, (K_ARRIVES, ""), (V_ARRIVES, V_ARRIVES + K_ARRIVES)),
            "one stage",
        ),
        Mistake(
            "V is handed back while its product may still read it",
            altered(arrive_solution, (V_ARRIVES, ""), (ACC_AWAITED, V_ARRIVES + ACC_AWAITED)),
            "one stage",
        ),
    ),
    "15.stages": (
        Mistake("copies never wait for a free buffer", stages_never_waiting, "two stages"),
        Mistake("a buffer is taken to be free as soon as its tile has landed", stages_free_when_landed, "two stages"),
        Mistake("a stage more is counted than there is", stages_one_more, "two stages"),
        Mistake("nothing overlaps, whatever the number of stages", stages_in_turn, "two stages"),
        Mistake(
            "the time of a round is multiplied, and filling the pipeline forgotten", stages_steady, "a third stage"
        ),
    ),
}
