"""Gluon on a CPU: a simulation of barriers, buffers and warps of one SM, and its timeline as steps."""

from flashlearn.simulator.barriers import Race, Times
from flashlearn.simulator.scheduler import Deadlock
from flashlearn.simulator.simulated import simulate, tiles, timeline_steps

__all__ = ["Deadlock", "Race", "Times", "simulate", "tiles", "timeline_steps"]
