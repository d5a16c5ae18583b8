"""How a notebook opens on its page, and which of its cells are folded there: imports, `here`, `predict` and tests."""

from __future__ import annotations

import ast
import re
from typing import Any

from tools.book.theme import without_number

LEAD = 60  # words: paragraphs of the opening are its lead until there are so many
WHERE = "Where this notebook stands, and what it moves"
FOLDED = {"imports": ("hide-input", "Imports"), "predict": ("hide-input", "Code"), "tests": ("hide-input", "Test")}
FOLDED["here"] = ("hide-cell", WHERE)


def opening(source: str, links: str, picture: str = "") -> tuple[str, str]:
    """(what the first screen has, what follows) of a notebook's first cell, as Markdown.

    The first screen: the title, its first paragraphs as a lead, the picture, and in the margin what the reader will do and
    where to run it.
    """
    title, *blocks = re.split(r"\n\s*\n", source.strip())
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
    tag, words = FOLDED[kind]
    cell.metadata["tags"] = [*cell.metadata.get("tags", []), tag]
    cell.metadata["mystnb"] = {"code_prompt_show": words, "code_prompt_hide": words}


def kind_of(cell: Any) -> str | None:
    """What a code cell is, if it is folded.

    A test is a cell that shows nothing and asserts, or half of whose lines assert; one that defines something is none.
    """
    try:
        body = ast.parse(cell.source).body
    except SyntaxError:  # a magic
        return None
    calls = {name_of(node) for node in body}
    plain = [node for node in body if not (isinstance(node, ast.Import | ast.ImportFrom) or sets_environment(node))]
    if len(plain) <= (len(body) - len(plain)) // 2:
        return "imports"
    if "here" in calls and len(plain) == 1:
        return "here"
    if calls == {"predict"}:
        return "predict"
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
