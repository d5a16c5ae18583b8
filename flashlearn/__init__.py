"""flashlearn: how FlashAttention works, from softmax to Triton kernels. This file lists the public names."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import flashlearn.core.interpreter  # noqa: F401  it must come before Triton

if TYPE_CHECKING:
    from flashlearn.algorithms.attention import one_pass_attention as one_pass_attention
    from flashlearn.algorithms.attention import one_pass_attention_steps as one_pass_attention_steps
    from flashlearn.algorithms.attention import standard_attention as standard_attention
    from flashlearn.algorithms.attention import standard_attention_steps as standard_attention_steps
    from flashlearn.algorithms.attention import two_pass_attention as two_pass_attention
    from flashlearn.algorithms.attention import two_pass_attention_steps as two_pass_attention_steps
    from flashlearn.algorithms.gradients import attention_backward as attention_backward
    from flashlearn.algorithms.gradients import attention_backward_steps as attention_backward_steps
    from flashlearn.algorithms.gradients import contract as contract
    from flashlearn.algorithms.gradients import contract_steps as contract_steps
    from flashlearn.algorithms.gradients import matmul_backward as matmul_backward
    from flashlearn.algorithms.gradients import matmul_backward_steps as matmul_backward_steps
    from flashlearn.algorithms.gradients import softmax_backward as softmax_backward
    from flashlearn.algorithms.gradients import softmax_backward_steps as softmax_backward_steps
    from flashlearn.algorithms.matmul import tiled_matmul as tiled_matmul
    from flashlearn.algorithms.matmul import tiled_matmul_steps as tiled_matmul_steps
    from flashlearn.algorithms.matmul import tiled_qkv as tiled_qkv
    from flashlearn.algorithms.matmul import tiled_qkv_steps as tiled_qkv_steps
    from flashlearn.algorithms.merging import merge_attentions as merge_attentions
    from flashlearn.algorithms.paged import paged_attention as paged_attention
    from flashlearn.algorithms.paged import paged_attention_steps as paged_attention_steps
    from flashlearn.algorithms.softmax import blocked_softmax as blocked_softmax
    from flashlearn.algorithms.softmax import blocked_softmax_steps as blocked_softmax_steps
    from flashlearn.algorithms.softmax import merge as merge
    from flashlearn.algorithms.softmax import merge_tree as merge_tree
    from flashlearn.algorithms.softmax import merge_tree_steps as merge_tree_steps
    from flashlearn.algorithms.softmax import naive_softmax as naive_softmax
    from flashlearn.algorithms.softmax import naive_softmax_steps as naive_softmax_steps
    from flashlearn.algorithms.softmax import online_softmax as online_softmax
    from flashlearn.algorithms.softmax import online_softmax_steps as online_softmax_steps
    from flashlearn.algorithms.softmax import safe_softmax as safe_softmax
    from flashlearn.algorithms.softmax import safe_softmax_steps as safe_softmax_steps
    from flashlearn.algorithms.tiled import fitting_block_sizes as fitting_block_sizes
    from flashlearn.algorithms.tiled import paper_block_sizes as paper_block_sizes
    from flashlearn.algorithms.tiled import sram_elements as sram_elements
    from flashlearn.algorithms.tiled import tiled_attention_v1 as tiled_attention_v1
    from flashlearn.algorithms.tiled import tiled_attention_v1_lines as tiled_attention_v1_lines
    from flashlearn.algorithms.tiled import tiled_attention_v1_steps as tiled_attention_v1_steps
    from flashlearn.algorithms.tiled import tiled_attention_v2 as tiled_attention_v2
    from flashlearn.algorithms.tiled import tiled_attention_v2_steps as tiled_attention_v2_steps
    from flashlearn.algorithms.tiled import visited_blocks as visited_blocks
    from flashlearn.algorithms.tiled_backward import tiled_attention_backward as tiled_attention_backward
    from flashlearn.algorithms.tiled_backward import tiled_attention_backward_steps as tiled_attention_backward_steps
    from flashlearn.core.hbm import HBM as HBM
    from flashlearn.core.mask import Mask as Mask
    from flashlearn.core.steps import Step as Step
    from flashlearn.core.steps import Tile as Tile
    from flashlearn.core.steps import Traffic as Traffic
    from flashlearn.core.steps import hbm_bytes as hbm_bytes
    from flashlearn.core.steps import last as last
    from flashlearn.core.steps import matmul_flops as matmul_flops
    from flashlearn.core.steps import passes as passes
    from flashlearn.core.steps import record as record
    from flashlearn.core.steps import run as run
    from flashlearn.core.steps import sram_peak as sram_peak
    from flashlearn.fast.api import flash_attention as flash_attention
    from flashlearn.fast.explanation import explain as explain
    from flashlearn.fast.paged import flash_attention_paged as flash_attention_paged
    from flashlearn.fast.varlen import flash_attention_varlen as flash_attention_varlen
    from flashlearn.show.projection import projector as projector

__version__ = "0.3.0.dev0"

# Where the public names are, each imported when it is first used: `--help` then needs no PyTorch, the algorithms no Triton,
# and nothing but the projector the extra `notebooks`.
HOMES = {
    "flashlearn.fast.api": ("flash_attention",),
    "flashlearn.fast.varlen": ("flash_attention_varlen",),
    "flashlearn.fast.paged": ("flash_attention_paged",),
    "flashlearn.fast.explanation": ("explain",),
    "flashlearn.algorithms.merging": ("merge_attentions",),
    "flashlearn.core.hbm": ("HBM",),
    "flashlearn.core.mask": ("Mask",),
    "flashlearn.core.steps": (
        "Step",
        "Tile",
        "Traffic",
        "hbm_bytes",
        "last",
        "matmul_flops",
        "passes",
        "record",
        "run",
        "sram_peak",
    ),
    "flashlearn.algorithms.attention": (
        "one_pass_attention",
        "one_pass_attention_steps",
        "standard_attention",
        "standard_attention_steps",
        "two_pass_attention",
        "two_pass_attention_steps",
    ),
    "flashlearn.algorithms.gradients": (
        "attention_backward",
        "attention_backward_steps",
        "contract",
        "contract_steps",
        "matmul_backward",
        "matmul_backward_steps",
        "softmax_backward",
        "softmax_backward_steps",
    ),
    "flashlearn.algorithms.matmul": ("tiled_matmul", "tiled_matmul_steps", "tiled_qkv", "tiled_qkv_steps"),
    "flashlearn.algorithms.paged": ("paged_attention", "paged_attention_steps"),
    "flashlearn.algorithms.softmax": (
        "blocked_softmax",
        "blocked_softmax_steps",
        "merge",
        "merge_tree",
        "merge_tree_steps",
        "naive_softmax",
        "naive_softmax_steps",
        "online_softmax",
        "online_softmax_steps",
        "safe_softmax",
        "safe_softmax_steps",
    ),
    "flashlearn.algorithms.tiled": (
        "fitting_block_sizes",
        "paper_block_sizes",
        "sram_elements",
        "tiled_attention_v1",
        "tiled_attention_v1_lines",
        "tiled_attention_v1_steps",
        "tiled_attention_v2",
        "tiled_attention_v2_steps",
        "visited_blocks",
    ),
    "flashlearn.algorithms.tiled_backward": ("tiled_attention_backward", "tiled_attention_backward_steps"),
    "flashlearn.show.projection": ("projector",),
}
LATER = {name: module for module, names in HOMES.items() for name in names}
__all__ = list(LATER)


def __dir__() -> list[str]:
    """The public names alone; `dir` sorts what it gets."""
    return list(__all__)


if not TYPE_CHECKING:  # it would believe in any name

    def __getattr__(name: str) -> Any:
        """A public name, imported now."""
        if name not in LATER:
            raise AttributeError(f"module 'flashlearn' has no attribute {name!r}")
        home = LATER[name]
        if home.startswith("flashlearn.show."):
            home = "flashlearn.show"  # which says what is missing
        try:
            found = getattr(import_module(home), name)
        except ImportError as error:
            if not home.startswith(("flashlearn.fast.", "flashlearn.kernels.", "flashlearn.show")):
                raise
            found = _missing(name, error)  # Triton or the extra `notebooks` is missing
        globals()[name] = found  # the next time it is found at once
        return found

    def _missing(name: str, error: ImportError) -> Any:
        """A function that says what is missing when it is called: `help` and `import *` can look at it all the same."""

        def missing(*given: Any, **options: Any) -> Any:
            raise error

        missing.__name__ = missing.__qualname__ = name
        missing.__doc__ = f"Not available here: {error}"
        return missing
