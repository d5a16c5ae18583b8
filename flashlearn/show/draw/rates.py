"""Measured rates: against N, panel beside panel; against time; and rung by rung, each beside its prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from flashlearn.show.draw.style import INK, QUIET

LOOK: tuple[
    dict[str, Any], ...
] = (  # one for each name, told apart by marker and line, not by colour; ours comes first
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
    axes = fig.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for panel, (title, curves) in zip(axes, panels.items(), strict=True):
        for look, (name, rates) in zip(LOOK[: len(curves)], curves.items(), strict=True):
            panel.plot(list(rates), list(rates.values()), label=name, **look)
        lengths = sorted({N for rates in curves.values() for N in rates})
        ticks = lengths[:: -max(1, len(lengths) // 3)]  # from the longest down
        panel.set(xscale="log", ylim=(0, top), xlabel="N, tokens")
        panel.set_xticks(ticks, [_short(N) for N in ticks])
        panel.minorticks_off()
        panel.set_title(title, fontsize=17)
        panel.grid(axis="y", color="#E3E3E3")
    axes[0].set_ylabel(label)
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=16)
    fig.supxlabel(note, fontsize=13, color=QUIET)


def draw_sustained(ax: Axes, curves: Mapping[str, Mapping[float, float]], after_pause: float, note: str) -> None:
    """The rate of every name against the time that the GPU has been at work; a band for as long as it is as good as after_pause.

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
    """A row for each rung: its prediction as an outline, its measurement, where there is one, as a bar."""
    names = list(predicted)
    ax.barh(
        names, list(predicted.values()), height=0.8, facecolor="white", edgecolor=QUIET, linewidth=2, linestyle="--"
    )
    ax.barh(list(measured), list(measured.values()), height=0.4, color=INK)
    for row, name in enumerate(names):
        words = f"{predicted[name]:.0f} predicted"
        if name in measured:
            words += f", {measured[name]:.0f} measured"
        ax.text(max(predicted[name], measured.get(name, 0)) + 8, row, words, va="center", fontsize=16)
    ax.set(xlabel="TFLOP/s", xlim=(0, 1.42 * max([*predicted.values(), *measured.values()])))
    ax.invert_yaxis()
    ax.text(1, 1.01, note, transform=ax.transAxes, ha="right", va="bottom", fontsize=13, color=QUIET)


def _short(N: int) -> str:
    return f"{N // 1024}K" if N % 1024 == 0 else f"{N}"


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
