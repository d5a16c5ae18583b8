"""The frames of a stored animation, one picture a step, without the sentence that is painted below it.

For narrow screens the panels of several runs stand one above the other.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

DPI = 100
CAPTION, CAPTIONS = 0.75, 1.45  # inches that a sentence took below a picture, and those of runs side by side


def cut(png: bytes, count: int) -> list[Image.Image]:
    """The picture of each of `count` steps; one that stands for several steps, since they look alike, comes as often.

    ValueError if the file has another number of steps.
    """
    with Image.open(io.BytesIO(png)) as film:
        first = 1 if film.info.get("default_image") else 0  # a still that is no part of the animation
        shown = []
        for number in range(first, getattr(film, "n_frames", 1)):
            film.seek(number)
            shown.append((film.convert("RGB"), float(film.info.get("duration", 0))))
    pictures = [picture for picture, _ in shown]
    if len(pictures) < count:
        pictures = _repeated(shown, count)
    if len(pictures) != count:
        raise ValueError(f"expected {count} frames, one for each step, got {len(pictures)}")
    return pictures


def delays(png: bytes) -> list[int]:
    """Milliseconds that each frame of an animated PNG stands: the numerator and denominator in its control chunks."""
    found, at = [], 8  # after the signature
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        if kind == b"fcTL":
            over, under = struct.unpack_from(">HH", png, at + 8 + 20)
            found.append(round(1000 * over / (under or 100)))
        at += 12 + length
    return found


def _repeated(shown: list[tuple[Image.Image, float]], count: int) -> list[Image.Image]:
    """Each picture once for every step it stands for: by how long it stands, the last step three times as long."""
    one = sum(delay for _, delay in shown) / (count + 2)
    last = len(shown) - 1
    times = [round(delay / one) - (2 if number == last else 0) for number, (_, delay) in enumerate(shown)]
    return [picture for (picture, _), often in zip(shown, times, strict=True) for _ in range(often)]


def moves(png: bytes) -> bool:
    """Whether there are frames in it: FLASHLEARN_REDUCED_MOTION has stills stored in their place."""
    with Image.open(io.BytesIO(png)) as image:
        return getattr(image, "is_animated", False)


def without_caption(picture: Image.Image, runs: int, size: Sequence[int] | None = None) -> Image.Image:
    """A painted frame without the sentence below it: `size` is what is seen of it, where the notebook says so."""
    width, height = size or (picture.size[0], picture.size[1] - round(DPI * (CAPTION if runs == 1 else CAPTIONS)))
    return picture.crop((0, 0, width, height))


def stacked(picture: Image.Image, panels: int) -> Image.Image:
    """The panels that stand side by side, one above the other, for a narrow screen."""
    width, height = picture.size[0] // panels, picture.size[1]
    pile = Image.new("RGB", (width, panels * height), "white")
    for number in range(panels):
        pile.paste(picture.crop((number * width, 0, (number + 1) * width, height)), (0, number * height))
    return pile


def save(picture: Image.Image, path: Path) -> None:
    """Write one picture as lossless WebP, half the bytes of a PNG; its colours are those of the animation."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = picture.convert("RGB")  # a copy
    plain.info = {}  # without what the file said of it
    plain.save(path, "webp", lossless=True, quality=40, method=3)
