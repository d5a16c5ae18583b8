"""Wrong answers to the exercises of notebook 15."""

from flashlearn.course.inside_a_fast_kernel.solutions import arrive_solution
from flashlearn.exercises.altered import altered
from tests.variants import variant

K_ARRIVES = "    mbarrier.arrive(k_free.index(stage), count=1)\n"
V_ARRIVES = "    mbarrier.arrive(v_free.index(stage), count=1)\n"


@variant("15.deadlock", "the loader waits for the round under way", r"deadlock|nobody")
def loader_waits_for_its_own_round(t, stages):
    phase = (t // stages) % 2
    return phase, phase


@variant("15.deadlock", "the round itself is returned", r"0 or 1|last bit")
def round_itself(t, stages):
    return t // stages ^ 1, t // stages


@variant("15.deadlock", "the group does not wait after the first round", r"race|deadlock")
def group_waits_once(t, stages):
    return (t // stages & 1) ^ 1, 0


_without_k = altered(arrive_solution, (K_ARRIVES, "    count = 1\n"))
variant("15.arrive", "K is not handed back in any round", r"deadlock.*k_free|never")(_without_k)


variant("15.arrive", "both are handed back at the end", r"later|kept")(
    altered(arrive_solution, (K_ARRIVES, ""), ("    return acc", f"{K_ARRIVES}    return acc"))
)
variant("15.arrive", "both are handed back before anything is awaited", r"race|deadlock")(
    altered(
        arrive_solution,
        (K_ARRIVES, ""),
        (V_ARRIVES, ""),
        ("    mbarrier.wait(k_full", f"{K_ARRIVES}{V_ARRIVES}    mbarrier.wait(k_full"),
    )
)


@variant("15.stages", "all copies are asked for at once", r"wait.*buffer|free")
def all_at_once(blocks, stages, land, work):
    return land + blocks * work


@variant("15.stages", "landing and work are added for every tile", r"overlap|at once")
def one_after_the_other(blocks, stages, land, work):
    return sum(land + work for _ in range(blocks))


@variant("15.stages", "the last tile is not multiplied", r"then multiplied|one tile")
def last_one_left_out(blocks, stages, land, work):
    return _pipeline(blocks, stages, land, work) - work


def _pipeline(blocks, stages, land, work):
    done = [0] * stages
    for _ in range(blocks):
        done.append(max(done[-stages] + land, done[-1]) + work)
    return done[-1]
