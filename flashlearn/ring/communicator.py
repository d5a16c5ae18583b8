"""A group of processes for the ring: a `Communicator` sends tensors while others arrive, and gathers notes at the start.

    pending = comm.exchange([(k, right)], [(buffer, left)])        under way
    ...                                                            computing
    pending.wait()                                                 arrived

On a GPU the messages have a stream of their own, so they pass while kernels run; `wait` makes the kernels that are
launched after it wait, not the host.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Message = tuple[Tensor, int]  # and to whom, or from whom
NOTE = 2048  # bytes that a process may tell the others before the ring starts


class Pending:
    """Messages under way."""

    def __init__(self, comm: Communicator, works: Sequence[Any], kept: Sequence[Any]):
        self.comm, self.works, self.kept = comm, works, kept

    def wait(self) -> None:
        """Until all have been sent and have arrived; RuntimeError if another process is gone, or too late."""
        try:
            for work in self.works:
                work.wait()
        except RuntimeError as error:
            raise self.comm.lost(error) from error
        self.works, self.kept = (), ()


class Communicator:
    """The processes of a group: this one's number `rank` of `size`, and messages between them."""

    def __init__(self, group: Any, device: torch.device):
        self.group, self.device = whole_group(group), device
        self.rank, self.size = self.group.rank(), self.group.size()
        self.cuda = device.type == "cuda"
        self.side = _side_stream(device) if self.cuda and self.size > 1 else None

    def mark(self) -> Any:
        """A point in this process's work that messages can be made to wait for; None where all is done when it returns."""
        return torch.cuda.current_stream(self.device).record_event() if self.side else None

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message], after: Any = None) -> Pending:
        """Send and receive, once `after` is reached; messages between two processes arrive in the order of the list."""
        sends = [(t, to) for t, to in sends if t.numel()]
        receives = [(t, source) for t, source in receives if t.numel()]
        try:
            works = self._start(sends, receives, after)
        except RuntimeError as error:
            raise self.lost(error) from error
        return Pending(self, works, (sends, receives))

    def _start(self, sends: Sequence[Message], receives: Sequence[Message], after: Any) -> list[Any]:
        if not self.cuda:
            works = [self.group.recv([t], source, tag) for tag, t, source in _numbered(receives)]
            return works + [self.group.send([t], to, tag) for tag, t, to in _numbered(sends)]
        jobs = [dist.P2POp(dist.isend, t, group=self.group, group_peer=to) for t, to in sends]
        jobs += [dist.P2POp(dist.irecv, t, group=self.group, group_peer=source) for t, source in receives]
        with torch.cuda.stream(self.side) if self.side else nullcontext():
            if after is not None and self.side:
                self.side.wait_event(after)
            return dist.batch_isend_irecv(jobs) if jobs else []

    def lost(self, error: RuntimeError) -> RuntimeError:
        """The error for a message that failed."""
        line = str(error).strip().partition("\n")[0]
        cause = re.sub(r"^\[.*?\] |\. This is.*", "", line)  # without gloo's file and advice
        return RuntimeError(
            f"expected all {self.size} processes of the ring to take part, but process {self.rank} lost another one: it has "
            f"ended, or took longer than the group's time limit ({cause})"
        )

    def all_gather(self, note: dict) -> list[dict]:
        """The notes of all processes, in order: one small message from each to all, before anything else."""
        text = json.dumps(note, ensure_ascii=False).encode(errors="replace")
        if len(text) > NOTE:
            raise ValueError(f"expected a note of at most {NOTE} bytes, got {len(text)}")
        on_cpu = not isinstance(self.group, dist.ProcessGroup) or "cpu" in str(dist.get_backend_config(self.group))
        device = torch.device("cpu") if on_cpu else self.device
        mine = torch.frombuffer(bytearray(text.ljust(NOTE)), dtype=torch.uint8).to(device)
        all_notes = [torch.empty_like(mine) for _ in range(self.size)]
        try:
            self.group.allgather([all_notes], [mine]).wait()
        except RuntimeError as error:
            raise self.lost(error) from error
        if self.cuda and on_cpu:
            _introduce(self.group, self.device)
        return [json.loads(bytes(t.tolist())) for t in all_notes]


class Alone:
    """A group of one, without messages."""

    rank, size = 0, 1

    def mark(self) -> None:
        """Nothing waits."""


def _numbered(messages: Sequence[Message]) -> list[tuple[int, Tensor, int]]:
    """The messages, each with its number among those with the same process at the other end."""
    others = [other for _, other in messages]
    return [(others[:i].count(other), t, other) for i, (t, other) in enumerate(messages)]


def whole_group(group: Any) -> Any:
    """The group, or all processes if it is None; RuntimeError where there are none, TypeError for what is no group."""
    if group is not None:
        if not all(callable(getattr(group, name, None)) for name in ("rank", "size")):
            raise TypeError(f"expected group to be a group of processes or None, got {type(group).__name__}")
        return group
    if not dist.is_initialized():
        raise RuntimeError(
            "expected a group of processes, got none: start them with torchrun and call "
            "torch.distributed.init_process_group, or use flashlearn.ring.processes"
        )
    return dist.group.WORLD


_streams: dict[torch.device, torch.cuda.Stream] = {}
_introduced: set[tuple[str, torch.device]] = set()


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream that messages of a GPU are sent from, one in a process."""
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device, priority=-1)
    return _streams[device]


def _introduce(group: Any, device: torch.device) -> None:
    """NCCL wants all processes at the first message, of which some have none: a sum of nothing, once for each group."""
    key = (group.group_name, device)
    if key not in _introduced:
        dist.all_reduce(torch.zeros(1, device=device), group=group)
        _introduced.add(key)
