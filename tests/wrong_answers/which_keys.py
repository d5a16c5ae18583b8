"""Wrong answers to the exercises of notebook 17."""

import math

import torch


def seen(N_q, N_k, left, right, shift=None):
    """(N_q, N_k) booleans, pair by pair."""
    shift = N_k - N_q if shift is None else shift

    def sees(i, j):
        return (left is None or j >= i + shift - left) and (right is None or j <= i + shift + right)

    return [[sees(i, j) for j in range(N_k)] for i in range(N_q)]


def loop_by(rows_of, N_q, block_q, up=True):
    rows = sorted(rows_of)
    return (rows[0] // block_q, rows[-1] // block_q + up) if rows else (0, 0)


def by_pairs(shift=None, left=lambda left: left, right=lambda right: right, pick=slice(None)):
    """Every pair asked, with something wrong about the window, the place or the keys that are looked at."""

    def loop(start, stop, N_q, N_k, left_, right_, block_q):
        at = shift(N_q, N_k) if shift else None
        grid = seen(N_q, N_k, None if left_ is None else left(left_), None if right_ is None else right(right_), at)
        keys = range(start, stop)[pick]
        return loop_by((i for i in range(N_q) if any(grid[i][j] for j in keys)), N_q, block_q)

    return loop


def bounds_none_is_zero(start, stop, N_q, N_k, left, right, block_q):
    return by_pairs()(start, stop, N_q, N_k, left or 0, right or 0, block_q)


def bounds_zero_is_none(start, stop, N_q, N_k, left, right, block_q):
    return by_pairs()(start, stop, N_q, N_k, left or None, right or None, block_q)


def bounds_inclusive_end(start, stop, N_q, N_k, left, right, block_q):
    first, end = by_pairs()(start, stop, N_q, N_k, left, right, block_q)
    return first, end - 1


def bounds_of_queries_not_blocks(start, stop, N_q, N_k, left, right, block_q):
    return by_pairs()(start, stop, N_q, N_k, left, right, 1)


def bounds_not_kept_inside(start, stop, N_q, N_k, left, right, block_q):
    diagonal = N_k - N_q
    first = 0 if right is None else start - right - diagonal
    end = N_q if left is None else stop + left - diagonal
    return first // block_q, -(-end // block_q)


def bounds_one_block_too_many(start, stop, N_q, N_k, left, right, block_q):
    first, end = by_pairs()(start, stop, N_q, N_k, left, right, block_q)
    return first, end + 1


def bounds_none_as_a_string(*sizes):
    return str(by_pairs()(*sizes))


def bounds_always_two_blocks(start, stop, N_q, N_k, left, right, block_q):
    first, end = by_pairs()(start, stop, N_q, N_k, left, right, block_q)
    return first, min(end, first + 2)


def parts(do, o, lse, sinks):
    return torch.exp(sinks[:, None] - lse), (do * o).sum(-1)


def sink_of_all_heads(do, o, lse, sinks):
    p, delta = parts(do, o, lse, sinks)
    return -(p * delta).sum().expand(len(sinks))


def sink_first_batch(do, o, lse, sinks):
    p, delta = parts(do, o, lse, sinks)
    return -(p * delta)[0].sum(-1)


def sink_mean_of_batches(do, o, lse, sinks):
    p, delta = parts(do, o, lse, sinks)
    return -(p * delta).mean(0).sum(-1)


def sink_unstable(do, o, lse, sinks):
    return -(torch.exp(sinks)[:, None] / torch.exp(lse) * (do * o).sum(-1)).sum((0, 2))


def sink_turned_round(do, o, lse, sinks):
    return -(torch.exp(lse - sinks[:, None]) * (do * o).sum(-1)).sum((0, 2))


def sink_for_every_query(do, o, lse, sinks):
    p, delta = parts(do, o, lse, sinks)
    return -(p * delta).sum(0)


def sink_without_delta(do, o, lse, sinks):
    return -parts(do, o, lse, sinks)[0].sum((0, 2))


def sink_without_weights(do, o, lse, sinks):
    return -(do * o).sum((0, 2, 3))


def sink_in_powers_of_two(do, o, lse, sinks):
    return -(torch.exp2(sinks[:, None] - lse) * (do * o).sum(-1)).sum((0, 2))


def sink_with_a_value_of_one(do, o, lse, sinks):
    p, delta = parts(do, o, lse, sinks)
    return (p * (do.sum(-1) - delta)).sum((0, 2))


def padded(lengths):
    return len(lengths) * max(lengths) - sum(lengths)


def rows_of(lengths, room):
    rows = [[]]
    for length in lengths:
        if sum(rows[-1]) + length > room:
            rows.append([])
        rows[-1].append(length)
    return rows


def free(rows, room):
    return sum(room - sum(row) for row in rows)


def padding_sorted_first(lengths, room):
    return padded(lengths), free(rows_of(sorted(lengths, reverse=True), room), room)


def padding_to_powers_of_two(lengths, room):
    longest = 2 ** math.ceil(math.log2(max(lengths)))
    return len(lengths) * longest - sum(lengths), free(rows_of(lengths, room), room)


def padding_packs_without_waste(lengths, room):
    return padded(lengths), 0


def padding_one_row_each(lengths, room):
    return padded(lengths), len(lengths) * room - sum(lengths)


def padding_to_the_mean(lengths, room):
    mean = sum(lengths) / len(lengths)
    return int(sum(abs(mean - length) for length in lengths)), free(rows_of(lengths, room), room)


def padding_in_the_wrong_order(lengths, room):
    return padding_right(lengths, room)[::-1]


def padding_longest_to_shortest(lengths, room):
    return len(lengths) * (max(lengths) - min(lengths)), free(rows_of(lengths, room), room)


def padding_rows_of_the_longest(lengths, room):
    return padded(lengths), free(rows_of(lengths, max(lengths)), max(lengths))


def padding_as_shares(lengths, room):
    a, b = padding_right(lengths, room)
    return a / (len(lengths) * max(lengths)), b / (b + sum(lengths))


def padding_right(lengths, room):
    return padded(lengths), free(rows_of(lengths, room), room)


WRONG = {
    "17.bounds": (
        ("None is taken for 0", bounds_none_is_zero, "None is no limit"),
        ("0 is taken for None", bounds_zero_is_none, "0 is a limit"),
        ("the last block is returned, not the one after it", bounds_inclusive_end),
        ("queries are returned, not blocks", bounds_of_queries_not_blocks),
        ("the loop runs out of the matrix", bounds_not_kept_inside, "only the queries 0 to 8|no query comes"),
        ("the loop runs a block too far", bounds_one_block_too_many),
        ("the place has the wrong sign", by_pairs(shift=lambda N_q, N_k: N_q - N_k), "N_k - N_q"),
        ("one key too many is seen back", by_pairs(left=lambda left: left + 1), "one too many"),
        ("one key too few is seen ahead", by_pairs(right=lambda right: max(0, right - 1)), "one too few"),
        ("the first key alone is looked at", by_pairs(pick=slice(0, 1)), "the last key"),
        ("the last key alone is looked at", by_pairs(pick=slice(-1, None)), "the first key"),
        ("a text comes back", bounds_none_as_a_string),
        ("at most two blocks are visited", bounds_always_two_blocks),
    ),
    "17.sink": (
        ("one sum serves all heads", sink_of_all_heads),
        ("the first batch alone is taken", sink_first_batch, "sum over them"),
        ("the mean over batches is taken", sink_mean_of_batches),
        ("two exponentials are divided", sink_unstable, "sink - lse|subtract lse"),
        ("the exponent has the wrong sign", sink_turned_round, "wrong sign"),
        ("every query keeps its own", sink_for_every_query, "sum over the queries .* is missing"),
        ("δ is left out", sink_without_delta, "δ"),
        ("the weight is left out", sink_without_weights, "weight"),
        ("powers of two are taken", sink_in_powers_of_two),
        ("the sink is given a value of 1", sink_with_a_value_of_one),
    ),
    "17.padding": (
        ("the longest go first", padding_sorted_first),
        ("lengths are padded to a power of two", padding_to_powers_of_two),
        ("packing is taken to waste nothing", padding_packs_without_waste),
        ("every sequence has a row of its own", padding_one_row_each),
        ("lengths are compared with their mean", padding_to_the_mean),
        ("the two numbers are exchanged", padding_in_the_wrong_order, "wrong order"),
        ("all are padded from the shortest", padding_longest_to_shortest),
        ("a row is as long as the longest", padding_rows_of_the_longest),
        ("shares come back", padding_as_shares),
    ),
}


def bounds_by_a_walk(start, stop, N_q, N_k, left, right, block_q):
    grid = seen(N_q, N_k, left, right)
    blocks = [
        b for b in range(-(-N_q // block_q)) if any(any(row[start:stop]) for row in grid[b * block_q :][:block_q])
    ]
    return (blocks[0], blocks[-1] + 1) if blocks else (7, 3)


def sink_by_einsum(do, o, lse, sinks):
    return torch.einsum("bhn,bhnd,bhnd->h", -torch.exp(sinks[None, :, None] - lse), do, o)


def sink_head_by_head(do, o, lse, sinks):
    heads = [-(torch.exp(s - lse[:, h]) * (do[:, h] * o[:, h]).sum(-1)).sum() for h, s in enumerate(sinks)]
    return torch.stack(heads)


RIGHT = {
    "17.bounds": (("pair by pair", by_pairs()), ("block by block, and any empty range", bounds_by_a_walk)),
    "17.sink": (("einsum", sink_by_einsum), ("head by head", sink_head_by_head)),
    "17.padding": (("rows as lists", padding_right), ("as a list", lambda *given: list(padding_right(*given)))),
}
