"""One look for every picture: the colour key, the parts that all pictures share, and one style file.

The colours are Okabe and Ito's (Color Universal Design, 2008), which stay apart for colour-blind readers.
Each has one meaning throughout, and none carries it alone: every part is also named, outlined or hatched.
"""

from __future__ import annotations

import math
from pathlib import Path

from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from flashlearn.core.steps import Step, hbm_bytes

STYLE = Path(__file__).with_name("flashlearn.mplstyle")

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
    "x": "S", "y": "P", "m_i": "m, l", "l_i": "m, l", "lse": "m, l", "delta": "m, l", "acc": "O",
    "dQ": "Q", "dK": "K", "dV": "V", "dO": "O", "dS": "S", "dP": "P",
    "A": "Q", "B": "K", "C": "S",  # left factor, right factor and product, as in S = Q K^T
}  # fmt: skip
INK = "#1A1A1A"
QUIET = "#5A5A5A"
HATCH = "///"


def colour(name: str) -> str:
    """The colour of a matrix or a running value."""
    return COLOURS[MEANING.get(name, name)]


def tint(name: str, strength: float) -> tuple[float, float, float]:
    """That colour mixed with white: strength 1 is full, 0 is white."""
    return tuple(1 - strength * (1 - part) for part in colors.to_rgb(colour(name)))


def canvas(ax: Axes, width: float, height: float) -> None:
    """Give `ax` a plain drawing surface, `width` by `height`, origin at the top left, y downwards."""
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
    ax.set_axis_off()


def box(ax: Axes, x: float, y: float, w: float, h: float, face="white", edge=INK, width=1.0, **more) -> None:
    """A rectangle with its top left corner at (x, y)."""
    # add_artist, not add_patch: the limits of a canvas are fixed, and finding them anew costs a fifth of the time
    ax.add_artist(Rectangle((x, y), w, h, facecolor=face, edgecolor=edge, linewidth=width, **more))


def panel(ax: Axes, x: float, y: float, w: float, h: float, where: str, note: str = "") -> None:
    """A memory: a box named HBM or SRAM, with a note at its right."""
    box(ax, x, y, w, h, face=COLOURS[where], edge=QUIET, width=1.5)
    ax.text(x + 12, y + 10, where, weight="bold", va="top", color=QUIET)
    ax.text(x + w - 12, y + 10, note, va="top", ha="right", color=INK, family="monospace", fontsize=15)


def traffic_note(step: Step) -> str:
    """The bytes moved so far in this run."""
    read, written = hbm_bytes(step.so_far)
    return f"read {read:,} B   written {written:,} B"


def pass_note(step: Step) -> str:
    """Which pass over HBM this is, e.g. "pass 2 of 3: sum"."""
    phases = list(dict.fromkeys(s.phase for s in step.run or (step,) if s.reads))
    if step.phase not in phases:
        return step.phase
    return f"pass {phases.index(step.phase) + 1} of {len(phases)}: {step.phase}"


def number(value: float, digits: int = 4) -> str:
    """A number as pictures print it; infinities and NaN by their signs."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.1e}".replace("-", "−")
    return f"{value:.{digits}f}".rstrip("0").rstrip(".").replace("-", "−")


def draw_colour_key(ax: Axes) -> None:
    """The colour key: every colour, its one meaning, and how else it can be told."""
    canvas(ax, 1280, 300)
    entries = [
        ("Q", "Q  queries"), ("K", "K  keys"), ("V", "V  values"),
        ("O", "O  output, acc"), ("S", "S, P  scores, probabilities;\nx, y  in one row of softmax"),
        ("m, l", "m, l  running maximum\nand running sum"), ("HBM", "HBM  the GPU's memory:\nlarge and slow"),
        ("SRAM", "SRAM  memory on the chip:\nsmall and fast"), ("masked", "masked: not computed,\nalways hatched"),
    ]  # fmt: skip
    for place, (name, meaning) in enumerate(entries):
        x, y = 16 + 425 * (place % 3), 16 + 95 * (place // 3)
        box(ax, x, y, 64, 64, face=COLOURS[name], hatch=HATCH if name == "masked" else None)
        ax.text(x + 78, y + 32, meaning, va="center")
