"""What Triton's compiler rejects and its interpreter takes, translated: the real compiler is asked."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: nothing is compiled", allow_module_level=True)

from flashlearn import kernels  # isort: skip (first: it chooses the backend)

import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice

from flashlearn.compiler.rejected import explained, frozen, in_plain_english, rejected
from flashlearn.core.steps import hbm_bytes
from flashlearn.exercises.altered import altered
from flashlearn.exercises.launching import compiles, launched, rejection_of, traffic
from flashlearn.exercises.watching import WrongWay

interpreted = pytest.mark.skipif(not kernels.INTERPRETED, reason="kernels are compiled here")
ROOT = Path(__file__).parents[1]
KINDS = {"x_ptr": "*fp16", "y_ptr": "*fp32", "n": "i32"}
FACTOR = 2.0
WIDE = tl.float32
HALF = tl.constexpr(0.5)


def row_sums(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    rows, cols = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + rows[:, None] * n + start + cols[None, :])
        total = total + tl.sum(x.to(tl.float32), 1)
    tl.store(y_ptr + rows, total)


@triton.jit
def halved(x):
    return x * HALF


@triton.jit
def uses_another(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, halved(tl.load(x_ptr + offs, mask=offs < n)), mask=offs < n)


BODY = "total = total + tl.sum(x.to(tl.float32), 1)"
START = "total = tl.zeros((BLOCK,), dtype=tl.float32)"
REJECTED = {  # what is changed, and what is said of it
    "a number that becomes a tile": ((START, "total = 0.0"), "total enters the loop as one float32 number and leaves it"),
    "an accumulator in float16": ((START, "total = tl.zeros((BLOCK,), dtype=tl.float16)"), "as a float16 tile of 16 and leaves it as a float32 tile of 16"),
    "a name set in one branch": ((BODY, "if n > 3:\n            part = tl.sum(x.to(tl.float32), 1)\n        total = total + part"), "part is set inside an if or a loop alone"),
    "a name with two types": ((BODY, "if n > 3:\n            x = x.to(tl.float32)\n        total = total + tl.sum(x, 1)"), "x is a float16 tile of 16 by 16 before the if and a float32 tile of 16 by 16 after it"),
    "one name, a type in each branch": ((BODY, "if n > 3:\n            y = x.to(tl.float32)\n        else:\n            y = x\n        total += tl.sum(y, 1)"), "y is a float32 tile of 16 by 16 if the condition holds and a float16 tile of 16 by 16 otherwise"),
    "a length in a variable": ((BODY, "M, N = x.shape\n        total = total + tl.sum(x.to(tl.float32), 1) + tl.arange(0, M)"), "tl.arange wants lengths that are known when the kernel is compiled"),
    "a plain number from outside": ((BODY, f"{BODY} * FACTOR"), r"say FACTOR = tl.constexpr\(...\)"),
    "a product that is too small": ((BODY, "total = total + tl.sum(tl.dot(tl.zeros((16, 8), tl.float16), tl.zeros((8, 16), tl.float16)), 1)"), "K must be at least 16"),
}  # fmt: skip
OTHERS = {  # neither takes these
    "an accumulator of tl.dot in float16": ((BODY, "total = total + tl.sum(tl.dot(x, x, tl.zeros((16, 16), tl.float16)).to(tl.float32), 1)"), "the third argument of tl.dot, to which the product is added, must be float32"),
    "two dtypes": ((BODY, "total = total + tl.sum(tl.dot(x.to(tl.float32), x), 1)"), "tl.dot gets two dtypes"),
    "an element of a tile": ((BODY, "total = total + x[0, 0]"), "a tile has no elements to pick"),
    "break": ((BODY, f"{BODY}\n        if start > 3:\n            break"), "there is no break"),
    "a tile as condition": ((BODY, f"if x > 0:\n            {BODY}"), "an if takes one number, and got a tile"),
    "@": ((BODY, "total = total + tl.sum(x @ x, 1)"), "tl.dot multiplies them"),
    "tiles of two shapes": ((BODY, "total = total + tl.sum(x + tl.arange(0, 32)[None, :], 1)"), "different shapes meet"),
    "a name that is not there": ((BODY, f"{BODY} * tottal"), "nothing in the kernel is called tottal"),
    "48 elements": ((BODY, f"{BODY} + tl.sum(tl.arange(0, 48), 0)"), "a power of two of elements"),
}  # fmt: skip


QUICK = ("a number that becomes a tile",)  # notebook 11 asks for four


@triton.jit
def uses_a_dtype_and_a_module(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(WIDE)
    tl.store(y_ptr + offs, libdevice.tanh(x), mask=offs < n)


def test_what_compiles_is_not_rejected():
    assert rejected(row_sums, KINDS, {"BLOCK": 16}) is None
    assert rejected(uses_a_dtype_and_a_module, KINDS, {"BLOCK": 16}) is None
    assert rejected(uses_another, KINDS, {"BLOCK": 16}) is None, "with what it calls, and its constants"


@pytest.mark.slow
def test_a_product_has_a_least_length_along_k_alone():
    """As notebooks 11 and 12 say: 16, and 32 for 8-bit numbers; M and N may be 1."""

    def product(M, K, N, dtype):
        dot = f"tl.dot(tl.zeros(({M}, {K}), {dtype}), tl.zeros(({K}, {N}), {dtype})).to(tl.float32)"
        return altered(row_sums, (BODY, f"total = total + tl.sum(tl.sum({dot}, 1), 0)"))

    for dtype, least in (("tl.float16", 16), ("tl.float32", 16), ("tl.int8", 32)):
        assert rejected(product(1, least, 1, dtype), KINDS, {"BLOCK": 16}) is None
        assert f"K must be at least {least}" in rejected(product(16, least // 2, 16, dtype), KINDS, {"BLOCK": 16}).plain


@pytest.mark.parametrize(
    "what", [*QUICK, *(pytest.param(w, marks=pytest.mark.slow) for w in {**REJECTED, **OTHERS} if w not in QUICK)]
)
def test_a_refusal_is_told_in_plain_english_with_its_line(what):
    change, plain = {**REJECTED, **OTHERS}[what]
    kernel = altered(row_sums, change)
    found = rejected(kernel, KINDS, {"BLOCK": 16})
    assert found, "expected a rejection"
    assert found.plain and re.search(plain, found.plain), found
    assert found.line in [line.strip() for line in inspect.getsource(kernel).splitlines()], found


@interpreted
@pytest.mark.parametrize("what", REJECTED)
def test_the_interpreter_takes_what_the_compiler_rejects(what):
    y = torch.full((16,), torch.nan)
    steps = launched(altered(row_sums, REJECTED[what][0]), (1,), {"BLOCK": 16}, torch.ones(16, 32).half(), y, 32)
    assert y.isfinite().all() and steps


FOLLOWS = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
@triton.jit
def follows(y_ptr, N, start):
    now = start + 0
    last = now
    for i in range(N):
        tl.store(y_ptr + i, last)
        last = now
        now = now + 1
kinds = {"y_ptr": "*i32", "N": "i32", "start": "i32"}
print(triton.compile(triton.compiler.ASTSource(follows, kinds), target=GPUTarget("cuda", 90, 32)).asm["ttir"])
"""


