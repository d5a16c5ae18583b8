"""The JSON as tables with ratios to each peer, and every target with "met", or "MISSED" by how much and where.

A ratio is above 1 where ours is better. Two dtypes, both directions and every N count; a target of which not all
settings were measured, and none is missed, is "open".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from flashlearn.measurements.records import chosen, geometric_mean, provenance
from flashlearn.measurements.tables import LEVEL, TARGETS

from .backends import DETERMINISTIC, NAMES, OURS, PEERS

LONG, SHORT = (4096, 16384), (512, 1024, 2048)
MEMORY_TARGET = 1.1  # of FlashAttention-2, and of the least per token over all N
STEP_TARGET = 1.1  # of cuDNN's time, in a CUDA graph
ORDER_TARGET = 0.8  # of the rate in any order, up to D 128
TIMES = ("us", "graph us", "host us")  # the less, the better
SETTINGS = {"rows": 24, "gqa": 6, "order": 22, "decoding": 24}  # of one dtype
Ratios = Mapping[str, float | None]  # {setting in words: ratio, None where the peer does not run}


class Target(NamedTuple):
    """One line: its state, the words, and the settings where it is missed."""

    state: str  # "met", "MISSED" or "open"
    words: str
    where: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.state:7} {self.words}", *(f"          {place}" for place in self.where)])


def place(row: Mapping, direction: str = "") -> str:
    """A row in words: "D 128, N 1024, causal, float16, forward"."""
    words = [f"D {row['D']}", f"N {row['N']}", "causal" if row["causal"] else "", row["dtype"], direction]
    if row.get("H_kv") != row.get("H_q"):
        words.append(f"heads {row['H_q']}/{row['H_kv']}")
    if row.get("N_q") == 1:
        words.append(f"B {row['B']}")
    return ", ".join(word for word in words if word)


def value(row: Mapping, name: str, key: str) -> float | None:
    return (row.get(name) or {}).get(key)


def ratios(rows: Iterable[Mapping], key: str, peer: str, name: str = OURS) -> dict[str, float | None]:
    """Ours over a peer by setting: 0 where ours failed, None where only the peer does. Microseconds are turned over."""
    found = {}
    for row in rows:
        ours, theirs = value(row, name, key), value(row, peer, key)
        faster = (lambda a, b: b / a) if key in TIMES else (lambda a, b: a / b)
        found[place(row, "" if key in TIMES else key)] = (
            None if theirs is None else faster(ours, theirs) if ours else 0.0
        )
    return found


def in_each(words: str, found: Ratios, least: float, settings: int) -> Target:
    """Whether every ratio is at least `least`."""
    missed = sorted((ratio, where) for where, ratio in found.items() if ratio is not None and ratio < least)
    words = f"{words}: each at least {least:.4g}"
    if missed:
        words += f", missed by {least - missed[0][0]:.3f} at worst, in {len(missed)} of {len(found)} settings"
        return Target("MISSED", words, tuple(f"{ratio:.3f} at {where}" for ratio, where in missed))
    return _unless_open(words, found, settings, min)


def in_the_mean(words: str, found: Ratios, least: float, settings: int) -> Target:
    """Whether the geometric mean is at least `least`."""
    numbers = [ratio for ratio in found.values() if ratio is not None]
    words = f"{words}: geometric mean at least {least:.4g}"
    if numbers and len(found) >= settings:
        mean = geometric_mean(numbers) if all(numbers) else 0.0
        if mean < least:
            return Target("MISSED", f"{words}, missed by {least - mean:.3f}: {mean:.3f}")
    return _unless_open(words, found, settings, geometric_mean)


def _unless_open(words: str, found: Ratios, settings: int, summary: Callable) -> Target:
    numbers = [ratio for ratio in found.values() if ratio is not None]
    if len(found) < settings or not numbers:
        return Target("open", f"{words} ({len(found)} of {settings} settings measured)")
    absent = len(found) - len(numbers)
    note = f", {absent} of them not run by the peer" if absent else ""
    return Target("met", f"{words}: {summary(numbers):.3f} ({len(found)} settings{note})")


def targets(results: Mapping) -> list[Target]:
    """Every target, on what was measured."""
    found = []
    for dtype in ("float16", "bfloat16"):
        rows = chosen(results["rows"], dtype=dtype)
        for direction, of_cudnn in TARGETS.items():
            for peer, (mean, each) in (("cudnn", of_cudnn), ("fa4", LEVEL)):
                long = ratios(chosen(rows, N=LONG), direction, peer)
                words = f"{direction} / {peer}, {dtype}, N 4096 and 16384"
                found += [in_the_mean(words, long, mean, 8), in_each(words, long, each, 8)]
        for direction in TARGETS:
            short = ratios(chosen(rows, N=1024), direction, "flex")
            found.append(in_each(f"{direction} / flex, {dtype}, N 1024", short, 1, 4))
        short = ratios(chosen(rows, D=64, N=SHORT), "forward", "cudnn")
        found.append(in_each(f"forward / cudnn, {dtype}, D 64, N 512 to 2048", short, 1, 6))
        order = ratios(chosen(results.get("order", ()), dtype=dtype, D=(64, 128)), "backward", OURS, DETERMINISTIC)
        found.append(in_each(f"backward in order / in any order, {dtype}", order, ORDER_TARGET, SETTINGS["order"]))
        steps = ratios(chosen(results.get("decoding", ()), dtype=dtype), "graph us", "cudnn")
        found.append(
            in_each(f"decoding in a CUDA graph / cudnn, {dtype}, within {STEP_TARGET}x", steps, 1 / STEP_TARGET, 24)
        )
    return found + _never_slower_than_fa2(results) + _memory(results.get("memory", ()))


def _never_slower_than_fa2(results: Mapping) -> list[Target]:
    found = []
    for section, words in (("rows", "speed"), ("gqa", "gqa"), ("decoding", "decoding")):
        for dtype in ("float16", "bfloat16"):
            rows = chosen(results.get(section, ()), dtype=dtype)
            for key in TIMES[:2] if section == "decoding" else ("forward", "backward"):
                how = {"us": ", as called,", "graph us": " in a CUDA graph"}.get(key, f" {key}")
                line = f"{words}{how} / fa2, {dtype}, every N"
                found.append(in_each(line, ratios(rows, key, "fa2"), 1, SETTINGS[section]))
    return found


def _memory(rows: Sequence[Mapping]) -> list[Target]:
    """fa2's bytes over ours, and the least bytes per token over those at each N."""
    against = {f"N {row['N']}": row["fa2"] and (row["fa2"] / row[OURS] if row[OURS] else 0.0) for row in rows}
    token = {f"N {row['N']}": row[OURS] / row["N"] if row[OURS] else None for row in rows}
    least = min((each for each in token.values() if each), default=None)
    linear = {where: least / each if each else 0.0 for where, each in token.items()}
    return [
        in_each(f"peak memory, fa2 / ours, within {MEMORY_TARGET}x", against, 1 / MEMORY_TARGET, 8),
        in_each(
            f"peak memory linear in N, least per token / per token, within {MEMORY_TARGET}x",
            linear,
            1 / MEMORY_TARGET,
            8,
        ),
    ]


