"""Pictures of one step. A `draw_*` function paints a step on axes and knows nothing of the algorithm."""

from flashlearn.draw.converge import draw_converge
from flashlearn.draw.query import draw_query
from flashlearn.draw.row import draw_row
from flashlearn.draw.style import COLOURS, colour, draw_colour_key
from flashlearn.draw.tree import draw_tree

__all__ = ["COLOURS", "colour", "draw_colour_key", "draw_converge", "draw_query", "draw_row", "draw_tree"]
