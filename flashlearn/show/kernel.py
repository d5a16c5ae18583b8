"""The kernel that a widget lives in: its loop, and when it is idle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from typing import Any

from IPython import get_ipython

QUIET = 0.5  # seconds without a cell before the kernel counts as idle
PAUSE = 0.02  # seconds between two frames, for the kernel to handle its messages, one of which may ask for a frame


class _Cells:
    """When a cell last ran."""

    last = 0.0
    watched: Any = None

    @classmethod
    def watch(cls) -> None:
        """Have the shell say when a cell begins and when it ends."""
        shell = get_ipython()
        if shell is not None and cls.watched is not shell:
            cls.watched = shell
            for event in ("pre_run_cell", "post_run_cell"):
                shell.events.register(event, cls.note)
        cls.note()

    @classmethod
    def note(cls, *_: Any) -> None:
        cls.last = time.monotonic()


def kernel_loop() -> asyncio.AbstractEventLoop | None:
    """The loop of the kernel whose cell this is; None outside one."""
    if get_ipython() is None:
        return None
    _Cells.watch()
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


def on_server() -> bool:
    """Whether a Jupyter server runs this kernel for JupyterLab or Notebook 7, where browser/saved.js sees what is saved."""
    return "JPY_SESSION_NAME" in os.environ and "google.colab" not in sys.modules


def busy() -> None:
    """Somebody waits for something: what is made ahead waits a while."""
    _Cells.note()


async def idle() -> None:
    """Wait until no cell has run for a while, and in any case until the kernel has handled its messages."""
    await asyncio.sleep(PAUSE)
    while time.monotonic() - _Cells.last < QUIET:
        await asyncio.sleep(0.1)
