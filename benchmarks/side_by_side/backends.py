"""`flash_attention`, PyTorch's five implementations and, where installed, FlashAttention-4, each as a call to be timed.

A backend is timed as a user calls it, but without `with sdpa_kernel(...)`. That belongs to the choice of the backend
and costs as much as a short kernel, so it is entered once, around the timing.

flex is compiled anew for every setting, with static sizes. Compiled for sizes that may change it is up to a quarter
slower, which would not be a fair comparison. Compiling 168 kernels one after another takes half an hour. So
`compile_flex` has many processes fill the compiler's cache first, and every compilation here is then a look-up.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

OURS = "flashlearn"
DETERMINISTIC = "in order"  # ours, where gradients have to have the same bits every time
SDPA = {
    "fa2": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
PEERS = ("fa2", "cudnn", "fa4", "flex", "efficient", "math")
NAMES = (OURS, *PEERS)
PACKAGES = ("flash-attn-4", "nvidia-cutlass-dsl", "flashinfer-python", "flash-attn", "flash-attn-3")  # not PyTorch's
COMPILE_LIMIT = 200  # seconds


class Rejected(Exception):
    """A backend is not timed at a setting, and why."""


def installed() -> list[str]:
    """The names that can be timed here: FlashAttention-4 (`flash_attn.cute`) is a package of its own."""
    there = importlib.util.find_spec("flash_attn") and importlib.util.find_spec("flash_attn.cute")
    return [name for name in NAMES if name != "fa4" or there]


def versions() -> dict[str, str]:
    """{package: version} of what is compared with ours: PyTorch's backends have its version, cuDNN one of its own."""
    cudnn = torch.backends.cudnn.version() or 0
    found = {"cuDNN": f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"} if cudnn else {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """`torch.use_deterministic_algorithms(True)` within; before and after as it was."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def context(name: str):
    """What chooses this backend for `scaled_dot_product_attention`, or the order for ours; nothing for the others."""
    if name == DETERMINISTIC:
        return deterministic()
    return sdpa_kernel(SDPA[name]) if name in SDPA else contextlib.nullcontext()


def bind(name: str, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Callable[[], Tensor]:
    """A call that returns o (B, H_q, N_q, D), to be made within `context(name)`."""
    grouped = q.shape[1] != k.shape[1]
    if name in (OURS, DETERMINISTIC):
        from flashlearn.fast.api import flash_attention

        return lambda: flash_attention(q, k, v, causal=causal)
    if name == "flex":
        return _flex(q, k, v, causal, grouped)
    if name == "fa4":
        return _fa4(q, k, v, causal)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return lambda: sdpa(q, k, v, is_causal=causal, enable_gqa=grouped)


def _fa4(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Callable[[], Tensor]:
    """FlashAttention-4 takes (B, N, H, D), any strides but in D: views, no copies."""
    from flash_attn.cute import flash_attn_func

    def call() -> Tensor:
        o = flash_attn_func(*(t.transpose(1, 2) for t in (q, k, v)), causal=causal)
        return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)

    return call


def _flex(q: Tensor, k: Tensor, v: Tensor, causal: bool, grouped: bool) -> Callable[[], Tensor]:
    import torch._functorch.config
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._functorch.config.donated_buffer = False  # so that backward may run again and again on one forward
    torch.compiler.reset()  # kernels of the setting before would only lengthen the search
    flex = torch.compile(flex_attention, dynamic=False)
    mask = create_block_mask(_visible, None, None, q.shape[2], k.shape[2], device=q.device) if causal else None
    return lambda: flex(q, k, v, block_mask=mask, enable_gqa=grouped)


def _visible(b, h, i, j):
    return i >= j


def compile_flex(warm: Callable, settings: Sequence, workers: int | None = None) -> None:
    """Call `warm(setting)` for all settings in many processes, so that flex's kernels are in the compiler's cache.

    What fails here fails again where it is measured, and is recorded there. Gives up after `COMPILE_LIMIT`.
    """
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # the processes themselves are the parallelism
    workers = workers or max(1, min(14, (os.cpu_count() or 2) - 2, len(settings)))
    spawn = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
            failed = [words for words in pool.map(warm, settings, timeout=COMPILE_LIMIT) if words]
    except (BrokenProcessPool, TimeoutError) as error:
        failed = [f"{type(error).__name__}, the rest is compiled while measuring, which takes long"]
    for words in sorted(set(failed)):
        print(f"compiling flex ahead: {words}", flush=True)


@contextlib.contextmanager
def heard() -> Iterator[list[str]]:
    """PyTorch's warnings inside: they say why a backend is not available."""
    words: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # each text once
        yield words
        words += [str(warning.message).split(" (Triggered internally")[0].strip() for warning in caught]


def reason(error: Exception, said: Sequence[str]) -> str:
    """Why a backend did not run, in one line: PyTorch's own reason for "No available kernel", or the error."""
    if isinstance(error, Rejected):
        return str(error)
    if isinstance(error, torch.OutOfMemoryError):
        return "out of memory"
    if "No available kernel" in str(error):
        told = [words for words in said if not words.endswith("because:") and "runtime disabled" not in words]
        return told[0].splitlines()[0][:200] if told else "PyTorch has no such kernel for this setting"
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first.strip()}"[:200]
