"""The parts of `gpu_attention.py`: the backends, their measurements, and the tables and targets."""
