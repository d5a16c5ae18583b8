"""What only a GPU can show of attention over pages: compiled, long, without waiting for the GPU, in CUDA graphs.

Run on a machine with a CUDA GPU: `pytest tests/gpu`. Without one every test here is skipped, and says so. Nearly all of the
time is compilation: few head dimensions and page sizes, many lengths.
"""

from __future__ import annotations

import importlib.util
import random
from dataclasses import replace

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: compiled kernels are not tested", allow_module_level=True)

from flashlearn import flash_attention, flash_attention_paged
from flashlearn.fast import dispatch
from flashlearn.fast import paged as kernels
from flashlearn.models.gpt import GPT
from flashlearn.serving import Batch, PagePool, greedy
from tests.test_paged import AWKWARD, Problem, bf16, compare, fp16, fp32, make, oracle, with_sinks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU: compiled kernels are not tested"),
]

torch.set_num_threads(1)  # the CPU only draws inputs here; many workers share it
BASE = Problem((700, 1, 0, 333), D=128, group=4, page=64)


def hold(problem: Problem, **options) -> None:
    """The kernel to float64."""
    tensors, ragged = make(problem, "cuda")
    options = with_sinks(options, problem)
    got = flash_attention_paged(*tensors, **ragged, **options, return_lse=True, check=True)
    compare(got, oracle(tensors, **ragged, **options), problem.dtype, f"{problem}, {sorted(options)}")


@pytest.fixture(params=("its own kernel", "portable"))
def kernel(request, monkeypatch):
    """Also the portable kernel where this GPU has one of its own for decoding."""
    if request.param == "portable":
        here = not dispatch.why_not_this_machine(torch.device("cuda", torch.cuda.current_device()))
        if not here:
            pytest.skip("this GPU has no kernel of its own for pages")
        monkeypatch.setattr(kernels, "why_not_hopper_paged", lambda given: "switched off")


@pytest.mark.parametrize("dtype", (fp16, bf16, fp32), ids=str)
@pytest.mark.parametrize("page", (16, 256))
def test_lengths_and_numbers_of_queries(dtype, page, kernel):
    problem = replace(BASE, dtype=dtype, page=page)
    for lengths in ((1,), (257, 3, 100), (5000, 2, 17, 0, 64), (64,) * 40):
        hold(replace(problem, lengths=lengths))
        hold(replace(problem, lengths=lengths, queries=3))
        hold(
            replace(problem, lengths=lengths, queries=tuple(min(n, 100 * (b == 1)) + 1 for b, n in enumerate(lengths)))
        )


@pytest.mark.parametrize("D", (2, 17, 40, 64, 192, 256))
def test_head_dimensions(D):
    hold(replace(BASE, D=D, dtype=fp16))
    hold(replace(BASE, D=D, dtype=fp16, queries=(200, 1, 0, 40)))


def test_one_column_is_rejected():
    """Its reads outside of shared memory ended the process, which no test of another could survive."""
    with pytest.raises(ValueError, match="expected D of at least 2 on a GPU, got 1"):
        hold(replace(BASE, D=1, dtype=fp16))


@pytest.mark.parametrize("problem", [p for p in AWKWARD if p.lengths][::3], ids=str)
def test_awkward_problems(problem):
    hold(problem)


@pytest.mark.parametrize("queries", (1, (200, 1, 0, 40)), ids=("decoding", "ragged"))
@pytest.mark.parametrize(
    "options",
    (
        {"window": (100, None)}, {"causal": False}, {"causal": False, "window": (30, 5), "sinks": True},
        {"softcap": 2.0}, {"softcap": 2.0, "window": (100, 0), "sinks": True, "scale": -0.1},
    ),
    ids=lambda options: " ".join(options),
)  # fmt: skip
def test_options(queries, options, kernel):
    hold(replace(BASE, queries=queries, dtype=fp16), **options)


@pytest.mark.parametrize("dtype", (fp16, bf16), ids=str)
def test_one_long_sequence_among_short_ones(dtype, kernel):
    draw = random.Random(0)
    lengths = (65536, *(draw.randrange(1, 500) for _ in range(60)))
    hold(Problem(lengths, D=128, H_kv=2, group=4, page=16, dtype=dtype, spare=0))


def test_what_lies_past_the_end_of_a_sequence_does_not_matter():
    """Pages are handed on as they are: NaN in the rest of a page, and in pages of others."""
    (q, k, v, table, lengths), _ = make(replace(BASE, dtype=fp16), "cuda")
    want = flash_attention_paged(q, k, v, table, lengths)
    keys = torch.arange(table.shape[1] * 64, device="cuda").view(1, -1, 64) < lengths[:, None, None]  # (B, most, 64)
    kept = torch.zeros(k.shape[0], 64, dtype=torch.bool, device="cuda")
    for row, there in zip(table.long(), keys, strict=True):
        kept[row[there.any(1)]] = there[there.any(1)]
    k, v = (t.masked_fill(~kept[:, None, :, None], float("nan")) for t in (k, v))
    assert torch.equal(flash_attention_paged(q, k, v, table, lengths), want)


