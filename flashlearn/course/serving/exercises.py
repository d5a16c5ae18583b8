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
    _page(
        "one sequence",
        "the token is in page t // page of the sequence, at position t % page",
        0,
        0,
        range(16),
        4,
        BY_HEAD,
    ),
    _page("another head", "head h begins h * stride_h after the start of the page", 0, 1, range(16), 4, BY_HEAD),
    _page("another sequence", "each sequence has its own row of the table", 1, 0, range(16), 4, BY_HEAD),
    _page("in no order", "the tokens t may be in any order", 1, 1, (9, 0, 14, 3), 4, BY_HEAD),
    _page("heads inside", "only the strides say how a page is laid out", 0, 1, range(16), 4, BY_TOKEN),
    _page("pages of one", "in this case the table has a number for every token", 1, 0, range(4), 1, (32, 16, 16)),
    _page(
        "a large pool",
        "an int32 holds numbers below 2^31: convert the page number to int64 before the product",
        b=0,
        h=3,
        t=range(32),
        page=16,
        strides=(16384, 2048, 128),
        table=((150_000, 140_001),),
    ),
)
WASTE_CASES = (
    _waste("three requests", "room minus tokens, for both", 5, 9, 14, page=4),
    _waste("just full", "a full page wastes nothing", 8, 16, 3, page=4),
    _waste("one request", "it is the longest request itself; its page has room left", 7, page=16),
    _waste("pages of one", "pages of one token are always full", 5, 9, 2, page=1),
    _waste("nothing yet", "a request without tokens needs no page", 0, 6, 11, page=8),
    _waste("all alike", "a request as long as the longest wastes nothing", 12, 12, 12, page=8),
    _waste("one long, many short", "the longest decides the room of all", 4000, 130, 70, 12, 257, page=16),
)
SPLITS_CASES = (
    _splits("one long request", "264 programs run at once, for 8 key heads", 1, 32, 8, 65536, 264, 256),
    _splits("a batch", "every request has its own programs, and none may wait", 5, 32, 4, 65536, 264, 256),
    _splits("few keys", "a short piece costs a merge and saves nothing", 2, 32, 8, 1100, 264, 256),
    _splits("many requests", "the GPU is full without a cut: one piece", 64, 32, 8, 65536, 264, 256),
    _splits("a short one", "too few keys for a cut are one piece", 1, 8, 8, 100, 264, 256),
    _splits("no sharing", "here every query head has its own key head", 2, 16, 16, 32768, 264, 256),
    _splits("another GPU", "round both limits down", 3, 16, 2, 5000, 100, 128),
    _splits("nearly five pieces", "a piece has at least `least` keys: round down", 1, 8, 8, 1200, 264, 256),
    _splits("many places", "compute both limits: keys for pieces, room for programs", 1, 8, 8, 65536, 528, 1024),
)

EXERCISES = (
    Exercise(
        "page",
        "address(page_table, b, h, t, page, strides): page_table (B, most) int32, t (n,) int32, strides (stride_p, stride_h, "
        "stride_n) of the pool -> offsets (n,). They are in elements, for key head h of the tokens t of sequence b",
        page_solution,
        PAGE_CASES,
        hints=(
            "Think of a book: on which page is word t, and which word of that page is it? What says where in the pool this page is?",
            "Row b and column t // page of the table hold the number of the page in the pool. Then multiply by three strides.",
            "number = page_table[..., ...].long(); return number * ... + h * ... + (t % page) * ...",
        ),
        core=("another sequence", "another head"),
    ),
    Exercise(
        "waste",
        "wasted(lengths, page) -> (by the longest, by pages): empty room in tokens. By the longest: every request gets room for "
        "the longest. By pages: it gets as many pages of `page` tokens as it needs",
        waste_solution,
        WASTE_CASES,
        hints=(
            "Draw each request as a bar of boxes. Which boxes are empty, up to the longest bar, and up to the next page boundary?",
            "By the longest: the number of requests times the longest, minus all tokens. By pages: round every length up to whole pages.",
            "return len(lengths) * ... - ..., sum(... % page for n in lengths); in Python -5 % 4 is 3",
        ),
        values=("by the longest", "by pages"),
    ),
    Exercise(
        "splits",
        "splits(B, H_q, H_kv, N_k, at_once, least) -> the maximum number of pieces for the N_k keys of every request and key head. "
        "Each piece has a program, all run at once, and each has at least `least` keys. 1 if no cut is possible",
        splits_solution,
        SPLITS_CASES,
        hints=(
            "How many programs are there before the cut? By which factor may their number grow?",
            "There are two limits, both rounded down: room for programs, and keys for pieces. Take the smaller one, but at least 1.",
            "return max(1, min(at_once // (... * ...), ... // ...))",
        ),
    ),
)