def rate_table(rows: Sequence[Mapping], key: str, name: str = OURS, peers: Sequence[str] = PEERS) -> list[str]:
    """Ours, then each peer and ours over it; microseconds, or TFLOP/s."""
    peers = [peer for peer in peers if any(peer in row for row in rows)]
    heads = any(row.get("H_kv") != row.get("H_q") or row.get("N_q") == 1 for row in rows)
    lines = [
        f"{'D':>3} {'N':>6} {'':6} {'':4}{'  B heads   ' if heads else ''}{name:>11}"
        + "".join(f"{peer:>11} ratio" for peer in peers)
    ]
    for row in rows:
        dtype = {"float16": "fp16", "bfloat16": "bf16"}[row["dtype"]]
        line = f"{row['D']:3} {row['N']:6} {'causal' if row['causal'] else '':6} {dtype}"
        line += f"{row['B']:3} {row['H_q']:4}/{row['H_kv']:<3}" if heads else ""
        cells = (_beside(row, peer, key, name) for peer in peers)
        lines.append(line + f"{_shown(value(row, name, key)):>11}" + "".join(cells))
    return lines


def _beside(row: Mapping, peer: str, key: str, name: str) -> str:
    (ratio,) = ratios([row], key, peer, name).values()
    return f"{_shown(value(row, peer, key)):>11} {'-' if ratio is None else f'{ratio:.2f}':>5}"


