"""Print what `check` says about every variant, and how many it names."""

import argparse
from collections import Counter

from flashlearn.exercises import check
from tests.variants import collect, says_the_cause, verdict


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.variants", description=__doc__)
    parser.add_argument("prefix", nargs="?", default="", help="of the exercises to look at, e.g. 04 or 04.decode")
    parser.add_argument("--all", action="store_true", help="print the reports of those that are named, too")
    options = parser.parse_args()
    found: Counter[str] = Counter()
    for variant in collect():
        if variant.exercise.startswith(options.prefix):
            report = repr(check(variant.exercise, variant.function))
            outcome = verdict(variant, report)
            found[outcome] += 1
            found["say it"] += says_the_cause(variant, report)
            if "0 of" not in report and "FAIL" not in report:
                raise SystemExit(f"expected a wrong answer, got one that passes: {variant.exercise}: {variant.cause}")
            print(f"{outcome:8} {variant.exercise}: {variant.cause}", flush=True)
            if options.all or outcome != "named":
                print("\n".join(f"    {line}" for line in report.splitlines()), flush=True)
    total = sum(found[outcome] for outcome in ("named", "misled", "unnamed"))
    print(f"{found['named']} of {total} named, {found['misled']} misled, {found['unnamed']} unnamed")
    print(f"{found['say it']} say the cause somewhere, with or without false advice beside it")


if __name__ == "__main__":
    main()
