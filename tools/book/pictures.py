"""Every picture of the book, in the sharpest form that there is of it: scenes, plots, or what the notebook has stored."""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from flashlearn.show import player
from tools.book import figures, frames


class Cover(NamedTuple):
    """The first picture of a notebook: where it is, and how it looks where there is much room and little."""

    slug: str
    wide: str
    narrow: str


class Pictures:
    """Writes the files of pictures into the source of the book and gives their figures, as HTML for a page in a folder.

    A slug is the number of a notebook and that of a picture in it, "07-3". Stored pictures are kept in `cache` by what they
    were made from, for cutting and packing them takes longest.
    """

    def __init__(self, source: Path, cache: Path):
        self.folder, self.cache = source / "frames", cache
        self.covers: dict[str, Cover] = {}  # by the number of a notebook
        self.pair = ""  # the first figure of notebook 07 that has two runs side by side

    def figure(self, slug: str, data: bytes, about: Mapping[str, Any], shown: Mapping[str, Any] | None) -> str:
        """The figure of a stored picture, of which `about` says what it shows; `shown` is what the cell displays now."""
        if shown and shown["kind"] == "plot":
            self._cover(slug, shown["wide"])
            return figures.plot(slug, shown)
        if shown and "scenes" in shown["run"]:
            return self._scenes(slug, shown["run"], shown["still"], len(shown["titles"]))
        if about.get("steps") and (len(about["steps"]) == 1 or frames.moves(data)):
            return self._painted(slug, data, about)
        with Image.open(io.BytesIO(data)) as image:
            self._kept(slug, data, lambda folder: frames.save(image, folder / "0.webp"))
            return self._still(slug, about["alt"], image.size)

    def _scenes(self, slug: str, run: Mapping[str, Any], still: int, titles: int) -> str:
        self._cover(slug, *figures.unpacked(run["scenes"], still))
        figures.write_scenes(self.folder / f"{slug}.js", run["scenes"])
        return self._noted(slug, titles, figures.run(slug, run, still, f"frames/{slug}.js"))

    def _painted(self, slug: str, data: bytes, about: Mapping[str, Any]) -> str:
        """A stored run as frames cut out of its animation, with panels side by side also one above the other."""
        run = player.stored({"metadata": {"image/png": about}})
        assert run is not None
        titles, count, seen = len({row[0] for row in about["steps"]}), len(run["captions"]), run.get("size")
        made_from = data + f"{titles} {seen}".encode()
        folder = self._kept(slug, made_from, lambda place: write_frames(place, data, count, titles, seen))
        layouts = ["", "tall-"] if titles > 1 else [""]
        files = [[f"frames/{slug}/{kind}{step}.webp" for kind in layouts] for step in range(count)]
        sizes = [size_of(folder / f"{kind}0.webp") for kind in layouts]
        self._cover(slug, figures.image(f"../{files[-1][0]}", "", sizes[0]))
        return self._noted(slug, titles, figures.painted(slug, run, files, sizes))

    def _still(self, slug: str, alt: str, size: Sequence[int]) -> str:
        file = f"../frames/{slug}/0.webp"
        self._cover(slug, figures.image(file, "", size))
        return figures.still(slug, file, alt, size)

    def _cover(self, slug: str, wide: str, narrow: str = "") -> None:
        names = (f"{slug}-cover", f"{slug}-small")
        wide, narrow = (figures.named(svg, name) for svg, name in zip((wide, narrow or wide), names, strict=True))
        self.covers.setdefault(slug[:2], Cover(slug, wide, narrow))

    def _noted(self, slug: str, titles: int, figure: str) -> str:
        if slug.startswith("07") and titles == 2:
            self.pair = self.pair or figure
        return figure

    def _kept(self, slug: str, made_from: bytes, make: Callable[[Path], None]) -> Path:
        """The folder of a picture's files: copied from the cache, where `make` writes them the first time."""
        key = hashlib.sha256(made_from + Path(frames.__file__).read_bytes()).hexdigest()[:24]
        if not (self.cache / key).is_dir():
            make(self.cache / f"{key}.part")
            (self.cache / f"{key}.part").rename(self.cache / key)
        return Path(shutil.copytree(self.cache / key, self.folder / slug))


def write_frames(folder: Path, data: bytes, count: int, titles: int, seen: Sequence[int] | None = None) -> None:
    """Every frame of a run, and if several runs are side by side also with them one above the other."""
    for number, frame in enumerate(frames.cut(data, count)):
        plain = frames.without_caption(frame, titles, seen)
        frames.save(plain, folder / f"{number}.webp")
        if titles > 1:
            frames.save(frames.stacked(plain, titles), folder / f"tall-{number}.webp")


def size_of(path: Path) -> tuple[int, int]:
    """Width and height of a picture."""
    with Image.open(path) as image:
        return image.size
