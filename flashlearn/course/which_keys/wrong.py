"""Answers to the exercises of which_keys that are no edit of the solution: `wrong.toml` names them."""

import math

import torch


def bounds(first_of, end_of, blocks=lambda first, end, block_q: (first // block_q, -(-end // block_q))):
    """An answer from the first query and the one after the last, each before it is kept inside 0 .. N_q."""

    def answer(start, stop, N_q, N_k, left, right, block_q):
        diagonal = N_k - N_q
        first = 0 if right is None else max(0, first_of(start, stop, left, right, diagonal))
        end = N_q if left is None else min(N_q, end_of(start, stop, left, right, diagonal))
        return blocks(first, end, block_q) if first < end else (0, 0)

    return answer


def first_right(start, stop, left, right, diagonal):
    return start - right - diagonal


def end_right(start, stop, left, right, diagonal):
    return stop + left - diagonal


def bounds_of_the_keys(start, stop, N_q, N_k, left, right, block_q):
    diagonal = N_k - N_q
    first = 0 if left is None else max(0, start - left - diagonal)
    end = N_q if right is None else min(N_q, stop + right - diagonal)
    return (first // block_q, -(-end // block_q)) if first < end else (0, 0)


def bounds_without_an_end(start, stop, N_q, N_k, left, right, block_q):
    first = 0 if right is None else max(0, start - right - (N_k - N_q))
    return (first // block_q, -(-N_q // block_q)) if first < N_q else (0, 0)


def _delta(do, o):
    return (do * o).sum(-1)


def sink_without_its_sign(do, o, lse, sinks):
    return (torch.exp(sinks[:, None] - lse) * _delta(do, o)).sum((0, 2))


def sink_with_its_exponential(do, o, lse, sinks):
    return -(torch.exp(sinks)[:, None] * _delta(do, o)).sum((0, 2))


def sink_counted_twice(do, o, lse, sinks):
    return -(torch.sigmoid(sinks[:, None] - lse) * _delta(do, o)).sum((0, 2))


def sink_of_the_weight_alone(do, o, lse, sinks):
    p = torch.exp(sinks[:, None] - lse)
    return -(p * (1 - p) * _delta(do, o)).sum((0, 2))


def sink_averaged(do, o, lse, sinks):
    return -(torch.exp(sinks[:, None] - lse) * _delta(do, o)).mean((0, 2))


def packed(lengths, room, fits=lambda length, free: length <= free, last=True):
    """The places that are left over when sequences go into rows in their order."""
    rows, free = 0, 0
    for length in lengths:
        if not fits(length, free):
            rows, free = rows + 1, room
        free -= length
    return rows * room - sum(lengths) - (0 if last else free)


def padded(lengths):
    return len(lengths) * max(lengths) - sum(lengths)


def padding_to_the_room(lengths, room):
    return len(lengths) * room - sum(lengths), packed(lengths, room)


def padding_cuts_sequences(lengths, room):
    return padded(lengths), -sum(lengths) % room


def padding_fills_no_row(lengths, room):
    return padded(lengths), packed(lengths, room, fits=lambda length, free: length < free)


def padding_counts_all_places(lengths, room):
    return len(lengths) * max(lengths), packed(lengths, room) + sum(lengths)


def padding_drops_the_last_row(lengths, room):
    return padded(lengths), packed(lengths, room, last=False)


def padding_looks_back(lengths, room):
    rows: list[int] = []
    for length in lengths:
        at = next((n for n, free in enumerate(rows) if length <= free), len(rows))
        rows += [room] * (at == len(rows))
        rows[at] -= length
    return padded(lengths), sum(rows)


def _rounded_down(first, end, block_q):
    return first // block_q, end // block_q


def edges(start, stop, N_q, N_k, left, right):
    diagonal = N_k - N_q
    first = 0 if right is None else max(0, start - right - diagonal)
    return first, N_q if left is None else min(N_q, stop + left - diagonal)


def from_the_start(start, stop, N_q, N_k, left, right, block_q):
    first, end = edges(start, stop, N_q, N_k, left, right)
    return (0, -(-end // block_q)) if first < end else (0, 0)


def first_rounded_up(start, stop, N_q, N_k, left, right, block_q):
    first, end = edges(start, stop, N_q, N_k, left, right)
    return (-(-first // block_q), -(-end // block_q)) if first < end else (0, 0)


def one_more_back(start, stop, N_q, N_k, left, right, block_q):
    first, end = edges(start, stop, N_q, N_k, None if left is None else left + 1, right)
    return (first // block_q, -(-end // block_q)) if first < end else (0, 0)


def none_is_zero(start, stop, N_q, N_k, left, right, block_q):
    first, end = edges(start, stop, N_q, N_k, left or 0, right or 0)
    return (first // block_q, -(-end // block_q)) if first < end else (0, 0)


def rows_needed(lengths, room):
    rows, free = 0, 0
    for length in lengths:
        rows, free = (rows, free) if length <= free else (rows + 1, room)
        free -= length
    return rows


def tokens(lengths, room):
    return sum(lengths), rows_needed(lengths, room) * room - sum(lengths)


def a_row_each(lengths, room):
    return len(lengths) * max(lengths) - sum(lengths), len(lengths) * room - sum(lengths)


def nothing_wasted(lengths, room):
    return len(lengths) * max(lengths) - sum(lengths), 0


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


def sink_for_every_query(do, o, lse, sinks):
    p, delta = parts(do, o, lse, sinks)
    return -(p * delta).sum(0)


def sink_without_delta(do, o, lse, sinks):
    return -parts(do, o, lse, sinks)[0].sum((0, 2))


def sink_with_a_value_of_one(do, o, lse, sinks):
    p, delta = parts(do, o, lse, sinks)
    return (p * (do.sum(-1) - delta)).sum((0, 2))


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


def bounds_by_a_walk(start, stop, N_q, N_k, left, right, block_q):
    grid = seen(N_q, N_k, left, right)
    blocks = [
        b for b in range(-(-N_q // block_q)) if any(any(row[start:stop]) for row in grid[b * block_q :][:block_q])
    ]
    return (blocks[0], blocks[-1] + 1) if blocks else (7, 3)
