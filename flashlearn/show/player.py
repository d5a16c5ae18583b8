"""`play`: a run of steps as one output, a player while the notebook runs and an animated PNG where it is stored.

The player itself is browser/player.js, which the book and the lecture deck use too; widget.js mounts it in a notebook.
The first frame comes with it. The others are made on the loop of the kernel, between cells: those around the step that
is shown, one that is requested, and in JupyterLab the frames of the stored form.
"""

from __future__ import annotations

import asyncio
import base64
import io
import os
import uuid
import weakref
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import anywidget
from PIL import Image
from traitlets import Bytes, Dict, Int, TraitError, Unicode, validate

from flashlearn.core.steps import Step
from flashlearn.show.animation import Picture, moving
from flashlearn.show.bundle import LIVE, browser_text, packed_run, parts, show
from flashlearn.show.draw.style import stylesheet
from flashlearn.show.film import Film, animated, packed
from flashlearn.show.frame import (
    DPI,
    TITLE,
    Draw,
    Steps,
    as_runs,
    columns,
    count,
    layouts,
    look,
    paint,
    rescales,
    table,
    transcript,
)
from flashlearn.show.inputs import check_alt, check_draw, check_figsize, check_frame, check_predict, check_seconds
from flashlearn.show.kernel import QUIET, busy, idle, kernel_loop, on_server

SHORT = 24  # steps; of a longer run no animation is stored unless requested
Runs = Mapping[str, list[Step]]
AHEAD = 64  # frames made ahead of the step that is shown, and behind it
BACK = 3  # steps on that are made before a step back


