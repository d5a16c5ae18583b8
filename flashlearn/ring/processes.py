"""Several processes on one machine, from a cell of a notebook: started, listened to, and always ended.

    threads(4, function)       four threads, each with its own end of a group: within milliseconds
    processes(4, function)     four processes, each with its own memory: some seconds, nearly all of it imports

`function(group, ...)` is what each of them runs; the group goes to `ring_attention`. Messages pass over 127.0.0.1 by
gloo, a library of PyTorch's: no network is asked for, and none is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

LOOPBACK = "127.0.0.1"
LIMIT = 30.0  # seconds that a process waits for another


def join_group(store: Any, rank: int, size: int, limit: float = LIMIT) -> dist.ProcessGroupGloo:
    """This process's end of a group of `size`, who find each other by `store`; nobody waits longer than `limit` seconds."""
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=LOOPBACK)]
    options._timeout = timedelta(seconds=limit)
    options._threads = 2
    return dist.ProcessGroupGloo(store, rank, size, options)


def threads(P: int, function: Callable[..., Any], *args: Any, limit: float = LIMIT) -> list[Any]:
    """What `function(group, *args)` returns in each of P threads that play processes, in order.

    If one fails, the others lose it, and fail too; its own error is raised when all have ended.
    """
    store, results, errors = dist.HashStore(), [None] * P, []

    def play(rank: int) -> None:
        group = None
        try:
            group = join_group(store, rank, P, limit)
            results[rank] = function(group, *args)
        except BaseException as error:  # of a thread: raised below, in the thread that asked
            errors.append(error)
            if group is not None:
                group.abort()

    players = [threading.Thread(target=play, args=(rank,), daemon=True) for rank in range(P)]
    for player in players:
        player.start()
    for player in players:
        player.join()
    if errors:
        raise errors[0]
    return results
