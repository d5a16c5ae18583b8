"""Controls that explorers have in common."""

from __future__ import annotations

import ipywidgets as widgets


def look(width: int, label: int) -> dict[str, dict[str, str]]:
    """The width of a control and of the label in it, in pixels."""
    return {"layout": {"width": f"{width}px"}, "style": {"description_width": f"{label}px"}}


def slider(name: str, bounds: tuple[int, int], value: int, tooltip: str, look: dict) -> widgets.IntSlider:
    """A slider that acts when it is let go, or at each press of an arrow key."""
    low, high = bounds
    acts = {"continuous_update": False, "tooltip": tooltip}
    return widgets.IntSlider(description=name, value=value, min=low, max=high, **acts, **look)
