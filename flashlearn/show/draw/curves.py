"""Curves: measured rates, bytes and minimum times by block size, losses of a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from flashlearn.show.draw.style import COLOURS, INK, MOVED, QUIET

LOOK: tuple[dict[str, Any], ...] = (  # one for each name, by marker and line, not by colour; ours comes first
    {"color": INK, "linewidth": 4, "marker": "o", "markersize": 10},
    {"color": QUIET, "linewidth": 2, "marker": "s", "markersize": 9, "linestyle": (0, (4, 2))},
    {"color": QUIET, "linewidth": 2, "marker": "^", "markersize": 10, "linestyle": (0, (1, 1.5))},
    {"color": QUIET, "linewidth": 2, "marker": "D", "markersize": 8, "linestyle": (0, (6, 2, 1, 2))},
    {"color": QUIET, "linewidth": 2, "marker": "v", "markersize": 10, "linestyle": "-"},
    {"color": QUIET, "linewidth": 2, "marker": "X", "markersize": 10, "linestyle": (0, (6, 2, 1, 2, 1, 2))},
)


def draw_rates(
    ax: Axes, panels: Mapping[str, Mapping[str, Mapping[int, float]]], note: str, label: str = "TFLOP/s"
) -> None:
    """A panel for each title: the rate of every name against N; `note` says where it was measured.

    panels   {title: {name: {N: TFLOP/s}}}, with the same names in all, in the same order, of which there are six at most
    label    what the rates are of, and their unit
    """
    names = [list(curves) for curves in panels.values()]
    if not names or names.count(names[0]) < len(names) or not 0 < len(names[0]) <= len(LOOK):
        raise ValueError(f"expected panels with the same names in the same order, up to {len(LOOK)}, got {names}")
    fig = ax.figure
    ax.remove()
    top = 1.08 * max(rate for curves in panels.values() for rates in curves.values() for rate in rates.values())
    shape = (len(panels), 1) if _is_tall(fig) else (1, len(panels))
    axes = fig.subplots(*shape, sharex=_is_tall(fig), sharey=True, squeeze=False).ravel()
    for panel, (title, curves) in zip(axes, panels.items(), strict=True):
        for look, (name, rates) in zip(LOOK[: len(curves)], curves.items(), strict=True):
            panel.plot(list(rates), list(rates.values()), label=name, **look)
        lengths = sorted({N for rates in curves.values() for N in rates})
        ticks = lengths[:: -max(1, len(lengths) // 3)]  # from the longest down
        panel.set(xscale="log", ylim=(0, top))
        panel.set_xticks(ticks, [f"{N // 1024}K" if N % 1024 == 0 else f"{N}" for N in ticks])
        panel.minorticks_off()
        panel.set_title(title, fontsize=17)
        panel.grid(axis="y", color="#E3E3E3")
    for panel in axes[-1:] if _is_tall(fig) else axes:
        panel.set_xlabel("N, tokens")
    axes[0].set_ylabel(label)
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=16)
    fig.supxlabel(note, fontsize=13, color=QUIET)


def _is_tall(fig: Any) -> bool:
    """Whether panels stand one above the other: on a phone."""
    return fig.get_figheight() > 0.9 * fig.get_figwidth()


def draw_sustained(ax: Axes, curves: Mapping[str, Mapping[float, float]], after_pause: float, note: str) -> None:
    """The rate of every name against the time that the GPU has been busy; a shade for as long as it is as good as after_pause.

    curves   {name: {ms: TFLOP/s}}, of six names at most
    after_pause   ms
    """
    ax.axvspan(0, after_pause, color="#EFEFEF")
    words, where = f"measure here:\nthe first {after_pause:.0f} ms", ax.get_xaxis_transform()
    ax.text(after_pause / 2, 0.05, words, ha="center", fontsize=16, transform=where)
    for look, (name, rates) in zip(LOOK[: len(curves)], curves.items(), strict=True):
        ax.plot(list(rates), list(rates.values()), label=name, **look)
    top = 1.12 * max(rate for rates in curves.values() for rate in rates.values())
    ax.set(xlabel="ms at work", ylabel="TFLOP/s", ylim=(0, top), xlim=(0, None))
    ax.grid(axis="y", color="#E3E3E3")
    ax.legend(loc="lower right", fontsize=16)
    ax.set_title(note, fontsize=13, color=QUIET)


def draw_versions(ax: Axes, predicted: Mapping[str, float], measured: Mapping[str, float], note: str) -> None:
    """A bar for each version: its prediction as an outline, its measurement, where there is one, as a bar."""
    names = list(predicted)
    outline: dict[str, Any] = {"facecolor": "white", "edgecolor": QUIET, "linewidth": 2, "linestyle": "--"}
    ax.barh(names, list(predicted.values()), height=0.8, **outline)
    ax.barh(list(measured), list(measured.values()), height=0.4, color=INK)
    for row, name in enumerate(names):
        words = f"{predicted[name]:.0f} predicted"
        if name in measured:
            words += f", {measured[name]:.0f} measured"
        ax.text(max(predicted[name], measured.get(name, 0)) + 8, row, words, va="center", fontsize=16)
    ax.set(xlabel="TFLOP/s", xlim=(0, 1.42 * max([*predicted.values(), *measured.values()])))
    ax.invert_yaxis()
    ax.text(1, 1.01, note, transform=ax.transAxes, ha="right", va="bottom", fontsize=13, color=QUIET)


def panels_of(rows: Sequence[Mapping], direction: str, names: Mapping[str, str]) -> dict:
    """Rows of a recording as `draw_rates` wants them: a panel for every D, causal or not.

    names   {name in the rows: name in the picture}
    """
    panels: dict = {}
    for row in sorted(rows, key=lambda row: (row["D"], row["causal"], row["N"])):
        title = f"D = {row['D']}{', causal' if row['causal'] else ''}"
        for key, name in names.items():
            panels.setdefault(title, {}).setdefault(name, {})[row["N"]] = row[key][direction]
    return panels


def draw_budgets(ax: Axes, budgets: Sequence[int], traffic: Mapping[str, Sequence[int]]) -> None:
    """Bytes moved for every budget of SRAM, in elements: a curve for each algorithm, its name at its end."""
    for (name, values), marker in zip(traffic.items(), "sD^o", strict=False):
        ax.plot(budgets, [value / 1e6 for value in values], marker=marker, color=INK, markersize=11)
        ax.text(budgets[-1] * 1.06, values[-1] / 1e6, name, va="center", weight="bold")
    every = [value / 1e6 for values in traffic.values() for value in values]
    across, up = (0.9 * budgets[0], 3 * budgets[-1]), (min(every) / 1.7, 1.4 * max(every))
    ax.set(xscale="log", yscale="log", xlim=across, ylim=up, xlabel="M: elements of SRAM", ylabel="HBM traffic, MB")
    _ticks(ax, budgets, [tick for tick in (0.125, 0.25, 0.5, 1, 2, 4, 8) if up[0] <= tick <= up[1]])


def draw_block_sizes(ax: Axes, times: Mapping[int, tuple[float, float, bool]]) -> None:
    """The minimum times, in µs, of waiting for HBM and of computing, and whether the tiles fit: {block_q: (.., .., fits)}.

    The larger of the two, a broad grey curve, is the minimum time of the whole; it bends where the two cross.
    """
    if len(times) < 2 or not any(fits for _, _, fits in times.values()):
        raise ValueError(f"expected at least two block sizes, one of which fits, got {dict(times)}")
    blocks = list(times)
    memory, compute, fits = zip(*times.values(), strict=True)
    largest = max(block for block, fit in zip(blocks, fits, strict=True) if fit)
    edge, right = largest * 2**0.5, blocks[-1] * 2**0.5
    if right > edge:
        ax.axvspan(edge, right, facecolor=COLOURS["masked"], hatch="///", edgecolor="white", linewidth=0)
        words = "does not\nfit in\nan SM"
        x, y = (edge * right) ** 0.5, memory[1] / 1.5
        ax.text(x, y, words, ha="center", weight="bold", backgroundcolor="white")
    between = np.geomspace(blocks[0], blocks[-1], 200)
    ax.plot(between, np.maximum(_curve(blocks, memory, between), _curve(blocks, compute, between)), color=MOVED, lw=16)
    ax.plot(blocks, memory, "o-", color=INK)
    ax.plot(blocks, compute, "s--", color=INK)
    ax.text(blocks[1] * 1.25, memory[1] * 1.12, "waiting for HBM, every read counted", weight="bold")
    ax.text(blocks[0] * 1.06, compute[0] / 1.45, "computing", weight="bold")
    up = min(memory + compute) / 1.5, 1.7 * max(memory + compute)
    ax.set(xscale="log", yscale="log", xlim=(0.87 * blocks[0], right), ylim=up)
    ax.set(xlabel="block_q", ylabel="minimum time, µs")
    _ticks(ax, blocks, [tick for tick in (5, 10, 20, 50, 100, 200) if up[0] <= tick <= up[1]])


def _curve(blocks: Sequence[int], times: Sequence[float], between: np.ndarray) -> np.ndarray:
    """The straight lines that join the times on logarithmic axes, at the block sizes `between`."""
    return np.exp(np.interp(np.log(between), np.log(blocks), np.log(times)))


def _ticks(ax: Axes, across: Sequence[int], up: Sequence[float]) -> None:
    """Numbers as they are, not as powers of ten."""
    ax.minorticks_off()
    ax.set_xticks(across, [f"{x:,}" for x in across])
    ax.set_yticks(up, [f"{y:g}" for y in up])


RUN_LOOK: tuple[dict[str, Any], ...] = (  # one for each run: they lie on each other, and both can be seen
    {"color": "#C4C4C4", "linewidth": 12},
    {"color": INK, "linewidth": 2.5, "linestyle": (0, (4, 2))},
)
RING: dict[str, Any] = {"marker": "o", "markersize": 16, "markerfacecolor": "none", "markeredgecolor": INK}
RING["markeredgewidth"] = 2.5
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
    whole, near = fig.subplots(2, 1) if _is_tall(fig) else fig.subplots(1, 2, width_ratios=(3, 2))
    for (name, run), look in zip(runs.items(), RUN_LOOK, strict=True):
        steps, validation = list(map(int, run["validation"])), list(run["validation"].values())  # JSON has texts
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


def _means(losses: Sequence[float]) -> tuple[list[float], list[float]]:
    """The middle and the mean of every MEAN losses; what is left at the end is not shown."""
    firsts = range(0, len(losses) - MEAN + 1, MEAN)
    return [first + MEAN / 2 for first in firsts], [sum(losses[first : first + MEAN]) / MEAN for first in firsts]
