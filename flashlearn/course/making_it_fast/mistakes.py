"""Known wrong answers to the exercises of notebook 14."""

from flashlearn.exercises.assessment import Mistake


def _rate(*problem, products=2, half=0.5, again=2.5, unit=1e12):
    seconds, B, H, N, D, causal, backward = problem
    return 2 * products * B * H * N**2 * D * (half if causal else 1) * (again if backward else 1) / seconds / unit


def flops_one_product(*args):
    return _rate(*args, products=1)


def flops_causal_not_halved(*args):
    return _rate(*args, half=1)


def flops_backward_as_forward(*args):
    return _rate(*args, again=1)


def flops_seven_products(*args):
    return _rate(*args, again=3.5)


def flops_in_gigaflops(*args):
    return _rate(*args, unit=1e9)


def flops_one_head(seconds, B, H, N, D, causal, backward):
    return _rate(seconds, 1, 1, N, D, causal, backward)


def flops_exact_triangle(seconds, B, H, N, D, causal, backward):
    return _rate(seconds, B, H, N, D, causal, backward, half=(N + 1) / (2 * N))


def _stages(block_m, block_n, D, itemsize, shared, *, q=1, pair=2, slack=0):
    return max(0, (shared - slack - q * block_m * D * itemsize) // (pair * block_n * D * itemsize))


def stages_without_q(*args):
    return _stages(*args, q=0)


def stages_k_only(*args):
    return _stages(*args, pair=1)


def stages_in_elements(block_m, block_n, D, itemsize, shared):
    return _stages(block_m, block_n, D, 1, shared)


def stages_in_float16(block_m, block_n, D, itemsize, shared):
    return _stages(block_m, block_n, D, 2, shared)


def stages_q_in_each(block_m, block_n, D, itemsize, shared):
    return shared // ((block_m + 2 * block_n) * D * itemsize)


def stages_not_quite_full(*args):
    return _stages(*args, slack=1)


def stages_blocks_swapped(block_m, block_n, D, itemsize, shared):
    return _stages(block_n, block_m, D, itemsize, shared)


def stages_at_least_one(*args):
    return max(1, _stages(*args))


MISTAKES = {
    "14.flops": (
        Mistake(
            "one of the two matrix products is left out, or a multiplication with its addition counts as one",
            flops_one_product,
            "forward",
        ),
        Mistake("a causal pass counts like a full one", flops_causal_not_halved, "forward, causal"),
        Mistake("a backward pass counts like a forward one", flops_backward_as_forward, "backward"),
        Mistake(
            "the two products that two sweeps do twice are counted, 7 in place of 5, or the forward pass too: both make 3.5",
            flops_seven_products,
            "backward",
        ),
        Mistake("the rate is in GFLOP/s", flops_in_gigaflops, "forward"),
        Mistake("one head of one sequence is counted", flops_one_head, "forward"),
        Mistake("the diagonal is counted exactly, not as one half", flops_exact_triangle, "short and causal"),
    ),
    "14.stages": (
        Mistake("the tile of Q is forgotten", stages_without_q, "H200, D = 128"),
        Mistake("K is counted and V is not", stages_k_only, "H200, D = 128"),
        Mistake("elements are counted as bytes", stages_in_elements, "H200, D = 128"),
        Mistake("every element is taken for 2 bytes", stages_in_float16, "float32"),
        Mistake("every stage has a tile of Q of its own", stages_q_in_each, "many queries"),
        Mistake("a tile that fills the memory to the last byte is refused", stages_not_quite_full, "to the last byte"),
        Mistake("block_m and block_n are swapped", stages_blocks_swapped, "many queries"),
        Mistake("one stage is promised where not even one fits", stages_at_least_one, "nothing fits"),
    ),
}
