"""Notebooks as pages: stored runs become players, pictures figures, and every chapter says where it can be run."""

from __future__ import annotations

import ast
import base64
import hashlib
import html
import io
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import nbformat
from nbformat.v4 import new_markdown_cell, new_output
from PIL import Image

from flashlearn.cost import standard_cost
from flashlearn.show import player, position
from flashlearn.show.course import STAGES
from flashlearn.show.frame import table_html
from tools.book import chapter, frames
from tools.book.address import Address
from tools.book.colab import without_outputs
from tools.book.theme import without_number

EXPLORERS = {"tiling_explorer(": "tiling"}  # what a cell calls -> what the page shows in place of its still
MAP = 'Every algorithm with what it moves, counted from its steps. <a href="_static/map.html">The same on one page, to print</a>.'
PREDICT = "application/vnd.flashlearn.predict+json"  # questions: see book/_static/predict.js


class Book:
    """The source of the book: its pages, and the pictures that they load by themselves.

    Pictures are kept in `cache` by what they were made from, for cutting and packing them takes longest.
    """

    def __init__(self, root: Path, source: Path, cache: Path):
        self.root, self.source, self.cache = root, source, cache
        self.address = Address.of(root)
        self.covers: dict[str, str] = {}
        (source / "notebooks").mkdir(parents=True, exist_ok=True)

    def chapter(self, path: Path) -> None:
        """Write one notebook as a page, and as a file to download."""
        notebook = nbformat.read(path, as_version=4)
        self.download(path, notebook)
        number, pictures = path.stem[:2], 0
        for cell in notebook.cells:
            for at, output in enumerate(cell.get("outputs", [])):
                if PREDICT in output.get("data", {}):
                    cell.outputs[at] = shown(questions(output.data[PREDICT], output.data.get("text/html", "")))
                elif "image/png" in output.get("data", {}):
                    pictures += 1
                    cell.outputs[at] = self.picture(f"{number}-{pictures}", cell, output)
                    if path.stem not in self.covers:
                        self.covers[path.stem] = cover(f"{number}-{pictures}")
        self.open(notebook, self.links(path, "links"))
        exercises = next(at for at, cell in enumerate(notebook.cells) if "## Exercises" in cell.source.split("\n"))
        notebook.cells.insert(exercises + 1, new_markdown_cell(self.links(path, "exercise-links")))
        nbformat.write(notebook, self.source / "notebooks" / path.name)

    @staticmethod
    def open(notebook: Any, links: str) -> None:
        """Fold what most readers skip; the first cell becomes the chapter's opening."""
        for cell in notebook.cells:
            if cell.cell_type == "code":
                chapter.fold(cell)
        first, rest = chapter.opening(notebook.cells[0].source, links)
        notebook.cells[:1] = [new_markdown_cell(first), new_markdown_cell(rest)][: 2 if rest else 1]

    def download(self, path: Path, notebook: Any) -> None:
        """The notebook without its outputs, for the reader's own machine."""
        (self.source / "download").mkdir(exist_ok=True)
        nbformat.write(without_outputs(notebook), self.source / "download" / path.name)

    def links(self, path: Path, kind: str) -> str:
        """Where this notebook can be run, as a line of links."""
        name = "Run it" if kind == "links" else "Do them"
        ways = {
            "in Binder": self.address.binder(path.name),
            "in Colab": self.address.colab(path.name),
            "on your own machine: download": f"../download/{path.name}",
        }
        links = " ".join(f'<a href="{html.escape(url)}">{words}</a>' for words, url in ways.items())
        return f'<p class="{kind}"><span>{name}</span> {links}</p>'

    def picture(self, slug: str, cell: Any, output: Any) -> Any:
        """One stored picture as a figure: an explorer, a player, or a still."""
        explorer = next((name for call, name in EXPLORERS.items() if call in cell.source), None)
        about = output.get("metadata", {}).get("image/png", {})
        alt = about.get("alt") or output.data.get("text/plain", "")
        data = base64.b64decode(output.data["image/png"])
        if explorer:
            start = html.escape(start_of(cell.source))
            still = self.still(slug, data, alt)
            return shown(f'<div data-explorer="{explorer}" data-embedded data-start="{start}">{still}</div>')
        if about.get("steps") and (len(about["steps"]) == 1 or frames.moves(data)):
            return shown(self.run(slug, data, about))
        return shown(self.still(slug, data, alt))

    def still(self, slug: str, data: bytes, alt: str) -> str:
        """A picture that does not move."""
        with Image.open(io.BytesIO(data)) as image:
            size = image.size
            self.kept(slug, data, lambda folder: frames.save(image, folder / "0.webp"))
        return f'<figure class="still"><div class="picture">{picture(f"{slug}/0", alt, size)}</div></figure>'

    def run(self, slug: str, data: bytes, about: Mapping[str, Any], more: str = "") -> str:
        """A stored run: what the player needs, and for pages without scripts the last frame and the table."""
        alt, steps, run = about["alt"], about["steps"], about.get("player", {})
        sentences = player.captions(steps)
        titles = len({row[0] for row in steps})
        seen = run.get("size")
        made_from = data + f"{titles} {seen}".encode()
        folder = self.kept(slug, made_from, lambda place: write_frames(place, data, len(sentences), titles, seen))
        size = size_of(folder / "0.webp")
        tall = size_of(folder / "tall-0.webp") if titles > 1 else None
        asked = {name: run[name] for name in ("predict", "questions") if name in run}
        stands = frames.delays(data)
        stored = {"alt": alt, "captions": sentences, "size": size, "tall": tall, **asked}
        stored["delays"] = stands if len(stands) == len(sentences) else []
        words = json.dumps(stored, ensure_ascii=False).replace("</", "<\\/")
        last = len(sentences) - 1
        table = f'<div class="scroll" tabindex="0" role="group" aria-label="all steps">{table_html(list(map(list, steps)), alt)}</div>'
        return (
            f'<figure class="run" data-folder="frames/{slug}" data-count="{len(sentences)}"{more} style="{natural(size)}">'
            f'<script type="application/json">{words}</script>'
            f'<noscript><div class="picture">{picture(f"{slug}/{last}", alt, size)}</div></noscript>'
            f"<details><summary>All steps in words</summary>{table}</details></figure>"
        )

    def kept(self, slug: str, made_from: bytes, make) -> Path:
        """The folder of a picture's files: copied from the cache, where `make` writes them the first time."""
        key = hashlib.sha256(made_from + Path(frames.__file__).read_bytes()).hexdigest()[:24]
        if not (self.cache / key).is_dir():
            make(self.cache / f"{key}.part")
            (self.cache / f"{key}.part").rename(self.cache / key)
        return Path(shutil.copytree(self.cache / key, self.source / "frames" / slug))

    def front(self, notebooks: list[Path]) -> None:
        """The first page, the instructors' guide, and what is in the book."""
        first = (self.root / "book" / "index.md").read_text(encoding="utf-8")
        readme = (self.root / "README.md").read_text(encoding="utf-8")
        ladder = readme[readme.index("| notebook | function") :].split("\n\n")[0]
        parts = {"ladder": ladder, "player": self.first_player(), "number": number(), "chapters": self.cards(notebooks)}
        for name, text in parts.items():
            first = first.replace(f"{{{{{name}}}}}", text)
        appendices = sorted((self.root / "notebooks").glob("[0-9][0-9]_appendix.md"))
        for path in appendices:
            text = without_number(path.read_text(encoding="utf-8"))
            (self.source / "notebooks" / path.name).write_text(text, encoding="utf-8")
        (self.source / "index.md").write_text(
            first + contents(sorted([*notebooks, *appendices], key=chapter_order)), encoding="utf-8"
        )
        shutil.copy(self.root / "notebooks" / "INSTRUCTORS.md", self.source / "instructors.md")
        self.map()

    def cards(self, notebooks: list[Path]) -> str:
        """Every chapter with the first of its pictures, by part."""
        parts: dict[str, list[str]] = {}
        for path in notebooks:
            cover = self.covers.get(path.stem, "")
            card = (
                f'<li><a href="notebooks/{path.stem}.html">{cover}<span>{html.escape(title_of(path))}</span></a></li>'
            )
            parts.setdefault(part_of(path.stem[:2]), []).append(card)
        return "".join(f'<h3>{part}</h3>\n<ul class="cards">{"".join(inside)}</ul>\n' for part, inside in parts.items())

    def map(self) -> None:
        """The map of all algorithms, as a page of the book and as one to print."""
        table = f'<div class="scroll" tabindex="0" role="group" aria-label="the map">{position.course_table()}</div>'
        words = f"# The map\n\n{MAP}\n\n{table}\n\n{position.legend()}\n"
        (self.source / "map.md").write_text(words, encoding="utf-8")
        (self.source / "_static").mkdir(exist_ok=True)
        (self.source / "_static" / "map.html").write_text(position.page(), encoding="utf-8")

    def first_player(self) -> str:
        """Notebook 07's two versions side by side, which plays as soon as the page is there."""
        notebook = nbformat.read(next((self.root / "notebooks").glob("07_*.ipynb")), as_version=4)
        runs = (o for cell in notebook.cells for o in cell.get("outputs", []) if "image/png" in o.get("data", {}))
        for output in runs:
            about = output.metadata.get("image/png", {})
            if about.get("steps") and len({row[0] for row in about["steps"]}) == 2:
                data = base64.b64decode(output.data["image/png"])
                run = self.run("first", data, about, " data-autoplay")
                return run.replace('"../frames/', '"frames/')
        raise ValueError("expected a run of two versions in notebook 07, got none")


