"""Painted frames as an animated PNG, one frame in memory at a time.

A frame of 1280 by 575 pixels takes 2.2 MB as it is painted and some 40 KB packed, so a film keeps its frames packed
and unpacks each when it is written. The file has one palette for all frames, and of each frame only what changed.
Layout of the file: PNG specification, third edition, "APNG: frame-based animation".
"""

from __future__ import annotations

import io
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from PIL import Image

FLAT, NEAR = 64, 48  # colours of a palette: those of the most pixels as they are, and means of the rest
LONGEST = 65535  # the largest numerator of a delay
SQUARE = 8  # pixels
SIGNATURE = b"\x89PNG\r\n\x1a\n"
KEEP, OVER = 0, 1  # a frame stays when the next one comes, and is painted over it


class Film(Sequence[Image.Image]):
    """Frames, packed without loss as they come."""

    def __init__(self, frames: Iterable[Image.Image] = ()):
        self._packed: list[bytes] = []
        self._most: Counter = Counter()  # colour -> the most pixels it has in any frame
        for frame in frames:
            self.add(frame)

    def add(self, frame: Image.Image) -> None:
        """One more frame."""
        self.size = frame.size
        self._most |= _colours(frame)
        self._packed.append(packed(frame))

    def __len__(self) -> int:
        return len(self._packed)

    def __getitem__(self, number: int) -> Image.Image:  # type: ignore[override]  # no slices
        return Image.open(io.BytesIO(self._packed[number]))

    def palette(self) -> np.ndarray:
        """Colours that all frames can be shown in, (colours, 3): flat ones exact, the rest near."""
        flat = [colour for colour, _ in self._most.most_common(FLAT)]
        width, height = self.size
        sample = Image.new("RGB", (width, 3 * height))
        for place, number in enumerate((0, len(self) // 2, -1)):
            sample.paste(self[number], (0, place * height))
        near = sample.quantize(NEAR, dither=Image.Dither.NONE).convert("RGB").getcolors(NEAR) or ()
        return np.array(flat + [colour for _, colour in near])


def packed(frame: Image.Image) -> bytes:
    """An RGB frame as a PNG file in less than half the time that Pillow takes, which tries five filters on each row."""
    width, height = frame.size
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # 0: no filter
    rows[:, 1:] = np.asarray(frame).reshape(height, 3 * width)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits each of red, green and blue
    chunks = (b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 1)), (b"IEND", b"")
    return SIGNATURE + b"".join(_chunk(*chunk) for chunk in chunks)


class _Change(NamedTuple):
    """What a frame changes: the corner of the rectangle, its size, its compressed pixels, and how long it stands."""

    corner: tuple[int, int]
    size: tuple[int, int]
    data: list[bytes]
    milliseconds: int


def animated(film: Film, delays: Sequence[int], still: int = -1) -> bytes:
    """The film as an animated PNG, with as many frames as the film has.

    delays  milliseconds that each frame stands
    still   the frame that stands for the whole where pictures do not move
    """
    palette = film.palette()
    clear = len(palette)  # what a frame does not change; in a colour of its own
    colours = np.vstack([palette, _unused(palette)])
    changes = list(_changes(film, palette, delays))
    first = _in_colours(nearest(film[still], palette), colours)
    stream = io.BytesIO()
    first.save(stream, "png", transparency=clear, optimize=True)
    return _assembled(stream.getvalue(), changes)


def frames(file: bytes) -> list[Image.Image]:
    """The frames of an animated PNG of `animated`, without the still before them; the one picture of another file."""
    image = Image.open(io.BytesIO(file))
    number = getattr(image, "n_frames", 1)
    shown = []
    for at in range(min(1, number - 1), number):
        image.seek(at)
        shown.append(image.convert("RGB"))
    return shown


def _changes(film: Film, palette: np.ndarray, delays: Sequence[int]) -> Iterator[_Change]:
    """Every frame, clear where no square of pixels has changed since the one before: new text packs better alone than
    between what is left of the old. Of a frame that changes nothing there is one clear pixel."""
    colours = np.vstack([palette, _unused(palette)])
    before: np.ndarray | None = None
    for image, milliseconds in zip(film, delays, strict=True):
        frame = nearest(image, palette)
        marked = np.ones_like(frame, bool) if before is None else _squares(before != frame)
        shown = np.where(marked, frame, len(palette))
        left, top, right, bottom = _bounds(marked)
        data = _compressed(_in_colours(shown[top:bottom, left:right], colours))
        yield _Change((left, top), (right - left, bottom - top), data, milliseconds)
        before = frame


def nearest(frame: Image.Image, palette: np.ndarray) -> np.ndarray:
    """For every pixel the number of the nearest colour. (Pillow's own matching is off by a few shades.)"""
    colours = np.array(list(_colours(frame)))
    number = np.empty((256, 256, 256), np.uint8)  # by red, green and blue; only those of this frame are filled in
    number[tuple(colours.T)] = ((colours[:, None] - palette) ** 2).sum(-1).argmin(1)
    return number[tuple(np.moveaxis(np.asarray(frame), -1, 0))]


def _colours(frame: Image.Image) -> Counter:
    """colour -> pixels that have it."""
    width, height = frame.size
    return Counter({colour: pixels for pixels, colour in frame.getcolors(width * height) or ()})


def _unused(palette: np.ndarray) -> tuple[int, int, int]:
    """A colour that is not in the palette."""
    used = set(map(tuple, palette.tolist()))
    return next((shade, 0, 255) for shade in range(256) if (shade, 0, 255) not in used)


def _in_colours(numbers: np.ndarray, colours: np.ndarray) -> Image.Image:
    """A picture from the numbers of its colours."""
    image = Image.fromarray(numbers.astype(np.uint8), "P")
    image.putpalette(colours.astype(np.uint8).tobytes())
    return image


def _squares(marked: np.ndarray) -> np.ndarray:
    """What is marked, grown to whole squares of `SQUARE` by `SQUARE` pixels."""
    height, width = marked.shape
    whole = np.zeros((-(-height // SQUARE), SQUARE, -(-width // SQUARE), SQUARE), bool)
    whole.reshape(whole.shape[0] * SQUARE, -1)[:height, :width] = marked
    grown = np.broadcast_to(whole.any((1, 3), keepdims=True), whole.shape)
    return grown.reshape(whole.shape[0] * SQUARE, -1)[:height, :width]


def _bounds(marked: np.ndarray) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of what is marked; one pixel if nothing is."""
    rows, cols = (np.flatnonzero(marked.any(axis)) for axis in (1, 0))
    return (int(cols[0]), int(rows[0]), int(cols[-1]) + 1, int(rows[-1]) + 1) if rows.size else (0, 0, 1, 1)


# --- the file ----------------------------------------------------------------------------------------------


def _assembled(still: bytes, changes: list[_Change]) -> bytes:
    """The still's PNG file with the animation put in: its control chunk before the pixels, the frames after them."""
    chunks = list(_chunks(still))
    pixels = next(place for place, (kind, _) in enumerate(chunks) if kind == b"IDAT")
    chunks.insert(pixels, (b"acTL", struct.pack(">II", len(changes), 0)))  # 0: play for ever
    chunks[-1:-1] = _frames(changes)  # before IEND
    return still[:8] + b"".join(_chunk(*chunk) for chunk in chunks)


def _frames(changes: list[_Change]) -> Iterator[tuple[bytes, bytes]]:
    """Control and pixels of every frame, chunk by chunk, numbered in one sequence."""
    number = 0
    for change in changes:
        delay = _delay(change.milliseconds)
        times = delay.numerator, delay.denominator
        yield b"fcTL", struct.pack(">IIIIIHHBB", number, *change.size, *change.corner, *times, KEEP, OVER)
        for place, data in enumerate(change.data):
            yield b"fdAT", struct.pack(">I", number + 1 + place) + data
        number += 1 + len(change.data)


def _delay(milliseconds: int) -> Fraction:
    """In seconds, as the file has it."""
    return Fraction(milliseconds / 1000).limit_denominator(LONGEST)


def _compressed(image: Image.Image) -> list[bytes]:
    """The compressed pixels of a picture, as its PNG file has them."""
    stream = io.BytesIO()
    image.save(stream, "png", compress_level=8)  # 9 takes a third longer for 3 % less
    return [data for kind, data in _chunks(stream.getvalue()) if kind == b"IDAT"]


def _chunks(file: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of every chunk of a PNG file."""
    at = 8  # after the signature
    while at < len(file):
        length, kind = struct.unpack_from(">I4s", file, at)
        yield kind, file[at + 8 : at + 8 + length]
        at += 12 + length


def _chunk(kind: bytes, data: bytes) -> bytes:
    """One chunk with its length and its checksum."""
    return struct.pack(">I4s", len(data), kind) + data + struct.pack(">I", zlib.crc32(kind + data))
