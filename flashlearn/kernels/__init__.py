"""The algorithms of the course as Triton kernels, for a GPU, or any CPU through the interpreter."""

from flashlearn.core.target import INTERPRETED, backend  # isort: skip (first: it chooses the backend)

from flashlearn.kernels.backward import attention_backward
from flashlearn.kernels.forward import attention_forward
from flashlearn.kernels.matmul_kernel import matmul
from flashlearn.kernels.softmax_kernel import softmax
from flashlearn.kernels.vector_add_kernel import vector_add

__all__ = [
    "INTERPRETED",
    "attention_backward",
    "attention_forward",
    "backend",
    "matmul",
    "softmax",
    "vector_add",
]
