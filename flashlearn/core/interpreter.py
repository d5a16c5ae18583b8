"""The choice that must be made before anything imports Triton: interpret kernels on the CPU, or compile them.

Triton looks at TRITON_INTERPRET once, when it is first imported, and PyTorch imports Triton in unexpected places
(an optimiser does). So `import flashlearn` makes the choice, without importing Triton itself, unless the variable is
set; empty it says nothing.
"""

import os
import sys

import torch

if not torch.cuda.is_available() and "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = os.environ.get("TRITON_INTERPRET") or "1"
