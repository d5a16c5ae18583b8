"""Requests and the pages that they hold: rows of tokens at the left, the one pool of all at the right."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.serving.recorded import DONE, RUNS, PageState, RequestState
from flashlearn.show.draw.parts import CENTRED, ground
from flashlearn.show.draw.sheet import DASHES, Rect, Sheet
from flashlearn.show.draw.style import FAINT, INK, PALE, QUIET, tint
from flashlearn.show.draw.values import check_steps_of

OLD, NEW = 0.35, 1.0  # strength of a token's colour: there before this step, written in it
ROWS, POOL, TOP = 176, 690, 48  # where rows of pages begin, where the pool begins, and both below the legend
GAP = 8
PAD = {"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.85}


def draw_pages(ax: Axes, step: Step) -> None:
    """Paint what every request holds, in the order of its tokens, and the pool, in the order of addresses.

    values   requests, pages, page, taken and given, as `flashlearn.serving.batch_steps` gives them
    """
    check_steps_of("a batch", step, values=["requests", "pages", "page", "taken", "given"])
    sheet = Sheet(ax)
    _legend(sheet)
    _requests(sheet, step)
    _pool(sheet, step)
    sheet.paint()


def _requests(sheet: Sheet, step: Step) -> None:
    """A row for every request: its name, how far it is, and its pages by the tokens that they hold."""
    all_requests = [each.values["requests"] for each in step.run or (step,)]  # nothing moves from frame to frame
    rows, most = (
        max(map(len, all_requests)) or 1,
        max((len(one.pages) for each in all_requests for one in each), default=1),
    )
    high = min(78.0, (sheet.height - TOP - 30) / rows)
    wide = min(108.0, (POOL - 24 - ROWS) / max(most, 1))
    sheet.text(16, TOP, "requests: pages in the order of tokens", va="top", weight="bold", fontsize=17)
    for at, one in enumerate(step.values["requests"]):
        top = TOP + 30 + at * high
        sheet.text(28, top + high / 2, one.name, weight="bold", fontsize=24, **CENTRED)
        sheet.text(50, top + high / 2, _state(one), va="center", fontsize=15, color=INK if one.state == RUNS else QUIET)
        for slot, number in enumerate(one.pages):
            rect = Rect(ROWS + slot * wide, top + 5, wide - GAP, high - 10)
            _tokens(sheet, rect, step.values["page"], *one.in_page(slot, step.values["page"]))
            sheet.box(rect, "none", INK, 3 if number in step.values["taken"] else 1.2)
            sheet.text(*rect.centre, str(number), weight="bold", fontsize=19, bbox=PAD, **CENTRED)


def _state(one: RequestState) -> str:
    if one.state == RUNS:
        return f"{one.length} of\n{one.last} tokens"
    return "done ✓" if one.state == DONE else "waits …"


def _tokens(sheet: Sheet, rect: Rect, page: int, filled: int, new: int) -> None:
    """The slots of a page: keys above, values below; empty ones white."""
    sheet.fill(rect, "white")
    w = rect.w / page
    for slot in range(filled):
        strength = NEW if slot >= filled - new else OLD
        for name, y in (("K", rect.y), ("V", rect.y + rect.h / 2)):
            sheet.fill((rect.x + slot * w, y, w, rect.h / 2), tint(name, strength), "white", 0.8)
    for slot in range(filled, page):
        sheet.fill((rect.x + slot * w, rect.y, w, rect.h), "white", FAINT, 0.8)


def _pool(sheet: Sheet, step: Step) -> None:
    """The pool in HBM, by page number: who holds a page, and whose it was."""
    pages: tuple[PageState, ...] = step.values["pages"]
    area = Rect(POOL, TOP - 6, sheet.width - POOL - 14, sheet.height - TOP - 2)
    free = sum(not page.holders for page in pages)
    ground(sheet, area, "HBM", f"HBM: one pool, {free} of {len(pages)} pages free")
    columns = 4 if len(pages) > 6 else 3
    rows = -(-len(pages) // columns)
    wide, high = (area.w - 12) / columns, (area.h - 40) / rows
    for page in pages:
        x, y = area.x + 10 + page.number % columns * wide, area.y + 36 + page.number // columns * high
        _page(sheet, Rect(x, y, wide - GAP, high - GAP), page, step)


def _page(sheet: Sheet, rect: Rect, page: PageState, step: Step) -> None:
    """One page: dashed while it is free, in a thick frame when it was taken in this step."""
    number, was = page.number, f"was {page.was}" if page.was else ""
    small = {"fontsize": 14, "color": QUIET, "bbox": PAD}
    if page.holders:
        _tokens(sheet, rect, step.values["page"], page.filled, page.new)
        sheet.box(rect, "none", INK, 4 if number in step.values["taken"] else 1.2)
        sheet.text(*rect.centre, " ".join(page.holders), weight="bold", fontsize=24, bbox=PAD, **CENTRED)
    else:
        given = number in step.values["given"]
        sheet.box(rect, "white", INK if given else PALE, 3 if given else 1.5, dashes=DASHES)
        words, ink = ("given back", INK) if given else ("free", QUIET)
        sheet.text(*rect.centre, words, fontsize=15, color=ink, **CENTRED)
    sheet.text(rect.x + 5, rect.y + 4, str(number), va="top", weight="bold", fontsize=15, bbox=PAD)
    sheet.text(rect.right - 5, rect.bottom - 4, was, va="bottom", ha="right", **small)


def _legend(sheet: Sheet) -> None:
    """What a token looks like, and what the frames mean."""
    x: float = 16

    def said(words: str) -> None:
        nonlocal x
        sheet.text(x + 31, 20, words, va="center", fontsize=14)
        x += 50 + 10.7 * len(words)

    for name, words in (("K", "keys"), ("V", "values")):
        sheet.fill((x, 10, 24, 20), tint(name, NEW), INK, 1)
        said(words)
    for strength, words in ((NEW, "written now"), (OLD, "before")):
        sheet.fill((x, 10, 24, 10), tint("K", strength), "none")
        sheet.fill((x, 20, 24, 10), tint("V", strength), "none")
        sheet.box((x, 10, 24, 20), "none", INK, 1)
        said(words)
    for width, dashes, words in ((4, "solid", "page taken now"), (1.5, DASHES, "free"), (3, DASHES, "given back now")):
        sheet.box((x, 10, 24, 20), "white", INK if width > 2 else PALE, width, dashes=dashes)
        said(words)
    sheet.text(sheet.width - 16, 20, "A B: shared by A and B", va="center", ha="right", fontsize=14)
