"""Times on a laptop: to run and check every notebook, and to redraw a step of every picture.

    python benchmarks/laptop.py                               all, about five minutes, and flashlearn/measurements/laptop.json
    python benchmarks/laptop.py notebooks/03*.ipynb --parts notebooks       some
    python benchmarks/laptop.py --table flashlearn/measurements/laptop.json      the tables of a record

notebooks   seconds of `pytest --nbval` on each, in a process of its own, its start included; all within four minutes
redraw      milliseconds (CPU time) from a step to its PNG, the best of three: 100 at most, 150 for two panels of tiles

Ends with 1 if a notebook fails or a bound is exceeded. Close other programs first: notebooks are timed by the wall clock.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

from recording import recorded
from tqdm import tqdm

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "flashlearn/measurements" / "laptop.json"
PARTS = ("notebooks", "redraw")
ALL_NOTEBOOKS = 240  # seconds


def machine() -> str:
    """The processor and how many cores this process may use."""
    model = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        named = [
            line.partition(":")[2]
            for line in cpuinfo.read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ]
        model = named[0].strip() if named else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {cores} cores"


def provenance() -> dict:
    """Machine, system, versions, date."""
    versions = {}
    for package in ("torch", "triton", "matplotlib", "nbval"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "none"
    here = {"machine": machine(), "system": f"{platform.system()} {platform.machine()}"}
    return here | {"python": platform.python_version()} | versions | {"date": datetime.date.today().isoformat()}


def run_notebook(path: Path) -> dict:
    """Seconds of `pytest --nbval` on one notebook, with one thread as in `make test`, and whether all cells passed."""
    options = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout=120", "-q", "-n", "0", "-p", "no:cacheprovider"]
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(path.resolve())],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    row = {"notebook": path.stem, "seconds": round(time.monotonic() - start, 1), "passed": done.returncode == 0}
    if done.returncode:
        print(done.stdout[-2000:] + done.stderr[-2000:], file=sys.stderr)
    return row


def redraw_rows(names: list[str] | None = None) -> list[dict]:
    """Steps, median and slowest in milliseconds of every picture, or of those named."""
    import redraw

    rows = []
    for name, picture in tqdm(redraw.pictures().items(), unit="picture", disable=None):
        if names is None or name in names:
            times = redraw.milliseconds(*picture)
            rows.append(
                {
                    "picture": name,
                    "steps": len(times),
                    "median_ms": round(statistics.median(times), 1),
                    "slowest_ms": round(max(times), 1),
                    "bound_ms": redraw.bound(name),
                }
            )
            tqdm.write(redraw_line(rows[-1]))
    return rows


def redraw_line(row: dict) -> str:
    late = row["slowest_ms"] > row["bound_ms"]
    words = f"MISSED by {row['slowest_ms'] - row['bound_ms']:.0f} ms" if late else "met"
    return f"{row['picture']:34} {row['steps']:5} {row['median_ms']:9.1f} {row['slowest_ms']:10.1f} {row['bound_ms']:8} {words}"


def notebook_line(row: dict) -> str:
    return f"{row['notebook']:34} {row['seconds']:6.1f} s  {'passed' if row['passed'] else 'FAILED'}"


def bounds_missed(results: dict) -> list[str]:
    """Failures, and times above their bounds."""
    rows = results["notebooks"]
    missed = [f"{row['notebook']} failed" for row in rows if not row["passed"]]
    over = sum(row["seconds"] for row in rows) - ALL_NOTEBOOKS
    missed += [f"all notebooks: {over:.0f} s above {ALL_NOTEBOOKS}"] if over > 0 else []
    slow = (row for row in results["redraw"] if row["slowest_ms"] > row["bound_ms"])
    return missed + [f"{row['picture']}: {row['slowest_ms'] - row['bound_ms']:.0f} ms above the bound" for row in slow]


def table(results: dict) -> str:
    """Both tables, and what is missed."""
    lines = [", ".join(f"{key} {value}" for key, value in results["provenance"].items())]
    if rows := results["notebooks"]:
        lines += ["", *map(notebook_line, rows)]
        lines.append(f"{'together':34} {sum(row['seconds'] for row in rows):6.1f} s  bound {ALL_NOTEBOOKS} s")
    if rows := results["redraw"]:
        lines += ["", f"{'picture':34} {'steps':>5} {'median ms':>9} {'slowest ms':>10} {'bound ms':>8}"]
        lines += map(redraw_line, rows)
    missed = bounds_missed(results)
    return "\n".join(
        [*lines, "", *(f"MISSED  {words}" for words in missed)] if missed else [*lines, "", "all bounds met"]
    )


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", type=Path, nargs="*", help="which to run; all of notebooks/ unless named")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", type=Path, help="print the tables of a recorded run")
    args = parser.parse_args(given)
    if args.table:
        print(table(recorded(args.table, parser, "notebooks", "redraw")))
        return 0
    if absent := [str(path) for path in args.notebooks if not path.is_file()]:
        parser.error(f"expected notebooks, found no file {', '.join(absent)}")
    results = {
        "provenance": provenance(),
        "unit": "seconds a notebook, milliseconds a step",
        "notebooks": [],
        "redraw": [],
    }
    if "redraw" in args.parts:  # first, while the machine is cool
        results["redraw"] = redraw_rows()
    paths = (args.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb"))) if "notebooks" in args.parts else ()
    for path in tqdm(paths, unit="notebook", disable=None):
        results["notebooks"].append(run_notebook(path))
        tqdm.write(notebook_line(results["notebooks"][-1]))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("\n" + table(results))
    return 1 if bounds_missed(results) else 0


if __name__ == "__main__":
    sys.exit(main())
