"""Padding, windows, softcap, sinks and caches in six models of transformers: as exact as their own eager attention."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
from functools import cache

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: masks of transformers are not tested", allow_module_level=True)
if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed here: its masks are not tested", allow_module_level=True)

from flashlearn.core.target import INTERPRETED  # isort: skip (first: it chooses the backend)

from tests.slow import slow

DEVICE = "cpu" if INTERPRETED else "cuda"
NAME = "tiled_triton"
WINDOW = 6  # keys, the query's own among them
N = 13  # tokens: more than twice the window
FLOOR = 1e-5  # of the error rule, in float32: see tests.grid
SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "tie_word_embeddings": False,  # else Gemma repeats its last token
    "eos_token_id": None,
    "pad_token_id": None,
    "bos_token_id": None,
}
LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}
EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2, "experts_implementation": "eager"}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
MODELS = {
    "Llama": {},
    "Qwen3": {},
    "Mistral": {"sliding_window": WINDOW},
    "Gemma2": LAYERS | {"attn_logit_softcapping": 1.0, "query_pre_attn_scalar": 16},
    "Gemma3": LAYERS | {"query_pre_attn_scalar": 16},
    "GptOss": LAYERS | EXPERTS | ROPE,
}


def each(*choices):
    """Every model with every choice; quick is one that has windows and sinks."""
    quick = {("GptOss", choices[-1])}
    pairs = [(kind, choice) for kind in MODELS for choice in choices]
    return [pytest.param(*pair) if pair in quick else slow(*pair) for pair in pairs]


@cache
def tiny(kind, implementation, dtype=torch.float32):
    """A model of random weights, the same for every implementation."""
    import transformers

    import flashlearn.models.transformers

    assert flashlearn.models.transformers.NAME == NAME
    config = getattr(transformers, f"{kind}TextConfig" if kind == "Gemma3" else f"{kind}Config")
    config = config(**SIZES, **MODELS[kind], attn_implementation=implementation)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    for name, weight in model.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.normal_(weight, std=2)
    return model.to(DEVICE, dtype).eval()


def batch(side):
    """Tokens (3, N) and their mask: one sequence whole, one padded by a few tokens, one by most of them, on one side."""
    x = torch.randint(50, (3, N), generator=torch.Generator().manual_seed(1))
    real = torch.ones(3, N, dtype=torch.long)
    for row, pads in ((1, 3), (2, N - 2)):
        real[row, slice(pads) if side == "left" else slice(N - pads, N)] = 0
    return x.to(DEVICE), None if side is None else real.to(DEVICE)


@cache
def references(kind, side):
    """Logits of eager attention in float64, of real tokens only, and the largest error of eager in float32."""
    x, real = batch(side)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        plain = torch.nn.functional.softmax  # the models narrow it to float32
        patch.setattr(torch.nn.functional, "softmax", lambda x, dim, dtype=None: plain(x, dim))
        want = tiny(kind, "eager", torch.float64)(x, attention_mask=real).logits
    want = want if real is None else want[real.bool()]
    with torch.no_grad():
        eager = tiny(kind, "eager")(x, attention_mask=real).logits
    eager = eager if real is None else eager[real.bool()]
    return want, (eager - want).abs().max().item()


def error_of(kind, side, logits):
    """The largest error of logits (3, N, vocabulary), and what it may be: twice that of eager, plus the floor."""
    want, eager = references(kind, side)
    real = batch(side)[1]
    ours = logits if real is None else logits[real.bool()]
    assert ours.shape == want.shape and ours.isfinite().all()
    return (ours - want).abs().max().item(), 2 * eager + FLOOR


def check(kind, side, logits):
    error, bound = error_of(kind, side, logits)
    assert error <= bound, f"{kind}, padded {side}: largest error {error:.1e}, expected at most {bound:.1e}"


@pytest.mark.parametrize(("kind", "side"), each("left", None, "right"))
def test_logits_are_as_exact_as_those_of_eager(kind, side):
    x, real = batch(side)
    with torch.no_grad():
        check(kind, side, tiny(kind, NAME)(x, attention_mask=real).logits)


OPTIONS = (("Gemma2", "softcap"), ("GptOss", "sinks"), ("Mistral", "window"), slow("Llama", "key_range"))


@pytest.mark.parametrize(("kind", "option"), OPTIONS)
def test_an_option_left_out_would_be_noticed(kind, option, monkeypatch):
    from flashlearn.models import transformers as ours

    real, dropped = ours.flash_attention, []

    def without(q, k, v, **options):
        dropped.append(options.pop(option))
        return real(q, k, v, **options)

    monkeypatch.setattr(ours, "flash_attention", without)
    x, mask = batch("left")
    with torch.no_grad():
        error, bound = error_of(kind, "left", tiny(kind, NAME)(x, attention_mask=mask).logits)
    assert any(value is not None for value in dropped) and error > 100 * bound


def caches(kind):
    from transformers import DynamicCache, StaticCache

    config = tiny(kind, NAME).config
    return {"dynamic": DynamicCache(config=config), "static": StaticCache(config=config, max_cache_len=N + 3)}


@pytest.mark.parametrize(("kind", "which"), each("static", "dynamic"))
def test_a_cache_in_chunks_gives_the_logits_of_one_pass(kind, which):
    x, real = batch("left")
    cached, logits = caches(kind)[which], []
    with torch.no_grad():
        for start, stop in ((0, 4), (4, 5), (5, 9), (9, 10), (10, N)):  # the window of 6 fills within the third
            mask = real[:, :stop]
            out = tiny(kind, NAME)(x[:, start:stop], attention_mask=mask, past_key_values=cached, use_cache=True)
            logits.append(out.logits)
    check(kind, "left", torch.cat(logits, 1))


@pytest.mark.parametrize(("kind", "which"), each(None, "static"))
def test_generate_gives_the_tokens_of_eager(kind, which):
    x, real = batch("left")
    x, real = x[:, -6:], real[:, -6:]
    options = {"attention_mask": real, "max_new_tokens": 3, "do_sample": False, "cache_implementation": which}
    want, got = (tiny(kind, name).generate(x, **options) for name in ("eager", NAME))
    assert got.shape == (3, 9) and torch.equal(got, want)


@pytest.mark.slow
def test_generate_may_be_compiled():
    """As transformers does by itself with a static cache on a GPU: what stands for the mask goes into the graph."""
    from transformers import CompileConfig

    x, real = batch("left")
    how = CompileConfig(backend="eager", mode=None, fullgraph=False)
    how._compile_all_devices = True
    options = {"attention_mask": real[:, -6:], "max_new_tokens": 3, "do_sample": False}
    want = tiny("Llama", "eager").generate(x[:, -6:], **options)
    torch._dynamo.utils.counters.clear()
    got = tiny("Llama", NAME).generate(x[:, -6:], **options, cache_implementation="static", compile_config=how)
    assert torch.equal(got, want) and torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert not any("flashlearn" in reason for reason in torch._dynamo.utils.counters["graph_break"])


def test_what_stands_for_a_mask_may_come_into_a_graph():
    from flashlearn.models import transformers as ours

    real = batch("left")[1].bool()
    seen = ours.mask(q_length=N, kv_length=N, attention_mask=real, batch_size=3, device=DEVICE)
    q, k, v = torch.randn(3, 3, 2, N, 16, generator=torch.Generator().manual_seed(2)).to(DEVICE)

    def attend(mask):
        return ours.attention(torch.nn.Identity(), q, k, v, mask)[0]

    torch._dynamo.reset()
    assert torch.equal(torch.compile(attend, backend="aot_eager", fullgraph=True)(seen), attend(seen))


COMPILED = [
    pytest.param(*case, marks=() if case == ("aot_eager", "Mistral", "left") else pytest.mark.slow)
    for case in itertools.product(("eager", "aot_eager", "inductor"), ("Llama", "Mistral"), ("left", None, "right"))
]


@pytest.mark.parametrize(("backend", "kind", "side"), COMPILED)
def test_a_compiled_model_gives_the_logits_of_an_uncompiled_one(backend, kind, side):
    if backend == "inductor" and DEVICE == "cpu" and shutil.which("g++") is None:
        pytest.skip("no C++ compiler is installed here: inductor is not tested")
    x, real = batch(side)
    model = tiny(kind, NAME)
    torch._dynamo.reset()
    with torch.no_grad():
        check(kind, side, torch.compile(model, backend=backend)(x, attention_mask=real).logits)


@pytest.mark.parametrize(("kind", "side"), [("Mistral", "right"), *(slow("Llama", side) for side in ("left", None))])
def test_a_model_may_be_compiled_as_one_graph(kind, side):
    x, real = batch(side)
    model = torch.compile(tiny(kind, NAME), backend="aot_eager", fullgraph=True)
    torch._dynamo.reset()
    with torch.no_grad():
        check(kind, side, model(x, attention_mask=real).logits)
        if kind == "Mistral":
            with pytest.raises(torch._dynamo.exc.Unsupported, match="uncompiled where there is no attention_mask"):
                model(x)
            real = real.clone()
            real[0, 5] = 0
            with pytest.raises(ValueError, match="padding before or behind a sequence, .* hides tokens between others"):
                model(x, attention_mask=real)


@pytest.mark.slow
@pytest.mark.parametrize("side", ("left", None))
@pytest.mark.parametrize("kind", ("Llama", "Mistral"))
def test_compiled_training_gives_the_gradients_of_uncompiled(kind, side):
    x, real = batch(side)
    plain, found = tiny(kind, NAME), []
    torch._dynamo.reset()
    for model in (plain, torch.compile(plain, backend="aot_eager")):
        plain.zero_grad()
        model(x, attention_mask=real, use_cache=False).logits.square().mean().backward()
        found.append([p.grad.clone() for p in plain.parameters()])
    plain.zero_grad()
    assert any(grad.any() for grad in found[0])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-4)


def visible(seen, q_length, kv_length):
    """(B or 1, N_q, N_k) booleans: what the options that the kernels get let a query see, by their definition."""
    options, length = seen.options(), kv_length if seen.length is None else seen.length
    key = torch.arange(kv_length)
    behind = key - torch.arange(q_length)[:, None] - (length - q_length)
    left, right = options["window"] or (None, None)
    right = 0 if options["causal"] else right
    see = (key < length) & torch.ones(1, q_length, kv_length, dtype=torch.bool)
    see = see if left is None else see & (behind >= -left)
    see = see if right is None else see & (behind <= right)
    if options["documents"] is not None:
        assert length == q_length == kv_length and options["documents"][-1] == length
        document = torch.bucketize(key, options["documents"].long(), right=True)
        see = see & (document[:, None] == document)
    if options["key_range"] is not None:
        start, stop = options["key_range"]
        assert start.dtype == stop.dtype == torch.int32 and (start >= 0).all() and (start <= stop).all()
        see = see & ((key >= start[:, None]) & (key < stop[:, None]))[:, None]
    return see


def functions():
    from transformers import masking_utils as hf

    ids, places = torch.tensor([[0, 0, 0, 1, 2, 2, 2]] * 2), torch.tensor([[0, 1, 2, 0, 0, 1, 2]] * 2)
    return {
        "causal": hf.causal_mask_function,
        "window 1": hf.sliding_window_causal_mask_function(1),
        "window 3": hf.sliding_window_causal_mask_function(3),
        "window 50": hf.sliding_window_causal_mask_function(50),
        "both": hf.bidirectional_mask_function,
        "both, window 2": hf.sliding_window_bidirectional_mask_function(2),
        "packed": hf.packed_sequence_compatibility_function(hf.causal_mask_function, places, ids),
        "packed, window 2": hf.packed_sequence_compatibility_function(
            hf.sliding_window_causal_mask_function(2), places, ids
        ),
    }


# (q_length, kv_length, q_offset, kv_offset): no cache; dynamic; sliding, full; static with room to spare, place known or not
LENGTHS = (
    (7, 7, 0, 0),
    (1, 6, 5, 0),
    (3, 9, 6, 0),
    (2, 4, 9, 7),
    (1, 3, 9, 7),
    (4, 12, 0, 0),
    (4, 12, 3, 0),
    (1, 12, 3, 0),
)
PADDING = (None, (0, 0), (3, 0), (0, 2), (2, 1), (6, 0))


NAMES = ("causal", "window 1", "window 3", "window 50", "both", "both, window 2")
SEEN = [
    (name, lengths) for name in NAMES for lengths in LENGTHS if name != "both, window 2" or sum(lengths[1::2]) != 12
]
SEEN += [(name, LENGTHS[0]) for name in ("packed", "packed, window 2")]  # these come without a cache


@pytest.mark.parametrize("on_device", (False, True))
@pytest.mark.parametrize(("name", "lengths"), SEEN, ids=str)
def test_what_is_seen_is_what_the_mask_of_sdpa_shows(name, lengths, on_device):
    """Every pair of a query and a key, of two sequences, of which the second is padded."""
    from transformers.masking_utils import sdpa_mask

    from flashlearn.models.transformers import mask

    q_length, kv_length, q_offset, kv_offset = lengths
    total = q_offset + q_length
    for padding in PADDING[:1] if name.startswith("packed") else PADDING:
        real = None if padding is None else torch.ones(2, total, dtype=torch.bool)
        if padding is not None:
            real[1, : padding[0]] = real[1, total - padding[1] :] = False
        case = {"batch_size": 2, "q_length": q_length, "kv_length": kv_length, "kv_offset": kv_offset}
        case |= {"mask_function": functions()[name], "attention_mask": real}
        want = sdpa_mask(**case, q_offset=q_offset, allow_is_causal_skip=False)[:, 0]
        ours = mask(**case, q_offset=torch.tensor(q_offset) if on_device else q_offset)
        got = visible(ours, q_length, kv_length).expand(2, -1, -1)
        assert torch.equal(got, want), f"padding {padding}: {got.int().tolist()}, expected {want.int().tolist()}"


def test_a_window_to_both_sides_in_a_cache_with_room_to_spare_is_rejected():
    from flashlearn.models.transformers import mask

    with pytest.raises(ValueError, match="keys up to that of the last query, 4 of them, got 12"):
        mask(q_length=4, kv_length=12, mask_function=functions()["both, window 2"])


def test_plain_causal_attention_hides_nothing_else():
    """But it has a mask: whoever computes attention itself takes None for "attend to all"."""
    from transformers.masking_utils import sliding_window_causal_mask_function

    from flashlearn.models.transformers import mask

    whole, plain = torch.ones(2, 7, dtype=torch.bool), dict.fromkeys(("window", "documents", "key_range"))
    wide, narrow = (sliding_window_causal_mask_function(size) for size in (7, 6))
    for case in ({"attention_mask": whole}, {"mask_function": wide}, {}):
        assert mask(q_length=7, kv_length=7, batch_size=2, **case).options() == plain | {"causal": True}
    assert mask(q_length=7, kv_length=7, mask_function=narrow).options()["window"] == (5, 0)
    assert mask(q_length=1, kv_length=7, q_offset=6).options() == plain | {"causal": True}
