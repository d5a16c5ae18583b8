"""A small GPT that reads a text one character at a time, with attention as an argument.

    x = embed(tokens)
    x = x + attend(norm(x))         for every layer
    x = x + mlp(norm(x))
    logits = head(norm(x))          the next character, for every position

The model passes q, k and v to any function with the signature of the course's algorithms, `attention(q, k, v,
causal=True)`. So the algorithm of a trained model can be swapped, and nothing else changes.

Positions are encoded by rotating q and k (J. Su et al., "RoFormer", 2021, arXiv:2104.09864); norms are root mean
square without weights; the MLP squares a ReLU. B sequences, N tokens, H heads of D = width / H numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, repeat
from numbers import Real
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flashlearn.core.inputs import check_block, check_bool, check_count
from flashlearn.core.mask import causal_mask

TEXT = Path(__file__).with_name("data") / "paradise_lost.txt"
Attention = Callable[..., Tensor]


def pytorch_attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None) -> Tensor:
    """PyTorch's own attention with the signature of the course: `causal` is aligned to the bottom right."""
    check_bool(causal, "causal")
    N_q, N_k = q.shape[2], k.shape[2]
    square = causal and N_q == N_k
    mask = (
        causal_mask(N_q, N_k, q.device) if causal and not square and N_q > 1 else None
    )  # one query attends to all keys
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=square, scale=scale, enable_gqa=grouped)


def rotate(x: Tensor, start: int | Tensor = 0) -> Tensor:
    """Turn the pair (x_i, x_{i + D/2}) of the token at position p by the angle p / 10000^(2i / D).

    x (B, H, N, D), its first token at position `start`, or, where tokens of several sequences follow each other, at
    positions `start` (N,). After it, q.k depends on the distance of two tokens only.
    """
    N, D = x.shape[-2:]
    positions = start.to(x.device) if isinstance(start, Tensor) else torch.arange(start, start + N, device=x.device)
    position = positions[:, None]  # (N, 1)
    angle = position / 10000 ** (torch.arange(0, D, 2, device=x.device) / D)  # (N, D / 2)
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1).to(x.dtype)


def norm(x: Tensor) -> Tensor:
    """Divide by the root mean square of the last dimension."""
    return F.rms_norm(x, (x.shape[-1],))


class Cache(Protocol):
    """The cache of a layer: `length` is how many tokens it has, or the position (N,) of each new one."""

    @property
    def length(self) -> int | Tensor: ...

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]: ...


class KVCache:
    """Keys and values (B, H_kv, N, D) of one layer for the N tokens so far, with room for more and without gradients."""

    def __init__(self, B: int, H_kv: int, room: int, D: int, **options):
        self.k, self.v = (torch.empty(B, H_kv, room, D, **options) for _ in "kv")
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k and v (B, H_kv, n, D); return views of everything so far."""
        B, H_kv, _, D = self.k.shape
        if k.ndim != 4 or k.shape != v.shape or k.shape != (B, H_kv, k.shape[2], D):
            raise ValueError(
                f"expected k and v of shape (B, H_kv, n, D) = ({B}, {H_kv}, n, {D}), "
                f"got {tuple(k.shape)} and {tuple(v.shape)}"
            )
        start, stop = self.length, self.length + k.shape[2]
        if stop > self.k.shape[2]:
            raise ValueError(f"expected at most {self.k.shape[2]} tokens in the cache, got {stop}")
        self.k[:, :, start:stop], self.v[:, :, start:stop], self.length = k.detach(), v.detach(), stop
        return self.k[:, :, :stop], self.v[:, :, :stop]


class Attend(nn.Module):
    """x (B, N, width) -> (B, N, width): make q, k and v, rotate q and k, attend, and mix the heads."""

    def __init__(self, width: int, heads: int, kv_heads: int):
        super().__init__()
        self.D = width // heads
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, kv_heads * self.D, bias=False) for _ in "kv")

    def forward(self, x: Tensor, attention: Attention, cache: Cache | None = None) -> Tensor:
        start = cache.length if cache else 0
        q, k, v = (make(x).unflatten(-1, (-1, self.D)).transpose(1, 2) for make in (self.q, self.k, self.v))
        q, k = rotate(q, start), rotate(k, start)  # (B, H, N, D), (B, H_kv, N, D)
        if cache:
            k, v = cache.append(k, v)  # (B, H_kv, start + N, D)
        o = attention(q, k, v, causal=True)  # (B, H, N, D)
        return self.out(o.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """x (B, N, width) -> (B, N, width): attention between tokens, then an MLP on each."""

    def __init__(self, width: int, heads: int, kv_heads: int):
        super().__init__()
        self.attend = Attend(width, heads, kv_heads)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, attention: Attention, cache: Cache | None = None) -> Tensor:
        x = x + self.attend(norm(x), attention, cache)
        return x + self.down(F.relu(self.up(norm(x))).square())


class GPT(nn.Module):
    """tokens (B, N) -> logits (B, N, vocabulary), of the character that follows each.

    `attention` is any function attention(q, k, v, causal=True); assign `model.attention` to swap it later.
    `kv_heads` of `heads` have keys and values of their own; groups of query heads share them.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 2, heads: int = 2, kv_heads: int | None = None, width: int = 32,
        attention: Attention = pytorch_attention,
    ):  # fmt: skip
        super().__init__()
        check_block(vocabulary, "vocabulary")
        check_count(layers, "layers")
        if not callable(attention):
            expected = "a function attention(q, k, v, causal=True)"
            raise TypeError(f"expected attention to be {expected}, got {type(attention).__name__}")
        self.attention, self.kv_heads = attention, heads if kv_heads is None else kv_heads
        self.D = check_sizes(width, heads, self.kv_heads)
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, self.kv_heads) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, caches: list[KVCache] | None = None) -> Tensor:
        """With caches, tokens follow those already in them, and their keys and values are added."""
        x = self.embed(tokens)  # (B, N, width)
        for block, cache in zip(self.blocks, caches or repeat(None, len(self.blocks)), strict=True):
            x = block(x, self.attention, cache)
        return self.head(norm(x))

    def empty_caches(self, B: int, room: int, dtype: torch.dtype | None = None) -> list[KVCache]:
        """One cache a layer, for B sequences of up to `room` tokens."""
        weight = self.head.weight
        options = {"device": weight.device, "dtype": dtype or weight.dtype}
        return [KVCache(B, self.kv_heads, room, self.D, **options) for _ in self.blocks]


