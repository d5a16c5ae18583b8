"""Pictures of one step. A `draw_*` function paints a step on axes and knows nothing of the algorithm."""

from flashlearn.show.draw.backward import draw_backward
from flashlearn.show.draw.backward_chip import draw_backward_chip, draw_sums
from flashlearn.show.draw.barriers import draw_barriers
from flashlearn.show.draw.converge import draw_converge
from flashlearn.show.draw.curves import (
    draw_block_sizes,
    draw_budgets,
    draw_rates,
    draw_sustained,
    draw_training,
    draw_versions,
    panels_of,
)
from flashlearn.show.draw.from_kernel import drawable, without_numbers
from flashlearn.show.draw.gradients import draw_gradient_row, draw_gradients
from flashlearn.show.draw.jacobian import draw_jacobian
from flashlearn.show.draw.masks import draw_masks, draw_reach, draw_tables, draw_visits
from flashlearn.show.draw.matmul import draw_matmul
from flashlearn.show.draw.memory import budget_step, draw_budget, draw_memory
from flashlearn.show.draw.overlap import draw_overlap
from flashlearn.show.draw.own_scales import draw_own_scales
from flashlearn.show.draw.pages import draw_pages
from flashlearn.show.draw.parts import draw_colour_key
from flashlearn.show.draw.pipeline import draw_pipeline
from flashlearn.show.draw.programs import draw_programs
from flashlearn.show.draw.projection import draw_projection
from flashlearn.show.draw.query import draw_query
from flashlearn.show.draw.ring import draw_clocks, draw_ring
from flashlearn.show.draw.roofline import draw_roofline
from flashlearn.show.draw.row import draw_row, draw_terms
from flashlearn.show.draw.sheet import Rect, Sheet
from flashlearn.show.draw.strides import draw_sectors, draw_strides
from flashlearn.show.draw.style import COLOURS, colour, tint
from flashlearn.show.draw.tiling import draw_tiling
from flashlearn.show.draw.traffic import draw_round_trip, draw_traffic
from flashlearn.show.draw.tree import draw_tree
from flashlearn.show.draw.walk import draw_walk
