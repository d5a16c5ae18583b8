"""What PyTorch and its stand-in of the book both run: a case in JSON in, what came of it in JSON out.

This file is a module of the tests, where it runs cases with PyTorch, and a program that runs them with the stand-in:

    PYTHONPATH=book/stand_in:. python tests/stand_in_cases.py        a case a line in, an outcome a line out
"""

from __future__ import annotations

import json
import math
import sys
import traceback

if __name__ == "__main__":  # what a page has not, the stand-in must not need
    for name in ("numpy", "triton", "matplotlib", "IPython", "ipywidgets", "PIL"):
        sys.modules[name] = None

import torch

import flashlearn as fl
from flashlearn.algorithms.softmax import uncorrected_sum_steps

LETTERS = {"q": 0, "k": 1, "v": 2, "do": 3}


def numbers(shape, dtype, seed, scale=1.0):
    """Literal numbers: a walk through 101 values from -3.125 to 3.125 that all dtypes hold, times `scale`."""
    values = [((i * 37 + seed * 29 + i * i * 3) % 101 - 50) / 16 * scale for i in range(math.prod(shape))]
    return torch.tensor(values, dtype=getattr(torch, dtype)).reshape(shape)


def arguments(case):
    """The options of a case as the algorithms take them."""
    options = dict(case.get("options", {}))
    for name in ("documents",):
        if name in options:
            options[name] = torch.tensor(options[name], dtype=torch.int32)
    if "key_range" in options:
        options["key_range"] = tuple(torch.tensor(part, dtype=torch.int32) for part in options["key_range"])
    for name in ("alibi", "sinks"):
        if name in options:
            options[name] = torch.tensor(options[name])
    if options.get("window"):
        options["window"] = tuple(options["window"])
    return options


def inputs(case):
    """q, k, v and do of a problem (B, H_q, H_kv, N_q, N_k, D)."""
    B, H_q, H_kv, N_q, N_k, D = case["sizes"]
    dtype, scale = case.get("dtype", "float32"), case.get("scale", 0.5)
    shapes = {"q": (B, H_q, N_q, D), "k": (B, H_kv, N_k, D), "v": (B, H_kv, N_k, D), "do": (B, H_q, N_q, D)}
    return [numbers(shape, dtype, LETTERS[name], scale) for name, shape in shapes.items()]


def forward(case):
    q, k, v, _ = inputs(case)
    return getattr(fl, case["call"] + "_steps")(q, k, v, **case.get("how", {}), **arguments(case))


def backward(case):
    q, k, v, do = inputs(case)
    options = arguments(case)
    if case["call"] == "attention_backward":
        return fl.attention_backward_steps(do, q, k, v, **options)
    o, lse = fl.tiled_attention_v2(q, k, v, block_q=2, block_k=3, return_lse=True, **options)
    return fl.tiled_attention_backward_steps(do, q, k, v, o, lse, **case["how"], **options)


def softmax(case):
    call = uncorrected_sum_steps if case["call"] == "uncorrected_sum" else getattr(fl, case["call"] + "_steps")
    x = numbers(case["shape"], case.get("dtype", "float32"), 5, case.get("scale", 1.0))
    for place, value in case.get("put", {}).items():
        x[..., int(place)] = float(value)
    return call(x, **case.get("how", {}))


def products(case):
    dtype, how = case.get("dtype", "float32"), case.get("how", {})
    given = [numbers(shape, dtype, seed) for seed, shape in enumerate(case["shapes"])]
    return getattr(fl, case["call"] + "_steps")(*given, **how)


def merged(case):
    """merge_attentions of two halves of the keys."""
    q, k, v, _ = inputs(case)
    cut = k.shape[2] // 2
    parts = [fl.tiled_attention_v2(q, k[:, :, s], v[:, :, s], block_q=2, block_k=2, return_lse=True)
             for s in (slice(0, cut), slice(cut, None))]  # fmt: skip
    return fl.merge_attentions(*zip(*parts, strict=True))