class Player(anywidget.AnyWidget):
    """A run that can be played: `step` is the step shown, from 0, here as in the browser.

    `show(steps)` loads another run into the same place. `picture` is the stored form of the run that is shown, `png` its
    file.
    """

    all: ClassVar[weakref.WeakSet[Player]] = weakref.WeakSet()
    _filming = False  # whether some player paints its stored form
    _esm = Unicode(browser_text("picture.js", "player.js", "saved.js", "view.js", "widget.js")).tag(sync=True)
    _css = Unicode(browser_text("player.css") + LIVE + stylesheet()).tag(sync=True)
    run = Dict().tag(sync=True)  # as player.js has it, with the first frame, and a name for saved.js
    film = Bytes().tag(sync=True)  # the stored form, if it was painted after the output was shown
    version = Int(0).tag(sync=True)  # of the frames; what was made for another one is not wanted any more
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
        self._kept: dict[tuple, bytes] = {}
        questions = {str(at): text for at, text in check_predict(predict, count(self.runs)).items()}
        run = self._described(predict=bool(predict), questions=questions)
        self._loop = kernel_loop()
        self._png = None if self._later else self._film()  # before there is a widget: what fails leaves none
        self._now = self._still() if self._later else None  # until the animation is painted
        self._sent: set[int] = set()
        self._views, self._wanted = 0, -1
        self._tasks: dict[str, asyncio.Task] = {}
        super().__init__(run={**run, "name": uuid.uuid4().hex})
        self.on_msg(self._receive)
        self.observe(lambda change: self._resume(), "step")
        Player.all.add(self)

    def _described(self, **more: Any) -> dict[str, Any]:
        """The run as player.js takes it, with the first of its frames."""
        run = described(self.runs, self.draw_step, self.alt, self.figsize, self.seconds)
        if "frames" not in run:
            run["frames"] = [data_uri(self._packed(0))]
        return {**run, "motion": moving(), **more}

    def _made(self, number: int) -> str | list[str]:
        """A frame as player.js takes it."""
        scenes = [layout.svg() for layout in layouts(self.runs, number, self.draw_step)]
        return scenes or data_uri(self._packed(number))

    def _packed(self, number: int) -> bytes:
        """A painted frame; those of a short run are kept, for both forms."""
        key = number, look.key
        if key in self._kept:
            return self._kept[key]
        data = packed(paint(self.runs, number, self.draw_step, self.figsize))
        if count(self.runs) <= SHORT:
            self._kept[key] = data
        return data

    # --- what is shown ---

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
        before = self.runs, self.alt, self._kept
        try:
            self.runs, self.alt, self._kept = as_runs(steps), self.alt if alt is None else check_alt(alt), {}
            run = self._described(predict=self.run["predict"], questions={}, name=self.run["name"])
        except BaseException:
            self.runs, self.alt, self._kept = before
            raise
        self._png = self._now = None
        with self.hold_sync():
            self.step, self.run = 0, run
            self.version += 1
        self._sent.clear()
        self._resume()

    def paint(self) -> None:
        """Have every frame again, as `frame.look` wants it by now; scenes are as sharp as they can be."""
        if "narrow" in self.run:
            return
        with self.hold_sync():
            self.run = {**self.run, "frames": [data_uri(self._packed(0))]}
            self.version += 1
        self._sent.clear()

    def focus(self) -> None:
        """Give the keyboard to the player, after a control next to it was used."""
        self.send({"focus": True})

    # --- frames for the browser ---

    def _receive(self, widget: Any, content: dict, buffers: list) -> None:
        """A view is there or gone, or wants a frame. JupyterLab has this called in a thread of its own."""
        if content.get("here") or content.get("gone"):
            self._views += 1 if content.get("here") else -1
            self._sent.clear()
        if "wanted" in content and content["version"] == self.version:
            self._wanted = content["wanted"]
            busy()
            self._soon(partial(self._start, "wanted", self._answer, self._wanted))
        self._resume()

    def _soon(self, act: Callable[[], Any]) -> None:
        """Do it on the loop of the kernel, between cells; at once where there is none."""
        if self._loop:
            self._loop.call_soon_threadsafe(act)
        else:
            act()

    def _start(self, kind: str, work: Callable[..., Coroutine], *what: Any) -> None:
        """Begin something, unless it is being done; what goes wrong in it is shown in the player."""
        if not self._loop:
            return asyncio.run(work(*what))
        if kind == "wanted" or kind not in self._tasks or self._tasks[kind].done():
            self._tasks[kind] = self._loop.create_task(work(*what))
            self._tasks[kind].add_done_callback(self._failed)

    def _failed(self, task: asyncio.Task) -> None:
        if not task.cancelled() and (error := task.exception()):
            failed = f"A frame cannot be painted: {type(error).__name__}: {error}"
            self.send({"version": self.version, "failed": failed})

    def _resume(self) -> None:
        """Make frames ahead, if somebody looks and there is a loop."""
        if self._loop and self._views > 0:
            self._soon(partial(self._start, "ahead", self._ahead))

    async def _ahead(self) -> None:
        """The frames around the step that is shown, one at a time while no cell runs."""
        while self._views > 0 and (number := self._next()) is not None:
            await idle()
            self._bring(number)

    async def _answer(self, number: int) -> None:
        """The requested frame, unless another was requested since: a key that is held down requests many."""
        if number == self._wanted:
            self._bring(number)

    def _next(self) -> int | None:
        """The next frame to make: the nearest to the step that is shown, a step back being as far as some steps on."""
        here = self.step
        near = range(max(0, here - AHEAD), min(count(self.runs), here + AHEAD))
        missing = (number for number in near if number not in self._sent)
        return min(missing, key=lambda number: max(number - here, BACK * (here - number)), default=None)

    def _bring(self, number: int) -> None:
        """One frame, unless it was sent."""
        if number not in self._sent and number < count(self.runs):
            self._sent.add(number)
            self.send({"frame": number, "picture": self._made(number), "version": self.version})

    # --- the stored form ---

    @property
    def _later(self) -> bool:
        """Whether the animation is painted while the kernel is idle: JupyterLab and Notebook 7 ask for it on saving."""
        return self._loop is not None and on_server() and self._animated and not os.environ.get("FLASHLEARN_ALL_FRAMES")

    @property
    def _animated(self) -> bool:
        return moving() and bool(count(self.runs) <= SHORT or os.environ.get("FLASHLEARN_ALL_FRAMES"))

    def _painted(self, number: int) -> Image.Image:
        return Image.open(io.BytesIO(self._packed(number)))

    def _still_number(self) -> int:
        """The step that represents the run: the requested one, else the last in which every run has something on chip."""
        last = count(self.runs) - 1  # a run that was loaded later may be shorter
        if self.still != -1:
            return range(last + 1)[max(-last - 1, min(self.still, last))]
        return next((n for n in range(last, -1, -1) if on_chip(self.runs, n)), last)

    def _still(self) -> bytes:
        return self._packed(self._still_number())

    def _film(self) -> bytes:
        """The stored form."""
        if not self._animated:
            return self._still()
        return self._in_motion(Film(self._painted(number) for number in range(count(self.runs))))

    def _in_motion(self, film: Film) -> bytes:
        return animated(film, delays(self.runs, self.seconds), min(self._still_number(), len(film) - 1))

    async def _film_later(self) -> None:
        """The stored form, one player after the other, a frame at a time while no cell runs, for browser/saved.js."""
        while Player._filming:
            await asyncio.sleep(QUIET)
        Player._filming = True
        try:
            film, runs = Film(), self.runs
            for number in range(count(runs)):
                await idle()
                film.add(self._painted(number))
            painted = await asyncio.to_thread(self._in_motion, film)
            if self.runs is runs:  # and `show` has loaded no others
                self.film = self._png = painted
        finally:
            Player._filming = False

    @property
    def picture(self) -> Picture:
        """The stored form; what of it is not painted yet is painted when somebody asks for it."""
        if self._png is None:
            self._png = self._film()
        return self._stored(self._png)

    def _stored(self, film: bytes) -> Picture:
        """A stored form with its words."""
        return Picture(film, self.alt, size_of(film), self.transcript, table(self.runs))

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
        """One line for every step, several for runs next to each other."""
        return tuple(self.run["captions"])

    def in_words(self) -> str:
        """The table of all steps, as HTML."""
        return self._stored(self._png or self._now or b"").in_words()

    def save(self, path: str | Path) -> None:
        """Write the stored form to a file (.png or .apng)."""
        self.picture.save(path)

    def __repr__(self) -> str:
        return f"[animation, {count(self.runs)} steps] {self.alt}"

    def _repr_mimebundle_(self, **kwargs):
        """The live widget, and for pages that cannot run it the animated PNG."""
        live, how = parts(super()._repr_mimebundle_(**kwargs), self.run["name"])
        data, about = (self._stored(self._now) if self._now else self.picture)._repr_mimebundle_()
        return {**live, **data}, {**how, **about}

    def _ipython_display_(self) -> None:
        show(self._repr_mimebundle_(), "play it", self.in_words())
        if self._now:
            self._soon(partial(self._start, "film", self._film_later))


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
    """Run `steps`, paint them with `draw`, and play them: slider, keys, swipe, a caption for every step.

    steps      an iterable of `Step`, or a mapping {title: steps} for runs next to each other
    draw       draw(step), which returns a scene, e.g. `flashlearn.show.draw.draw_row`; or draw(ax, step)
    alt        what the run shows, in words, for those who cannot see it
    figsize    inches at 100 pixels per inch, without titles, for a painter on axes; a scene has a size of its own
    seconds    how long a step stands while playing; one that rescales twice, the last three times as long
    still      the step that stands for the whole where pictures do not move (print, reduced motion); -1: the last with
               something on chip
    predict    whether the next step is hidden until the reader asks for it; or {step: question}, what is asked while
               that step is hidden, from 1: step 0 is always shown. The reader can turn it on and off
    """
    return Player(steps, draw, alt=alt, figsize=figsize, seconds=seconds, still=still, predict=predict)


