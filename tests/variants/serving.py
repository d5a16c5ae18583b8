"""Wrong answers to the exercises of notebook 18."""

from tests.variants import variant


def offset(number, h, place, strides):
    return number * strides[0] + h * strides[1] + place * strides[2]


@variant("18.page", "the table is asked at t, not at t // page", r"t // page|page_table\[b")
def asked_at_t(table, b, h, t, page, strides):
    return offset(table[b, t % table.shape[1]].long(), h, t % page, strides)


@variant("18.page", "the place is t // page", r"t % page|places of tokens")
def place_is_the_quotient(table, b, h, t, page, strides):
    return offset(table[b, t // page].long(), h, t // page, strides)


@variant("18.page", "the head is multiplied by the stride of a page", r"head")
def heads_a_page_apart(table, b, h, t, page, strides):
    return offset(table[b, t // page].long() + h, 0, t % page, strides)


@variant(
    "18.page",
    "the strides of head and token are exchanged",
    r"stride_h multiplies the place",
    r"t % page|a head is stride_h",
)
def head_and_token_exchanged(table, b, h, t, page, strides):
    return offset(table[b, t // page].long(), h, t % page, (strides[0], strides[2], strides[1]))


@variant("18.page", "the strides are taken in the order of (P, PAGE, H_kv, D)", r"stride_p multiplies the head")
def strides_turned(table, b, h, t, page, strides):
    return offset(table[b, t // page].long(), h, t % page, (strides[2], strides[0], strides[1]))


@variant("18.page", "everything stays an int32", r"32 bits|int32|widen")
def all_in_int32(table, b, h, t, page, strides):
    return table[b, t // page] * strides[0] + h * strides[1] + t % page * strides[2]


@variant("18.waste", "the longest is measured from the average", r"by the longest")
def longest_minus_average(lengths, page):
    return max(lengths) - sum(lengths) / len(lengths), sum(-n % page for n in lengths)


@variant("18.waste", "the waste of the longest alone", r"by pages")
def last_page_of_the_longest(lengths, page):
    return len(lengths) * max(lengths) - sum(lengths), -max(lengths) % page


@variant("18.waste", "page minus remainder, even where there is none", r"full")
def page_minus_remainder(lengths, page):
    return len(lengths) * max(lengths) - sum(lengths), sum(page - n % page for n in lengths)


@variant("18.splits", "a remainder is handed out", r"round.*down|would wait")
def with_the_remainder(B, H_q, H_kv, N_k, at_once, least):
    return max(1, min(at_once // (B * H_kv) + 1, N_k // least))


@variant("18.splits", "heads of q and k are both counted", r"key heads|share")
def all_heads(B, H_q, H_kv, N_k, at_once, least):
    return max(1, min(at_once // (B * (H_q + H_kv)), N_k // least))


@variant("18.splits", "the number of keys in a piece is returned", r"key heads")
def keys_of_a_piece(B, H_q, H_kv, N_k, at_once, least):
    return max(least, N_k * B * H_kv // at_once)
