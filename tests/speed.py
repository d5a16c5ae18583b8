"""Bounds on time that hold on any machine: a picture is timed beside a plain one of matplotlib's own, in turns.

Seconds alone say as much about the machine as about the code: one host paints in 0.11 s what takes another 0.18 s, and
processes beside it slow the caches of both down. The ratio to a yardstick that was painted in the same moments stays.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from statistics import median

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle


def plain() -> None:
    """The yardstick: 100 rectangles and 50 texts, 12.8 x 5 inches, painted by matplotlib without a line of ours."""
    figure = Figure(figsize=(12.8, 5.0), dpi=100)
    ax = figure.add_axes((0, 0, 1, 1))
    for i in range(100):
        ax.add_patch(Rectangle((i % 10 / 10, i // 10 / 10), 0.08, 0.08, facecolor="0.8", edgecolor="0.2"))
    for i in range(50):
        ax.text(i % 10 / 10, i // 10 / 5, f"{i}.{i}", fontsize=9)
    figure.savefig(io.BytesIO())


def times_plain(paint: Callable[[int], object], rounds: int) -> float:
    """How many times as long as the yardstick `paint(1)`, ..., `paint(rounds)` take: medians of CPU time, in turns."""
    paint(0), plain()  # fonts are found, caches are filled
    ours, theirs = [], []
    for number in range(1, rounds + 1):
        for job, seconds in ((lambda: paint(number), ours), (plain, theirs)):  # noqa: B023
            start = time.process_time()
            job()
            seconds.append(time.process_time() - start)
    return median(ours) / median(theirs)
