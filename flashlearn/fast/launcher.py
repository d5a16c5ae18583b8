"""A launch that costs little on the host: the compiled kernel is kept under what it was compiled for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor
from torch.utils import deterministic

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

    Triton's launcher asks all arguments for their types on every call, to see whether it has compiled for such.
    Here the caller says what they depend on: `key` holds all of the arguments that a compiled kernel may differ in,
    namely dtypes, device, alignment of the pointers and strides; the constants are added to it. Arguments and
    constants follow the order of the kernel's parameters. For the first call with a key, `first` makes of the
    arguments what Triton wants to compile for. dependent: the kernel may begin before the one before has ended
    (`flashlearn.fast.dependent_launch`).

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
