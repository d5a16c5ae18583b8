"""Known wrong answers to the exercises of notebook 18."""

import torch

from flashlearn.exercises.assessment import Mistake


def _offset(number, h, slot, strides):
    return number * strides[0] + h * strides[1] + slot * strides[2]


def page_without_the_table(page_table, b, h, t, page, strides):
    return _offset((t // page).long(), h, t % page, strides)


def page_slot_in_the_sequence(page_table, b, h, t, page, strides):
    return _offset(page_table[b, t // page].long(), h, t, strides)


def page_and_slot_exchanged(page_table, b, h, t, page, strides):
    return _offset(page_table[b, t % page].long(), h, t // page, strides)


def page_of_the_first_sequence(page_table, b, h, t, page, strides):
    return _offset(page_table[0, t // page].long(), h, t % page, strides)


def page_without_the_head(page_table, b, h, t, page, strides):
    return _offset(page_table[b, t // page].long(), 0, t % page, strides)


def page_in_32_bits(page_table, b, h, t, page, strides):
    return _offset(page_table[b, t // page].to(torch.int32), h, t % page, strides).long()


def page_without_the_slot(page_table, b, h, t, page, strides):
    return _offset(page_table[b, t // page].long(), h, 0, strides)


def _waste(lengths, pages_of, page):
    return len(lengths) * max(lengths) - sum(lengths), sum(pages_of(n) * page - n for n in lengths)


def waste_of_what_is_over(lengths, page):
    return _waste(lengths, lambda n: 0, page)[0], sum(n % page for n in lengths)


def waste_a_page_more_than_full(lengths, page):
    return _waste(lengths, lambda n: n // page + 1, page)


def waste_counts_the_room(lengths, page):
    return len(lengths) * max(lengths), sum(-(-n // page) * page for n in lengths)


def waste_pages_of_the_longest(lengths, page):
    return _waste(lengths, lambda n: -(-max(lengths) // page), page)


def waste_as_shares(lengths, page):
    room = waste_counts_the_room(lengths, page)
    wasted = _waste(lengths, lambda n: -(-n // page), page)
    return tuple(part / whole for part, whole in zip(wasted, room, strict=True))


def waste_counted_in_pages(lengths, page):
    return _waste(lengths, lambda n: 0, page)[0], sum(n % page > 0 for n in lengths)


def waste_of_one_long_sequence(lengths, page):
    return _waste(lengths, lambda n: 0, page)[0], -sum(lengths) % page


def waste_half_of_the_longest(lengths, page):
    return len(lengths) * max(lengths) / 2, sum(-n % page for n in lengths)


def _splits(programs, N_k, at_once, least):
    return max(1, min(at_once // programs, N_k // least))


def splits_of_query_heads(B, H_q, H_kv, N_k, at_once, least):
    return _splits(B * H_q, N_k, at_once, least)


def splits_heads_not_counted(B, H_q, H_kv, N_k, at_once, least):
    return _splits(B, N_k, at_once, least)


def splits_requests_not_counted(B, H_q, H_kv, N_k, at_once, least):
    return _splits(H_kv, N_k, at_once, least)


def splits_rounded_up(B, H_q, H_kv, N_k, at_once, least):
    return max(1, min(-(-at_once // (B * H_kv)), N_k // least))


def splits_however_short(B, H_q, H_kv, N_k, at_once, least):
    return max(1, at_once // (B * H_kv))


def splits_however_many(B, H_q, H_kv, N_k, at_once, least):
    return max(1, N_k // least)


def splits_none(B, H_q, H_kv, N_k, at_once, least):
    return min(at_once // (B * H_kv), N_k // least)


MISTAKES = {
    "18.page": (
        Mistake("the table is not asked: pages are taken to lie in order", page_without_the_table, "one sequence"),
        Mistake("the place in the page is t, not what is left of it", page_slot_in_the_sequence, "one sequence"),
        Mistake("quotient and remainder of t are exchanged", page_and_slot_exchanged, "one sequence"),
        Mistake("the row of the first sequence serves all", page_of_the_first_sequence, "another sequence"),
        Mistake("the head is left out", page_without_the_head, "another head"),
        Mistake("page number times stride is taken in 32 bits", page_in_32_bits, "a large pool"),
        Mistake("every token is taken for the first of its page", page_without_the_slot, "one sequence"),
    ),
    "18.waste": (
        Mistake(
            "what is used of the last page is counted, not what is left of it", waste_of_what_is_over, "three requests"
        ),
        Mistake("a page is added where the last one is just full", waste_a_page_more_than_full, "just full"),
        Mistake("all the room is counted, used or not", waste_counts_the_room, "three requests"),
        Mistake("every request gets as many pages as the longest", waste_pages_of_the_longest, "three requests"),
        Mistake("shares are returned, not tokens", waste_as_shares, "three requests"),
        Mistake(
            "last pages are counted, not the tokens that they have room for", waste_counted_in_pages, "three requests"
        ),
        Mistake(
            "every request is taken to be half as long as the longest", waste_half_of_the_longest, "three requests"
        ),
        Mistake("requests share a last page, as if they were one", waste_of_one_long_sequence, "three requests"),
    ),
    "18.splits": (
        Mistake("query heads are counted, which share a program", splits_of_query_heads, "one long request"),
        Mistake("heads are not counted", splits_heads_not_counted, "one long request"),
        Mistake("requests are not counted", splits_requests_not_counted, "a batch"),
        Mistake(
            "the number of pieces is rounded up, and more programs are made than run at once",
            splits_rounded_up,
            "a batch",
        ),
        Mistake("a piece may have fewer than `least` keys", splits_however_short, "few keys"),
        Mistake("more programs are made than run at once", splits_however_many, "one long request"),
        Mistake("a full GPU gets no program at all", splits_none, "many requests"),
    ),
}
