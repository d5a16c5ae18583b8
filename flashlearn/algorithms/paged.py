"""Attention over a cache in pages: the keys of a sequence are on pages of one pool, wherever its page table says.

What is new compared with `tiled_attention_v2`: a block of keys is a page, and a table has its address. The attention is
the same.

The pool is one matrix for K and one for V, (1, H_kv, P page, D): page p has the rows p page to (p + 1) page. The
queries of all sequences follow each other, (1, H_q, T, D). A sequence is one program: all heads of a group share its
tiles, so each page is read once per key head. The table itself, 4 bytes a page, is not counted.

Source: W. Kwon et al., 2023 (arXiv:2309.06180).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, overload

from torch import Tensor

from flashlearn.algorithms import captions
from flashlearn.algorithms.attention import online_update
from flashlearn.algorithms.problem import Problem, start
from flashlearn.algorithms.tiled import store_result
from flashlearn.core.hbm import HBM
from flashlearn.core.inputs import check_bool
from flashlearn.core.mask import Mask, Window, check_window
from flashlearn.core.numerics import Span
from flashlearn.core.pages import PagedSizes, check_paged, check_paged_numbers
from flashlearn.core.steps import Step, run


class PagedOptions(TypedDict, total=False):
    """Options of `paged_attention`, as those of `flashlearn.flash_attention_paged`, except for those of what is returned."""

    cu_seqlens_q: Tensor | None
    causal: bool
    window: Window | None
    softcap: float | None
    sinks: Tensor | None
    scale: float | None


class AllPagedOptions(PagedOptions, total=False):
    """... and that."""

    return_lse: bool


class PagedSequence(NamedTuple):
    """One sequence: the positions of its queries among all, which queries attend to which keys, and its pages in order."""

    rows: Span
    mask: Mask
    pages: list[int]

    def visits(self, page: int) -> list[tuple[int, Span, Span]]:
        """(j, keys, rows of the pool) of its pages that a query attends to, cut to the keys that are attended to."""
        seen = self.mask.keys((0, self.mask.N_q))
        found = []
        for j, (first, last) in self.mask.key_blocks((0, self.mask.N_q), page):
            cols = max(first, seen[0]), min(last, seen[1])
            ahead = (self.pages[j] - j) * page  # from a key to its row of the pool
            found.append((j, cols, (cols[0] + ahead, cols[1] + ahead)))
        return found


@overload
def paged_attention(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor, *, return_lse: Literal[True],
    **options: Unpack[PagedOptions],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip


@overload
def paged_attention(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor, *, return_lse: Literal[False] = False,
    **options: Unpack[PagedOptions],
) -> Tensor: ...  # fmt: skip


def paged_attention(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor, **options: Unpack[AllPagedOptions]
) -> Tensor | tuple[Tensor, Tensor]:
    """O, causal unless `causal=False`, of sequences whose keys are in pages, as `flashlearn.flash_attention_paged` takes them.

    With return_lse also lse, (B, H_q, N_q) or (H_q, T). Any dtype, pages of any power of two, on any device.
    """
    return run(paged_attention_steps(q, k_pages, v_pages, page_table, lengths, **options))


def paged_attention_steps(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor, **options: Unpack[AllPagedOptions]
) -> Iterator[Step]:
    """One step per page of every sequence; the last of each sequence writes O and lse.

    values: i the sequence, j the number of the page within it, page its number in the pool, rows the queries among all T,
    cols the keys of the sequence. A sequence that attends to no key has one step, whose j and page are None.
    """
    size, sequences = check_options(q, k_pages, v_pages, page_table, lengths, options)
    row = q.transpose(0, 1)[None] if size.N_q is None else q.transpose(0, 1).flatten(1, 2)[None]  # (1, H_q, T, D)
    k, v = (t.transpose(0, 1).flatten(1, 2)[None] for t in (k_pages, v_pages))  # (1, H_kv, P page, D)
    scores: dict[str, Any] = {name: options.get(name) for name in ("softcap", "sinks", "scale")}
    p = Problem.of(row, k, v, **scores)
    hbm = p.memory(captions.paged, {"O": p.dtype, "lse": p.wide}, lse=p.column)
    for b, sequence in enumerate(sequences):
        visits, (rows, mask, pages) = sequence.visits(size.page), sequence
        if visits:
            Q_b = hbm.load("Q", rows)
        m_i, l_i, acc = start(hbm, rows)
        for j, cols, place in visits:
            K_j, V_j, m_old = hbm.load("K", place, times=1), hbm.load("V", place, times=1), m_i
            S = mask.hide(p.scores.cap(Q_b @ K_j.mT), (0, mask.N_q), cols)
            m_i, l_i, alpha, P = online_update(m_old, l_i, S)
            acc = acc * alpha + P @ V_j
            if j == visits[-1][0]:
                store_result(hbm, rows, m_i, l_i, acc)
            seen = {"S": S, "P": P, "m_i": m_i, "l_i": l_i, "acc": acc, "m_old": m_old, "alpha": alpha}
            masked = mask.crosses((0, mask.N_q), cols)
            yield hbm.step("pages", program=(b,), i=b, j=j, page=pages[j], rows=rows, cols=cols, masked=masked, **seen)
        if not visits:
            store_result(hbm, rows, m_i, l_i, acc)
            none: dict[str, Any] = {"i": b, "j": None, "page": None, "rows": rows, "cols": (0, 0), "masked": True}
            yield hbm.step("pages", program=(b,), **none, m_i=m_i, l_i=l_i, acc=acc)
    output = _results(hbm, size, options.get("return_lse", False))
    yield hbm.done(output, visits=sum(len(sequence.visits(size.page)) for sequence in sequences))


def check_options(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor, options: AllPagedOptions
) -> tuple[PagedSizes, list[PagedSequence]]:
    """The sizes, and every sequence; ValueError, TypeError for what is no such problem, numbers included."""
    for name in options.keys() - AllPagedOptions.__annotations__.keys():
        raise TypeError(f"expected options of {', '.join(AllPagedOptions.__annotations__)}, got {name!r}")
    cu_seqlens_q, causal = options.get("cu_seqlens_q"), options.get("causal", True)
    check_bool(causal, "causal")
    check_bool(options.get("return_lse", False), "return_lse")
    size = check_paged(q, k_pages, v_pages, page_table, lengths, cu_seqlens_q)
    left, right = check_window(options.get("window"))
    check_paged_numbers(size, page_table, lengths, cu_seqlens_q, left)
    starts = [b * (size.N_q or 0) for b in range(size.B + 1)] if cu_seqlens_q is None else cu_seqlens_q.tolist()
    sequences = []
    for b, length in enumerate(lengths.tolist()):
        rows = starts[b], starts[b + 1]
        mask = Mask(rows[1] - rows[0], length, left, 0 if causal else right)
        sequences.append(PagedSequence(rows, mask, page_table[b, : -(-length // size.page)].tolist()))
    return size, sequences


def _results(hbm: HBM, size: PagedSizes, return_lse: bool) -> Tensor | tuple[Tensor, Tensor]:
    """o as q is shaped, and lse without its last dimension."""
    o, lse = hbm.output("O")[0], hbm.output("lse")[0, ..., 0]  # (H_q, T, D), (H_q, T)
    if size.N_q is None:
        o = o.transpose(0, 1)
    else:
        o, lse = (t.reshape(len(t), size.B, size.N_q, *t.shape[2:]).transpose(0, 1) for t in (o, lse))
    return (o, lse) if return_lse else o
