"""The GPT of notebook 16: training and decoding are the same with every attention, cached or not."""

from __future__ import annotations

import copy
import importlib.util
import json
import math
from pathlib import Path

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import flashlearn as fl
from flashlearn.models.gpt import (
    GPT,
    TEXT,
    KVCache,
    batches,
    decode,
    encode,
    generate,
    loss_of,
    norm,
    pytorch_attention,
    read_text,
    rotate,
    train,
)
from flashlearn.models.ngram import longest_copy, ngram_loss
from tests.slow import across, slow

ATTENTIONS = {"standard": fl.standard_attention, "one pass": fl.one_pass_attention, "tiled v2": fl.tiled_attention_v2}
if importlib.util.find_spec("triton"):
    from flashlearn.core.target import INTERPRETED  # before torch.optim, which imports Triton
    from flashlearn.fast.api import flash_attention

    ATTENTIONS["flash"] = flash_attention
    DEVICE = "cpu" if INTERPRETED else "cuda"
else:
    DEVICE = "cpu"
TOLERANCE = 1e-3  # between loss curves, in nats per character, over the steps of these tests
NAMES = ("standard", "one pass", "tiled v2", "flash")
every_attention = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def text():
    return read_text()


@pytest.fixture(scope="module")
def alphabet(text):
    return "".join(sorted(set(text)))


@pytest.fixture(scope="module")
def tokens(text, alphabet):
    return encode(text, alphabet).to(DEVICE)


def attention_named(name):
    if name not in ATTENTIONS:
        pytest.skip("Triton is not installed here: flash_attention is not tested")
    return ATTENTIONS[name]


def model(attention=pytorch_attention, *, layers=2, heads=2, kv_heads=None, width=32):
    torch.manual_seed(0)
    return GPT(65, layers=layers, heads=heads, kv_heads=kv_heads, width=width, attention=attention).to(DEVICE)


# The text


def test_text_is_the_book_as_its_source_file_says(text, alphabet):
    assert len(text) == 456_724 and len(alphabet) == 65 and text.isascii()
    assert text.startswith("Paradise Lost\n") and text.endswith("Through Eden took their solitary way.\n\nThe End\n")
    assert [line for line in text.splitlines() if line.startswith("Book ")][-1] == "Book XII"
    assert 10_500 < sum(map(bool, text.splitlines())) < 10_600  # the poem has 10,565 lines
    about = (TEXT.parent / "README.md").read_text(encoding="utf-8")
    assert TEXT.name in about and "456,724 characters" in about and "public domain" in about.lower()


def test_encode_and_decode(text, alphabet):
    assert decode(encode(text[:500], alphabet), alphabet) == text[:500]
    with pytest.raises(ValueError, match=r"characters of the alphabet, got \['ä'\]"):
        encode("Käse", alphabet)


def test_batches_are_windows_of_the_text_and_the_same_for_the_same_seed(tokens):
    (x, y), (again, _) = (next(batches(tokens, 5, 30, seed)) for seed in (1, 1))
    assert x.shape == y.shape == (5, 30) and torch.equal(x, again)
    assert torch.equal(x[:, 1:], y[:, :-1])
    windows = tokens.unfold(0, 30, 1)
    assert all((windows == row).all(1).any() for row in x)
    assert not torch.equal(x, next(batches(tokens, 5, 30, 2))[0])


# The parts


@pytest.mark.parametrize("N_q, N_k", ((1, 1), (1, 9), (9, 9), (4, 9)))
@pytest.mark.parametrize("causal", (False, True))
def test_pytorch_attention_is_aligned_as_the_course_is(N_q, N_k, causal):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, H, N, 8) for H, N in ((4, N_q), (2, N_k), (2, N_k)))
    want = fl.standard_attention(q, k, v, causal=causal)
    torch.testing.assert_close(pytorch_attention(q, k, v, causal=causal), want)
    torch.testing.assert_close(
        pytorch_attention(q, k, v, causal=causal, scale=0.7), fl.standard_attention(q, k, v, causal=causal, scale=0.7)
    )


def test_rotation_keeps_lengths_and_makes_scores_depend_on_distance():
    torch.manual_seed(0)
    x, y = torch.randn(2, 1, 1, 1, 16, dtype=torch.float64)
    torch.testing.assert_close(rotate(x, 100).norm(), x.norm(), atol=1e-5, rtol=1e-5)
    score = lambda i, j: (rotate(x, i) * rotate(y, j)).sum()  # noqa: E731
    torch.testing.assert_close(score(12, 5), score(107, 100), atol=1e-4, rtol=1e-4)
    assert not torch.isclose(score(12, 5), score(13, 5), atol=1e-2)
    many = torch.randn(1, 1, 9, 16)
    torch.testing.assert_close(rotate(many)[:, :, 4:], rotate(many[:, :, 4:], 4))


