"""What a widget shows, in data and metadata, the scripts and styles that it brings, and runs of scenes packed for a page."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from IPython.display import display

VIEW = "application/vnd.jupyter.widget-view+json"
AGAIN = "This is the stored picture. To {}, run the notebook: menu Run, Run All Cells."
LIVE = ".jp-OutputArea:has(.flashlearn-player) .flashlearn-again { display: none }"
IMPORT = re.compile(r'^import \{[^}]*\} from "\./\w+\.js";\n', re.MULTILINE)


def browser_text(*names: str) -> str:
    """Files of browser/ as one text: scripts as one module, each after those that it imports, or a style."""
    folder = files("flashlearn.show") / "browser"
    return IMPORT.sub("", "\n".join((folder / name).read_text(encoding="utf-8") for name in names))


def show(bundle: tuple[dict[str, Any], dict[str, Any]], how: str, words: str = "") -> None:
    """Display a widget, its picture to store, and in an output of its own words for where only the picture is left.

    how     what the reader can do with the widget, e.g. "play it"; `LIVE` hides that line next to a live one
    words   more of them, as HTML
    """
    data, about = bundle
    display(data, metadata=about, raw=True)
    again = f'<p class="flashlearn-again">{html.escape(AGAIN.format(how))}</p>{words}'
    display({"text/html": again}, metadata={"flashlearn": "words"}, raw=True)


def parts(bundle: Any, name: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and metadata of a widget's bundle, which may be data alone, or None where widgets are not shown.

    name   that of a player whose picture browser/saved.js stores; of all our widgets it drops the view

    The metadata matters in Colab: it says where to find the script that shows widgets other than its own.
    """
    data, about = bundle if isinstance(bundle, tuple) else (bundle, None)
    shown = dict(_mapping(data))
    if VIEW in shown:
        shown[VIEW] = {**shown[VIEW], "stored": name}
    return shown, dict(_mapping(about))


def _mapping(value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {} if value is None else value


# --- packed runs -----------------------------------------------------------------------------------------------


def packed_run(frames: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Scenes (wide, narrow) as player.js unpacks them: every line once, and of each frame the numbers of its lines.

    Neighbouring steps have most of their shapes and words in common: a run takes little more than a frame.
    """
    numbers: dict[str, int] = {}
    layouts = zip(*frames, strict=True)
    wide, narrow = ([_packed(svg, numbers) for svg in layout] for layout in layouts)
    return {"lines": list(numbers), "wide": wide, "narrow": narrow}


def _packed(svg: str, numbers: dict[str, int]) -> str:
    """The numbers of its lines, "0-40 57 42-43"; a line that is new gets the next one."""
    lines = svg.replace("><", ">\n<").split("\n")
    return " ".join(_ranges(numbers.setdefault(line, len(numbers)) for line in lines))


def _ranges(numbers: Iterable[int]) -> Iterable[str]:
    """Numbers that follow each other as first-last."""
    for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        first, *others = (number for _, number in run)
        yield f"{first}-{others[-1]}" if others else f"{first}"
