"""How an answer in notebook 11 came to its result: what its kernels read and wrote, and what they were given."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import numpy as np
import torch

from flashlearn.core.steps import Step, record
from flashlearn.exercises.elsewhere import with_the_answer
from flashlearn.exercises.watching import WrongWay


class Run(NamedTuple):
    """What an answer did: the steps of its kernels, what it returned, its input, and what its kernels were given."""

    steps: list[Step]
    output: torch.Tensor
    x: torch.Tensor
    given: list[tuple[torch.Tensor, torch.Tensor]]  # every tensor of every launch, and a copy as the launch left it
    grids: list[tuple[int, ...]]  # of every launch

    @property
    def programs(self) -> int:
        """Of all launches, those that did nothing among them."""
        return sum(map(math.prod, self.grids))


MOST_PROGRAMS = 300  # of one launch: the interpreter takes some 10 ms for each


def recorded(function, x, *args) -> Run:
    """What `function(x, *args)` did with a copy of x of its own; RuntimeError if it launched no kernel."""
    steps, *rest = _recorded(function, x, *args)
    return Run(record(steps), *rest)  # again: steps that come from elsewhere do not know their run


@with_the_answer
def _recorded(function, x, *args) -> tuple:
    from flashlearn.kernels.recorder import kernel_steps

    own = torch.empty_strided(x.shape, x.stride()).copy_(x)  # the answer may spoil its input
    given: list[tuple[torch.Tensor, torch.Tensor]] = []
    grids: list[tuple[int, ...]] = []

    def launcher():
        with _launches(given, grids), np.errstate(all="ignore"):  # the interpreter computes with NumPy
            return function(own, *args)

    *steps, done = record(kernel_steps(launcher))
    if not isinstance(done.output, torch.Tensor):
        raise TypeError(f"expected a tensor to be returned, got {type(done.output).__name__}")
    if not steps:
        raise RuntimeError("expected a kernel to run, got none: launch it with kernel[grid](...)")
    return steps, done.output, own, given, grids


@contextmanager
def _launches(given, grids):
    """Note the tensors and the grid of every launch inside; refuse a grid that would take minutes."""
    from triton.runtime.interpreter import InterpretedFunction

    from flashlearn.kernels.recorder import launch_grid

    run = InterpretedFunction.run

    def noted(kernel, *args, grid, **kwargs):
        grid = launch_grid(kernel, grid, args, kwargs)
        programs = math.prod(grid)
        if programs > MOST_PROGRAMS:
            raise WrongWay(
                f"expected at most {MOST_PROGRAMS} programs, got {programs}: a program has a block of elements"
            )
        grids.append(grid)
        run(kernel, *args, grid=grid, **kwargs)
        tensors = (arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor))
        given.extend((tensor, tensor.clone()) for tensor in tensors)

    with mock.patch.object(InterpretedFunction, "run", noted):
        yield
