"""Requests and the pages that they hold: rows of tokens at the left, the one pool of all at the right."""

from __future__ import annotations

from flashlearn.core.steps import Step
from flashlearn.serving.recorded import DONE, RUNS, PageState, RequestState
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD, memory
from flashlearn.show.draw.scene import FRAMES, NARROW, TOP, WIDE, Rect, Scene
from flashlearn.show.draw.values import check_steps_of

GAP = 6
NAMES = 104  # pixels for the name and the state of a request


def draw_pages(step: Step, *, narrow: bool = False) -> Scene:
    """What every request holds, in the order of its tokens, and the pool, in the order of addresses.

    values   requests, pages, page, taken and given, as `flashlearn.serving.batch_steps` gives them
    """
    check_steps_of("a batch", step, values=["requests", "pages", "page", "taken", "given"])
    every = [each.values["requests"] for each in step.run or (step,)]  # nothing moves from frame to frame
    rows = max(map(len, every)) or 1
    most = max((len(one.pages) for each in every for one in each), default=1)
    high = min(50.0, 260 / rows)
    top = 78 if narrow else 62
    below = top + 24 + rows * high
    pages = len(step.values["pages"])
    columns = 4 if pages > 6 else 3
    deep = 40 + -(-pages // columns) * (58 if narrow else min(80, 260 / max(1, -(-pages // columns))))
    scene = Scene(NARROW, below + 14 + deep) if narrow else Scene(WIDE, max(below + 8, top + deep))
    _legend(scene)
    _requests(scene, step, Rect(PAD, top, (NARROW - 2 * PAD) if narrow else 440, high), most)
    area = Rect(0, below + 14, NARROW, deep) if narrow else Rect(474, top - 10, WIDE - 474, scene.height - top + 10)
    _pool(scene, step, area, columns)
    return scene


def _requests(scene: Scene, step: Step, area: Rect, most: int) -> None:
    """A row for every request: its name, how far it is, and its pages by the tokens that they hold."""
    wide = min(76.0, (area.w - NAMES) / max(most, 1))
    scene.text(area.x, area.y, "requests: pages in the order of tokens", 14, bold=True)
    for at, one in enumerate(step.values["requests"]):
        top = area.y + 22 + at * area.h
        scene.text(area.x + 8, top + area.h / 2, one.name, 17, anchor="middle", bold=True)
        lines = _state(one)
        for line, words in enumerate(lines):
            y = top + area.h / 2 + (line - (len(lines) - 1) / 2) * 15
            scene.text(area.x + 26, y, words, 12, role="ink" if one.state == RUNS else "quiet")
        for slot, number in enumerate(one.pages):
            rect = Rect(area.x + NAMES + slot * wide, top + 3, wide - GAP, area.h - 6)
            _tokens(scene, rect, step.values["page"], *one.in_page(slot, step.values["page"]))
            stroke = 2.5 if number in step.values["taken"] else 1
            scene.rect(rect, edge="ink", stroke=stroke, layer=FRAMES, id=f"{one.name}-{slot}")
            _label(scene, *rect.centre, str(number), 14)


def _label(scene: Scene, x: float, y: float, words: str, size: float) -> None:
    """Words on white, above the tokens of a page."""
    wide = width(words, size, True) + 6
    scene.rect((x - wide / 2, y - size * 0.62, wide, size * 1.24), "blank", layer=FRAMES)
    scene.text(x, y, words, size, anchor="middle", bold=True, layer=TOP)


def _state(one: RequestState) -> list[str]:
    if one.state == RUNS:
        return [f"{one.length} of", f"{one.last} tokens"]
    return ["done ✓" if one.state == DONE else "waits …"]


def _tokens(scene: Scene, rect: Rect, page: int, filled: int, new: int) -> None:
    """The slots of a page: keys above, values below; empty ones white."""
    scene.rect(rect, "blank")
    w, half = rect.w / page, rect.h / 2
    for start, stop, tone in ((0, filled - new, "light"), (filled - new, filled, "")):
        if stop > start:
            for name, y in (("K", rect.y), ("V", rect.y + half)):
                scene.rect((rect.x + start * w, y, (stop - start) * w, half), name, tone)
    for slot in range(1, page):
        scene.line((rect.x + slot * w, rect.y), (rect.x + slot * w, rect.bottom), role="line", stroke=0.8)


def _pool(scene: Scene, step: Step, area: Rect, columns: int) -> None:
    """The pool in HBM, by page number: who holds a page, and whose it was."""
    pages: tuple[PageState, ...] = step.values["pages"]
    free = sum(not page.holders for page in pages)
    memory(scene, area, "hbm", name=f"HBM: one pool, {free} of {len(pages)} pages free")
    rows = max(1, -(-len(pages) // columns))
    wide, high = (area.w - 14) / columns, (area.h - 38) / rows
    for page in pages:
        x, y = area.x + 10 + page.number % columns * wide, area.y + 34 + page.number // columns * high
        _page(scene, Rect(x, y, wide - GAP, high - GAP), page, step)


def _page(scene: Scene, rect: Rect, page: PageState, step: Step) -> None:
    """One page: dashed while it is free, in a thick frame when it was taken in this step."""
    number, was = page.number, f"was {page.was}" if page.was else ""
    if page.holders:
        _tokens(scene, rect, step.values["page"], page.filled, page.new)
        stroke = 3 if number in step.values["taken"] else 1
        scene.rect(rect, edge="ink", stroke=stroke, layer=FRAMES, id=f"page{number}")
        _label(scene, *rect.centre, " ".join(page.holders), 16)
    else:
        given = number in step.values["given"]
        scene.rect(
            rect, "blank", edge="ink" if given else "hatch", stroke=2 if given else 1, dashed=True, id=f"page{number}"
        )
        words = "released" if given else "free"
        scene.text(*rect.centre, words, 13, anchor="middle", role="ink" if given else "quiet")
    _label(scene, rect.x + 6 + width(str(number), 12, True) / 2, rect.y + 10, str(number), 12)
    if was:
        wide = width(was, 12) + 4
        scene.rect((rect.right - 3 - wide, rect.bottom - 17, wide, 15), "blank", layer=FRAMES)
        scene.text(rect.right - 5, rect.bottom - 9, was, 12, anchor="end", role="quiet", layer=TOP)


def _legend(scene: Scene) -> None:
    """What a token looks like, and what the frames mean."""
    tokens: list[tuple[str, tuple[tuple[str, str], ...]]] = [("keys", (("K", ""),)), ("values", (("V", ""),))]
    tokens += [("written now", (("K", ""), ("V", ""))), ("before", (("K", "light"), ("V", "light")))]
    frames = [("taken now", "ink", 3, False), ("free", "hatch", 1, True), ("released now", "ink", 2, True)]
    x, y = float(PAD), 12.0
    for words, looks in tokens:
        x, y = _next(scene, x, y, words)
        scene.rect((x, y - 7, 20, 14), "blank")
        for at, (name, tone) in enumerate(looks):
            scene.rect((x, y - 7 + 14 / len(looks) * at, 20, 14 / len(looks)), name, tone)
        scene.rect((x, y - 7, 20, 14), edge="quiet")
        x = scene.text(x + 25, y, words, 12).right + 12
    for words, edge, stroke, dashed in frames:
        x, y = _next(scene, x, y, words)
        scene.rect((x, y - 7, 20, 14), "blank", edge=edge, stroke=stroke, dashed=dashed)
        x = scene.text(x + 25, y, words, 12).right + 12
    x, y = _next(scene, x, y, "A B: shared by A and B")
    scene.text(x, y, "A B: shared by A and B", 12)


def _next(scene: Scene, x: float, y: float, words: str) -> tuple[float, float]:
    """Where the next entry of the legend goes: in a new line, if there is no room for it."""
    return (x, y) if x + 25 + width(words, 12) <= scene.width - 4 else (float(PAD), y + 20)
