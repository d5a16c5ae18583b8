"""In a new process: seconds until the first forward and the first backward are done. Prints JSON.

    PYTHONPATH=benchmarks python -m side_by_side.first_call flashlearn

Not counted: importing, starting CUDA, and making the inputs (and flex's block mask). D = 128, float16, causal.
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
