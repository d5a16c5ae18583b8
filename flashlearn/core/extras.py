"""Optional extras: packages that the course needs, and the algorithms and kernels do not."""

from __future__ import annotations

import importlib.util


def needs(who: str, extra: str, *modules: str) -> None:
    """Raise ModuleNotFoundError unless the modules of an extra of flashlearn are installed; the error says how to install them.

    >>> needs("the clock", "notebooks", "time", "sundial")
    Traceback (most recent call last):
        ...
    ModuleNotFoundError: the clock needs sundial, of the extra `notebooks`: in the folder of flashlearn run `pip install -c constraints.txt -e '.[notebooks]'`
    """
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise ModuleNotFoundError(
            f"{who} needs {', '.join(missing)}, of the extra `{extra}`: "
            f"in the folder of flashlearn run `pip install -c constraints.txt -e '.[{extra}]'`",
            name=missing[0],
        )
