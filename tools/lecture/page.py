"""Slides as HTML: the deck, its notes to print, the frames of its runs as files."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from pathlib import Path

from matplotlib import style
from matplotlib.figure import Figure
from tqdm import tqdm

from flashlearn.show.draw.style import STYLE
from flashlearn.show.frame import DPI, as_runs, count, look, paint, png
from flashlearn.show.player import described
from tools.lecture.slides import Planned, Plot, Poll, Run, Section, Slide

HERE = Path(__file__).parent
BROWSER = files("flashlearn.show") / "browser"
SECONDS = 1.2  # how long a step stands while playing


def deck(planned: Planned, folder: Path) -> str:
    """The whole deck as one page; pictures and the slide library lie beside it in `folder`."""
    start, sections = 0.0, []
    for number, (section, slide, minutes) in enumerate(tqdm(planned, "slides", unit="slide", disable=None)):
        sections.append(_slide(number, section, slide, start, minutes, folder))
        start += minutes
    return filled("deck.html", title=_title(start), slides="\n".join(sections), style=styles(), script=scripts())


def notes(planned: Planned) -> str:
    """Slides and what to say, one to a printed page; the pictures are those of the deck."""
    start, pages = 0.0, []
    for number, (section, slide, minutes) in enumerate(planned):
        shown = _still(number, slide) if slide.shows else ""
        pages.append(
            f"<section><p class='clock'>{clock(start, minutes)} · notebook {section.notebook}</p><h2>{slide.title}</h2>"
            f"{slide.text}{shown}<p class='say'>{html.escape(slide.notes)}</p></section>"
        )
        start += minutes
    return filled("print.html", title="FlashAttention: slides and notes", pages="\n".join(pages), size="A4 landscape")


def clock(start: float, minutes: float) -> str:
    """From when to when a slide is shown, in minutes and seconds since the beginning."""
    ends = (f"{int(at)}:{round(60 * (at % 1)):02}" for at in (start, start + minutes))
    return "–".join(ends)


def styles() -> str:
    """The deck's own style, after that of the player."""
    return (BROWSER / "player.css").read_text(encoding="utf-8") + (HERE / "deck.css").read_text(encoding="utf-8")


def scripts() -> str:
    """Player and deck as one module in the page: a page opened from a folder may import nothing."""
    return (BROWSER / "player.js").read_text(encoding="utf-8") + (HERE / "deck.js").read_text(encoding="utf-8")


def filled(name: str, **parts: str) -> str:
    text = (HERE / name).read_text(encoding="utf-8")
    for place, part in parts.items():
        text = text.replace(f"<!-- {place} -->", part)
    return text


def _title(minutes: float) -> str:
    return (
        "<section class='first'><h1>How FlashAttention works</h1><p>From one row of softmax to a Triton kernel, "
        f"in {minutes:.0f} minutes</p><p class='keys'>Page Down: next step, then next slide · 1 to 5: a choice · B: black · S: speaker notes · F: full screen</p>"
        "</section>"
    )


def _slide(number: int, section: Section, slide: Slide, start: float, minutes: float, folder: Path) -> str:
    kinds = {Run: _run, Plot: _plot, Poll: _poll}
    shown = kinds[type(slide.shows)](number, slide.shows, folder) if slide.shows else ""  # type: ignore[operator]
    return (
        f"<section data-timing='{round(60 * minutes)}' data-notebook='{section.notebook}'><h2>{slide.title}</h2>"
        f"{slide.text}{shown}<aside class='notes'>{clock(start, minutes)} · {html.escape(slide.notes)}</aside></section>"
    )


# --- what a slide shows ---------------------------------------------------------------------------------------------


def _run(number: int, run: Run, folder: Path) -> str:
    """A player: its frames as files, its words as JSON, and for a page without scripts the still and a table."""
    runs = as_runs(run.steps())
    every = range(count(runs))
    for step in every:
        (folder / frame(number, step)).write_bytes(png(paint(runs, step, run.draw, run.figsize)))
    (folder / still(number)).write_bytes((folder / frame(number, run.still % len(every))).read_bytes())
    run_data = {
        **described(runs, run.alt, run.figsize, SECONDS),
        "frames": [frame(number, step) for step in every],
        "questions": {str(at): text for at, text in run.questions.items()},
        "predict": bool(run.questions),
    }
    data = json.dumps(run_data).replace("<", "\\u003c")
    return f"<div class='run'>{_still_image(number, run.alt)}</div><script type='application/json'>{data}</script>"


def _plot(number: int, plot: Plot, folder: Path) -> str:
    with style.context(STYLE):
        figure = Figure(figsize=plot.figsize, dpi=DPI * look.scale, layout="constrained")
        plot.draw(figure.add_subplot())
        figure.savefig(folder / still(number), dpi=DPI * look.scale)
    return f"<div class='plot'>{_still_image(number, plot.alt)}</div>"


def _poll(number: int, poll: Poll, folder: Path) -> str:
    lines = "".join(
        f"<li{' data-right' if place == poll.right else ''}><button type='button' aria-pressed='false'>{text}</button>"
        f"<p class='because' hidden>{because}</p></li>"
        for place, (text, because) in enumerate(poll.choices)
    )
    return f"<div class='poll'><p class='question'>{poll.question}</p><ol>{lines}</ol><p role='status'></p></div>"


def _still(number: int, slide: Slide) -> str:
    """What the notes print of a slide."""
    if isinstance(slide.shows, Poll):
        lines = "".join(
            f"<li>{'<b>' if place == slide.shows.right else ''}{text}{'</b>' if place == slide.shows.right else ''}: {because}</li>"
            for place, (text, because) in enumerate(slide.shows.choices)
        )
        return f"<p>{slide.shows.question}</p><ol>{lines}</ol>"
    assert slide.shows is not None
    return _still_image(number, slide.shows.alt)


def _still_image(number: int, alt: str) -> str:
    return f"<img src='{still(number)}' alt='{html.escape(alt, quote=True)}'>"


def frame(number: int, step: int) -> str:
    """The file of one frame, from the folder of the deck."""
    return f"frames/{number:02}_{step:03}.png"


def still(number: int) -> str:
    """The file of the picture that stands for a slide."""
    return f"frames/{number:02}.png"
