"""Kernels that begin while the one before ends: they wait before they touch what it writes, and only where GPUs can do it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here", allow_module_level=True)

from flashlearn.core.options import plain_options
from flashlearn.core.pages import check_paged
from flashlearn.exercises.altered import altered
from flashlearn.fast import launcher as follow
from flashlearn.fast import paged
from flashlearn.fast.hopper import dq_accumulator
from flashlearn.fast.portable.launches import PortableLaunch
from flashlearn.kernels import INTERPRETED

decoding = importlib.import_module("flashlearn.fast.decode")  # the module: the function has its name
interpreted = pytest.mark.skipif(
    not INTERPRETED, reason="kernels are compiled here: nobody can stand between two of them"
)
WAIT = r"( *)wait_for_previous\(\).*\n"


def decode():
    """One query of one head: (o, lse), merged by one program."""
    q, k = torch.ones(1, 1, 1, 16), torch.linspace(0, 1, 64 * 16).view(1, 1, 64, 16)
    return decoding.decode(q, k, k, plain_options(16, 1.0, causal=False), 3, False)


def pages():
    """One query of one head over 64 keys, cut in two: (o, lse), merged by one program."""
    q, k = torch.ones(1, 1, 1, 16), torch.linspace(0, 1, 64 * 16).view(4, 1, 16, 16)
    tensors = (q, k, k, torch.arange(4, dtype=torch.int32)[None], torch.tensor([64], dtype=torch.int32))
    given = paged.PagedProblem(*tensors, None, check_paged(*tensors), plain_options(16, 1.0, causal=True))
    return paged.paged(given, plan=paged.PagedPlan(PortableLaunch(16, 16), 2, True))


def gradient():
    """dQ of some queries of one head, scaled by one program."""
    added, counters = torch.linspace(0, 1, 8192).view(1, 1, 256, 32), torch.zeros(1, 1, 2, dtype=torch.int32)
    dq = torch.zeros(1, 1, 40, 16)
    dq_accumulator.postprocess(dq_accumulator.Preprocessed(torch.empty(0), added, counters, None), 0.5, dq, 1, 2)
    return (dq,)


SECOND = {  # what is run, the kernel that follows another, where it is, and its arguments that the other writes
    "decode": (decode, decoding, "attention_merge_kernel", "launch", lambda given: given[:2]),
    "pages": (pages, paged, "attention_paged_merge_kernel", "launch_kept", lambda given: given[0][2:]),
    "gradient": (gradient, dq_accumulator, "attention_postprocess_kernel", "launch", lambda given: given[:1]),
}


def run_late(monkeypatch, name: str) -> tuple[list[torch.Tensor], int]:
    """What comes out if what the first kernel writes arrives only when the second waits; and how often that waited."""
    run, module, kernel, launcher, written = SECOND[name]
    late, waits = [], []
    launch = getattr(module, launcher)

    def launch_early(which, grid, arguments, *rest, **options):
        if which is getattr(module, kernel):
            assert "dependent" in options
            late.extend((part, part.clone()) for part in written(arguments))
            for part in written(arguments):
                part.fill_(torch.nan)
            waits.clear()  # of the first kernel, which may follow others
        launch(which, grid, arguments, *rest, **options)

    def arrive():
        waits.append(True)
        for there, values in late:
            there.copy_(values)

    monkeypatch.setattr(module, launcher, launch_early)
    monkeypatch.setattr(module, "wait_for_previous", arrive)
    monkeypatch.setattr(paged, "MIN_KEYS", 16)
    return run(), len(waits)


@interpreted
@pytest.mark.parametrize("name", SECOND)
def test_what_the_first_kernel_writes_is_read_after_the_wait(monkeypatch, name):
    monkeypatch.setattr(paged, "MIN_KEYS", 16)
    want = SECOND[name][0]()
    got, waits = run_late(monkeypatch, name)
    assert waits == 1 and all(map(torch.equal, got, want)) and not got[0].isnan().any()


@interpreted
@pytest.mark.parametrize("name", SECOND)
def test_whoever_does_not_wait_reads_too_early(monkeypatch, name):
    _, module, kernel, *_ = SECOND[name]
    line = re.search(WAIT, inspect.getsource(getattr(module, kernel).fn))
    monkeypatch.setattr(module, kernel, altered(getattr(module, kernel).fn, (line[0], f"{line[1]}pass\n")))
    got, waits = run_late(monkeypatch, name)
    assert waits == 0 and got[0].isnan().any()


@interpreted
def test_every_program_waits_also_one_that_has_nothing_to_merge(monkeypatch):
    """A kernel after the second waits for the second alone."""
    waits = []
    monkeypatch.setattr(paged, "wait_for_previous", lambda: waits.append(True))
    monkeypatch.setattr(paged, "MIN_KEYS", 16)
    q, k = torch.ones(2, 1, 1, 16), torch.ones(4, 1, 16, 16)
    tensors = (q, k, k, torch.arange(4, dtype=torch.int32).view(2, 2), torch.tensor([16, 16], dtype=torch.int32))
    given = paged.PagedProblem(*tensors, None, check_paged(*tensors), plain_options(16, 1.0, causal=True))
    for programs in (2, 5):  # cuts between two sequences, and past all of them
        waits.clear()
        paged.paged(given, plan=paged.PagedPlan(PortableLaunch(16, 16), programs, True))
        assert len(waits) == programs - 1


@interpreted
def test_the_interpreter_knows_nothing_of_it():
    assert not follow.dependent(torch.device("cpu"))


COMPILE = """
import importlib, json, sys, torch
from types import SimpleNamespace
from flashlearn.compiler.compile_only import SHARED, compile_for
gpu = int(sys.argv[1])
compile_for(gpu)
from flashlearn.fast import launcher as follow
from flashlearn.fast import launcher
from flashlearn.fast import paged
decoding = importlib.import_module("flashlearn.fast.decode")
from flashlearn.core.options import plain_options
follow.ALLOWED = sys.argv[2] == "allowed"
properties = SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=SHARED[gpu])
torch.cuda.get_device_properties = lambda device=None: properties
torch.cuda.get_device_capability = lambda device=None: divmod(gpu, 10)
torch.cuda.is_current_stream_capturing = lambda: False
paged.check_device = lambda *_: None
q, k = torch.empty(1, 8, 1, 64), torch.empty(1, 2, 1024, 64)
decoding.decode(q, k, k, plain_options(q.shape[-1], 0.1, causal=False), 4, False)
decoding.decode(q, k, k, plain_options(q.shape[-1], 0.1, causal=False), 4, True)
pages, table, lengths = torch.empty(64, 2, 16, 64), torch.zeros(1, 64).int(), torch.zeros(1).int()
paged.flash_attention_paged(q, pages, pages, table, lengths)
if gpu == 90:
    from flashlearn.fast.hopper.backward_launch import attention_backward_hopper
    q, k, v, o, do = torch.empty(5, 1, 2, 512, 64, dtype=torch.float16)
    for deterministic in (False, True):
        attention_backward_hopper(do, q, k, v, o, torch.empty(1, 2, 512), causal=True, scale=0.1, deterministic=deterministic)
    q, k, v, o, do = torch.empty(5, 1, 2, 512, 192, dtype=torch.float16)
    attention_backward_hopper(do, q, k, v, o, torch.empty(1, 2, 512), causal=True, scale=0.1)