def test_a_name_that_follows_another_is_frozen_by_the_compiler(tmp_path):
    """Should a later Triton store what the loop carries, `frozen`, and the sentence in notebook 11, can go."""
    (tmp_path / "follows.py").write_text(FOLLOWS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "follows.py")],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)},
        encoding="utf-8",
    )
    assert re.search(r"tt.store %\w+, %start ", done.stdout), done.stdout + done.stderr
    found = frozen(FOLLOWS)
    assert found.line == "last = now" and found.plain.startswith(
        "last begins as the value of now, and is set to it again"
    )


@pytest.mark.parametrize(
    "change",
    [
        (
            "        tl.store(y_ptr + i, last)\n        last = now\n",
            "        last = now\n        tl.store(y_ptr + i, last)\n",
        ),
        ("last = now\n    for", "last = start\n    for"),
        ("        last = now\n        now = now + 1", "        now = now + 1\n        last = now"),
        ("        now = now + 1\n", ""),
    ],
)
def test_a_name_that_is_carried_is_not_frozen(change):
    assert change[0] in FOLLOWS and frozen(FOLLOWS.replace(*change)) is None


@pytest.mark.parametrize("path", sorted((ROOT / "flashlearn/kernels").rglob("*.py")), ids=lambda path: path.stem)
def test_no_loop_of_ours_freezes_a_name(path):
    assert frozen(path.read_text(encoding="utf-8")) is None


