"""Count the lines of the repository by folder, now or at a commit: `python -m tools.size [COMMIT] [--functions N]`.

Python, JavaScript, Markdown and TOML are counted, every line of them, tracked by git.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
COUNTED = {".py", ".js", ".md", ".toml"}
# The parts that have a size to aim at, with the folders of each; a file belongs to the first part that names it.
PARTS = {
    "flashlearn/course": ("flashlearn/course",),
    "flashlearn/fast": ("flashlearn/fast",),
    "flashlearn, the rest": ("flashlearn",),
    "tests": ("tests",),
    "tools and benchmarks": ("tools", "benchmarks"),
}


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True
    ).stdout


def sources(commit: str | None) -> Iterator[tuple[PurePosixPath, str]]:
    """Path and text of every file that counts, of the working tree or of a commit."""
    listed = git("ls-tree", "-r", "-z", "--name-only", commit) if commit else git("ls-files", "-z")
    for name in listed.split("\0"):
        path = PurePosixPath(name)
        if path.suffix in COUNTED and (commit or (ROOT / path).exists()):
            yield path, git("show", f"{commit}:{path}") if commit else (ROOT / path).read_text(encoding="utf-8")


def part(path: PurePosixPath) -> str | None:
    """The part that a file belongs to, None for the few outside all of them.

    >>> part(PurePosixPath("flashlearn/core/hbm.py")), part(PurePosixPath("README.md"))
    ('flashlearn, the rest', None)
    """
    return next((name for name, folders in PARTS.items() if any(path.is_relative_to(one) for one in folders)), None)


def functions(text: str) -> Iterator[tuple[int, str]]:
    """Lines and name of every function of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, node.name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", help="a commit of git; the working tree without it")
    parser.add_argument(
        "--functions", type=int, default=3, metavar="N", help="how many of the longest functions to name"
    )
    options = parser.parse_args()

    lines: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    files: Counter[str] = Counter()
    longest: list[tuple[int, str, str]] = []
    for path, text in sources(options.commit):
        counted = text.count("\n")
        folder = "/".join(path.parts[:-1][:3]) or "."
        folders[folder] += counted
        files[folder] += 1
        if name := part(path):
            lines[name] += counted
        if path.suffix == ".py" and path.parts[0] == "flashlearn":
            longest += [(length, name, str(path)) for length, name in functions(text)]

    for name in PARTS:
        print(f"{lines[name]:7,}  {name}")
    print("\n  lines files  folder")
    for folder in sorted(folders):
        print(f"{folders[folder]:7,} {files[folder]:5}  {folder}")
    print("\nlongest functions of flashlearn")
    for length, name, file in sorted(longest, reverse=True)[: options.functions]:
        print(f"{length:7,}  {name}  {file}")


if __name__ == "__main__":
    main()
