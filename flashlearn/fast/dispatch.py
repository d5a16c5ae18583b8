"""Which kernel `flash_attention` runs, and why.

    choose_forward(q, k, v, causal=True, scale=0.125)             Choice("hopper", {...}, "")
    choose_forward(one_query, k, v, causal=False, scale=0.125)    Choice("decode", {}, "")
    choose(q, k, v, options, backward=True)                       Choice("portable", {}, "torch.float32 inputs: ...")

The Hopper kernels take the inputs that their hardware supports. The portable kernels take all others, on any GPU and in
the interpreter. `why` has the reason (`flashlearn.explain` shows it to users). Block sizes come from the tables below,
which were measured once: nothing is tuned when a program runs.
"""

from __future__ import annotations

import warnings
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from flashlearn.core.options import AttentionOptions, plain_options
from flashlearn.core.target import INTERPRETED, padded
from flashlearn.fast.decode import KEYS_PER_SPLIT, max_rows
from flashlearn.fast.portable.forward import MIN_SCALE
from flashlearn.fast.portable.launches import has_tensor_cores
from flashlearn.fast.portable.masks import about_seen

HOPPER = (9, 0)  # compute capability
SOFTCAPS = 0.01, 256.0  # see flashlearn/fast/hopper/softmax.py
# Of Triton: with each tests/gpu ran. 3.9 compiles all kernels, as `flashlearn.fast.hopper.versions` knows its names, but spills more
GLUON_VERSIONS = ("3.6", "3.7", "3.8")

TWO_CTAS: dict[str, Any] = {"block_n": 64, "stages": 3, "ctas_per_sm": 2}
# (width of a tile, causal) -> from so many queries on: options of attention_forward_hopper; one H200 or H100, 2026-11.
# Under a causal mask a short row of tiles is mostly diagonal, of which blocks of 64 keys waste less.
FORWARD_HOPPER: dict[tuple[int, bool], dict[int, dict[str, Any]]] = {
    (64, False): {0: {"stages": 3}},
    (64, True): {0: TWO_CTAS, 3072: {"consumers": 3, "stages": 3}},
    (128, False): {0: {}},
    (128, True): {0: {"block_n": 64, "stages": 4}, 1024: {}},
    (256, False): {0: {"block_n": 64}},
    (256, True): {0: {"block_n": 64}},
}
# width of a tile -> where a query attends to about so many keys, or more, of some ranges
MASKED_HOPPER: dict[int, dict[int, dict[str, Any]]] = {
    64: {0: TWO_CTAS, 3072: {}},
    128: {0: {"block_n": 64, "stages": 4}, 513: {}},
    256: {0: {"block_n": 64}},
}
HOPPER_DEFAULTS = {"block_n": 128, "stages": 2, "consumers": 2, "ctas_per_sm": 1}


class Choice(NamedTuple):
    """A kernel, the options it is launched with, and, if there are faster ones, why it is none of them."""

    name: str
    options: dict
    why: str


DECODE = Choice("decode", {}, "")


def choose(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions, *, backward: bool = False) -> Choice:
    """The kernels that `flash_attention` runs for these inputs, forward or backward."""
    if not backward and options.offsets is None and decodes(q, k):
        return DECODE
    why = _why_not_scores(options) or why_not_hopper(q, k, v, scale=options.scale)
    if why:
        return Choice("portable", {}, why)
    if backward:
        return Choice("hopper", {"deterministic": torch.are_deterministic_algorithms_enabled()}, "")
    if options.plain:
        return Choice("hopper", hopper_options(q.shape[2], q.shape[-1], options.causal), "")
    return Choice("hopper", hopper_options_of_masks(q, k, options), "")


def choose_forward(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float) -> Choice:
    """The same forward, full or causal."""
    return choose(q, k, v, plain_options(q.shape[-1], scale, causal))


