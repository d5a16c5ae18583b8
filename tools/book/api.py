"""The API pages of the book, and how Sphinx shows docstrings: sentences as prose, columns as they are written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

TOPICS: dict[str, tuple[str, ...]] = {
    "Kernels": (
        "flashlearn.flash_attention",
        "flashlearn.flash_attention_varlen",
        "flashlearn.flash_attention_paged",
        "flashlearn.explain",
        "flashlearn.merge_attentions",
    ),
    "Softmax": tuple(
        f"flashlearn.{name}"
        for name in (
            *("naive_softmax", "safe_softmax", "online_softmax", "blocked_softmax", "merge", "merge_tree"),
            *(
                "naive_softmax_steps",
                "safe_softmax_steps",
                "online_softmax_steps",
                "blocked_softmax_steps",
                "merge_tree_steps",
            ),
        )
    ),
    "Attention": tuple(
        f"flashlearn.{name}"
        for name in (
            *(
                "standard_attention",
                "two_pass_attention",
                "one_pass_attention",
                "tiled_attention_v1",
                "tiled_attention_v2",
            ),
            *(
                "paged_attention",
                "tiled_matmul",
                "tiled_qkv",
                "visited_blocks",
                "paper_block_sizes",
                "fitting_block_sizes",
            ),
            *("sram_elements", "standard_attention_steps", "two_pass_attention_steps", "one_pass_attention_steps"),
            *(
                "tiled_attention_v1_steps",
                "tiled_attention_v1_lines",
                "tiled_attention_v2_steps",
                "paged_attention_steps",
            ),
            *("tiled_matmul_steps", "tiled_qkv_steps"),
        )
    ),
    "Gradients": tuple(
        f"flashlearn.{name}{kind}"
        for kind in ("", "_steps")
        for name in (
            "contract",
            "matmul_backward",
            "softmax_backward",
            "attention_backward",
            "tiled_attention_backward",
        )
    ),
    "Steps and memory": tuple(
        f"flashlearn.{name}"
        for name in (
            "Step",
            "HBM",
            "Tile",
            "Traffic",
            "Mask",
            "run",
            "record",
            "last",
            "passes",
            "hbm_bytes",
            "matmul_flops",
            "sram_peak",
        )
    ),
    "Exercises": tuple(f"flashlearn.exercises.{name}" for name in ("check", "hint", "predict", "lines")),
    "Pictures": tuple(
        f"flashlearn.show.{name}" for name in ("play", "picture", "bytes_moved", "projector", "reduced_motion")
    ),
    "Many GPUs": tuple(f"flashlearn.ring.{name}" for name in ("ring_attention", "ulysses_attention", "split", "join")),
}


def write(source: Path) -> None:
    """Write `api.md` into the source of the book."""
    lines = ["# API", "", "The functions and classes that you call, with shapes, units and errors."]
    for topic, names in TOPICS.items():
        lines += ["", f"## {topic}", "", "```{eval-rst}"]
        for name in names:
            kind = "autoclass" if name.rpartition(".")[2][0].isupper() else "autofunction"
            lines += [f".. {kind}:: {name}", ""]
        lines += ["```"]
    (source / "api.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def as_written(app: Sphinx | None, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Paragraphs stay, `code` as such; columns become a list of terms; other indented lines are shown as they stand."""
    shown: list[str] = []
    for part in "\n".join(lines).strip().split("\n\n"):
        rows = part.splitlines()
        if terms := columns(rows):
            shown += [line for term, words in terms.items() for line in (plain(term), f"   {plain(words)}")]
        elif any(re.search(r"^ |\S  +\S", row) for row in rows):
            shown += ["::", "", *(f"   {row}" for row in rows)]
        else:
            shown += map(plain, rows)
        shown.append("")
    lines[:] = shown


def columns(rows: list[str]) -> dict[str, str]:
    """{term: words} of rows in two columns, where rows that are indented go on; {} if they are none.

    >>> columns(["q    (B, H, N, D)", "     contiguous", "k    the same"])
    {'q': '(B, H, N, D) contiguous', 'k': 'the same'}
    """
    found: dict[str, str] = {}
    for row in rows:
        if pair := re.fullmatch(r"(\S(?:.*?\S)?) {2,}(\S.*)", row):
            found[pair[1]] = pair[2]
        elif found and row.startswith("   "):
            found[[*found][-1]] += f" {row.strip()}"
        else:
            return {}
    return found


def plain(text: str) -> str:
    """Text that Sphinx shows as it is, but for `code`."""
    return re.sub(r"([*|_])(?=\s|$)|(?<!\S)([*|])", r"\\\1\2", text.replace("`", "``"))


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", as_written)
    return {"parallel_read_safe": True}
