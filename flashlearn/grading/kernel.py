"""Runs the cells of a notebook in a Jupyter kernel, for the record of their checks."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Empty

from flashlearn.grading.record import Entry, Record
from flashlearn.grading.sandbox import NOTEBOOK, Sandbox, empty_folder

START, GRACE = 120, 10  # seconds in which a kernel must start, and in which it must heed an interrupt


class Ended(RuntimeError):
    """The kernel is gone, or no longer answers."""


def run_cells(sources: Sequence[str], known: dict[str, int], timeout: int, memory: int) -> tuple[list[Entry], str]:
    """Run all cells in order, whatever fails; returns the checks' findings, and other failures, "" if there were none.

    A cell that takes longer than `timeout` seconds is interrupted. A kernel that ignores this is ended, as is one whose
    cells together take longer than `NOTEBOOK` times that. `memory` is in bytes.
    """
    problem = ""
    with empty_folder() as name:
        folder = Path(name)
        record = Record(folder)
        connection = folder / "kernel.json"
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", str(connection)]
        with Sandbox(command, record.environment, memory, folder) as sandbox:
            try:
                client = _connect(sandbox, connection)
                try:
                    end = time.monotonic() + NOTEBOOK * timeout
                    for source in sources:
                        if time.monotonic() > end:
                            raise Ended(f"the notebook took longer than {NOTEBOOK * timeout} s")
                        problem = _run(sandbox, client, source, timeout) or problem
                finally:
                    client.stop_channels()
            except (Ended, TimeoutError) as error:
                problem = str(error)
        return record.read(known), problem


def _connect(sandbox: Sandbox, connection: Path):
    """A client of the kernel, once that answers. It does not read the output, which may be endless."""
    from jupyter_client.blocking.client import BlockingKernelClient

    client = BlockingKernelClient()
    deadline = time.monotonic() + START
    while not _loaded(client, connection):
        _still_there(sandbox, deadline, "the kernel did not start")
        time.sleep(0.05)
    client.start_channels(shell=True, iopub=False, stdin=False, hb=False, control=False)
    _reply(sandbox, client, client.kernel_info(), deadline, "the kernel did not start")
    return client


def _loaded(client, connection: Path) -> bool:
    try:
        client.load_connection_file(str(connection))
    except (OSError, ValueError):  # not written yet, or not completely
        return False
    return True


def _run(sandbox: Sandbox, client, source: str, timeout: int) -> str:
    """Run one cell; "" or that it took too long."""
    request = client.execute(source, allow_stdin=False, stop_on_error=False)
    slow = f"a cell took longer than {timeout} s"
    try:
        _reply(sandbox, client, request, time.monotonic() + timeout, slow)
    except TimeoutError:
        sandbox.interrupt()
        try:
            _reply(sandbox, client, request, time.monotonic() + GRACE, "")
        except TimeoutError:
            raise Ended(f"{slow}, and could not be interrupted") from None
        return slow
    return ""


def _reply(sandbox: Sandbox, client, request: str, deadline: float, late: str) -> None:
    """Wait for the answer to the request of that id."""
    while True:
        _still_there(sandbox, deadline, late)
        try:
            message = client.shell_channel.get_msg(timeout=0.2)
        except (Empty, ValueError):  # ValueError: not signed as the kernel signs
            continue
        if message["parent_header"].get("msg_id") == request:
            return


def _still_there(sandbox: Sandbox, deadline: float, late: str) -> None:
    if sandbox.ended:
        raise Ended("the kernel died")
    if time.monotonic() > deadline:
        raise TimeoutError(late)
