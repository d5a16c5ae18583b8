"""The versions of notebook 12: every kernel is right as far as it goes, and each goes further than the one before."""

import importlib.util
import inspect

import pytest
import torch

from tests.slow import every

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here", allow_module_level=True)

from flashlearn import kernels  # isort: skip (first: it chooses the backend)

from torch.nn.functional import scaled_dot_product_attention
from triton.runtime.errors import InterpreterError

from flashlearn.compiler.rejected import rejected
from flashlearn.core.steps import hbm_bytes
from flashlearn.kernels import versions
from flashlearn.kernels.forward import Launch
from flashlearn.kernels.recorder import Race, StrayAccess, Unrecordable, kernel_steps

VERSIONS = [
    versions.contiguous_kernel,
    versions.strided_kernel,
    versions.ragged_kernel,
    versions.causal_kernel,
    versions.grouped_kernel,
]
DEVICE = "cpu" if kernels.INTERPRETED else "cuda"
# what each version is the first to do: shapes of q and of k, whether stored as (B, N, H, D), causal
FIRST = [
    ((1, 1, 64, 64), (1, 1, 64, 64), False, False),
    ((2, 3, 32, 16), (2, 3, 32, 16), True, False),
    ((1, 2, 41, 20), (1, 2, 27, 20), True, False),
    ((1, 2, 37, 16), (1, 2, 20, 16), False, True),
    ((2, 4, 20, 16), (2, 2, 37, 16), True, True),
]


def inputs(case):
    """q, k, v of a case."""
    shape_q, shape_k, turned, _ = FIRST[case]
    generator = torch.Generator().manual_seed(case)
    for shape in (shape_q, shape_k, shape_k):
        B, H, N, D = shape
        t = torch.randn(B, N, H, D, generator=generator).transpose(1, 2)
        yield (t if turned else t.contiguous()).to(DEVICE)


def expected(q, k, v, causal):
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=DEVICE).tril(k.shape[2] - q.shape[2])
    return scaled_dot_product_attention(q, k, v, attn_mask=mask if causal else None, enable_gqa=True).nan_to_num(0)


@pytest.mark.parametrize("case", every(2, range(5)))
def test_a_rung_does_what_it_is_the_first_to_do_and_those_after_it_do_too(case):
    q, k, v = inputs(case)
    causal = FIRST[case][3]
    want = expected(q, k, v, causal)
    for kernel in VERSIONS[case:]:
        o, lse = versions.attend(kernel, q, k, v, causal=causal, block_m=16, block_n=32)
        torch.testing.assert_close(o, want)
    theirs, their_lse = kernels.attention_forward(q, k, v, causal=causal, launch=Launch(16, 32))
    torch.testing.assert_close((o, lse), (theirs, their_lse))


@pytest.mark.skipif(not kernels.INTERPRETED, reason="a stray address is seen in the interpreter alone")
@pytest.mark.parametrize("case", range(1, 5))
def test_the_rung_before_does_not(case):
    q, k, v = inputs(case)
    causal = FIRST[case][3]
    try:
        *_, done = kernel_steps(versions.attend, VERSIONS[case - 1], q, k, v, causal=causal, block_m=16, block_n=32)
    except (StrayAccess, Race, InterpreterError, Unrecordable) as problem:
        assert not isinstance(problem, InterpreterError) or "power of 2" in str(problem), problem
    else:
        assert not torch.allclose(done.output[0], expected(q, k, v, causal), atol=1e-3)


@pytest.mark.parametrize("case", range(1, 5))
def test_unless_it_is_watched_it_rejects(case):
    """It would write where nothing of its own is, or be wrong and say nothing."""
    q, k, v = inputs(case)
    for kernel in VERSIONS[:case]:
        with pytest.raises(ValueError, match=f"expected .* for {kernel.fn.__name__}, got"):
            versions.attend(kernel, q, k, v, causal=FIRST[case][3], block_m=16, block_n=32)


