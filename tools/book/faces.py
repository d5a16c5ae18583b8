"""The faces of the book, cut down from packages of the extra `book`: Source Serif 4 for text, Inter for everything else.

Both have the SIL Open Font License 1.1, whose text is written next to them. Formulas are set in STIX Two Math, see `formulas`.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont
from fontTools.varLib import instancer

LATIN = "".join(map(chr, [*range(0x20, 0x7F), *range(0xA0, 0x180)]))
GREEK = "".join(map(chr, [*range(0x391, 0x3AA), *range(0x3B1, 0x3CA)]))
SIGNS = "–—‘’“”…−×÷±·≤≥≠≈←→↑↓ℓ₀₁₂₃₄₅₆₇₈₉⁰¹²³⁴⁵⁶⁷⁸⁹⁻"
FEATURES = ["calt", "case", "ccmp", "kern", "liga", "lnum", "locl", "mark", "mkmk", "tnum"]


@dataclass(frozen=True)
class Face:
    """A font file of a package, and the ranges of its axes that the book uses."""

    name: str
    package: str
    file: str
    weight: tuple[int, int] | int


FACES = (
    Face("text", "fontpkg-source-serif-4", "SourceSerif4[opsz,wght].ttf", (400, 700)),
    Face("text-italic", "fontpkg-source-serif-4", "SourceSerif4-Italic[opsz,wght].ttf", 400),
    Face("labels", "fontpkg-inter", "Inter[opsz,wght].ttf", (400, 700)),
)


def write(static: Path, cache: Path) -> None:
    """Write every face as WOFF, and its licence, into `static`; cutting takes seconds, so the result is kept in `cache`."""
    logging.getLogger("fontTools").setLevel(logging.ERROR)
    static.mkdir(parents=True, exist_ok=True)
    for face in FACES:
        folder = folder_of(face.package)
        made_from = f"{face} {version(face.package)} {Path(__file__).read_text(encoding='utf-8')}"
        kept = cache / f"{face.name}-{hashlib.sha256(made_from.encode()).hexdigest()[:12]}.woff"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            cut(folder / "files" / face.file, face.weight, kept)
        shutil.copy(kept, static / f"{face.name}.woff")
        shutil.copy(folder / "LICENSE", static / f"{face.package}-LICENSE.txt")


def folder_of(package: str) -> Path:
    """Where a package is installed. ModuleNotFoundError if it is not."""
    found = find_spec(package.replace("-", "_"))
    if found is None or found.origin is None:
        raise ModuleNotFoundError(
            f"expected the package {package}, whose font the book is set in; it is in the extra `book`"
        )
    return Path(found.origin).parent


def cut(source: Path, weight: tuple[int, int] | int, path: Path) -> None:
    """Write a font with Latin, Greek and some signs, in one optical size, as WOFF."""
    font = TTFont(source)
    cutter = subset.Subsetter(subset.Options(hinting=False, layout_features=FEATURES))
    cutter.populate(text=LATIN + GREEK + SIGNS)
    cutter.subset(font)
    font = instancer.instantiateVariableFont(font, {"opsz": 14, "wght": weight})
    font.flavor = "woff"
    font.save(path)
