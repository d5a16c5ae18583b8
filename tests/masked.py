"""Masks and changed scores of a `Case`: what is given by keyword, and the check of everything that comes back.

problem = Problem(63, 80, window=(5, 2), sinks=True)         a `Case` with options
q, k, v, do = inputs = make(problem)
options = given(problem)                                     what `flash_attention` takes by keyword
want = answers(problem, inputs, options)                     {"o", "lse", "dq", "dk", "dv", "dsinks", "dalibi"}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from tests import grid
from tests.grid import Case, answers, fp32

Problem = Case


def offsets_of(lengths: tuple[int, ...], device="cpu") -> Tensor:
    """(sequences + 1,) int32: 0, and after every length the sum so far."""
    return torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32)


def given(problem: Problem, device="cpu") -> dict:
    """What `flash_attention` takes by keyword; sinks and slopes are leaves."""
    g, wide = torch.Generator().manual_seed(7), torch.promote_types(problem.dtype, fp32)
    options: dict = {"causal": problem.causal, "scale": problem.scale}
    if problem.window is not None:
        options["window"] = problem.window
    if problem.documents is not None:
        options["documents"] = offsets_of(problem.documents, device)
    if problem.key_range is not None:
        options["key_range"] = tuple(
            torch.tensor(side, dtype=torch.int32, device=device) for side in zip(*problem.key_range, strict=True)
        )
    if problem.softcap is not None:
        options["softcap"] = problem.softcap
    if problem.alibi:
        options["alibi"] = (torch.rand(problem.H_q, generator=g) / 4).to(device, wide).requires_grad_()
    if problem.sinks:
        options["sinks"] = torch.randn(problem.H_q, generator=g).to(device, wide).requires_grad_()
    return options


def without_gradients(options: dict) -> dict:
    return {name: t.detach() if isinstance(t, Tensor) else t for name, t in options.items()}


def results_of(forward, inputs, options: dict, dlse=None) -> dict:
    """As `tests.grid.results`: of q, k, v and do, with the gradients of the options that have one."""
    return grid.results(forward, *inputs, dlse, options)


def check(problem: Problem, inputs, ours: dict, options: dict, dlse=None) -> None:
    """Hold everything in `ours` to FlashAttention's rule, as `tests.grid.check` does."""
    want = answers(problem, inputs, options, dlse)
    yardstick = answers(problem, inputs, options, dlse, dtype=problem.dtype)
    assert set(ours) == set(want) - {"terms"}
    matrices = {name: t for name, t in ours.items() if name not in ("dsinks", "dalibi")}
    grid.check(problem, matrices, want, yardstick)
    per_head = {name: t for name, t in ours.items() if name not in matrices}
    if per_head:
        grid.check(replace(problem, dtype=fp32), per_head, _of_16_bits(problem, want, per_head), yardstick)


def _of_16_bits(problem: Problem, want: dict, names: Iterable[str]) -> dict:
    """Sums over all queries come in float32, but of factors in the dtype of the inputs, whose rounding `floor` allows."""
    ratio = torch.finfo(problem.dtype).eps / torch.finfo(fp32).eps
    rounded = {name: want["terms"].get(name, 0.0) + ratio * want[name].abs().max().item() for name in names}
    return want | {"terms": want["terms"] | rounded}
