"""What the op can choose compiles for GPUs that are not there, fits, and spills no more than tests/compiled.json says."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: nothing is compiled", allow_module_level=True)

from flashlearn.compiler.compile_only import SHARED
from flashlearn.fast.dispatch import GLUON_VERSIONS
from tests.slow import slow
from tools import compile_table
from tools.compile_table import CASES, WORSE, Case, compiled, is_recorded, worse, worst

TABLE = compile_table.read()
MOST_SPILLED = 512  # bytes of a thread, of any kernel on any GPU: float32 forward at D = 128
QUICK = (
    Case(120, "decode", "float16", 64, False),
    Case(80, "options", "float16", 64, True),
    Case(86, "forward", "float16", 64, True),
    Case(90, "windows", "float16", 128, True),
)


def pairs(case: Case) -> set:
    return set(itertools.combinations(enumerate(case), 2))


def cover() -> list[Case]:
    """A few cases, in which every two values of GPU, way, dtype, D and causal meet that ever do."""
    left = set().union(*map(pairs, CASES))
    chosen: list[Case] = []
    while left:
        chosen.append(max(CASES, key=lambda case: len(pairs(case) & left)))
        left -= pairs(chosen[-1])
    return chosen


@pytest.mark.parametrize("cases", (QUICK, slow(cover())), ids=("handful", "pairs"))
def test_what_the_op_can_choose_compiles_and_spills_no_more_than_recorded(cases):
    found = list(compiled(cases))
    assert {case for case, _ in found} == set(cases)
    if version("triton") != TABLE["triton"]:
        pytest.skip(
            f"compiled all; the table is of Triton {TABLE['triton']}, here is {version('triton')}: not compared"
        )
    assert not (lines := worse(TABLE["cases"], found)), "\n".join(lines)


OVERLAP = """
import sys
import torch
from flashlearn.compiler.compile_only import compile_for
compile_for(90)
from flashlearn.fast.portable import backward, forward, launches
launches.shared_memory = lambda device: 232448
for module in ("flashlearn.core.target", "flashlearn.fast.portable.forward"):
    sys.modules[module].check_runnable = lambda **_: None