ONE, TWO, RAGGED = (1, 1, 32, 16), (1, 2, 32, 16), (1, 2, 20, 16)
CANNOT = (
    (
        versions.contiguous_kernel,
        TWO,
        TWO,
        {},
        "contiguous q, k and v of one head for contiguous_kernel, got B = 1 and 2",
    ),
    (
        versions.contiguous_kernel,
        (2, 1, 32, 16),
        (2, 1, 32, 16),
        {},
        "of one head for contiguous_kernel, got B = 2 and 1",
    ),
    (versions.contiguous_kernel, ONE, ONE, {"block_n": 64}, "N_q = N_k, a multiple of 16 and 64, .*, got 32 and 32"),
    (versions.strided_kernel, RAGGED, RAGGED, {}, "a multiple of 16 and 16, for strided_kernel, got 20 and 20"),
    (versions.strided_kernel, ONE, (1, 1, 64, 16), {}, "expected N_q = N_k, .*, got 32 and 64"),
    (versions.strided_kernel, (1, 1, 32, 8), (1, 1, 32, 8), {}, "D to be a power of two of at least 16 .*, got 8"),
    (versions.strided_kernel, (1, 1, 32, 24), (1, 1, 32, 24), {}, "D to be a power of two of at least 16 .*, got 24"),
    (versions.ragged_kernel, RAGGED, RAGGED, {"causal": True}, "causal to be False for ragged_kernel, got True"),
    (versions.ragged_kernel, RAGGED, (1, 2, 0, 16), {}, "at least one key for ragged_kernel, got 0"),
    (versions.causal_kernel, TWO, ONE, {}, "as many heads of q as of k and v for causal_kernel, got 2 and 1"),
    (versions.grouped_kernel, TWO, (1, 0, 32, 16), {}, "a multiple of those of k and v, got 2 and 0"),
    (versions.grouped_kernel, TWO, (1, 2, 32, 8), {}, "q and k with the same B and D"),
    (versions.grouped_kernel, (1, 1, 4, 257), (1, 1, 4, 257), {}, "D of at most 256, got 257"),
    (versions.grouped_kernel, (1, 65536, 1, 1), (1, 65536, 1, 1), {}, "at most 65535 programs"),
)


@pytest.mark.parametrize("kernel, shape_q, shape_k, options, message", CANNOT)
def test_what_a_rung_cannot_do_is_rejected(kernel, shape_q, shape_k, options, message):
    q, k = torch.zeros(shape_q, device=DEVICE), torch.zeros(shape_k, device=DEVICE)
    with pytest.raises(ValueError, match=message):
        versions.attend(kernel, q, k, k, **options)


def test_what_is_no_attention_is_rejected_watched_or_not():
    q, k, v = inputs(0)
    for call in (
        versions.attend,
        lambda *given: list(kernel_steps(versions.attend, *given)) if kernels.INTERPRETED else versions.attend(*given),
    ):
        with pytest.raises(ValueError, match="expected k and v of one shape"):
            call(versions.contiguous_kernel, q, k, v[:, :, :32])
    with pytest.raises(ValueError, match="expected contiguous q, k and v"):
        versions.attend(versions.contiguous_kernel, q, k.mT.contiguous().mT, v)


def test_a_query_without_keys_is_what_the_later_rungs_can_do():
    q, k = torch.ones(RAGGED, device=DEVICE), torch.ones(1, 2, 0, 16, device=DEVICE)
    for kernel in VERSIONS[3:]:
        o, lse = versions.attend(kernel, q, k, k)
        assert not o.any() and (lse == -torch.inf).all()


@pytest.mark.skipif(not kernels.INTERPRETED, reason="bytes are counted in the interpreter alone")
def test_the_last_rung_moves_what_the_package_moves():
    q, k, v = inputs(4)
    ours = hbm_bytes(kernel_steps(versions.attend, versions.grouped_kernel, q, k, v, causal=True))
    theirs = hbm_bytes(kernel_steps(kernels.attention_forward, q, k, v, causal=True, launch=Launch(16, 16)))
    assert ours == theirs


def test_the_first_fits_on_a_screen_and_nothing_takes_many_arguments():
    assert len(inspect.getsource(versions.contiguous_kernel.fn).splitlines()) <= 40
    assert all(len(kernel.arg_names) < 19 for kernel in VERSIONS)


@pytest.mark.parametrize("before", range(4))
def test_a_difference_turns_one_source_into_the_next(before):
    lines = [set(inspect.getsource(kernel.fn).splitlines()) for kernel in VERSIONS[before : before + 2]]
    shown = versions.changes(*VERSIONS[before : before + 2]).splitlines()
    assert {line[1:] for line in shown if line.startswith("+")} >= lines[1] - lines[0]
    assert {line[1:] for line in shown if line.startswith("-")} >= lines[0] - lines[1]


@pytest.mark.slow
def test_the_first_compiles_for_a_gpu():
    kinds = {f"{name}_ptr": "*fp16" for name in ("q", "k", "v", "o")} | {"lse_ptr": "*fp32"}
    kinds |= {"N": "i32", "qk_scale": "fp32"}
    assert rejected(versions.contiguous_kernel, kinds, {"D": 64, "BLOCK_M": 64, "BLOCK_N": 64}) is None
