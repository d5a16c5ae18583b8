"""Optional extras: what the algorithms and kernels do without, and the course does not."""

from __future__ import annotations

import importlib.util


def needs(who: str, extra: str, *modules: str) -> None:
    """Refuse to go on without the modules that an extra of flashlearn brings; the error says how to install it.

    >>> needs("the clock", "course", "time", "sundial")
    Traceback (most recent call last):
        ...
    ModuleNotFoundError: the clock needs sundial, of the extra `course`: run `pip install 'flashlearn[course]'`
    """
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise ModuleNotFoundError(
            f"{who} needs {', '.join(missing)}, of the extra `{extra}`: run `pip install 'flashlearn[{extra}]'`",
            name=missing[0],
        )
