"""Bytes and FLOPs of decoding, counted from steps, equal the formulas; the intensity is that of queries per key head."""

from __future__ import annotations

import pytest
import torch

import flashlearn as fl
from flashlearn.cost import cache_bytes, decode_cost, latent_cache_bytes, latent_decode_cost, paged_cost
from flashlearn.models.gpt import KVCache
from flashlearn.serving import PagePool


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("lengths", "H_q", "H_kv", "N_q"), [((7, 1, 12), 6, 2, 1), ((5,), 4, 4, 1), ((9, 10), 6, 1, 3)]
)
def test_attention_of_a_step_costs_what_its_steps_count(lengths, H_q, H_kv, N_q, dtype):
    D, read, written, flops = 10, 0, 0, 0
    for n in lengths:  # the queries of a group are rows of one block
        q = torch.randn(1, H_kv, H_q // H_kv * N_q, D).to(dtype)
        k, v = torch.randn(2, 1, H_kv, n, D).to(dtype)
        steps = fl.record(fl.tiled_attention_v2_steps(q, k, v, block_q=64, block_k=4))
        read += fl.hbm_bytes(steps).read
        written += fl.hbm_bytes(steps, "O").written
        flops += fl.matmul_flops(steps)
    cost = decode_cost(lengths, H_q, H_kv, D, N_q=N_q, dtype=dtype)
    assert (cost.read, cost.written, cost.flops) == (read, written, flops)


def latent_steps(q, c, rank, rotated):
    """Attention of all heads to latent vectors, each read once: the first `rank` numbers are value, and all are key."""
    H, n = q.shape[2], c.shape[2]
    shapes = {"Q": q.shape, "C": c.shape, "O": (1, 1, H, rank)}
    hbm = fl.HBM({"Q": q, "C": c}, {"O": q.dtype}, shapes)
    q_c, q_r = hbm.load("Q", (0, H), (0, rank)), hbm.load("Q", (0, H), (rank, rank + rotated))
    c_n, r_n = hbm.load("C", (0, n), (0, rank)), hbm.load("C", (0, n), (rank, rank + rotated))
    s = q_c @ c_n.mT + q_r @ r_n.mT
    p = (s - s.amax(-1, keepdim=True)).exp()
    hbm.store("O", (0, H), (p @ c_n) / p.sum(-1, keepdim=True))
    yield hbm.step("latent")


@pytest.mark.parametrize(("n", "H", "rank", "rotated"), [(9, 4, 8, 2), (1, 3, 5, 4), (16, 1, 6, 1)])
def test_latent_attention_costs_what_its_steps_count(n, H, rank, rotated):
    q, c = torch.randn(1, 1, H, rank + rotated), torch.randn(1, 1, n, rank + rotated)
    steps = fl.record(latent_steps(q, c, rank, rotated))
    cost = latent_decode_cost([n], H, rank, rotated, dtype=torch.float32)
    assert (cost.read, cost.written) == fl.hbm_bytes(steps) and cost.flops == fl.matmul_flops(steps)
    twice = latent_decode_cost([n, n], H, rank, rotated, dtype=torch.float32)
    assert (twice.read, twice.flops) == (2 * cost.read, 2 * cost.flops)


def test_the_bytes_of_a_token_are_those_of_a_cache_and_of_a_pool():
    one = KVCache(1, 3, 1, 10, dtype=torch.float16)
    assert 5 * (one.k.nbytes + one.v.nbytes) == cache_bytes(5, 3, 10)
    pool = PagePool(7, 4, 3, 10, layers=5)
    assert pool.k.nbytes + pool.v.nbytes == 7 * 4 * cache_bytes(5, 3, 10, dtype=torch.float32)
    assert latent_cache_bytes(61, 512, 64) == 61 * 576 * 2


def test_the_intensity_of_long_caches_is_that_of_the_queries_of_a_key_head():
    for group, N_q in ((1, 1), (4, 1), (32, 1), (4, 3)):
        cost = decode_cost([10**6], 32, 32 // group, 128, N_q=N_q)
        assert cost.intensity == pytest.approx(group * N_q, rel=1e-2)
    latent = latent_decode_cost([10**6], 128, 512, 64)
    assert latent.intensity == pytest.approx(128 * (2 * 512 + 64) / 576, rel=1e-2)


MULTIPLE = "expected the heads of q to be a multiple of those of k and v, got 3 and 2"
DTYPE = "expected dtype to be a torch.dtype, got 'fp16'"


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (TypeError, "expected layers to be an int, got str", lambda: cache_bytes("1", 2, 3)),
        (ValueError, "expected H_kv of at least 0, got -2", lambda: cache_bytes(1, -2, 3)),
        (TypeError, DTYPE, lambda: cache_bytes(1, 2, 3, dtype="fp16")),
        (TypeError, DTYPE, lambda: latent_cache_bytes(1, 2, 3, dtype="fp16")),
        (TypeError, DTYPE, lambda: latent_decode_cost([5], 4, 8, 2, dtype="fp16")),
        (TypeError, "expected rotated to be an int, got float", lambda: latent_cache_bytes(1, 2, 3.0)),
        (ValueError, "expected each of lengths of at least 0, got -5", lambda: decode_cost([3, -5], 4, 2, 8)),
        (TypeError, "expected each of lengths to be an int, got bool", lambda: decode_cost([True], 4, 2, 8)),
        (TypeError, "expected lengths to be a sequence of ints, got int", lambda: decode_cost(5, 4, 2, 8)),
        (ValueError, MULTIPLE, lambda: decode_cost([5], 3, 2, 8)),
        (ValueError, "expected H_kv of at least 1, got 0", lambda: decode_cost([5], 3, 0, 8)),
        (ValueError, "expected H_q of at least 0, got -4", lambda: decode_cost([5], -4, 2, 8)),
        (TypeError, DTYPE, lambda: decode_cost([5], 4, 2, 8, dtype="fp16")),
        (ValueError, "expected N_q of at least 0, got -1", lambda: decode_cost([5], 4, 2, 8, N_q=-1)),
        (ValueError, "expected each of lengths of at least 0, got -5", lambda: latent_decode_cost([-5], 4, 8, 2)),
        (ValueError, "expected rank of at least 0, got -8", lambda: latent_decode_cost([5], 4, -8, 2)),
        (ValueError, "expected each of lengths of at least 0, got -5", lambda: paged_cost([-5], [1], (4, 2), 8)),
        (ValueError, "expected D of at least 0, got -8", lambda: paged_cost([5], [1], (4, 2), -8)),
        (ValueError, "expected as many lengths as queries, got 1 and 2", lambda: paged_cost([5], [1, 2], (4, 2), 8)),
        (TypeError, "expected each of queries to be an int, got float", lambda: paged_cost([5], [1.0], (4, 2), 8)),
        (TypeError, r"expected heads to be \(H_q, H_kv\), got 4", lambda: paged_cost([5], [1], 4, 8)),
        (ValueError, MULTIPLE, lambda: paged_cost([5], [1], (3, 2), 8)),
        (TypeError, "expected causal to be True or False", lambda: paged_cost([5], [1], (4, 2), 8, causal="no")),
        (TypeError, "float64, got torch.int8", lambda: paged_cost([5], [1], (4, 2), 8, dtype=torch.int8)),
    ],
)
def test_costs_of_serving_check_what_they_are_given(error, message, call):
    with pytest.raises(error, match=message):
        call()
    assert cache_bytes(1, 2, 3, dtype=torch.int8) == 12, "a cache may hold what the algorithms do not compute with"
