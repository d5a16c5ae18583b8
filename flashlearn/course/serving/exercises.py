"""Exercises of notebook 18: where a token is, what pages waste, how many splits fill a GPU."""

from __future__ import annotations

import torch

from flashlearn.course.serving.solutions import page_solution, splits_solution, waste_solution
from flashlearn.exercises.assessment import Case, Exercise

TABLE = ((5, 2, 7, 3), (0, 6, 1, 4))  # the pages of two sequences
BY_HEAD = 128, 64, 16  # strides of (P, 2, 4, 16)
BY_TOKEN = 128, 16, 32  # of pages that hold all heads of a token


def _page(name, hint, b, h, t, page, strides, table=TABLE):
    def compare(function):
        def given():
            return torch.tensor(table, dtype=torch.int32), b, h, torch.tensor(t, dtype=torch.int32), page, strides

        return function(*given()), page_solution(*given())

    return Case(name, compare, hint)


def _waste(name, hint, *lengths, page):
    return Case(name, lambda function: (function([*lengths], page), waste_solution(lengths, page)), hint)


def _splits(name, hint, *args):
    return Case(name, lambda function: (function(*args), splits_solution(*args)), hint)


PAGE_CASES = (
    _page("one sequence", "page t // page of the sequence, place t % page", 0, 0, range(16), 4, BY_HEAD),
    _page("another head", "a head is stride_h further on in its page", 0, 1, range(16), 4, BY_HEAD),
    _page("another sequence", "every sequence has its row of the table", 1, 0, range(16), 4, BY_HEAD),
    _page("in no order", "the tokens that are asked for may be any", 1, 1, (9, 0, 14, 3), 4, BY_HEAD),
    _page("heads inside", "only the strides say how a page is arranged", 0, 1, range(16), 4, BY_TOKEN),
    _page("pages of one", "then the table has a number for every token", 1, 0, range(4), 1, (32, 16, 16)),
    _page(
        "a large pool",
        "an int32 holds numbers below 2^31: widen the page number before it is multiplied",
        b=0,
        h=3,
        t=range(32),
        page=16,
        strides=(16384, 2048, 128),
        table=((150_000, 140_001),),
    ),
)
WASTE_CASES = (
    _waste("three requests", "room minus what is used, for each of both", 5, 9, 14, page=4),
    _waste("just full", "a page that is full to the last token wastes nothing", 8, 16, 3, page=4),
    _waste("one request", "it is the longest itself; its page has room left", 7, page=16),
    _waste("pages of one", "pages of one token are always full", 5, 9, 2, page=1),
    _waste("nothing yet", "a request without tokens needs no page", 0, 6, 11, page=8),
    _waste("all alike", "who is as long as the longest wastes nothing", 12, 12, 12, page=8),
    _waste("one long, many short", "the longest decides for all", 4000, 130, 70, 12, 257, page=16),
)
SPLITS_CASES = (
    _splits("one long request", "8 key heads share 264 places", 1, 32, 8, 65536, 264, 256),
    _splits("a batch", "every request has programs of its own; none may wait", 5, 32, 4, 65536, 264, 256),
    _splits("few keys", "a piece of few keys costs its merge, and saves nothing", 2, 32, 8, 1100, 264, 256),
    _splits("many requests", "without a cut the GPU is full: one piece", 64, 32, 8, 65536, 264, 256),
    _splits("a short one", "keys that are too few for a piece are one piece", 1, 8, 8, 100, 264, 256),
    _splits("no sharing", "with as many key heads as query heads, each has its own", 2, 16, 16, 32768, 264, 256),
    _splits("another GPU", "round both limits down", 3, 16, 2, 5000, 100, 128),
    _splits("nearly five pieces", "a piece has `least` keys or more: round down", 1, 8, 8, 1200, 264, 256),
    _splits("many places", "keys for pieces are counted in `least`, places in programs", 1, 8, 8, 65536, 528, 1024),
)

EXERCISES = (
    Exercise(
        "page",
        "address(page_table, b, h, t, page, strides): page_table (B, most) int32, t (n,) int32, strides (stride_p, stride_h, "
        "stride_n) of the pool -> (n,) offsets, in elements, of key head h of the tokens t of sequence b",
        page_solution,
        PAGE_CASES,
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
        WASTE_CASES,
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
        SPLITS_CASES,
        hints=(
            "How many programs are there before you cut? How many times as many may run at once?",
            "Two limits, both rounded down: places for programs, and keys for pieces. The smaller one counts, and never 0.",
            "return max(1, min(at_once // (... * ...), ... // ...))",
        ),
    ),
)
