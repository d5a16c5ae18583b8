"""The computation of one process: attention of some queries with some keys and values, and its gradients.

On a GPU `flash_attention` computes them. On a CPU, and for float64, the algorithms in PyTorch do: `tiled_attention_v2`
and `tiled_attention_backward`. With `INTERPRET`, for tests, the kernel runs on a CPU too, in Triton's interpreter.

The gradients take o and lse of the *whole* sequence. Then P = exp(S - lse) has the weights of these keys among all
keys, and delta = rowsum(dO o O) belongs to the query, not to the visit. So the gradients of visits add up.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flashlearn.algorithms.tiled import tiled_attention_v2
from flashlearn.algorithms.tiled_backward import tiled_attention_backward
from flashlearn.core.mask import limits
from flashlearn.core.numerics import Span, exp_diff, wide
from flashlearn.ring.plan import Visit

BLOCK = 128  # of the algorithms in PyTorch: large, to be quick
WIDEST = 256  # columns that the kernels take
INTERPRET = False


class Queries(NamedTuple):
    """The queries of a share, or some of them, for the backward pass: dO and dlse, Q, O and lse.

    O and lse, and their gradients, belong to the whole sequence; dlse is None where nobody used lse.
    """

    do: Tensor
    dlse: Tensor | None
    q: Tensor
    o: Tensor
    lse: Tensor

    def part(self, heads: slice, span: Span) -> Queries:
        """Some heads of some queries."""
        tokens = slice(*span)
        return Queries(*(None if t is None else t[:, heads, tokens] for t in self))  # type: ignore[arg-type]


def forward(q: Tensor, k: Tensor, v: Tensor, visit: Visit, scale: float) -> tuple[Tensor, Tensor]:
    """o, shaped as q, and lse (B, H_q, N_q), of these keys alone, under the mask of the visit."""
    window = (visit.left, visit.right)
    if by_kernel(q):
        from flashlearn.fast.api import flash_attention

        return flash_attention(q, k, v, window=window, scale=scale, return_lse=True)
    return tiled_attention_v2(q, k, v, window=window, scale=scale, return_lse=True, block_q=BLOCK, block_k=BLOCK)


def backward(queries: Queries, k: Tensor, v: Tensor, visit: Visit, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The contributions of these keys to dq, dk and dv, under the mask of the visit."""
    do, dlse, q, o, lse = queries
    if by_kernel(q):
        dlse = None if dlse is None else dlse.contiguous()
        return _by_operator(Queries(do, dlse, q, o, lse.contiguous()), k, v, visit, scale)
    options: dict[str, Any] = {"window": (visit.left, visit.right), "scale": scale, "block_q": BLOCK, "block_k": BLOCK}
    if dlse is None:
        return tiled_attention_backward(do, q, k, v, o, lse, **options)
    wide_q, wide_k, wide_v = (_wider(t, 0) for t in (q, k, v))
    wide_do, wide_o = _wider(do, -dlse[..., None]), _wider(o, 1)
    dq, dk, dv = tiled_attention_backward(wide_do, wide_q, wide_k, wide_v, wide_o, lse, **options)
    return tuple(t[..., :-1].to(q.dtype) for t in (dq, dk, dv))


def _by_operator(queries: Queries, k: Tensor, v: Tensor, visit: Visit, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The derivative that `flash_attention` registers, of the plain operator or of that with masks, by itself."""
    import flashlearn.fast.api  # noqa: F401  registers the operators
    from flashlearn.core.options import AttentionOptions
    from flashlearn.fast.operators import flat

    do, dlse, q, o, lse = queries
    left, right = limits((visit.left, visit.right), False, q.shape[2], k.shape[2])
    if left is None and right in (None, 0):
        return torch.ops.flashlearn.attention_backward(do, dlse, q, k, v, o, lse, right == 0, scale)
    options = flat(AttentionOptions(q.shape[-1], v.shape[-1], scale, left=left, right=right))
    return torch.ops.flashlearn.general_backward(do, dlse, q, k, v, o, lse, *options, False)[:3]


def _wider(t: Tensor, column: Tensor | float) -> Tensor:
    """One column more: of -dlse in dO, 1 in O and 0 in V it makes delta = rowsum(dO o O) - dlse, and changes nothing else."""
    t = wide(t)
    column = t.new_full((*t.shape[:-1], 1), column) if isinstance(column, (int, float)) else column.to(t.dtype)
    return torch.cat([t, column], -1)


def by_kernel(q: Tensor) -> bool:
    """Whether the kernels take these inputs."""
    narrow = q.dtype in (torch.float16, torch.bfloat16, torch.float32) and q.shape[-1] <= WIDEST
    return narrow and (q.is_cuda or INTERPRET) and find_spec("triton") is not None


def merge(a: Tensor, lse_a: Tensor, b: Tensor, lse_b: Tensor, out: Tensor) -> None:
    """Two results over different keys become one, as in notebook 03; lse_a becomes that of both.

        lse = log(e^lse_a + e^lse_b)        out = a e^(lse_a - lse) + b e^(lse_b - lse)

    a, b and out are (B, H, N, D) in any dtypes, summed in float32 (float64 for float64); out may be a.
    """
    if a.is_cuda and a.dtype != torch.float64:
        from flashlearn.ring.merge_kernel import merge_on_gpu

        return merge_on_gpu(a, lse_a, b, lse_b, out)
    lse = torch.logaddexp(lse_a, lse_b)
    total = a.to(lse.dtype) * exp_diff(lse_a, lse)[..., None] + b.to(lse.dtype) * exp_diff(lse_b, lse)[..., None]
    out.copy_(total)
    lse_a.copy_(lse)
    return None