sys.modules["flashlearn.core.target"].check_device = lambda *_: None
q, k, v, do = torch.empty(4, 1, 2, 512, int(sys.argv[1]), dtype=torch.float16)
o, lse = forward.attention_forward_portable(q, k, v, causal=True)
backward.attention_backward_portable(do, q, k, v, o, lse, causal=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("D", (64, 128, 256))
def test_products_of_the_portable_kernels_overlap_on_hopper(tmp_path, D):
    """The assembler says so when it lets every product wait for the one before: a tenth of the speed and more."""
    from triton import knobs

    env = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", OVERLAP, str(D)], env=env, check=True)
    sources = list(tmp_path.rglob("attention_*_portable_kernel.ptx"))
    assert len(sources) == 4, "expected the rows, forward, dK and dV, dQ"
    for source in sources:
        command = [knobs.nvidia.ptxas.path, "-v", "--gpu-name=sm_90a", str(source), "-o", str(tmp_path / "out")]
        said = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8").stderr
        assert "registers" in said and "serialized" not in said, f"{source.name}: {said}"


HOPPER = tuple(
    Case(90, way, dtype, D, causal)
    for way, dtype, D, causal in (
        ("forward", "float16", 128, True),
        ("forward", "bfloat16", 64, False),
        ("backward", "float16", 64, True),
        ("backward", "bfloat16", 128, False),
        ("windows", "float16", 128, True),
    )
)


@pytest.mark.slow
@pytest.mark.parametrize("series", [series for series in GLUON_VERSIONS if not version("triton").startswith(series)])
def test_the_hopper_kernels_compile_with_the_other_versions_that_they_are_said_to_run_with(tmp_path, series):
    """Gluon changes from version to version: what the pinned one takes, another may reject."""
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(tmp_path), f"triton=={series}.*"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        pytest.skip(f"Triton {series} cannot be had here: {done.stderr.strip().splitlines()[-1]}")
    try:
        for case, kernels in compiled(HOPPER, jobs=1, triton=str(tmp_path)):
            assert any("hopper" in name for name in kernels), f"{case}: got {list(kernels)}"
    finally:
        shutil.rmtree(tmp_path)  # 700 MB


def test_the_cover_meets_every_pair_that_there_is():
    some = cover()
    assert len(some) < len(CASES) / 4 and set(QUICK) <= set(CASES)
    assert set().union(*map(pairs, some)) == set().union(*map(pairs, CASES))


def test_every_case_is_recorded_and_nothing_unknown():
    missing = [f"sm_{case.gpu} {case}" for case in CASES if not is_recorded(TABLE["cases"], case)]
    assert not missing, f"make the table again with --write, for it lacks {missing}"
    assert sum(map(len, TABLE["cases"].values())) == len(CASES), "a case of the table is none of CASES"


def test_the_constraints_name_the_triton_of_the_table():
    assert f"triton=={TABLE['triton']}" in (compile_table.ROOT / "constraints.txt").read_text(encoding="utf-8")


def test_every_kernel_fits_its_gpu_and_spills_little():
    for gpu, cases in TABLE["cases"].items():
        for name, kernels in cases.items():
            for kernel, (shared, spilled) in kernels.items():
                assert shared <= SHARED[int(gpu)] and spilled <= MOST_SPILLED, (gpu, name, kernel, shared, spilled)


CASE = Case(86, "forward", "float16", 64, True)


@pytest.mark.parametrize(
    "kernels, message",
    (
        ({"kernel": [1024, 100]}, None),
        ({"kernel": [4096, 100 + WORSE]}, None),  # chance; more shared memory is no harm as long as it fits
        ({"kernel": [1024, 101 + WORSE]}, "sm_86 forward float16 64 causal: kernel spills 117 bytes, recorded are 100"),
        ({"other": [1024, 0]}, r"expected the kernels \['kernel'\], got \['other'\]"),
        ({"kernel": [0, 0], "other": [0, 0]}, r"got \['kernel', 'other'\]"),
    ),
)
def test_what_is_worse_is_seen(kernels, message):
    lines = worse({"86": {str(CASE): {"kernel": [1024, 100]}}}, [(CASE, kernels)])
    if message is None:
        assert not lines
    else:
        with pytest.raises(AssertionError, match=message):
            raise AssertionError(*lines)


def test_what_is_not_recorded_is_not_compared_and_said():
    assert worse({"86": {}}, [(CASE, {})]) == worse({}, [(CASE, {})]) == []
    assert not is_recorded({"86": {}}, CASE) and is_recorded({"86": {str(CASE): {}}}, CASE)


@pytest.mark.slow  # compiles in a process of its own
def test_a_kernel_that_does_not_fit_fails(monkeypatch, tmp_path):
    """Of a GPU with 1 KB of shared memory every case is rejected, by name."""
    (tmp_path / "sitecustomize.py").write_text(
        "from flashlearn.compiler import compile_only; compile_only.SHARED[86] = 1024\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"(?s)sm_86 forward float16 64 causal.*out of resource: shared memory"):
        list(compiled([CASE]))


def test_the_table_is_written_as_it_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr(compile_table, "TABLE", tmp_path / "table.json")
    found = [(CASE, {"kernel": [1, 2]}), (CASE._replace(gpu=75), {"kernel": [3, 4], "a": [5, 6]})]
    compile_table.write("3.7.1", found)
    assert compile_table.read() == {
        "triton": "3.7.1",
        "cases": {"75": {str(CASE): {"a": [5, 6], "kernel": [3, 4]}}, "86": {str(CASE): {"kernel": [1, 2]}}},
    }
    assert worst(found)[75, "forward"] == (6, "a", str(CASE))
    assert json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))


def test_another_triton_has_to_be_there(tmp_path):
    with pytest.raises(SystemExit, match="expected Triton installed in"):
        compile_table.version_of(str(tmp_path))
    assert compile_table.version_of(None) == version("triton")
