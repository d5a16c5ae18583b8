"""Where the kernels run: on a GPU, or in Triton's interpreter, which executes them on the CPU with NumPy.

Triton decides this once, when it is first imported, by the variable TRITON_INTERPRET. Without a GPU
`flashlearn.core.interpreter` decides instead, so flashlearn must be imported before anything imports Triton.

The interpreter gets values right in float16 and float32. It gets bfloat16 wrong (1 + 1 = 1.7e38 in Triton
3.7.1), so bfloat16 is rejected there; `flash_attention` computes it in float32 instead.
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any, NamedTuple, NoReturn, TypeVar

import torch
from torch import Tensor

import flashlearn.core.interpreter  # noqa: F401  before Triton
from flashlearn.core import inputs, scores
from flashlearn.core.inputs import MAX_SCALE, Sizes, check_block, check_qkv, dual

try:
    import triton
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.interpreter import np as numpy

    from flashlearn.core.interpreter_patches import patch_interpreter
except ImportError as error:
    raise ImportError(
        "flash_attention and flashlearn.kernels need Triton, which is published for Linux only: "
        "run `pip install triton` there, or open the dev container. The algorithms, their steps, pictures and costs work without it."
    ) from error


def release(module: Any) -> tuple[int, ...]:
    """The first two numbers of a version: (3, 7)."""
    return tuple(int(number) for number in module.__version__.split(".")[:2])


INTERPRETED = isinstance(tl.sum, InterpretedFunction)
"""True if kernels run in Triton's interpreter, False if they are compiled for a GPU."""

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# NumPy 2.4 rejects a step of the interpreter of Triton 3.6: the conversion of an array of one element to a number
INTERPRETER_WORKS = release(triton) >= (3, 7) or release(numpy) < (2, 4)
MAX_HEAD_DIM = 256
MAX_GRID_YZ = 65535  # CUDA's limit on the second and third axis of a launch grid
MIN_FLOAT32, MAX_FLOAT32 = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


if INTERPRETED:  # here, not in the launchers, so that it applies to every kernel, a reader's own too
    patch_interpreter()
_unwatched = InterpretedFunction.run


def watched() -> bool:
    """Whether `kernel_steps` runs the kernels now; it rejects stray accesses and races itself."""
    return InterpretedFunction.run is not _unwatched


def backend() -> str:
    """Which backend runs the kernels of this process: "interpreter" or the name of the GPU."""
    return "interpreter" if INTERPRETED else torch.cuda.get_device_name()


def check_runnable(**tensors: Tensor) -> None:
    """Reject tensors that no kernel of this process can take, and gradients; the message says what to do."""
    for name, t in tensors.items():
        if not isinstance(t, Tensor):
            raise TypeError(f"expected {name} to be a torch.Tensor, got {type(t).__name__}")
        if t.dtype not in DTYPES:
            raise TypeError(f"expected {name} in float16, bfloat16 or float32, got {t.dtype}")
        check_device(t.device, name)
        if INTERPRETED and t.dtype == torch.bfloat16:
            raise TypeError(
                f"expected {name} in float16 or float32, got bfloat16, which Triton's interpreter computes "
                f"wrongly: pass {name}.float(), or call flash_attention, which does"
            )
        if t.is_neg():
            reject_negated(name)
        if t.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError(
                f"expected {name} without requires_grad, since a kernel launcher has no derivative: "
                "call flash_attention, which has one (though not under vmap), or this under torch.no_grad()"
            )
        if dual(t):
            raise NotImplementedError(
                f"expected {name} without a forward-mode derivative, since a kernel launcher has none: "
                "use flashlearn.standard_attention or PyTorch's own operators"
            )


def check_head_dim(D: int) -> None:
    """Reject a head dimension whose tiles would not fit on chip."""
    if D > MAX_HEAD_DIM:
        raise ValueError(f"expected a head dimension D of at most {MAX_HEAD_DIM}, got {D}")


def check_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, dlse: Tensor | None = None
) -> Sizes:  # fmt: skip
    """Reject what does not belong to one forward pass; return the sizes."""
    check_runnable(q=q, k=k, v=v, o=o, do=do)
    size = check_qkv(q, k, v)
    check_head_dim(size.D)
    like_q, like_lse = (q.shape, q.dtype, q.device), (q.shape[:3], torch.float32, q.device)
    for name, t, like in (("o", o, like_q), ("do", do, like_q), ("lse", lse, like_lse), ("dlse", dlse, like_lse)):
        if t is None and name == "dlse":
            continue
        if not isinstance(t, Tensor):
            raise TypeError(f"expected {name} to be a torch.Tensor, got {type(t).__name__}")
        if (t.shape, t.dtype, t.device) != like:
            shape, dtype, device = like
            raise ValueError(
                f"expected {name} of shape {tuple(shape)} in {dtype} on {device}, "
                f"got {tuple(t.shape)} in {t.dtype} on {t.device}"
            )
        if t.is_neg():
            reject_negated(name)
    return size


