"""Triton's compiled code of a kernel, or the reason why it rejects it, on any machine with Triton; no GPU is needed."""
