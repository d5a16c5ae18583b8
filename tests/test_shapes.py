"""The shapes in the signatures of the algorithms hold: every call here is checked against them, by jaxtyping and beartype."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any

import beartype
import jaxtyping
import pytest
import torch

from flashlearn.core import shapes

NAMES = {name: kind for name, kind in vars(shapes).items() if name[0].isupper() and name not in ("Float", "Tensor")}
BLOCKS = {"block_q": 3, "block_k": 4}


def t(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def qkv() -> tuple[torch.Tensor, ...]:
    """Every letter has a size of its own: B 2, H_q 6, H_kv 3, N_q 5, N_k 7, D 4."""
    return t(2, 6, 5, 4), t(2, 3, 7, 4), t(2, 3, 7, 4)


CALLS: dict[str, tuple[tuple[torch.Tensor, ...], dict[str, Any]]] = {
    "softmax.naive_softmax": ((t(3, 5),), {}),
    "softmax.safe_softmax": ((t(5),), {}),
    "softmax.online_softmax": ((t(2, 3, 5),), {}),
    "softmax.blocked_softmax": ((t(3, 5),), {"block_size": 2}),
    "softmax.merge_tree": ((t(3, 5),), {"block_size": 2}),
    "attention.standard_attention": (qkv(), {}),
    "attention.two_pass_attention": (qkv(), {}),
    "attention.one_pass_attention": (qkv(), {"causal": True}),
    "tiled.tiled_attention_v1": (qkv(), BLOCKS),
    "tiled.tiled_attention_v2": (qkv(), {**BLOCKS, "return_lse": True}),
    "gradients.matmul_backward": ((t(2, 5, 3), t(2, 5, 4), t(4, 3)), {}),
    "gradients.softmax_backward": ((t(2, 5), t(2, 5)), {}),
    "gradients.contract": ((t(3), t(3, 4)), {}),
    "gradients.attention_backward": ((t(2, 6, 5, 4), *qkv()), {"stored": t(2, 6, 5, 7)}),
    "tiled_backward.tiled_attention_backward": ((t(2, 6, 5, 4), *qkv(), t(2, 6, 5, 4), t(2, 6, 5)), BLOCKS),
    "matmul.tiled_matmul": ((t(5, 3), t(3, 4)), {"block_m": 2, "block_n": 2, "block_k": 2}),
    "matmul.tiled_qkv": ((t(5, 3), t(4, 3), t(4, 3)), BLOCKS),
}


def the_function(name: str) -> tuple[types.ModuleType, Callable]:
    module, _, function = name.partition(".")
    module = importlib.import_module(f"flashlearn.algorithms.{module}")
    return module, getattr(module, function)


def checked(function: types.FunctionType) -> Callable:
    """The function, its arguments and its result held to the shapes of its annotations.

    Those are text when the program runs (`from __future__ import annotations`): here they are read.
    """
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    known = {**function.__globals__, **NAMES}
    hints = function.__annotations__.items()
    copy.__annotations__ = {name: eval(text, known) for name, text in hints if named(text)}
    return jaxtyping.jaxtyped(typechecker=beartype.beartype)(copy)


def named(annotation: str) -> bool:
    return any(name in annotation for name in NAMES)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_keeps_to_the_shapes_of_the_signature(name):
    _, function = the_function(name)
    tensors, options = CALLS[name]
    checked(function)(*tensors, **options)
    annotated = [parameter for parameter, text in function.__annotations__.items() if named(text)]
    given = [*tensors, *(option for option in options.values() if isinstance(option, torch.Tensor))]
    assert len(annotated) == len(given) + 1, "every tensor and the result have a shape"


@pytest.mark.parametrize("name", CALLS)
def test_a_result_of_another_shape_is_caught(name, monkeypatch):
    module, function = the_function(name)
    tensors, options = CALLS[name]
    run = module.run

    def longer(steps):
        result = run(steps)
        last = result[-1] if isinstance(result, tuple) else result
        last = torch.cat([last, last[..., :1]], -1)
        return (*result[:-1], last) if isinstance(result, tuple) else last

    monkeypatch.setattr(module, "run", longer)
    with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
        checked(function)(*tensors, **options)


@pytest.mark.parametrize("name", [name for name in CALLS if "attention" in name])
def test_keys_of_another_batch_are_caught_before_the_call(name):
    _, function = the_function(name)
    tensors, options = CALLS[name]
    at = list(function.__annotations__).index("k")
    wrong = [*tensors[:at], tensors[at][:1], *tensors[at + 1 :]]
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'v'|parameter 'k'"):
        checked(function)(*wrong, **options)


def test_every_algorithm_has_its_shapes_checked():
    import flashlearn as fl

    algorithms = {
        f"{function.__module__.rpartition('.')[2]}.{name}"
        for name in fl.__all__
        if isinstance(function := getattr(fl, name), types.FunctionType)
        and function.__module__.startswith("flashlearn.algorithms.")
        and f"{name}_steps" in fl.__all__
    }
    algorithms.remove(
        "paged.paged_attention"
    )  # its shapes depend on each other by tables: tests/test_paged.py rejects them
    assert algorithms == set(CALLS)
