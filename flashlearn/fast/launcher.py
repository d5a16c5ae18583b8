"""Launches: the compiled kernel is kept under what it was compiled for, and a kernel may begin while the kernel before it ends.

The second is programmatic dependent launch (PDL). Kernels of a stream run one after the other: the second begins when the last CTA
of the first has ended. From compute capability 9.0 on two instructions, and a launch option, let it begin before:

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

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.utils import deterministic
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.language.target_info import cuda_capability_geq

from flashlearn.core.target import INTERPRETED


def prepare() -> None:
    """Let Triton do what it does once in a process before its first kernel: compile C code, hash its own files."""
    with suppress(Exception):  # whatever is wrong is said where a kernel is launched
        assert triton.runtime.driver.active
        triton.runtime.cache.triton_key()


# In the background, while a program makes its tensors: the first launch need not wait for it then.
prepared = threading.Thread(target=prepare, name="flashlearn prepares Triton", daemon=True)
if not INTERPRETED:
    prepared.start()

_compiled: dict[tuple, Any] = {}
MAX_KEPT = 4096  # kernels kept; a program whose strides change with every call would fill the memory


def launch(
    kernel, grid: tuple[int, ...], arguments: tuple, constants: dict, *,
    key: tuple, first: Callable[[tuple], tuple] | None = None, dependent: bool = False, **options,
) -> None:  # fmt: skip
    """kernel[grid](*arguments, **constants, **options), without looking at every argument each time.

    Triton's launcher asks all arguments for their types on every call, to see whether it has compiled for such. Here
    the caller says what they depend on. `key` has all arguments in which compiled kernels may differ: dtypes, device,
    alignment of the pointers and strides. The constants are added to it. Arguments and constants follow the order of
    the kernel's parameters. For the first call with a key, `first` makes of the arguments what Triton wants to compile
    for. dependent: the kernel may begin before the one before has ended.

    exp2(s * scale - m) counts on one fused multiply-add, which Triton is asked to make: from 3.10 on it makes none by itself.
    """
    values = tuple(constants.values())
    key = (kernel.fn, key, values, dependent)
    compiled = _compiled.get(key)
    if compiled is not None:
        compiled[grid](*arguments, *values)
        return
    if len(grid) != 3:  # said at once, not when the kernel that was kept is launched
        raise ValueError(f"expected a grid of three axes, got {grid}")
    if prepared.is_alive():
        prepared.join()
    arguments = first(arguments) if first else arguments
    if dependent:
        options["launch_pdl"] = True
    compiled = kernel[grid](*arguments, **constants, enable_fp_fusion=True, **options)
    if not INTERPRETED:
        if len(_compiled) == MAX_KEPT:
            _compiled.clear()
        _compiled[key] = compiled


@cache
def sm_count(device: torch.device) -> int:
    """How many programs run at the same time: the SMs of a GPU; in the interpreter one."""
    return 1 if INTERPRETED else torch.cuda.get_device_properties(device).multi_processor_count


def uninitialised(
    like: Tensor | torch.device, shape: Sequence[int] | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Memory that a kernel will write, all of it: `torch.empty_like(like)`, or `torch.empty(shape)` there, not filled with NaN.

    Where algorithms are deterministic PyTorch fills what it allocates, in case that it is read before it is written, and takes
    as long as a kernel to write it. `torch.utils.deterministic.fill_uninitialized_memory` is off here, and then as it was.
    """
    fill = torch.are_deterministic_algorithms_enabled() and deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    try:
        if fill:
            deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        if isinstance(like, Tensor):
            return torch.empty_like(like) if shape is None else like.new_empty(shape, dtype=dtype)
        return torch.empty(shape or (), dtype=dtype, device=like)
    finally:
        if fill:
            deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]


def current_stream(device: torch.device) -> int:
    """The stream of a GPU on which kernels are launched now, as CUDA names it."""
    return triton.runtime.driver.active.get_current_stream(device.index)


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
