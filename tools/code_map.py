"""Write docs/MAP.md, the map of the code: a picture of the layers, and one line a module from its docstring.

python -m tools.code_map            write it
python -m tools.code_map --check    write nothing; the exit status says whether it is up to date
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAD = """# Map of the code

Made by `make format` from the files and the first lines of their docstrings.

## Layers

![The rooms of the package in layers, each above the rooms that it imports](layers.svg)

The picture is computed from the imports at the top of the modules. A room imports from its own layer and from those below it.

"""
TAIL = """

## Next to the package

- `notebooks/`: the course. `INSTRUCTORS.md` and `GRADING.md` are for those who teach it. `14_appendix.md` belongs to notebook 14.
- `tests/`: of the package and the notebooks; `browser/` needs Chromium, `gpu/` a GPU.
- `benchmarks/`: scripts that time kernels; their records are in `flashlearn/measurements/`.
- `book/`: settings, scripts and styles of the website that `make book` builds.
- `docs/`: this map, the [list of the notebooks](notebooks.md), [the kernels](kernels.md), [setting up](setup.md), the
  [models](models.md) that run with our attention, and the [engineering log](engineering_log.md).
- `constraints.txt`: the tested versions, stated here alone.
"""
PALE, DARK, INK = "#e6f0f7", "#00588a", "#1a1a1a"


def rooms(package: Path) -> list[str]:
    return sorted(path.parent.name for path in package.glob("*/__init__.py"))


def imports(module: Path) -> Iterator[str]:
    """The rooms from which a module imports at its top, or under a condition there."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        for each in ast.walk(node) if not isinstance(node, ast.FunctionDef | ast.ClassDef) else ():
            names = [each.module] if isinstance(each, ast.ImportFrom) else []
            names += [alias.name for alias in each.names] if isinstance(each, ast.Import) else []
            yield from (name.split(".")[1] for name in names if name and name.startswith("flashlearn."))


def layers(package: Path) -> list[list[str]]:
    """The rooms, lowest layer first: each as low as what it imports allows; rooms that import each other share a layer."""
    needs = {
        room: {name for module in (package / room).rglob("*.py") for name in imports(module)} & set(rooms(package))
        for room in rooms(package)
    }
    for _ in needs:  # now with their own imports, and so on
        needs = {room: others.union(*(needs[other] for other in others)) for room, others in needs.items()}
    found: list[list[str]] = []
    while needs:
        layer = [room for room, others in needs.items() if all(room in needs[each] for each in others & needs.keys())]
        found.append(layer)
        needs = {room: others for room, others in needs.items() if room not in layer}
    return found


def picture(found: list[list[str]]) -> str:
    """The layers as an SVG, the highest at the top."""
    wide, high, gap = 132, 40, 12
    width = max(map(len, found)) * (wide + gap) + gap
    height = len(found) * (high + gap) + gap
    parts = []
    for number, layer in enumerate(reversed(found)):
        y = gap + number * (high + gap)
        left = (width - len(layer) * (wide + gap) + gap) / 2
        for place, room in enumerate(layer):
            x = left + place * (wide + gap)
            parts.append(
                f'<rect x="{x:g}" y="{y}" width="{wide}" height="{high}" rx="6" fill="{PALE}" stroke="{DARK}"/>'
            )
            parts.append(f'<text x="{x + wide / 2:g}" y="{y + 26}" text-anchor="middle" fill="{INK}">{room}</text>')
    body = "\n".join(parts)
    font = 'font-family="sans-serif" font-size="16"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" {font}>\n{body}\n</svg>\n'


def listed(folder: Path) -> Iterator[str]:
    """A heading and a line for each module of a folder and of the packages in it that say what they are."""
    for part in (folder, *sorted(path.parent for path in folder.rglob("*/__init__.py") if path.parent != folder)):
        modules = sorted(path for path in part.glob("*.py") if path.name != "__init__.py")
        if docstring := said(part / "__init__.py"):
            yield f"\n### {part.relative_to(ROOT)}\n\n{docstring}.\n"
            yield from (f"- `{path.name}`: {said(path)}" for path in modules)


def said(module: Path) -> str:
    """The first line of a docstring, without the full stop; "" if the file is empty."""
    text = module.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text))
    if text and not docstring:
        raise ValueError(f"expected a docstring in {module}, got none")
    return (docstring or "").split("\n\n")[0].replace("\n", " ").rstrip(".")


def documents() -> dict[Path, str]:
    """The files that docs/ should have."""
    found = layers(ROOT / "flashlearn")
    order = [room for layer in found for room in layer]
    lines = [line for room in order for line in listed(ROOT / "flashlearn" / room)]
    lines += listed(ROOT / "tools")
    return {ROOT / "docs/MAP.md": HEAD + "\n".join(lines) + TAIL, ROOT / "docs/layers.svg": picture(found)}


def main(arguments: list[str]) -> int:
    """Write the map, or check it; the exit status."""
    made = documents()
    if arguments == ["--check"]:
        return int(any(not path.exists() or path.read_text(encoding="utf-8") != text for path, text in made.items()))
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
