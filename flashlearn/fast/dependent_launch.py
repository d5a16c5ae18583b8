"""A kernel that begins while the kernel before it ends: programmatic dependent launch (PDL).

Kernels of a stream run one after the other: the second begins when the last CTA of the first has ended. From compute capability
9.0 on two instructions, and a launch option, `launch_pdl`, let the second begin before:

    first kernel    launch_dependents()     CTAs of the second may begin, once all CTAs of this one said so or ended
    second kernel   ...                     what needs nothing of the first: its part of the work, barriers, loads of inputs
                    wait_for_previous()     until the first has ended, and all that it wrote is visible

The first says so where it begins. CTAs of the second get the room that is left over, and wait there; in CUDA graphs it is the same.
A kernel that waits before anything else may follow any other, whoever wrote that. What must hold for a second kernel that does
something before it waits: flashlearn/fast/README.md. Without the launch option, below 9.0 and in the interpreter the
instructions do nothing.

Sources: PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization".
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.language.target_info import cuda_capability_geq

from flashlearn.core.target import INTERPRETED

ALLOWED = True  # False: kernels begin when the ones before have ended, to measure what this is worth
COMPILED = tl.constexpr(not INTERPRETED)


def dependent(device: torch.device) -> bool:
    """Whether a kernel on this device, the current one, may begin before the one before has ended: `launch(dependent=...)`."""
    return ALLOWED and _has_it(device)


@cache
def _has_it(device: torch.device) -> bool:
    """Asked is what Triton compiles for, as it is what decides whether the instructions are there."""
    if INTERPRETED:
        return False
    target = triton.runtime.driver.active.get_current_target()
    return target.backend == "cuda" and target.arch >= 90


@triton.jit
def launch_dependents(ASKED: tl.constexpr = True):
    """Programs of the next kernel may begin, once all of this one said so; ASKED: whether one of ours comes next."""
    if COMPILED and ASKED:
        if cuda_capability_geq(9, 0):
            gdc_launch_dependents()


@triton.jit
def wait_for_previous():
    """Until the kernel before has ended, and what it wrote is visible."""
    if COMPILED:
        if cuda_capability_geq(9, 0):
            gdc_wait()