def _shown(number: float | None) -> str:
    return "-" if number is None else f"{number:.0f}" if number >= 100 else f"{number:.1f}"


def memory_table(rows: Sequence[Mapping]) -> list[str]:
    """MiB above q, k, v and do; "o, dq, dk, dv" is what of it every implementation returns."""
    peers = [peer for peer in PEERS if peer in rows[0]]
    lines = [f"{'N':>6} {'o, dq, dk, dv':>14} {OURS:>11}" + "".join(f"{peer:>10} ratio" for peer in peers)]
    for row in rows:
        line = f"{row['N']:6} {row['results'] / 2**20:14.1f} {_shown(row[OURS] and row[OURS] / 2**20):>11}"
        for peer in peers:
            known = row[peer] and row[OURS]
            line += (
                f"{_shown(row[peer] and row[peer] / 2**20):>10} {f'{row[peer] / row[OURS]:.2f}' if known else '-':>5}"
            )
        lines.append(line)
    return lines


def first_call_table(found: Mapping) -> list[str]:
    """Seconds with empty and with filled caches of compiled kernels."""
    lines = []
    for name, times in found.items():
        cells = [
            f"caches {caches}: forward {s['forward']:.2f}, backward {s['backward']:.2f}"
            for caches, s in times.items()
            if caches != "reason"
        ]
        lines.append(f"{name:11} " + "; ".join([*cells, *([times["reason"]] if "reason" in times else ())]))
    return lines


def reasons(results: Mapping) -> list[str]:
    """Each reason once, as far as its first sentence, with the number of its settings, and the first of them."""
    where: dict[tuple[str, str, str], list[str]] = {}
    for section in ("rows", "sustained", "memory", "gqa", "dims", "order", "decoding"):
        for row in results.get(section, ()):
            for name, words in row.get("reasons", {}).items():
                where.setdefault((section, name, words.partition(". ")[0]), []).append(place(row))
    return [
        f"{section}, {name}: {words} ({len(at)} settings, first {at[0]})"
        for (section, name, words), at in where.items()
    ]


def report(results: Mapping) -> str:
    """All tables, the reasons for every "-", and the targets."""
    titles = {
        ("rows", "forward"): "Speed, forward, TFLOP/s",
        ("rows", "backward"): "Speed, backward, TFLOP/s",
        ("rows", "graph"): "Speed, forward in a CUDA graph, TFLOP/s",
        ("sustained", "forward"): "Speed at sustained clocks (after 150 ms of work), forward, TFLOP/s",
        ("sustained", "backward"): "Speed at sustained clocks (after 150 ms of work), backward, TFLOP/s",
        ("gqa", "forward"): "GQA, forward, TFLOP/s",
        ("gqa", "backward"): "GQA, backward, TFLOP/s",
        ("dims", "forward"): "Other head dimensions, forward, TFLOP/s",
        ("dims", "backward"): "Other head dimensions, backward, TFLOP/s",
        ("decoding", "us"): "Decoding, one query, as called, microseconds",
        ("decoding", "graph us"): "Decoding, one query, in a CUDA graph, microseconds",
        ("decoding", "host us"): "Decoding, one query, until the host is free again, microseconds",
        ("decoding", "GB/s"): "Decoding, GB/s of K and V",
    }
    lines = [provenance(results), f"commit {results['provenance']['commit']}"]
    for (section, key), title in titles.items():
        rows = results.get(section, ())
        if any(value(row, name, key) for row in rows for name in NAMES):
            lines += ["", f"{title}; ratio: above 1 ours is faster", *rate_table(rows, key)]
    if results.get("order"):
        lines += ["", "Backward with torch.use_deterministic_algorithms(True), TFLOP/s; ratio: of the rate without"]
        lines += rate_table(results["order"], "backward", DETERMINISTIC, (OURS,))
    if results.get("memory"):
        lines += ["", "Peak memory of forward and backward, MiB; ratio: above 1 ours takes less"]
        lines += memory_table(results["memory"])
    if results.get("first_call"):
        lines += ["", "First call in a new process, seconds (D 128, N 4096, causal, float16)"]
        lines += first_call_table(results["first_call"])
    if why := reasons(results):
        lines += ["", "Not measured (-)", *why]
    return "\n".join([*lines, "", "Targets", *map(str, targets(results))])
