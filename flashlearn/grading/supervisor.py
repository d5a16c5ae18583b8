"""Runs one command, and ends it with every process that it or its children started.

    python -I -S supervisor.py '{"RLIMIT_CORE": 0}' command argument ...

The command runs in a session of its own, under the limits given. An "i" on standard input interrupts it, and the end of
the input ends it; the input also ends when the process that writes to it dies. After the command its process group is
ended and, on Linux, where orphans become children of the supervisor, every process that left the group.

This file imports the standard library alone, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>: orphans among one's descendants become one's children
TICK = 0.02  # seconds between two looks


def main(arguments: list[str]) -> int:
    limits, command = json.loads(arguments[0]), arguments[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends only with the end of the input
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    passed_on = [int(number) for number in os.environ.get("SUPERVISOR_PASSES_ON", "").split()]
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=passed_on, preexec_fn=lambda: limit(limits)
    )
    for descriptor in passed_on:
        os.close(descriptor)  # so that the other end learns of the child's end
    code = _watch(child.pid)
    _end(child.pid)
    return code


def limit(limits: dict[str, int]) -> None:
    """Set limits of this process, and restore the signals that the supervisor ignores."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for name, value in limits.items():
        if hasattr(resource, name):
            hard = resource.getrlimit(getattr(resource, name))[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(getattr(resource, name), (value, value))


def _watch(child: int) -> int:
    """Wait for the end of the child or of the input, reaping orphans; 0, or the child's exit status."""
    while True:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    return os.waitstatus_to_exitcode(ended[1]) & 255
        if select.select([0], [], [], TICK)[0]:
            commands = os.read(0, 64)
            if not commands:
                return 0
            if b"i" in commands:
                with contextlib.suppress(OSError):
                    os.killpg(child, signal.SIGINT)


def _end(child: int) -> None:
    """Kill the group of the child, then its orphans, until none is left."""
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for orphan in _children():
            with contextlib.suppress(OSError):
                os.kill(orphan, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def _children() -> list[int]:
    """Process ids of our children; none where there is no /proc."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(entry.read_text(errors="replace", encoding="utf-8").rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(entry.parent.name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
