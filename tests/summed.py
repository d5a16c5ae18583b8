"""Where the numbers of dQ lie among the sums of the Hopper backward pass, as `preprocess` tells, by PyTorch alone."""

from __future__ import annotations

import torch
from torch import Tensor


def places(N: int, D: int) -> Tensor:
    """(N, D): the place of query i and column d in the sums of a head, flat."""
    rows = 128 if D <= 64 else 64  # queries of a block
    i, d = torch.arange(N)[:, None], torch.arange(D)[None, :]
    tile = i // rows * tiles(D) + (d // 64 if rows == 64 else i % 128 // 64)
    r, c = i % 64, d % 64
    w, h, g, j, t, p = r // 16, r % 16 // 8, r % 8, c // 8, c % 8 // 2, c % 2
    return tile * 4096 + 4 * (32 * (8 * w + j) + 4 * g + t) + 2 * h + p


def tiles(D: int) -> int:
    """Tiles, 64 by 64, of a block of queries."""
    return max(2, -(-D // 64))


def as_summed(dq: Tensor) -> Tensor:
    """dq (B, H, N, D) as sums (B, H, blocks * tiles * 128, 32); NaN where there is no query or column."""
    B, H, N, D = dq.shape
    blocks = -(-N // (128 if D <= 64 else 64))
    sums = torch.full((B, H, blocks * tiles(D) * 4096), float("nan"), device=dq.device)
    sums[..., places(N, D).flatten().to(dq.device)] = dq.flatten(2)
    return sums.view(B, H, blocks * tiles(D) * 128, 32)


def as_dq(sums: Tensor, N: int, D: int) -> Tensor:
    """dq (B, H, N, D) from its sums."""
    return sums.flatten(2)[..., places(N, D)]
