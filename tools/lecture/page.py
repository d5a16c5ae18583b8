"""Slides as HTML: the deck, which is also what is printed, and the frames of its runs."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from matplotlib import style
from matplotlib.figure import Figure
from mdit_py_plugins.dollarmath import dollarmath_plugin
from tqdm import tqdm

from flashlearn.core.steps import Step
from flashlearn.show.bundle import browser_text
from flashlearn.show.draw.style import STYLE, stylesheet
from flashlearn.show.frame import DPI, as_runs, at, count, layouts, look, paint, png, rescales, transcript
from flashlearn.show.player import page_run
from tools.book import runs as recorded
from tools.book.formulas import characters, font, mathml
from tools.lecture.runs import NUMBERS, PLOTS, RUNS, Plot
from tools.lecture.slides import Planned, Poll, Slide, with_numbers

HERE = Path(__file__).parent
SECONDS = 1.2  # how long a step stands while playing
TALL, FEW = 1.6, 4  # of pictures that are less than so many times as wide as high, so many are printed
STEPS = 8  # of a run at which Page Down stops, unless its slide says otherwise
EXPLORED: recorded.Grid = {4: {8: recorded.grid()[4][8], 12: recorded.grid()[4][12]}}
MARKDOWN = (
    MarkdownIt()
    .enable("table")
    .use(dollarmath_plugin, allow_digits=False, renderer=lambda tex, how: mathml(tex, how["display_mode"]))
)


def deck(plan: list[Planned], folder: Path, brand: str = "") -> str:
    """The whole deck as one page; frames and the face of the formulas are written next to it, into `folder`."""
    start, sections = 0.0, []
    total = sum(each.minutes for each in plan)
    for number, each in enumerate(tqdm(plan, "slides", unit="slide", disable=None)):
        sections.append(_slide(number, each, start, total, folder))
        start += each.minutes
    page = filled("deck.html", slides="\n".join(sections), style=styles(), brand=brand, script=scripts())
    font(characters([page]), folder / "math.woff")
    return page


def handout(file: Path, plan: list[Planned], folder: Path) -> str:
    """A page to print from a Markdown file, with the stills of runs in the deck: ![](run:tiles)."""
    shown = {each.slide.run: still(number) for number, each in enumerate(plan) if each.slide.run}
    text = MARKDOWN.render(with_numbers(file, NUMBERS))
    picture = r'<img src="run:(\w+)" alt="" ?/?>'
    text = re.sub(picture, lambda run: image(shown[run[1]], RUNS[run[1]].alt) if run[1] in shown else "", text)
    font(characters([text]), folder / "handout.woff")
    return filled("handout.html", text=text)


def clock(start: float, minutes: float) -> str:
    """From when to when a slide is shown, in minutes and seconds since the beginning."""
    ends = (f"{int(at)}:{round(60 * (at % 1)):02}" for at in (start, start + minutes))
    return "–".join(ends)


def styles() -> str:
    """The deck's own style, after that of the player."""
    return browser_text("player.css", "explorer.css") + stylesheet() + (HERE / "deck.css").read_text(encoding="utf-8")


def scripts() -> str:
    """Player and deck as one module in the page: a page opened from a folder may import nothing."""
    tiling = recorded.constants(EXPLORED) + browser_text("explorer.js", "recorded.js", "tiling.js")
    return browser_text("picture.js", "player.js") + tiling + (HERE / "deck.js").read_text(encoding="utf-8")


def filled(name: str, **parts: str) -> str:
    text = (HERE / name).read_text(encoding="utf-8")
    for place, part in parts.items():
        text = text.replace(f"<!-- {place} -->", part)
    return text


def _slide(number: int, planned: Planned, start: float, total: float, folder: Path) -> str:
    slide, minutes = planned.slide, planned.minutes
    text = MARKDOWN.render(slide.text.replace("{{minutes}}", f"{total:g}"))
    shown = ""
    if slide.run:
        shown = _run(number, slide, folder)
    elif slide.plot:
        shown = _plot(number, found(PLOTS, slide.plot, "plot"), folder)
    elif slide.explorer:
        shown = _explorer(slide, folder)
    elif slide.poll:
        shown = _poll(slide.poll)
    when = f"{clock(start, minutes)} · notebook {slide.notebook}" if slide.minutes else ""
    kind, level = ("slide", "h2") if slide.minutes else ("slide title", "h1")
    kind += " beside" if slide.run and "```" in slide.text else ""  # lines of code, then their run
    return (
        f"<section class='{kind}' data-clock='{when}' data-until='{60 * (start + minutes):g}' hidden>"
        f"<{level}>{html.escape(slide.title)}</{level}><div class='text'>{text}</div>{shown}"
        f"<aside class='notes'>{MARKDOWN.render(slide.notes)}</aside></section>"
    )


