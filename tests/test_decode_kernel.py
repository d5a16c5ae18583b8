"""The decoding kernels: right for any number of splits, and each key read once; and when they are chosen."""

from __future__ import annotations

import importlib
import importlib.util
import itertools

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: no kernel is tested", allow_module_level=True)

from flashlearn.core.options import plain_options
from flashlearn.core.steps import hbm_bytes, record
from flashlearn.core.target import INTERPRETED
from flashlearn.fast import dispatch
from flashlearn.fast.api import flash_attention
from flashlearn.fast.decode import attention_decode, cut, decode_launch, decode_splits
from flashlearn.kernels.forward import attention_forward, padded
from flashlearn.kernels.recorder import kernel_steps
from tests.grid import Case, bf16, check, check_kernel, fp16, fp32, make, oracle, plain, traits
from tests.slow import across, covering

decoding = importlib.import_module("flashlearn.fast.decode")  # the module: the function has its name
DEVICE = "cpu" if INTERPRETED else "cuda"
needs_interpreter = pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled here: nothing to record")

CASES = (
    Case(1, 1, 1),
    Case(1, 63, 40, dtype=fp16, layout="transposed"),
    Case(1, 257, 64, causal=True, H_q=8, H_kv=1, B=2, layout="transposed"),
    Case(1, 700, 128, dtype=fp16, H_q=6, H_kv=2, layout="strided"),
    Case(1, 700, 64, dtype=fp16, H_q=8, H_kv=1, logits="extreme"),
    Case(1, 257, 256, causal=True, H_q=3, H_kv=1, layout="packed"),
    Case(2, 1, 64, causal=True, dtype=fp16, H_q=6, H_kv=2),  # a row sees no key
    Case(2, 257, 1, causal=True, H_q=3, H_kv=1, scale=-1.0),
    Case(2, 700, 128, causal=True, H_q=16, H_kv=2, logits="large"),
    Case(2, 700, 40, causal=True, dtype=fp16, H_q=8, H_kv=1, layout="packed", logits="rising"),
    Case(16, 1, 40, causal=True, H_q=2, H_kv=2),  # 15 rows see no key
    Case(16, 63, 128, causal=True, dtype=fp16, H_q=6, H_kv=2, B=2, layout="strided"),
    Case(16, 257, 64, causal=True, layout="expanded", logits="rising"),  # the diagonal crosses three blocks
    Case(16, 257, 256, causal=True, dtype=fp16, H_q=3, H_kv=1, layout="transposed"),
    Case(16, 700, 16, causal=False, dtype=fp16, H_q=4, H_kv=1, logits="equal"),
    Case(32, 17, 256, causal=True),  # the largest block in float32, and 15 rows that see no key
    Case(64, 700, 256, causal=True, dtype=fp16),  # the largest in float16
)


def split_traits(case: Case, splits: int) -> set:
    return traits(case) | {(splits, case.causal), (splits, case.dtype)}


def split_work(case: Case, splits: int) -> float:
    """Programs, and what each does."""
    return case.B * case.H_kv * (splits + case.N_k / 128) * (1 + case.N_q * case.H_q / case.H_kv * case.D / 4096)


@pytest.mark.parametrize(
    "case, splits", covering(itertools.product(CASES, (1, 3, 60)), split_traits, split_work), ids=str
)
def test_attention_decode(case, splits):
    """60 is more than any case has blocks of keys: some splits are empty."""
    q, k, v, _ = inputs = make(case, DEVICE)
    for one_launch in (False, True):
        o, lse = attention_decode(q, k, v, causal=case.causal, scale=case.scale, splits=splits, one_launch=one_launch)
        check_kernel(case, inputs, {"o": o, "lse": lse})


def test_the_last_program_merges(monkeypatch):
    """One launch is one: without the second kernel. The counters are zero again, for the next."""
    kernels, counters = [], []
    launch, workspace = decoding.launch, decoding.workspace
    monkeypatch.setattr(decoding, "_workspaces", {})  # of other tests, which may be larger
    monkeypatch.setattr(decoding, "launch", lambda kernel, *a, **k: (kernels.append(kernel), launch(kernel, *a, **k)))
    monkeypatch.setattr(decoding, "workspace", lambda *a: (counters.append(workspace(*a)), counters[-1])[1])
    q, k, v, _ = make(Case(2, 300, 16, H_q=6, H_kv=3, B=2), DEVICE)
    for one_launch in (True, False):
        attention_decode(q, k, v, splits=4, one_launch=one_launch)
    decode, merge = decoding.attention_decode_kernel, decoding.attention_merge_kernel
    assert kernels == [decode, decode, merge]
    assert [t.numel() for t in counters[0]][2] == 6 and not counters[0][2].any()
    assert len(counters) == 1, "two launches need no counters"


