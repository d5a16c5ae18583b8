"""The algorithms of the course as Triton kernels, for a GPU, or any CPU through the interpreter."""

from flashlearn.kernels.target import INTERPRETED, backend  # isort: skip (first: it chooses the backend)

from flashlearn.kernels.decode import attention_decode
from flashlearn.kernels.teaching.backward import attention_backward
from flashlearn.kernels.teaching.forward import attention_forward
from flashlearn.kernels.teaching.matmul import matmul
from flashlearn.kernels.teaching.softmax import softmax
from flashlearn.kernels.teaching.vector_add import vector_add

__all__ = [
    "INTERPRETED",
    "attention_backward",
    "attention_decode",
    "attention_forward",
    "backend",
    "matmul",
    "softmax",
    "vector_add",
]
