"""The figures of a page, as HTML: runs that are played, plots, and stored pictures of which there is nothing sharper."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote


def unpacked(scenes: Mapping[str, Any], step: int) -> tuple[str, str]:
    """One frame of packed scenes, wide and narrow.

    >>> unpacked({"lines": ["<svg>", "a", "b", "</svg>"], "wide": ["0-1 3"], "narrow": ["0 2-3"]}, 0)
    ('<svg>a</svg>', '<svg>b</svg>')
    """
    return _frame(scenes, "wide", step), _frame(scenes, "narrow", step)


def _frame(scenes: Mapping[str, Any], layout: str, step: int) -> str:
    ranges = (span.partition("-") for span in scenes[layout][step].split())
    return "".join("".join(scenes["lines"][int(a) : int(b or a) + 1]) for a, _, b in ranges)


def named(svg: str, slug: str, label: str = "") -> str:
    """A scene with names of its own on its page; with a label it is a picture for screen readers, without one it is none."""
    svg = re.sub(r'( id="|url\(#|href="#)(?:scene-)?', rf"\g<1>{slug}-", svg).replace(' aria-hidden="true"', "")
    how = f'role="img" aria-label="{html.escape(label)}"' if label else 'aria-hidden="true"'
    return svg.replace("<svg ", f"<svg {how} ", 1)


def cover(wide: str, narrow: str) -> str:
    """A chapter's first picture, for those who see it; the figure itself says what it shows. A plot has one layout."""
    wide, narrow = (svg.replace("<svg ", '<svg preserveAspectRatio="xMinYMin" ', 1) for svg in (wide, narrow))
    if 'class="scene"' in narrow:
        return f'<span class="wide">{wide}</span><span class="narrow">{narrow}</span>'
    return wide


def run(slug: str, run: Mapping[str, Any], still: int, scenes: str) -> str:
    """A run of scenes: its first frame at once, the rest in a file that is loaded as the reader comes near.

    scenes   where that file is
    still    the step that stands for the whole: in print, and on pages without scripts
    """
    kept = {name: value for name, value in run.items() if name not in ("scenes", "table")}
    kept["frames"] = [unpacked(run["scenes"], 0)]
    words = json.dumps(kept, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    picture = named(unpacked(run["scenes"], still)[0], f"{slug}-still", run["alt"])
    table = (
        f'<div class="scroll" tabindex="0" role="group" aria-label="all steps">{steps(run["table"], run["alt"])}</div>'
    )
    return (
        f'<figure class="run" id="picture-{slug}" data-scenes="{scenes}"><script type="application/json">{words}</script>'
        f'<div class="whole">{picture}<p>{html.escape(run["captions"][still])}</p></div>'
        f"<details><summary>All steps in words</summary>{table}</details></figure>"
    )


def steps(table: Mapping[str, Any], caption: str) -> str:
    """All steps as a table whose columns screen readers can name."""
    heads = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in table["heads"])
    rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in table["rows"])
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<table><caption>{html.escape(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    )


def plot(slug: str, shown: Mapping[str, Any]) -> str:
    """A plot, in two layouts if it has two: the page shows the one that there is room for."""
    kinds = ("wide", "narrow") if shown["narrow"] != shown["wide"] else ("both",)
    svgs = {"both": shown["wide"], **shown}
    pictures = (f'<div class="{kind}">{named(svgs[kind], f"{slug}-{kind}", shown["alt"])}</div>' for kind in kinds)
    return f'<figure class="still" id="picture-{slug}"><div class="picture">{"".join(pictures)}</div></figure>'


def still(slug: str, file: str, alt: str, size: Sequence[int]) -> str:
    """A stored picture that does not move."""
    return f'<figure class="still" id="picture-{slug}"><div class="picture">{image(file, alt, size)}</div></figure>'


def image(file: str, alt: str, size: Sequence[int]) -> str:
    """An image that is loaded as the reader comes near."""
    width, height = size
    return f'<img src="{quote(file)}" alt="{html.escape(alt)}" width="{width}" height="{height}" loading="lazy">'


def write_scenes(path: Path, scenes: Mapping[str, Any]) -> None:
    """The frames of a run as a script, since browsers load no JSON from a folder."""
    data = json.dumps(scenes, ensure_ascii=False, separators=(",", ":"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'flashlearnScenes("{path.stem}",{data});\n', encoding="utf-8")