@pytest.mark.parametrize("B, longest", [(1, 9000), (16, 1024), (200, 700)])
def test_many_runs_have_the_same_bits(B, longest):
    """Nothing races: pieces and whole rows of every kind of share."""
    draw = random.Random(B)
    lengths = (longest, *(draw.randrange(longest) for _ in range(B - 1)))
    tensors, _ = make(Problem(lengths, D=128, H_kv=2, group=4, page=64, dtype=fp16), "cuda")
    want = flash_attention_paged(*tensors, return_lse=True)
    compare(want, oracle(tensors), fp16, f"{B} sequences")
    for _ in range(50):
        for ours, first in zip(flash_attention_paged(*tensors, return_lse=True), want, strict=True):
            assert torch.equal(ours, first)


def test_a_prompt_beside_the_dense_op():
    """Many queries, all tiles full: what the portable forward pass gives."""
    (q, k_pages, v_pages, table, lengths), _ = make(
        Problem((2048, 2048), 2048, D=128, group=4, page=64, dtype=fp16), "cuda"
    )
    k, v = (t[table[:, :32].long()].transpose(1, 2).flatten(2, 3) for t in (k_pages, v_pages))
    want = flash_attention(q, k, v, causal=True, return_lse=True)
    got = flash_attention_paged(q, k_pages, v_pages, table, lengths, return_lse=True)
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs, atol=4e-3, rtol=4e-3)


def test_nothing_waits_for_the_gpu():
    tensors, ragged = make(replace(BASE, queries=(20, 1, 0, 4), dtype=fp16), "cuda")
    want = flash_attention_paged(*tensors, **ragged)
    torch.cuda.set_sync_debug_mode("error")
    try:
        got = flash_attention_paged(*tensors, **ragged)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(got, want)


@pytest.mark.parametrize("queries", (1, (2, 1, 1, 3)), ids=("decoding", "ragged"))
def test_lengths_and_tables_change_between_replays(queries, kernel):
    """One graph for all lengths that the table has room for; and the same bits as outside of it."""
    problems = [
        replace(BASE, lengths=lengths, spare=20 - -(-max(lengths) // 64), queries=queries, dtype=fp16, seed=seed)
        for seed, lengths in enumerate(((700, 1, 2, 333), (1200, 1200, 1200, 1200), (3, 9, 1279, 5), (0, 0, 64, 128)))
    ]
    made = [make(problem, "cuda") for problem in problems]
    P = max(tensors[1].shape[0] for tensors, _ in made)
    made = [([q, *(torch.cat([t, t[:1].expand(P - len(t), -1, -1, -1)]) for t in kv), *rest], ragged)
            for (q, *kv, table, lengths), ragged in made for rest in [(table, lengths)]]  # fmt: skip
    static, ragged = [t.clone() for t in made[0][0]], made[0][1]
    flash_attention_paged(*static, **ragged)  # compiled before it is captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = flash_attention_paged(*static, **ragged, return_lse=True)
    for (tensors, _), problem in zip(made, problems, strict=True):
        for there, new in zip(static, tensors, strict=True):
            there.copy_(new)
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        compare((o, lse), oracle(tensors, **ragged), fp16, f"{problem} in a graph")
        want = flash_attention_paged(*tensors, **ragged, return_lse=True)
        assert torch.equal(o, want[0]) and torch.equal(lse, want[1])


def test_numbers_out_of_range_are_caught_or_harmless():
    tensors, _ = make(replace(BASE, dtype=fp16), "cuda")
    q, k, v, table, lengths = tensors
    table.fill_(10**8)
    lengths.fill_(10**8)
    flash_attention_paged(q, k, v, table, lengths)
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match="expected lengths of 0 to 768"):
        flash_attention_paged(q, k, v, table, lengths, check=True)
    with pytest.raises(ValueError, match="page_table on the device of q, cuda:0, got cpu"):
        flash_attention_paged(q, k, v, table.cpu(), lengths)


def test_a_cache_past_32_bits(alone):
    """Pages more than 2^31 elements apart."""
    problem = Problem((300, 500), D=128, group=4, page=64, dtype=fp16)
    (q, k, v, table, lengths), _ = make(problem, "cuda")
    want = flash_attention_paged(q, k, v, table, lengths)
    step = (2**31 + 2**20) // (k.shape[0] - 1) // 16 * 16
    base = torch.empty(step * (k.shape[0] - 1) + k[0].numel(), dtype=fp16, device="cuda")
    far = base.as_strided(k.shape, (step, *k.stride()[1:])).copy_(k)
    assert torch.equal(flash_attention_paged(q, far, v, table, lengths), want)


@torch.no_grad()
def test_a_model_is_served():
    """Requests that come and go get the tokens that they get alone, by the compiled kernel."""
    torch.manual_seed(0)
    model = GPT(50, layers=2, heads=4, kv_heads=2, width=64).cuda()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    pool = PagePool(40, 16, 2, 16, layers=2, device="cuda")
    batch, draw, requests = Batch(pool, greedy(model, pool, flash_attention_paged)), random.Random(1), []
    for _ in range(12):
        prompt = [draw.randrange(50) for _ in range(draw.randrange(1, 60))]
        requests.append(batch.submit(prompt, draw.randrange(1, 20)))
        batch.step()
    batch.run()
    for request in requests:
        tokens = torch.tensor([request.tokens[:-1]], device="cuda")
        best = model(tokens)[0, len(request.prompt) - 1 :].topk(2).values
        taken = model(tokens)[0, len(request.prompt) - 1 :].gather(1, tokens.new_tensor(request.answer)[:, None])
        assert (best[:, :1] - taken).max() < 1e-2, "the likeliest token, or one as likely but for rounding"
