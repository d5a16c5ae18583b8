"""The units of an SM over time: matrix products, and the softmax between them, as a timeline of steps.

A streaming multiprocessor (SM) has units that can work at the same time: tensor cores for products, and 128 CUDA cores
with exponential units for the softmax. The loop of attention is a chain, S_j = Q K_j^T, softmax, O += P_j V_j. One
warpgroup keeps one unit busy while the others wait. Two warpgroups, each with queries of its own, can fill each other's
gaps. Loads are left out: they are early enough in all schedules. A softmax is one task here, though CUDA cores and
exponential units share it. Its cost is the *sum* of both if they work one after the other, and the larger if they
overlap. For D = 64 that decides whether the tensor cores are busy for 64 % or for 99 % of the time (notebook 14).

    one warpgroup   it has all 128 queries and computes the chain
    product ahead   the same, but issues S_{j+1} before O += P_j V_j, so that softmax j+1 need not wait for the latter
    two warpgroups  of 64 queries each; a unit works for the one that is ready
    two warpgroups, product ahead
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from flashlearn.core.inputs import check_block
from flashlearn.core.steps import Step
from flashlearn.cost import H200_SXM, Hardware

CLOCK = 1.83e9  # Hz, of the float16 peak of the H100 and H200 (SXM); source as in flashlearn.cost
EXPONENTIALS = 16  # per cycle and SM: CUDA C++ Programming Guide, throughput of native arithmetic instructions, 9.0
LANES = 128  # float32 additions, multiplications or fused pairs per cycle and SM; same table
SCHEDULES = {  # warpgroups, and whether S_{j+1} is issued before P_j V_j
    "one warpgroup": (1, False),
    "product ahead": (1, True),
    "two warpgroups": (2, False),
    "two warpgroups, product ahead": (2, True),
}


class Cycles(NamedTuple):
    """Clock cycles of one SM for 64 queries and one block of keys."""

    product: float  # either of the two matrix products
    exponentials: float
    lanes: float  # everything else of the softmax


def tensor_flops(hardware: Hardware = H200_SXM) -> float:
    """FLOP per cycle and SM of float16 products: 4096 on Hopper."""
    return hardware.peak[torch.float16] / (hardware.sms * CLOCK)


def cycles(D: int, block_n: int = 128, operations: float = 4) -> Cycles:
    """The cycles of each unit of a Hopper SM for 64 queries and `block_n` keys.

    operations   lane operations per score: maximum, fused multiply-add, sum, rounding; rescaling acc, D / block_n
                 per score, is added
    """
    scores = 64 * block_n
    lanes = scores * (operations + D / block_n) / LANES
    return Cycles(2 * scores * D / tensor_flops(), scores / EXPONENTIALS, lanes)


def in_turn(D: int, operations: float, block_n: int) -> float:
    """FLOP/s of a GPU whose products, exponentials and CUDA cores work one after another; arguments of `cycles`."""
    one = cycles(D, block_n, operations)
    return H200_SXM.peak[torch.float16] * 2 * one.product / (2 * one.product + one.exponentials + one.lanes)


class Task(NamedTuple):
    """A piece of work: on which unit, for which group and block, from when to when."""

    unit: str  # "tensor cores" or "softmax"
    what: str  # "S", "softmax" or "PV"
    group: int
    block: int
    start: float
    end: float


def schedule(blocks: int, name: str, product: float, softmax: float) -> list[Task]:
    """The tasks of two times 64 queries and `blocks` blocks of keys; times are for 64 queries.

    A unit does one task at a time: the one that could start first, and of several a product S.
    """
    check_block(blocks, "blocks")
    if name not in SCHEDULES:
        raise ValueError(f"expected one of {list(SCHEDULES)}, got {name!r}")
    groups, ahead = SCHEDULES[name]
    share = 2 / groups  # one group has all 128 queries
    length = {"S": product * share, "softmax": softmax * share, "PV": product * share}
    unit = {"S": "tensor cores", "softmax": "softmax", "PV": "tensor cores"}
    following = {(what, g): 0 for g in range(groups) for what in length}  # the next block of each kind: in order
    done: dict[tuple, float] = {}
    free = {"tensor cores": 0.0, "softmax": 0.0}
    tasks = []
    for _ in range(blocks * len(following)):
        starts = {}
        for (what, g), j in following.items():
            before = _before(j, what, g, ahead)
            if j < blocks and all(each in done for each in before):
                starts[j, what, g] = max([free[unit[what]], *(done[each] for each in before)])
        j, what, g = min(starts, key=lambda task: (starts[task], task[1] != "S", task[0], task[2]))
        start = starts[j, what, g]
        done[j, what, g] = free[unit[what]] = start + length[what]
        tasks.append(Task(unit[what], what, g, j, start, start + length[what]))
        following[what, g] += 1
    return tasks


def _before(j: int, what: str, g: int, ahead: bool) -> list[tuple]:
    """What must be done before a task may start."""
    if what == "softmax":
        return [(j, "S", g)]
    if what == "PV":
        return [(j, "softmax", g), *([(j - 1, "PV", g)] if j else [])]
    return [(j - 1, "softmax" if ahead else "PV", g)] if j else []


def busy(tasks: list[Task], unit: str = "tensor cores") -> float:
    """The part of the time, from beginning to end, in which a unit is busy."""
    return sum(task.end - task.start for task in tasks if task.unit == unit) / max(task.end for task in tasks)


def overlap_steps(blocks: int, names: Sequence[str], product: int, softmax: int) -> Iterator[Step]:
    """One step per slot of time of several schedules in parallel; product and softmax are whole slots.

    values   runs (tasks of each schedule by its name), ends, time, horizon (slots of the slowest)
    output   {name: part of the time in which the tensor cores worked}, in the last step
    """
    for size, what in ((product, "product"), (softmax, "softmax")):
        check_block(size, what)
    runs = {name: schedule(blocks, name, product, softmax) for name in names}
    ends = {name: round(max(task.end for task in tasks)) for name, tasks in runs.items()}
    horizon = max(ends.values())
    common = {"runs": runs, "ends": ends, "horizon": horizon}
    for time in range(horizon):
        doing = "; ".join(f"{name}: {_says(tasks, time, ends[name])}" for name, tasks in runs.items())
        yield Step(sentence=f"Slot {time}. {doing}.", phase="timeline", values={**common, "time": time})
    parts = {name: busy(tasks) for name, tasks in runs.items()}
    words = ", ".join(f"{name} {ends[name]} slots, {part:.0%}" for name, part in parts.items())
    sentence = f"Done. Slots, and the part of them in which the tensor cores worked: {words}."
    yield Step(sentence=sentence, phase="done", values={**common, "time": horizon}, output=parts)


def _says(tasks: list[Task], time: int, end: int) -> str:
    """What the tensor cores do in this slot."""
    if time >= end:
        return "done"
    for task in tasks:
        if task.unit == "tensor cores" and task.start <= time < task.end:
            return f"{'S' if task.what == 'S' else 'P V'} of {'AB'[task.group]}{task.block}"
    return "tensor cores idle"
