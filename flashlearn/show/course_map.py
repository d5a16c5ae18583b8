"""The map of the course on one page, to print.

python -m flashlearn.show.course_map map.html
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m flashlearn.show.course_map", description="Write the map of the course, one A4 page of HTML."
    )
    parser.add_argument("file", type=Path, help="where to write it, e.g. map.html")
    file = parser.parse_args(arguments).file
    from flashlearn.show.moved import page  # here: `--help` needs no PyTorch

    try:
        file.write_text(page(), encoding="utf-8")
    except OSError as error:
        parser.error(f"expected a file that can be written, got {str(file)!r}: {error.strerror}")
    print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