def choose_backward(q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Choice:
    """The same backward, whatever the mask."""
    return choose(q, k, v, plain_options(q.shape[-1], scale, causal=False), backward=True)


@lru_cache(4096)
def hopper_options(N_q: int, D: int, causal: bool) -> dict[str, Any]:
    """The options of `attention_forward_hopper` for so many queries.

    Three consumers of 64 queries share K and V better than two, under a causal mask only in long sequences. They do not
    if they leave more of their tiles empty, by a sixteenth: 512 queries fill 4 tiles of 128, and of 3 of 192 one ninth
    is empty.
    """
    options = _of_length(FORWARD_HOPPER[hopper_width(D), causal], N_q)
    if D <= 64 and not causal and -(-N_q // 192) * 192 <= 17 / 16 * -(-N_q // 128) * 128:
        options = options | {"consumers": 3}
    return options


def hopper_options_of_masks(q: Tensor, k: Tensor, options: AttentionOptions) -> dict[str, Any]:
    """The options of `attention_forward_hopper` for ranges of keys."""
    sequences = 1 if options.offsets is None else options.offsets[0].numel() - 1
    seen = about_seen(k.shape[2], options.left, options.right, sequences)
    return _of_length(MASKED_HOPPER[hopper_width(q.shape[-1])], seen)


def _of_length(table: dict[int, dict[str, Any]], N: int) -> dict[str, Any]:
    """The last entry of the table that begins at N or before."""
    return table[max(start for start in table if start <= N)]


def hopper_width(D: int) -> int:
    """D rounded up to 64, 128 or 256: where the tables above have the launches. TMA fills up tiles with zeros.

    That is also the width of a tile, with two exceptions: of 129 to 192 columns it comes in three chunks of 64; backward, of 193
    to 256 in four.
    """
    return max(padded(D), 64)


def _why_not_scores(options: AttentionOptions) -> str:
    """What the Hopper kernels have against these options, or nothing."""
    if options.alibi is not None:
        return "alibi: the Hopper kernels know masks, softcaps and sinks"
    lowest, highest = SOFTCAPS
    if options.softcap is not None and not lowest <= options.softcap <= highest:
        within = f"{lowest} to {highest}, where their tanh is exact enough"
        return f"softcap = {options.softcap}: the Hopper kernels take {within}"
    return ""


def decodes(q: Tensor, k: Tensor) -> bool:
    """Whether few queries meet many keys: the time is that of reading K and V, which `attention_decode` does once.

    Few: those that share a key head fit one block. Other kernels pad the queries of every *single* head to a
    larger block, and read K and V for each. Many: there is something to split.
    """
    (_, H_q, N_q, _), (_, H_kv, N_k, _) = q.shape, k.shape
    rows = H_q // H_kv * N_q
    return not INTERPRETED and rows <= max_rows(q.element_size()) and N_k >= 2 * KEYS_PER_SPLIT


def why_not_hopper(q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> str:
    """Why the Hopper kernels cannot run; "" if they can."""
    if INTERPRETED:
        return "kernels run in the interpreter"
    if why := why_not_this_machine(q.device):
        return why
    if q.dtype not in (torch.float16, torch.bfloat16):
        return f"{q.dtype} inputs: tensor cores take 16 bits"
    if q.shape[-1] > 256:
        return f"D = {q.shape[-1]}: the accumulators of one warpgroup hold 256 columns"
    if not (q.numel() and k.numel()):
        return "an input is empty"
    if scale <= 0:
        return f"scale = {scale}: the maximum is taken before scaling"
    if scale < MIN_SCALE:  # lse, of at most 1e5, is divided by it in float32
        return f"scale = {scale}: lse / scale may overflow"
    row = q.shape[-1] * q.itemsize % 16  # the results are dense, also where the inputs are columns of wider tensors
    if row:
        return f"D = {q.shape[-1]}: a row of o ends {row} bytes past a multiple of 16, which TMA wants"
    for name, t in (("q", q), ("k", k), ("v", v)):
        if why := why_not_tma(t):
            return f"{name}: {why}"
    return ""


def why_not_tma(t: Tensor) -> str:
    """Why TMA cannot be used: it needs rows of whole 16 bytes, 16-byte aligned."""
    return "not aligned to 16 bytes" if t.data_ptr() % 16 else _why_not_these_strides(t.shape, t.stride(), t.itemsize)


@lru_cache(4096)
def _why_not_these_strides(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> str:
    if strides[-1] != 1 and shape[-1] > 1:
        return f"columns {strides[-1]} elements apart, where TMA wants 1"
    for size, stride in zip(shape[:-1], strides[:-1], strict=True):
        if size > 1 and (stride <= 0 or stride * itemsize % 16):
            return f"a stride of {stride} elements, where TMA wants a positive multiple of 16 bytes"
    return ""


@cache
def why_not_this_machine(device: torch.device) -> str:
    capability = torch.cuda.get_device_capability(device)
    if capability != HOPPER:
        return f"compute capability {capability}, where the kernel is written for {HOPPER}"
    if ".".join(triton.__version__.split(".")[:2]) not in GLUON_VERSIONS:
        _warn_of_version(triton.__version__)
        return f"Triton {triton.__version__}, where the kernel is made for {', '.join(GLUON_VERSIONS)}"
    return ""


@cache
def _warn_of_version(version: str) -> None:
    """Once in a process: a Hopper GPU runs slower kernels than it could, and what helps."""
    warnings.warn(
        "flash_attention runs its portable kernels on this Hopper GPU, slower than those made for it, "
        f"which are made for Triton {', '.join(GLUON_VERSIONS)}, and this is {version}. What helps: a PyTorch that "
        f"brings one of these, for instance 2.13, which brings Triton 3.7.1",
        stacklevel=2,
    )


def must_widen(q: Tensor) -> bool:
    """Whether 16-bit inputs are computed in float32.

    bfloat16 in the interpreter, because the interpreter gets it wrong. Both on a GPU without tensor cores for Triton
    (compute capability 7.5 and less), where 16-bit factors are widened for every product, and spill registers by the
    KB.
    """
    if INTERPRETED:
        return q.dtype == torch.bfloat16
    return q.element_size() == 2 and not has_tensor_cores(q.device)


def allow_tf32(q: Tensor) -> bool:
    """Whether the caller lets a GPU round float32 factors to TF32's 10 bits of mantissa."""
    return q.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
