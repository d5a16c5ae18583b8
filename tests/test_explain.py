"""`fl.explain`, and the warning where a Hopper GPU could do better."""

from __future__ import annotations

import importlib.util
import inspect
import warnings

import pytest
import torch

import flashlearn as fl

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: there is nothing to explain", allow_module_level=True)

from flashlearn.core.target import INTERPRETED
from flashlearn.fast import decode, dispatch, explanation, launcher
from flashlearn.fast.portable import launches
from tests.grid import fp16, fp32

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="a GPU is here: the tests below pretend another")


def of(*shape, dtype=fp16, heads=None):
    q = torch.zeros(*shape, dtype=dtype)
    k = q if heads is None else q[:, :heads]
    return q, k, k


@pytest.fixture
def on(monkeypatch):
    """on((9, 0), "3.7.1"): the choice believes that it is made on such a GPU, with such a Triton."""

    def pretend(capability, version="3.7.1", shared=232448):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        monkeypatch.setattr(dispatch.triton, "__version__", version)
        for module in (dispatch, explanation, launches):
            monkeypatch.setattr(module, "INTERPRETED", False)
        monkeypatch.setattr(explanation, "backend", lambda: "a GPU")
        monkeypatch.setattr(launches, "shared_memory", lambda device: shared)
        monkeypatch.setattr(launcher, "INTERPRETED", True)
        for cached in (dispatch.why_not_this_machine, dispatch._warn_of_version, launches.has_tensor_cores):
            cached.cache_clear()

    yield pretend
    for cached in (dispatch.why_not_this_machine, dispatch._warn_of_version, launches.has_tensor_cores):
        cached.cache_clear()


def test_in_the_interpreter():
    found = fl.explain(*of(1, 2, 20, 24, dtype=fp32), causal=True)
    assert found.forward == ("portable", {"o": (64, 64)}, "kernels run in the interpreter")
    assert found.backward.kernel == "portable" and set(found.backward.blocks) == {"dk, dv", "dq"}
    where, forward, backward = str(found).splitlines()
    assert where.startswith("Triton's interpreter, on the CPU, Triton 3.")
    assert forward == (
        "forward:  portable, blocks of 64 queries by 64 keys (o); why nothing faster: kernels run in the interpreter"
    )
    assert backward.startswith("backward: portable, blocks of ")


@pytest.mark.parametrize("D, takes", ((100, False), (36, False), (104, True), (120, True)))
def test_columns_of_wider_tensors(on, D, takes):
    """Their strides suit the TMA, but the rows of dense results need not."""
    on((9, 0))
    q = torch.zeros(1, 2, 256, 128, dtype=fp16)[..., :D]
    found = fl.explain(q, q, q)
    assert {found.forward.kernel, found.backward.kernel} == {"hopper" if takes else "portable"}
    assert takes or f"D = {D}: a row of o ends {2 * D % 16} bytes past a multiple of 16" in str(found)


