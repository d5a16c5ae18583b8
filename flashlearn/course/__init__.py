"""The content of the course, one folder a notebook: its questions, exercises, solutions, known mistakes and their causes.

`NOTEBOOKS` states the number of each, its place in the dictionary, and the minutes of a first reading: all that is not
folded, and the exercises. `LIMITS` is what a notebook may take; tests and documents read it.
"""

from typing import NamedTuple

NOTEBOOKS = {
    "start_here": 30,
    "naive_softmax": 35,
    "safe_softmax": 40,
    "online_softmax": 60,
    "two_pass_attention": 60,
    "one_pass_attention": 60,
    "tiled_matmul": 50,
    "tiled_attention": 60,
    "why_it_is_fast": 60,
    "gradients_by_hand": 60,
    "tiled_backward": 60,
    "gpu_and_triton": 60,
    "triton_forward": 60,
    "triton_backward": 60,
    "making_it_fast": 45,
    "inside_a_fast_kernel": 60,
    "use_it": 60,
    "which_keys": 60,
    "serving": 60,
    "many_gpus": 60,
}
NUMBERS = {name: f"{number:02}" for number, name in enumerate(NOTEBOOKS)}
MINUTES = {NUMBERS[name]: minutes for name, minutes in NOTEBOOKS.items()}


class Limits(NamedTuple):
    """What a notebook may take."""

    minutes: int = 60  # of a first reading
    words: int = 2_700  # of its text, boxes of algorithms included
    first_check: float = 1 / 3  # of its cells are above the first exercise, at most
    code_lines: int = 15  # of a cell, empty lines left out
    folded_lines: int = 25  # of a cell whose source is folded, empty lines included
    kernel_lines: int = 90  # of a cell that holds whole kernels, empty ones left out
    code_columns: int = 88
    bytes: int = 1_500_000  # of its file
    seconds_of_all: int = 260  # to run all notebooks one after the other


LIMITS = Limits()


def numbered(name: str) -> str:
    """The short name of an exercise or a question, with the number of its notebook.

    >>> numbered("online_softmax.merge"), numbered("03.merge")
    ('03.merge', '03.merge')
    """
    notebook, _, rest = name.partition(".")
    return f"{NUMBERS[notebook]}.{rest}" if notebook in NUMBERS and rest else name
