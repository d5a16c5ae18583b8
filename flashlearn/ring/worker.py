"""The program of one process of `flashlearn.ring.processes.processes`: python -m flashlearn.ring.worker FOLDER RANK
SIZE LIMIT.

The folder has the program (`program.py`), its arguments and, in the end, its result; the processes find each other by a
file in it. When standard input ends, the parent is gone, and this process ends too.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from flashlearn.ring.processes import join_group


def end_with_the_parent() -> None:
    """Wait for the end of standard input."""
    sys.stdin.read()
    os._exit(1)


def main(folder: Path, rank: int, size: int, limit: float) -> None:
    """Call the one function of the program, with this process's end of the group."""
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    torch.set_num_threads(1)
    args, name = torch.load(folder / "arguments.pt", weights_only=False)  # written by the parent, a moment ago
    names: dict = {"__name__": "program", "__file__": str(folder / "program.py")}
    exec(compile((folder / "program.py").read_text(encoding="utf-8"), names["__file__"], "exec"), names)
    group = join_group(dist.FileStore(str(folder / "store"), size), rank, size, limit)
    torch.save(names[name](group, *args), folder / f"result{rank}.pt")


def print_and_end(kind, error, where) -> None:
    """Print the error as Python does, and end at once: gloo's threads may never end."""
    traceback.print_exception(kind, error, where)
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    sys.excepthook = print_and_end
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    sys.stdout.flush()
    os._exit(0)  # at once: gloo's threads have nothing more to do
