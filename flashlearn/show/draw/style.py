"""One look for every picture: its roles, their colours in light and dark, and one stylesheet.

The colours are Okabe and Ito's (Color Universal Design, 2008), which stay apart for colour-blind readers.
Each has one meaning throughout, and none carries it alone: every part is also named, outlined or hatched.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("flashlearn.mplstyle")

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
MOVED = "#9A9A9A"  # bytes that moved before
HATCH = "///"  # as matplotlib has it
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")

# What a part of a scene is, and its colour on light and on dark paper.
ROLES = {
    "Q": ("#0072B2", "#3D9AE0"),
    "K": ("#E69F00", "#F0B33A"),
    "V": ("#009E73", "#2FBF94"),
    "O": ("#D55E00", "#F07A2E"),
    "S": ("#CC79A7", "#E39CC4"),
    "m": ("#56B4E9", "#8CCFF5"),
    "hbm": ("#F2F1ED", "#1D2129"),
    "sram": ("#FFF6DC", "#2A2616"),
    "masked": ("#D9D9D9", "#3A3F4A"),
    "blank": ("#FFFFFF", "#0F1116"),  # what holds nothing yet
    "ink": ("#1B1D22", "#E9E7E2"),
    "quiet": ("#5B6170", "#A3A8B4"),
    "moved": ("#9A9A9A", "#737A88"),  # bytes that moved before
    "line": ("#D5D3CD", "#3F4552"),  # between cells
    "hatch": ("#8A8A8A", "#8A91A0"),
    "hbm-edge": ("#8F8B80", "#6B7280"),
    "sram-edge": ("#A87D10", "#9A8238"),
    "m-text": ("#0072B2", "#8CCFF5"),  # sky blue is too pale for words
    "paper": ("#FFFFFF", "#14161B"),  # words on ink
    "on": ("#000000", "#10131A"),  # words on a full colour ...
    "on-Q": ("#FFFFFF", "#10131A"),  # ... and on the only dark one
}
TONES = {"pale": 0.16, "light": 0.34, "half": 0.55}  # strengths of a colour that is not full
DARK_TONES = {"pale": 0.2, "light": 0.3, "half": 0.4}  # pale words are read on them
FACES = 'Inter,"DejaVu Sans",Verdana,"Segoe UI",sans-serif'
DARK = "[data-theme=dark] .scene,[data-jp-theme-light=false] .scene,.dark .scene,.scene.dark"


def role(name: str) -> str:
    """The role of a matrix or a running value: "acc" is drawn as "O"."""
    found = MEANING.get(name, name)
    return {"P": "S", "m, l": "m", "HBM": "hbm", "SRAM": "sram"}.get(found, found)


@functools.cache
def stylesheet(plain: bool = False) -> str:
    """The stylesheet of every scene, for light and dark pages and for paper; `plain` for a file of its own, in light."""
    light, dark = (
        ";".join(
            f"--{name}:{value}" for name, value in ({name: pair[at] for name, pair in ROLES.items()} | tones).items()
        )
        for at, tones in ((0, TONES), (1, DARK_TONES))
    )

    def of(name: str) -> str:
        return ROLES[name][0] if plain else f"var(--{name})"

    rules = [f".scene{{font:14px {FACES};font-variant-numeric:tabular-nums;{'' if plain else light};fill:{of('ink')}}}"]
    rules += [] if plain else [f"{DARK}{{{dark}}}", f"@media print{{.scene,{DARK}{{{light}}}}}"]
    rules += [f".scene .{name}{{fill:{of(name)}}}.scene .e-{name}{{stroke:{of(name)}}}" for name in ROLES]
    rules += [f".scene .t-{name}{{fill:{of(name)}}}" for name in ("quiet", "m-text", "paper", "on", "on-Q")]
    rules += [f".scene .{tone}{{fill-opacity:{TONES[tone] if plain else f'var(--{tone})'}}}" for tone in TONES]
    rules += [".scene .none{fill:none}.scene .dash{stroke-dasharray:5 3}.scene .b{font-weight:700}"]
    rules += [f".scene .halo{{paint-order:stroke;stroke:{of('hbm')};stroke-width:4px}}"]
    rules += [".scene .mono{font-family:ui-monospace,'DejaVu Sans Mono',monospace}"]
    return "\n".join(rules)


def colour(name: str) -> str:
    """The colour of a matrix or a running value, on light paper."""
    if isinstance(name, str) and (name in MEANING or name in COLOURS):
        return COLOURS[MEANING.get(name, name)]
    known = ", ".join(map(repr, (*COLOURS, *MEANING)))
    raise ValueError(f"expected a name that has a colour, one of {known}, got {name!r}")


def rgb(face: Any) -> tuple[float, float, float]:
    """Red, green and blue, from 0 to 1, of "#0072B2", or of a tuple as it is."""
    if isinstance(face, str) and face.startswith("#"):
        r, g, b = (int(face[at : at + 2], 16) / 255 for at in (1, 3, 5))
    elif isinstance(face, str):
        r, g, b = {"white": (1.0, 1.0, 1.0), "black": (0.0, 0.0, 0.0)}[face]
    else:
        r, g, b = face[:3]
    return r, g, b


def tint(name: str, strength: float) -> tuple[float, float, float]:
    """That colour mixed with white: strength 1 is full, 0 is white."""
    if not 0 <= strength <= 1:
        raise ValueError(f"expected a strength from 0 to 1, got {strength!r}")
    r, g, b = (1 - strength * (1 - part) for part in rgb(colour(name)))
    return r, g, b


def contrast(one, other="white") -> float:
    """Of two colours, from 1 to 21 (WCAG 2: relative luminance)."""
    luminance = []
    for parts in map(rgb, (one, other)):
        linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        luminance.append(sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))
    return (max(luminance) + 0.05) / (min(luminance) + 0.05)


def outline_of(face, least: float = 4.5) -> tuple[float, float, float]:
    """The strong colour of a tint, dark enough to be an outline on white, HBM and SRAM."""
    away = [1 - part for part in rgb(face)]  # from white
    r, g, b = (1 - part / (max(away) or 1) for part in away)
    while contrast((r, g, b)) < least:
        r, g, b = 0.95 * r, 0.95 * g, 0.95 * b
    return r, g, b


def index(*numbers: int) -> str:
    """Block numbers as subscripts: 2, 1 gives ₂₁, and 12, 1 gives ₁₂,₁."""
    return (", " if max(numbers, default=0) > 9 else "").strip().join(map(str, numbers)).translate(SUBSCRIPTS)


def __getattr__(name: str) -> Any:
    """STYLE, the style file as matplotlib takes it, is read when it is first used: scenes need no matplotlib."""
    if name != "STYLE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from matplotlib import rc_params_from_file

    globals()["STYLE"] = found = dict(rc_params_from_file(FILE, use_default_template=False).items())
    return found