def write_frames(folder: Path, data: bytes, count: int, titles: int, seen: Sequence[int] | None = None) -> None:
    """Every frame of a run, and if several runs stand side by side also with them one above the other."""
    for number, frame in enumerate(frames.cut(data, count)):
        plain = frames.without_caption(frame, titles, seen)
        frames.save(plain, folder / f"{number}.webp")
        if titles > 1:
            frames.save(frames.stacked(plain, titles), folder / f"tall-{number}.webp")


def chapter_order(path: Path) -> tuple[str, bool]:
    """By number; an appendix comes right after its notebook."""
    return path.stem[:2], path.suffix == ".md"


def contents(notebooks: list[Path]) -> str:
    """The table of contents: explorers, chapters by part, the guide."""
    parts = {"Explorers": ["explorers/tiling", "explorers/bytes"]}
    for path in notebooks:
        parts.setdefault(part_of(path.stem[:2]), []).append(entry(path))
    parts["All of it"] = ["map"]
    parts["For those who teach"] = ["instructors"]
    parts["For those who build on it"] = ["api"]
    return "".join(
        "\n".join(["", "```{toctree}", ":hidden:", f":caption: {part}", *inside, "```", ""])
        for part, inside in parts.items()
        if inside
    )


def entry(path: Path) -> str:
    """A chapter in the table of contents."""
    return f"{title_of(path)} <notebooks/{path.stem}>"