def test_one_launch_where_it_is_quicker(monkeypatch):
    """On a GPU, with little to merge, and not while a CUDA graph is captured: a graph keeps what it was given."""
    chosen, capturing = [], False
    monkeypatch.setattr(decoding, "INTERPRETED", False)
    monkeypatch.setattr(decoding, "workspace", lambda *a: (torch.zeros(1), torch.zeros(1), torch.zeros(1)))
    monkeypatch.setattr(decoding, "launch", lambda kernel, grid, given, constants, **_: chosen.append(constants))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    q, k = torch.zeros(1, 8, 1, 128), torch.zeros(1, 1, 512, 128)
    decoding.decode(q, k, k, plain_options(q.shape[-1], 1.0, causal=False), 32)  # 8 rows of 128 numbers, 32 times: 2^15
    decoding.decode(q, k, k, plain_options(q.shape[-1], 1.0, causal=False), 33)
    capturing = True
    decoding.decode(q, k, k, plain_options(q.shape[-1], 1.0, causal=False), 32)
    assert [c["MERGE"] for c in chosen if "MERGE" in c] == [True, False, False]


def test_room_for_splits_is_kept_and_grows(monkeypatch):
    monkeypatch.setattr(decoding, "_workspaces", {})
    stream = 0
    monkeypatch.setattr(decoding, "current_stream", lambda device: stream)
    cpu = torch.device("cpu")
    first = decoding.workspace(cpu, True, 100, 10, 4)
    assert decoding.workspace(cpu, True, 60, 10, 1) is first
    second = decoding.workspace(cpu, True, 60, 30, 1)
    assert [t.numel() for t in second] == [100, 30, 4] and not second[2].any()
    stream = 7
    other = decoding.workspace(cpu, True, 60, 30, 1)
    assert all(mine is not theirs for mine, theirs in zip(other, second, strict=True)), "streams run side by side"
    fresh = [decoding.workspace(cpu, False, 60, 30, 1) for _ in range(2)]
    assert fresh[0] is not fresh[1] and len(decoding._workspaces) == 2


@pytest.mark.parametrize("dtype", (fp16, fp32), ids=str)
def test_what_is_compiled_differently_has_another_key(monkeypatch, dtype):
    """Arguments that are absent, and dtypes of those that are there, are compiled in."""
    launches = {}

    def launch(kernel, grid, arguments, constants, *, key, **_):
        compiled_in = [a.dtype if isinstance(a, torch.Tensor) else a is None for a in arguments]
        launches.setdefault((kernel, *key, *constants.values()), []).append(compiled_in)

    monkeypatch.setattr(decoding, "launch", launch)
    q, k = (torch.zeros(shape, dtype=dtype, device=DEVICE) for shape in ((2, 4, 1, 64), (2, 2, 600, 64)))
    for splits, one_launch, with_lse in itertools.product((1, 3), (False, True), (False, True)):
        decoding.decode(q, k, k, plain_options(q.shape[-1], 1.0, causal=False), splits, one_launch, with_lse=with_lse)
    assert sum(map(len, launches.values())) == 8 + 2, "two of them with a second kernel"
    for key, alike in launches.items():
        assert all(each == alike[0] for each in alike), key


@pytest.mark.parametrize("splits, one_launch", ((1, False), (3, False), (3, True)))
def test_without_lse(splits, one_launch):
    q, k, v, _ = make(Case(2, 300, 16, H_q=4, H_kv=2, layout="transposed"), DEVICE)
    want, _ = attention_decode(q, k, v, scale=0.3, splits=splits, one_launch=one_launch)
    o, lse = decoding.decode(q, k, v, plain_options(q.shape[-1], 0.3, causal=False), splits, one_launch, with_lse=False)
    assert torch.equal(o, want) and lse is None


def test_output_keeps_the_layout_of_q():
    q, k, v, _ = make(Case(2, 20, 16, layout="transposed"), DEVICE)
    o, lse = attention_decode(q, k, v, splits=2)
    assert o.stride() == q.stride() and lse.is_contiguous()


@pytest.mark.parametrize("N_q, N_k", ((3, 0), (0, 3), (0, 0)))
def test_nothing_to_see(N_q, N_k):
    q, k, v, _ = make(Case(N_q, N_k, 16), DEVICE)
    o, lse = attention_decode(q, k, v, splits=4)
    assert o.shape == q.shape and not o.any() and (lse == -torch.inf).all()


