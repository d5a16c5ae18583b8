"""What `gpu_attention.py` is made of: the backends, what is measured of them, and the tables and targets."""