def reject_negated(name: str) -> NoReturn:
    """Reject a lazily negated view (`z.conj().imag`), of which a kernel would read the numbers in memory."""
    raise ValueError(
        f"expected {name} as it is in memory, got a view with the negative sign still to be applied: pass {name}.resolve_neg()"
    )


def check_device(device: torch.device, name: str) -> None:
    """Reject a device that the backend of this process cannot reach."""
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"expected {name} on a CUDA GPU or the CPU, got a tensor on {device}")
    if device.type == "cpu" and not INTERPRETED:
        raise RuntimeError(
            f"expected {name} on a GPU, got it on the CPU, where kernels run only in Triton's interpreter; "
            f"that is off because {_why_not_interpreted()}. Set TRITON_INTERPRET=1 before Python starts"
        )
    if device.type == "cpu" and not INTERPRETER_WORKS:
        raise RuntimeError(
            f"expected Triton 3.7 or newer, or NumPy before 2.4, for Triton's interpreter, got Triton "
            f"{triton.__version__} and NumPy {numpy.__version__}"
        )


def _why_not_interpreted() -> str:
    """Why Triton compiles kernels in this process."""
    asked = os.environ.get("TRITON_INTERPRET", "")
    if asked.lower() in ("1", "true", "on", "yes", "y"):
        return "Triton was imported before TRITON_INTERPRET was set"
    if asked:
        return f"TRITON_INTERPRET={asked} is set"
    return "there is a GPU" if torch.cuda.is_available() else "Triton was imported before flashlearn"


def check_power_of_two(minimum: int, **sizes: int) -> None:
    """Reject block sizes that are not powers of two of at least `minimum`."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < minimum or size & (size - 1):
            raise ValueError(f"expected {name} to be a power of two of at least {minimum}, got {size!r}")


AnyLaunch = TypeVar("AnyLaunch", bound=NamedTuple)


def check_launch(launch: AnyLaunch, kind: type[AnyLaunch], minimum: int = 16, name: str = "launch") -> AnyLaunch:
    """The launch; raises unless it has the fields of `kind`, with numbers that a kernel can be launched with."""
    if getattr(launch, "_fields", None) != kind._fields:  # a mutant of the course has a class of its own
        raise TypeError(f"expected {name} to be a {kind.__name__}({', '.join(kind._fields)}) or None, got {launch!r}")
    given = launch._asdict()
    check_power_of_two(minimum, block_m=given["block_m"], block_n=given["block_n"])
    check_power_of_two(1, num_warps=given["num_warps"])
    check_block(given["num_stages"], "num_stages")
    if given.get("registers") is not None:
        check_block(given["registers"], "registers")
    return launch


def resolve_scale(scale: float | None, D: int) -> float:
    """The factor on q.k, as `flashlearn.core.inputs` has it, and finite in float32 too: kernels take it times log2(e)."""
    if scale is None:
        return 1 / math.sqrt(D)
    if type(scale) in (float, int) and -MAX_SCALE <= scale <= MAX_SCALE:  # nothing here that a compiler cannot trace
        return float(scale)
    return inputs.resolve_scale_in_float32(scale, D)


def check_softcap(softcap: float | None) -> float | None:
    """The cap, as `flashlearn.core.scores` has it, and positive and finite in float32 too."""
    if softcap is None:
        return None
    if type(softcap) in (float, int) and MIN_FLOAT32 <= softcap <= MAX_FLOAT32:
        return float(softcap)
    cap = scores.check_softcap(softcap)
    if cap is not None and not MIN_FLOAT32 <= cap <= MAX_FLOAT32:
        raise ValueError(f"expected softcap in float32, {MIN_FLOAT32:.4g} to {MAX_FLOAT32:.4g}, got {softcap}")
    return cap


def check_grid(grid: tuple[int, ...]) -> tuple[int, ...]:
    """Reject a launch grid that CUDA cannot launch; return it otherwise."""
    for programs in grid[1:]:
        if programs > MAX_GRID_YZ:
            raise ValueError(f"expected at most {MAX_GRID_YZ} programs along the later axes of the grid, got {grid}")
    return grid


@functools.cache
def padded(D: int) -> int:
    """The power of two, at least 16, that a tile of D columns is padded to."""
    return max(16, int(triton.next_power_of_2(D)))
