"""A GPT whose keys and values are in pages, for a batch of sequences of any lengths.

The T new tokens of all sequences are one sequence for the layers that work token by token. Each token has its own
position, keys and values go into the pages, and attention gets the page table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from flashlearn.core.inputs import check_bool
from flashlearn.models.gpt import GPT, norm, pytorch_attention
from flashlearn.serving.pool import PagePool, Ragged

PagedAttention = Callable[..., Tensor]


def gathered_attention(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor, *,
    cu_seqlens_q: Tensor, causal: bool = True, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Attention over pages with a copy: the pages of each sequence are joined, then attended to by PyTorch.

    q (T, H_q, D), pages (P, H_kv, page, D), the others as in `flashlearn.serving.Ragged`. Reads the lengths on the host.
    """
    check_bool(causal, "causal")
    o = torch.empty_like(q)
    starts = cu_seqlens_q.tolist()
    for b, length in enumerate(lengths.tolist()):
        mine = page_table[b, : -(-length // k_pages.shape[2])].long()
        k, v = (t[mine].transpose(0, 1).flatten(1, 2)[None, :, :length] for t in (k_pages, v_pages))
        rows = slice(starts[b], starts[b + 1])
        o[rows] = pytorch_attention(q[rows].transpose(0, 1)[None], k, v, causal=causal, scale=scale)[0].transpose(0, 1)
    return o


class PagedCache:
    """The cache of one layer of a GPT: new keys and values go into pages, and attention reads the pages."""

    def __init__(self, pool: PagePool, layer: int, batch: Ragged):
        self.pool, self.layer, self.batch = pool, layer, batch
        self.length = batch.positions  # one for every new token

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write k and v (1, H_kv, T, D) into their pages; return the pages of this layer, (P, H_kv, page, D)."""
        self.pool.write(self.layer, self.batch.slots, k[0], v[0])
        return self.pool.k[self.layer], self.pool.v[self.layer]


@torch.no_grad()
def paged_logits(model: GPT, pool: PagePool, tokens: Tensor, batch: Ragged, attention: PagedAttention) -> Tensor:
    """tokens (T,) -> logits (T, vocabulary); the keys and values of all new tokens are in the pool afterwards."""

    def attend(q: Tensor, k_pages: Tensor, v_pages: Tensor, *, causal: bool) -> Tensor:
        q = q[0].transpose(0, 1)  # (T, H_q, D)
        o = attention(
            q, k_pages, v_pages, batch.page_table, batch.lengths, cu_seqlens_q=batch.cu_seqlens_q, causal=causal
        )
        return o.transpose(0, 1)[None]

    x = model.embed(tokens)[None]  # (1, T, width)
    for layer, block in enumerate(model.blocks):
        x = block(x, attend, PagedCache(pool, layer, batch))
    return model.head(norm(x))[0]


@dataclass(frozen=True)
class Greedy:
    """The likeliest token behind each sequence of a batch; `vocabulary` is the number of tokens that the model knows."""

    model: GPT
    pool: PagePool
    attention: PagedAttention

    @property
    def vocabulary(self) -> int:
        return self.model.embed.num_embeddings

    def __call__(self, tokens: Tensor, batch: Ragged) -> list[int]:
        logits = paged_logits(self.model, self.pool, tokens.to(self.pool.k.device), batch, self.attention)
        last = logits[batch.cu_seqlens_q[1:].long() - 1]
        if last.isnan().any():
            raise ValueError("expected logits for the next tokens, got NaN: the model's weights or its cache hold some")
        return last.argmax(-1).tolist()


def greedy(model: GPT, pool: PagePool, attention: PagedAttention = gathered_attention) -> Greedy:
    """`forward` of a `Batch`: a function (tokens (T,), batch) -> the likeliest next token of each sequence.

    `attention` is any function with the signature of `flash_attention_paged`.
    """
    return Greedy(model, pool, attention)
