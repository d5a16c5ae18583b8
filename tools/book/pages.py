"""Notebooks as pages: stored runs become players, pictures figures, and every chapter says where it can be run."""

from __future__ import annotations

import ast
import base64
import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import nbformat
from nbformat.v4 import new_markdown_cell, new_output

from flashlearn.cost import standard_cost
from flashlearn.course import MINUTES
from flashlearn.exercises.predicting import PREDICT, as_data
from flashlearn.exercises.predicting import as_html as as_html_question
from flashlearn.exercises.sentences import SENTENCE
from flashlearn.grading.inventory import FORMS
from flashlearn.show import moved
from flashlearn.show.course import STAGES
from tools.book import chapter, figures, runs
from tools.book.address import Address
from tools.book.colab import without_outputs
from tools.book.gallery import Shown
from tools.book.pictures import Pictures
from tools.book.theme import without_number

EXPLORERS = {"tiling_explorer(": "tiling"}  # what a cell calls -> what the page shows in place of its still
INVENTORY = """Choose an answer to each of these {count} questions, best before the first notebook and again after the last one. They are the
short form of the course's inventory. The long one has two forms of 30 questions, compares before with after, and tells you
what to read:

```
python -m flashlearn inventory
```
"""
ASKS = {PREDICT: "predict", SENTENCE: "sentence"}  # data -> the class of what book/_static/predict.js makes of them
GUIDES = ("INSTRUCTORS.md", "GRADING.md")
MAP = 'Every algorithm with what it moves, counted from its steps. <a href="_static/map.html">The same on one page, to print</a>.'


class Book:
    """The source of the book: its pages, and the files of their pictures; `shown` is what the notebooks' cells display."""

    def __init__(self, root: Path, source: Path, shown: Mapping[str, Mapping[str, Shown]]):
        self.root, self.source, self.shown = root, source, shown
        self.address = Address.of(root)
        self.pictures = Pictures(source)
        self.written: list[Path] = []
        (source / "notebooks").mkdir(parents=True, exist_ok=True)

    def chapter(self, path: Path) -> None:
        """Write one notebook as a page, and as a file to download."""
        notebook = nbformat.read(path, as_version=4)
        self.written.append(path)
        self.download(path, notebook)
        notebook.cells[1:] = chapter.marked(notebook.cells[1:])
        number, pictures = path.stem[:2], 0
        for cell in notebook.cells:
            waiting = list(self.shown.get(path.stem, {}).get(cell.id, []))
            kept = [
                output for output in cell.get("outputs", []) if output.get("metadata", {}).get("flashlearn") != "words"
            ]
            for at, output in enumerate(kept):
                data = output.get("data", {})
                if kind := next((each for each in ASKS if each in data), None):
                    kept[at] = as_html(asked(ASKS[kind], data[kind], data.get("text/html", "")))
                elif "image/png" in data:
                    pictures += 1
                    figure = self.picture(f"{number}-{pictures}", cell, output, waiting.pop(0) if waiting else None)
                    kept[at] = as_html(figure)
            if "outputs" in cell:
                cell.outputs = kept
        self.open(notebook, path)
        first = next(at for at, cell in enumerate(notebook.cells) if re.search(r"^check\(", cell.source, re.MULTILINE))
        notebook.cells.insert(first, new_markdown_cell(self.links(path, "exercise-links")))
        nbformat.write(notebook, self.source / "notebooks" / path.name)

    def open(self, notebook: Any, path: Path) -> None:
        """Fold what most readers skip; the first cell becomes the chapter's opening, with the first of its pictures."""
        for cell in notebook.cells:
            if cell.cell_type == "code":
                chapter.fold(cell)
        picture = ""
        if cover := self.pictures.covers.get(path.stem[:2]):
            link = f'<a href="#picture-{cover.slug}" aria-label="the first picture, in its place">'
            picture = f'<figure class="first">{link}{figures.cover(cover.wide, cover.narrow)}</a></figure>'
        first, rest = chapter.opening(notebook.cells[0].source, self.links(path, "links"), picture)
        notebook.cells[:1] = [new_markdown_cell(first), new_markdown_cell(rest)][: 2 if rest else 1]

    def download(self, path: Path, notebook: Any) -> None:
        """The notebook without its outputs, for the reader's own machine."""
        (self.source / "download").mkdir(exist_ok=True)
        nbformat.write(without_outputs(notebook), self.source / "download" / path.name)

    def links(self, path: Path, kind: str) -> str:
        """Where this notebook can be run, as a line of links."""
        name = "Run it" if kind == "links" else "Do it"
        ways = {
            "in Binder": self.address.binder(path.name),
            "in Colab": self.address.colab(path.name),
            "on your own machine: download": f"../download/{path.name}",
        }
        links = " ".join(f'<a href="{html.escape(url)}">{words}</a>' for words, url in ways.items())
        return f'<p class="{kind}"><span>{name}</span> {links}</p>'

    def picture(self, slug: str, cell: Any, output: Any, shown: Mapping[str, Any] | None) -> str:
        """One stored picture as a figure, in an explorer if its cell has one."""
        about = output.get("metadata", {}).get("image/png", {})
        alt = about.get("alt", output.data.get("text/plain", ""))
        figure = self.pictures.figure(slug, base64.b64decode(output.data["image/png"]), alt, shown)
        explorer = next((name for call, name in EXPLORERS.items() if call in cell.source), None)
        if explorer is None:
            return figure
        start = html.escape(start_of(cell.source))
        return f'<div data-explorer="{explorer}" data-embedded data-start="{start}">{figure}</div>'

    def front(self, notebooks: list[Path]) -> None:
        """The first page, the instructors' guide, and what is in the book."""
        first = (self.root / "book" / "index.md").read_text(encoding="utf-8")
        listed = (self.root / "docs" / "notebooks.md").read_text(encoding="utf-8").replace("](../", "](")
        ladder = listed[listed.index("| notebook | function") :].split("\n\n")[0]
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
        for name in GUIDES:
            text = (self.root / "notebooks" / name).read_text(encoding="utf-8")
            for guide in GUIDES:
                text = text.replace(f"]({guide})", f"]({guide.lower()})")
            (self.source / name.lower()).write_text(text, encoding="utf-8")
        self.map()
        (self.source / "inventory.md").write_text(inventory(), encoding="utf-8")

    def cards(self, notebooks: list[Path]) -> str:
        """Every chapter with the first of its pictures, by part."""
        parts: dict[str, list[str]] = {}
        for path in notebooks:
            cover = self.pictures.covers.get(path.stem[:2])
            picture = cover.wide.replace('"../frames/', '"frames/') if cover else ""
            card = f'<li><a href="notebooks/{path.stem}.html">{picture}<span>{html.escape(title_of(path))}{minutes_of(path)}</span></a></li>'
            parts.setdefault(part_of(path.stem[:2]), []).append(card)
        return "".join(f'<h3>{part}</h3>\n<ul class="cards">{"".join(inside)}</ul>\n' for part, inside in parts.items())

    def map(self) -> None:
        """The map of all algorithms, as a page of the book and as one to print."""
        table = f'<div class="scroll" tabindex="0" role="group" aria-label="the map">{moved.course_table()}</div>'
        words = f"# The map\n\n{MAP}\n\n{table}\n\n{moved.legend()}\n"
        (self.source / "map.md").write_text(words, encoding="utf-8")
        (self.source / "_static").mkdir(exist_ok=True)
        (self.source / "_static" / "map.html").write_text(moved.page(), encoding="utf-8")

    def first_player(self) -> str:
        """Notebook 07's two versions next to each other, which play as soon as the page is there."""
        if not self.pictures.pair and any(path.stem.startswith("07_") for path in self.written):
            raise ValueError("expected a run of two versions in notebook 07, got none")
        run = self.pictures.pair.replace('<figure class="run"', '<figure class="run" data-autoplay', 1)
        return run.replace('"../frames/', '"frames/')


