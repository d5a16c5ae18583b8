"""Answers to the exercises of serving that are no edit of the solution: `wrong.toml` names them."""

import math

import torch


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


def offset(number, h, place, strides):
    return number * strides[0] + h * strides[1] + place * strides[2]


def asked_at_t(table, b, h, t, page, strides):
    return offset(table[b, t % table.shape[1]].long(), h, t % page, strides)


def place_is_the_quotient(table, b, h, t, page, strides):
    return offset(table[b, t // page].long(), h, t // page, strides)


def heads_a_page_apart(table, b, h, t, page, strides):
    return offset(table[b, t // page].long() + h, 0, t % page, strides)


def head_and_token_exchanged(table, b, h, t, page, strides):
    return offset(table[b, t // page].long(), h, t % page, (strides[0], strides[2], strides[1]))


def strides_turned(table, b, h, t, page, strides):
    return offset(table[b, t // page].long(), h, t % page, (strides[2], strides[0], strides[1]))


def all_in_int32(table, b, h, t, page, strides):
    return table[b, t // page] * strides[0] + h * strides[1] + t % page * strides[2]


def longest_minus_average(lengths, page):
    return max(lengths) - sum(lengths) / len(lengths), sum(-n % page for n in lengths)


def last_page_of_the_longest(lengths, page):
    return len(lengths) * max(lengths) - sum(lengths), -max(lengths) % page


def page_minus_remainder(lengths, page):
    return len(lengths) * max(lengths) - sum(lengths), sum(page - n % page for n in lengths)


def with_the_remainder(B, H_q, H_kv, N_k, at_once, least):
    return max(1, min(at_once // (B * H_kv) + 1, N_k // least))


def all_heads(B, H_q, H_kv, N_k, at_once, least):
    return max(1, min(at_once // (B * (H_q + H_kv)), N_k // least))


def keys_of_a_piece(B, H_q, H_kv, N_k, at_once, least):
    return max(least, N_k * B * H_kv // at_once)


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
