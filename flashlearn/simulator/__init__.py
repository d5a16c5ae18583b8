"""Gluon on a CPU: barriers, buffers and warps of one SM, simulated, and what ran as a timeline of steps."""
