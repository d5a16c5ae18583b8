"""The Hopper kernels, compiled by the Triton that is installed, as their launchers would on such a GPU, which is not
there: they compile, fit, and keep their numbers in registers."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from flashlearn.compiler.compile_only import compile_for
from flashlearn.compiler.compiled_source import Call, compiled_for_hopper
from flashlearn.exercises.altered import altered
from flashlearn.simulator.simulated import tiles
from tests.compiling import compiling

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: nothing is compiled", allow_module_level=True)

LAUNCH = """
import json, sys
import flashlearn.kernels
from flashlearn.compiler.compile_only import compile_for
launches = compile_for(90)
import torch
from flashlearn.fast import dispatch
from flashlearn.fast import launcher
from flashlearn.fast.hopper import backward_launch, forward
forward.sm_count = lambda device: 132
for D, N, causal in json.loads(sys.argv[1]):
    options = dispatch.hopper_options(N, D, causal)
    q, k, v, o, do = (torch.empty(1, 2, N, D, dtype=torch.float16) for _ in range(5))
    for _ in range(2):
        forward.attention_forward_hopper(q, k, v, causal=causal, scale=0.1, **options)
        backward_launch.attention_backward_hopper(do, q, k, v, o, torch.empty(1, 2, N), causal=causal, scale=0.1)
    print(json.dumps([launch[:2] + launch[3:] for launch in launches]))
    launches.clear()
"""
# bytes of stack of a thread, (D, causal): (forward, backward), the most of Triton 3.6.0, 3.7.1 and 3.8.0.
# In the backward pass they are addresses that are read again once in a while.
SPILLED = {(64, False): (80, 48), (64, True): (104, 72), (128, False): (0, 16), (128, True): (32, 16)}


ALL = (
    (128, 4096, True),
    (128, 4096, False),
    (128, 512, True),
    (64, 4096, True),
    (64, 512, True),
    (64, 512, False),
    (64, 4096, False),
)


@pytest.fixture(scope="module")
def launched() -> dict:
    """(D, N, causal): the launches of two calls, in a process of its own, which compiles."""
    done = compiling(LAUNCH, json.dumps(ALL))
    assert not done.returncode, done.stderr
    return dict(zip(ALL, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("D, N, causal", ALL)
def test_hopper_kernels_compile_and_fit(D, N, causal, launched):
    launches = launched[D, N, causal]
    backward = ("preprocess", "backward_hopper", "postprocess")
    once = [f"attention_{name}_kernel" for name in ("forward_hopper", *backward)]
    assert [name for name, *_ in launches] == once * 2, "expected the second call to launch what the first compiled"
    compiled = {name: rest for name, *rest in launches}
    for name, most in zip(("forward", "backward"), SPILLED[D, causal], strict=True):
        _, shared, registers, spilled = compiled[f"attention_{name}_hopper_kernel"]
        assert shared <= 232448 and registers <= 168, (name, shared, registers)
        assert spilled <= most, f"{name}: expected at most {most} bytes of stack, got {spilled}"


DISASSEMBLER = Path(importlib.util.find_spec("triton").origin).parent / "backends/nvidia/bin/nvdisasm"
disassembled = pytest.mark.skipif(not DISASSEMBLER.exists(), reason="this Triton brings no disassembler")
MACHINE_CODE = """
import json, sys
import flashlearn.kernels
from flashlearn.compiler.compile_only import compile_for
compile_for(90)
import torch
from flashlearn.fast import launcher
from flashlearn.fast.hopper import forward, forward_kernel
forward.sm_count = lambda device: 132
if sys.argv[2] == "without":
    from flashlearn.exercises.altered import altered
    forward_kernel.update = altered(forward_kernel.update.fn, ("q_tile.wait()", "pass"))
