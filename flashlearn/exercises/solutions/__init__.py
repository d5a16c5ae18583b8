"""The solutions of the exercises, one file per notebook, and nothing else."""