def check_sizes(width: int, heads: int, kv_heads: int) -> int:
    """D of each head; ValueError unless heads of pairs of numbers fill the width, and kv_heads divides heads."""
    for size, name in ((width, "width"), (heads, "heads"), (kv_heads, "kv_heads")):
        check_block(size, name)
    if width % (2 * heads):
        raise ValueError(f"expected a width that is a multiple of 2 heads = {2 * heads}, got {width}")
    if heads % kv_heads:
        raise ValueError(f"expected heads to be a multiple of kv_heads, got {heads} and {kv_heads}")
    return width // heads


def read_text() -> str:
    """John Milton's Paradise Lost, 456,724 characters in the public domain (flashlearn/models/data/README.md)."""
    return TEXT.read_text(encoding="ascii")


def encode(text: str, alphabet: str) -> Tensor:
    """The index in the alphabet of every character, (N,)."""
    index = {character: i for i, character in enumerate(alphabet)}
    unknown = sorted(set(text) - set(index))
    if unknown:
        raise ValueError(f"expected characters of the alphabet, got {unknown}")
    return torch.tensor([index[character] for character in text])


def decode(tokens: Tensor, alphabet: str) -> str:
    """The text of tokens (N,)."""
    return "".join(alphabet[i] for i in tokens.tolist())


def batches(tokens: Tensor, batch: int, context: int, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Random windows of the text without end: inputs, and the characters that follow, each (batch, context)."""
    check_block(batch, "batch")
    check_block(context, "context")
    if not isinstance(tokens, Tensor) or tokens.ndim != 1 or len(tokens) <= context:
        got = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"expected tokens (N,), more of them than the context of {context}, got {got}")
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(tokens) - context, (batch, 1), generator=generator, device="cpu")
        window = tokens[(starts + torch.arange(context + 1, device="cpu")).to(tokens.device)]  # (batch, context + 1)
        yield window[:, :-1], window[:, 1:]


def loss_of(model: GPT, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy in nats per character; log(vocabulary) for a model that knows nothing."""
    return F.cross_entropy(model(x).float().flatten(0, 1), y.flatten())


def train(
    model: GPT, tokens: Tensor, *, steps: int, batch: int, context: int, lr: float = 1e-2, seed: int = 0,
    dtype: torch.dtype | None = None,
) -> list[float]:  # fmt: skip
    """Train in place with AdamW; the loss before each update. `dtype` is that of autocast, if any.

    The same seed gives the same batches, whatever the model's attention.
    """
    check_block(steps, "steps")
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    losses = []
    for x, y in islice(batches(tokens, batch, context, seed), steps):
        with torch.autocast(tokens.device.type, dtype=dtype, enabled=dtype is not None):
            loss = loss_of(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()  # read at the end: the host waits for the GPU once


COLDEST = 1e-30  # logits divided by less overflow float32


@torch.no_grad()
def generate(
    model: GPT, tokens: Tensor, count: int, *, seed: int = 0, temperature: float = 1.0, cached: bool = True
) -> Tensor:
    """tokens (B, N) -> (B, N + count): draw each next character from the model's probabilities.

    Cached: the first call reads all tokens, every later one the last token only. Otherwise all, every time.
    """
    check_count(count, "count")
    check_bool(cached, "cached")
    if not isinstance(temperature, Real) or isinstance(temperature, bool) or not temperature >= COLDEST:
        raise ValueError(f"expected a temperature of at least {COLDEST}, got {temperature!r}")
    if not isinstance(tokens, Tensor) or tokens.ndim != 2 or not tokens.shape[1]:
        got = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"expected tokens (B, N) with an N of at least 1, got {got}")
    generator = torch.Generator(tokens.device).manual_seed(seed)
    caches = model.empty_caches(tokens.shape[0], tokens.shape[1] + count) if cached else None
    new = tokens
    for _ in range(count):
        logits = model(new if cached else tokens, caches)[:, -1].float()  # (B, vocabulary)
        new = torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator)  # (B, 1)
        tokens = torch.cat([tokens, new], dim=1)
    return tokens