q, k, v = (torch.empty(1, 2, 4096, int(sys.argv[1]), dtype=torch.float16) for _ in range(3))
forward.attention_forward_hopper(q, k, v, causal=True, scale=0.1)
(kernel,) = launcher._compiled.values()
sys.stdout.buffer.write(kernel.asm["cubin"])
"""


def exponentials_beside_products(D: int, update: str = "as it is") -> list[int]:
    """How many exponentials the machine code takes between the wait for S and that for P V, in the loops that take any."""
    done = subprocess.run(
        [sys.executable, "-c", MACHINE_CODE, str(D), update],
        capture_output=True, env={**os.environ, "TRITON_INTERPRET": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(done.stdout)
        file.flush()
        code = subprocess.run(
            [DISASSEMBLER, file.name], capture_output=True, text=True, check=True, encoding="utf-8"
        ).stdout
    for_s, for_pv = "DEPBAR.LE gsb0, 0x1 ;", "DEPBAR.LE gsb0, 0x0 ;"
    counts = [rest.partition(for_pv)[0].count("MUFU.EX2") for rest in code.split(for_s)[1:]]
    return [count for count in counts if count]


@disassembled
@pytest.mark.slow  # a process of its own, which compiles
@pytest.mark.parametrize("D", (64, 128))
def test_exponentials_are_taken_while_a_product_is_under_way(D):
    """64 of a block of 128 keys, in a thread, and two factors; the docstring of the kernel says so."""
    found = exponentials_beside_products(D)
    assert len(found) == 4 and min(found) >= 64, found  # two consumers, a loop with the mask and one without


@disassembled
@pytest.mark.slow  # likewise
def test_without_the_second_wait_they_are_not():
    """What the assembler makes of it then: this is why `update` waits again. Where this fails, it can go."""
    assert max(exponentials_beside_products(128, "without"), default=0) < 16


REMARK = """
import sys
from subprocess import run
from pathlib import Path
from tempfile import TemporaryDirectory
sys.path.insert(0, sys.argv[1])
from tools.compile_table import CASES, compile_here
from flashlearn.fast import launcher
cases = [case for case in CASES if case.gpu == 90 and str(case).startswith(sys.argv[2])]
assert cases and all(compile_here(cases))
from triton import knobs
for kernel in launcher._compiled.values():
    if "wgmma" in kernel.asm["ptx"]:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.ptx"
            path.write_text(kernel.asm["ptx"])
            done = run([knobs.nvidia.ptxas.path, "-v", "--gpu-name=sm_90a", path, "-o", path.with_suffix(".cubin")], capture_output=True, text=True)
        assert not done.returncode, done.stderr
        print("one after the other" if "serialized" in done.stderr else "under way together")
"""


@pytest.mark.slow  # a process of its own, which compiles
@pytest.mark.parametrize(
    "way, D", [*itertools.product(("forward", "backward", "in order", "windows"), (64, 128, 192, 256))]
)
def test_products_are_under_way_together(way, D):
    """The assembler runs them one after the other where it finds too few registers, and only its remark C7512 tells."""
    done = compiling(REMARK, str(Path(__file__).parents[1]), f"{way} float16 {D} ")
    assert not done.returncode, done.stderr[-2000:]
    kernels = done.stdout.splitlines()
    assert len(kernels) >= (1 if way == "windows" else 2) and set(kernels) == {"under way together"}, kernels


@pytest.mark.slow  # a process of its own
def test_a_launch_that_does_not_fit_raises():
    """The test above would see one."""
    program = """
import flashlearn.kernels, torch
from flashlearn.compiler import compile_only
compile_only.SHARED[90] = 1
compile_only.compile_for(90)
from flashlearn.kernels.backward import attention_delta
attention_delta(*torch.empty(2, 1, 1, 64, 64))
"""
    done = compiling(program)
    assert done.returncode and "out of resource: shared memory" in done.stderr, done.stderr


def lesson_calls():
    """The kernels of notebook 15, by name."""
    from flashlearn.kernels import lesson

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


@pytest.mark.slow  # a compiler; notebook 15 compiles them too
def test_the_kernels_of_the_lesson_compile_from_their_own_text():
    names = list(IN_PTX)
    for name, built in zip(names, compiled_for_hopper(*map(lesson_calls().get, names)), strict=True):
        counts = tuple(built.ptx.count(word) for word in ("wgmma.mma_async", "setmaxnreg", "ex2.approx"))
        assert (*counts, built.shared // 1024) == IN_PTX[name], name
        assert "cp.async.bulk.tensor" in built.ptx and "fence.proxy.async" in built.ptx and "mbarrier" in built.ptx
        assert built.registers <= 168 and built.spilled == 0


@pytest.mark.slow  # a process of its own
def test_what_the_compiler_rejects_is_told():
    from flashlearn.kernels import lesson

    call = lesson_calls()["double"]
    wrong = altered(lesson.write.fn, ("values.to(smem.dtype)", "values.to(smem.colour)"))
    with pytest.raises(RuntimeError, match="expected Triton to compile .*double_kernel"):
        compiled_for_hopper(Call(call.kernel, call.args, replaced={"write": wrong}))


def test_only_known_gpus_are_pretended():
    with pytest.raises(ValueError, match="expected a compute capability of .*, got 91"):
        compile_for(91)