def test_norm():
    x = norm(5 * torch.randn(3, 64))
    torch.testing.assert_close(x.square().mean(-1), torch.ones(3), atol=1e-3, rtol=1e-3)


def test_a_cache_that_is_full_says_so():
    cache = KVCache(1, 2, 5, 4)
    k, v = cache.append(torch.ones(1, 2, 4, 4), torch.zeros(1, 2, 4, 4))
    assert k.shape == v.shape == (1, 2, 4, 4) and k.all() and not v.any() and cache.length == 4
    with pytest.raises(ValueError, match="at most 5 tokens in the cache, got 6"):
        cache.append(torch.ones(1, 2, 2, 4), torch.zeros(1, 2, 2, 4))


def test_a_cache_is_filled_with_gradients_switched_on():
    """As a caller does who forgets torch.no_grad(): the same numbers, and no gradients through the cache."""
    torch.manual_seed(1)
    gpt = GPT(11)
    tokens = torch.randint(11, (2, 6))
    caches = gpt.empty_caches(2, 6)
    parts = [gpt(tokens[:, :4], caches), gpt(tokens[:, 4:], caches)]
    torch.testing.assert_close(torch.cat(parts, 1), gpt(tokens), atol=1e-5, rtol=1e-5)
    assert not any(cache.k.requires_grad for cache in caches)


@pytest.mark.parametrize(
    "k, v",
    (
        ((2, 1, 1, 4), (2, 1, 1, 4)),
        ((1, 2, 1, 4), (1, 2, 1, 4)),
        ((2, 2, 1, 1), (2, 2, 1, 1)),
        ((2, 2, 2, 4), (2, 2, 1, 4)),
        ((2, 1, 4), (2, 1, 4)),
    ),
)
def test_a_cache_takes_no_other_shape(k, v):
    cache = KVCache(2, 2, 5, 4)
    with pytest.raises(ValueError, match=r"expected k and v of shape \(B, H_kv, n, D\) = \(2, 2, n, 4\), got"):
        cache.append(torch.ones(k), torch.ones(v))
    assert cache.length == 0


def test_a_token_sees_no_later_token(tokens):
    x = tokens[None, :20].clone()
    before = model()(x)
    x[0, 12] = (x[0, 12] + 1) % 65
    after = model()(x)
    torch.testing.assert_close(after[:, :12], before[:, :12])
    assert not torch.allclose(after[:, 12:], before[:, 12:])


def test_an_untrained_model_knows_nothing(tokens):
    loss = loss_of(model(), *next(batches(tokens, 8, 32)))
    assert abs(loss.item() - math.log(65)) < 0.5


