"""The Hopper kernels, compiled by the Triton that is installed, as their launchers would on such a GPU, which is not
there: they compile, fit, and keep their numbers in registers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from flashlearn.gpu.pretend import pretend

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: nothing is compiled", allow_module_level=True)

LAUNCH = """
import json, sys
import flashlearn.kernels
from flashlearn.gpu.pretend import pretend
launches = pretend(90)
import torch
from flashlearn.kernels import dispatch, launcher
from flashlearn.kernels.hopper import backward, forward
forward.multiprocessors = lambda device: 132
D, N, causal = json.loads(sys.argv[1])
options = dispatch.FORWARD_HOPPER[D, causal]
options = options[max(least for least in options if least <= N)]
q, k, v, o, do = (torch.empty(1, 2, N, D, dtype=torch.float16) for _ in range(5))
for _ in range(2):
    forward.attention_forward_hopper(q, k, v, causal=causal, scale=0.1, **options)
    backward.attention_backward_hopper(do, q, k, v, o, torch.empty(1, 2, N), causal=causal, scale=0.1)
print(json.dumps([launch[:2] + launch[3:] for launch in launches]))
"""
# bytes of stack of a thread, (D, causal): (forward, backward), with Triton 3.6.0; 3.7.1 and 3.8.0 take no more.
# In the backward pass they are addresses that are read again once in a while.
SPILLED = {(64, False): (0, 48), (64, True): (0, 48), (128, False): (0, 16), (128, True): (0, 16)}


def launched(D: int, N: int, causal: bool) -> dict:
    """kernel: (grid, shared, registers, spilled), in a process of its own, which compiles."""
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, json.dumps([D, N, causal])],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "0"},
    )
    assert not done.returncode, done.stderr
    launches = json.loads(done.stdout)
    kernels = [name for name, *_ in launches]
    once = ["attention_forward_hopper_kernel", "delta_kernel", "attention_backward_hopper_kernel"]
    assert kernels == once * 2, "expected the second call to launch what the first compiled"
    return {name: rest for name, *rest in launches}


@pytest.mark.parametrize(
    "D, N, causal",
    (
        (128, 4096, True),
        pytest.param(128, 4096, False, marks=pytest.mark.slow),
        pytest.param(128, 512, True, marks=pytest.mark.slow),
        pytest.param(64, 4096, True, marks=pytest.mark.slow),
        pytest.param(64, 512, False, marks=pytest.mark.slow),
        pytest.param(64, 4096, False, marks=pytest.mark.slow),
    ),
)
def test_hopper_kernels_compile_and_fit(D, N, causal):
    compiled = launched(D, N, causal)
    for name, most in zip(("forward", "backward"), SPILLED[D, causal], strict=True):
        _, shared, registers, spilled = compiled[f"attention_{name}_hopper_kernel"]
        assert shared <= 232448 and registers <= 168, (name, shared, registers)
        assert spilled <= most, f"{name}: expected at most {most} bytes of stack, got {spilled}"


@pytest.mark.slow  # a process of its own
def test_a_launch_that_does_not_fit_raises():
    """The test above would see one."""
    program = """
import flashlearn.kernels, torch
from flashlearn.gpu import pretend
pretend.SHARED[90] = 1
pretend.pretend(90)
from flashlearn.kernels.teaching.backward import attention_delta
attention_delta(*torch.empty(2, 1, 1, 64, 64))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "TRITON_INTERPRET": "0"}
    )
    assert done.returncode and "out of resource: shared memory" in done.stderr, done.stderr


def test_only_known_gpus_are_pretended():
    with pytest.raises(ValueError, match="expected a compute capability of .*, got 91"):
        pretend(91)
