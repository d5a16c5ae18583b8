"""A term is explained before it is used: the first notebook that has it is the one that explains it, in bold or italics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
EXPLAINS = {  # a notebook -> the terms that it explains, as regular expressions
    "00": ["HBM", "SRAM", "streaming multiprocessors?", "kernels?", "tiles?", "lse", "interpreter"],
    "01": ["logits?"],
    "04": ["causal", "projections?", "KV cache", "decod(?:e|ing)", "recomput(?:e|ed|ing|ation)"],
    "07": ["warps?", "shared memory"],
    "08": [
        "roofline",
        "arithmetic intensity",
        "ridge point",
        "FLOPs?",
        "registers?",
        "tensor cores?",
    ],
    "09": ["Jacobians?"],
    "10": ["atomic"],
    "11": [
        "launch grid|grid",
        "strides?",
        "coalescing|coalesced",
        "occupancy",
        "[Aa]utotuning",
        "divergence",
        "sectors?",
    ],
    "12": ["[Gg]rouped-query attention|GQA"],
    "14": ["TMA"],
    "15": ["mbarriers?", "wgmma"],
    "16": ["[Pp]refill", "validation loss", "overfitting", "5-gram model"],
    "17": ["[Ss]oftcap", "ALiBi", "[Ss]inks?"],
    "18": ["continuous batching", "page tables?", "copy-on-write", "MLA|multi-head latent attention"],
}
TERMS = {term: notebook for notebook, terms in EXPLAINS.items() for term in terms}
FORWARD: dict[tuple[str, str], str] = {}  # (term, notebook) -> why a notebook may name what a later one explains


@cache
def cells(number: str) -> tuple[str, ...]:
    """The prose of every Markdown cell, without code, formulas, headings and where links lead; the title cell is first."""
    (path,) = FOLDER.glob(f"{number}_*.ipynb")
    found = [
        "".join(cell["source"])
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "markdown"
    ]
    return tuple(map(prose, found))


def prose(text: str) -> str:
    for pattern in (r"```.*?```", r"\$\$.*?\$\$", r"`[^`]*`", r"(?<=\])\([^)]*\)"):
        text = re.sub(pattern, " ", text, flags=re.DOTALL)
    return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)


def has(term: str, text: str) -> bool:
    return re.search(rf"(?<![\w-])(?:{term})(?!\w)", text) is not None


def explains(term: str, text: str) -> bool:
    """Whether the term is set off in the text."""
    marked = re.findall(r"\*\*([^*]+)\*\*|(?<!\*)\*([^*\s][^*]*)\*(?!\*)", text)
    return any(has(term, bold or italic) for bold, italic in marked)


def used_too_early(term: str, home: str, notebooks: Iterable[tuple[str, tuple[str, ...]]]) -> list[str]:
    """Where the term stands before it is explained; a title cell may promise what its notebook explains."""
    early = []
    for number, texts in notebooks:
        if number < home:
            early += [f"{number}: {text.strip()[:80]}" for text in texts if has(term, text)]
        elif number == home:
            first = next((text for text in texts[1:] if has(term, text)), "")
            if not explains(term, texts[0]) and not explains(term, first):
                early.append(f"{number}: not set off where it stands first: {first.strip()[:80]!r}")
    return early


def course() -> list[tuple[str, tuple[str, ...]]]:
    numbers = sorted(path.stem[:2] for path in FOLDER.glob("[0-9][0-9]_*.ipynb"))
    return [(number, cells(number)) for number in numbers]


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_explained_before_it_is_used(term):
    notebooks = [(number, texts) for number, texts in course() if (term, number) not in FORWARD]
    assert used_too_early(term, TERMS[term], notebooks) == []


def test_a_forward_reference_is_one():
    for (term, number), why in FORWARD.items():
        assert why and number < TERMS[term] and any(has(term, text) for text in cells(number))


def test_what_comes_too_early_is_found():
    title, plain, bold = "# 01 · On warps\n\nYou will see warps.", "A warp waits.", "A **warp** is 32 threads."
    assert used_too_early("warps?", "01", [("01", (title, bold, plain))]) == []
    assert len(used_too_early("warps?", "01", [("01", (title, plain, bold))])) == 1
    assert len(used_too_early("warps?", "01", [("00", (prose(plain),)), ("01", (title, bold))])) == 1
    assert len(used_too_early("warps?", "01", [("01", (title,))])) == 1, "explained nowhere"
    assert (
        used_too_early("warps?", "01", [("00", (prose("`warp` $$warp$$ [x](warp) num-warp"),)), ("01", (title, bold))])
        == []
    )
    assert explains("lse", "it is *lse*") and not explains("lse", "2 * lse * 3") and not explains("lse", "**else**")
