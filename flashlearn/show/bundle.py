"""What a widget shows, in data and metadata, and the scripts and styles that it brings."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

VIEW = "application/vnd.jupyter.widget-view+json"
AGAIN = "This is the stored picture. To {}, run the notebook: menu Run, Run All Cells."


def browser_text(*names: str) -> str:
    """Files of browser/ as one text: scripts as one module, or a style."""
    return "\n".join((files("flashlearn.show") / "browser" / name).read_text(encoding="utf-8") for name in names)


def parts(bundle: Any, stored: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and metadata of a widget's bundle, which may be data alone, or None where widgets are not shown.

    stored   HTML that browser/saved.js puts in place of the view when the notebook is saved

    The metadata matters in Colab: it says where to find the script that shows widgets other than its own.
    """
    data, about = bundle if isinstance(bundle, tuple) else (bundle, None)
    shown = dict(_mapping(data))
    if VIEW in shown:
        shown[VIEW] = {**shown[VIEW], "stored": stored}
    return shown, dict(_mapping(about))


def _mapping(value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {} if value is None else value
