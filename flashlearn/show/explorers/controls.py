"""Controls that explorers have in common."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import ipywidgets as widgets


def look(width: int, label: int) -> dict[str, dict[str, str]]:
    """The width of a control and of the label in it, in pixels."""
    return {"layout": {"width": f"{width}px"}, "style": {"description_width": f"{label}px"}}


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
