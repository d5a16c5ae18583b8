"""Formulas as MathML, which browsers set by themselves: no script, no request, and screen readers read them.

A Sphinx extension: the math renderer `mathml`, and the font that it asks for, cut down to the characters in use.
"""

from __future__ import annotations

import html
import logging
import re
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from fontTools import subset
from fontTools.ttLib import TTFont
from latex2mathml.converter import convert
from sphinx.application import Sphinx

SPACES = {"negativethinmathspace": "-0.167em", "newline": "0em"}
# Functions, also with an index, that browsers set close to what follows, as they do letters
NAMED = r"(?<!<msub>)(?<!<msup>)<mi>(?:exp|ln|log|tanh)</mi>|<msub><mi>log</mi><m[in]>\w+</m[in]></msub>"
UPRIGHT = r"<mi>&#x000([4-7][0-9A-F]);</mi>"  # what a single letter in \mathrm becomes
THIN = '<mspace width="0.167em"></mspace>'
LETTERS = "".join(map(chr, range(0x20, 0x7F))) + "−×÷±·…∞∂∑∏∫√≤≥≠≈←→⊤⌈⌉⌊⌋∘′⏞⏟⎧⎨⎩⎪⎫⎬⎭"


def mathml(tex: str, display: bool = False) -> str:
    r"""One formula in TeX as MathML.

    >>> "<msup>" in mathml("e^x") and 'display="inline"' in mathml("e^x")
    True
    >>> '<mi mathvariant="normal">d</mi><mi>d</mi>' in mathml(r"\mathrm{d}d")
    True
    """
    text = convert(_arrays(tex), display="block" if display else "inline")
    text = text.replace('<menclose notation="box">', '<mrow class="boxed">').replace("</menclose>", "</mrow>")
    text = re.sub(UPRIGHT, lambda letter: f'<mi mathvariant="normal">{chr(int(letter[1], 16))}</mi>', text)
    text = re.sub(rf"({NAMED})(?=<m(?!o[ >]|row><mo ))", rf"\1{THIN}", text)
    for name, width in SPACES.items():
        text = text.replace(f'width="{name}"', f'width="{width}"')
    return text.replace("<math ", f'<math aria-label="{html.escape(tex.strip())}" ', 1) if display else text


def _arrays(tex: str) -> str:
    """Lines aligned at & as a table, in pairs of columns."""

    def table(lines: re.Match) -> str:
        pairs = max(line.count("&") for line in lines[1].split(r"\\")) // 2 + 1
        return rf"\begin{{array}}{{{'rl' * pairs}}}{lines[1]}\end{{array}}"

    return re.sub(r"\\begin\{aligned\}(.*?)\\end\{aligned\}", table, tex, flags=re.DOTALL)


def font(characters: str, path: Path) -> None:
    """Write STIX Two Math with these characters, what they grow into, and nothing else."""
    logging.getLogger("fontTools").setLevel(logging.WARNING)
    package = find_spec("ziamath")  # not imported: of it we need the font alone
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            "expected the package ziamath, whose font formulas are set in; it is in the extra `book`"
        )
    source = TTFont(Path(package.origin).parent / "fonts" / "STIXTwoMath-Regular.ttf")
    options = subset.Options(layout_features=["ssty", "dtls"], flavor="woff", hinting=False, name_IDs=[0, 1, 2, 13, 14])
    cutter = subset.Subsetter(options)
    cutter.populate(text=LETTERS + ITALICS + characters)
    cutter.subset(source)
    source.flavor = "woff"
    path.parent.mkdir(parents=True, exist_ok=True)
    source.save(path)


# Browsers set <mi>x</mi> in the mathematical italics of Unicode.
ITALICS = "".join(chr(0x1D434 + place) for place in range(52)) + "ℎ" + "".join(map(chr, range(0x1D6FC, 0x1D71C)))


def characters(pages: list[str]) -> str:
    """Every character that is in a formula of these pages."""
    return "".join(sorted({c for page in pages for part in re.findall(r"<math.*?</math>", page, re.DOTALL)
                           for c in html.unescape(re.sub(r"<[^>]*>", "", part))}))  # fmt: skip


def _inline(visitor, node: nodes.math) -> None:
    visitor.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _block(visitor, node: nodes.math_block) -> None:
    """A displayed formula in a box that scrolls by itself, by keys too."""
    visitor.body.append(
        f'<div class="formula" tabindex="0" role="group" aria-label="formula">{mathml(node.astext(), True)}</div>\n'
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
