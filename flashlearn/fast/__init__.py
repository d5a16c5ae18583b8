"""The fast kernels behind `flash_attention`: which one runs, how it is launched, and the kernels themselves."""

from flashlearn.core.target import INTERPRETED, backend  # first: it chooses the backend

__all__ = ["INTERPRETED", "backend"]
