"""One look for every picture: its colours, its numbers, and one style file.

The colours are Okabe and Ito's (Color Universal Design, 2008), which stay apart for colour-blind readers.
Each has one meaning throughout, and none carries it alone: every part is also named, outlined or hatched.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from matplotlib import colors, rc_params_from_file

FILE = Path(__file__).with_name("flashlearn.mplstyle")
STYLE: dict[str, Any] = dict(rc_params_from_file(FILE, use_default_template=False).items())  # read once

COLOURS = {
    "Q": "#0072B2",  # blue
    "K": "#E69F00",  # orange
    "V": "#009E73",  # bluish green
    "O": "#D55E00",  # vermillion
    "S": "#CC79A7",  # reddish purple: scores, and the logits x of part I
    "P": "#CC79A7",  # ... and the probabilities, and y: they stand in the same place
    "m, l": "#56B4E9",  # sky blue: the running values
    "HBM": "#F2F2F2",  # light grey
    "SRAM": "#FFF6D6",  # a tint of Okabe and Ito's yellow
    "masked": "#D9D9D9",  # grey, always hatched
}
MEANING = {
    "x": "S",
    "y": "P",
    "m_i": "m, l",
    "l_i": "m, l",
    "lse": "m, l",
    "delta": "m, l",
    "acc": "O",
    "o'": "O",
    "dQ": "Q",
    "dK": "K",
    "dV": "V",
    "dO": "O",
    "dS": "S",
    "dP": "P",
    "A": "Q",
    "B": "K",
    "C": "S",  # left factor, right factor and product, as in S = Q K^T
}
INK = "#1A1A1A"
QUIET = "#5A5A5A"
FAINT = "#D5D5D5"  # between cells
PALE = "#8A8A8A"  # the outline of what is not there yet
MOVED = "#9A9A9A"  # bytes that moved before
EDGE = {"HBM": QUIET, "SRAM": "#B8860B"}  # around a memory
HATCH, HATCHING = "///", "#8A8A8A"
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def colour(name: str) -> str:
    """The colour of a matrix or a running value."""
    if isinstance(name, str) and (name in MEANING or name in COLOURS):
        return COLOURS[MEANING.get(name, name)]
    known = ", ".join(map(repr, (*COLOURS, *MEANING)))
    raise ValueError(f"expected a name that has a colour, one of {known}, got {name!r}")


def tint(name: str, strength: float) -> tuple[float, float, float]:
    """That colour mixed with white: strength 1 is full, 0 is white."""
    if not 0 <= strength <= 1:
        raise ValueError(f"expected a strength from 0 to 1, got {strength!r}")
    r, g, b = (1 - strength * (1 - part) for part in colors.to_rgb(colour(name)))
    return r, g, b


def contrast(one, other="white") -> float:
    """Of two colours, from 1 to 21 (WCAG 2: relative luminance)."""
    luminance = []
    for rgb in map(colors.to_rgb, (one, other)):
        linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb)
        luminance.append(sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))
    return (max(luminance) + 0.05) / (min(luminance) + 0.05)


def outline_of(face, least: float = 4.5) -> tuple[float, float, float]:
    """The strong colour of a tint, dark enough to be an outline on white, HBM and SRAM."""
    away = [1 - part for part in colors.to_rgb(face)]  # from white
    r, g, b = (1 - part / (max(away) or 1) for part in away)
    while contrast((r, g, b)) < least:
        r, g, b = 0.95 * r, 0.95 * g, 0.95 * b
    return r, g, b


def ink_on(name: str) -> str:
    """The ink that can be read on a matrix's full colour: a contrast of 4.5 or more (WCAG)."""
    return "white" if name in ("Q", "A", "dQ") else "black"


def number(value: float, digits: int = 4) -> str:
    """A number as pictures print it; infinities and NaN by their signs, no minus sign before a zero."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.1e}".replace("-", "−")
    return f"{round(value, digits) + 0.0:.{digits}f}".rstrip("0").rstrip(".").replace("-", "−")


def fixed(value: float, digits: int) -> str:
    """A number with that many digits, so that columns line up; no minus sign before a zero."""
    return number(value) if math.isinf(value) else f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def index(*numbers: int) -> str:
    """Block numbers as subscripts: 2, 1 gives ₂₁, and 12, 1 gives ₁₂,₁."""
    return (", " if max(numbers, default=0) > 9 else "").strip().join(map(str, numbers)).translate(SUBSCRIPTS)
