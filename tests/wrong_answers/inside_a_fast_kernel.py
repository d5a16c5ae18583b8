"""Wrong answers to the exercises of notebook 15."""

import math

from flashlearn.course.inside_a_fast_kernel.mistakes import K_ARRIVES, V_ARRIVES
from flashlearn.course.inside_a_fast_kernel.solutions import arrive_solution, stages_solution
from flashlearn.exercises.altered import altered


def phases_of_the_stage(t, stages):
    return t % stages & 1 ^ 1, t % stages & 1


def phases_fixed(t, stages):
    return 1, 0


def phases_loader_never_waits(t, stages):
    free = 1 if t < stages else t // stages & 1
    return free, t // stages & 1


def phases_a_round_late(t, stages):
    return (t + 1) // stages & 1 ^ 1, t // stages & 1


def phases_inverted_all(t, stages):
    return ~(t // stages), t // stages & 1


def phases_of_two_stages(t, stages):
    return t // 2 & 1 ^ 1, t // 2 & 1


def phases_told_backwards(t, stages):
    return t // stages & 1, (t // stages + 1) & 1


def arrive_of(*changes):
    return altered(arrive_solution, *changes)


def slots(blocks, stages, land, work, *, serial=False, begins=False, fill=True, rounds=False):
    landed, done = [], []
    for t in range(blocks):
        freed = done[t - stages] - (work if begins else 0) if t >= stages else 0
        if rounds and t >= stages:
            freed = done[t // stages * stages - 1]
        landed.append(max(freed, landed[-1] if landed and serial else 0) + land)
        done.append(max(landed[t], done[-1] if done else 0) + work)
    return done[-1] - (0 if fill else land)


WRONG = {
    "15.deadlock": (
        ("the phase is that of the number of the stage", phases_of_the_stage),
        ("the phases never change", phases_fixed),
        ("from its second round on the loader waits for the round under way", phases_loader_never_waits),
        ("the loader looks at the next tile", phases_a_round_late),
        ("all bits are inverted, not the last", phases_inverted_all),
        ("two stages are taken for granted", phases_of_two_stages),
    ),
    "15.arrive": (
        ("the groups arrive at what they wait for", arrive_of((K_ARRIVES, K_ARRIVES.replace("k_free", "k_full")))),
        (
            "the next stage is handed back",
            arrive_of((V_ARRIVES, V_ARRIVES.replace("stage)", "(stage + 1) % k_free.shape[0])"))),
        ),
        (
            "both are handed back at the top",
            arrive_of((K_ARRIVES, ""), (V_ARRIVES, ""), ("    zero =", f"{K_ARRIVES}{V_ARRIVES}    zero =")),
        ),
        ("only the first stage is handed back", arrive_of((V_ARRIVES, "    if stage == 0:\n    " + V_ARRIVES))),
        ("V is handed back twice, K never", arrive_of((K_ARRIVES, V_ARRIVES))),
        (
            "K and V are exchanged",
            arrive_of((K_ARRIVES, "    # K\n"), (V_ARRIVES, K_ARRIVES), ("    # K\n", V_ARRIVES)),
        ),
        (
            "V is handed back as soon as it has landed",
            arrive_of((V_ARRIVES, ""), ("    acc = warpgroup_mma(p", f"{V_ARRIVES}    acc = warpgroup_mma(p")),
        ),
    ),
    "15.stages": (
        ("the copy engine brings one tile at a time", lambda *args: slots(*args, serial=True)),
        ("a buffer is free when its product begins", lambda *args: slots(*args, begins=True)),
        ("the first landing is not counted", lambda *args: slots(*args, fill=False)),
        (
            "a round of copies begins when all tiles of the round before are done",
            lambda *args: slots(*args, rounds=True),
        ),
        ("a stage is held back", lambda b, s, l, w: stages_solution(b, max(1, s - 1), l, w)),
        ("the larger of the two sums", lambda b, s, l, w: max(b * w, math.ceil(b / s) * l) + w),
        ("the tile before is not waited for", lambda b, s, l, w: math.ceil(b / s) * (l + w)),
    ),
}


def stages_by_finishing_times(blocks, stages, land, work):
    done = {t: 0 for t in range(-stages, 0)}
    for t in range(blocks):
        done[t] = max(done[t - stages] + land, done[t - 1]) + work
    return float(done[blocks - 1])


RIGHT = {
    "15.deadlock": (
        ("by remainders", lambda t, stages: (1 - t // stages % 2, t // stages % 2)),
        ("as truth values", lambda t, stages: (t // stages % 2 == 0, t // stages % 2 == 1)),
    ),
    "15.arrive": (
        ("awaited by the number of those left", arrive_of(("    stage, phase", "    # the same\n    stage, phase"))),
    ),
    "15.stages": (("from before the first tile", stages_by_finishing_times),),
}
