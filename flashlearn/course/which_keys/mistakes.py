"""Known wrong answers to the exercises of notebook 17."""

import torch

from flashlearn.exercises.assessment import Mistake


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


def sink_with_do_alone(do, o, lse, sinks):
    return -(torch.exp(sinks[:, None] - lse) * do.sum(-1)).sum((0, 2))


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


MISTAKES = {
    "17.bounds": (
        Mistake(
            "left and right are taken as they are for a block of queries, not turned round",
            bounds_of_the_keys,
            "a causal window",
        ),
        Mistake("the loop runs to the last query, as without a window", bounds_without_an_end, "a causal window"),
        Mistake(
            "the key that is exactly `left` keys back is not seen",
            bounds(first_right, lambda start, stop, left, right, diagonal: stop - 1 + left - diagonal),
            "a causal window",
        ),
        Mistake(
            "the first key of the block decides where the loop ends",
            bounds(first_right, lambda start, stop, left, right, diagonal: start + 1 + left - diagonal),
            "a causal window",
        ),
        Mistake(
            "query i stands at key i, whatever N_k - N_q is",
            bounds(
                lambda start, stop, left, right, diagonal: start - right,
                lambda start, stop, left, right, diagonal: stop + left,
            ),
            "more keys than queries",
        ),
        Mistake(
            "the end of the loop is rounded down to whole blocks",
            bounds(first_right, end_right, _rounded_down),
            "a causal window",
        ),
    ),
    "17.sink": (
        Mistake("the minus sign is missing", sink_without_its_sign, "one head"),
        Mistake(
            "the weight of the sink is exp(sink), not divided by the row's sum", sink_with_its_exponential, "one head"
        ),
        Mistake("the sink is added to lse, which has it already", sink_counted_twice, "one head"),
        Mistake("the derivative of the sink's weight alone is taken, p (1 - p)", sink_of_the_weight_alone, "one head"),
        Mistake("dO is summed in place of dO times o", sink_with_do_alone, "one head"),
        Mistake("the mean over the rows is taken, not their sum", sink_averaged, "one head"),
    ),
    "17.padding": (
        Mistake("sequences are padded to `room`, not to the longest", padding_to_the_room, "three sequences"),
        Mistake(
            "a sequence is cut where its row ends, and goes on in the next", padding_cuts_sequences, "a gap in a row"
        ),
        Mistake("a sequence that would fill its row exactly begins another", padding_fills_no_row, "all alike"),
        Mistake("all places are counted, not those that hold no token", padding_counts_all_places, "three sequences"),
        Mistake("what is left over in the last row is not counted", padding_drops_the_last_row, "three sequences"),
        Mistake("a sequence goes back into an earlier row that has room", padding_looks_back, "a gap in a row"),
    ),
}
