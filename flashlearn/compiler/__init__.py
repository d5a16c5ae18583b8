"""What Triton's compiler makes of a kernel, or why it rejects it, on any machine with Triton; no GPU is needed."""
