"""How a notebook opens on its page, and what is folded there: imports, `predict`, tests, answers, deeper sections.

An answer is folded until its question is answered, or the reader asks for it: the cell that shows it (`Cell:` in
questions.md), with its output, and the text right before and after it. A fold never crosses a heading, and headings stay;
it never holds other code, nor the text of an exercise.
"""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterator, Sequence
from typing import Any

from nbformat.v4 import new_markdown_cell

from flashlearn.exercises.predicting import PREDICT
from flashlearn.exercises.questions import QUESTIONS
from tools.book.theme import without_number

LEAD = 60  # words: paragraphs of the opening are its lead until there are so many
PLACE = re.compile(r"\*Notebook \d\d of \d\d.*\*")
FOLDED = {"imports": "Imports", "asks": "Code", "tests": "Test", "folded": "Code"}


def opening(source: str, links: str, picture: str = "") -> tuple[str, str]:
    """(what the first screen has, what follows) of a notebook's first cell, as Markdown.

    The first screen: the title, its first paragraphs as a lead, the picture, and in the margin what the reader will do and
    where to run it. The page says the notebook's number and its minutes above the title.
    """
    title, *blocks = re.split(r"\n\s*\n", source.strip())
    blocks = [block for block in blocks if not PLACE.fullmatch(block)]
    goals = next((at for at, block in enumerate(blocks) if block.startswith("You will")), len(blocks))
    text, margin = blocks[:goals], blocks[goals : goals + 2]
    lead = 1
    while lead < len(text) and len(" ".join(text[: lead + 1]).split()) <= LEAD:
        lead += 1
    parts = [_container("lead", _joined(text[:lead])), picture, _container("margin", _joined([*margin, links]))]
    first = _container("opening", _joined([part for part in parts if part]), "`````")
    return f"{without_number(title)}\n\n{first}", _joined([*text[lead:], *blocks[goals + 2 :]])


def _container(name: str, inside: str, fence: str = "````") -> str:
    return f"{fence}{{container}} {name}\n{inside}\n{fence}"


def _joined(blocks: list[str]) -> str:
    return "\n\n".join(blocks)


def fold(cell: Any) -> None:
    """Tag a code cell so that what most readers skip is folded; its outputs stay."""
    kind = kind_of(cell)
    if kind is None:
        return
    words = FOLDED[kind]
    cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-input"]
    cell.metadata["mystnb"] = {"code_prompt_show": words, "code_prompt_hide": words}


def kind_of(cell: Any) -> str | None:
    """What a code cell is, if it is folded.

    A test is a cell that shows nothing and asserts, or half of whose lines assert; one that defines something is none.
    """
    if cell.metadata.get("jupyter", {}).get("source_hidden"):  # in JupyterLab, too
        return "folded"
    try:
        body = ast.parse(cell.source).body
    except SyntaxError:  # a magic
        return None
    calls = {name_of(node) for node in body}
    plain = [node for node in body if not (isinstance(node, ast.Import | ast.ImportFrom) or sets_environment(node))]
    if len(plain) <= (len(body) - len(plain)) // 2:
        return "imports"
    if calls <= {"predict", "in_a_sentence"}:
        return "asks"
    if any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in body):
        return None
    lines = sum(node.end_lineno - node.lineno + 1 for node in plain)
    asserted = sum(node.end_lineno - node.lineno + 1 for node in plain if asserts(node))
    silent = not cell.get("outputs")
    return "tests" if asserted and (silent or 2 * asserted >= lines) else None


def name_of(node: ast.stmt) -> str:
    """The function that a statement calls, '' if it does something else."""
    return getattr(getattr(getattr(node, "value", None), "func", None), "id", "") if isinstance(node, ast.Expr) else ""


def sets_environment(node: ast.stmt) -> bool:
    """Whether a statement is `os.environ[...] = ...`, which comes with the imports."""
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("os.environ[")


def asserts(node: ast.stmt) -> bool:
    """Whether a statement is an assertion, or a loop of nothing else."""
    if isinstance(node, ast.For | ast.With):
        return any(asserts(inner) for inner in node.body)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func).endswith("assert_close")
    return isinstance(node, ast.Assert)


# --- answers and deeper sections: book/_static/folds.js folds what is marked here --------------------------------------

HEADING = re.compile(r"#{1,6} ")
DEEPER = '<div class="deeper"></div>'  # below the heading of a section that is folded


def marked(cells: Sequence[Any]) -> list[Any]:
    """The cells of a notebook with marks for what its page folds: answers, and sections that JupyterLab stores collapsed."""
    found = answers(cells)
    pieces = [piece for cell in cells for piece in pieces_of(cell)]
    out: list[Any] = []
    free = 0  # pieces before it are in a fold, or cannot be
    for at, piece in enumerate(pieces):
        if at < free or piece.get("id") not in found or piece.cell_type != "code":
            continue
        start = at
        while start > free and is_text(pieces[start - 1]):
            start -= 1
        stop = at + 1
        if stop < len(pieces) and is_text(pieces[stop]) and not (pieces[stop + 1 :] and is_exercise(pieces[stop + 1])):
            stop += 1
        names = html.escape(" ".join(found[piece.id]))
        fold = [new_markdown_cell(f'<div class="answer" data-questions="{names}">'), *pieces[start:stop]]
        out += [*pieces[free:start], *fold, new_markdown_cell("</div>")]
        free = stop
    return out + pieces[free:]


def answers(cells: Sequence[Any]) -> dict[str, list[str]]:
    """{id of a cell: the questions, asked further up in this notebook, whose answer it shows}."""
    found: dict[str, list[str]] = {}
    asked: list[str] = []
    for cell in cells:
        if shows := [name for name in asked if QUESTIONS[name].shown == cell.id]:
            found[cell.id] = shows
        asked += [question["name"] for data in asked_in(cell) for question in data["questions"]]
    return found


def asked_in(cell: Any) -> Iterator[dict[str, Any]]:
    """The questions that a cell asks, as data."""
    return (output.data[PREDICT] for output in cell.get("outputs", []) if PREDICT in output.get("data", {}))


def pieces_of(cell: Any) -> list[Any]:
    """A Markdown cell as cells of one heading or of text alone; a code cell is one piece.

    >>> [piece.source for piece in pieces_of(new_markdown_cell("a\\n\\n## b\\nc\\n```\\n# d\\n```"))]
    ['a', '## b', 'c\\n```\\n# d\\n```']
    """
    if cell.cell_type != "markdown":
        return [cell]
    parts, fenced = [""], False
    for line in cell.source.split("\n"):
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        if HEADING.match(line) and not fenced:
            parts += [line, ""]
        else:
            parts[-1] += f"{line}\n"
    parts = [part.strip("\n") for part in parts if part.strip()]
    if cell.metadata.get("jp-MarkdownHeadingCollapsed") and parts and HEADING.match(parts[0]):
        parts.insert(1, DEEPER)
    return [new_markdown_cell(part) for part in parts]


def is_text(piece: Any) -> bool:
    """Whether a piece is Markdown below a heading."""
    return piece.cell_type == "markdown" and not HEADING.match(piece.source) and piece.source != DEEPER


def is_exercise(piece: Any) -> bool:
    """Whether a piece is code that asks for an answer."""
    return piece.cell_type == "code" and bool(re.search(r"^(check|lines|in_a_sentence)\(", piece.source, re.MULTILINE))
