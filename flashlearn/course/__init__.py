"""The content of the course, one folder a notebook: its questions, exercises, solutions, known mistakes and their causes.

`NOTEBOOKS` states the number of each: its place in the tuple.
"""

NOTEBOOKS = (
    "start_here",
    "naive_softmax",
    "safe_softmax",
    "online_softmax",
    "two_pass_attention",
    "one_pass_attention",
    "tiled_matmul",
    "tiled_attention",
    "why_it_is_fast",
    "gradients_by_hand",
    "tiled_backward",
    "gpu_and_triton",
    "triton_forward",
    "triton_backward",
    "making_it_fast",
    "inside_a_fast_kernel",
    "use_it",
    "which_keys",
    "serving",
    "many_gpus",
)
NUMBERS = {name: f"{number:02}" for number, name in enumerate(NOTEBOOKS)}


def numbered(name: str) -> str:
    """The short name of an exercise or a question, with the number of its notebook.

    >>> numbered("online_softmax.merge"), numbered("03.merge")
    ('03.merge', '03.merge')
    """
    notebook, _, rest = name.partition(".")
    return f"{NUMBERS[notebook]}.{rest}" if notebook in NUMBERS and rest else name
