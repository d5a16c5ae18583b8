"""The mutation lab of notebook 12: would your tests have caught these bugs?

    from flashlearn.course.triton_forward.mutation_lab import diff, run_lab
    run_lab(test_one, test_two)

A mutant is the kernel of `flashlearn.kernels` with a line or two replaced, built from its source when the lab
runs; `diff(name)` shows which. A test is a function of an implementation of attention:

    attention(q, k, v, *, causal=False, scale=None, return_lse=False) -> o, or (o, lse)

q (B, H_q, N_q, D), k and v (B, H_kv, N_k, D) in float32 or float16; o and lse carry gradients. The test
returns nothing, or raises AssertionError, or returns False, when the implementation is wrong. It must pass
the right one; a mutant that no such test fails survives. The solution is in solutions.py.
"""

from __future__ import annotations

import functools
import html
import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch

from flashlearn.exercises.altered import replaced, run
from flashlearn.exercises.answers import tables
from flashlearn.exercises.report import leave

EXERCISE = "12.mutants"
GUARD = 64  # rows behind K and V, more than a block: a mutant that reads past the end finds numbers, not other memory


@dataclass(frozen=True, eq=False)
class Mutant:
    """A planted bug, of `[mutants.planted]` in `wrong.toml`.

    `changes` are pairs of (code, its replacement) in flashlearn/kernels/`module`.py; the code must
    be there exactly once. `blocks` are the sizes in queries and keys with which it runs.
    """

    name: str
    what: str
    hint: str
    changes: Sequence[tuple[str, str]]
    module: str = "forward"
    blocks: Sequence[int] = (16, 16)


MUTANTS = tuple(Mutant(name, **entry) for name, entry in tables("triton_forward")["mutants"]["planted"].items())


class Verdict(NamedTuple):
    """What became of one mutant: the name of the test that killed it, empty if none did."""

    mutant: Mutant
    killer: str


@dataclass(frozen=True)
class LabReport:
    """The outcome of the lab; displays itself as a table."""

    verdicts: tuple[Verdict, ...]  # none if not attempted
    rejected: tuple[tuple[str, str], ...] = ()  # tests that the right implementation fails, and how

    @property
    def survivors(self) -> tuple[str, ...]:
        return tuple(verdict.mutant.name for verdict in self.verdicts if not verdict.killer)

    @property
    def headline(self) -> str:
        if not self.verdicts:
            return f"Exercise {EXERCISE}: not attempted"
        killed = len(self.verdicts) - len(self.survivors)
        return f"Exercise {EXERCISE}: {killed} of {len(self.verdicts)} mutants killed"

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        rejected = [("WRONG TEST", name, f"fails for the right kernel too: {how}") for name, how in self.rejected]
        return rejected + [
            ("killed", mutant.name, f"by {killer}: {mutant.what}")
            if killer
            else ("SURVIVES", mutant.name, f"hint: {mutant.hint}")
            for mutant, killer in self.verdicts
        ]

    def __repr__(self) -> str:
        wide = max((len(name) for _, name, _ in self.rows), default=0)
        return "\n".join([self.headline] + [f"  {how:<10}  {name:<{wide}}  {text}" for how, name, text in self.rows])

    def _repr_html_(self) -> str:
        if not self.rows:
            return f"<p><b>{self.headline}</b></p>"
        signs = {"killed": "✓ ", "SURVIVES": "✗ ", "WRONG TEST": "! "}
        cells = "".join(
            f"<tr><td><b>{signs[how]}{how}</b></td>"
            + "".join(f'<td style="text-align:left">{html.escape(text)}</td>' for text in texts)
            + "</tr>"
            for how, *texts in self.rows
        )
        head = "".join(f'<th scope="col">{name}</th>' for name in ("result", "mutant or test", "why"))
        return f"<table><caption><b>{self.headline}</b></caption><tr>{head}</tr>{cells}</table>"


def run_lab(*tests: Callable) -> LabReport:
    """Run the tests against the right kernel, then those that passed against every mutant.

    A test that still raises NotImplementedError does not count. Nothing that a test does raises here.
    """
    for test in tests:
        if not callable(test):
            raise TypeError(f"expected functions, run_lab(test_one, test_two), got {type(test).__name__}")
    problems = [(test, _failure(test, right())) for test in tests]
    written = [(test, problem) for test, problem in problems if not isinstance(problem, NotImplementedError)]
    if tests and not written:
        leave(EXERCISE, ())
        return LabReport(())
    rejected = [(_name(test), _in_a_line(problem)) for test, problem in written if problem is not None]
    verdicts, fickle = _verdicts([test for test, problem in written if problem is None])
    leave(EXERCISE, [bool(verdict.killer) for verdict in verdicts])
    return LabReport(verdicts, (*rejected, *fickle))


