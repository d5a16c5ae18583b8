"""Wrong answers to the exercises of notebook 18."""

import math

import torch


def _offset(number, h, slot, strides):
    return number * strides[0] + h * strides[1] + slot * strides[2]


def page_first_for_all(table, b, h, t, page, strides):
    return _offset(table[b, 0].long(), h, t % page, strides)


def page_strides_exchanged(table, b, h, t, page, strides):
    return _offset(table[b, t // page].long(), h, t % page, (strides[0], strides[2], strides[1]))


def page_taken_for_contiguous(table, b, h, t, page, strides):
    return _offset(table[b, t // page].long(), h, t % page, (strides[0], page * 16, 16))


def page_rounded_up(table, b, h, t, page, strides):
    return _offset(table[b, ((t + page - 1) // page).clamp(max=table.shape[1] - 1)].long(), h, t % page, strides)


def page_in_bytes(table, b, h, t, page, strides):
    return 2 * _offset(table[b, t // page].long(), h, t % page, strides)


def page_from_the_end(table, b, h, t, page, strides):
    return _offset(table[b, t // page].long(), h, page - 1 - t % page, strides)


def page_number_as_address(table, b, h, t, page, strides):
    return table[b, t // page].long() + h * strides[1] + t % page * strides[2]


def page_in_float32(table, b, h, t, page, strides):
    return _offset(table[b, t // page].float(), h, (t % page).float(), strides)


def page_widened_too_late(table, b, h, t, page, strides):
    return (table[b, t // page] * strides[0]).long() + h * strides[1] + t % page * strides[2]


def page_counted_from_one(table, b, h, t, page, strides):
    return _offset(table[b, t // page].long() - 1, h, t % page, strides)


def waste_of_the_mean(lengths, page):
    mean = sum(lengths) / len(lengths)
    return sum(max(lengths) - mean for _ in lengths[:-1]), sum(-n % page for n in lengths)


def waste_to_the_longest_page(lengths, page):
    room = -(-max(lengths) // page) * page
    return sum(room - n for n in lengths), sum(-n % page for n in lengths)


def waste_rounded_down(lengths, page):
    return len(lengths) * max(lengths) - sum(lengths), sum(n - n // page * page for n in lengths)


def waste_half_a_page_each(lengths, page):
    return len(lengths) * max(lengths) - sum(lengths), len(lengths) * page / 2


def waste_a_page_for_nobody(lengths, page):
    return len(lengths) * max(lengths) - sum(lengths), sum(max(1, math.ceil(n / page)) * page - n for n in lengths)


def waste_other_way_round(lengths, page):
    return sum(-n % page for n in lengths), len(lengths) * max(lengths) - sum(lengths)


def waste_without_the_longest(lengths, page):
    return (len(lengths) - 1) * max(lengths) - sum(lengths), sum(-n % page for n in lengths)


def waste_in_pages(lengths, page):
    return (len(lengths) * max(lengths) - sum(lengths)) / page, sum(-n % page for n in lengths) / page


def splits_of_groups(B, H_q, H_kv, N_k, at_once, least):
    return max(1, min(at_once // (B * (H_q // H_kv)), N_k // least))


def splits_of_power_of_two(B, H_q, H_kv, N_k, at_once, least):
    return 2 ** int(math.log2(max(1, min(at_once // (B * H_kv), N_k // least))))


def splits_larger_limit(B, H_q, H_kv, N_k, at_once, least):
    return max(1, at_once // (B * H_kv), N_k // least)


def splits_not_rounded(B, H_q, H_kv, N_k, at_once, least):
    return max(1, min(at_once / (B * H_kv), N_k / least))


def splits_last_piece_short(B, H_q, H_kv, N_k, at_once, least):
    return max(1, min(at_once // (B * H_kv), math.ceil(N_k / least)))


def splits_keys_of_all_requests(B, H_q, H_kv, N_k, at_once, least):
    return max(1, min(at_once // (B * H_kv), B * N_k // least))


def splits_a_place_kept(B, H_q, H_kv, N_k, at_once, least):
    return max(1, min((at_once - 1) // (B * H_kv), N_k // least))


def splits_two_at_least(B, H_q, H_kv, N_k, at_once, least):
    return max(2, min(at_once // (B * H_kv), N_k // least))


WRONG = {
    "18.page": (
        ("all tokens are in the first page", page_first_for_all),
        ("the strides of head and token are exchanged", page_strides_exchanged),
        ("pages are taken to be arranged by heads", page_taken_for_contiguous),
        ("the page is rounded up", page_rounded_up),
        ("bytes are returned", page_in_bytes),
        ("a page is filled from its end", page_from_the_end),
        ("the table is taken to hold addresses", page_number_as_address),
        ("float32 has not enough digits", page_in_float32),
        ("the product is widened, not its factor", page_widened_too_late),
        ("pages are counted from 1", page_counted_from_one),
    ),
    "18.waste": (
        ("one request too few is compared with the mean", waste_of_the_mean),
        ("the longest is rounded up to pages", waste_to_the_longest_page),
        ("what is used of the last page counts", waste_rounded_down),
        ("half a page each, as on average", waste_half_a_page_each),
        ("a request without tokens has a page", waste_a_page_for_nobody),
        ("both are exchanged", waste_other_way_round),
        ("the longest gets no room", waste_without_the_longest),
        ("pages are returned", waste_in_pages),
    ),
    "18.splits": (
        ("queries of a group are counted, not key heads", splits_of_groups),
        ("only powers of two", splits_of_power_of_two),
        ("the larger limit", splits_larger_limit),
        ("not rounded", splits_not_rounded),
        ("the last piece may be too short", splits_last_piece_short),
        ("the keys of all requests are taken for those of one", splits_keys_of_all_requests),
        ("a place is kept free", splits_a_place_kept),
        ("two splits at least", splits_two_at_least),
    ),
}


def page_by_rows(table, b, h, t, page, strides):
    row = table.to(torch.int64)[b]
    offsets = [int(row[int(i) // page]) * strides[0] + h * strides[1] + int(i) % page * strides[2] for i in t]
    return torch.tensor(offsets)


def page_by_divmod(table, b, h, t, page, strides):
    column = torch.div(t, page, rounding_mode="floor")
    return _offset(table[b].gather(0, column.long()).double(), h, t - page * column, strides)


def waste_box_by_box(lengths, page):
    longest = max(lengths)
    return float(sum(longest - n for n in lengths)), sum(math.ceil(n / page) * page - n for n in lengths)


def splits_counted_up(B, H_q, H_kv, N_k, at_once, least):
    s = 1
    while (s + 1) * B * H_kv <= at_once and N_k // (s + 1) >= least:
        s += 1
    return s


RIGHT = {
    "18.page": (("token by token", page_by_rows), ("in float64, which has 53 bits", page_by_divmod)),
    "18.waste": (("request by request", waste_box_by_box),),
    "18.splits": (("counted up", splits_counted_up),),
}
