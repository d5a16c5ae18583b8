"""The stand-in of the book for PyTorch gives what PyTorch gives: see `book/stand_in/torch`."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashlearn.course import NOTEBOOKS
from flashlearn.exercises.checking import of_notebook
from tests import stand_in_cases
from tests.slow import across, covering, slow

ROOT = Path(__file__).parents[1]
DTYPES = ("float32", "float16", "bfloat16", "float64")
# Results differ by the order of additions, of up to 200 terms that may cancel: a few units of float32, one of 16 bits.
BOUNDS = {"float32": 4e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}
OPTIONS = {
    "none": {},
    "causal": {"causal": True},
    "window": {"window": [2, 1]},
    "one side": {"window": [1, None]},
    "documents": {"documents": [0, 3, 4, 9]},
    "key_range": {"key_range": [[1, 0], [7, 5]]},
    "softcap": {"softcap": 1.5},
    "alibi": {"alibi": [0.25, 0.5]},
    "sinks": {"sinks": [0.5, -1.0]},
    "scale": {"scale": 0.3, "causal": True},
    "all": {"causal": True, "window": [3, 0], "softcap": 2.0, "alibi": [0.5, 0.25], "sinks": [0.0, 1.0]},
}
SIZES = {  # (B, H_q, H_kv, N_q, N_k, D)
    "square": (1, 2, 2, 8, 8, 4),
    "unfriendly": (2, 2, 1, 9, 9, 5),
    "more keys": (1, 2, 1, 3, 17, 8),
    "more queries": (1, 2, 2, 11, 4, 3),
    "one": (1, 2, 2, 1, 1, 1),
}
FORWARD = {
    "standard": ("standard_attention", {}),
    "two pass": ("two_pass_attention", {"block_k": 3}),
    "two pass, recomputed": ("two_pass_attention", {"recompute": True}),
    "one pass": ("one_pass_attention", {"block_k": 2}),
    "one pass, normalised": ("one_pass_attention", {"normalised": True, "block_k": 4}),
    "version 1": ("tiled_attention_v1", {"block_q": 3, "block_k": 2}),
    "version 2": ("tiled_attention_v2", {"block_q": 2, "block_k": 3}),
}
BACKWARD = {
    "stored": ("attention_backward", {}),
    "two passes": ("tiled_attention_backward", {"block_q": 3, "block_k": 2}),
    "fused": ("tiled_attention_backward", {"block_q": 2, "block_k": 3, "fused": True}),
}


@cache
def the_stand_in():
    """A process of Python in which `torch` is the stand-in."""
    path = f"{ROOT / 'book' / 'stand_in'}{os.pathsep}{ROOT}"
    program = [sys.executable, str(ROOT / "tests" / "stand_in_cases.py")]
    return subprocess.Popen(
        program, stdin=-1, stdout=-1, text=True, encoding="utf-8", env={**os.environ, "PYTHONPATH": path}
    )


def theirs(case):
    """The outcome of a case with the stand-in."""
    process = the_stand_in()
    print(json.dumps(case), file=process.stdin, flush=True)
    return json.loads(process.stdout.readline())


def both(case):
    """The outcomes with PyTorch and with the stand-in, as JSON has them."""
    return json.loads(json.dumps(stand_in_cases.outcome(case))), theirs(case)


def numbers_differ(ours, other, bound):
    """The first tensor, if any, whose shape, dtype or numbers are not equal up to `bound`, relative to its largest number."""
    if isinstance(ours, list):
        if len(ours) != len(other):
            return ours, other
        return next(filter(None, (numbers_differ(a, b, bound) for a, b in zip(ours, other, strict=True))), None)
    if not isinstance(ours, dict):
        return None if ours == other else (ours, other)
    if (ours["shape"], ours["dtype"]) != (other["shape"], other["dtype"]):
        return ours, other
    finite = [abs(v) for v in ours["values"] if not isinstance(v, str)]
    limit = bound * max(finite, default=0)
    for a, b in zip(ours["values"], other["values"], strict=True):
        if isinstance(a, str) or isinstance(b, str):
            if a != b:
                return ours, other
        elif abs(a - b) > limit:
            return ours, other
    return None


def assert_equal(case):
    """Values up to rounding, all else to the letter."""
    ours, other = both(case)
    assert (ours.get("error"), ours.get("message")) == (other.get("error"), other.get("message")), other.get("trace")
    if "error" in ours:
        return
    bound = BOUNDS[case.get("dtype", "float32")]
    assert numbers_differ(ours["output"], other["output"], bound) is None
    assert ours["steps"] == other["steps"]


def problems(algorithms, kind):
    """A case of each algorithm with each option, in each size and dtype."""
    for name, option, size, dtype in product(algorithms, OPTIONS, SIZES, DTYPES):
        call, how = algorithms[name]
        options = dict(OPTIONS[option])
        B, _, _, N_q, N_k, _ = SIZES[size]
        if option == "documents":
            options["documents"] = [0, *(end for end in (3, 4) if end < N_q), N_q]
        if option == "key_range":
            options["key_range"] = [[1, 0][:B], [N_k, max(0, N_k - 2)][:B]]
        if option == "documents" and N_q != N_k:
            continue
        yield {"kind": kind, "call": call, "how": how, "sizes": SIZES[size], "dtype": dtype, "options": options}, (
            name, option, size, dtype,
        )  # fmt: skip


def quick(cases):
    """All cases; quick are few that show every algorithm, option, size and dtype."""
    return covering(cases, lambda case, names: set(names), lambda case, names: case["sizes"][3] * case["sizes"][4])


@pytest.mark.parametrize(("case", "names"), quick(problems(FORWARD, "forward")))
def test_attention(case, names):
    assert_equal(case)


@pytest.mark.parametrize(("case", "names"), quick(problems(BACKWARD, "backward")))
def test_gradients(case, names):
    assert_equal(case)


SOFTMAX = {
    "naive_softmax": {}, "safe_softmax": {}, "online_softmax": {}, "uncorrected_sum": {},
    "blocked_softmax": {"block_size": 3}, "merge_tree": {"block_size": 2},
}  # fmt: skip
ROWS = {
    "one": {"shape": (1,)},
    "a row": {"shape": (7,), "scale": 2.0},
    "rows": {"shape": (2, 3, 5)},
    "infinities": {"shape": (2, 6), "put": {"1": "-inf", "4": "-inf"}},
    "all hidden": {"shape": (4,), "put": {str(i): "-inf" for i in range(4)}},
    "infinity": {"shape": (5,), "put": {"2": "inf"}},
    "NaN": {"shape": (5,), "put": {"3": "nan"}},
    "large": {"shape": (6,), "scale": 300.0},
    "empty": {"shape": (2, 0)},
}


@pytest.mark.parametrize(("call", "rows", "dtype"), across(SOFTMAX, ROWS, DTYPES))
def test_softmax(call, rows, dtype):
    assert_equal({"kind": "softmax", "call": call, "how": SOFTMAX[call], "dtype": dtype, **ROWS[rows]})


PRODUCTS = {
    "tiled_matmul": {"shapes": [(5, 7), (7, 3)], "how": {"block_m": 2, "block_n": 2, "block_k": 3}},
    "tiled_qkv": {"shapes": [(5, 3), (7, 3), (7, 3)], "how": {"block_q": 2, "block_k": 4}},
    "matmul_backward": {"shapes": [(5, 4), (5, 3), (3, 4)]},
    "softmax_backward": {"shapes": [(2, 3, 7), (2, 3, 7)]},
    "contract": {"shapes": [(6,), (6, 4)]},
}


@pytest.mark.parametrize(("call", "dtype"), [*product(PRODUCTS, DTYPES)])
def test_products_and_their_gradients(call, dtype):
    assert_equal({"kind": "products", "call": call, "dtype": dtype, **PRODUCTS[call]})


@pytest.mark.parametrize("dtype", DTYPES)
def test_merges_and_pages(dtype):
    assert_equal({"kind": "merged", "sizes": SIZES["more keys"], "dtype": dtype})
    assert_equal({"kind": "paged", "dtype": dtype})
    assert_equal({"kind": "paged", "dtype": dtype, "options": {"causal": True, "window": [3, 0], "softcap": 2.0}})


BAD = {  # what a reader who edits a live cell may do
    "three dimensions": {"shapes": [(2, 3, 4)] * 3, "call": "standard_attention"},
    "D differs": {"shapes": [(1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 5)], "call": "tiled_attention_v2",
                  "how": {"block_q": 1, "block_k": 1}},
    "heads": {"shapes": [(1, 3, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)], "call": "one_pass_attention"},
    "block": {"shapes": [(1, 1, 3, 4)] * 3, "call": "tiled_attention_v1", "how": {"block_q": 0, "block_k": 1}},
    "an option": {"shapes": [(1, 1, 3, 4)] * 3, "call": "two_pass_attention", "how": {"causal": "no"}},
    "a product": {"shapes": [(2, 3), (4, 5)], "call": "tiled_matmul", "how": {"block_m": 1, "block_n": 1, "block_k": 1}},
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_errors_of_the_algorithms(name):
    ours, other = both({"kind": "products", **BAD[name]})
    assert (ours["error"], ours["message"]) == (other["error"], other["message"])


def literal(shape, dtype="float32"):
    count = 1
    for size in shape:
        count *= size
    return {"do": "literal", "shape": shape, "dtype": dtype, "values": [(5 * i) % 7 - 3 for i in range(count)]}


WRONG_SHAPES = {  # the operation, the shapes it gets, further arguments
    "add": ([(2, 3), (2, 4)], []),
    "matmul": ([(2, 3), (2, 4)], []),
    "bmm": ([(2, 3, 4), (2, 3, 4)], []),
    "dot": ([(3,), (4,)], []),
    "mv": ([(2, 3), (4,)], []),
    "where": ([(2, 3), (2, 3), (3, 2)], []),
    "maximum": ([(4,), (5,)], []),
    "reshape": ([(2, 3)], [[4, 2]]),
    "expand": ([(2, 3)], [[4, 3]]),
    "transpose": ([(2, 3)], [0, 2]),
    "softmax": ([(2, 3)], [2]),
    "sum": ([(2, 3)], [3]),
    "amax": ([(2, 0)], [-1]),
    "split": ([(5,)], [[2, 2]]),
    "item": ([(2,)], []),
    "add_": ([(3,), (2, 3)], []),
    "cat": (None, None),
    "stack": (None, None),
}


@pytest.mark.parametrize("name", WRONG_SHAPES)
def test_errors_of_shapes(name):
    shapes, more = WRONG_SHAPES[name]
    if shapes is None:
        program = [literal([2, 3]), literal([3, 2]), {"do": name, "args": [[{"at": 0}, {"at": 1}]]}]
    else:
        given = [literal(shape, "bool" if name == "where" and not i else "float32") for i, shape in enumerate(shapes)]
        program = [*given, {"do": name, "args": [{"at": i} for i in range(len(shapes))] + more}]
    ours, other = both({"kind": "expression", "program": program})
    assert (ours["error"], ours["message"]) == (other["error"], other["message"]), other.get("trace")


@pytest.mark.parametrize("asked", ["torch.fft", "torch.ones(2).lgamma()", "torch.nn.Linear", "torch.autograd.grad"])
def test_what_is_missing_is_named(asked):
    error = theirs({"kind": "code", "code": asked})
    name = asked.replace("ones(2).lgamma()", "Tensor.lgamma")
    assert error["message"] == f"{name} is not part of the page's PyTorch; install the course to use it"


SEEDED = "torch.{}, generator=torch.Generator().manual_seed(7){})"


@pytest.mark.parametrize("dtype", ["", ", dtype=torch.float64"])
@pytest.mark.parametrize(
    "call", ["randn(3", "randn(2, 8", "randn(37", "rand(5", "randint(-2, 9, (4, 5)", "randperm(11"]
)
def test_random_numbers_are_those_of_the_seed(call, dtype):
    if dtype and call.startswith(("randint", "randperm")):
        dtype = ""
    ours, other = both({"kind": "code", "code": SEEDED.format(call, dtype)})
    assert numbers_differ(ours["output"], other["output"], 3e-7) is None, other.get("trace")


ROUNDED = (
    "(torch.arange(4000) / 16).bfloat16()",
    "torch.arange(60000, 70000, 7).half()",
    "torch.arange(-300, 300).bfloat16() * 0.1",
    "torch.arange(-300, 300).half() * 0.1 - 0.3",
    "torch.arange(1, 200).bfloat16() / 7 + torch.arange(1, 200).bfloat16()",
    "1 - torch.arange(90).half() / 3",
    "2 / torch.arange(1, 100)",
    "torch.arange(200).float() * 0.7 - 0.1",
    "torch.tensor([2.7, -2.7, 1e10]).int()",
)


@pytest.mark.parametrize("code", ROUNDED)
def test_results_are_rounded_to_the_bit(code):
    ours, other = both({"kind": "code", "code": code})
    assert ours == other


PRINTED = (
    "torch.tensor([0.5, 1e-9, 3.0])",
    "torch.tensor([[1.0, 2.0], [float('inf'), -3.0]])",
    "torch.arange(30).reshape(2, 3, 5).half() / 3",
    "torch.zeros(2, 0)",
    "torch.tensor([True, False])",
    "torch.tensor(2.5, dtype=torch.float64)",
    "torch.arange(24.0)",
    "torch.full((3,), 123456.0)",
    "torch.tensor([[1.25, -0.5]]).round(decimals=1)",
    "torch.tensor([3.0, 1.0, 4.0, 1.0, 5.0]).cummax(0)[0]",
    "torch.zeros(2, 3).shape",
)


@pytest.mark.parametrize("code", PRINTED)
def test_tensors_are_printed_alike(code):
    ours, other = both({"kind": "code", "code": f"repr({code})"})
    assert ours["output"] == other["output"]


CLOSE = (
    ("[1.0, 2.0, 3.0]", "[1.0, 2.5, 3.25]"),
    ("[[1.0, 2.0], [3.0, 4.0]]", "[[1.0, 2.0], [3.0, 4.1]]"),
    ("[1.0, 2.0]", "[[1.0, 2.0]]"),
    ("[1.0]", "[1]"),
    ("[1.0, 2.0]", "[1.0, 2.0000001]"),
)


@pytest.mark.parametrize(("a", "b"), CLOSE)
def test_assert_close_says_the_same(a, b):
    ours, other = both({"kind": "code", "code": f"torch.testing.assert_close(torch.tensor({a}), torch.tensor({b}))"})
    assert (ours.get("error"), ours.get("message")) == (other.get("error"), other.get("message")), other.get("trace")


# Random expressions

FLOATS = ("float32", "float16", "bfloat16", "float64")
UNARY = (
    "exp",
    "tanh",
    "neg",
    "abs",
    "sigmoid",
    "floor",
    "ceil",
    "round",
    "sqrt",
    "log",
    "isnan",
    "isfinite",
    "sign",
    "relu",
)
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge")
REDUCTIONS = ("sum", "mean", "amax", "amin", "logsumexp", "argmax")
numbers = st.integers(-12, 12).map(lambda n: n / 4)


@st.composite
def tensors(draw, shape=None, dtypes=(*FLOATS, "int64", "int32", "bool")):
    """A literal of up to three dimensions."""
    shape = draw(st.lists(st.integers(1, 4), max_size=3)) if shape is None else shape
    dtype = draw(st.sampled_from(dtypes))
    count = 1
    for size in shape:
        count *= size
    values = draw(st.lists(numbers if dtype in FLOATS else st.integers(-3, 3), min_size=count, max_size=count))
    return {
        "do": "literal",
        "shape": shape,
        "dtype": dtype,
        "values": [bool(v) for v in values] if dtype == "bool" else values,
    }


def a_shape_that_fits(draw, shape):
    """The shape, with some sizes of 1 and some leading dimensions left out."""
    fitting = [draw(st.sampled_from((size, 1))) for size in shape]
    return fitting[draw(st.integers(0, len(shape))) :]


@st.composite
def expressions(draw):
    """A literal, a view of it or of its like, an operation, and sometimes another one."""
    first = draw(tensors(dtypes=(*FLOATS, *FLOATS, "int64", "bool")))
    program, shape = [first], first["shape"]
    if shape and draw(st.booleans()):
        program.append(draw_view(draw, shape))
    last = {"at": len(program) - 1}
    kind = draw(
        st.sampled_from(("unary", "binary", "number", "reduction", "product", "where", "fill", "softmax", "cast"))
    )
    floats = first["dtype"] in FLOATS
    if kind == "unary":
        name = draw(
            st.sampled_from(
                UNARY
                if floats
                else ("exp", "abs", "isnan", "sigmoid")
                if first["dtype"] != "bool"
                else ("exp", "isfinite")
            )
        )
        program.append({"do": name, "args": [last]})
    elif kind == "number":
        name = draw(st.sampled_from(BINARY if floats else BINARY[:1] + BINARY[6:]))
        other = draw(st.sampled_from((0.1, 3, -2.5, 0)))
        if name in ("maximum", "minimum"):
            name = "add"
        program.append({"do": name, "args": [last, other]})
    elif kind in ("binary", "where"):
        view = outcome_shape(program)
        program.append(draw(tensors(a_shape_that_fits(draw, view))))
        other = {"at": len(program) - 1}
        if kind == "where":
            program.append(draw(tensors(view, ("bool",))))
            program.append({"do": "where", "args": [{"at": len(program) - 1}, last, other]})
        else:
            both_bool = {first["dtype"], program[-1]["dtype"]} == {"bool"}
            program.append(
                {"do": draw(st.sampled_from([n for n in BINARY if n != "sub" or not both_bool])), "args": [last, other]}
            )
            if "sub" == program[-1]["do"] and "bool" in (first["dtype"], program[-2]["dtype"]):
                program[-1]["do"] = "add"
    elif kind == "reduction" and floats:
        view = outcome_shape(program)
        dims = [draw(st.integers(-len(view), len(view) - 1))] if view else []
        name = draw(st.sampled_from(REDUCTIONS))
        options = {"keepdim": draw(st.booleans())} if dims else {}
        program.append(
            {"do": name, "args": [last, *(dims or ([0] if name == "logsumexp" else []))], "options": options}
        )
    elif kind == "product" and floats and outcome_shape(program):
        view = outcome_shape(program)
        program.append(draw(tensors([view[-1], draw(st.integers(1, 4))], (first["dtype"],))))
        program.append({"do": "matmul", "args": [last, {"at": len(program) - 1}]})
    elif kind == "fill" and floats:
        program.append(draw(tensors(outcome_shape(program), ("bool",))))
        program.append(
            {"do": "masked_fill", "args": [last, {"at": len(program) - 1}, draw(st.sampled_from((0.0, 0.1)))]}
        )
    elif kind == "softmax" and floats and outcome_shape(program):
        program.append({"do": "softmax", "args": [last, -1]})
    else:
        program.append(
            {"do": draw(st.sampled_from(("double", "float", "half", "bfloat16", "long", "bool"))), "args": [last]}
        )
    return program


def slices(size):
    """Bounds of a slice: [start, stop, step]."""
    return st.tuples(st.integers(0, size), st.none() | st.integers(0, size), st.integers(1, 2)).map(list)


def draw_view(draw, shape):
    """A view of the first tensor."""
    dims = st.integers(-len(shape), len(shape) - 1)
    kind = draw(st.sampled_from(("transpose", "getitem", "unsqueeze", "flatten", "flip", "expand")))
    if kind == "transpose":
        return {"do": kind, "args": [{"at": 0}, draw(dims), draw(dims)]}
    if kind == "getitem":
        keys = [draw(st.one_of(st.integers(-size, size - 1), slices(size))) for size in shape]
        new = [None] * draw(st.integers(0, 1))
        return {"do": kind, "args": [{"at": 0}, [*new, *keys[: draw(st.integers(0, len(keys)))], "..."]]}
    if kind == "expand":
        return {"do": kind, "args": [{"at": 0}, [2, *shape]]}
    return {
        "do": kind,
        "args": [
            {"at": 0},
            *([[draw(dims)]] if kind == "flip" else [draw(st.integers(0, len(shape)))] if kind == "unsqueeze" else []),
        ],
    }


def outcome_shape(program):
    return list(stand_in_cases.expression(program).shape)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(expressions())
def test_random_expressions(program):
    ours, other = both({"kind": "expression", "program": program})
    assert ours.get("error") == other.get("error"), (ours, other)
    if "output" in ours:
        tight = {"torch.float32": 1e-6, "torch.float64": 1e-14, "torch.float16": 1e-3, "torch.bfloat16": 8e-3}
        assert numbers_differ(ours["output"], other["output"], tight.get(ours["output"]["dtype"], 0)) is None, (
            ours,
            other,
        )


# Exercises

NOTEBOOKS_THERE = (*list(NOTEBOOKS)[:11], "which_keys")
ROUNDING = re.compile(r"\b\d\.\de-(0[6-9]|[1-9]\d+)\b|\b0\.0e\+00\b")


def given_answers():
    for notebook in NOTEBOOKS_THERE:
        for name, exercise in of_notebook(notebook).items():
            for answer in ("", *(mistake.id for mistake in exercise.mistakes)):
                yield pytest.param(name, answer) if not answer else slow(name, answer)


@pytest.mark.parametrize(("name", "answer"), [*given_answers()])
def test_exercises(name, answer):
    """The report on the solution, and on every known mistake, is the same but for errors of rounding."""
    ours, other = both({"kind": "exercise", "name": name, "answer": answer})
    assert ROUNDING.sub("rounding", ours["report"]) == ROUNDING.sub("rounding", other.get("report", other.get("trace")))
