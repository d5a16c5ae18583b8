"""What a notebook shows: pictures, players, explorers, projector mode. All but scenes needs the extra `notebooks`."""

import importlib
from typing import TYPE_CHECKING, Any

from flashlearn.core.extras import needs

if TYPE_CHECKING:
    from flashlearn.show.animation import Picture, picture, reduced_motion
    from flashlearn.show.moved import bytes_moved
    from flashlearn.show.player import Player, play
    from flashlearn.show.projection import projector

# Where each name lives, to be imported when it is first used: one picture needs no widget, and `draw` neither.
HOMES = {
    "Picture": "animation",
    "Player": "player",
    "bytes_moved": "moved",
    "picture": "animation",
    "play": "player",
    "projector": "projection",
    "reduced_motion": "animation",
}

__all__ = list(HOMES)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'flashlearn.show' has no attribute {name!r}")
    needs("flashlearn.show", "notebooks", "IPython", "PIL", "anywidget", "ipywidgets", "matplotlib")
    found = getattr(importlib.import_module(f"flashlearn.show.{HOMES[name]}"), name)
    globals()[name] = found  # the next time it is found at once
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
