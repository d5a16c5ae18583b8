"""Our attention in the continuous batching of Hugging Face transformers, on the pages of its cache.

    with serving(model):  # with any attn_implementation
        outputs = model.generate_batch(prompts, generation_config=..., continuous_batching_config=...)

The interface of transformers 5.23:

- `generate_batch` takes only "sdpa", "paged|eager" and names with "flash" in them, and for the latter it looks for the
  package flash-attn or a kernel to download. So `serving` registers our function under "paged|eager", which only
  continuous batching uses, and restores that entry at its end.
- Page tables go only to FlashAttention 2 and 3 on a GPU, for batches where every request decodes. "paged|eager" gets for
  every token the slot where keys and values are written and read. In a layer that attends to all tokens these slots are
  whole pages in order. So every page-th slot gives an entry of the page table, and `flash_attention_paged` reads keys
  and values in place: prefill, chunks of it and decoding in one launch.
- A layer with a sliding window keeps its keys in a ring buffer, which a page table cannot describe. There transformers
  gathers the keys, at most a window and the new ones for each request, and `flash_attention_varlen` reads the copy.
- softcap and sinks are used. The "paged|eager" of transformers itself leaves out the softcap of Gemma 2.
- transformers also makes a mask of size largest batch x (whole cache + largest batch), which our function does not read.
  To limit its memory, set `max_batch_tokens` and `num_blocks`.

Works on CPU and GPU. CUDA graphs and `torch.compile`, off there by default, are not tested with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from flashlearn.fast.paged import flash_attention_paged  # isort: skip (before transformers, which imports Triton: see core.target)
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

ENTRY = "paged|eager"
# keywords that `attention` uses; the window of a layer is that of its cache, and all attention is causal
UNDERSTOOD = (
    "is_causal", "softcap", "s_aux", "sliding_window", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_k",
    "read_index", "write_index",
)  # fmt: skip
# which logits are returned, and how they are sampled
SAMPLING = ("logits_indices", "logits_processor_args")


@contextmanager
def serving(model: PreTrainedModel) -> Iterator[PreTrainedModel]:
    """Inside, continuous batching attends with our kernels, for `model` and any other model set to "paged|eager".

    ValueError for a model that computes attention itself: see `flashlearn.models.transformers`.
    """
    for part in model.modules():
        if isinstance(part, PreTrainedModel):
            check_family(part)
    table, before = AttentionInterface(), model.config._attn_implementation
    replaced = table[ENTRY]
    AttentionInterface.register(ENTRY, attention)
    try:
        model.set_attn_implementation(ENTRY)
        yield model
    finally:
        AttentionInterface.register(ENTRY, replaced)
        model.set_attn_implementation(before)


def attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *,
    cache: PagedAttentionCache | None = None, scaling: float | None = None, dropout: float = 0.0, **others,
) -> tuple[Tensor, None]:  # fmt: skip
    """query (1, H_q, T, D); key, value (1, H_kv, T, D), of the T new tokens of all requests -> (1, T, H_q, D).

    `others` have the lengths of the requests, where in the cache keys are written and read, softcap and sinks.
    `attention_mask` and `sliding_window` repeat what lengths and cache say. ValueError for a call outside
    `generate_batch`, and for unknown keywords that are set.
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


def page_table(slots: Tensor, starts: Tensor, most: int, page: int) -> Tensor:
    """(B, pages of the longest) int32, from the slot of every key of all requests, one request after another.

    The keys of request b are those from starts[b] to starts[b + 1]; every page-th begins a page.
    """
    first = starts[:-1, None] + torch.arange(0, most, page, device=slots.device)  # (B, pages of the longest)
    there = first < starts[1:, None]
    return torch.where(there, slots[first.clamp(max=slots.numel() - 1)] // page, 0).int()


def on_gathered(number, q, key, value, cache, others, options) -> Tensor:
    """Attention of q (T, H_q, D) with the window of the layer, over keys that transformers writes and gathers."""
    window = cache.layer_to_allocator[number].sliding_window - 1, 0
    k, v = cache.update(key_states=key, value_states=value, layer_idx=number, kwargs=others)
    k, v = (t[0].transpose(0, 1) for t in (k, v))  # (all keys in the windows, H_kv, D)
    starts = (others[name].int() for name in ("cu_seq_lens_q", "cu_seq_lens_k"))
    return flash_attention_varlen(q, k, v, *starts, window=window, **options)
