"""A kernel that begins while the kernel before it ends: programmatic dependent launch.

Kernels of a stream run one after the other: the second begins when the last program of the first has ended and what it wrote
is seen everywhere. Meanwhile most of the GPU is idle, for about a microsecond by what `flashlearn.fast.decode` tells: that is
long where both kernels are short. From compute capability 9.0 on two instructions, and a launch option, `launch_pdl`, let the
second begin before:

    first kernel    launch_dependents()    programs of the second may begin, once all programs of this one said so or ended
    second kernel   ...                 what needs nothing of the first: its share of the work, barriers, loads of inputs
                    wait_for_previous()     until the first has ended, and all that it wrote is seen

The first says so where it begins. That takes no room from its own programs: nothing happens before the last of them has
begun, so programs of the second get what is left over, and wait there. In CUDA graphs it is the same.

A kernel that waits before anything else may follow any other, whoever wrote that: where it says nothing, programs of ours begin
when its last one has ended, and need not be launched then. The first kernel of decoding does so.

What a reader of a second kernel must check that does something before it waits:

1. Before it waits, it reads only what was written before the *first* kernel was launched. That one is launched the ordinary
   way, so whatever came before it is over; or it waits too, and then the second reads nothing early that others write.
2. Before it waits, it writes nothing, not even to memory of its own: PyTorch hands out memory again as soon as Python lets go
   of it, and the first kernel may still read there.
3. Every program waits, also one that finds nothing to do: a third kernel, launched the ordinary way, waits for the second
   alone, and so for the first only if the second did.
4. No other kernel is launched between the two that writes what the second reads early.

A part of the first kernel's work may be there before all of it is: `attention_end_sums_kernel` ends sums of dQ on SMs
that are idle while the last programs of the pass run. It breaks the first three rules, and this must hold instead:

1. It reads what the pass counts as added, by an atomic addition that releases, and it reads the counter by one that acquires.
   Only then it reads the sums without having waited. The counters are zeros by then: the pass lets it begin only after the
   pass itself has waited for the kernel before, which writes them.
2. It writes to dq, which was handed out before the pass was launched: nobody who runs since then reads that memory.
3. The programs of the last row wait, whatever the counter says, so that the kernel does not end before the pass.

The instructions do nothing where the launch option was not given, so kernels have them whatever comes before and after.
Triton's interpreter has neither; there, and below 9.0, kernels follow each other as ever.

Sources: PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization".
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.language.target_info import cuda_capability_geq

from flashlearn.fast.target import INTERPRETED

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
    """Until the kernel before has ended, and what it wrote is seen."""
    if COMPILED:
        if cuda_capability_geq(9, 0):
            gdc_wait()