def on_chip(runs: Runs, number: int) -> bool:
    """Whether something is on chip in this step of every run; of a run that has ended, in its last."""
    return all(bool(run[min(number, len(run) - 1)].on_chip) for run in runs.values())


def delays(runs: Runs, seconds: float) -> list[int]:
    """Milliseconds that every frame stands: twice as long with a rescaling, the last three times."""
    last = count(runs) - 1
    new = [any(n < len(run) and rescales(run[n]) for run in runs.values()) for n in range(last + 1)]
    return [round(1000 * seconds * (3 if n == last else 1 + new[n])) for n in range(last + 1)]


def described(runs: Runs, draw: Draw, alt: str, figsize: tuple[float, float], seconds: float) -> dict[str, Any]:
    """Runs in words, sizes and times, as player.js takes them; the first frame, if `draw` returns scenes."""
    run: dict[str, Any] = {"alt": alt, "captions": [transcript(runs, number) for number in range(count(runs))]}
    run["delays"] = delays(runs, seconds)
    found = layouts(runs, 0, draw)
    if not found:
        return run | {"size": [round(DPI * figsize[0]), round(DPI * (figsize[1] + TITLE * any(runs)))]}
    wide, narrow = found
    return run | {"size": wide.size, "narrow": narrow.size, "frames": [[wide.svg(), narrow.svg()]]}


def page_run(
    steps: Steps,
    draw: Draw,
    *,
    alt: str,
    figsize: tuple[float, float] = (12.8, 5.0),
    seconds: float = 1.2,
    predict: bool | Mapping[int, str] = False,
) -> dict[str, Any]:
    """A whole run for a page, ready for JSON: with its table, and with all frames as `scenes` if `draw` returns such."""
    runs = as_runs(steps)
    questions = {str(at): text for at, text in check_predict(predict, count(runs)).items()}
    run = described(runs, draw, check_alt(alt), figsize, seconds)
    run |= {"table": columns(table(runs)), "predict": bool(predict), "questions": questions}
    if run.pop("frames", None):
        frames = ([layout.svg() for layout in layouts(runs, number, draw)] for number in range(count(runs)))
        run["scenes"] = packed_run(list(frames))
    return run


def data_uri(file: bytes) -> str:
    """A PNG file as an address."""
    return "data:image/png;base64," + base64.b64encode(file).decode()


def size_of(file: bytes) -> tuple[int, int]:
    """Width and height of a PNG file, from its first chunk."""
    return int.from_bytes(file[16:20]), int.from_bytes(file[20:24])
