"""The timeline of an SM: no unit does two things at a time, and no link of the chain is skipped."""

import itertools

import pytest

from flashlearn.gpu.overlap import SCHEDULES, busy, cycles, overlap_steps, schedule, tensor_flops
from flashlearn.show.draw import draw_overlap
from flashlearn.show.frame import as_runs, paint
from tests.slow import slow

CASES = list(itertools.product((1, 2, 5), SCHEDULES, ((2, 3), (1, 3), (1, 1), (4, 1))))


@pytest.mark.parametrize(("blocks", "name", "times"), CASES)
def test_a_unit_does_one_task_at_a_time_and_all_are_done(blocks, name, times):
    tasks = schedule(blocks, name, *times)
    groups = SCHEDULES[name][0]
    assert {task[1:4] for task in tasks} == set(itertools.product(("S", "softmax", "PV"), range(groups), range(blocks)))
    for unit in ("tensor cores", "softmax"):
        mine = sorted((task.start, task.end) for task in tasks if task.unit == unit)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(mine))
    work = sum(task.end - task.start for task in tasks if task.unit == "tensor cores")
    assert work == 2 * blocks * 2 * times[0], "the same work in every schedule"


@pytest.mark.parametrize(("blocks", "name", "times"), CASES)
def test_the_chain_holds(blocks, name, times):
    at = {task[1:4]: task for task in schedule(blocks, name, *times)}
    for (what, group, block), task in at.items():
        if what == "softmax":
            assert task.start >= at["S", group, block].end
        if what == "PV":
            assert task.start >= at["softmax", group, block].end
            assert block == 0 or task.start >= at["PV", group, block - 1].end
        if what == "S" and block:
            waits_for = "softmax" if SCHEDULES[name][1] else "PV"
            assert task.start >= at[waits_for, group, block - 1].end


@pytest.mark.parametrize(("p", "s"), ((2, 3), slow(1, 3), slow(3, 1)))
def test_long_runs_reach_what_the_chain_and_the_units_allow(p, s):
    """One warpgroup: S, softmax and PV add up. Ahead: PV hides behind softmax. Two warpgroups: only the slowest unit counts."""
    limits = {
        "one warpgroup": 2 * p / (2 * p + s),
        "product ahead": 2 * p / (p + max(p, s)),
        "two warpgroups, product ahead": min(1, 2 * p / s),
    }
    for name, limit in limits.items():
        assert busy(schedule(60, name, p, s)) == pytest.approx(limit, rel=0.04), name
    assert (
        busy(schedule(60, "two warpgroups, product ahead", p, s)) >= busy(schedule(60, "two warpgroups", p, s)) - 1e-9
    )


def test_cycles_are_those_of_the_hardware():
    assert round(tensor_flops()) == 4096
    c = cycles(128)
    assert [round(each) for each in c] == [512, 512, 320]
    assert [round(each) for each in cycles(64)] == [256, 512, 288]


def test_steps_and_picture():
    steps = list(overlap_steps(2, ("one warpgroup", "two warpgroups"), 2, 3))
    assert len(steps) == 2 * 14 + 1 and steps[-1].output["one warpgroup"] == pytest.approx(4 / 7)
    assert "one warpgroup: tensor cores idle" in steps[5].sentence and "two warpgroups: done" in steps[-2].sentence
    runs = as_runs(steps)
    assert len({paint(runs, number, draw_overlap, (12.8, 3.2)).tobytes() for number in (0, 9, 28)}) == 3


def test_bad_input_is_rejected():
    with pytest.raises(ValueError, match="expected one of .*'two warpgroups'.* got 'three'"):
        schedule(2, "three", 1, 1)
    with pytest.raises(ValueError, match="softmax"):
        next(overlap_steps(2, ("two warpgroups, product ahead",), 1, 0))


@pytest.mark.parametrize(("D", "added", "overlapped"), [(64, 0.64, 0.99), (128, 1.0, 1.0)])
def test_what_a_softmax_is_taken_to_cost_decides_for_narrow_heads(D, added, overlapped):
    c = cycles(D)
    for softmax, part in ((c.exponentials + c.lanes, added), (max(c.exponentials, c.lanes), overlapped)):
        assert busy(schedule(64, "two warpgroups", c.product, softmax)) == pytest.approx(part, abs=0.006)
