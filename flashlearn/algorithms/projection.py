"""Queries, keys and values: three products of the same tokens with three learned matrices.

q_i = x_i W_q     k_i = x_i W_k     v_i = x_i W_v        for every row x_i of X
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from flashlearn.algorithms import captions
from flashlearn.core.hbm import HBM
from flashlearn.core.inputs import check_together
from flashlearn.core.steps import Step


def projection_steps(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Iterator[Step]:
    """One step per product; the last one carries (Q, K, V).

    x is (N, E): N tokens as E numbers each; w_q, w_k and w_v are (E, D), so that Q, K and V are (N, D).
    ValueError for other shapes, TypeError for anything but tensors of one floating dtype.
    """
    check_together({"x": x, "w_q": w_q, "w_k": w_k, "w_v": w_v}, "x, w_q, w_k and w_v")
    given = {"X": x, "W_q": w_q, "W_k": w_k, "W_v": w_v}
    shapes = {name: tuple(t.shape) for name, t in given.items()}
    if any(t.ndim != 2 for t in given.values()) or any(len(w) != x.shape[1] for w in (w_q, w_k, w_v)):
        raise ValueError(f"expected x (N, E) and w_q, w_k, w_v (E, D), got {shapes}")
    made = {name: (x.shape[0], given[f"W_{name.lower()}"].shape[1]) for name in "QKV"}
    hbm = HBM(given, dict.fromkeys(made, x.dtype), {**shapes, **made}, captions.projection, whole=True)
    for name in made:
        hbm.store(name, None, hbm.load("X") @ hbm.load(f"W_{name.lower()}"))
        yield hbm.step(f"{name} = X W_{name.lower()}")
    yield hbm.done(tuple(hbm.output(name) for name in made))
