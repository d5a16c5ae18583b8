"""What closes the pages: one script, the font of the formulas, a policy that forbids every other host, unused files gone."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from tools.book import formulas, sections

IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
INLINE = re.compile(r"<script(?P<kind>[^>]*)>(?P<text>.*?)</script>", re.DOTALL)
TABLE = re.compile(r'(?P<box><div class="(?:scroll|table-wrapper)[^>]*>\s*)?(?P<table><table\b.*?</table>)', re.DOTALL)
PRE = re.compile(r"(?<=<pre>)(.*?)(?=</pre>)", re.DOTALL)
UNUSED = (
    "_sources",
    "objects.inv",
    "searchindex.js",
    ".buildinfo",
    *(
        f"_static/{name}"
        for name in (
            "*stemmer.js",
            "doctools.js",
            "documentation_options.js",
            "language_data.js",
            "mystnb*",
            "pygments*.css",
            "searchtools.js",
            "sphinx_highlight.js",
        )
    ),
)


def bundle(modules: list[Path], path: Path) -> None:
    """Modules as one classic script, since browsers load no module from a folder (file://). Each keeps its own names.

    ValueError for an import or an export of another form than `import { a, b } from "./c.js";` and
    `export function`, `export const`.
    """
    parts = [_closed(module.stem, module.read_text(encoding="utf-8")) for module in modules]
    path.write_text('"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n", encoding="utf-8")


def _closed(name: str, text: str) -> str:
    """A module as a function that is called at once and returns what it exports."""
    exports = EXPORT.findall(text)
    body = EXPORT.sub("", IMPORT.sub(r"const {\1} = modules_\2;", text))
    if re.search(r"^(export|import)\b", body, re.MULTILINE):
        raise ValueError(f"expected declarations exported and names imported, got something else in {name}.js")
    return f"const modules_{name} = (() => {{\n{body}\nreturn {{ {', '.join(exports)} }};\n}})();\n"


def close(pages: Path) -> None:
    """Finish every page in a folder of HTML."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(pages.rglob("*.html"))}
    formulas.font(formulas.characters(list(texts.values())), pages / "_static" / "math.woff")
    sections.write(texts, pages)
    for path, text in texts.items():
        path.write_text(with_policy(with_names(with_lines(with_boxes(text)))), encoding="utf-8")
    for pattern in UNUSED:
        for path in sorted(pages.glob(pattern)):
            _remove(path)


def with_boxes(page: str) -> str:
    """The page with every table in a box that scrolls by itself, as the theme does it with those of Markdown."""
    return TABLE.sub(
        lambda found: found[0] if found["box"] else f'<div class="table-wrapper container">{found[0]}</div>', page
    )


def with_lines(page: str) -> str:
    """The page with every line of its code as an element that knows its indentation, so that long ones continue below it.

    >>> with_lines("<pre>if x:\\n  y</pre>")
    '<pre><span class="line">if x:\\n</span><span class="line" style="--indent:2ch">  y</span></pre>'
    """
    return PRE.sub(
        lambda code: "".join(map(_line, code[0].removeprefix("<span></span>").splitlines(keepends=True))), page
    )


def _line(line: str) -> str:
    text = re.sub(r"<[^>]*>", "", line)
    indent = len(text) - len(text.lstrip(" ")) if text.strip() else 0
    style = f' style="--indent:{indent}ch"' if indent else ""
    return f'<span class="line"{style}>{line}</span>'


def with_names(page: str) -> str:
    """The page with the level of the headings in its list of chapters, which screen readers miss."""
    return page.replace('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">')


def with_policy(page: str) -> str:
    """The page with a content security policy: scripts of this site, and the inline ones that are there now by hash."""
    hashes = [
        base64.b64encode(hashlib.sha256(script["text"].encode()).digest()).decode()
        for script in INLINE.finditer(page)
        if " src=" not in script["kind"] and "json" not in script["kind"]
    ]
    scripts = " ".join(["'self'", *(f"'sha256-{each}'" for each in dict.fromkeys(hashes))])
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; base-uri 'self'; form-action 'self'"
    )
    return re.sub(r"<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{policy}">', page, count=1)


def _remove(path: Path) -> None:
    if path.is_dir():
        for inside in path.iterdir():
            _remove(inside)
        path.rmdir()
    else:
        path.unlink()
