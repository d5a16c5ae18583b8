"""Pictures of one step. A `draw_*` function makes a scene of a step and knows nothing of the algorithm.

`draw_*` of steps return a `Scene`; those of measurements and formulas plot on matplotlib's axes.
"""

import importlib
from typing import Any

# Where each name lives, to be imported when it is first used: a scene needs no matplotlib.
HOMES = {
    "backward": ("draw_backward",),
    "backward_chip": ("draw_backward_chip", "draw_sums"),
    "barriers": ("draw_barriers",),
    "converge": ("draw_converge",),
    "curves": (
        "draw_block_sizes",
        "draw_budgets",
        "draw_rates",
        "draw_sustained",
        "draw_training",
        "draw_versions",
        "panels_of",
    ),
    "from_kernel": ("drawable", "without_numbers"),
    "gradients": ("draw_gradient_row", "draw_gradients"),
    "jacobian": ("draw_jacobian",),
    "masks": ("draw_masks", "draw_reach", "draw_tables", "draw_visits"),
    "matmul": ("draw_matmul",),
    "memory": ("budget_step", "draw_budget", "draw_colour_key", "draw_memory"),
    "overlap": ("draw_overlap",),
    "own_scales": ("draw_own_scales",),
    "pages": ("draw_pages",),
    "pipeline": ("draw_pipeline",),
    "programs": ("draw_programs",),
    "projection": ("draw_projection",),
    "query": ("draw_query",),
    "ring": ("draw_clocks", "draw_ring"),
    "roofline": ("draw_roofline",),
    "row": ("draw_row", "draw_terms"),
    "scene": ("Grid", "Rect", "Scene", "paint", "scene_of"),
    "strides": ("draw_sectors", "draw_strides"),
    "style": ("COLOURS", "colour", "stylesheet", "tint"),
    "tiling": ("draw_tiling",),
    "traffic": ("draw_round_trip", "draw_traffic"),
    "tree": ("draw_tree",),
    "walk": ("draw_walk",),
}
_HOME = {name: home for home, names in HOMES.items() for name in names}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'flashlearn.show.draw' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"flashlearn.show.draw.{_HOME[name]}"), name)
    globals()[name] = found  # the next time it is found at once
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