@pytest.mark.parametrize(
    "D, N, causal, forward, backward",
    (
        (128, 4096, False, (128, 128), (64, 128)),
        (128, 512, True, (128, 64), (64, 128)),
        (128, 1024, True, (128, 128), (64, 128)),
        (64, 3071, True, (128, 64), (128, 128)),
        (64, 3072, True, (192, 128), (128, 128)),
        (64, 4096, False, (192, 128), (128, 128)),
        (40, 512, False, (128, 128), (128, 128)),
    ),
)
def test_on_hopper(on, D, N, causal, forward, backward):
    on((9, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fl.explain(*of(1, 2, N, D), causal=causal)
    assert found.forward == ("hopper", {"o": forward}, "")
    assert found.backward == ("hopper", {"dq, dk, dv": backward}, "")
    assert str(found).splitlines()[0] == "a GPU, Triton 3.7.1"
    assert "why" not in str(found)


@pytest.mark.parametrize("D", (136, 192, 256))
def test_on_hopper_wide_heads_have_small_blocks(on, D):
    on((9, 0))
    for options in ({"causal": True}, {"window": (63, 0)}, {"softcap": 30.0}):
        found = fl.explain(*of(1, 2, 512, D), **options)
        assert found.forward == ("hopper", {"o": (128, 64)}, "")
        assert found.backward == ("hopper", {"dq, dk, dv": (64, 64)}, "")


@pytest.mark.parametrize(
    "options, block",
    (
        ({"window": (1023, 0)}, 64),
        ({"window": (3071, 0)}, 128),
        ({"window": (1023, None)}, 128),
        ({"documents": torch.arange(0, 9217, 1024).int()}, 64),
        ({"documents": torch.tensor([0, 9216]).int()}, 128),
        ({"softcap": 30.0, "causal": True}, 128),
    ),
)
def test_on_hopper_masks_of_few_keys_have_small_blocks(on, options, block):
    """At D = 64 two programs share an SM, where a query sees fewer than 3,072 keys by what the host knows."""
    on((9, 0))
    q = torch.zeros(1, 2, 9216, 64, dtype=fp16)
    assert fl.explain(q, q, q, **options).forward == ("hopper", {"o": (128, block)}, "")


@pytest.mark.parametrize(
    "D, N, block", ((64, 3071, 64), (64, 3072, 128), (128, 512, 64), (128, 513, 128), (160, 9000, 64))
)
def test_on_hopper_masks_have_blocks_by_how_many_keys_are_seen(on, D, N, block):
    on((9, 0))
    assert fl.explain(*of(1, 2, N, D), softcap=30.0).forward.blocks == {"o": (128, block)}


def test_the_defaults_are_those_of_the_launcher():
    hopper = pytest.importorskip("flashlearn.fast.hopper.forward")
    parameters = inspect.signature(hopper.attention_forward_hopper).parameters
    assert dispatch.HOPPER_DEFAULTS == {name: parameters[name].default for name in dispatch.HOPPER_DEFAULTS}


def test_few_queries(on):
    on((9, 0))
    q, k = of(1, 8, 1, 64)[0], torch.zeros(1, 2, 2048, 64, dtype=fp16)
    found = fl.explain(q, k, k)
    assert found.forward == ("decode", {"o": decode.decode_launch(4, 64, 2)[:2]}, "")
    assert found.backward.kernel == "hopper"


@pytest.mark.parametrize(
    "window, block", ((None, 128), ((200, 0), 64))
)  # 2048 keys in one split, of which a window shows 201
def test_few_queries_and_short_splits(on, window, block):
    on((9, 0))
    q, k = of(1, 8, 1, 64)[0], torch.zeros(1, 2, 2048, 64, dtype=fp16)
    assert fl.explain(q, k, k, window=window).forward.blocks == {"o": (16, block)}


def test_elsewhere_the_portable_kernels(on):
    on((8, 0), shared=166912)
    found = fl.explain(*of(1, 2, 512, 128))
    assert found.forward == ("portable", {"o": (128, 64)}, found.backward.why)
    assert found.backward.blocks == {"dk, dv": (64, 64), "dq": (128, 64)}
    assert "compute capability (8, 0), where the kernel is written for (9, 0)" in found.forward.why


def test_why_a_t4_is_slow(on):
    on((7, 5), shared=65536)
    assert "no path to the tensor cores of this GPU" in fl.explain(*of(1, 2, 512, 64)).forward.why


def test_a_choice_of_the_caller_is_told(on):
    on((9, 0))
    assert "float32 inputs" in fl.explain(*of(1, 2, 512, 64, dtype=fp32)).forward.why
    torch.use_deterministic_algorithms(True)
    try:
        found = fl.explain(*of(1, 2, 512, 64))
    finally:
        torch.use_deterministic_algorithms(False)
    assert (found.forward.kernel, found.backward.kernel) == ("hopper", "hopper")


@pytest.mark.parametrize("version", ("3.10.0", "3.5.1", "4.0.0+git"))
def test_an_untested_triton_on_hopper_is_told_once_with_what_helps(on, version):
    on((9, 0), version)
    with pytest.warns(UserWarning, match=f"made for Triton 3.6, 3.7, .*this is {version[:3]}.*PyTorch.*2.13") as told:
        for N in (512, 1024):
            found = fl.explain(*of(1, 2, N, 64))
            dispatch.why_not_this_machine.cache_clear()  # as for a second GPU
    assert len(told) == 1
    assert found.forward.kernel == found.backward.kernel == "portable"
    assert f"Triton {version}, where the kernel is made for" in found.forward.why


def test_no_warning_where_nothing_helps(on):
    on((8, 9), "3.10.0", shared=101376)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fl.explain(*of(1, 2, 512, 64))


@pytest.mark.parametrize(
    "error, message, kwargs",
    ((TypeError, "causal", {"causal": 1}), (ValueError, "finite scale", {"scale": float("nan")})),
)
def test_it_rejects_what_flash_attention_rejects(error, message, kwargs):
    q, k, v = of(1, 2, 20, 24, dtype=fp32)
    for call in (fl.explain, fl.flash_attention):
        with pytest.raises(error, match=message):
            call(q, k, v, **kwargs)
    with pytest.raises(TypeError, match="float16, bfloat16 or float32"):
        fl.explain(*(t.double() for t in (q, k, v)))


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("documents to end at N = 4, got 9", {"documents": ints(0, 9)}),
        ("documents that do not fall", {"documents": ints(0, 3, 2, 4)}),
        ("0 <= start <= stop <= 4 in key_range, got 3 and 1", {"key_range": (ints(3), ints(1))}),
        ("0 <= start <= stop <= 4 in key_range, got 0 and 5", {"key_range": (ints(0), ints(5))}),
    ],
)
def test_offsets_and_ranges_are_looked_at_in_the_interpreter_alone(on, options, message, monkeypatch):
    given = of(1, 2, 4, 16, dtype=fp32)
    for call in (fl.explain, fl.flash_attention):
        with pytest.raises(ValueError, match=message):
            call(*given, **options)
    on((9, 0))
    monkeypatch.setattr(torch.Tensor, "tolist", None)  # would wait for a GPU
    assert fl.explain(*given, **options).forward.kernel == "portable"