def title_of(path: Path) -> str:
    """A chapter's number and title, as the first line of its file has them."""
    text = path.read_text(encoding="utf-8")
    first = text if path.suffix == ".md" else nbformat.reads(text, as_version=4).cells[0].source
    return first.lstrip("# ").split("\n")[0]


def number() -> str:
    """What this is, in one sentence with one number, by the course's own formulas."""
    tokens = 32_768
    naive = standard_cost(1, 1, tokens, tokens, 128)
    return (
        f'<p class="claim">Attention over {tokens:,} tokens stores <strong>{naive.extra / 1e9:.1f} GB</strong> of scores for every '
        "head if it is written down naively; FlashAttention computes the same output and stores none of them.</p>"
    )


def cover(slug: str) -> str:
    """A picture of a chapter, small, beside its title."""
    return f'<img src="frames/{slug}/0.webp" alt="" loading="lazy">'


def part_of(number: str) -> str:
    """The part of the course that a notebook belongs to; 00, which belongs to none, stands with the first."""
    parts = {stage.number: stage.part for stage in STAGES}
    return parts[number] or parts["01"]


def shown(text: str) -> Any:
    """HTML as an output of a cell."""
    return new_output("display_data", {"text/html": text})


def questions(data: dict, plain: str = "") -> str:
    """Questions to be answered before the page does; `plain` is for pages without scripts."""
    words = json.dumps(data, ensure_ascii=False).replace("</", "<\\/")
    return f'<section class="predict"><script type="application/json">{words}</script><noscript>{plain}</noscript></section>'


def size_of(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def start_of(source: str) -> str:
    """With what an explorer begins, as the book's takes it: `tiling_explorer(N=12, block_q=3)` -> "N=12&blockQ=3"."""
    names = {"N": "N", "D": "D", "block_q": "blockQ", "block_k": "blockK", "sram": "sram", "mask": "mask"}
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    call = next(node for node in calls if f"{getattr(node.func, 'id', '')}(" in EXPLORERS)
    return urlencode({names[said.arg]: ast.literal_eval(said.value) for said in call.keywords if said.arg in names})


def natural(size: tuple[int, int]) -> str:
    """What the style sheet must know of a picture's size."""
    return f"--natural: {size[0]}px; --shape: {size[0] / size[1]:.3f}"


def picture(name: str, alt: str, size: tuple[int, int]) -> str:
    """An image that is loaded as the reader comes near."""
    width, height = size
    return (
        f'<img src="../frames/{quote(name)}.webp" alt="{html.escape(alt)}" width="{width}" height="{height}" '
        f'loading="lazy" style="{natural(size)}">'
    )
