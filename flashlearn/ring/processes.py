"""Several processes on one machine, from a cell of a notebook: started, their output read, and always ended.

    threads(4, function)       four threads, each with its own end of a group: within milliseconds
    processes(4, function)     four processes, each with its own memory: some seconds, nearly all of it imports

Each of them runs `function(group, ...)`; pass the group to `ring_attention`. Messages go over 127.0.0.1 by gloo, a library
of PyTorch's; no network is needed.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from flashlearn.core.inputs import check_block

LOOPBACK = "127.0.0.1"
LIMIT = 30.0  # seconds that a process waits for another
GRACE = 3.0  # seconds for the others to report their errors, once a process has failed
PACKAGE = Path(__file__).parents[2]  # where flashlearn is imported from


def join_group(store: Any, rank: int, size: int, limit: float = LIMIT) -> dist.ProcessGroupGloo:
    """This process's end of a group of `size`, which find each other by `store`; none waits longer than `limit` seconds."""
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=LOOPBACK)]
    options._timeout = timedelta(seconds=limit)
    options._threads = 2
    return dist.ProcessGroupGloo(store, rank, size, options)


def threads(P: int, function: Callable[..., Any], *args: Any, limit: float = LIMIT) -> list[Any]:
    """The results of `function(group, *args)` in P threads, in order; raises the first error when all have ended."""
    check_block(P, "P")
    if not callable(function):
        raise TypeError(f"expected a function to run in every thread, got {type(function).__name__}")
    store, results, errors = dist.HashStore(), [None] * P, []

    def run(rank: int) -> None:
        group = None
        try:
            group = join_group(store, rank, P, limit)
            results[rank] = function(group, *args)
        except BaseException as error:  # raised below, in the thread of the caller
            errors.append(error)
            if group is not None:
                group.abort()

    running = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(P)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return results


def processes(P: int, function: Callable[..., Any], *args: Any, limit: float = LIMIT) -> list[Any]:
    """The results of `function(group, *args)` in P processes, in order; their output is printed by rank.

    The processes get the source of the function, which imports what it needs by itself, and the arguments. All have
    ended when this returns or raises. It raises a RuntimeError if one failed, with the last line of each, or what
    interrupted the cell. It raises a TimeoutError after `limit` seconds, half of which they wait for each other. If
    this process is killed, they end too.
    """
    check_block(P, "P")
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(f"expected a function made with def, whose source can be sent, got {name}")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program.py").write_text(textwrap.dedent(inspect.getsource(function)), encoding="utf-8")
        torch.save((args, function.__name__), Path(folder) / "arguments.pt")
        team = [_Process(folder, rank, P, limit) for rank in range(P)]
        try:
            _watch(team, limit)
        finally:
            for process in team:
                process.end()
        for process in team:
            process.show()
        if any(process.process.returncode for process in team):
            words = "; ".join(process.last_line for process in team)
            raise RuntimeError(f"expected all {P} processes to end well, got {words}")
        return [torch.load(Path(folder) / f"result{rank}.pt", weights_only=False) for rank in range(P)]


class _Process:
    """A process, and the thread that reads what it prints."""

    def __init__(self, folder: str, rank: int, size: int, limit: float):
        self.rank, self.printed, self.stopped = rank, "", False
        paths = [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
        here = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
        command = [sys.executable, "-m", "flashlearn.ring.worker", folder, str(rank), str(size), str(limit / 2)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process: Any = subprocess.Popen(
            command, env=here, **pipes, encoding="utf-8", errors="backslashreplace", start_new_session=True
        )
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self.printed += line

    def end(self) -> None:
        """Make sure that it has ended."""
        self.stopped = self.process.poll() is None
        self.process.kill()
        self.process.wait()
        self.listener.join()
        self.process.stdin.close()
        self.process.stdout.close()

    def show(self) -> None:
        """Print what it printed, unless it failed."""
        if self.process.returncode == 0:
            for line in self.printed.splitlines():
                print(f"[{self.rank}] {line}")

    @property
    def last_line(self) -> str:
        """The last line that it printed, or how it ended."""
        lines = [line for line in self.printed.splitlines() if line.strip()]
        code = self.process.returncode
        how = (
            "was still running, and was ended" if self.stopped else "ended" if code >= 0 else f"ended by signal {-code}"
        )
        return f"process {self.rank}: {lines[-1] if lines else how}"


def _watch(team: list[_Process], limit: float) -> None:
    """Until all have ended, or one has failed and the others had time to notice; TimeoutError when the time is over."""
    over, failed = time.monotonic() + limit, None
    while any(process.process.poll() is None for process in team):
        now = time.monotonic()
        if failed is None and any(process.process.returncode for process in team):
            failed = now
        if failed is not None and now > failed + GRACE:
            return
        if now > over:
            raise TimeoutError(
                f"expected {len(team)} processes to end within {limit:g} seconds, got more: they were ended"
            )
        time.sleep(0.02)
