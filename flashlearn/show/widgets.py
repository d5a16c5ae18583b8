"""A slider over recorded steps: the picture of one step, and its sentence as text below."""

from __future__ import annotations

import base64
import html
import weakref
from typing import ClassVar

import anywidget
import ipywidgets as widgets
from traitlets import Unicode

from flashlearn.show.bundle import LIVE, browser_text, parts, show
from flashlearn.show.frame import Draw, Steps, as_runs, count, look, paint, png, transcript
from flashlearn.show.inputs import check_alt, check_draw, check_figsize, check_interval


class LabelledImage(widgets.Image):
    """An image with a text for screen readers, its `tooltip`.

    ipywidgets 8.1 shows a tooltip only on widgets that have a `description`, and fails on those without.
    """

    description = Unicode("").tag(sync=True)


def script(source: str) -> widgets.Output:
    """A hidden widget that runs a script in the browser; there, `element` is its place on the page."""
    output = {"output_type": "display_data", "data": {"application/javascript": source}, "metadata": {}}
    return widgets.Output(outputs=(output,), layout={"display": "none"})


class Names(anywidget.AnyWidget):
    """A hidden part of a stepper that names its controls for screen readers."""

    _esm = Unicode(browser_text("saved.js", "names.js")).tag(sync=True)
    _css = Unicode(LIVE).tag(sync=True)


def bars(*rows: widgets.HBox) -> widgets.VBox:
    """Rows of controls as one box, which a projector hides while it is not in use."""
    box = widgets.VBox(rows)
    box.add_class("flashlearn-bars")
    return box


class Stepper(widgets.VBox):
    """Picture, sentence, and controls that work from the keyboard: arrow keys, Home and End on the slider.

    Each step is painted once, when first shown. `show(steps)` loads another run into the same widget.
    """

    all: ClassVar[weakref.WeakSet[Stepper]] = weakref.WeakSet()
    children: tuple[widgets.Widget, ...]

    def __init__(self, steps: Steps, draw: Draw, *, alt: str, figsize=(12.8, 5.0), interval: int = 1200):
        check_draw(draw)
        check_figsize(figsize)
        check_interval(interval)
        self.draw_step, self.alt, self.figsize = draw, check_alt(alt), figsize
        self._load(steps)  # before there is a widget: steps that cannot be painted leave nothing behind
        self.picture = LabelledImage(format="png", layout={"width": "100%", "max_width": f"{figsize[0] * 100:.0f}px"})
        self.sentence = widgets.HTML()
        self.slider = widgets.IntSlider(description="step", min=1, max=1, readout=True, layout={"width": "480px"})
        self.names = Names(layout={"display": "none"})
        self.controls = self._controls(interval)
        super().__init__([self.picture, self.sentence, self.controls, self.names])
        for widget, role in ((self, "stepper"), (self.sentence, "sentence"), (self.slider, "step")):
            widget.add_class(f"flashlearn-{role}")
        self._rewind()
        self.slider.observe(lambda change: self.paint(), "value")
        Stepper.all.add(self)

    def _controls(self, interval: int) -> widgets.VBox:
        """Play and pause, back, the slider, next."""
        self.play = widgets.Play(min=1, max=1, interval=interval, tooltip="play or pause the steps")
        self.back = widgets.Button(description="◀ back", tooltip="one step back", layout={"width": "90px"})
        self.next = widgets.Button(description="next ▶", tooltip="one step on", layout={"width": "90px"})
        widgets.jslink((self.play, "value"), (self.slider, "value"))
        self.back.on_click(lambda button: self._move(-1))
        self.next.on_click(lambda button: self._move(+1))
        return bars(widgets.HBox([self.play, self.back, self.slider, self.next]))

    def show(self, steps: Steps) -> None:
        """Load a new run (or {title: run}) and show its first step; one that cannot be painted changes nothing."""
        self._load(steps)
        self._rewind()

    def _load(self, steps: Steps) -> None:
        """Record the steps and paint the first."""
        runs = as_runs(steps)
        self.runs, self._painted = runs, {(0, *look.key): png(paint(runs, 0, self.draw_step, self.figsize))}

    def _rewind(self) -> None:
        """Show the first of the steps that were loaded."""
        self.slider.value = self.play.value = 1
        self.slider.max = self.play.max = count(self.runs)
        self.paint()

    def _move(self, by: int) -> None:
        self.slider.value += by  # the slider keeps itself within its bounds

    def paint(self) -> None:
        """Show the picture and the words of the step that the slider is at."""
        number = self.slider.value - 1
        key = number, *look.key
        if key not in self._painted:
            self._painted[key] = png(paint(self.runs, number, self.draw_step, self.figsize))
        words = transcript(self.runs, number)
        self.picture.value, self.picture.tooltip = self._painted[key], f"{self.alt} {words}"
        self.sentence.value = self._described(number)

    def _described(self, number: int) -> str:
        """The sentences of a frame as HTML, which screen readers speak when it changes."""
        lines = "<br>".join(html.escape(line) for line in transcript(self.runs, number).split("\n"))
        return f'<div role="status" aria-live="polite" style="font-size:18px;line-height:1.35;min-height:2.8em">{lines}</div>'

    def _repr_mimebundle_(self, **kwargs):
        """The live widget, and for pages that cannot run it the first picture and what it is."""
        data, about = parts(super()._repr_mimebundle_(**kwargs))
        data["text/plain"] = f"[stepper, {count(self.runs)} steps; run the notebook to move it] {self.alt}"
        data["image/png"] = base64.b64encode(self.picture.value).decode()
        return data, about

    def _ipython_display_(self) -> None:
        show(self._repr_mimebundle_(), "move it")
