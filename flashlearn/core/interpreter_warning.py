"""A warning, once, if a call takes over a second in Triton's interpreter.

The interpreter makes one NumPy call for each operation of a kernel. So its time is that of the tile steps. A block of
queries with a block of keys takes about 2 ms, whatever D is, and 3 ms with a softcap or slopes.
"""

from __future__ import annotations

import warnings
from functools import cache

from torch import Tensor

from flashlearn.core.mask import Mask
from flashlearn.core.numerics import spans
from flashlearn.core.options import AttentionOptions
from flashlearn.core.pages import PagedSizes

STEP, STEP_OF_SCORES = 2e-3, 3e-3  # seconds; Triton 3.7, one core, D 16 to 256, forward and backward
BLOCK = 64, 64  # queries and keys of a tile there
LIMIT = 1.0  # seconds that a caller waits without a word


def warn_if_slow(q: Tensor, k: Tensor, options: AttentionOptions, *, back: bool = False) -> None:
    """Warn if the interpreter takes over a second for the portable kernels, of which the backward pass launches two."""
    steps = (1 + back) * tile_steps(q, k, *BLOCK, options)
    what = "the backward pass of flash_attention" if back else "flash_attention"
    _warn(what, steps, STEP_OF_SCORES if options.changes_scores else STEP)


def tile_steps(q: Tensor, k: Tensor, block_q: int, block_k: int, options: AttentionOptions) -> int:
    """The number of visited pairs of a block of queries and a block of keys, over all heads; padding counts as keys."""
    (B, H_q, N_q, _), N_k = q.shape, k.shape[2]
    lengths = [(N_q, N_k)]
    if options.sequences is not None:
        queries_of, keys_of = (offsets.diff().tolist() for offsets in options.sequences)
        lengths = list(zip(queries_of, keys_of, strict=True))
    masks = [Mask(n, N, options.left, options.right) for n, N in lengths]
    return B * H_q * sum(len(m.key_blocks(rows, block_k)) for m in masks for rows in spans(m.N_q, block_q))


def warn_if_slow_paged(
    sizes: PagedSizes, lengths: Tensor, cu_seqlens_q: Tensor | None, left: int | None, block: tuple[int, int]
) -> None:
    """The same of `flash_attention_paged`, whose tile of queries has those of all heads that share a key head."""
    queries = [sizes.N_q or 0] * sizes.B if cu_seqlens_q is None else cu_seqlens_q.diff().tolist()
    steps = 0
    for n, N in zip(queries, lengths.tolist(), strict=True):
        keys = N if left is None else min(N, n + left)
        steps += sizes.H_kv * -(-n * sizes.group // block[0]) * -(-keys // block[1])
    _warn("flash_attention_paged", steps, STEP)


def _warn(what: str, steps: int, seconds: float) -> None:
    if steps * seconds > LIMIT and not _said():
        _said().append(what)
        warnings.warn(
            f"{what} takes about {steps * seconds:.1f} s here or more: its kernels run in Triton's interpreter, on the CPU, "
            f"which needs {1000 * seconds:.0f} ms for each pair of a block of queries and a block of keys, of which there are "
            f"{steps:,}. It is for lessons and tests: use smaller inputs, a GPU, or "
            "torch.nn.functional.scaled_dot_product_attention. This is said once",
            stacklevel=3,
        )


@cache
def _said() -> list[str]:
    """The warnings that this process has given."""
    return []
