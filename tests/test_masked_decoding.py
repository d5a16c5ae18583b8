"""Decoding with masks and changed scores: against brute force, and what is read."""

from __future__ import annotations

import importlib.util

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: no kernel is tested", allow_module_level=True)

from flashlearn.core.inputs import check_qkv
from flashlearn.core.options import AttentionOptions, plain_options
from flashlearn.core.steps import hbm_bytes
from flashlearn.core.target import INTERPRETED
from flashlearn.fast import decode as decoding
from flashlearn.fast import dispatch
from flashlearn.fast.decode import attention_decode, decode_splits
from flashlearn.kernels.recorder import kernel_steps
from tests import grid
from tests.grid import answers, fp16, fp32, make
from tests.masked import Problem, given, without_gradients
from tests.slow import across, covering, slow

DEVICE = "cpu" if INTERPRETED else "cuda"
PROBLEMS = [
    Problem(1, 300, 16, H_q=4, H_kv=2, window=(0, 0)),
    Problem(1, 300, 16, H_q=4, H_kv=2, window=(40, None), sinks=True, dtype=fp16),
    Problem(1, 257, 24, causal=True, H_q=3, H_kv=1, window=(128, None), softcap=2.0),
    Problem(3, 290, 16, causal=True, H_q=4, H_kv=1, window=(20, None), alibi=True, sinks=True),
    Problem(4, 300, 16, B=2, H_q=2, H_kv=1, window=(200, 3), key_range=((0, 299), (130, 222))),
    Problem(5, 300, 16, B=3, H_q=2, causal=True, key_range=((0, 0), (299, 300), (17, 257)), sinks=True, dtype=fp16),
    Problem(2, 280, 16, B=2, softcap=1.5, alibi=True, key_range=((1, 280), (100, 101))),
    Problem(1, 300, 16, window=(1000, 1000), scale=-0.3, softcap=50.0),
    Problem(7, 3, 16, causal=True, window=(1, None), sinks=True),  # 4 queries see the sink alone
]


def traits(problem: Problem) -> set:
    return {*problem.options, problem.causal, problem.N_q > 1, problem.window, problem.H_kv}


FEW = [p.values[0] for p in covering(PROBLEMS, traits) if not p.marks]
REST = [slow(problem, splits) for problem in PROBLEMS if problem not in FEW for splits in (1, 3, 7)]


@pytest.mark.parametrize("problem, splits", [*across(FEW, (1, 3, 7)), *REST], ids=str)
def test_any_combination(problem, splits):
    inputs, options = make(problem, DEVICE), given(problem, DEVICE)
    how = AttentionOptions.of(check_qkv(*inputs[:3]), inputs[0], **without_gradients(options))
    o, lse = attention_decode(*inputs[:3], splits=splits, options=how)
    want, yardstick = (answers(problem, inputs, options, dtype=dtype) for dtype in (torch.float64, problem.dtype))
    grid.check(problem, {"o": o, "lse": lse}, want, yardstick)


@pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled here: nothing to record")
@pytest.mark.parametrize("left, keys", ((0, 1), (60, 61), (127, 128), (500, 300)))
def test_only_blocks_of_the_window_are_read(left, keys, N=300, D=16):
    q, k, v = make(Problem(1, N, D, H_q=4, H_kv=2))[:3]
    steps = [
        step
        for step in kernel_steps(
            attention_decode, q, k, v, splits=2, options=plain_options(D, 0.25, causal=False)._replace(left=left)
        )
        if step.phase == "attention_decode"
    ]
    block = decoding.decode_launch(2, D, 4, "short").block_n
    start = (N - keys) // block * block
    for name in ("K", "V"):
        assert hbm_bytes(steps, name).read == 2 * (N - start) * D * 4


def test_a_window_is_cut_into_no_more_splits_than_it_has_keys_for():
    assert decode_splits(8, 65536, 132) > decode_splits(8, 1024, 132) == 16


@pytest.mark.parametrize(
    "options, name",
    (
        ({"left": 5}, "decode"),
        ({"softcap": 2.0}, "decode"),
        ({"offsets": (torch.zeros(2, dtype=torch.int32), None)}, "portable"),
    ),
)
def test_the_op_decodes_all_but_documents(monkeypatch, options, name):
    monkeypatch.setattr(dispatch, "INTERPRETED", False)
    monkeypatch.setattr(dispatch, "why_not_this_machine", lambda device: "another GPU")
    q, k = torch.zeros(1, 4, 1, 16, dtype=fp32), torch.zeros(1, 2, 4096, 16)
    given = plain_options(16, 0.1, causal=False)._replace(**options)
    assert dispatch.choose(q, k, k, given).name == name
    assert dispatch.choose(q, k, k, given, backward=True).name == "portable"


def test_offsets_are_rejected():
    q, k, v = make(Problem(2, 2, 16), DEVICE)[:3]
    with pytest.raises(ValueError, match="expected options without offsets"):
        offsets = (torch.tensor([0, 2], dtype=torch.int32), None)
        attention_decode(q, k, v, options=plain_options(16, 0.25, causal=False)._replace(offsets=offsets))
