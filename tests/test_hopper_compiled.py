"""The Hopper kernels, compiled by the Triton that is installed, as their launchers would on such a GPU, which is not
there: they compile, fit, and keep their numbers in registers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import torch

from flashlearn.exercises.altered import altered
from flashlearn.gpu.compiled_source import Call, compiled_for_hopper
from flashlearn.gpu.pretend import pretend
from flashlearn.gpu.simulated import tiles

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
        pytest.param(128, 4096, True, marks=pytest.mark.slow),
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


def lesson_calls():
    """The kernels of notebook 15, by name."""
    from flashlearn.kernels.hopper import lesson

    q, k = torch.zeros(128, 64).half(), torch.zeros(384, 64).half()
    given = tuple(tiles(name, t, (64, 64)) for name, t in (("Q", q), ("K", k), ("V", k), ("O", q)))
    return {
        "double": Call(lesson.double_kernel, (given[0], given[3])),
        "alone": Call(lesson.alone_kernel, (*given, 6), {"STAGES": 2}),
        "shared": Call(lesson.shared_kernel, (*given, 6, 0.1), {"STAGES": 3}),
        "attend": Call(lesson.shared_kernel, (*given, 6, 0.1), {"STAGES": 3}, {"consume": lesson.attend}),
    }


# products, setmaxnreg, exponentials in the text for the GPU; kilobytes of shared memory, barriers aside
IN_PTX = {"double": (0, 0, 0, 8), "alone": (8, 0, 0, 40), "shared": (16, 12, 0, 64), "attend": (16, 12, 68, 64)}


def test_the_kernels_of_the_lesson_compile_from_their_own_text():
    names = list(IN_PTX)
    for name, built in zip(names, compiled_for_hopper(*map(lesson_calls().get, names)), strict=True):
        counts = tuple(built.ptx.count(word) for word in ("wgmma.mma_async", "setmaxnreg", "ex2.approx"))
        assert (*counts, built.shared // 1024) == IN_PTX[name], name
        assert "cp.async.bulk.tensor" in built.ptx and "fence.proxy.async" in built.ptx and "mbarrier" in built.ptx
        assert built.registers <= 168 and built.spilled == 0


@pytest.mark.slow  # a process of its own
def test_what_the_compiler_refuses_is_told():
    from flashlearn.kernels.hopper import lesson

    call = lesson_calls()["double"]
    wrong = altered(lesson.write.fn, ("values.to(smem.dtype)", "values.to(smem.colour)"))
    with pytest.raises(RuntimeError, match="expected Triton to compile .*double_kernel"):
        compiled_for_hopper(Call(call.kernel, call.args, replaced={"write": wrong}))


def test_only_known_gpus_are_pretended():
    with pytest.raises(ValueError, match="expected a compute capability of .*, got 91"):
        pretend(91)