def inventory() -> str:
    """The short form of the inventory, ten questions of its form A; nothing is kept or sent."""
    questions = list(FORMS["A"].values())[::3]
    plain = "".join(map(as_html_question, questions))
    form = asked("predict", {"questions": list(map(as_data, questions))}, plain)
    return f"# What do you know already?\n\n{INVENTORY.format(count=len(questions))}\n\n{form}\n"


def chapter_order(path: Path) -> tuple[str, bool]:
    """By number; an appendix comes right after its notebook."""
    return path.stem[:2], path.suffix == ".md"


def contents(notebooks: list[Path]) -> str:
    """The table of contents: explorers, chapters by part, the guide."""
    parts = {"Explorers": ["explorers/tiling", "explorers/bytes"]}
    for path in notebooks:
        parts.setdefault(part_of(path.stem[:2]), []).append(entry(path))
    parts["All of it"] = ["map", "inventory"]
    parts["For those who teach"] = ["instructors", "grading"]
    parts["For those who build on it"] = ["api"]
    return "".join(
        "\n".join(["", "```{toctree}", ":hidden:", f":caption: {part}", *inside, "```", ""])
        for part, inside in parts.items()
        if inside
    )


def entry(path: Path) -> str:
    """A chapter in the table of contents."""
    return f"{title_of(path)}{minutes_of(path)} <notebooks/{path.stem}>"


def minutes_of(path: Path) -> str:
    """How long a notebook takes, after its title; an appendix is not counted."""
    return f" · {MINUTES[path.stem[:2]]} min" if path.suffix == ".ipynb" else ""


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


def part_of(number: str) -> str:
    """The part of the course that a notebook belongs to; 00, which belongs to none, stands with the first."""
    parts = {stage.number: stage.part for stage in STAGES}
    return parts[number] or parts["01"]


def as_html(text: str) -> Any:
    """HTML as an output of a cell."""
    return new_output("display_data", {"text/html": text})


def asked(kind: str, data: dict, plain: str = "") -> str:
    """What a page asks its reader; `plain` is for pages without scripts."""
    words = json.dumps(data, ensure_ascii=False).replace("</", "<\\/")
    return f'<section class="{kind}"><script type="application/json">{words}</script><noscript>{plain}</noscript></section>'


def start_of(source: str) -> str:
    """With what an explorer begins, as the book's takes it: `tiling_explorer(N=12, block_q=3)` -> "N=12&block_q=3"."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    call = next(node for node in calls if f"{getattr(node.func, 'id', '')}(" in EXPLORERS)
    return urlencode({said.arg: ast.literal_eval(said.value) for said in call.keywords if said.arg in runs.START})
