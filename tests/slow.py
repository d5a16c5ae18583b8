"""What `make test` leaves to `make test-slow`: mostly some parameters of a test whose others stay quick.

slow(3)                          one parameter of a test, marked slow
across(("a", "b", "c"), (1, 2))  all pairs; quick are ("a", 1), ("b", 2), ("c", 1), the others slow
covering(cases, traits, cost)    all cases; quick are cheap ones that show every trait at least once
every(3, cases)                  all cases; quick are the first, the fourth, ...
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable

import pytest


def slow(*values, **options):
    """A parameter of a test, marked slow; `options` are those of pytest.param."""
    return pytest.param(*values, marks=pytest.mark.slow, **options)


def every(n: int, cases: Iterable) -> list:
    """The cases, marked slow but for each n-th from the first on: where they are alike, and others of them say the rest."""
    return [
        case if place % n == 0 else slow(*(case if isinstance(case, tuple) else (case,)))
        for place, case in enumerate(cases)
    ]


def across(*axes: Iterable) -> list:
    """The product of the axes; quick are as many of it as the longest has values, and each value of each is in one.

    Along the longest, the first of the others goes round at every value, the next after each round of those before it,
    where there is room for that.
    """
    axes = [tuple(axis) for axis in axes]
    length, steps, wait = max(map(len, axes)), [], 1
    for axis in axes:
        steps.append(wait if wait * len(axis) <= length else 1)
        wait *= len(axis) if len(axis) < length else 1
    quick = {tuple(i // step % len(axis) for axis, step in zip(axes, steps, strict=True)) for i in range(length)}
    places = itertools.product(*(range(len(axis)) for axis in axes))
    rows = ((place, tuple(axis[i] for axis, i in zip(axes, place, strict=True))) for place in places)
    return [pytest.param(*row) if place in quick else slow(*row) for place, row in rows]


def covering(cases: Iterable, traits: Callable[..., set[Hashable]], cost: Callable[..., float] = lambda *_: 1) -> list:
    """The cases, marked slow but for a greedy cover: again and again the one with the most new traits for its cost.

    A case is one value or a tuple of them, the parameters of a test; `traits` and `cost` take these as arguments.
    """
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    left, quick = set().union(*(traits(*row) for row in rows)), []
    while left:
        quick.append(max(rows, key=lambda row: len(traits(*row) & left) / cost(*row)))
        left -= traits(*quick[-1])
    return [pytest.param(*row) if row in quick else slow(*row) for row in rows]
