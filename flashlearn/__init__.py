"""flashlearn: how FlashAttention works, from softmax to Triton kernels. This file lists the public names."""

from flashlearn.softmax import (
    blocked_softmax,
    blocked_softmax_steps,
    merge,
    merge_tree,
    merge_tree_steps,
    naive_softmax,
    naive_softmax_steps,
    online_softmax,
    online_softmax_steps,
    safe_softmax,
    safe_softmax_steps,
)
from flashlearn.steps import Step, Tile, Traffic, hbm_bytes, last, matmul_flops, passes, record, run, sram_peak

__all__ = [
    "Step", "Tile", "Traffic", "blocked_softmax", "blocked_softmax_steps", "hbm_bytes", "last", "matmul_flops",
    "merge", "merge_tree", "merge_tree_steps", "naive_softmax", "naive_softmax_steps", "online_softmax",
    "online_softmax_steps", "passes", "record", "run", "safe_softmax", "safe_softmax_steps", "sram_peak",
]  # fmt: skip
