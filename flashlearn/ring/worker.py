"""What one process of `flashlearn.ring.processes.processes` runs: python -m flashlearn.ring.worker FOLDER RANK SIZE LIMIT.

The folder has the program (`program.py`), its arguments and, in the end, its result; the processes find each other by a file
in it. Standard input is a line to the parent: when it is cut, the parent is gone, and so is this process.
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


def hang_up() -> None:
    """End when the parent does."""
    sys.stdin.read()
    os._exit(1)


def main(folder: Path, rank: int, size: int, limit: float) -> None:
    """Call the one function of the program, with this process's end of the group."""
    threading.Thread(target=hang_up, daemon=True).start()
    torch.set_num_threads(1)
    args, name = torch.load(folder / "arguments.pt", weights_only=False)  # written by the parent, a moment ago
    names: dict = {"__name__": "program", "__file__": str(folder / "program.py")}
    exec(compile((folder / "program.py").read_text(encoding="utf-8"), names["__file__"], "exec"), names)
    group = join_group(dist.FileStore(str(folder / "store"), size), rank, size, limit)
    torch.save(names[name](group, *args), folder / f"result{rank}.pt")


def tell_and_end(kind, error, where) -> None:
    """What Python says of an error, and then the end, without waiting for gloo's threads, which may never end."""
    traceback.print_exception(kind, error, where)
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    sys.excepthook = tell_and_end
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    sys.stdout.flush()
    os._exit(0)  # at once: gloo's threads have nothing more to do
