"""Answers to the exercises of making_it_fast that are no edit of the solution: `wrong.toml` names them."""


def stages_counted_up(block_m, block_n, D, itemsize, shared):
    stages = 0
    while (block_m + 2 * (stages + 1) * block_n) * D * itemsize <= shared:
        stages += 1
    return stages
