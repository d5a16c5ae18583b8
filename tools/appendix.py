"""Write the tables of notebooks/14_appendix.md and docs/engineering_log.md from the recorded measurements.

python tools/appendix.py            write them
python tools/appendix.py --check    write nothing; say by the exit status whether they are up to date
"""

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from flashlearn.kernels.ladder import TUNED
from flashlearn.measurements import load, story, tables

ROOT = Path(__file__).parents[1]
APPENDIX, LOG = ROOT / "notebooks" / "14_appendix.md", ROOT / "docs" / "engineering_log.md"
TABLE = re.compile(r"(?<=<!-- table: )(\w+)( -->\n```text\n).*?(?=```)", re.DOTALL)
BESIDE, H100, LADDER, PROFILE, TRIALS = (
    load(name) for name in ("gpu_attention_h200", "gpu_attention_h100", "gpu_ladder", "gpu_profile", "gpu_trials_h200")
)
TABLES: dict[str, Callable[[], str]] = {
    "rates_by_version": lambda: story.rates_by_version(LADDER),
    "passes": lambda: story.passes(LADDER),
    "launches": lambda: story.launches(LADDER, TUNED),
    "counters": lambda: tables.counters(PROFILE),
    "launching": lambda: tables.launching(BESIDE),
    "halving": lambda: tables.halving(BESIDE),
    "gqa": lambda: tables.gqa(BESIDE),
    "order": lambda: tables.order(TRIALS),
    "dims": lambda: tables.dims(H100),
    "dims_h200": lambda: tables.dims(BESIDE),
    "decoding": lambda: tables.decoding(BESIDE),
    "decoding_ratios": lambda: tables.decoding_ratios(BESIDE),
    "first_calls": lambda: tables.first_calls(BESIDE),
}


def filled(text: str) -> str:
    """The text with every table made anew; KeyError names an unknown one."""
    return TABLE.sub(lambda found: f"{found[1]}{found[2]}{TABLES[found[1]]()}\n", text)


def main(arguments: list[str], paths: Iterable[Path] = (APPENDIX, LOG)) -> int:
    """Write the tables, or check them; the exit status."""
    stale = False
    for path in paths:
        text = path.read_text(encoding="utf-8")
        new = filled(text)
        stale |= new != text
        if arguments != ["--check"]:
            path.write_text(new, encoding="utf-8")
    return int(stale and arguments == ["--check"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