@pytest.mark.parametrize(
    "sizes, message",
    (
        ({"width": 30, "heads": 4}, "multiple of 2 heads = 8, got 30"),
        ({"width": 48, "heads": 6, "kv_heads": 4}, "multiple of kv_heads, got 6 and 4"),
        ({"heads": 0}, "expected heads of at least 1, got 0"),
        ({"heads": -2}, "expected heads of at least 1, got -2"),
        ({"kv_heads": 0}, "expected kv_heads of at least 1, got 0"),
        ({"width": 0}, "expected width of at least 1, got 0"),
        ({"layers": -1}, "expected layers of at least 0, got -1"),
        ({"width": 32.0}, "expected width to be an int, got float"),
        ({"attention": None}, r"expected attention to be a function attention\(.*\), got NoneType"),
    ),
)
def test_sizes_that_do_not_fit_are_rejected(sizes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        GPT(5, **sizes)
    with pytest.raises(ValueError, match="expected vocabulary of at least 1, got 0"):
        GPT(0)


@pytest.mark.parametrize(
    "call, message",
    (
        (lambda m, x: generate(m, x, -1), "expected count of at least 0, got -1"),
        (lambda m, x: generate(m, x, 1, temperature=-1), "expected a temperature of at least 1e-30, got -1"),
        (lambda m, x: generate(m, x, 1, temperature=0), "expected a temperature of at least 1e-30, got 0"),
        (lambda m, x: generate(m, x, 1, temperature=1e-40), "expected a temperature of at least 1e-30, got 1e-40"),
        (lambda m, x: generate(m, x, 1, temperature=math.nan), "expected a temperature of at least 1e-30, got nan"),
        (lambda m, x: generate(m, x, 1, temperature="1"), "expected a temperature of at least 1e-30, got '1'"),
        (lambda m, x: generate(m, x, 1, cached="no"), "expected cached to be True or False, got 'no'"),
        (lambda m, x: generate(m, x[0], 1), r"expected tokens \(B, N\) with an N of at least 1, got \(6,\)"),
        (lambda m, x: generate(m, x[:, :0], 1), r"expected tokens \(B, N\) with .*, got \(1, 0\)"),
        (lambda m, x: generate(m, [1], 1), r"expected tokens \(B, N\) with .*, got list"),
        (lambda m, x: train(m, x[0], steps=0, batch=1, context=2), "expected steps of at least 1, got 0"),
        (lambda m, x: train(m, x[0], steps=1, batch=0, context=2), "expected batch of at least 1, got 0"),
        (lambda m, x: train(m, x[0], steps=1, batch=1, context=0), "expected context of at least 1, got 0"),
        (
            lambda m, x: train(m, x[0], steps=1, batch=1, context=6),
            r"tokens \(N,\), more .* than the context of 6, got \(6,\)",
        ),
        (lambda m, x: train(m, x, steps=1, batch=1, context=2), r"expected tokens \(N,\), .*, got \(1, 6\)"),
        (lambda m, x: train(m, [1, 2], steps=1, batch=1, context=1), r"expected tokens \(N,\), .*, got list"),
        (lambda m, x: pytorch_attention(*torch.ones(3, 1, 1, 2, 4), causal="no"), "expected causal to be True or"),
    ),
)
def test_training_and_generation_say_what_they_take(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(GPT(5), torch.tensor([[0, 1, 2, 3, 4, 0]]))
    assert generate(GPT(5), torch.tensor([[1]]), 0).tolist() == [[1]]
    assert len(train(GPT(5), torch.tensor([0, 1, 2]), steps=1, batch=1, context=2)) == 1


# Every attention is the same attention


@pytest.mark.parametrize("name, kv_heads", across(NAMES, (2, 1)))
def test_logits_and_gradients(name, kv_heads, tokens):
    x, y = next(batches(tokens, 2, 70))
    found = []
    for attention in (pytorch_attention, attention_named(name)):
        gpt = model(attention, kv_heads=kv_heads)
        loss_of(gpt, x, y).backward()
        found.append({"logits": gpt(x).detach(), **{name: p.grad for name, p in gpt.named_parameters()}})
    want, got = found
    for part in want:
        torch.testing.assert_close(got[part], want[part], atol=1e-5, rtol=1e-4, msg=lambda m, p=part: f"{p}: {m}")


@pytest.mark.parametrize("name", (slow("standard"), slow("one pass"), "tiled v2", slow("flash")))
def test_loss_curves_lie_on_each_other(name, tokens):
    steps = 5 if name == "flash" else 25
    options = {"steps": steps, "batch": 4, "context": 48}
    want, got = (train(model(each), tokens, **options) for each in (pytorch_attention, attention_named(name)))
    assert len(got) == steps and got[-1] < got[0] - 0.5, "it learns"
    assert max(abs(g - w) for g, w in zip(got, want, strict=True)) < TOLERANCE


@pytest.fixture(scope="module")
def trained(tokens):
    gpt = model()
    train(gpt, tokens, steps=20, batch=4, context=48)
    return gpt


@pytest.mark.parametrize(
    "name, cached",
    [("standard", False), ("tiled v2", True), ("flash", True), slow("one pass", True), slow("one pass", False)]
    + [slow("standard", True), slow("tiled v2", False), slow("flash", False)],
)
def test_generated_text_is_the_same_for_the_same_seed(name, cached, tokens, trained):
    gpt = copy.deepcopy(trained)
    count = 12 if name == "flash" else 60
    want = generate(gpt, tokens[None, :30], count, seed=3)
    gpt.attention = attention_named(name)
    got = generate(gpt, tokens[None, :30], count, seed=3, cached=cached)
    assert got.shape == (1, 30 + count) and torch.equal(got, want)


def test_another_seed_gives_another_text(tokens):
    one, other = (generate(model(), tokens[None, :5], 20, seed=seed) for seed in (0, 1))
    assert not torch.equal(one, other)


@pytest.mark.parametrize("name, chunks, kv_heads", across(NAMES, ((20, 1, 1, 1), (1, 22), (10, 7, 6)), (2, 1)), ids=str)
def test_decoding_in_chunks_equals_one_pass(name, chunks, kv_heads, tokens):
    gpt = model(kv_heads=kv_heads)
    x = torch.stack([tokens[:23], tokens[100:123]])
    with torch.no_grad():
        want = gpt(x)
        gpt.attention = attention_named(name)
        caches = gpt.empty_caches(2, 23)
        got = torch.cat([gpt(part, caches) for part in x.split(chunks, dim=1)], dim=1)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    assert all(cache.length == 23 and cache.k.shape == (2, kv_heads, 23, 16) for cache in caches)


def test_mixed_precision_trains(tokens):
    losses = train(model(), tokens, steps=15, batch=4, context=48, dtype=torch.bfloat16)
    plain = train(model(), tokens, steps=15, batch=4, context=48)
    assert max(abs(a - b) for a, b in zip(losses, plain, strict=True)) < 0.1 and losses != plain


@every_attention
def test_top_left_alignment_would_be_wrong(name):
    """What the chunks rely on: PyTorch's is_causal is aligned to the top left, the course to the bottom right."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, n, 16, device=DEVICE) for n in (3, 8, 8))
    ours = attention_named(name)(q, k, v, causal=True)
    assert not torch.allclose(ours, scaled_dot_product_attention(q, k, v, is_causal=True), atol=1e-2)
    torch.testing.assert_close(ours[:, :, -1:], scaled_dot_product_attention(q[:, :, -1:], k, v), atol=1e-5, rtol=1e-4)


# The recorded run


def test_the_recorded_run_supports_what_the_notebook_says():
    run = json.loads((Path(__file__).parents[1] / "flashlearn/measurements/gpt_gpu.json").read_text(encoding="utf-8"))
    assert {"gpu", "driver", "torch", "triton", "date", "commit"} <= set(run["provenance"])
    losses = run["training"]["losses"]
    assert max(abs(a - b) for a, b in zip(losses["flash_attention"], losses["PyTorch"], strict=True)) < 0.05
    assert {"title", "characters", "alphabet", "sha256"} == set(run["text"])
    texts = {each[key] for each in run["decoding"]["runs"].values() for key in ("text", "text_from_scratch")}
    assert len(texts) == 1
    count = len(run["decoding"]["prompts"])
    assert all(
        len(each["cached_ms"]) == len(each["from_scratch_ms"]) == count for each in run["decoding"]["runs"].values()
    )
    peak = run["memory"]["peak_bytes"]
    assert peak["standard"][-1] is None and None not in peak["flash_attention"]


@pytest.fixture(scope="module")
def verse():
    from flashlearn.measurements import load

    return load("gpt_verse_h100")


@pytest.mark.parametrize("name", ("PyTorch", "flash_attention"))
def test_the_best_weights_of_the_long_run_beat_counting(name, verse, text, alphabet):
    """By the record's own n-gram loss, made anew here, and by that of the very characters that the model was asked for."""
    given, found, characters = verse["sizes"]["verse"], verse["verse"], encode(text, alphabet)
    split = len(text) * 9 // 10
    learnt, held_out = characters[:split], characters[split:]
    assert len(held_out) == found["held_out"] and given["order"] == found["order"] == 5
    asked = (len(held_out) - 1) // given["context"] * given["context"] + 1
    counted = [ngram_loss(learnt, part, order=5, vocabulary=len(alphabet)) for part in (held_out, held_out[:asked])]
    assert counted[0] == pytest.approx(found["ngram"], abs=1e-9)
    run = found["runs"][name]
    assert run["best"] == min(run["validation"].values()) == run["validation"][str(run["best_step"])] < min(counted)


@pytest.mark.parametrize("name", ("PyTorch", "flash_attention"))
def test_the_long_run_ends_in_overfitting(name, verse):
    run, steps = verse["verse"]["runs"][name], verse["sizes"]["verse"]["steps"]
    assert len(run["losses"]) == steps == 5000 and [*map(int, run["validation"])] == list(range(0, steps + 1, 100))
    assert max(run["losses"][-100:]) < 0.1 and run["validation"]["5000"] > 3 * run["best"]


def test_the_long_runs_begin_alike_and_write_from_the_same_prompt(verse, text):
    ours, theirs = (verse["verse"]["runs"][name] for name in ("flash_attention", "PyTorch"))
    assert max(abs(a - b) for a, b in zip(ours["losses"][:20], theirs["losses"], strict=False)) < 0.01
    assert ours["texts"]["0"] == theirs["texts"]["0"], "the same seed, and weights that have learnt nothing"
    split = len(text) - verse["verse"]["held_out"]
    for run in (ours, theirs):
        assert [*run["texts"]] == ["0", "200", "1000", "5000"]
        for written in (*run["texts"].values(), run["best_text"]):
            assert written[:64] == text[split : split + 64] and len(written) == 64 + 400
        pieces = [len(longest_copy(each[64:], text[:split])) for each in (run["best_text"], run["texts"]["5000"])]
        assert pieces[1] > 1.5 * pieces[0], "copies longer pieces in the end"
