"""`play`: a run of steps as one output, a player while the notebook runs and an animated PNG where it is stored.

The player itself is browser/player.js, which the book and the lecture deck use too; widget.js mounts it in a notebook.
A short run is painted whole when its cell runs, once for both forms. Of a long run, or without motion, or for a
projector, frames are painted ahead while the kernel is idle, on its own loop: while a cell runs, nothing is painted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import anywidget
from IPython import get_ipython
from traitlets import Bytes, Dict, Int, TraitError, Unicode, validate

from flashlearn.core.steps import Step
from flashlearn.show.animation import Picture, moving
from flashlearn.show.bundle import AGAIN, browser_text, parts
from flashlearn.show.film import Film, animated, packed
from flashlearn.show.frame import (
    DPI,
    TITLE,
    Draw,
    Steps,
    as_runs,
    collect_garbage,
    columns,
    count,
    drawn,
    look,
    paint,
    pixels,
    png,
    rescales,
    table,
    transcript,
)
from flashlearn.show.inputs import check_alt, check_draw, check_figsize, check_frame, check_predict, check_seconds

SHORT = 24  # steps; a longer run is not painted when its cell runs
LONG = 48  # steps; a longer run is stored without its sentences in the frames
AHEAD = 64  # frames painted ahead of the step that is shown, and behind it
BACK = 3  # steps on that are painted before a step back
PAUSE = 0.002  # seconds for the kernel to handle its messages, one of which may request a frame
QUIET = 0.5  # seconds without a cell before the kernel counts as idle


class Player(anywidget.AnyWidget):
    """A run that can be played: `step` is the step shown, from 0, here as in the browser.

    `show(steps)` loads another run into the same place. `picture` is the stored form of the run that is shown, `png` its
    file.
    """

    all: ClassVar[weakref.WeakSet[Player]] = weakref.WeakSet()
    unfinished = 0  # frames, of all players, that are being painted
    _esm = Unicode(browser_text("player.js", "film.js", "saved.js", "widget.js")).tag(sync=True)
    _css = Unicode(browser_text("player.css")).tag(sync=True)
    run = Dict().tag(sync=True)  # as player.js has it, but for the frames
    film = Bytes().tag(sync=True)  # the animated PNG that the frames come from; empty if they come one by one
    version = Int(0).tag(sync=True)  # of the frames; what was painted for another one is not wanted any more
    step = Int(0).tag(sync=True)

    def __init__(
        self,
        steps: Steps,
        draw: Draw,
        *,
        alt: str,
        figsize: tuple[float, float] = (12.8, 5.0),
        seconds: float = 1.2,
        still: int = -1,
        predict: bool | Mapping[int, str] = False,
    ):
        check_draw(draw)
        check_figsize(figsize)
        check_seconds(seconds)
        self.alt, self.draw_step, self.figsize, self.seconds = check_alt(alt), draw, figsize, float(seconds)
        self.runs = as_runs(steps)
        check_frame(still, count(self.runs))
        self.still = still
        questions = check_predict(predict, count(self.runs))
        run = {
            **described(self.runs, self.alt, self.figsize, self.seconds),
            "predict": bool(predict),
            "questions": {str(at): text for at, text in questions.items()},
        }
        film, self._there = self._painted()  # before there is a widget: what fails leaves none
        self._filmed = None if self._there else look.key
        self._look = look.key
        self._sent: set[int] = set()
        self._requested: tuple[int, int] | None = None  # version and number of the frame that a view requested last
        self._begun: tuple[int, int] | None = None  # and of the one that is being painted ahead
        self._views = 0
        self._task: asyncio.Task | None = None
        self._loop = _loop()
        super().__init__(run=run, film=b"" if self._there else film)
        self._picture: Picture | None = self._stored(film)
        self.on_msg(self._receive)
        self.observe(lambda change: self._resume(), "step")
        Player.all.add(self)

    # --- what is shown ---

    def _painted(self) -> tuple[bytes, dict[int, bytes]]:
        """The stored form, and the frames that the browser cannot take from it."""
        every = range(count(self.runs))
        still = every[max(-len(every), min(self.still, len(every) - 1))]  # a run that was loaded later may be shorter
        frame = partial(paint, self.runs, draw=self.draw_step, figsize=self.figsize, caption=len(every) <= LONG)
        if moving() and (len(every) <= SHORT or os.environ.get("FLASHLEARN_ALL_FRAMES")):
            film = Film(frame(number) for number in every)
            return animated(film, delays(self.runs, self.seconds), still), {}
        there = {number: png(frame(number)) for number in {still, 0}}
        return there[still], there

    @validate("step")
    def _there_is(self, proposal: Mapping[str, Any]) -> int:
        """TraitError for a step that the run has not; traitlets then restores the former step."""
        step, last = proposal["value"], count(self.runs) - 1
        if isinstance(step, bool) or not 0 <= step <= last:
            raise TraitError(f"expected step from 0 to {last}, got {step!r}")
        return step

    def show(self, steps: Steps, *, alt: str | None = None) -> None:
        """Load a new run (or {title: run}) and show its first step; one that cannot be painted changes nothing.

        Without `alt`, what was said of the run before is said of this one too. Questions are not kept: they were about
        its steps.
        """
        runs, alt = as_runs(steps), self.alt if alt is None else check_alt(alt)
        first = png(paint(runs, 0, self.draw_step, self.figsize))
        self.runs, self.alt, self._there, self._look, self._filmed = runs, alt, {0: first}, look.key, None
        self._picture = None
        run = {
            **described(self.runs, self.alt, self.figsize, self.seconds),
            "predict": self.run["predict"],
            "questions": {},
        }
        with self.hold_sync():
            self.step = 0
            self.run, self.film = run, b""
            self.version += 1
        self._sent.clear()
        self._resume()

    def paint(self) -> None:
        """Have every frame again, as `frame.look` wants it by now."""
        with self.hold_sync():
            self.film = self.picture.png if self._filmed == look.key else b""
            self.version += 1
        self._sent.clear()

    def focus(self) -> None:
        """Give the keyboard to the player, after a control beside it was used."""
        self.send({"focus": True})

    # --- frames for the browser ---

    def _receive(self, widget: Any, content: dict, buffers: list) -> None:
        """A view is there or gone, or wants a frame. JupyterLab has this called in a thread of its own."""
        if content.get("here") or content.get("gone"):
            self._views += 1 if content.get("here") else -1
            self._sent.clear()
        if "wanted" in content and content["version"] == self.version:
            self._requested = self.version, content["wanted"]
            self._soon(partial(self._start, self._answer(self._requested)))
        self._resume()

    def _soon(self, act: Callable[[], Any]) -> None:
        """Do it on the loop of the kernel, between cells; at once where there is none."""
        if self._loop:
            self._loop.call_soon_threadsafe(act)
        else:
            act()

    def _start(self, work) -> asyncio.Task | None:
        """Begin a coroutine; what goes wrong in it is shown in the player. Without a loop, run it to its end."""
        if not self._loop:
            return asyncio.run(work)
        task = self._loop.create_task(work)
        task.add_done_callback(self._failed)
        return task

    def _failed(self, task: asyncio.Task) -> None:
        if not task.cancelled() and (error := task.exception()):
            failed = f"A frame cannot be painted: {type(error).__name__}: {error}"
            self.send({"version": self.version, "failed": failed})

    def _resume(self) -> None:
        """Paint ahead, if somebody looks, there is a loop, and it is not being done already."""
        if self._loop and self._views > 0 and not self.film:
            self._soon(self._begin)

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = self._start(self._ahead())

    async def _ahead(self) -> None:
        """The frames around the step that is shown, one at a time while no cell runs."""
        while self._views > 0 and not self.film and (number := self._next()) is not None:
            await _idle()
            self._begun = self.version, number
            try:
                for _ in self._parts(*self._begun):
                    await self._turn()
            finally:
                self._begun = None

    async def _turn(self) -> None:
        """Let the kernel handle its messages, and another frame that was requested, before this one goes on."""
        await asyncio.sleep(PAUSE)
        while self._requested not in (None, self._begun):
            await asyncio.sleep(PAUSE)

    async def _answer(self, frame: tuple[int, int]) -> None:
        """Paint the frame that was requested last, unless it was begun ahead."""
        if frame == self._requested != self._begun:
            for _ in self._parts(*frame):
                pass

    def _next(self) -> int | None:
        """The next frame to paint: the nearest to the step that is shown, a step back being as far as some steps on."""
        here = self.step
        near = range(max(0, here - AHEAD), min(count(self.runs), here + AHEAD))
        missing = (number for number in near if number not in self._sent)
        return min(missing, key=lambda number: max(number - here, BACK * (here - number)), default=None)

    def _parts(self, version: int, number: int) -> Iterator[None]:
        """Paint one frame, unless it is there, and send it, in parts between which another one can be painted."""
        Player.unfinished += 1
        try:
            data = self._there.get(number) if self._look == look.key else None
            if data is None and number not in self._sent:
                surface = drawn(self.runs, number, self.draw_step, self.figsize)
                yield
                picture = pixels(surface)
                del surface
                yield
                data = packed(picture)
            if version == self.version and number not in self._sent:  # both may be otherwise by now
                self._sent.add(number)
                self.send({"frame": number, "version": version}, [data])
        finally:
            if self._requested == (version, number):
                self._requested = None
            Player.unfinished -= 1
            if not Player.unfinished:  # half a figure would be taken for an old one
                collect_garbage()

    # --- the stored form ---

    @property
    def picture(self) -> Picture:
        """The stored form; that of a run which `show` has loaded is painted when somebody asks for it."""
        if self._picture is None:
            self._picture = self._stored(self._painted()[0])
        return self._picture

    def _stored(self, film: bytes) -> Picture:
        """The stored form with its words."""
        return Picture(film, self.alt, size_of(film), self.transcript, table(self.runs), about(self.run))

    @property
    def png(self) -> bytes:
        """The stored form, an animated PNG."""
        return self.picture.png

    @property
    def size(self) -> tuple[int, int]:
        """Of the stored form, in pixels."""
        return self.picture.size

    @property
    def transcript(self) -> tuple[str, ...]:
        """One line for every step, several for runs side by side."""
        return tuple(self.run["sentences"])

    def in_words(self) -> str:
        """The table of all steps, as HTML."""
        return self.picture.in_words()

    def save(self, path: str | Path) -> None:
        """Write the stored form to a file (.png or .apng)."""
        self.picture.save(path)

    def __repr__(self) -> str:
        return repr(self.picture)

    def _repr_mimebundle_(self, **kwargs):
        """The live widget, and for pages that cannot run it the animated PNG with its words."""
        words = f"<p>{AGAIN.format('play it')}</p>{self.in_words()}"
        live, how = parts(super()._repr_mimebundle_(**kwargs), words)
        data, about = self.picture._repr_mimebundle_()
        return {**live, **data}, {**how, **about}


def play(
    steps: Steps,
    draw: Draw,
    *,
    alt: str,
    figsize: tuple[float, float] = (12.8, 5.0),
    seconds: float = 1.2,
    still: int = -1,
    predict: bool | Mapping[int, str] = False,
) -> Player:
    """Run `steps`, paint them with `draw`, and play them: slider, keys, swipe, a sentence for every step.

    steps      an iterable of `Step`, or a mapping {title: steps} for runs side by side
    draw       draw(ax, step), e.g. `flashlearn.show.draw.draw_row`
    alt        what the run shows, in words, for those who cannot see it
    figsize    inches at 100 pixels per inch, without titles and caption
    seconds    how long a step stands while playing; one that rescales twice, the last three times as long
    still      the step that stands for the whole where pictures do not move (print, reduced motion)
    predict    whether the next step is hidden until the reader asks for it; or {step: question}, what is asked while
               that step is hidden, from 1: step 0 is always shown. The reader can turn it on and off
    """
    return Player(steps, draw, alt=alt, figsize=figsize, seconds=seconds, still=still, predict=predict)


def delays(runs: Mapping[str, list[Step]], seconds: float) -> list[int]:
    """Milliseconds that every frame stands: twice as long with a rescaling, the last three times."""
    last = count(runs) - 1
    new = [any(n < len(run) and rescales(run[n]) for run in runs.values()) for n in range(last + 1)]
    return [round(1000 * seconds * (3 if n == last else 1 + new[n])) for n in range(last + 1)]


def described(runs: Mapping[str, list[Step]], alt: str, figsize: tuple[float, float], seconds: float) -> dict[str, Any]:
    """Runs in words and times, as player.js takes them."""
    width, height = figsize
    return {
        "alt": alt,
        "sentences": [transcript(runs, number) for number in range(count(runs))],
        "size": [round(DPI * width), round(DPI * (height + (TITLE if any(runs) else 0)))],
        "delays": delays(runs, seconds),
        "table": columns(table(runs)),
    }


def about(run: Mapping[str, Any]) -> dict[str, Any]:
    """What the stored form says of a run beside alt and steps, so that a page can make a player of it."""
    return {name: run[name] for name in ("size", "delays", "predict", "questions") if run[name]}


def size_of(file: bytes) -> tuple[int, int]:
    """Width and height of a PNG file, from its first chunk."""
    return int.from_bytes(file[16:20]), int.from_bytes(file[20:24])


def stored(output: Mapping[str, Any]) -> dict[str, Any] | None:
    """The run of a stored output as player.js takes it, but for its frames (`film.frames`); None if it has none."""
    kept = output.get("metadata", {}).get("image/png", {})
    if "player" not in kept:
        return None
    rows = kept["steps"]
    return {"alt": kept["alt"], "sentences": sentences(rows), "table": columns(rows), **kept["player"]}


def sentences(rows: list[list[str]]) -> list[str]:
    """The sentences of every frame, from the rows of its table; the inverse of `frame.transcript`."""
    runs: dict[str, list[str]] = {}
    for title, _, *_, sentence in rows:
        runs.setdefault(title, []).append(sentence)
    frames = range(max(map(len, runs.values())))
    return ["\n".join(_line(title, run, min(n, len(run) - 1)) for title, run in runs.items()) for n in frames]


def _line(title: str, run: list[str], number: int) -> str:
    name = f"{title}: " if title else ""
    return f"{name}Step {number + 1} of {len(run)} · {run[number]}"


# --- the kernel ------------------------------------------------------------------------------------------------


class _Cells:
    """When a cell last ran."""

    last = 0.0
    watched: Any = None

    @classmethod
    def watch(cls) -> None:
        """Have the shell say when a cell begins and when it ends."""
        shell = get_ipython()
        if shell is not None and cls.watched is not shell:
            cls.watched = shell
            for event in ("pre_run_cell", "post_run_cell"):
                shell.events.register(event, cls.note)
        cls.note()

    @classmethod
    def note(cls, *_: Any) -> None:
        cls.last = time.monotonic()


def _loop() -> asyncio.AbstractEventLoop | None:
    """The loop of the kernel whose cell this is; None outside one."""
    if get_ipython() is None:
        return None
    _Cells.watch()
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


async def _idle() -> None:
    """Wait until no cell has run for a while; and let the kernel see to its messages in any case."""
    await asyncio.sleep(0.02)
    while time.monotonic() - _Cells.last < QUIET:
        await asyncio.sleep(0.1)
