"""Every check of notebooks 00 to 10 against answers that differ from the solution in one place (tests/answer_mutants.py).

A mutant is *wrong* if it and the solution differ on some of the inputs below. Then the check must reject it.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import random
import signal
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from flashlearn.cost import A100_40GB, H100_SXM, RTX_4060_LAPTOP
from flashlearn.exercises import EXERCISES, assessment
from flashlearn.exercises.calling import Called
from flashlearn.exercises.ordering import Ordering
from flashlearn.exercises.watching import _tensors
from tests.answer_mutants import Mutant, mutants

INF = math.inf
SECONDS = 2  # a mutant may loop for ever
DRAWN = 60  # inputs of one exercise
LOW = -(2.0**100)


def _normal(*shape: int, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
    return scale * torch.randn(shape, dtype=torch.float64) + shift


def _row(n: int) -> torch.Tensor:
    """Logits of one kind: around 0, large, very low, far apart, some of them -inf."""
    x = _normal(n, scale=random.choice((1.0, 30.0, 1000.0)), shift=random.choice((0.0, 1000.0, -1000.0, 7.0)))
    if random.random() < 0.1:
        x = LOW * x.abs().ceil()
    return x.masked_fill(torch.rand(n) < 0.3, -INF) if random.random() < 0.3 else x


def _rows(most: int = 7) -> torch.Tensor:
    shape = [random.randint(1, 4) for _ in range(random.randint(0, 2))]
    n = random.randint(1, most)
    rows = [_row(n) for _ in range(math.prod(shape))]
    x = torch.stack(rows).reshape(*shape, n)
    return x.masked_fill((x == -INF).all(-1, keepdim=True), 0.0)


def _pair(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m = x.max() if len(x) else torch.tensor(-INF, dtype=torch.float64)
    return m, torch.exp(x - m).nan_to_num(0.0).sum()


def _state(S: torch.Tensor, V: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m = S.amax(-1, keepdim=True) if S.shape[-1] else S.new_full((len(S), 1), -INF)
    P = torch.exp(S - m).nan_to_num(0.0)
    return m, P.sum(-1, keepdim=True), P @ V


def _partial(S: torch.Tensor, V: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m, l, acc = _state(S, V)
    return acc / l.masked_fill(l == 0, 1), (m + l.log()).squeeze(-1)


def _sizes(count: int, most: int = 9) -> list[int]:
    return [random.randint(1, most) for _ in range(count)]


def _attention_inputs() -> tuple[torch.Tensor, ...]:
    N_q, N_k, D = _sizes(3)
    batch = tuple(_sizes(random.randint(0, 2), 3))
    return tuple(_normal(*batch, n, D, scale=random.choice((1.0, 20.0))) for n in (N_q, N_k, N_k))


def _decode_inputs() -> tuple[torch.Tensor, ...]:
    (N, D), batch = (random.randint(0, 6), random.randint(1, 6)), tuple(_sizes(random.randint(0, 2), 3))
    return tuple(_normal(*batch, n, D) for n in (1, 1, 1, N, N))


def _recurrence_inputs() -> tuple[torch.Tensor, ...]:
    n, D = random.randint(0, 4), random.randint(1, 4)
    s, v = _row(n + 1), _normal(n + 1, D)
    (m, l), p = _pair(s[:-1]), torch.exp(s[:-1] - _pair(s[:-1])[0]).nan_to_num(0.0)
    return m, l, p @ v[:-1], s[-1], v[-1]


def _update_inputs() -> tuple[torch.Tensor, ...]:
    rows, first, more, D = random.randint(1, 4), random.randint(0, 4), random.randint(1, 4), random.randint(1, 4)
    S = torch.stack([_row(first + more) for _ in range(rows)])
    V = _normal(first + more, D)
    return *_state(S[:, :first], V[:first]), S[:, first:], V[first:]


def _halves() -> tuple[torch.Tensor, ...]:
    rows, n, D = random.randint(1, 4), random.randint(0, 6), random.randint(1, 4)
    S, V, cut = torch.stack([_row(n) for _ in range(rows)]), _normal(n, D), random.randint(0, n)
    return *_partial(S[:, :cut], V[:cut]), *_partial(S[:, cut:], V[cut:])


def _backward(N_q: int, N_k: int, D: int) -> tuple[torch.Tensor, ...]:
    """q, k, v, do, o, lse, and P of some of the keys."""
    q, k, v, do = (_normal(n, D) for n in (N_q, N_k, N_k, N_q))
    S = q @ k.mT / math.sqrt(D)
    return q, k, v, do, torch.softmax(S, -1) @ v, torch.logsumexp(S, -1), torch.softmax(S, -1)


def _dv_inputs() -> tuple:
    q, k, _, do, _, lse, _ = _backward(*_sizes(3))
    first = random.randrange(len(k))
    return q, k[first:], do, lse, random.randint(1, 9)


def _ds_inputs() -> tuple:
    _, _, v, do, o, _, P = _backward(*_sizes(3))
    first = random.randrange(len(v))
    return P[:, first:], do, o, v[first:]


def _dq_inputs() -> tuple:
    q, k, v, do, o, lse, _ = _backward(*_sizes(3))
    first = random.randrange(len(q))
    return q[first:], k, v, do[first:], o[first:], lse[first:], random.randint(1, 9)


def _block_inputs() -> tuple:
    N_q, N_k, D, block_q, block_k = _sizes(5, 12)
    return N_q, N_k, D, block_q, block_k, random.randrange(-(-N_q // block_q)), random.randrange(-(-N_k // block_k))


def _product_inputs() -> tuple:
    N, D, M = _sizes(3, 6)
    return _normal(N, M), _normal(N, D), _normal(D, M)


def _functions() -> tuple:
    """A softmax, or what is none for some shifts."""
    bound, factor = random.choice((50.0, 200.0, 900.0)), random.choice((0.25, 0.5, 1.0, 3.0))
    functions = (
        lambda x: torch.softmax(factor * x, -1),
        lambda x: torch.softmax(x.clamp(max=bound), -1),
        lambda x: torch.softmax(x.clamp(min=-bound), -1),
        lambda x: torch.exp(factor * x) / torch.exp(factor * x).sum(-1, keepdim=True),
        lambda x: x.abs() / x.abs().sum(-1, keepdim=True),
        torch.zeros_like,
        torch.sin,
    )
    return (random.choice(functions),)


INPUTS: dict[str, Callable[[], tuple]] = {
    "00.scores": lambda: (_normal(*_sizes(2)[:1], 5), _normal(random.randint(1, 9), 5)),
    "01.softmax": lambda: (_normal(*_sizes(random.randint(1, 3), 5), scale=3.0),),
    "02.safe": lambda: (_rows(),),
    "02.lse": lambda: (_rows(),),
    "02.shift": _functions,
    "03.merge": lambda: (_pair(_row(random.randint(0, 4))), _pair(_row(random.randint(0, 4)))),
    "03.tree": lambda: (_row(random.randint(1, 20)), random.randint(1, 8)),
    "04.attention": _attention_inputs,
    "04.decode": _decode_inputs,
    "05.recurrence": _recurrence_inputs,
    "05.merge_outputs": _halves,
    "06.blocks": _block_inputs,
    "06.tiled_matmul": lambda: (_normal(*(sizes := _sizes(4, 6))[:2]), _normal(*sizes[1:3]), sizes[3]),
    "07.update": _update_inputs,
    "07.visited": lambda: tuple(_sizes(4, 14)),
    "08.bytes": lambda: (*_sizes(2, 40), random.choice((4, 16, 64)), *_sizes(2, 9), random.choice((1, 2, 4))),
    "09.matmul_backward": _product_inputs,
    "09.softmax_backward": lambda: (_normal(*(x := _rows()).shape), torch.softmax(x, -1)),
    "09.bug": lambda: (lambda q, k, v, do, *_: (do, q, k, v))(*_backward(*_sizes(3))),
    "10.dv": _dv_inputs,
    "10.ds": _ds_inputs,
    "10.dq": _dq_inputs,
}
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FIXED: dict[str, list[tuple]] = {
    "01.overflow": [(dtype,) for dtype in DTYPES],
    "08.block": list(itertools.product((64, 1000, 2500), (64, 128), (A100_40GB, H100_SXM, RTX_4060_LAPTOP))),
}
# Those of lines in order and of steps have other checks, and so have kernels and what comes after them
NAMES = [
    name
    for name, exercise in EXERCISES.items()
    if name < "11" and not isinstance(exercise, Ordering) and not inspect.isgeneratorfunction(exercise.solution)
]


def inputs(name: str) -> list[tuple]:
    """The same for all mutants of an exercise; those of its cases, if it has none of its own here."""
    if name in FIXED:
        return FIXED[name]
    if name not in INPUTS:
        return of_the_cases(name)
    random.seed(name)
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(len(name))
        return [INPUTS[name]() for _ in range(DRAWN)]


def of_the_cases(name: str) -> list[tuple]:
    """What the cases of an exercise call an answer with."""
    seen: list[tuple] = []

    def solution(*args):
        seen.append(_copied(args))
        return EXERCISES[name].solution(*args)

    for case in EXERCISES[name].cases:
        case.compare(solution)
    return seen


def wrong(mutant: Mutant, name: str) -> bool:
    """Whether the mutant differs from the solution on some input; what raises, or takes too long, is wrong."""
    function = mutant.function()
    for args in inputs(name):
        want = EXERCISES[name].solution(*_copied(args))
        try:
            with _limited():
                got = function(*_copied(args))
            error = assessment.largest_error(assessment.without_numpy(got), want)
        except Exception:  # whatever a mutant raises
            return True
        size = max(
            (t.detach().double().nan_to_num(0, 0, 0).abs().max().item() for t in _tensors((want,)) if t.numel()),
            default=1.0,
        )
        if error > 1e-5 * max(size, 1.0):
            return True
    return False


def rejected(mutant: Mutant, name: str) -> bool:
    """Whether some case of the check fails; the rest is not run then."""
    exercise = EXERCISES[name]
    called = Called(mutant.function(), exercise.solution, exercise.writes)
    for case in exercise.cases:
        with _limited():
            if not assessment._run(case, called).passed:
                return True
    return False


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def late(*_):
        raise TimeoutError("no time left")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _copied(args: tuple) -> tuple:
    return tuple(
        _copied(arg) if isinstance(arg, tuple) else arg.clone() if isinstance(arg, torch.Tensor) else arg
        for arg in args
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_that_is_wrong_is_rejected(name):
    accepted = [mutant for mutant in mutants(EXERCISES[name].solution) if not rejected(mutant, name)]
    assert [mutant.described for mutant in accepted if wrong(mutant, name)] == []


def test_an_exercise_without_inputs_here_has_those_of_its_cases():
    assert set(INPUTS) | set(FIXED) <= set(NAMES)
    assert len(of_the_cases("03.merge")) >= len(EXERCISES["03.merge"].cases) - 1
