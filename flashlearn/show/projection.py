"""Projector mode: a notebook as slides for a lecture hall, and its widgets driven by the keyboard."""

from __future__ import annotations

import json
from importlib.resources import files

from IPython.display import display

from flashlearn.show.frame import look
from flashlearn.show.player import Player
from flashlearn.show.still import Still
from flashlearn.show.widgets import Stepper, script

KEYS = """\
Projector mode is on.
left, right            one step back, one step on
space                  play, pause
Home, End              the first step, the last step
Page Up, Page Down     the widget before, the widget after
Enter, Escape          show the code of the chosen cell, fold it away
flashlearn.projector(False), or loading the page again, ends it."""


def projector(on: bool = True) -> None:
    """Show this notebook for a projector: 1280 x 720 enlarged to the window, thick lines, black on white, code folded.

    Every stepper fills the screen, and needs no click before its keys work. `projector(False)` undoes it.
    Pictures painted from now on have thicker lines; run a cell again to have its animation so.
    """
    look.lines, look.scale = (1.6, 1.5) if on else (1.0, 1.0)
    for stepper in Stepper.all:
        stepper.paint()
    for player in Player.all:
        player.paint()
    for still in Still.all:
        still.paint()
    folder = files("flashlearn.show") / "browser"
    settings = json.dumps({"on": bool(on), "style": (folder / "projector.css").read_text()})
    print(KEYS if on else "Projector mode is off.")
    # A widget, because its script is not saved with the notebook and run when that is opened again.
    display(script((folder / "projector.js").read_text().replace("SETTINGS", settings)))
