"""Inputs of attention over pages: a pool of keys and values, a table of pages for every sequence, and its length.

    q           (B, H_q, N_q, D), or (T, H_q, D) where sequences have different numbers of queries
    pages       (P, H_kv, page, D), one tensor of keys and one of values
    page_table  (B, most) int32: token t of sequence b is in page page_table[b, t // page], at place t % page
    lengths     (B,) int32: the keys of each sequence
    cu_seqlens  (B + 1,) int32: the queries of sequence b are cu_seqlens[b] to cu_seqlens[b + 1] of the T

Shapes are known to the host, lengths to the device only. Lengths in the device's memory are checked only on request,
because a check waits for the device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from flashlearn.core.inputs import check_float, check_int32


class PagedSizes(NamedTuple):
    """The sizes of such a problem: `T` queries in all; N_q of each sequence, None where they differ."""

    B: int
    T: int
    N_q: int | None
    H_q: int
    H_kv: int
    D: int
    pages: int
    page: int
    most: int

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.H_q // self.H_kv

    @property
    def most_keys(self) -> int:
        """The longest sequence that the table has room for."""
        return self.most * self.page if self.pages else 0


def check_paged(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor, cu_seqlens_q: Tensor | None = None
) -> PagedSizes:
    """Reject tensors of other shapes, dtypes or devices than those above; reads none of their numbers."""
    _check_pages(q, k_pages, v_pages)
    _check_int32(q, page_table, "page_table", 2)
    B, most = page_table.shape
    _check_int32(q, lengths, "lengths", 1, B)
    (P, H_kv, page, _), D = k_pages.shape, q.shape[-1]
    if cu_seqlens_q is None:
        _check_shape(q, "q", "(B, H_q, N_q, D), or (T, H_q, D) with cu_seqlens_q", 4)
        if q.shape[0] != B:
            raise ValueError(f"expected q with B = {B}, the rows of page_table, got {tuple(q.shape)}")
        H_q, N_q, T = q.shape[1], q.shape[2], B * q.shape[2]
    else:
        _check_shape(q, "q", "(T, H_q, D) with cu_seqlens_q", 3)
        _check_int32(q, cu_seqlens_q, "cu_seqlens_q", 1, B + 1)
        T, H_q, N_q = q.shape[0], q.shape[1], None
    if not H_kv or not H_q or H_q % H_kv:
        raise ValueError(f"expected the heads of q to be a multiple of those of the pages, got {H_q} and {H_kv}")
    return PagedSizes(B, T, N_q, H_q, H_kv, D, P, page, most)


def check_paged_numbers(
    sizes: PagedSizes, page_table: Tensor, lengths: Tensor, cu_seqlens_q: Tensor | None = None, left: int | None = None
) -> None:
    """Reject lengths beyond the table, pages that are not there, queries out of order; waits for the device.

    left: the number of keys before its own that a query attends to, None for all. Pages before those of the first query
    are not checked: a cache that has freed them leaves -1 in the table.
    """
    wrong = (lengths < 0) | (lengths > sizes.most_keys)
    if wrong.any():
        b = int(wrong.nonzero()[0])
        raise ValueError(
            f"expected lengths of 0 to {sizes.most_keys}, most * page, got {int(lengths[b])} for sequence {b}"
        )
    first = torch.arange(sizes.most, device=lengths.device) * sizes.page  # the first key of every page
    used = (first < lengths[:, None]) & (first + sizes.page > _first_keys(sizes, lengths, cu_seqlens_q, left)[:, None])
    wrong = used & ((page_table < 0) | (page_table >= sizes.pages))
    if wrong.any():
        b, i = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"expected page numbers of 0 to {sizes.pages - 1}, got {int(page_table[b, i])} in page_table[{b}, {i}]"
        )
    if cu_seqlens_q is not None:
        starts = cu_seqlens_q.tolist()
        if starts[0] != 0 or starts[-1] != sizes.T or any(a > b for a, b in zip(starts, starts[1:], strict=False)):
            raise ValueError(f"expected cu_seqlens_q to rise from 0 to T = {sizes.T}, got {starts}")


def _first_keys(sizes: PagedSizes, lengths: Tensor, cu_seqlens_q: Tensor | None, left: int | None) -> Tensor:
    """The first key that any query of each sequence attends to, (B,); it may be negative."""
    if left is None:
        return torch.zeros_like(lengths)
    queries = sizes.N_q or 0 if cu_seqlens_q is None else cu_seqlens_q.diff()
    return lengths - queries - left


def _check_pages(q: Tensor, k_pages: Tensor, v_pages: Tensor) -> None:
    for name, t in (("q", q), ("k_pages", k_pages), ("v_pages", v_pages)):
        check_float(t, name)
        if t.dtype != q.dtype:
            raise TypeError(f"expected q and the pages in one dtype, got q {q.dtype} and {name} {t.dtype}")
        if t.device != q.device:
            raise ValueError(f"expected q and the pages on one device, got q on {q.device} and {name} on {t.device}")
    _check_shape(k_pages, "k_pages", "(P, H_kv, page, D)", 4)
    if k_pages.shape != v_pages.shape:
        raise ValueError(
            f"expected k_pages and v_pages of one shape, got {tuple(k_pages.shape)} and {tuple(v_pages.shape)}"
        )
    page, D = k_pages.shape[2:]
    if not q.ndim or not q.shape[-1] or q.shape[-1] != D:
        raise ValueError(
            f"expected q and the pages with the same D of at least 1, got q {tuple(q.shape)} and k_pages "
            f"{tuple(k_pages.shape)}"
        )
    if page < 1 or page & (page - 1):
        raise ValueError(f"expected a page size that is a power of two, got {page}")


def _check_shape(t: Tensor, name: str, shape: str, dims: int) -> None:
    if t.ndim != dims:
        raise ValueError(f"expected {name} of shape {shape}, got {tuple(t.shape)}")


def _check_int32(q: Tensor, t: Tensor, name: str, dims: int, length: int | None = None) -> None:
    check_int32(t, name)
    if t.device != q.device:
        raise ValueError(f"expected {name} on the device of q, {q.device}, got {t.device}")
    _check_shape(t, name, "(B, most)" if dims == 2 else f"({length},)", dims)
    if length is not None and t.shape[0] != length:
        raise ValueError(f"expected {name} of shape ({length},), got {tuple(t.shape)}")
