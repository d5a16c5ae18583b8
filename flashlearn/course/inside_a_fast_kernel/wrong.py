"""Answers to the exercises of inside_a_fast_kernel that are no edit of the solution: `wrong.toml` names them."""


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


def loader_waits_for_its_own_round(t, stages):
    phase = (t // stages) % 2
    return phase, phase


def round_itself(t, stages):
    return t // stages ^ 1, t // stages


def group_waits_once(t, stages):
    return (t // stages & 1) ^ 1, 0


def all_at_once(blocks, stages, land, work):
    return land + blocks * work


def one_after_the_other(blocks, stages, land, work):
    return sum(land + work for _ in range(blocks))


def last_one_left_out(blocks, stages, land, work):
    return variant_pipeline(blocks, stages, land, work) - work


def variant_pipeline(blocks, stages, land, work):
    done = [0] * stages
    for _ in range(blocks):
        done.append(max(done[-stages] + land, done[-1]) + work)
    return done[-1]


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


def slots(blocks, stages, land, work, *, serial=False, begins=False, fill=True, rounds=False):
    landed, done = [], []
    for t in range(blocks):
        freed = done[t - stages] - (work if begins else 0) if t >= stages else 0
        if rounds and t >= stages:
            freed = done[t // stages * stages - 1]
        landed.append(max(freed, landed[-1] if landed and serial else 0) + land)
        done.append(max(landed[t], done[-1] if done else 0) + work)
    return done[-1] - (0 if fill else land)


def stages_by_finishing_times(blocks, stages, land, work):
    done = {t: 0 for t in range(-stages, 0)}
    for t in range(blocks):
        done[t] = max(done[t - stages] + land, done[t - 1]) + work
    return float(done[blocks - 1])
