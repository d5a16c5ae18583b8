"""Gluon on a CPU: barriers, buffers and warps of one SM, simulated, and what ran as a timeline of steps."""

from flashlearn.simulator.barriers import Race, Times
from flashlearn.simulator.scheduler import Deadlock
from flashlearn.simulator.simulated import simulate, tiles, timeline_steps

__all__ = ["Deadlock", "Race", "Times", "simulate", "tiles", "timeline_steps"]
