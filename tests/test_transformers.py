"""flash_attention inside a Llama of Hugging Face transformers: equal to its own sdpa implementation."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: flashlearn.models.transformers is not tested", allow_module_level=True)
if importlib.util.find_spec("transformers") is None:
    pytest.skip(
        "transformers is not installed here: flashlearn.models.transformers is not tested", allow_module_level=True
    )

from flashlearn.core.target import INTERPRETED  # isort: skip (first: it chooses the backend)

from tests.slow import slow

# transformers takes seconds to import: what needs it imports it, not every process of pytest-xdist that collects this file
NAME = "tiled_triton"
DEVICE = "cpu" if INTERPRETED else "cuda"
SIZES = {
    "vocab_size": 50,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "eos_token_id": None,
    "pad_token_id": None,
    "bos_token_id": None,
}


def llama(implementation, **more):
    from transformers import LlamaConfig, LlamaForCausalLM

    import flashlearn.models.transformers

    assert flashlearn.models.transformers.NAME == NAME
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, **more, attn_implementation=implementation)).to(DEVICE)


def tokens(N, B=2):
    return torch.randint(50, (B, N), generator=torch.Generator().manual_seed(N)).to(DEVICE)


@pytest.fixture(scope="module")
def pair():
    """The same weights with sdpa and with our attention."""
    return llama("sdpa").eval(), llama(NAME).eval()


@pytest.mark.parametrize("N", (slow(1), slow(20), slow(70)))  # notebook 16 compares them too
def test_logits_and_gradients(pair, N):
    x, found = tokens(N), []
    for model in pair:
        model.zero_grad()
        out = model(x, labels=x if N > 1 else None)
        (out.loss if N > 1 else out.logits.square().sum()).backward()
        found.append({"logits": out.logits.detach(), **{name: p.grad for name, p in model.named_parameters()}})
    want, got = found
    assert set(got) == set(want) and len(got) > 10
    for name in want:
        torch.testing.assert_close(got[name], want[name], atol=1e-5, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")


def test_it_is_our_attention_that_runs(pair, monkeypatch):
    calls = []
    real = sys.modules["flashlearn.models.transformers"].flash_attention
    monkeypatch.setattr(
        "flashlearn.models.transformers.flash_attention",
        lambda q, k, v, **options: (
            calls.append((q.shape[1], k.shape[1], options["causal"])) or real(q, k, v, **options)
        ),
    )
    pair[1](tokens(5))
    assert calls == [(4, 2, True)] * 2


def test_a_cache_in_chunks_equals_one_pass(pair):
    x = tokens(24)
    want, cache, logits = pair[0](x).logits, None, []
    with torch.no_grad():
        for part in (x[:, :10], x[:, 10:11], x[:, 11:]):  # N_q = 10, 1 and 13, behind what is cached
            out = pair[1](part, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            logits.append(out.logits)
    torch.testing.assert_close(torch.cat(logits, 1), want, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("count", (2, slow(10)))
def test_generates_the_same_tokens(pair, count):
    x, options = tokens(6), {"max_new_tokens": count, "do_sample": False}
    want, got = (model.generate(x, **options) for model in pair)
    assert got.shape == (2, 6 + count) and torch.equal(got, want)


@pytest.mark.parametrize("real", ([1, 1, 0, 1, 1, 1], slow([0, 1, 0, 1, 0, 0])))
def test_padding_between_tokens_is_rejected(pair, real):
    with pytest.raises(ValueError, match="padding before or behind a sequence, .* hides tokens between others"):
        pair[1](tokens(6), attention_mask=torch.tensor([[1] * 6, real], device=DEVICE))


def test_a_mask_of_its_own_is_rejected(pair):
    with pytest.raises(ValueError, match=r"expected the mask that .* makes, got one of shape \(2, 1, 6, 6\)"):
        pair[1](tokens(6), attention_mask=torch.ones(2, 1, 6, 6, dtype=torch.bool, device=DEVICE))


OPERATIONS = {
    "a part": lambda mask: mask[:, :, :, :6],
    "a copy": lambda mask: mask.clone(),
    "floats": lambda mask: mask.float(),
    "another type": lambda mask: mask.to(torch.bfloat16),
    "another type by its name": lambda mask: mask.to(dtype=torch.bfloat16),
    "the type of another": lambda mask: mask.to(torch.ones(2)),
    "a sum": lambda mask: torch.zeros(2, 1, 6, 2) + mask,
    "a choice": lambda mask: torch.zeros(2, 1, 6, 2).masked_fill(mask, 0),
    "scores": lambda mask: torch.nn.functional.scaled_dot_product_attention(
        *torch.zeros(3, 2, 1, 2, 16), attn_mask=mask
    ),
    "a question": lambda mask: bool(mask.all()),
    "a comparison": lambda mask: mask == 0,
    "its transpose": lambda mask: mask.mT,
}


@pytest.mark.parametrize("padded", (False, True))
@pytest.mark.parametrize("operation", OPERATIONS)
def test_whoever_computes_from_a_mask_is_told(operation, padded):
    """A model that computes attention itself would run without its mask."""
    from flashlearn.models import transformers as ours

    real = torch.ones(2, 6, dtype=torch.bool)
    real[0, 0] = not padded
    seen = ours.mask(q_length=6, kv_length=6, attention_mask=real, batch_size=2)
    assert isinstance(seen, ours.KernelMask) and (seen.key_range is not None) == padded
    with pytest.raises(ValueError, match="expected a model that hands the mask on .*, got .*='eager'"):
        OPERATIONS[operation](seen)


def test_a_mask_tells_what_it_is_and_moves():
    """Of a model that is spread over several devices, each layer gets the mask on its own."""
    from flashlearn.models import transformers as ours

    real = torch.tensor([[True] * 6, [False] * 2 + [True] * 4])
    seen = ours.mask(q_length=6, kv_length=6, attention_mask=real, batch_size=2)
    assert seen.ndim == len(seen.shape) == seen.dim() == 4 and not seen.is_floating_point() and "causal" in repr(seen)
    moved = seen.to("meta", non_blocking=True)
    assert isinstance(moved, ours.KernelMask) and moved.device.type == "meta" and moved.causal and moved.length is None
    assert all(side.device.type == "meta" and side.shape == (2,) for side in moved.key_range)


def packed(*lengths):
    return torch.cat([torch.arange(N) for N in lengths])[None].to(DEVICE)


@pytest.mark.parametrize("more", ({}, slow({"cu_seq_lens_q": [0, 4, 5, 14], "cu_seq_lens_k": [0, 4, 5, 14]})))
def test_packed_sequences_become_documents(pair, more):
    more = {name: torch.tensor(cuts, device=DEVICE) for name, cuts in more.items()}
    x, places = tokens(14, B=1), packed(4, 1, 9)
    with torch.no_grad():
        got = pair[1](x, position_ids=places, use_cache=False, **more).logits
        want = torch.cat([pair[0](x[:, start:stop]).logits for start, stop in ((0, 4), (4, 5), (5, 14))], 1)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def test_packing_that_is_told_twice_and_differs_is_rejected(pair):
    cuts = torch.tensor([0, 3, 6], device=DEVICE)
    with pytest.raises(ValueError, match=r"expected the positions to cut where cu_seq_lens_q do, got \[0, 2, 6\]"):
        pair[1](tokens(6, B=1), position_ids=packed(2, 4), use_cache=False, cu_seq_lens_q=cuts, cu_seq_lens_k=cuts)
    with pytest.raises(ValueError, match=r"expected cu_seq_lens_k to cut where cu_seq_lens_q do, got \[0, 3, 6\]"):
        pair[1](tokens(6, B=1), use_cache=False, cu_seq_lens_q=cuts[::2], cu_seq_lens_k=cuts)


def test_sequences_packed_in_several_ways_are_rejected(pair):
    places = torch.cat((packed(2, 4), packed(3, 3)))
    with pytest.raises(ValueError, match="sequences packed alike, or a batch of 1, got 2 that differ"):
        pair[1](tokens(6), position_ids=places, use_cache=False)


def test_mask_functions_of_other_kinds_are_rejected():
    from transformers import masking_utils

    from flashlearn.models.transformers import mask

    causal, blocks = masking_utils.causal_mask_function, torch.zeros(1, 6, dtype=torch.long)
    packing = masking_utils.packed_sequence_mask_function(blocks)
    others = {
        "chunked_overlay": masking_utils.chunked_causal_mask_function(3, torch.zeros(1, dtype=torch.long)),
        "blockwise_overlay": masking_utils.and_masks(causal, masking_utils.blockwise_overlay(blocks)),
        "or_masks": masking_utils.or_masks(causal, packing),
        "<lambda>": lambda b, h, q, k: k <= q,
    }
    for name, function in others.items():
        with pytest.raises(ValueError, match=f"expected a mask of causality, padding, .*, got one of .*{name}"):
            mask(q_length=6, kv_length=6, mask_function=function)


def test_keys_that_do_not_end_with_the_last_query_are_rejected():
    from flashlearn.models.transformers import mask

    with pytest.raises(ValueError, match="keys up to that of the last query, 6 of them, got 5"):
        mask(q_length=6, kv_length=5)


def test_dropout_is_rejected():
    with pytest.raises(ValueError, match="expected dropout 0, got 0.1"):
        llama(NAME, attention_dropout=0.1).train()(tokens(6))


@pytest.mark.parametrize(
    "other",
    ({"position_bias": torch.zeros(1)}, {"head_mask": torch.ones(4)}, {"output_attentions": True}, {"unheard_of": 0}),
)
def test_keywords_that_it_does_not_know_are_rejected(pair, other):
    from flashlearn.models.transformers import attention, mask

    q = torch.zeros(1, 1, 2, 16, device=DEVICE)
    words = f"expected keywords that our attention knows, or None, got {next(iter(other))}; use .*eager"
    with pytest.raises(ValueError, match=words):
        attention(pair[1].model.layers[0].self_attn, q, q, q, None, **other)
    with pytest.raises(ValueError, match=words):
        mask(q_length=2, kv_length=2, **other)


def test_keywords_that_ask_for_nothing_are_accepted(pair):
    """None and False, positions that are rotated in already, and what a trainer passes down to the loss."""
    x = tokens(5)
    more = {"output_attentions": False, "unheard_of": None, "num_items_in_batch": torch.tensor(8, device=DEVICE)}
    with torch.no_grad():
        got = pair[1](x, labels=x, **more)
        want = pair[0](x, labels=x, **more)
    torch.testing.assert_close(got.loss, want.loss, atol=1e-5, rtol=1e-4)


def test_what_contradicts_the_mask_is_rejected(pair):
    from flashlearn.models.transformers import attention, mask

    q = torch.zeros(1, 1, 2, 16, device=DEVICE)
    with pytest.raises(ValueError, match="expected is_causal to agree with the mask, got is_causal=False and a causal"):
        attention(pair[1].model.layers[0].self_attn, q, q, q, mask(q_length=2, kv_length=2), is_causal=False)


def test_a_module_without_mask_that_does_not_say_whether_it_is_causal_is_rejected():
    from flashlearn.models.transformers import attention

    q = torch.zeros(1, 1, 2, 16, device=DEVICE)
    with pytest.raises(
        ValueError, match="expected a mask, or a module that says by `is_causal` .*, got Identity without"
    ):
        attention(torch.nn.Identity(), q, q, q, None)


def test_a_window_without_a_mask_is_heeded(pair):
    """A model that makes no mask and hands over a window: 2 keys of 3."""
    from flashlearn.models.transformers import attention

    q = torch.zeros(1, 1, 3, 16, device=DEVICE)
    v = torch.arange(3.0, device=DEVICE)[:, None].expand(3, 16)[None, None]
    o, _ = attention(pair[1].model.layers[0].self_attn, q, q, v, None, sliding_window=2)
    assert o[0, :, 0, 0].tolist() == [0, 0.5, 1.5]


@pytest.mark.slow  # a process of its own
def test_without_transformers_the_error_says_what_to_install():
    code = "import sys; sys.modules['transformers'] = None; import flashlearn.models.transformers"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert run.returncode == 1 and "pip install -c constraints.txt -e .[transformers]" in run.stderr


def test_the_version_tested_is_the_one_pinned():
    from pathlib import Path

    import transformers

    pins = (Path(__file__).parent.parent / "constraints.txt").read_text(encoding="utf-8")
    assert f"\ntransformers=={transformers.__version__}\n" in pins
