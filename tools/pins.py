"""Move the pins of constraints.txt to the newest versions that go together, and say what broke.

    python tools/pins.py            all but those in HELD, then `make lint`, `make test` and `make test-slow`
    python tools/pins.py --all      those too: what the weekly job of CI tries
    python tools/pins.py --no-run   move the pins only

pip resolves them, as for a first installation on this machine, without installing. Pins that this machine does not need
(another system's, those of CUDA) stay, and are named. The exit status is that of the commands.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?P<marker>;.*|\s*;.*)?$")
HELD = {
    "torch": "the recorded pair: measure again on a GPU with the new one",
    "triton": "the recorded pair: measure again on a GPU with the new one",
    "jsonschema": "newer ones take two seconds to import, in every Jupyter server and every pytest",
    "soupsieve": "newer ones need Python 3.11.5",
}
CHECKS = (["make", "lint"], ["make", "test"], ["make", "test-slow"])


class Moves(NamedTuple):
    """Changes of the pins: name -> (old, new), names of new and of dropped ones, and of those that nothing requires."""

    moved: dict[str, tuple[str, str]]
    added: dict[str, str]
    dropped: list[str]
    untouched: list[str]


def canonical(name: str) -> str:
    """The name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def move(text: str, versions: Mapping[str, str]) -> tuple[str, Moves]:
    """constraints.txt with the versions that pip found, {canonical name: version}, and what changed.

    The first block has the pins that every platform needs. What pip found and no line names is added there, and what
    pip did not find is dropped there. Elsewhere such lines stay.

    >>> move("# pins\\n\\na==1\\ngone==1\\n\\n# there\\nb==1; sys_platform == 'win32'\\n", {"a": "2", "new": "3"})[0]
    "# pins\\n\\na==2\\nnew==3\\n\\n# there\\nb==1; sys_platform == 'win32'\\n"
    """
    blocks = text.rstrip("\n").split("\n\n")
    first = next(i for i, block in enumerate(blocks) if PIN.match(block.splitlines()[0]))
    moves, known = Moves({}, {}, [], []), set()
    for i, block in enumerate(blocks):
        lines = []
        for line in block.splitlines():
            pin = PIN.match(line)
            if pin:
                known.add(canonical(pin["name"]))
                line = _moved(pin, versions, moves, droppable=i == first)
            lines += [line] if line else []
        blocks[i] = "\n".join(lines)
    moves.added.update({name: version for name, version in versions.items() if name not in known})
    lines = blocks[first].splitlines() + [f"{name}=={version}" for name, version in moves.added.items()]
    blocks[first] = "\n".join(sorted(lines, key=lambda line: canonical(line.split("==")[0])))
    return "\n\n".join(blocks) + "\n", moves


def _moved(pin: re.Match, versions: Mapping[str, str], moves: Moves, droppable: bool) -> str:
    """One line with the new version; "" if it is dropped."""
    name, old = canonical(pin["name"]), pin["version"]
    if name not in versions:
        (moves.dropped if droppable else moves.untouched).append(pin["name"])
        return "" if droppable else pin.string
    new = versions[name].partition("+")[0]  # a local version, such as +cpu, is that of one machine
    if new != old:
        moves.moved[pin["name"]] = (old, new)
    return f"{pin['name']}=={new}{pin['marker'] or ''}"


def newest(held: Iterable[str]) -> dict[str, str]:
    """The versions that pip would install here today, {canonical name: version}; `held` are lines of constraints."""
    with tempfile.TemporaryDirectory() as folder:
        report, constraints = Path(folder, "report.json"), Path(folder, "held.txt")
        constraints.write_text("\n".join(held) + "\n", encoding="utf-8")
        options = ["--dry-run", "--ignore-installed", "--quiet", "--report", str(report), "-c", str(constraints)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, "-e", ".[dev]"], cwd=ROOT, check=True)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    versions = {canonical(each["metadata"]["name"]): each["metadata"]["version"] for each in found}
    versions.pop("flashlearn", None)
    return versions


def told(moves: Moves) -> str:
    """What changed, in words."""
    lines = [f"{name} {old} -> {new}" for name, (old, new) in moves.moved.items()]
    lines += [f"{name} {version} is new" for name, version in moves.added.items()]
    lines += [f"{name} is no longer required" for name in moves.dropped]
    lines = lines or ["nothing newer"]
    if moves.untouched:
        lines.append(f"not required on this machine, and left as they are: {', '.join(moves.untouched)}")
    return "\n".join(lines)


def broken(checks: Iterable[list[str]]) -> list[str]:
    """Run the checks, all of them, and say what failed: the command, and the tests that pytest names."""
    failed = []
    for command in checks:
        print(f"pins: {' '.join(command)}", flush=True)
        run = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
        )
        named = []
        for line in run.stdout or ():
            print(line, end="", flush=True)
            if line.startswith(("FAILED ", "ERROR ")) or " error: " in line:
                named.append(f"    {line.rstrip()}")
        if run.wait():
            failed += [f"{' '.join(command)} broke:", *named]
    return failed


def main(arguments: list[str] | None = None) -> int:
    """Move the pins, run the checks, and say what broke."""
    parser = argparse.ArgumentParser(prog="python tools/pins.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", action="store_true", help=f"move {', '.join(HELD)} too")
    parser.add_argument("--no-run", action="store_true", help="run no checks")
    options = parser.parse_args(arguments)
    file = ROOT / "constraints.txt"
    text = file.read_text(encoding="utf-8")
    pins = [pin for pin in map(PIN.match, text.splitlines()) if pin]
    held = [] if options.all else [pin.string for pin in pins if canonical(pin["name"]) in HELD]
    text, moves = move(text, newest(held))
    file.write_text(text, encoding="utf-8")
    failed = [] if options.no_run else broken(CHECKS)
    print("\n".join(["", "pins: what moved", told(moves), "", "pins: what broke", *(failed or ["nothing"])]))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
