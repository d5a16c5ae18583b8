"""Projector mode: a notebook as slides for a lecture hall, and its widgets driven by the keyboard."""

from __future__ import annotations

import json

import ipywidgets as widgets
from IPython.display import display

from flashlearn.core.inputs import check_bool
from flashlearn.show.bundle import VIEW, browser_text, parts
from flashlearn.show.frame import look
from flashlearn.show.player import Player
from flashlearn.show.still import Still

KEYS = """\
Projector mode is on: players, explorers, pictures and questions fill the screen one after the other.
Page Down, Page Up     one step on, one step back; then the next picture, the one before (any clicker sends these)
right, left            one step on, one step back
down, up               the next picture, the one before
space                  play, pause
Home, End              the first step, the last step
1, 2, 3 ...            a choice of a question; Page Down or Enter takes it, and the answer is shown
b or .                 a black screen, and back
Escape                 read the notebook; Page Down goes back to the pictures
Enter                  the code of what is on the screen; Escape folds it away
The controls of a player are there while the pointer moves, and for Tab.
flashlearn.projector(False), or loading the page again, ends it."""


def script(source: str) -> widgets.Output:
    """A hidden widget that runs a script in the browser; there, `element` is its place on the page."""
    output = {"output_type": "display_data", "data": {"application/javascript": source}, "metadata": {}}
    return widgets.Output(outputs=(output,), layout={"display": "none"})


def projector(on: bool = True) -> None:
    """Show this notebook for a projector: 1280 x 720 enlarged to the window, thick lines, black on white, code folded.

    Players, explorers, pictures and questions are shown one at a time, each as large as the screen, from the first of the notebook
    on; their keys need no click. All are painted again with thicker lines. `projector(False)` undoes it.
    """
    check_bool(on, "on")
    look.lines, look.scale = (1.6, 1.5) if on else (1.0, 1.0)
    for player in Player.all:
        player.paint()
    for still in Still.all:
        still.paint()
    settings = json.dumps({"on": on, "style": browser_text("projector.css")})
    print(KEYS if on else "Projector mode is off.")
    # A widget, because its script is not saved with the notebook and run when that is opened again.
    data, about = parts(script(browser_text("projector.js").replace("SETTINGS", settings))._repr_mimebundle_())
    display({VIEW: data[VIEW]}, metadata=about, raw=True)  # nothing but the view: nothing of it is saved
