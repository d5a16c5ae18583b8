"""The colour key: what every colour means, and how else it can be told."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.show.draw.sheet import Sheet
from flashlearn.show.draw.style import COLOURS

ENTRIES = {
    "Q": "Q  queries",
    "K": "K  keys",
    "V": "V  values",
    "O": "O  output, acc",
    "S": "S, P  scores, probabilities;\nx, y  in one row of softmax",
    "m, l": "m, l  running maximum\nand running sum",
    "HBM": "HBM  the GPU's memory:\nlarge and slow",
    "SRAM": "SRAM  memory on the chip:\nsmall and fast",
    "masked": "masked: nobody sees it,\nalways hatched",
}


def draw_colour_key(ax: Axes) -> None:
    """The colour key: every colour, its one meaning, and how else it can be told."""
    sheet = Sheet(ax, 1280, 300)
    for n, (name, meaning) in enumerate(ENTRIES.items()):
        x, y = 16 + 425 * (n % 3), 16 + 95 * (n // 3)
        sheet.box((x, y, 64, 64), COLOURS[name], hatched=name == "masked")
        sheet.text(x + 78, y + 32, meaning, va="center")
    sheet.paint()
