"""What wrong answers to the exercises of notebook 18 get wrong."""

from __future__ import annotations

import torch

from flashlearn.course.serving.solutions import splits_solution, waste_solution

ROWS = torch.tensor([[5, 2, 7, 3], [0, 6, 1, 4]], dtype=torch.int32)


def _asked(address, strides, b=0, h=0, n=16):
    """The result for the first n tokens, in pages of 4."""
    return [int(x) for x in address(ROWS.clone(), b, h, torch.arange(n, dtype=torch.int32), 4, strides)]


def _named(numbers) -> str:
    return ", ".join(map(str, numbers))


def which_stride(address):
    """With one stride of 1 and the others 0 the result is what that stride is multiplied by."""
    parts = {"the number of the page": 2, "the head": 3, "the position in the page": 1}  # of token 5, head 3
    names = ("stride_p", "stride_h", "stride_n")
    units = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    got = [int(address(ROWS.clone(), 0, 3, torch.tensor([5], dtype=torch.int32), 4, unit)[0]) for unit in units]
    if got == list(parts.values()) or sorted(got) != sorted(parts.values()):
        return ""
    taken = {number: part for part, number in parts.items()}
    wrong = [f"{name} multiplies {taken[number]}" for name, number in zip(names, got, strict=True)]
    right = [f"{part} takes {name}" for part, name in zip(parts, names, strict=True)]
    told = [line for line, number, want in zip(wrong, got, parts.values(), strict=True) if number != want]
    return f"the strides are exchanged: {', '.join(told)}; {', '.join(right)}"


def which_page(address):
    """With one stride alone the offsets are the numbers of pages."""
    got, want = _asked(address, (1, 0, 0)), ROWS[0].repeat_interleave(4).tolist()
    if got != want:
        return (
            f"the row of the table is 5, 2, 7, 3, and pages have 4 tokens: expected tokens 0 to 15 in pages {_named(want)}, got "
            f"{_named(got)}. The number of the page is page_table[b, t // page]"
        )
    return ""


def which_place(address):
    got, want = _asked(address, (0, 0, 1)), [0, 1, 2, 3] * 4
    if got != want:
        return f"pages of 4: expected the positions {_named(want)} for tokens 0 to 15, got {_named(got)}. The position is t % page"
    return ""


def which_head(address):
    got = _asked(address, (0, 1, 0), h=3, n=1)[0]
    return (
        f"expected key head 3 to begin 3 times stride_h after the start of the page, got {got} times"
        if got != 3
        else ""
    )


def which_row(address):
    got, want = _asked(address, (1, 0, 0), b=1), ROWS[1].repeat_interleave(4).tolist()
    if got != want:
        return f"expected the tokens of sequence 1 in its own pages 0, 6, 1, 4, got pages {_named(dict.fromkeys(got))}"
    return ""


def how_wide(address):
    """What an int32 cannot hold."""
    table, t = torch.tensor([[150_000]], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    got, want = int(address(table, 0, 0, t, 16, (16384, 2048, 128))[0]), 150_000 * 16384
    if got != want:
        return (
            f"page 150000 begins at 150000 * 16384: expected {want}, got {got}. The product does not fit into 32 bits"
        )
    return ""


def both_wastes(wasted):
    """Small batches, one difficulty after the other."""
    for lengths, page, why in (
        ([6], 4, "one request is the longest itself, and it takes 2 pages with room for 8"),
        ([8], 4, "the 2 pages are full"),
        ([6, 8], 4, "by the longest, both have room for 8"),
        ([0, 6], 4, "a request without tokens takes no page, but it gets room for the longest"),
        ([1, 2, 9], 4, "by the longest there is room for 9 each; in pages of 4 they take 1, 1 and 3 pages"),
    ):
        got, want = wasted(list(lengths), page), waste_solution(list(lengths), page)
        for name, g, w in zip(("by the longest", "by pages"), got, want, strict=True):
            if abs(float(g) - w) > 1e-9:
                return f"lengths {lengths}, pages of {page}, {name}: expected {w} tokens of empty room, got {g}; {why}"
    return ""


def _too_many(got: float, want: int, programs: int, at_once: int) -> str:
    """That not all programs run at once, if it is so."""
    if programs * got <= at_once:
        return ""
    rounded = ": round down, or some would wait" if got <= want + 1 else ""
    return f"with {programs} key heads in all requests this makes {programs * got:g} programs, but {at_once} run at once{rounded}"


def each_limit(splits):
    for args, why in (
        (
            (1, 4, 2, 10**6, 12, 10),
            "12 programs run at once, for 2 key heads; the query heads of a group share a program",
        ),
        ((3, 2, 2, 10**6, 12, 10), "12 programs run at once, for 3 requests of 2 key heads"),
        ((1, 5, 5, 10**6, 12, 10), "12 programs run at once, for 5 key heads: round down"),
        ((1, 1, 1, 35, 12, 10), "35 keys make 3 pieces of at least 10: round down"),
        ((3, 1, 1, 35, 12, 10), "every request has 35 keys: 3 pieces of at least 10"),
        ((1, 1, 1, 5, 12, 10), "too few keys for a cut are one piece"),
        ((7, 2, 2, 10**6, 12, 10), "without a cut there are 14 programs, and 12 run at once: one piece, never 0"),
    ):
        got, want = float(splits(*args)), splits_solution(*args)
        if abs(got - want) > 1e-9:
            B, H_q, H_kv, N_k, at_once, least = args
            asked = f"B = {B}, H_q = {H_q}, H_kv = {H_kv}, N_k = {N_k}, at_once = {at_once}, least = {least}"
            why = _too_many(got, want, B * H_kv, at_once) or why
            return f"{asked}: expected {want}, got {got:g}; {why}"
    return ""


CAUSES = {
    "page": (which_stride, which_page, which_place, which_head, which_row, how_wide),
    "waste": (both_wastes,),
    "splits": (each_limit,),
}
