"""The work of a Triton kernel before it computes, as steps; nothing here runs on a GPU.

Turn an index into an address (layout), a program id into a block (grid), start loads before their values are
needed (pipeline), and overlap the units of an SM (overlap).
"""

from flashlearn.gpu.layout import layout_steps
from flashlearn.gpu.pipeline import pipeline_schedule, pipeline_steps
from flashlearn.gpu.programs import program_steps

__all__ = ["program_steps", "layout_steps", "pipeline_schedule", "pipeline_steps"]
