"""Our kernels on the pages of transformers' continuous batching: the tokens of each request alone."""

from __future__ import annotations

import pytest
import torch

from tests.test_transformers_masks import DEVICE, MODELS, NAME, slow, tiny  # skips where transformers is not installed

PROMPTS = [[3, 1, 4, 1, 5, 9, 2], [6], [5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]]
NEW = 5


@pytest.fixture(scope="module")
def ours():
    """flashlearn.models.continuous, which imports transformers: seconds, and not for every worker that collects this file."""
    from flashlearn.models import continuous

    return continuous


def configs(**more):
    from transformers import ContinuousBatchingConfig, GenerationConfig

    sizes = {"page_size": 4, "num_blocks": 24, "max_batch_tokens": 8, "max_requests_per_batch": 3}
    return {
        "generation_config": GenerationConfig(max_new_tokens=NEW, do_sample=False, eos_token_id=-1, pad_token_id=0),
        "continuous_batching_config": ContinuousBatchingConfig(**sizes | more),
    }


def served(model, prompts=PROMPTS, **more):
    found = model.generate_batch(prompts, **configs(**more), progress_bar=False)
    assert all(request.error is None for request in found.values()), [r.error for r in found.values()]
    return {tuple(request.prompt_ids): request.generated_tokens for request in found.values()}


def alone(kind, prompt):
    model = tiny(kind, "eager")
    prompt = torch.tensor([prompt], device=DEVICE)
    return model.generate(prompt, max_new_tokens=NEW, do_sample=False)[0, -NEW:].tolist()


@pytest.mark.parametrize("kind", [kind if kind == "GptOss" else slow(kind) for kind in MODELS])
def test_a_batch_gives_each_request_the_tokens_it_gets_alone(kind, monkeypatch, ours):
    """Two prompts together are longer than a batch: one of them comes in chunks, while others decode."""
    calls = []
    for name in ("flash_attention_paged", "flash_attention_varlen"):
        real = getattr(ours, name)
        monkeypatch.setattr(ours, name, lambda *a, name=name, real=real, **o: calls.append(name) or real(*a, **o))
    model = tiny(kind, NAME)
    with ours.serving(model):
        assert served(model) == {tuple(prompt): alone(kind, prompt) for prompt in PROMPTS}
    windows = kind in ("Mistral", "Gemma2", "Gemma3", "GptOss")
    assert ("flash_attention_varlen" in calls) == windows and ("flash_attention_paged" in calls) == (kind != "Mistral")


def test_the_table_and_the_model_are_as_before_afterwards(ours):
    from transformers import AttentionInterface
    from transformers.integrations.eager_paged import eager_paged_attention_forward as before

    model = tiny("Llama", "sdpa")
    with pytest.raises(KeyError, match="stop"), ours.serving(model):
        assert AttentionInterface()["paged|eager"] is ours.attention
        assert model.config._attn_implementation == "paged|eager"
        raise KeyError("stop")
    assert AttentionInterface()["paged|eager"] is before and model.config._attn_implementation == "sdpa"


def test_transformers_rejects_our_own_name_there():
    """Why `serving` borrows a row of the table: if this fails, it need not any more."""
    with pytest.raises(ValueError, match=f"Implementation {NAME} is not supported for continuous batching"):
        tiny("Llama", NAME).generate_batch(PROMPTS, **configs(), progress_bar=False)


def test_a_page_table_is_read_from_the_places_of_keys(ours):
    places = torch.tensor([20, 21, 22, 23, 8, 9, 40, 12, 13, 14, 15, 0])  # of 6, 1, 0 and 5 keys, in pages of 4
    starts = torch.tensor([0, 6, 7, 7, 12], dtype=torch.int32)
    table = ours.page_table(places, starts, 6, 4)
    assert table.dtype == torch.int32 and table.tolist() == [[5, 2], [10, 0], [0, 0], [3, 0]]


@pytest.mark.slow  # what the docstring says of transformers
def test_transformers_itself_leaves_out_the_softcap():
    assert served(tiny("Gemma2", "eager")) != {tuple(prompt): alone("Gemma2", prompt) for prompt in PROMPTS}


@pytest.mark.slow  # a page freed and filled again; the prefix that two requests share
def test_more_requests_than_pages_and_a_shared_prefix(ours):
    model, prompts = tiny("Llama", "sdpa"), [[7] * 8 + [i] for i in range(6)]
    with ours.serving(model):
        got = served(model, prompts, num_blocks=8)
    assert got == {tuple(prompt): alone("Llama", prompt) for prompt in prompts}


def test_dropout_is_rejected(ours):
    with pytest.raises(ValueError, match=r"expected dropout 0, got 0\.1"):
        ours.attention(None, None, None, None, None, cache=None, dropout=0.1)


@pytest.mark.parametrize("call", ("forward", "generate"))
def test_a_served_model_says_that_only_batches_run(ours, call):
    model, prompt = tiny("Llama", NAME), torch.tensor([PROMPTS[0]], device=DEVICE)
    with (
        ours.serving(model),
        pytest.raises(ValueError, match="expected a call by model.generate_batch, got .* before or after"),
    ):
        model(prompt) if call == "forward" else model.generate(prompt, max_new_tokens=1)
    assert model(prompt).logits.isfinite().all()


def test_keywords_that_it_does_not_know_are_rejected(ours):
    with pytest.raises(ValueError, match="expected keywords that our attention knows, or None, got position_bias; use"):
        ours.attention(None, None, None, None, None, cache="any", position_bias=1)


def test_a_model_that_computes_attention_itself_is_not_served(ours):
    from transformers import BloomConfig, BloomForCausalLM

    model = BloomForCausalLM(BloomConfig(hidden_size=32, n_layer=1, n_head=2, vocab_size=50))
    before = model.config._attn_implementation
    with pytest.raises(ValueError, match="got BloomForCausalLM, which computes attention itself"), ours.serving(model):
        pass
    assert model.config._attn_implementation == before
