"""flashlearn: how FlashAttention works, from softmax to Triton kernels. This file lists the public names."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import flashlearn.core.interpreter  # noqa: F401  it must come before Triton
from flashlearn._moved import Finder, Later

if TYPE_CHECKING:
    from flashlearn.core.hbm import HBM
    from flashlearn.core.mask import Mask
    from flashlearn.core.steps import (
        Step,
        Tile,
        Traffic,
        hbm_bytes,
        last,
        matmul_flops,
        passes,
        record,
        run,
        sram_peak,
    )
    from flashlearn.kernels.explanation import explain
    from flashlearn.kernels.op import flash_attention
    from flashlearn.kernels.paged import flash_attention_paged
    from flashlearn.kernels.varlen import flash_attention_varlen
    from flashlearn.rungs.attention import (
        one_pass_attention,
        one_pass_attention_steps,
        standard_attention,
        standard_attention_steps,
        two_pass_attention,
        two_pass_attention_steps,
    )
    from flashlearn.rungs.gradients import (
        attention_backward,
        attention_backward_steps,
        contract,
        contract_steps,
        matmul_backward,
        matmul_backward_steps,
        softmax_backward,
        softmax_backward_steps,
    )
    from flashlearn.rungs.matmul import tiled_matmul, tiled_matmul_steps, tiled_qkv, tiled_qkv_steps
    from flashlearn.rungs.merging import merge_attentions
    from flashlearn.rungs.paged import paged_attention, paged_attention_steps
    from flashlearn.rungs.softmax import (
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
    from flashlearn.rungs.tiled import (
        fitting_block_sizes,
        paper_block_sizes,
        sram_elements,
        tiled_attention_v1,
        tiled_attention_v1_lines,
        tiled_attention_v1_steps,
        tiled_attention_v2,
        tiled_attention_v2_steps,
        visited_blocks,
    )
    from flashlearn.rungs.tiled_backward import tiled_attention_backward, tiled_attention_backward_steps
    from flashlearn.show.projection import projector

__version__ = "0.2.0.dev0"

# Where the public names are, each imported when it is first used: `--help` then needs no PyTorch, the algorithms no Triton,
# and nothing but the projector the extra `notebooks`.
HOMES = {
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
    "flashlearn.kernels.explanation": ("explain",),
    "flashlearn.kernels.op": ("flash_attention",),
    "flashlearn.kernels.paged": ("flash_attention_paged",),
    "flashlearn.kernels.varlen": ("flash_attention_varlen",),
    "flashlearn.rungs.attention": (
        "one_pass_attention",
        "one_pass_attention_steps",
        "standard_attention",
        "standard_attention_steps",
        "two_pass_attention",
        "two_pass_attention_steps",
    ),
    "flashlearn.rungs.gradients": (
        "attention_backward",
        "attention_backward_steps",
        "contract",
        "contract_steps",
        "matmul_backward",
        "matmul_backward_steps",
        "softmax_backward",
        "softmax_backward_steps",
    ),
    "flashlearn.rungs.matmul": ("tiled_matmul", "tiled_matmul_steps", "tiled_qkv", "tiled_qkv_steps"),
    "flashlearn.rungs.merging": ("merge_attentions",),
    "flashlearn.rungs.paged": ("paged_attention", "paged_attention_steps"),
    "flashlearn.rungs.softmax": (
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
    "flashlearn.rungs.tiled": (
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
    "flashlearn.rungs.tiled_backward": ("tiled_attention_backward", "tiled_attention_backward_steps"),
    "flashlearn.show.projection": ("projector",),
}
LATER = {name: module for module, names in HOMES.items() for name in names}

if not any(isinstance(finder, Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, Finder())  # first: in an old package others would find its modules, and run them again
sys.modules.setdefault("flashlearn.projector", Later("flashlearn.projector"))  # entered where imports look first

__all__ = [
    "flash_attention",
    "flash_attention_varlen",
    "flash_attention_paged",
    "explain",
    "merge_attentions",
    "HBM",
    "Mask",
    "Step",
    "Tile",
    "Traffic",
    "attention_backward",
    "attention_backward_steps",
    "blocked_softmax",
    "blocked_softmax_steps",
    "contract",
    "contract_steps",
    "fitting_block_sizes",
    "hbm_bytes",
    "last",
    "matmul_backward",
    "matmul_backward_steps",
    "matmul_flops",
    "merge",
    "merge_tree",
    "merge_tree_steps",
    "naive_softmax",
    "naive_softmax_steps",
    "one_pass_attention",
    "one_pass_attention_steps",
    "online_softmax",
    "online_softmax_steps",
    "paper_block_sizes",
    "paged_attention",
    "paged_attention_steps",
    "passes",
    "projector",
    "record",
    "run",
    "safe_softmax",
    "safe_softmax_steps",
    "softmax_backward",
    "softmax_backward_steps",
    "sram_elements",
    "sram_peak",
    "standard_attention",
    "standard_attention_steps",
    "tiled_attention_backward",
    "tiled_attention_backward_steps",
    "tiled_attention_v1",
    "tiled_attention_v1_lines",
    "tiled_attention_v1_steps",
    "tiled_attention_v2",
    "tiled_attention_v2_steps",
    "tiled_matmul",
    "tiled_matmul_steps",
    "tiled_qkv",
    "tiled_qkv_steps",
    "two_pass_attention",
    "two_pass_attention_steps",
    "visited_blocks",
]


def __dir__() -> list[str]:
    """The public names alone, as `__all__` orders them; `dir` sorts what it gets."""
    return list(__all__)


if not TYPE_CHECKING:  # it would believe in any name

    def __getattr__(name: str) -> Any:
        """A public name, imported now."""
        if name not in LATER:
            raise AttributeError(f"module 'flashlearn' has no attribute {name!r}")
        try:
            found = getattr(import_module(LATER[name]), name)
        except ImportError as error:
            if not LATER[name].startswith(("flashlearn.kernels.", "flashlearn.show.")):
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
