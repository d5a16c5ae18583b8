"""Our attention in the continuous batching of Hugging Face transformers, on the pages of its cache.

    with serving(model):  # whose attn_implementation may be any
        outputs = model.generate_batch(prompts, generation_config=..., continuous_batching_config=...)

What the interface of transformers 5.23 allows, and what not:

- `generate_batch` takes "sdpa", "paged|eager" and names with "flash" in them, no other: `set_attn_implementation` with
  our own name is a ValueError there. A name with "flash" makes it look for the package flash-attn, or for a kernel to
  download, before it asks its table of functions. So `serving` puts our function into the row "paged|eager", which
  nothing but continuous batching uses, and takes it out again.
- Tables of pages are handed over only to FlashAttention 2 and 3 on a GPU, for batches where every request decodes. The row
  "paged|eager" is told, token by token, where keys and values are to be written and read. Of a layer that attends to
  all tokens these places are whole pages in order, so every page-th of them is a row of the page table, and
  `flash_attention_paged` reads keys and values where they lie: prefill, chunks of it and decoding in one launch.
- A layer with a sliding window keeps its keys in a ring, whose first place is not its first key. No table of pages says
  that: there transformers gathers what is seen, a copy of at most a window and the new keys for each request, and
  `flash_attention_varlen` reads that.
- softcap and sinks arrive, and are used. What transformers has in that row itself leaves out the softcap of Gemma 2.
- transformers also makes a mask, largest batch x (whole cache + largest batch), that our function does not read: it says
  what the lengths say. Its memory cannot be saved from here: set `max_batch_tokens` and `num_blocks`.

Works on a CPU as on a GPU; CUDA graphs and `torch.compile` are off there unless asked for, and are not tested with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from flashlearn.fast.paged import flash_attention_paged  # isort: skip (before transformers, which imports Triton: see kernels.target)
from flashlearn.fast.varlen import flash_attention_varlen  # isort: skip
from transformers import AttentionInterface, PreTrainedModel
from transformers.generation.continuous_batching.cache import PagedAttentionCache

from flashlearn.models.transformers import (
    NEUTRAL,
    check_dropout,
    check_family,
    check_keywords,
    score_options,
)

ROW = "paged|eager"
# keywords that `attention` uses; the window of a layer is that of its cache, and all attention is causal
UNDERSTOOD = (
    "is_causal", "softcap", "s_aux", "sliding_window", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_k",
    "read_index", "write_index",
)  # fmt: skip
# which of the logits are wanted, and how they are sampled: nothing of attention
SAMPLING = ("logits_indices", "logits_processor_args")


@contextmanager
def serving(model: PreTrainedModel) -> Iterator[PreTrainedModel]:
    """While open, continuous batching attends with our kernels: that of `model`, and of any other set to "paged|eager".

    ValueError for a model that computes attention itself: see `flashlearn.models.transformers`.
    """
    for part in model.modules():
        if isinstance(part, PreTrainedModel):
            check_family(part)
    table, before = AttentionInterface(), model.config._attn_implementation
    replaced = table[ROW]
    AttentionInterface.register(ROW, attention)
    try:
        model.set_attn_implementation(ROW)
        yield model
    finally:
        AttentionInterface.register(ROW, replaced)
        model.set_attn_implementation(before)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    cache: PagedAttentionCache | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others,
) -> tuple[Tensor, None]:
    """query (1, H_q, T, D); key, value (1, H_kv, T, D), of the T new tokens of all requests -> (1, T, H_q, D).

    `others` say which tokens are whose, where in the cache keys are written and read, and what becomes of scores.
    `attention_mask` says the same once more, and `sliding_window` what kind of cache the layer has. ValueError for what is
    called outside `generate_batch`, and for other keywords that ask for something.
    """
    check_dropout(dropout)
    if cache is None:
        raise ValueError(
            "expected a call by model.generate_batch, got one without its cache: inside `with serving(model)` only "
            "generate_batch runs; call the model or model.generate before or after it"
        )
    check_keywords(others, (*UNDERSTOOD, *SAMPLING, *NEUTRAL))
    number: int = module.layer_idx  # type: ignore[assignment]
    options = score_options(others) | {"causal": True, "scale": scaling}
    run = on_pages if cache.layer_to_allocator[number].supports_block_table else on_gathered
    return run(number, query[0].transpose(0, 1), key, value, cache, others, options)[None], None


def on_pages(number, q, key, value, cache, others, options) -> Tensor:
    """The new keys and values into their pages, then attention of q (T, H_q, D) over all pages of each request."""
    layer = cache.layer_to_allocator[number]
    pages = layer.get_cache_for_block_table(number)  # of keys and of values: (P, page, H_kv, D)
    written, read = (others[name][layer.index] for name in ("write_index", "read_index"))
    for where, new in zip(pages, (key, value), strict=True):
        where.view(-1, *where.shape[2:]).index_copy_(0, written, new[0].transpose(0, 1))
    starts, most = (others[name][layer.layer_type] for name in ("cu_seq_lens_k", "max_length_k"))
    table = page_table(read if read.numel() else written, starts, most, layer.tokens_per_page)
    k_pages, v_pages = (t.transpose(1, 2) for t in pages)
    lengths = starts.diff().int()
    return flash_attention_paged(
        q, k_pages, v_pages, table, lengths, cu_seqlens_q=others["cu_seq_lens_q"].int(), **options
    )


def page_table(places: Tensor, starts: Tensor, most: int, page: int) -> Tensor:
    """(B, pages of the longest) int32, from the place of every key of all requests, one request behind the other.

    The keys of request b are those from starts[b] to starts[b + 1]; every page-th begins a page.
    """
    first = starts[:-1, None] + torch.arange(0, most, page, device=places.device)  # (B, pages of the longest)
    there = first < starts[1:, None]
    return torch.where(there, places[first.clamp(max=places.numel() - 1)] // page, 0).int()


def on_gathered(number, q, key, value, cache, others, options) -> Tensor:
    """Attention of q (T, H_q, D) with the window of the layer, over keys that transformers writes and puts together."""
    window = cache.layer_to_allocator[number].sliding_window - 1, 0
    k, v = cache.update(key_states=key, value_states=value, layer_idx=number, kwargs=others)
    k, v = (t[0].transpose(0, 1) for t in (k, v))  # (all keys that are seen, H_kv, D)
    starts = (others[name].int() for name in ("cu_seq_lens_q", "cu_seq_lens_k"))
    return flash_attention_varlen(q, k, v, *starts, window=window, **options)
