"""The cost of each algorithm in closed form, and the time of a GPU for it: FLOPs, HBM bytes, the roofline."""

from flashlearn.cost.fit import fitted
from flashlearn.cost.formulas import (
    ATTENTION_COSTS,
    Cost,
    counted,
    fused_backward_cost,
    ideal_cost,
    matmul_cost,
    one_pass_cost,
    operations,
    softmax_cost,
    standard_backward_cost,
    standard_cost,
    standard_kernels,
    stored_backward_cost,
    two_pass_backward_cost,
    two_pass_cost,
    v1_cost,
    v2_cost,
)
from flashlearn.cost.hardware import A100_40GB, H100_SXM, H200_SXM, HARDWARE, RTX_4060_LAPTOP, Hardware
from flashlearn.cost.racing import Runner, race
from flashlearn.cost.roofline import Placement, intensities, placement, placement_table
from flashlearn.cost.serving import cache_bytes, decode_cost, latent_cache_bytes, latent_decode_cost, paged_cost

__all__ = [
    "A100_40GB",
    "ATTENTION_COSTS",
    "Cost",
    "H100_SXM",
    "H200_SXM",
    "HARDWARE",
    "Hardware",
    "Runner",
    "Placement",
    "RTX_4060_LAPTOP",
    "cache_bytes",
    "counted",
    "decode_cost",
    "fitted",
    "fused_backward_cost",
    "ideal_cost",
    "intensities",
    "latent_cache_bytes",
    "latent_decode_cost",
    "matmul_cost",
    "one_pass_cost",
    "operations",
    "paged_cost",
    "placement",
    "placement_table",
    "race",
    "softmax_cost",
    "standard_backward_cost",
    "standard_cost",
    "standard_kernels",
    "stored_backward_cost",
    "two_pass_cost",
    "two_pass_backward_cost",
    "v1_cost",
    "v2_cost",
]
