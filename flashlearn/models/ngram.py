"""A model that counts runs of characters: the baseline for a trained one."""

from __future__ import annotations

import torch
from torch import Tensor

from flashlearn.core.inputs import check_block


def ngram_loss(train: Tensor, held_out: Tensor, *, order: int, vocabulary: int) -> float:
    """Nats per character of `held_out` (M,) for a model that has counted runs of up to `order` characters in `train` (N,).

    p_n(c | h) = (count(h c) + kinds(h) p_{n-1}(c | h')) / (count(h) + kinds(h))

    h is the n - 1 characters before c, h' the same without the first, and kinds(h) the number of different characters
    after h. p_0 is 1 / vocabulary, and a history that never occurred leaves p_{n-1} as it is. The first order - 1
    characters are not predicted. Source: I. H. Witten and T. C. Bell, 1991, method C, interpolated.
    """
    check_block(order, "order")
    check_block(vocabulary, "vocabulary")
    for name, text in (("train", train), ("held_out", held_out)):
        if not isinstance(text, Tensor) or text.ndim != 1 or text.is_floating_point() or text.is_complex():
            got = f"{text.dtype} {tuple(text.shape)}" if isinstance(text, Tensor) else type(text).__name__
            raise TypeError(f"expected {name} to be a tensor of integers with one dimension, got {got}")
        if text.numel() and not 0 <= text.min() <= text.max() < vocabulary:
            raise ValueError(f"expected tokens of {name} from 0 to {vocabulary - 1}, got {text.min()} to {text.max()}")
    if vocabulary**order >= 2**63:
        raise ValueError(f"expected an order with vocabulary^order below 2^63, got {order}, {vocabulary}")
    if min(len(train), len(held_out)) < order:
        raise ValueError(f"expected texts of {order} characters or more, got {len(train)} and {len(held_out)}")
    p = torch.full((len(held_out) - order + 1,), 1 / vocabulary, dtype=torch.float64, device="cpu")
    for n in range(1, order + 1):
        runs, counts = _numbers(train, n, vocabulary).unique(return_counts=True)
        histories, kinds = (runs // vocabulary).unique_consecutive(return_counts=True)  # sorted: neighbours agree
        totals = torch.zeros(len(histories), dtype=torch.int64, device="cpu")
        totals.index_add_(0, torch.searchsorted(histories, runs // vocabulary), counts)
        wanted = _numbers(held_out, n, vocabulary)[order - n :]
        count, total, kind = (
            _looked_up(keys, numbers, wanted if keys is runs else wanted // vocabulary)
            for keys, numbers in ((runs, counts), (histories, totals), (histories, kinds))
        )
        p = torch.where(total > 0, (count + kind * p) / (total + kind).clamp(min=1), p)
    return -p.log().mean().item()


def longest_copy(words: str, text: str) -> str:
    """The longest piece of `words` that occurs in `text` as well, the first of several.

    >>> longest_copy("the moon rose", "a moonlit night")
    ' moon'
    """
    found = ""
    for first in range(len(words)):
        while first + len(found) < len(words) and words[first : first + len(found) + 1] in text:
            found = words[first : first + len(found) + 1]
    return found


def _numbers(text: Tensor, n: int, vocabulary: int) -> Tensor:
    """Every run of n characters as a number with n digits, (N - n + 1,)."""
    powers = vocabulary ** torch.arange(n - 1, -1, -1, device="cpu")
    return (text.cpu().unfold(0, n, 1) * powers).sum(-1)


def _looked_up(keys: Tensor, numbers: Tensor, wanted: Tensor) -> Tensor:
    """The number of each wanted key, 0 where there is none; `keys` are sorted."""
    at = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    return torch.where(keys[at] == wanted, numbers[at], 0)