def _verdicts(tests: list[Callable]) -> tuple[tuple[Verdict, ...], list[tuple[str, str]]]:
    """What the tests make of every mutant, except those that then fail the right kernel, which are reported, too.

    A test that remembers how often it was called would kill all mutants and look at none.
    """
    verdicts = tuple(Verdict(mutant, _killer(tests, build(mutant))) for mutant in MUTANTS)
    again = [(test, _failure(test, right())) for test in tests]
    fickle = [
        (_name(test), f"when asked again: {_in_a_line(problem)}") for test, problem in again if problem is not None
    ]
    if fickle:
        verdicts, more = _verdicts([test for test, problem in again if problem is None])
        fickle += more
    return verdicts, fickle


def _killer(tests: list[Callable], attention: Callable) -> str:
    return next((_name(test) for test in tests if _failure(test, attention) is not None), "")


def _name(test: Callable) -> str:
    return getattr(test, "__name__", type(test).__name__)


def _in_a_line(problem: BaseException) -> str:
    first = next(iter(str(problem).splitlines()), "")
    return f"{type(problem).__name__}: {first}".removesuffix(": ")


def _failure(test: Callable, attention: Callable) -> BaseException | None:
    """How the test failed, None if it passed; random numbers are the same in every run."""
    with torch.random.fork_rng(devices=()), np.errstate(all="ignore"):
        torch.default_generator.manual_seed(0)
        try:
            result = test(attention)
            passed = result is None or bool(result)
        except (Exception, SystemExit) as problem:  # whatever a student's test raises is its verdict
            return problem
    return None if passed else AssertionError("it returned False")


def diff(name: str) -> str:
    """The lines of the kernel that the mutant `name` changes, as a diff."""
    mutants = {mutant.name: mutant for mutant in MUTANTS}
    if name not in mutants:
        raise ValueError(f"expected the name of a mutant, one of {', '.join(mutants)}, got {name!r}")
    source = _path(mutants[name].module).read_text(encoding="utf-8").splitlines()
    lines = [f"flashlearn/kernels/{mutants[name].module}.py"]
    for old, new in mutants[name].changes:
        line = next(line for line in source if old in line)
        lines += [f"- {line.strip()}", f"+ {line.replace(old, new).strip()}"]
    return "\n".join(lines)


@functools.cache
def right() -> Callable:
    """The implementation that all tests must pass."""
    from flashlearn import kernels

    return _attention(kernels.attention_forward, kernels.attention_backward, (16, 16))


@functools.cache
def build(mutant: Mutant) -> Callable:
    """The attention function of a mutant: forward and backward kernel, one of them changed."""
    from flashlearn import kernels

    launchers = {name: getattr(kernels, name) for name in ("attention_forward", "attention_backward")}
    name = f"attention_{mutant.module}"
    launchers[name] = getattr(_changed(mutant), name)
    return _attention(**launchers, blocks=mutant.blocks)


def _changed(mutant: Mutant) -> ModuleType:
    """The module of a kernel, executed from its source with the mutant's lines in place."""
    path = _path(mutant.module)
    module = ModuleType(f"mutant_{mutant.name.replace(' ', '_')}")
    source = replaced(path.read_text(encoding="utf-8"), path.name, *mutant.changes)
    run(source, f"<mutant: {mutant.name}>", vars(module))
    return module


def _path(module: str) -> Path:
    return Path(inspect.getfile(importlib.import_module(f"flashlearn.kernels.{module}")))


def _attention(attention_forward: Callable, attention_backward: Callable, blocks: Sequence[int]) -> Callable:
    """The two launchers as one differentiable function."""
    from flashlearn.kernels import INTERPRETED
    from flashlearn.kernels.forward import Launch

    launch = Launch(*blocks)

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, causal, scale):
            o, lse = attention_forward(q, _guarded(k), _guarded(v), causal=causal, scale=scale, launch=launch)
            ctx.save_for_backward(q, k, v, o, lse)
            ctx.options = {"causal": causal, "scale": scale, "launch": launch}
            return o, lse

        @staticmethod
        def backward(ctx, do, dlse):
            q, k, v, o, lse = ctx.saved_tensors
            return *attention_backward(do, q, k, v, o, lse, dlse=dlse, **ctx.options), None, None

    def attention(q, k, v, *, causal=False, scale=None, return_lse=False):
        there = "cpu" if INTERPRETED else "cuda"
        o, lse = (t.to(q.device) for t in Attention.apply(q.to(there), k.to(there), v.to(there), causal, scale))
        return (o, lse) if return_lse else o

    return attention


def _guarded(t: torch.Tensor) -> torch.Tensor:
    """t (B, H, N, D) as a view into a longer tensor, with random rows behind the last one of each head."""
    if t.ndim != 4:
        return t  # the launcher says what it expects
    behind = torch.randn(*t.shape[:2], GUARD, t.shape[3], generator=torch.Generator().manual_seed(0))
    return torch.cat([t, behind.to(t)], dim=2)[:, :, : t.shape[2]]