# --- what a slide shows ---------------------------------------------------------------------------------------------


def found(named: Mapping[str, Any], name: str, kind: str) -> Any:
    """What has this name; ValueError if nothing has."""
    if name not in named:
        raise ValueError(f"expected the name of a {kind}, one of {', '.join(sorted(named))}, got {name!r}")
    return named[name]


def _run(number: int, slide: Slide, folder: Path) -> str:
    """A player: its run as JSON, and for a page without scripts the still."""
    run = found(RUNS, slide.run, "run")
    runs = as_runs(run.steps())
    stops = chosen(runs, slide)
    data = page_run(runs, run.draw, alt=run.alt, figsize=run.figsize, seconds=SECONDS)
    data |= {"questions": {str(step): text for step, text in slide.asks.items()}, "stops": stops}
    on_paper = {step: layouts(runs, step, run.draw)[0].svg() for step in paper(stops, data["size"])}
    (folder / still(number)).write_bytes(png(paint(runs, slide.still % count(runs), run.draw, run.figsize)))
    figures = "".join(
        f"<figure>{picture}<figcaption>{html.escape(transcript(runs, step))}</figcaption></figure>"
        for step, picture in on_paper.items()
    )
    script = json.dumps(data).replace("<", "\\u003c")
    return (
        f"<div class='run'>{image(still(number), run.alt)}</div><script type='application/json'>{script}</script>"
        f"<div class='paper'>{figures}</div>"
    )


def paper(stops: Sequence[int], size: Sequence[int]) -> list[int]:
    """The stops that are printed: as many as fit on a page, two next to each other."""
    most = len(stops) if size[0] > TALL * size[1] else FEW
    return sorted({stops[round(place * (len(stops) - 1) / max(1, most - 1))] for place in range(most)})


def chosen(runs: Mapping[str, list[Step]], slide: Slide) -> list[int]:
    """The steps at which Page Down stops: those of the slide, or about eight, with all rescalings if they are few."""
    last = count(runs) - 1
    if slide.steps:
        stops = set(slide.steps)
    elif last <= STEPS:
        stops = set(range(last + 1))
    else:
        rising = [
            n for n in range(last + 1) if any(rescales(step) for step in at(runs, n).values() if step.number == n)
        ]
        stops = {0, last, *rising[:: -(-len(rising) // (STEPS - 2)) or 1]}
        while len(stops) < STEPS:
            before = sorted(stops)
            gap, low = max((high - low, -low) for low, high in zip(before, before[1:], strict=False))
            stops.add(-low + gap // 2)
    stops |= {step for asked in slide.asks for step in (asked - 1, asked)}  # what is asked about is there before
    if not stops <= set(range(last + 1)):
        raise ValueError(f"expected steps from 1 to {last + 1} for {slide.title!r}, got {max(stops) + 1}")
    return sorted(stops)


def _plot(number: int, plot: Plot, folder: Path) -> str:
    with style.context(STYLE):
        figure = Figure(figsize=plot.figsize, dpi=DPI * look.scale, layout="constrained")
        plot.draw(figure.add_subplot())
        figure.savefig(folder / still(number), dpi=DPI * look.scale)
    return f"<div class='plot'>{image(still(number), plot.alt)}</div>"


def _explorer(slide: Slide, folder: Path) -> str:
    """The tiling explorer, with its recorded runs as files."""
    found({"tiling": None}, slide.explorer, "explorer")
    recorded.record(EXPLORED, folder / "_static" / "runs")
    return "<div class='explorer'></div>"


def _poll(poll: Poll) -> str:
    said = html.escape if poll.plain else MARKDOWN.renderInline
    lines = "".join(
        f"<li{' data-right' if place == poll.right else ''}><button type='button' aria-pressed='false'>{said(choice.text)}"
        f"</button><p class='because'>{said(choice.because)}</p></li>"
        for place, choice in enumerate(poll.choices)
    )
    return f"<div class='poll'><p class='question'>{said(poll.question)}</p><ol>{lines}</ol><p role='status'></p></div>"


def image(file: str, alt: str) -> str:
    return f"<img src='{file}' alt='{html.escape(alt, quote=True)}'>"


def still(number: int) -> str:
    """The file of the picture that stands for a slide."""
    return f"frames/{number:02}.png"
