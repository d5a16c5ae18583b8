"""Barriers and buffers of one SM: the waits of threads, slot by slot, in a kernel's own source.

`flashlearn.simulator.simulated.simulate` runs a kernel written in Gluon, as it is displayed, on the CPU: objects of
this module and of `gluon_names` replace Gluon's names. Every partition of `warp_specialize` is a thread; the
`scheduler` runs one at a time. Three things take time (`Times`): a copy until it lands, a matrix product, exponentials
of a tile. Warpgroups share the tensor cores, and any number of copies are under way at a time.

Deadlock  nobody can go on: who waits, for which phase of which barrier
Race      two accesses to one buffer, one of them a write, that no barrier keeps apart: it is seen whether or not they
          meet in this run, as each access knows what its thread knew of all others (vector clocks). Also a
          tile that was stored by threads and is read by TMA or the tensor cores without a fence.

A product that was issued and not waited for has NaN as its value, as has shared memory that nothing was written to.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from flashlearn.simulator.scheduler import Scheduler


class Race(RuntimeError):
    """Two accesses to a buffer that nothing orders."""


class Times(NamedTuple):
    """Slots of a copy from issue to landing, of a product of two tiles, of the exponentials of a tile."""

    land: int = 8
    product: int = 1
    exponentials: int = 1


class Task(NamedTuple):
    """A task of a thread, with its times; `what` is "copy", "product", "softmax", "wait"; `on`: a tile or barrier."""

    who: str
    what: str
    on: str
    start: int
    end: int


class Flip(NamedTuple):
    """A barrier completed a phase."""

    barrier: str
    phase: int
    time: int


class Access(NamedTuple):
    """One access to elements of shared memory; `ended` is empty while it is under way."""

    start: int
    stop: int
    write: bool
    words: str
    who: str
    ended: list[int]

    def before(self, clock: dict[str, int]) -> bool:
        """Whether a thread with that clock knows that it is over."""
        return bool(self.ended) and clock.get(self.who, 0) >= self.ended[0]


@dataclass(eq=False)
class Barrier:
    """An mbarrier: a phase ends when as many have arrived as were announced and all bytes expected have landed."""

    sim: Simulator
    name: str
    count: int = 0
    missing: int = 0
    bytes: int = 0
    phase: int = 0  # completed phases; the parity of the one under way is its last bit
    clock: dict[str, int] = field(default_factory=dict)  # the knowledge of the arrived threads
    known: dict[str, int] = field(default_factory=dict)  # and that of the threads that have waited

    def init(self, count: int) -> None:
        self.count = self.missing = count

    def change(self, clock: dict[str, int], arrivals: int = 0, expected: int = 0) -> None:
        if not self.count:
            raise RuntimeError(f"expected mbarrier.init of {self.name} before its use, got none")
        join(self.clock, clock)
        self.missing, self.bytes = self.missing - arrivals, self.bytes + expected
        if self.missing <= 0 and self.bytes == 0:
            self.sim.flips.append(Flip(self.name, self.phase, self.sim.now))
            self.phase, self.missing, self.known = self.phase + 1, self.missing + self.count, dict(self.clock)

    def passed(self, parity: int) -> bool:
        return self.phase & 1 != parity & 1  # a fresh barrier lets threads pass that wait for phase "1"


def join(clock: dict[str, int], other: dict[str, int]) -> None:
    """Take over the other's knowledge."""
    for who, n in other.items():
        clock[who] = max(clock.get(who, 0), n)


class Simulator(Scheduler):
    """One program on one SM."""

    def __init__(self, times: Times):
        super().__init__()
        self.times = times
        self.tasks: list[Task] = []
        self.flips: list[Flip] = []
        self.accesses: list[Access] = []
        self.unfenced: list[tuple[str, int, int]] = []  # by whom, and where
        self.tensor_cores = self.copied = 0  # when they are free, and copies so far

    def wait(self, barrier: Barrier, parity: int, pred: Any = True) -> None:
        if not pred:
            return
        me, began, phase = self.me, self.me.now, int(parity) & 1  # its last bit is all that one can wait for
        what = f"phase {phase} of {barrier.name}, for which {max(barrier.missing, 0)} more must arrive"
        self.pause(lambda: barrier.passed(phase), what + (f" and {barrier.bytes} bytes land" if barrier.bytes else ""))
        me.waits = ""
        join(me.clock, barrier.known)
        if self.now > began:
            self.tasks.append(Task(me.name, "wait", f"{barrier.name}, phase {phase}", began, self.now))

    def still_waiting(self, slots: int = 8) -> None:
        """Record the waiting threads after a deadlock, as if for some slots more."""
        waiting = [worker for worker in self.workers if " of " in worker.waits]
        for worker in waiting:
            phase, _, barrier = worker.waits.partition(",")[0].partition(" of ")
            self.tasks.append(Task(worker.name, "wait", f"{barrier}, {phase}", worker.now, self.now + slots))
        self.now += slots if waiting else 0

    def access(self, t: Tensor, words: str, write: bool = False, ended: bool = True, engine: bool = False) -> Access:
        """Note one of this thread, and check it against all before; `engine`: not by threads, so a fence is needed."""
        start, me = int(t.storage_offset()), self.me
        stop = start + int(sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))) + 1
        if engine and any(a < stop and start < b for _, a, b in self.unfenced):
            raise Race(f"slot {self.now}: {words}, which threads have stored there: a fence is missing")
        for old in (a for a in self.accesses if a.start < stop and start < a.stop and (write or a.write)):
            if old.who != me.name and not old.before(me.clock) or not old.ended:
                raise Race(f"slot {self.now}: {words}; no barrier keeps that from what went before: {old.words}")
        new = Access(start, stop, write, words, me.name, [me.tick()] if ended else [])
        if write:
            self.accesses = [a for a in self.accesses if not (start <= a.start and a.stop <= stop)]
        self.accesses.append(new)
        return new

    def copy(self, tile: Tensor, to: Tensor, barrier: Barrier, name: str, place: str, nbytes: int) -> None:
        """Issue a TMA copy of a tile: it lands later, and its bytes count at the barrier."""
        me, began = self.me, self.now
        self.copied += 1
        issued = self.access(to, f"{name} lands in {place}, issued by {me.name}", write=True)
        engine = f"copy {self.copied}"
        self.accesses[-1] = issued._replace(who=engine, ended=[1])
        clock = me.clock | {engine: 1}

        def land() -> None:
            to.copy_(tile)
            self.tasks.append(Task("TMA", "copy", f"{name} to {place}", began, self.now))
            barrier.change(clock, expected=-nbytes)

        heapq.heappush(self.landings, (began + self.times.land, self.copied, land))