@pytest.mark.parametrize(
    ("options", "kernel"),
    [
        ({"window": (31, 0)}, "hopper"),
        ({"documents": torch.tensor([0, 20, 64], dtype=torch.int32), "causal": True}, "hopper"),
        ({"sinks": torch.zeros(2), "key_range": (torch.tensor([3], dtype=torch.int32),) * 2}, "hopper"),
        ({"softcap": 5.0, "window": (31, 0)}, "hopper"),
        (
            {"softcap": 1e6},
            "softcap = 1000000.0: the Hopper kernels take 0.01 to 256.0, where their tanh is exact enough",
        ),
        ({"softcap": 5.0, "alibi": torch.zeros(2)}, "alibi: the Hopper kernels know masks, softcaps and sinks"),
    ],
)
def test_masks_and_softcaps_go_to_the_hopper_kernels_and_slopes_do_not(on, options, kernel):
    on((9, 0))
    explained = fl.explain(*of(1, 2, 64, 64), **options)
    for found in (explained.forward, explained.backward):
        assert kernel in (found.kernel, found.why)


@pytest.mark.parametrize(
    "window, causal, N_q, N_k, same",
    (
        ((64, 0), False, 64, 64, True),
        ((63, 0), False, 64, 64, True),
        ((63, 5), True, 64, 64, True),
        ((99, None), True, 16, 100, True),
        ((63, 63), False, 64, 64, False),
        ((99, 15), False, 16, 100, False),
        ((None, None), False, 64, 64, False),
    ),
)
def test_a_window_that_hides_nothing_runs_the_kernel_without_one(on, window, causal, N_q, N_k, same):
    """`same`: as causal attention; else as full attention."""
    on((9, 0))
    q, k = of(1, 2, N_q, 64)[0], of(1, 2, N_k, 64)[1]
    found, want = fl.explain(q, k, k, causal=causal, window=window), fl.explain(q, k, k, causal=same)
    assert (found.forward, found.backward) == (want.forward, want.backward)
    hides = "no more than causal=True does" if same else "nothing"
    assert str(found).splitlines()[1] == f"window:   {window} hides {hides}, with {N_k} keys"
    assert not want.window and "window" not in str(want)


@pytest.mark.parametrize("window", ((62, 0), (63, 62), (0, 63), (62, None)))
def test_a_window_that_hides_one_key_is_one(window):
    found = fl.explain(*of(1, 2, 64, 64), window=window)
    assert found.forward.kernel == "portable" and not found.window


def test_masks_in_one_order_of_sums(on, request):
    on((9, 0))
    request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    torch.use_deterministic_algorithms(True)
    found = fl.explain(*of(1, 2, 64, 64), window=(31, 0))
    assert (found.forward.kernel, found.backward.kernel) == ("hopper", "hopper")
