"""Losses of a training run that goes on for too long: what it learns from, what it never saw, and what counting gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from flashlearn.show.draw.style import INK, QUIET

LOOK: tuple[dict[str, Any], ...] = (  # one for each run: they lie on each other, and both can be seen
    {"color": "#C4C4C4", "linewidth": 12},
    {"color": INK, "linewidth": 2.5, "linestyle": (0, (4, 2))},
)
RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 16,
    "markerfacecolor": "none",
    "markeredgecolor": INK,
    "markeredgewidth": 2.5,
}
MEAN = 25  # steps: a point of the training loss is their mean
NEAR = 200  # steps on either side of the least validation loss, in the panel at the right


def draw_training(ax: Axes, runs: Mapping[str, Mapping], counted: float, note: str) -> None:
    """Training and validation loss of two runs against the step; at the right the least validation loss, enlarged.

    The ring is around the least of the second run.

    runs      {name: {"losses": one for every step, "validation": {step: loss}}}, nats per character; two of them
    counted   nats per character of the 5-gram model, a dotted line
    note      where it was recorded
    """
    fig = ax.figure
    ax.remove()
    whole, near = fig.subplots(1, 2, width_ratios=(3, 2))
    for (name, run), look in zip(runs.items(), LOOK, strict=True):
        steps, validation = _points(run["validation"])
        whole.plot(*_means(run["losses"]), **look)
        for panel in (whole, near):
            panel.plot(steps, validation, label=name, **look)
    for panel in (whole, near):
        panel.axhline(counted, color=QUIET, linewidth=2, linestyle=(0, (1, 1.5)))
        panel.set_xlabel("step")
    best = _mark_the_least(near, steps, validation, counted)
    whole.plot(best, validation[steps.index(best)], **RING)
    whole.set(ylabel="loss, nats per character", ylim=(0, 1.12 * max(validation)))
    near.set_title("validation loss, enlarged", fontsize=17)
    right = steps[-1]
    for height, words, va in (
        (0.86 * validation[-1], "validation loss", "top"),
        (counted, "5-gram model", "bottom"),
        (0.25, f"training loss, means of {MEAN} steps", "bottom"),
    ):
        whole.text(right, height, words, ha="right", va=va, fontsize=17)
    fig.legend(*near.get_legend_handles_labels(), loc="outside upper center", ncols=len(runs))
    fig.supxlabel(note, fontsize=13, color=QUIET)


def _mark_the_least(ax: Axes, steps: Sequence[int], validation: Sequence[float], counted: float) -> int:
    """Show the steps around the least validation loss, with a ring and words there; its step."""
    least = min(validation)
    best = steps[validation.index(least)]
    seen = [loss for step, loss in zip(steps, validation, strict=True) if abs(step - best) <= NEAR]
    room = max(seen) - least or 1
    ax.set(xlim=(best - NEAR, best + NEAR), ylim=(least - 0.35 * room, least + 1.05 * room))
    ax.plot(best, least, **RING)
    ax.text(best, least - 0.1 * room, f"step {best}: {least:.3f}", ha="center", va="top", fontsize=17)
    ax.text(best - 0.15 * NEAR, counted + 0.06 * room, f"5-gram: {counted:.3f}", ha="center", va="bottom", fontsize=17)
    return best


def _points(validation: Mapping) -> tuple[list[int], list[float]]:
    """Steps and losses; a step is a string where it was read from JSON."""
    return [int(step) for step in validation], list(validation.values())


def _means(losses: Sequence[float]) -> tuple[list[float], list[float]]:
    """The middle and the mean of every MEAN losses; what is left at the end is not shown."""
    firsts = range(0, len(losses) - MEAN + 1, MEAN)
    return [first + MEAN / 2 for first in firsts], [sum(losses[first : first + MEAN]) / MEAN for first in firsts]