@pytest.mark.parametrize(
    "message, shapes, options",
    (
        (r"at most 32 in torch.float32, got 3 \* 11", ((1, 3, 11, 16), (1, 1, 20, 16)), {}),
        (r"at most 256, got 257", ((1, 1, 1, 257), (1, 1, 1, 257)), {}),
        (r"splits of at least 1, got 0", ((1, 1, 1, 16), (1, 1, 1, 16)), {"splits": 0}),
        (r"multiple of those of k and v, got 3 and 2", ((1, 3, 1, 16), (1, 2, 1, 16)), {}),
        (r"at most 65535 programs", ((65536, 1, 1, 1), (65536, 1, 1, 1)), {}),
    ),
)
def test_refusals(message, shapes, options):
    q, k = (torch.zeros(shape, device=DEVICE) for shape in shapes)
    with pytest.raises(ValueError, match=message):
        attention_decode(q, k, k, **options)


@needs_interpreter
@pytest.mark.parametrize(
    "case, splits",
    across(
        (
            Case(1, 257, 40, causal=True, H_q=8, H_kv=1, B=2, layout="transposed"),
            Case(16, 300, 16, causal=True, dtype=fp16, H_q=6, H_kv=2, layout="strided"),
            Case(3, 1, 64, causal=True, layout="packed"),
        ),
        (3, 1, 12),
    ),
    ids=str,
)
def test_k_and_v_are_read_once_per_key_head(case, splits):
    q, k, v, _ = make(case)
    steps = record(kernel_steps(attention_decode, q, k, v, causal=case.causal, splits=splits))
    e, rows, key_heads = case.dtype.itemsize, case.B * case.H_q * case.N_q, case.B * case.H_kv
    split, merge = ([s for s in steps if s.phase == kernel] for kernel in ("attention_decode", "attention_merge"))
    assert hbm_bytes(split, "K").read == hbm_bytes(split, "V").read == e * case.D * case.N_k * key_heads
    assert hbm_bytes(split, "Q").read == e * case.D * rows * splits
    results = (e * case.D + 4) * rows
    if splits == 1 and torch.empty_like(q).is_contiguous():  # nothing to merge
        assert hbm_bytes(split).written == results and not merge
    else:
        of_splits = 4 * (case.D + 1) * rows * splits  # o and lse in float32
        assert hbm_bytes(split).written == hbm_bytes(merge).read == of_splits
        assert hbm_bytes(merge).written == results
    assert len({s.program for s in split}) == splits * key_heads


@needs_interpreter
def test_a_split_is_attention_over_its_keys():
    """What a program writes for its split is what the teaching kernel returns for those keys alone."""
    q, k, v, _ = make(Case(1, 256, 64, H_q=4, H_kv=1))
    steps = record(kernel_steps(attention_decode, q, k, v, splits=2))
    ends = [s for s in steps if s.phase == "attention_decode" and s.writes]
    for step, keys in zip(ends, (slice(0, 128), slice(128, 256)), strict=True):
        o, lse = attention_forward(q, k[:, :, keys], v[:, :, keys])
        torch.testing.assert_close(step.values["o_splits"][:, :, :, 0], o)
        torch.testing.assert_close(step.values["lse_splits"][:, :, :, 0], lse)


def test_gradients_from_its_o_and_lse():
    """The backward pass takes o and lse from any forward pass."""
    case = Case(2, 300, 16, causal=True, H_q=4, H_kv=2)
    q, k, v, do = make(case, DEVICE)
    o, lse = attention_decode(q, k, v, causal=True, splits=3)
    scale = case.D**-0.5
    grads = torch.ops.flashlearn.attention_backward(do, None, q, k, v, o, lse, True, scale)
    ours = dict(zip(("dq", "dk", "dv"), grads, strict=True))
    check(case, ours, oracle(case, q, k, v, do), plain(case, q, k, v, do))


@pytest.mark.parametrize(
    "programs, N_k, sms, splits",
    (
        (8, 65536, 132, 33),  # 264 programs: two on each of 132 sms
        (1, 65536, 132, 256),  # or as many as have 256 keys each
        (2, 8192, 132, 32),
        (2, 4096, 132, 16),
        (2, 2048, 132, 16),  # up to 16 may be shorter
        (8, 1024, 132, 16),
        (32, 1024, 132, 8),  # 256 programs
        (1, 700, 132, 10),  # of 64 keys and more
        (1, 127, 132, 1),
        (264, 65536, 132, 1),  # the GPU is full
        (265, 65536, 132, 1),
        (100, 65536, 132, 2),  # 200 programs; 300 would not all run at the same time
        (0, 0, 132, 1),
    ),
)
def test_number_of_splits(programs, N_k, sms, splits):
    assert decode_splits(programs, N_k, sms) == splits


