"""What a widget shows, in data and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def parts(bundle: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and metadata of a widget's bundle, which may be data alone, or None where nobody shows widgets.

    The metadata matters in Colab: it says where to find the script that shows widgets other than its own.
    """
    data, about = bundle if isinstance(bundle, tuple) else (bundle, None)
    return dict(_mapping(data)), dict(_mapping(about))


def _mapping(value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {} if value is None else value
