"""Answers to the exercises of inside_a_fast_kernel that are no edit of the solution: `wrong.toml` names them."""


def stages_by_finishing_times(blocks, stages, land, work):
    done = {t: 0 for t in range(-stages, 0)}
    for t in range(blocks):
        done[t] = max(done[t - stages] + land, done[t - 1]) + work
    return float(done[blocks - 1])
