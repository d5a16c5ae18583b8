"""The portable kernels with masks and changed scores, through the op: against brute force in float64."""

from __future__ import annotations

import importlib.util
import itertools
import random

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: no kernel is tested", allow_module_level=True)

from flashlearn.core.target import INTERPRETED
from flashlearn.fast.api import flash_attention
from tests.grid import bf16, fp16, fp32, make, work
from tests.masked import Problem, check, given, results_of
from tests.slow import covering

DEVICE = "cpu" if INTERPRETED else "cuda"
WINDOWS = (None, (0, 0), (3, None), (None, 2), (20, 7), (300, 300), (17, 0), (0, None))
DOCUMENTS = {1: (1,), 33: (33,), 40: (1,) * 40, 50: (0, 16, 0, 1, 33), 70: (7, 31, 32)}


def attend(options: dict):
    return lambda q, k, v: flash_attention(q, k, v, return_lse=True, **options)


def draw(rng: random.Random) -> Problem:
    """Any combination of options, at an awkward size."""
    documents = rng.random() < 0.4
    N_q = rng.choice(tuple(DOCUMENTS) if documents else (1, 2, 16, 33, 63))
    N_k = N_q if documents else rng.choice((1, 16, 40, 63, 100))
    B = rng.choice((1, 2))
    ranges = tuple(tuple(sorted(rng.choices(range(N_k + 1), k=2))) for _ in range(B))
    return Problem(
        N_q, N_k, rng.choice((16, 16, 24)), B=B, H_q=2, H_kv=rng.choice((1, 2)),
        causal=rng.random() < 0.5, dtype=rng.choice((fp32, fp16, bf16)), layout=rng.choice(("contiguous", "transposed")),
        window=rng.choice(WINDOWS), documents=DOCUMENTS[N_q] if documents else None,
        key_range=ranges if rng.random() < 0.4 else None, softcap=rng.choice((None, None, 1.5, 50.0)),
        alibi=rng.random() < 0.4, sinks=rng.random() < 0.5, scale=rng.choice((None, None, -0.3)),
    )  # fmt: skip


def traits(problem: Problem) -> set:
    """Every two settings of a problem."""
    options = {name: name in problem.options for name in ("documents", "key_range", "softcap", "alibi", "sinks")}
    longer = (problem.N_q > problem.N_k) - (problem.N_q < problem.N_k)
    settings = {
        **options, "window": problem.window, "causal": problem.causal, "dtype": problem.dtype,
        "grouped": problem.H_kv == 1, "longer": longer, "B": problem.B,
    }  # fmt: skip
    names = ("causal", "longer", "grouped", *options)
    return set(settings.items()) | set(itertools.combinations([(n, settings[n]) for n in names], 2))


rng = random.Random(0)
PROBLEMS = [problem for problem in (draw(rng) for _ in range(120)) if problem.options]


@pytest.mark.parametrize("problem", covering(PROBLEMS, traits, work), ids=str)
def test_any_combination(problem):
    inputs, options = make(problem, DEVICE), given(problem, DEVICE)
    check(problem, inputs, results_of(attend(options), inputs, options), options)
