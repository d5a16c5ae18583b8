"""The shapes of tensors as types, for the signatures of the algorithms: one letter has one size within a call.

Read by people, by type checkers, and by tests/test_shapes.py, which checks every call against them. Nothing imports
this module when it runs, so that jaxtyping is needed for checking alone: modules import it under `TYPE_CHECKING`.
"""

from jaxtyping import Float
from torch import Tensor

Queries = Float[Tensor, "B H_q N_q D"]  # Q, O, dO, dQ
Keys = Float[Tensor, "B H_kv N_k D"]  # K, V, dK, dV
PerQuery = Float[Tensor, "B H_q N_q"]  # lse
PerHead = Float[Tensor, " H_q"]  # sinks, slopes, and their gradients
Pairs = Float[Tensor, "B H_q N_q N_k"]  # P, where it is stored

Rows = Float[Tensor, "*rows N"]  # rows in the last dimension
PerRow = Float[Tensor, "*rows 1"]

Inputs = Float[Tensor, "*rows N D"]  # X of Y = X W
Weights = Float[Tensor, "D M"]
Outputs = Float[Tensor, "*rows N M"]

Left = Float[Tensor, "M K"]  # A of C = A B
Right = Float[Tensor, "K N"]
Product = Float[Tensor, "M N"]

OneHeadQueries = Float[Tensor, "N_q D"]
OneHeadKeys = Float[Tensor, "N_k D"]

Jacobian = Float[Tensor, "m n"]  # J_ji = dy_j / dx_i
OfOutputs = Float[Tensor, " m"]
OfInputs = Float[Tensor, " n"]
