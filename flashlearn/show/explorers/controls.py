"""What explorers have in common: controls that wrap, and sentences that move nothing."""

from __future__ import annotations

import html
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import ipywidgets as widgets

from flashlearn.core.steps import Step
from flashlearn.show.frame import words
from flashlearn.show.widgets import Stepper

TRACK, READOUT = 124, 98  # pixels of a slider beside its label: what is dragged, and the number with its margins


class Explorer(Stepper):
    """A stepper that keeps room for its longest sentence: from step to step nothing moves, and the picture keeps its size."""

    def __init__(self, *run: Any, **how: Any):
        super().__init__(*run, **how)
        self.picture.layout.margin, self.layout.overflow = "0", "visible"  # or the whole scrolls by that margin
        stretch(self.slider)

    def _described(self, number: int) -> str:
        """A column for every run: its sentence, over the room that its longest takes."""
        said = {title: [self._said(title, step) for step in run] for title, run in self.runs.items()}
        longest = _columns({title: max(texts, key=len) for title, texts in said.items()})
        now = _columns({title: texts[min(number, len(texts) - 1)] for title, texts in said.items()})
        return (
            '<div class="flashlearn-columns" style="display:grid;max-width:1280px;font-size:16px;line-height:20px">'
            f'<div aria-hidden="true" style="{OVER}visibility:hidden">{longest}</div>'
            f'<div role="status" aria-live="polite" style="{OVER}">{now}</div></div>'
        )

    def _said(self, title: str, step: Step) -> str:
        return words(step)


OVER = "grid-area:1/1;display:flex;gap:24px;"  # one over the other


def _columns(texts: dict[str, str]) -> str:
    """Texts side by side; their titles, which the picture shows, for screen readers alone."""
    title = '<span style="position:absolute;left:-9999px">{}: </span>'
    return "".join(
        f'<div style="flex:1">{title.format(html.escape(name)) if name else ""}{html.escape(text)}</div>'
        for name, text in texts.items()
    )


def look(width: int, label: int) -> dict[str, dict[str, str]]:
    """The width of a control and of the label in it, in pixels; it takes what is left of its row."""
    sides = {"width": "auto", "min_width": f"{width}px", "flex": f"1 1 {width}px", "max_width": f"{width + 160}px"}
    return {"layout": sides, "style": {"description_width": f"{label}px"}}


def slider_look(label: int) -> dict[str, dict[str, str]]:
    """`look` for a slider with a label of so many pixels."""
    return look(label + TRACK + READOUT, label)


def stretch(step: widgets.IntSlider) -> None:
    """The slider over the steps takes what is left of its row."""
    step.layout.width, step.layout.min_width, step.layout.flex = "auto", "260px", "1 1 260px"


def row(*controls: widgets.Widget) -> widgets.HBox:
    """Controls in a row, or in several where they do not fit into one; nothing scrolls."""
    return widgets.HBox(controls, layout={"flex_flow": "row wrap", "overflow": "visible"})


def slider(
    name: str, bounds: tuple[int, int], value: int, tooltip: str, look: dict, argument: str = ""
) -> widgets.IntSlider:
    """A slider that acts when it is let go, or at each press of an arrow key.

    ValueError or TypeError for a first value that it would change; `argument` is what it is called there, `name` unless given.
    """
    low, high = bounds
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"expected {argument or name} to be an int, got {type(value).__name__}")
    if not low <= value <= high:
        raise ValueError(f"expected {argument or name} from {low} to {high}, got {value}")
    acts = {"continuous_update": False, "tooltip": tooltip}
    return widgets.IntSlider(description=name, value=value, min=low, max=high, **acts, **look)


def check_choice(name: str, options: Sequence[Any], value: Any) -> None:
    """ValueError for what is none of the options."""
    if isinstance(value, bool) or value not in options:
        raise ValueError(f"expected {name} to be one of {', '.join(map(repr, options))}, got {value!r}")
