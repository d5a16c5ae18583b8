"""Write the tables of measured paths in docs/engineering_log.md from their record.

python -m tools.engineering_log            write it
python -m tools.engineering_log --check    write nothing; say by the exit status whether it is up to date
"""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from flashlearn.measurements.records import geometric_mean, load, provenance

LOG = Path(__file__).parents[1] / "docs" / "engineering_log.md"
SECTION = re.compile(r"(?<=<!-- measured paths -->\n).*?(?=<!-- end of measured paths -->)", re.DOTALL)
SECOND_RUN = re.compile(r"(?<=<!-- second run -->\n).*?(?=<!-- end of second run -->)", re.DOTALL)
MAIN = 16  # settings of each direction: D 64 and 128, N 4096 and 16384, causal and not, two dtypes
STEADY = 0.03  # elsewhere only settings in which the kernels timed twice agree so well


def is_main(setting: str) -> bool:
    """Whether a setting is one of the 16 of its direction.

    >>> is_main("plain 64 4096 c h f"), is_main("plain 64 1024 c h f"), is_main("det 64 4096 c h b")
    (True, False, False)
    """
    what, D, N, *_ = setting.split()
    return what == "plain" and D in ("64", "128") and N in ("4096", "16384")


def of_direction(ratios: Mapping[str, float], direction: str) -> str:
    """The gain in the main settings, in per cent: mean and maximum. Settings that the path does not change count as 1."""
    found = [ratio for setting, ratio in ratios.items() if is_main(setting) and setting.endswith(direction)]
    if not found:
        return ""
    mean = geometric_mean(found + [1.0] * (MAIN - len(found)))
    return f"{signed(mean)}, {signed(max(found))}"


def elsewhere(ratios: Mapping[str, float], noise: Mapping[str, float]) -> str:
    """The gain in other settings, in per cent: from the minimum to the maximum, and in how many."""
    found = [ratio for setting, ratio in ratios.items() if not is_main(setting) and abs(noise[setting] - 1) <= STEADY]
    return f"{signed(min(found))} to {signed(max(found))} ({len(found)})" if found else ""


def signed(ratio: float) -> str:
    """A ratio of times as a gain in per cent.

    >>> signed(1.0234), signed(0.991)
    ('2.3', '−0.9')
    """
    return f"{100 * (ratio - 1):.1f}".replace("-", "−").replace("−0.0", "0.0")


def combined_noise(noise: Mapping[str, float]) -> list[float]:
    """How far the same kernels, timed twice, differ in the main settings, in per cent."""
    return [100 * abs(ratio - 1) for setting, ratio in noise.items() if is_main(setting)]


def rendered(results: Mapping) -> str:
    """The section of measured paths: its figures and its table."""
    noise, paths = results["noise"], results["paths"]
    spread = combined_noise(noise)
    lines = [
        f"{provenance(results)}, commit {results['provenance']['commit']}. The same kernels, timed twice, differ by",
        f"{sum(spread) / len(spread):.2f} % in the mean of the main settings and by {max(spread):.2f} % at most.",
        "",
        "| path | lines | forward | backward | elsewhere | decision |",
        "|---|---|---|---|---|---|",
        *(row(path, noise) for path in paths),
    ]
    return "\n".join(lines) + "\n"


def second_run(results: Mapping) -> dict[str, dict[str, list[float]]]:
    """{version: {settings: times over those of the version with both paths}}, steady settings, causal and float16."""
    ratios = results["second run"]["ratios"]
    noise = ratios["both, timed again"]
    columns = {
        "D 128, N 4096": ("plain 128 4096 c h b",),
        "D 128, N 16384": ("plain 128 16384 c h b",),
        "D 64 and 128, N 512 to 2048": [f"plain {D} {N} c h b" for D in (64, 128) for N in (512, 1024, 2048)],
    }
    return {
        version: {
            column: [found[setting] for setting in settings if abs(noise[setting] - 1) <= STEADY]
            for column, settings in columns.items()
        }
        for version, found in ratios.items()
        if found is not noise
    }


def rendered_second_run(results: Mapping) -> str:
    """The second run as a table: one figure, or from the minimum to the maximum."""
    found = second_run(results)
    columns = list(next(iter(found.values())))
    lines = [f"| paths | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for version, cells in found.items():
        ends = (dict.fromkeys(f"{end:.2f}" for end in (min(cell), max(cell))) for cell in cells.values())
        lines.append(f"| {version} | {' | '.join(' to '.join(each) for each in ends)} |")
    return "\n".join(lines) + "\n"


def row(path: Mapping, noise: Mapping[str, float]) -> str:
    """A path's row of the table."""
    cells: Iterable[object] = (
        path["name"], path["lines"], of_direction(path["ratios"], "f"), of_direction(path["ratios"], "b"),
        elsewhere(path["ratios"], noise), path["decision"],
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def filled(text: str, results: Mapping) -> str:
    """The text with its tables made anew; ValueError if it has no section of measured paths."""
    if not SECTION.search(text):
        raise ValueError("expected a text with a section of measured paths, got none")
    text = SECTION.sub(lambda _: rendered(results), text)
    return SECOND_RUN.sub(lambda _: rendered_second_run(results), text)


def main(arguments: list[str], path: Path = LOG) -> int:
    """Write the tables, or check them; the exit status."""
    text = path.read_text(encoding="utf-8")
    new = filled(text, load("gpu_paths_h200"))
    if arguments == ["--check"]:
        return int(new != text)
    path.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
