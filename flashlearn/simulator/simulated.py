"""A kernel's own source, run on the CPU by the simulator of barriers and buffers, and its timeline as steps.

    run = simulate(kernel, tiles("Q", q, (64, 64)), tiles("K", k, (64, 64)), ..., STAGES=2)
    play(timeline_steps({"two stages": run}), draw_barriers, alt=...)

Tiles have real numbers and outputs real results. `flashlearn.simulator.barriers` says what is simulated, and what is
not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from flashlearn.core.steps import Step
from flashlearn.simulator.barriers import Flip, Race, Simulator, Task, Times
from flashlearn.simulator.gluon_names import Descriptor, Names, Pointer
from flashlearn.simulator.scheduler import Deadlock


@dataclass
class Run:
    """A run of a kernel: its tasks and the phases of its barriers, its slots, and bytes of shared memory."""

    tasks: list[Task] = field(default_factory=list)
    flips: list[Flip] = field(default_factory=list)
    slots: int = 0
    shared: int = 0
    stopped: str = ""  # by what: the text of a Deadlock or a Race


def tiles(name: str, tensor: Tensor, block: tuple[int, ...]) -> Descriptor:
    """A descriptor for `simulate`: tiles of the shape `block`, called K0, K1, ... if `name` is K."""
    return Descriptor(name, tensor, block)


def simulate(
    kernel: Callable, *args: Any, grid: tuple[int, ...] = (1,), times: Times | None = None,
    replaced: dict[str, Any] | None = None, catch: bool = False, last: Sequence[Tensor] = (), **constants: Any,
) -> Run:  # fmt: skip
    """Run all programs of a kernel in Gluon, one after another; returns the run of the last.

    args       descriptors made by `tiles`, tensors, for which the kernel gets an address, and numbers
    replaced   functions to take for those that the kernel calls by these names; an aggregate's method is "Pipeline.consumer_wait"
    last       what the kernel before writes, which may still run: a thread that has not waited for it (`gdc_wait`) may not
               read that, nor write anything (`flashlearn.fast.launcher`); it is a Race
    catch      return the run up to a Deadlock or a Race, with its text as `stopped`, in place of raising it
    """
    grid = (*grid, 1, 1)[:3]
    given = [Pointer(arg.view(-1)) if isinstance(arg, Tensor) else arg for arg in args]
    run = Run()
    for at in ((x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])):
        sim = Simulator(times or Times())
        names = Names(sim, grid, at, last)
        function = names.here(kernel, replaced or {})
        try:
            sim.play(function.__name__, partial(function, *given, **constants))
        except (Race, Deadlock) as error:
            if not catch:
                raise
            run.stopped = str(error)
            sim.still_waiting()
        run.tasks, run.flips, run.slots, run.shared = sim.tasks, sim.flips, sim.now, names.bytes
        if run.stopped:
            break
    return run


class Bar(NamedTuple):
    """A bar in a row of a timeline; `what` is "landing", "full", "S", "PV", "softmax" or "wait"."""

    row: str
    what: str
    text: str
    start: int
    end: int


class Tick(NamedTuple):
    """A phase of a barrier that ended, in the row of its stage."""

    row: str
    barrier: str
    phase: int
    time: int


def bars(run: Run) -> list[Bar]:
    """A run as rows of bars: the producer warp, the stages (buffers of one number) and the consumers."""
    out = []
    for task in run.tasks:
        if task.what == "copy":
            name, place = task.on.split(" to ")
            freed = (flip.time for flip in run.flips if flip.barrier == f"free{place[-3:]}" and flip.time >= task.end)
            again = (
                t.start for t in run.tasks if t.what == "copy" and t.on.endswith(f" to {place}") and t.start >= task.end
            )
            row = f"stage {place[-2]}" if place.endswith("]") else place
            out.append(Bar(row, "landing", name, task.start, task.end))
            out.append(Bar(row, "full", name, task.end, next(freed, next(again, run.slots))))
        elif task.what == "product":
            out.append(Bar(task.who, "S" if task.on.startswith("k") else "PV", "", task.start, task.end))
        else:
            out.append(Bar(task.who, task.what, task.on, task.start, task.end))
    return sorted((bar for bar in out if bar.text[:1] != "Q"), key=lambda bar: bar.start)


def timeline_steps(runs: dict[str, Run]) -> Iterator[Step]:
    """One step per slot of time of several runs in parallel.

    values   runs {title: bars}, ticks {title: ticks}, ends {title: slots}, stopped {title: text}, time, horizon
    """
    common: dict[str, Any] = {
        "runs": {title: bars(run) for title, run in runs.items()},
        "ticks": {title: ticks(run) for title, run in runs.items()},
        "ends": {title: run.slots for title, run in runs.items()},
        "stopped": {title: run.stopped for title, run in runs.items()},
        "horizon": max(run.slots for run in runs.values()),
    }
    for time in range(common["horizon"] + 1):
        said = "; ".join(f"{title}: {_says(run, common['runs'][title], time)}" for title, run in runs.items())
        yield Step(sentence=f"Slot {time}. {said}.", phase="timeline", values={**common, "time": time})


def ticks(run: Run) -> list[Tick]:
    """The phases of the barriers of the stages."""
    found = ((flip, re.fullmatch(r"(full|free)\[(\d+)\]", flip.barrier)) for flip in run.flips)
    return [Tick(f"stage {at[2]}", at[1], flip.phase, flip.time) for flip, at in found if at]


DOES = {  # the verb for one, and for several
    "landing": ("is on its way", "are on their way"),
    "wait": ("waits for ", "wait for "),
    "softmax": ("takes exponentials", "take exponentials"),
    "product": ("multiplies", "multiply"),
}


def _says(run: Run, all_bars: list[Bar], time: int) -> str:
    """The caption of a slot: the work of every unit."""
    if time >= run.slots:
        return run.stopped.partition(": ")[2] or "done"
    who: dict[tuple[str, str], list[str]] = {}  # of everything that is done
    for bar in all_bars:
        if bar.start <= time < bar.end and bar.what != "full":
            action = (bar.what, bar.text) if bar.what == "wait" else (bar.what if bar.what in DOES else "product", "")
            who.setdefault(action, []).append(bar.text if bar.what == "landing" else bar.row)
    clauses = (
        f"{' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))} {DOES[what][len(names) > 1]}{text}"
        for (what, text), names in who.items()
    )
    return ", ".join(clauses) or "nobody works"
