"""The number of programs of a kernel that one SM runs at once, and the resource that limits it.

Sources: NVIDIA, CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", 8.0 and 9.0; for the
allocation of registers, NVIDIA's occupancy calculator.
"""

from __future__ import annotations

from typing import NamedTuple

from flashlearn.compiler.compiled import Compiled

REGISTERS, THREADS, PROGRAMS = 65536, 2048, 32  # of an SM
SHARED = {"A100": 164 * 1024, "H100": 228 * 1024}  # bytes of one
HANDED_OUT, TOGETHER = 256, 4  # the unit of a warp's registers, and the number of warps that share them
RESERVED = 1024  # bytes of shared memory that every program takes in addition


class Occupancy(NamedTuple):
    """Programs at once on an SM, warps of the 64 that fit, and the limit, "registers and threads" if it is both."""

    programs: int
    warps: int
    limit: str


def occupancy(fact: Compiled, gpu: str = "H100") -> Occupancy:
    """Of a compiled kernel, on an A100 or an H100."""
    if gpu not in SHARED:
        raise ValueError(f"expected a GPU of {list(SHARED)}, got {gpu!r}")
    of_warp = -(-32 * max(fact.registers, 1) // HANDED_OUT) * HANDED_OUT
    fits = {
        "threads": THREADS // fact.threads,
        "registers": REGISTERS // of_warp // TOGETHER * TOGETHER // -(-fact.threads // 32),
        "shared memory": SHARED[gpu] // (fact.shared + RESERVED),
        "programs": PROGRAMS,
    }
    programs = min(fits.values())
    limits = " and ".join(name for name, most in fits.items() if most == programs)
    return Occupancy(programs, programs * -(-fact.threads // 32), limits)
