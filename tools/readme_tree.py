"""Write the tree of the README, "What is where", from the files and the first lines of their docstrings.

python tools/readme_tree.py            write it
python tools/readme_tree.py --check    write nothing; say by the exit status whether it is up to date
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FENCED = re.compile(r"(?<=## What is where\n\n```\n).*?(?=```\n)", re.DOTALL)
ROOMS = (
    "core",
    "algorithms",
    "cost",
    "fast",
    "kernels",
    "gpu",
    "simulator",
    "compiler",
    "show",
    "models",
    "serving",
    "exercises",
    "course",
    "grading",
    "measurements",
)  # none imports later
MANY = 15  # a package with more modules than this is one line, and its packages
# What has no docstring to take them from.
WORDS = {
    "notebooks": "the course, numbered; run them from top to bottom. INSTRUCTORS.md is for those who teach with them, 14_appendix.md tells what did not help",
    "tests": "of the package, of the notebooks; browser/ and gpu/ need Chromium and a GPU",
    "benchmarks": "scripts that time and count; what they found is in flashlearn/measurements/",
    "tools": "what `make` runs, and what makes parts of this page",
    "book": "settings of the book, a website made from the stored outputs",
    "docs": "the picture at the top of this page; which models of transformers run with our attention",
    "constraints.txt": "the exact versions tested: the only place where they stand",
    "CONTRIBUTING.md": "set-up, tests, how notebooks are run again, style",
    "CHANGELOG.md": "what changed, version by version",
}


def tree(root: Path) -> str:
    """The whole tree, one line a file or folder."""
    lines = ["flashlearn/"]
    for room in sorted((root / "flashlearn").glob("*/__init__.py"), key=lambda path: order(path.parent)):
        lines += branch(room.parent, 1)
    for name, words in WORDS.items():
        lines.append(line(0, f"{name}/" if (root / name).is_dir() else name, words))
        if name in ("benchmarks", "tools"):
            for path in modules(root / name):
                lines += branch(path, 1)
    return "\n".join(lines) + "\n"


def order(room: Path) -> tuple[int, str]:
    """Rooms in the order of `ROOMS`, then those that it does not know."""
    return ROOMS.index(room.name) if room.name in ROOMS else len(ROOMS), room.name


def branch(path: Path, depth: int) -> Iterator[str]:
    """A module as a line; a package as a line and what is in it, unless that is too much."""
    if path.is_file():
        yield line(depth, path.name, summary(path))
        return
    yield line(depth, f"{path.name}/", summary(path / "__init__.py"))
    inside = modules(path)
    few = sum(each.is_file() for each in inside) <= MANY
    for each in inside:
        if path.name != "course" and (few or each.is_dir()):
            yield from branch(each, depth + 1)


def modules(folder: Path) -> list[Path]:
    """Modules, then packages, in a folder."""
    files = (path for path in folder.glob("*.py") if not path.name.startswith("_"))
    return sorted(files) + sorted(path.parent for path in folder.glob("*/__init__.py"))


def summary(module: Path) -> str:
    """The first line of its docstring, without the full stop."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
    if not docstring:
        raise ValueError(f"expected a docstring in {module}, got none")
    return docstring.splitlines()[0].rstrip(".")


def line(depth: int, name: str, words: str) -> str:
    """One line; the words of all begin in the same column."""
    return f"{'  ' * depth}{name}".ljust(24) + words


def main(arguments: list[str]) -> int:
    """Write the tree, or check it; the exit status."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    new, count = FENCED.subn(lambda _: tree(ROOT), text)
    if count != 1:
        raise ValueError(f"expected one tree below '## What is where' in README.md, got {count}")
    if arguments == ["--check"]:
        return int(new != text)
    readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