@interpreted
def test_a_whole_kernel_is_recorded_and_leaves_its_result():
    x, y = torch.randn(16, 32).half(), torch.full((16,), torch.nan)
    steps = launched(row_sums, (1,), {"BLOCK": 16}, x, y, 32)
    torch.testing.assert_close(y, x.float().sum(1))
    assert traffic(steps) == tuple(map(float, hbm_bytes(steps))) == (2 * 16 * 32, 4 * 16)


@triton.jit
def stub(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    raise NotImplementedError("your turn")


@interpreted
def test_programs_that_meet_and_stubs_are_told_apart():
    from flashlearn.kernels.recorder import Race

    x, y = torch.ones(16, 32).half(), torch.full((16,), torch.nan)
    with pytest.raises(Race):
        launched(row_sums, (2,), {"BLOCK": 16}, x, y, 32)
    for each in (stub, stub.fn):  # the interpreter wraps what the first raises
        with pytest.raises(NotImplementedError, match="your turn"):
            launched(each, (1,), {"BLOCK": 16}, x, y, 32)
    with pytest.raises(NotImplementedError, match="your turn"):
        rejection_of(stub.fn, KINDS, {"BLOCK": 16})
    with pytest.raises(ValueError, match="expected at most 300 programs, got 400"):
        launched(row_sums, (400,), {"BLOCK": 16}, x, y, 32)
    with pytest.raises(RuntimeError, match="expected Triton's interpreter"):
        traffic([])


def test_a_rejected_answer_is_the_wrong_way_with_the_line():
    """A loop that changes a type is told by the line that does so, not by the head of the loop."""
    compiles(row_sums, KINDS, {"BLOCK": 16})
    told = (
        f"compiles for sm_90, got an error at `{re.escape(BODY)}`. The compiler .*Loop-carried.*\nThat is: total enters"
    )
    with pytest.raises(WrongWay, match=told) as caught:
        compiles(altered(row_sums, (START, "total = 0.0")), KINDS, {"BLOCK": 16})
    assert caught.value.detail == f"does not compile: {BODY}"


def test_other_arguments_than_expected():
    with pytest.raises(ValueError, match="expected the arguments x_ptr, BLOCK, got x_ptr, y_ptr, n, BLOCK"):
        rejected(row_sums, {"x_ptr": "*fp16"}, {"BLOCK": 16})


def test_what_is_not_known_is_not_translated():
    assert in_plain_english("AssertionError('something new')") == ""
    assert (
        explained("Traceback\nRuntimeError: PassManager::run failed\n").says == "RuntimeError: PassManager::run failed"
    )


def test_colours_of_a_traceback_do_not_hide_the_refusal():
    """Jupyter asks for colours; Python 3.13 and later put them into the compiling process's traceback too."""
    said = (
        "\x1b[1;35mtriton.compiler.errors.CompilationError\x1b[0m: \x1b[35mat 2:4:\n"
        "def kernel(x_ptr):\n    x = y\n    ^\nNameError('y is not defined')\x1b[0m\n"
    )
    assert explained(said)[:2] == ("x = y", "NameError('y is not defined')")


def test_answers_with_the_same_new_text_keep_their_own_source():
    """Triton reads a kernel's source by the name of its file, when it is launched first."""
    one, other = (altered(row_sums, (old, "pass")) for old in (START, BODY))
    assert inspect.getsource(one) != inspect.getsource(other)
