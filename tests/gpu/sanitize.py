"""Small shapes through every kernel, to be run under compute-sanitizer (see sanitize.sh).

With the argument "teaching" the Hopper kernels are left out.
"""

from __future__ import annotations

import sys

import torch

from flashlearn import kernels
from flashlearn.kernels import rungs
from flashlearn.ops import flash_attention


def main() -> None:
    torch.manual_seed(0)
    if "teaching" in sys.argv:
        rungs.HOPPER = (0, 0)  # no such GPU
    x = torch.randn(1000, device="cuda")
    kernels.vector_add(x, x)
    kernels.softmax(x.view(10, 100))
    kernels.matmul(x.view(10, 100), x.view(100, 10))
    sizes = ((65, 130, 64), (130, 65, 128), (1, 33, 40), (256, 256, 64), (256, 256, 128), (300, 300, 128))
    for N_q, N_k, D in sizes:
        for causal in (False, True):
            q = torch.randn(1, 2, N_q, D, device="cuda", dtype=torch.float16, requires_grad=True)
            k, v = (torch.randn(1, 1, N_k, D, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(2))
            flash_attention(q, k, v, causal=causal).sum().backward()
    torch.cuda.synchronize()
    print("ran", len(sizes) * 2, "shapes")


if __name__ == "__main__":
    main()
