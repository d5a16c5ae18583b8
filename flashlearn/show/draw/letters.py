"""How wide words are, without a font library: letters of DejaVu Sans, the widest of the faces that scenes are set in.

In Inter, Verdana and Segoe UI the same words take at most this room.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

# Thousandths of the size: the letters of that width. Source: the advance widths of DejaVu Sans 2.37.
_LETTERS = {
    230: "'′",
    280: "ijl",
    320: " ,.·",
    340: "/:;\\|",
    295: "IJ",
    355: "f-",
    390: "()[]tᵀ!²³₀₁₂₃₄₅₆₇₈₉ℓ",
    411: "r",
    525: "sz?⁻⁰¹⁴⁵⁶⁷⁸⁹",
    550: "c`*_L",
    592: "kvxyF",
    615: "aeogTYPδ",
    636: "0123456789bdhnpqu$E{}S",
    690: "ABCRVXZK▸",
    770: "DGHNUOQ▼▲&",
    838: "w+<=>^~#−×✓→←↑↓∞≤≥",
    990: "mW@M%…",
}
_WIDTHS = {letter: wide / 1000 for wide, letters in _LETTERS.items() for letter in letters}
BOLD = 1.12  # a bold face is so much wider
SMALL, RAISED, LOWERED = 0.8, -0.38, 0.2  # of the size: what is raised or lowered, and how far down
_SHIFTED = re.compile(r"([_^])\{([^{}]*)\}")


class Piece(NamedTuple):
    """A part of some words: on the line, raised or lowered by `shift` of the size."""

    text: str
    shift: float = 0.0

    def size(self, whole: float) -> float:
        """Pixels, where the line has `whole`."""
        return round(SMALL * whole, 1) if self.shift else whole


@functools.lru_cache(4096)
def width(words: str, size: float, bold: bool = False) -> float:
    """Pixels from the first letter to the last."""
    return sum(_WIDTHS.get(letter, 0.84) for letter in words) * size * (BOLD if bold else 1.0)


@functools.lru_cache(4096)
def pieces(words: str) -> tuple[Piece, ...]:
    """Words as pieces: "e^{3−5} = 1" has one that is raised."""
    if "{" not in words:
        return (Piece(words),)
    found, at = [], 0
    for match in _SHIFTED.finditer(words):
        found += [Piece(words[at : match.start()]), Piece(match[2], RAISED if match[1] == "^" else LOWERED)]
        at = match.end()
    return tuple(piece for piece in (*found, Piece(words[at:])) if piece.text)


def wrapped(words: str, room: float, size: float, bold: bool = False) -> list[str]:
    """Words in lines of at most that width; a word that is wider has a line of its own."""
    lines = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and width(longer, size, bold) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
