"""What flashlearn offers in a terminal: `python -m flashlearn`."""

from __future__ import annotations

import importlib
import io
import sys

COMMANDS = {
    "review": ("flashlearn.grading.review", "answer again what notebooks have asked, on a schedule"),
    "inventory": ("flashlearn.grading.inventory", "30 questions before the course, and 30 others after it"),
    "grade": ("flashlearn.grading.__main__", "grade submitted notebooks, for instructors"),
    "export": ("flashlearn.grading.export", "write all questions for Moodle or Canvas, for instructors"),
}


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] and given[0] in COMMANDS:
        return importlib.import_module(COMMANDS[given[0]][0]).main(given[1:])
    if given and given[0] not in ("-h", "--help"):
        print(
            f"expected one of {', '.join(COMMANDS)}, got {given[0]!r}: `python -m flashlearn` lists them",
            file=sys.stderr,
        )
        return 2
    print(usage())
    return 0


def usage() -> str:
    wide = max(map(len, COMMANDS))
    lines = (f"  python -m flashlearn {name:<{wide}}  {what}" for name, (_, what) in COMMANDS.items())
    return "\n".join(
        [
            "usage: python -m flashlearn COMMAND [options]",
            "",
            *lines,
            "",
            "`python -m flashlearn COMMAND --help` explains one. The notebooks: `make lab`.",
        ]
    )


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a sign shows a question mark
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(main())
