"""Exercises of notebook 18: where a token lies, what pages waste, how many splits fill a GPU."""

from __future__ import annotations

import torch

from flashlearn.course.serving.solutions import page_solution, splits_solution, waste_solution
from flashlearn.exercises.assessment import Case, Exercise

TABLE = ((5, 2, 7, 3), (0, 6, 1, 4))  # the pages of two sequences
BY_HEAD, BY_TOKEN = (
    (128, 64, 16),
    (128, 16, 32),
)  # strides of (P, 2, 4, 16), and of pages that hold all heads of a token


def _address(b, h, t, page, strides, table=TABLE):
    def compare(function):
        given = lambda: (torch.tensor(table, dtype=torch.int32), b, h, torch.tensor(t, dtype=torch.int32))  # noqa: E731
        return function(*given(), page, strides), page_solution(*given(), page, strides)

    return compare


def _wasted(lengths, page):
    return lambda function: (function(list(lengths), page), waste_solution(list(lengths), page))


def _splits(*args):
    return lambda function: (function(*args), splits_solution(*args))


EXERCISES = (
    Exercise(
        "page",
        "address(page_table, b, h, t, page, strides): page_table (B, most) int32, t (n,) int32, strides (stride_p, stride_h, "
        "stride_n) of the pool -> (n,) offsets, in elements, of key head h of the tokens t of sequence b",
        page_solution,
        (
            Case(
                "one sequence", _address(0, 0, range(16), 4, BY_HEAD), "page t // page of the sequence, place t % page"
            ),
            Case("another head", _address(0, 1, range(16), 4, BY_HEAD), "a head is stride_h further on in its page"),
            Case("another sequence", _address(1, 0, range(16), 4, BY_HEAD), "every sequence has its row of the table"),
            Case("in no order", _address(1, 1, (9, 0, 14, 3), 4, BY_HEAD), "the tokens that are asked for may be any"),
            Case("heads inside", _address(0, 1, range(16), 4, BY_TOKEN), "only the strides say how a page is arranged"),
            Case(
                "pages of one", _address(1, 0, range(4), 1, (32, 16, 16)), "then the table has a number for every token"
            ),
            Case(
                "a large pool",
                _address(0, 3, range(32), 16, (16384, 2048, 128), ((150_000, 140_001),)),
                "an int32 holds numbers below 2^31: widen the page number before it is multiplied",
            ),
        ),
        hints=(
            "A book of pages: on which page is word t, and which word of that page is it? Who knows where the page lies?",
            "The table, at row b and column t // page, has the number of the page in the pool. Three strides lead on from there.",
            "number = page_table[..., ...].long(); return number * ... + h * ... + (t % page) * ...",
        ),
        core=("another sequence", "another head"),
    ),
    Exercise(
        "waste",
        "wasted(lengths, page) -> (tokens of room not used if every request gets room for the longest, tokens of room not used if "
        "every request gets as many pages of `page` tokens as it needs)",
        waste_solution,
        (
            Case("three requests", _wasted((5, 9, 14), 4), "room minus what is used, for each of both"),
            Case("just full", _wasted((8, 16, 3), 4), "a page that is full to the last token wastes nothing"),
            Case("one request", _wasted((7,), 16), "it is the longest itself; its page has room left"),
            Case("pages of one", _wasted((5, 9, 2), 1), "pages of one token are always full"),
            Case("nothing yet", _wasted((0, 6, 11), 8), "a request without tokens needs no page"),
            Case("all alike", _wasted((12, 12, 12), 8), "who is as long as the longest wastes nothing"),
            Case("one long, many short", _wasted((4000, 130, 70, 12, 257), 16), "the longest decides for all"),
        ),
        hints=(
            "Draw each request as a bar of boxes. Which boxes are empty, up to the longest bar, and up to the next page boundary?",
            "By the longest: how many requests, times the longest, less what is used. By pages: round every length up to whole pages.",
            "return len(lengths) * ... - ..., sum(... % page for n in lengths); in Python -5 % 4 is 3",
        ),
        values=("by the longest", "by pages"),
    ),
    Exercise(
        "splits",
        "splits(B, H_q, H_kv, N_k, at_once, least) -> the most pieces into which the N_k keys of every request and key head can be "
        "cut, with a program for each piece, all running at once, and at least `least` keys in a piece; 1 if no cut is possible",
        splits_solution,
        (
            Case("one long request", _splits(1, 32, 8, 65536, 264, 256), "8 key heads share 264 places"),
            Case("a batch", _splits(5, 32, 4, 65536, 264, 256), "every request has programs of its own; none may wait"),
            Case(
                "few keys", _splits(2, 32, 8, 1100, 264, 256), "a piece of few keys costs its merge, and saves nothing"
            ),
            Case("many requests", _splits(64, 32, 8, 65536, 264, 256), "without a cut the GPU is full: one piece"),
            Case("a short one", _splits(1, 8, 8, 100, 264, 256), "keys that are too few for a piece are one piece"),
            Case(
                "no sharing",
                _splits(2, 16, 16, 32768, 264, 256),
                "with as many key heads as query heads, each has its own",
            ),
            Case("another GPU", _splits(3, 16, 2, 5000, 100, 128), "round both limits down"),
            Case(
                "nearly five pieces", _splits(1, 8, 8, 1200, 264, 256), "a piece has `least` keys or more: round down"
            ),
            Case(
                "many places",
                _splits(1, 8, 8, 65536, 528, 1024),
                "keys for pieces are counted in `least`, places in programs",
            ),
        ),
        hints=(
            "How many programs are there before you cut? How many times as many may run at once?",
            "Two limits, both rounded down: places for programs, and keys for pieces. The smaller one counts, and never 0.",
            "return max(1, min(at_once // (... * ...), ... // ...))",
        ),
    ),
)