@pytest.mark.parametrize("D", (1, 16, 64, 96, 128, 192, 256))
@pytest.mark.parametrize("itemsize", (2, 4))
@pytest.mark.parametrize("rows", (1, 16, 17, 32, 64))
def test_launches_are_powers_of_two_that_tl_dot_takes(rows, D, itemsize):
    for kind in ("", "short"):
        block_m, block_n = decode_launch(rows, D, itemsize, kind)[:2]
        assert block_m >= rows and all(n >= 16 and n & (n - 1) == 0 for n in (block_m, block_n))
        assert block_n <= (64 if kind == "short" else 128)


@pytest.mark.parametrize(
    "keys, left, splits, kind", ((1024, None, 4, "short"), (1025, None, 4, ""), (9999, 100, 1, "short"))
)
def test_splits_of_at_most_256_keys_have_blocks_of_their_own(keys, left, splits, kind):
    q, k = torch.empty(1, 4, 1, 64), torch.empty(1, 1, keys, 64)
    assert cut(q, k, left, splits) == (splits, kind)


@pytest.mark.parametrize(
    "chosen, H_q, H_kv, N_q, N_k, dtype",
    (
        (True, 8, 8, 1, 512, bf16),
        (True, 8, 1, 8, 4096, fp16),  # 64 rows
        (False, 8, 1, 9, 4096, fp16),
        (True, 8, 1, 4, 4096, fp32),  # 32 rows
        (False, 8, 1, 5, 4096, fp32),
        (False, 8, 8, 1, 511, bf16),  # too few keys to split
        (False, 8, 8, 1024, 1024, bf16),
    ),
)
def test_when_it_is_chosen(monkeypatch, chosen, H_q, H_kv, N_q, N_k, dtype):
    """On any GPU, ahead of the fast kernel for Hopper."""
    monkeypatch.setattr(dispatch, "INTERPRETED", False)
    monkeypatch.setattr(dispatch, "why_not_this_machine", lambda device: "")
    q, k = torch.zeros(1, H_q, N_q, 64, dtype=dtype), torch.zeros(1, H_kv, N_k, 64, dtype=dtype)
    choice = dispatch.choose_forward(q, k, k, scale=0.1)
    assert (choice.name == "decode") is chosen
    if chosen:
        assert choice == ("decode", {}, "")


@needs_interpreter
def test_the_interpreter_decodes_with_the_portable_kernel():
    q, k = torch.zeros(1, 2, 1, 16), torch.zeros(1, 2, 600, 16)
    assert dispatch.choose_forward(q, k, k, scale=0.1) == ("portable", {}, "kernels run in the interpreter")


def test_the_op_decodes_where_it_is_chosen(monkeypatch):
    """o, lse and gradients of the op when the choice falls on the decoding kernels."""
    monkeypatch.setattr(dispatch, "decodes", lambda q, k: True)
    case = Case(2, 70, 16, causal=True, H_q=4, H_kv=2)
    q, k, v, do = make(case, DEVICE)
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    o, lse = flash_attention(*leaves, causal=True, return_lse=True)
    want = attention_decode(q, k, v, causal=True)
    assert torch.equal(o, want[0]) and torch.equal(lse, want[1])
    grads = torch.autograd.grad(o, leaves, do)
    ours = {"o": o, "lse": lse} | dict(zip(("dq", "dk", "dv"), grads, strict=True))
    check(case, ours, oracle(case, q, k, v, do), plain(case, q, k, v, do))


@pytest.mark.parametrize("D", (40, 64, 128, 256))
@pytest.mark.parametrize("splits", (1, 2, 4, 7, 16, 33, 264))
def test_a_merge_has_as_many_warps_as_there_is_to_merge(splits, D):
    """All splits at once, if that is no more than 64 numbers a thread; 32 for each thread of one to four warps."""
    block_s, warps = decoding.merge_launch(splits, D)
    numbers = block_s * padded(D) // (32 * warps)
    assert block_s >= splits or numbers == 64
    assert numbers == 32 or (warps == 1 and numbers < 32) or (warps == 4 and numbers == 64)
