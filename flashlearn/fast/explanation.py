"""What `flash_attention` runs for given inputs: which kernel, with blocks of which size, and why nothing faster.

    >>> print(fl.explain(q, k, v, causal=True))                                    # doctest: +SKIP
    NVIDIA H200, Triton 3.7.1
    forward:  hopper, blocks of 128 queries by 128 keys (o)
    backward: hopper, blocks of 64 queries by 128 keys (dq, dk, dv)

Nothing is computed, and nothing compiled. The kernels, from the fastest on:

    hopper     for an H100, H200 or GH200: Gluon, 16-bit inputs, D up to 256
    decode     few queries behind many keys
    portable   plain Triton, for any other GPU, any other input, and Triton's interpreter
"""

from __future__ import annotations

from typing import NamedTuple

import triton
from torch import Tensor

from flashlearn.core.mask import KeyRange, Window
from flashlearn.core.options import check_tensors
from flashlearn.core.target import INTERPRETED, backend
from flashlearn.fast.api import options_of, prepare, without_causal
from flashlearn.fast.decode import cut, decode_launch
from flashlearn.fast.dispatch import HOPPER_DEFAULTS, Choice, choose, must_widen
from flashlearn.fast.portable.launches import DKDV, DQ, FORWARD, has_tensor_cores, portable_launch


class Explained(NamedTuple):
    """One direction: the kernel, {results: (queries, keys) of a block}, and why no faster one runs."""

    kernel: str
    blocks: dict[str, tuple[int, int]]
    why: str

    def __str__(self) -> str:
        sizes = "; ".join(f"{queries} queries by {keys} keys ({what})" for what, (queries, keys) in self.blocks.items())
        return f"{self.kernel}, blocks of {sizes}" + (f"; why nothing faster: {self.why}" if self.why else "")


class Explanation(NamedTuple):
    """Where kernels run, and which, forward and backward; printed, a line each.

    window   what a window amounts to that hides nothing, or no more than `causal`; else ""
    """

    where: str
    forward: Explained
    backward: Explained
    window: str = ""

    def __str__(self) -> str:
        lines = (self.where, self.window, f"forward:  {self.forward}", f"backward: {self.backward}")
        return "\n".join(line for line in lines if line)


def explain(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, window: Window | None = None,
    documents: Tensor | None = None, key_range: KeyRange | None = None, softcap: float | None = None,
    alibi: Tensor | None = None, sinks: Tensor | None = None, scale: float | None = None,
) -> Explanation:  # fmt: skip
    """What `flash_attention` with the same arguments and its backward pass would run, and why.

    Takes and rejects what `flash_attention` does, but for `return_lse` and `check`, and like it looks at offsets and ranges in
    the interpreter alone: a GPU is not waited for. A window that hides nothing, or no more than `causal`, is named in a line
    of its own. Autocast counts, and so do `torch.use_deterministic_algorithms` and the layout of the tensors.
    """
    q, k, v, scale = prepare(q, k, v, causal, scale)
    asked = window
    window, causal = without_causal(window, causal, q.shape[2], k.shape[2])
    options = options_of(
        q, k, causal=causal, window=window, documents=documents, key_range=key_range,
        softcap=softcap, alibi=alibi, sinks=sinks, scale=scale,
    )  # fmt: skip
    if INTERPRETED:
        check_tensors(options, q, k, read=True)
    if must_widen(q):
        q, k, v = q.float(), k.float(), v.float()
    forward, backward = (choose(q, k, v, options, backward=back) for back in (False, True))
    where = "Triton's interpreter, on the CPU" if INTERPRETED else backend()
    return Explanation(
        f"{where}, Triton {triton.__version__}",
        Explained(forward.name, _forward_blocks(forward, q, k, options.left), _why(forward, q)),
        Explained(backward.name, _backward_blocks(backward, q), _why(backward, q)),
        "" if asked is None or window is not None else _said_of(asked, causal, k.shape[2]),
    )


def _said_of(window: Window, causal: bool, N_k: int) -> str:
    """What a window that is none amounts to."""
    hides = "no more than causal=True does" if causal else "nothing"
    return f"window:   {window} hides {hides}, with {N_k} keys"


def _forward_blocks(choice: Choice, q: Tensor, k: Tensor, left: int | None) -> dict[str, tuple[int, int]]:
    D, itemsize = q.shape[-1], q.element_size()
    if choice.name == "hopper":
        options = HOPPER_DEFAULTS | choice.options
        return {"o": (64 * options["consumers"], options["block_n"])}
    if choice.name == "decode":
        return {"o": decode_launch(q.shape[1] // k.shape[1] * q.shape[2], D, itemsize, cut(q, k, left)[1])[:2]}
    return {"o": portable_launch(FORWARD, D, itemsize, q.device)[:2]}


def _backward_blocks(choice: Choice, q: Tensor) -> dict[str, tuple[int, int]]:
    D, itemsize = q.shape[-1], q.element_size()
    if choice.name == "hopper":
        return {"dq, dk, dv": (128 if D <= 64 else 64, 64 if D > 128 else 128)}
    tables = {"dk, dv": DKDV, "dq": DQ}
    return {what: portable_launch(table, D, itemsize, q.device)[:2] for what, table in tables.items()}


def _why(choice: Choice, q: Tensor) -> str:
    """The choice's reason, and on a GPU whose tensor cores Triton cannot reach, that."""
    if choice.name == "portable" and not INTERPRETED and not has_tensor_cores(q.device):
        return f"{choice.why}; Triton has no path to the tensor cores of this GPU: products are ordinary arithmetic"
    return choice.why
