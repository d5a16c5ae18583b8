"""The helpers that choose what stays quick: nothing is lost, and every value stays in one quick test at least."""

import itertools

import pytest

from tests.grid import CASES, traits, work
from tests.slow import across, covering, every


def split(parameters):
    """(quick, slow), the values of both."""
    marked = [(p.values, [mark.name for mark in p.marks]) for p in parameters]
    assert all(marks in ([], ["slow"]) for _, marks in marked)
    return [values for values, marks in marked if not marks], [values for values, marks in marked if marks]


def test_every_third():
    found = every(3, ("a", ("b", 1), "c", "d", "e"))
    assert found[0] == "a" and found[3] == "d" and len(found) == 5
    assert split([found[1], found[2], found[4]]) == ([], [("b", 1), ("c",), ("e",)])


@pytest.mark.parametrize(
    "axes", (("abc", (1, 2)), ((1, 2), "abc", (3, 4)), ((1, 2), "abcd", (3, 4)), ("ab", "cd"), ("a", "bcd"), ("abc",))
)
def test_across_keeps_all_and_every_value_of_every_axis_quick(axes):
    quick, others = split(across(*axes))
    assert sorted(quick + others, key=str) == sorted(itertools.product(*axes), key=str)
    assert len(quick) == max(map(len, axes))
    for values, axis in zip(zip(*quick, strict=True), axes, strict=True):
        assert set(values) == set(axis)


def test_two_short_axes_do_not_go_in_step():
    quick, _ = split(across((1, 2), "abcd", (3, 4)))
    assert {(one, other) for one, _, other in quick} == {(1, 3), (1, 4), (2, 3), (2, 4)}


def test_covering_keeps_all_and_every_trait_quick_by_cheap_cases():
    numbers = (30, 6, 10, 15, 2, 3, 5)
    quick, others = split(covering(numbers, lambda n: {p for p in (2, 3, 5) if n % p == 0}, lambda n: n))
    assert quick == [(2,), (3,), (5,)] and others == [(30,), (6,), (10,), (15,)]
    quick, _ = split(covering([(6, "x"), (2, "x"), (3, "y")], lambda n, name: {n % 2, name}))
    assert quick == [(6, "x"), (3, "y")]


def test_the_quick_cases_of_the_grid_show_all_its_traits():
    quick, others = split(covering(CASES, traits, work))
    assert len(quick) + len(others) == len(CASES) and len(quick) < len(CASES) / 2
    shown = set().union(*(traits(case) for (case,) in quick))
    assert shown == set().union(*map(traits, CASES))
    for name in ("layout", "logits", "D", "dtype", "causal"):
        assert {getattr(case, name) for (case,) in quick} == {getattr(case, name) for case in CASES}, name
