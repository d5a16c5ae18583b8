"""Threads of which one runs at a time, the one with the earliest clock, so that a run is the same every time."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any


class Deadlock(RuntimeError):
    """All threads wait."""


class _Stopped(RuntimeError):
    """Ends the threads that are left when one has failed."""


@dataclass(eq=False)
class Worker:
    """A thread of the simulation: a partition of warps."""

    name: str
    run: Callable[[], Any]
    now: int = 0
    clock: dict[str, int] = field(default_factory=dict)
    until: Callable[[], bool] = lambda: True
    waits: str = ""
    in_flight: list[Any] = field(default_factory=list)  # products under way
    copies: list[Any] = field(default_factory=list)  # of its stores: buffers that TMA may still read
    leaving: list[str] = field(default_factory=list)  # where its stores go, which may not have arrived
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    future: Future | None = None
    done: bool = False

    def tick(self) -> int:
        self.clock[self.name] = self.clock.get(self.name, 0) + 1
        return self.clock[self.name]


class Scheduler:
    """The threads, the present time, and events at a later time."""

    def __init__(self) -> None:
        self.now = 0
        self.workers: list[Worker] = []
        self.landings: list[tuple[int, int, Callable[[], None]]] = []  # when, a number, what
        self.back, self.stopped = threading.Semaphore(0), False

    def start(self, name: str, run: Callable[[], Any]) -> Worker:
        parent = self.workers and self.me
        worker = Worker(name, run, parent.now, dict(parent.clock)) if parent else Worker(name, run)
        self.workers.append(worker)
        worker.future = self.pool.submit(self._live, worker)
        return worker

    def _live(self, worker: Worker) -> None:
        try:
            worker.go.acquire()
            if not self.stopped:
                worker.run()
        finally:
            worker.done = True
            self.back.release()

    def play(self, name: str, run: Callable[[], Any]) -> None:
        """Run until all are done: a landing if it is next, else the thread with the earliest clock."""
        with ThreadPoolExecutor(max_workers=16) as self.pool:
            try:
                self.start(name, run)
                while not all(worker.done for worker in self.workers):
                    self._next()
            finally:
                self.stopped = True
                for worker in self.workers:
                    worker.go.release()

    def _next(self) -> None:
        ready = [worker for worker in self.workers if not worker.done and worker.until()]
        behind = min(ready, key=lambda worker: worker.now) if ready else None
        if self.landings and (behind is None or self.landings[0][0] <= behind.now):
            self.now, _, land = heapq.heappop(self.landings)
            return land()
        if behind is None:
            waiting = "; ".join(f"{w.name} waits for {w.waits}" for w in self.workers if not w.done and w.waits)
            raise Deadlock(f"slot {self.now}: {waiting}")
        self.me, self.now = behind, max(self.now, behind.now)
        behind.now = self.now
        behind.go.release()
        self.back.acquire()
        if behind.done and behind.future:
            behind.future.result()  # raises what it raised

    def pause(self, until: Callable[[], bool] = lambda: True, waits: str = "", time: int = 0) -> None:
        """Let others run until a condition holds, and at least until that time."""
        me = self.me
        me.until, me.waits, me.now = until, waits, max(me.now, time)
        self.back.release()
        me.go.acquire()
        if self.stopped:
            raise _Stopped
