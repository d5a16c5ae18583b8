"""How the portable kernels are launched: by D, by the size of an element, and by the shared memory of the GPU.

A launch is picked from tables that were made once (docs/engineering_log.md); nothing is tuned when a program runs.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

import torch

from flashlearn.core.interpreter_warning import BLOCK
from flashlearn.core.target import INTERPRETED


class PortableLaunch(NamedTuple):
    """Block sizes, and the compiler's options: warps, stages of software pipelining, maximum registers of a thread."""

    block_m: int
    block_n: int
    num_warps: int = 4
    num_stages: int = 2
    registers: int | None = None


# (bytes of an element, D up to) -> from so many KB of shared memory on: the launch
FORWARD = {
    (2, 64): {0: PortableLaunch(128, 64, 4, 3), 200: PortableLaunch(64, 64, 4, 3)},
    (2, 128): {0: PortableLaunch(128, 64, 8, 3), 200: PortableLaunch(128, 128, 8, 3)},
    (2, 256): {0: PortableLaunch(64, 32, 4, 2), 160: PortableLaunch(64, 64, 8, 2), 200: PortableLaunch(128, 64, 8, 2)},
    (4, 64): {0: PortableLaunch(32, 32, 4, 2)},
    (4, 128): {0: PortableLaunch(32, 32, 8, 1), 200: PortableLaunch(64, 32, 8, 2)},
    (4, 256): {0: PortableLaunch(16, 16, 4, 2)},
}
DKDV = {
    (2, 64): {0: PortableLaunch(64, 128, 8, 2), 200: PortableLaunch(64, 64, 4, 3, 168)},
    (2, 128): {0: PortableLaunch(64, 64, 8, 2), 200: PortableLaunch(64, 128, 8, 3)},
    (2, 256): {0: PortableLaunch(32, 32, 4, 2), 160: PortableLaunch(32, 64, 8, 2), 200: PortableLaunch(64, 32, 4, 2)},
    (4, 64): {0: PortableLaunch(32, 64, 8, 1)},
    (4, 128): {0: PortableLaunch(16, 16, 4, 1)},
    (4, 256): {0: PortableLaunch(16, 8, 4, 1), 96: PortableLaunch(16, 16, 8, 1)},
}
DQ = {
    (2, 64): {0: PortableLaunch(64, 64, 4, 3), 200: PortableLaunch(128, 64, 4, 3)},
    (2, 128): {0: PortableLaunch(128, 64, 8, 2), 200: PortableLaunch(128, 64, 8, 3)},
    (2, 256): {0: PortableLaunch(32, 32, 4, 2), 160: PortableLaunch(64, 32, 8, 2), 200: PortableLaunch(128, 32, 8, 2)},
    (4, 64): {0: PortableLaunch(32, 32, 4, 1)},
    (4, 128): {0: PortableLaunch(16, 16, 4, 1)},
    (4, 256): {0: PortableLaunch(16, 16, 8, 1)},
}


# There an operation takes about as long for a large tile as for a small one; larger ones pad short sequences.
IN_INTERPRETER = PortableLaunch(*BLOCK)


def portable_launch(table: dict, D: int, itemsize: int, device: torch.device) -> PortableLaunch:
    """The launch in one of the tables above for tiles of D columns on this GPU; in the interpreter one for all."""
    if INTERPRETED:
        return IN_INTERPRETER
    by_memory = table[itemsize, 64 if D <= 64 else 128 if D <= 128 else 256]
    room = shared_memory(device) // 1024
    return by_memory[max(start for start in by_memory if start <= room)]


@cache
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that one program may have on this GPU; in the interpreter 0."""
    if INTERPRETED:
        return 0
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined]  # no stub


@cache
def has_tensor_cores(device: torch.device) -> bool:
    """Whether Triton has a path to the tensor cores of this GPU: from compute capability 8 on.

    On older ones products are computed in float32 by ordinary arithmetic, also those of 16-bit factors.
    """
    return torch.cuda.get_device_capability(device) >= (8, 0)


@lru_cache(4096)
def is_wide(launch: PortableLaunch, *strides: tuple[int, ...]) -> bool:
    """Whether offsets within a tile may pass 2^31: so far apart are its rows or columns."""
    rows = max(launch.block_m, launch.block_n)
    return any(rows * abs(stride[2]) + 256 * abs(stride[3]) >= 2**31 for stride in strides)