def paged(case):
    dtype, options = case.get("dtype", "float32"), arguments(case)
    q, k, v = (numbers(shape, dtype, seed, 0.5) for seed, shape in enumerate([(3, 4, 8), (6, 2, 2, 8), (6, 2, 2, 8)]))
    table = torch.tensor([[4, 1, 0], [2, 0, 0], [5, 3, 1]], dtype=torch.int32)
    lengths = torch.tensor([5, 2, 0], dtype=torch.int32)
    return fl.paged_attention_steps(q, k, v, table, lengths, **options)


KINDS = {f.__name__: f for f in (forward, backward, softmax, products, merged, paged)}


def plain(value):
    """A value as JSON has it."""
    if isinstance(value, torch.Tensor):
        return {"shape": list(value.shape), "dtype": str(value.dtype), "values": texts(value.reshape(-1).tolist())}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def texts(values):
    return [v if isinstance(v, int) or math.isfinite(v) else str(v) for v in values]


def recorded(step):
    """Everything of a step but its numbers."""
    tiles = {part: [str(tile) for tile in getattr(step, part)] for part in ("reads", "writes", "on_chip")}
    moved = [sum(tile.nbytes for tile in getattr(step, part)) for part in ("reads", "writes", "on_chip")]
    return {
        "sentence": step.sentence, "phase": step.phase, "program": list(step.program), "bytes": moved, **tiles,
        "operations": dict(step.operations), "matmuls": [list(m) for m in step.matmuls],
        "values": {name: described(value) for name, value in step.values.items()},
    }  # fmt: skip


def described(value):
    """A value of a step without its numbers, if it is a tensor or a tuple of tensors."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape)]
    return [described(each) for each in value] if isinstance(value, tuple) else str(value)


def outcome(case):
    """Outputs and steps, or the error."""
    try:
        if case["kind"] == "expression":
            return {"output": plain(expression(case["program"]))}
        if case["kind"] == "code":
            return {"output": plain(eval(case["code"], {"torch": torch, "fl": fl}))}
        if case["kind"] == "exercise":
            return exercise(case["name"], case["answer"])
        made = KINDS[case["kind"]](case)
        if isinstance(made, tuple):
            return {"output": plain(made), "steps": []}
        steps = fl.record(made)
        return {"output": plain(steps[-1].output), "steps": [recorded(step) for step in steps]}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error), "trace": traceback.format_exc()}


def expression(program):
    """The last of a list of tensors, each a literal or an operation on earlier ones."""
    made = []
    for line in program:
        if line["do"] == "literal":
            made.append(torch.tensor(line["values"], dtype=getattr(torch, line["dtype"])).reshape(line["shape"]))
        else:
            args = [read(made, one) for one in line["args"]]
            if line["do"] == "getitem":
                made.append(args[0][tuple(map(key, args[1]))])
            else:
                call = getattr(torch, line["do"], None)
                call = call if callable(call) else getattr(torch.Tensor, line["do"])  # torch.half is a dtype
                made.append(call(*args, **line.get("options", {})))
    return made[-1]


def read(made, one):
    """An argument: an earlier tensor by its place, a list of such, or what it is."""
    if isinstance(one, list):
        return [read(made, each) for each in one]
    return made[one["at"]] if isinstance(one, dict) else one


def key(one):
    """A key of an index: a number, "..." or a list of the bounds of a slice."""
    return slice(*one) if isinstance(one, list) else Ellipsis if one == "..." else one


def exercise(name, answer):
    """The report on the solution (""), or on another answer of the course, by its id."""
    from flashlearn.exercises.answers import answers
    from flashlearn.exercises.assessment import grade
    from flashlearn.exercises.checking import EXERCISES
    from flashlearn.exercises.ordering import Ordering, as_function

    found = EXERCISES[name]
    notebook, short, _ = (answer or found.id + ".").split(".")
    others = [*found.mistakes, *answers(notebook, short, found.solution, "variant", "wrong", "right")]
    functions = {one.id: one for one in others}
    function = functions[answer].function if answer else found.solution
    return {"report": str(grade(found, as_function(function) if isinstance(found, Ordering) else function))}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(outcome(json.loads(line))), flush=True)