kernels = launcher._compiled.values()
print(json.dumps([(kernel.metadata.name, kernel.metadata.launch_pdl, kernel.asm["ptx"]) for kernel in kernels]))
"""
LETS, WAITS = "griddepcontrol.launch_dependents", "griddepcontrol.wait"
# The kernels in the order in which they are compiled: whether one follows the one before, and how many threads wait in it
KERNELS = [
    ("attention_decode_kernel", True, 1), ("attention_merge_kernel", True, 1), ("attention_decode_kernel", True, 1),
    ("attention_paged_kernel", False, 0), ("attention_paged_merge_kernel", True, 1),
]  # fmt: skip
BACKWARD = [
    ("attention_preprocess_kernel", False, 0),
    ("attention_backward_hopper_kernel", True, 5),
    ("attention_postprocess_kernel", True, 1),
    ("attention_backward_hopper_kernel", False, 5),  # in order: begins after PyTorch's kernels
    ("attention_preprocess_kernel", False, 0),
    ("attention_backward_wide_kernel", True, 5),
    ("attention_postprocess_kernel", True, 1),
]


def compiled(gpu: int, allowed: bool = True) -> list[tuple[str, bool, str]]:
    """(name, whether it is launched early, its text) of kernels compiled for a GPU that is not there."""
    given = [sys.executable, "-c", COMPILE, str(gpu), "allowed" if allowed else "not"]
    env = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(given, env=env, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr[-2000:]
    return [tuple(kernel) for kernel in json.loads(done.stdout)]


def groups_of_warps(ptx: str) -> list[str]:
    """The text, cut where a group of warps begins: it asks for its registers."""
    return re.split(r"setmaxnreg\.(?:dec|inc)\S* +\S+;", ptx)


def too_early(name: str, ptx: str) -> list[str]:
    """Accesses to HBM that come before the wait, but for tiles that TMA copies, in each group of warps.

    Lengths of sequences are older than both kernels: a merge over pages may load them, one by one, but no row of numbers. What
    the first kernel counts is loaded by a load that acquires.
    """
    loads = r"ld\.global\S*\.v" if "paged" in name else r"ld\.global(?!\.gpu\.acquire)"
    wanted = re.compile(
        rf"\s(?:@\S+ )?({loads}|st\.global|atom\.global|red\.|cp\.reduce|cp\.async\.bulk\.tensor\S*\.global\.shared)"
    )
    early = []
    for part in groups_of_warps(ptx):
        found = wanted.search(part)
        if found and WAITS not in part[: found.start()]:
            early.append(found[1])
    return early


@pytest.mark.slow  # a process of its own, which compiles
def test_on_hopper_they_follow_and_wait_first():
    kernels = compiled(90)
    assert [(name, early, ptx.count(WAITS)) for name, early, ptx in kernels] == KERNELS + BACKWARD
    firsts = ["attention_decode_kernel", "attention_paged_kernel", "attention_preprocess_kernel"]
    lets = [name for name, _, ptx in kernels if LETS in ptx]
    sweeps = [*["attention_backward_hopper_kernel"] * 2, firsts[-1], "attention_backward_wide_kernel"]
    assert lets == [*firsts, *sweeps], "to merge in one launch lets nobody begin"
    for name, early, ptx in kernels:
        if "backward" in name:  # what is counted from zero must be zero before the next kernel may begin
            assert [WAITS in part.split(LETS)[0] for part in groups_of_warps(ptx) if LETS in part] == [True], name
        if WAITS in ptx:
            assert too_early(name, ptx) == ([] if early else ["atom.global"]), (
                f"{name}: in order it begins with a ticket"
            )
            assert too_early(name, ptx.replace(WAITS, "nothing")), f"{name} has no access that would be too early"


@pytest.mark.slow
@pytest.mark.parametrize("gpu, allowed", ((80, True), (90, False)))
def test_where_it_is_not_there_or_not_wanted_nothing_is_launched_early(gpu, allowed):
    kernels = compiled(gpu, allowed)
    assert kernels and not any(early for _, early, _ in kernels)
    assert any("griddepcontrol" in ptx for *_, ptx in kernels) == (gpu == 90), "the instructions do nothing there"


def test_the_launcher_tells_kernels_that_follow_from_others(monkeypatch):
    launching = importlib.import_module("flashlearn.fast.launcher")
    monkeypatch.setattr(launching, "INTERPRETED", False)
    monkeypatch.setattr(launching, "_compiled", {})
    options = []

    class Kernel:
        fn = object()

        def __getitem__(self, grid):
            return lambda *_, **given: (options.append(given), {grid: lambda *_: None})[1]

    for dependent in (True, False, True, False):
        launching.launch(Kernel(), (1, 1, 1), (1,), {"D": 64}, key=(), dependent=dependent)
    assert [given.get("launch_pdl") for given in options] == [True, None]
