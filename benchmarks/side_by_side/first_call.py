"""In a new process: seconds until the first forward and the first backward are done. Prints JSON.

    PYTHONPATH=benchmarks python -m side_by_side.first_call flashlearn

Not counted: importing, starting CUDA, and making the inputs (and flex's block mask). Importing: the first
`torch.autograd.grad` with a gradient given loads PyTorch's symbolic shapes, 2.3 s on an H200 machine, whatever it
differentiates; flex has loaded them by then. D = 128, float16, causal.
"""

import json
import sys
import time

import torch

from .backends import bind, context
from .measure import Setting, inputs

SETTING = Setting(128, 4096, True, "float16", 4, 16, 16, 4096)


def main(name: str, setting: Setting = SETTING, device: str = "cuda") -> dict:
    """{"forward": seconds, "backward": seconds}."""
    synchronize = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    q, k, v, do = inputs(setting, device)
    call = bind(name, q, k, v, setting.causal)
    one = torch.ones(1, device=device, requires_grad=True)
    torch.autograd.grad(one * one, one, torch.ones_like(one))
    synchronize()
    with context(name):
        start = time.perf_counter()
        o = call()
        synchronize()
        middle = time.perf_counter()
        torch.autograd.grad(o, (q, k, v), do)
        synchronize()
        end = time.perf_counter()
    return {"forward": round(middle - start, 3), "backward": round(end - middle, 3)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
