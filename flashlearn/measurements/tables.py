"""The figures of `gpu_attention_h200.json` as tables of text: our rates next to those of PyTorch, losses included.

    results = load("gpu_attention_h200")
    print(rates(results))

Notebook 14, its appendix and the engineering log print them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from flashlearn import cost
from flashlearn.cost import H200_SXM
from flashlearn.measurements.records import chosen, geometric_mean, provenance, ratios

NAMES = {"flashlearn": "flash_attention", "cudnn": "cuDNN", "fa2": "FlashAttention-2", "flex": "flex, compiled",
         "fa4": "FlashAttention-4", "efficient": "memory-efficient", "math": "math"}  # fmt: skip
TARGETS = {"forward": (0.95, 0.88), "backward": (0.95, 0.90)}  # of cuDNN: geometric mean and minimum
LEVEL = (1.0, 0.95)  # of FlashAttention-4, in both directions
DECODERS = ("flashlearn", "cudnn", "fa2")
HIDDEN = 2048  # H D


def measured(results: Mapping) -> dict[str, str]:
    """{name in the rows: in words} of every implementation that was measured in float16, ours first."""
    rows = chosen(results["rows"], dtype="float16")
    return {name: words for name, words in NAMES.items() if any(name in row for row in rows)}


def rate(row: Mapping, name: str, key: str = "forward") -> Any:
    """The measurement of one implementation; None where it does not run."""
    return (row.get(name) or {}).get(key)


def shown(number: float | None, digits: int = 0) -> str:
    return "-" if number is None else f"{number:.{digits}f}"


def columns(cells: Iterable[str], width: int = 12) -> str:
    return "".join(f"{cell:>{width}}" for cell in cells)


def seconds(row: Mapping, name: str, direction: str = "forward") -> float:
    """The time behind a rate, by the convention of notebook 14."""
    done = rate(row, name, direction)
    if done is None:
        raise ValueError(f"expected {name} to be measured, {direction}, got none at N = {row['N']}")
    return credited(row, direction) / (1e12 * done)


def credited(row: Mapping, direction: str) -> float:
    """FLOP of a setting, by that convention."""
    half, again = (0.5 if row["causal"] else 1.0), (2.5 if direction == "backward" else 1.0)
    return 4 * row["B"] * row["H_q"] * row["N"] ** 2 * row["D"] * half * again


def rates(results: Mapping, lengths: tuple[int, ...] = (1024, 4096, 16384)) -> str:
    """TFLOP/s of every implementation, forward / backward, in float16."""
    names = measured(results)
    made = textwrap.wrap(f"commit {results['provenance']['commit']}", 92)  # of several runs: no line runs off a page
    lines = [provenance(results), *made, "TFLOP/s, forward / backward", "  D      N        " + columns(names)]
    for row in chosen(results["rows"], dtype="float16", N=lengths):
        cells = (f"{shown(rate(row, key))} / {shown(rate(row, key, 'backward'))}" for key in names)
        lines.append(f"{row['D']:3}  {row['N']:5}  {'causal' if row['causal'] else '':6}" + columns(cells))
    return "\n".join(lines)


def targets(results: Mapping) -> str:
    """Our rate over each peer's at N = 4096 and 16384, mean and minimum, and whether the targets are met."""
    names = measured(results)
    lines = ["                  ours over          mean  least  at any N   targets"]
    for dtype in ("float16", "bfloat16"):
        rows = [{**dict.fromkeys(names), **row} for row in chosen(results["rows"], dtype=dtype)]  # None: not measured
        long = chosen(rows, N=(4096, 16384))
        for direction, of_cudnn in TARGETS.items():
            wanted = {"cudnn": of_cudnn, "fa4": LEVEL}
            for peer in ("cudnn", "fa2", "flex", "fa4"):
                found, everywhere = (ratios(some, direction, peer) for some in (long, rows))
                if not found:  # not measured there
                    continue
                mean, least = geometric_mean(found), min(found)
                verdict = _verdict(mean, least, *wanted[peer]) if peer in wanted else ""
                numbers = f"{mean:6.2f} {least:6.2f} {min(everywhere):9.2f}"
                lines.append(f"{dtype:8} {direction:8} {names[peer]:16} {numbers}   {verdict}".rstrip())
    return "\n".join(lines)


def _verdict(mean: float, least: float, wanted_mean: float, wanted_least: float) -> str:
    pairs = ((mean, wanted_mean), (least, wanted_least))
    return ", ".join(f"{wanted} met" if got >= wanted else f"short by {wanted - got:.3f}" for got, wanted in pairs)


def against_best(results: Mapping) -> dict[tuple, dict[int, float]]:
    """{(direction, D, causal): {N: our rate over that of the best other implementation}}, in float16."""
    peers = list(measured(results))[1:]
    found: dict[tuple, dict[int, float]] = {}
    for row in sorted(chosen(results["rows"], dtype="float16"), key=lambda row: (row["D"], row["causal"], row["N"])):
        for direction in TARGETS:
            best = max(rate(row, peer, direction) or 0 for peer in peers)
            ours = found.setdefault((direction, row["D"], row["causal"]), {})
            ours[row["N"]] = rate(row, "flashlearn", direction) / best
    return dict(sorted(found.items(), key=lambda item: item[0][0] == "backward"))


def losses(results: Mapping, slower: float = 0.95) -> str:
    """`against_best` as a table, with a star where ours is slower by more than 5 %."""
    found = against_best(results)
    lengths = sorted(next(iter(found.values())))
    lines = ["ours / best other        N " + columns(map(str, lengths), 8)]
    for (direction, D, causal), ours in found.items():
        cells = "".join(f"{ours[N]:7.2f}{'*' if ours[N] < slower else ' '}" for N in lengths)
        lines.append(f"{direction:8}  D {D:3}  {'causal' if causal else 'no mask':7}  {cells}".rstrip())
    lost = [N for ours in found.values() for N, ratio in ours.items() if ratio < slower]
    short, count = sum(N < 2048 for N in lost), sum(map(len, found.values()))
    return "\n".join([*lines, f"slower by more than 5 %: {len(lost)} of {count}, {short} of them with N below 2048"])


def halved(results: Mapping) -> dict[tuple, tuple[float, float]]:
    """{(N, D, name): µs of a full and of a causal forward pass} at N = 512, 1024 and 16384."""
    rows = {(row["N"], row["D"], row["causal"]): row for row in chosen(results["rows"], dtype="float16")}
    return {
        (N, D, name): (1e6 * seconds(rows[N, D, False], name), 1e6 * seconds(rows[N, D, True], name))
        for N in (512, 1024, 16384)
        for D in (64, 128)
        for name in DECODERS
        if all(rate(rows[N, D, causal], name) for causal in (False, True))
    }


def halving(results: Mapping) -> str:
    """`halved` as a table: the time of a causal pass, which has half of the work."""
    found = halved(results)
    lines = ["full -> causal in µs: factor", " " * 18 + columns((NAMES[name] for name in DECODERS), 24)]
    for N, D in dict.fromkeys((N, D) for N, D, _ in found):
        pairs = (found[N, D, name] for name in DECODERS)
        cells = (f"{full:10.0f} -> {half:4.0f}: {full / half:.2f}" for full, half in pairs)
        lines.append(f"N {N:5}  D {D:3}    " + "".join(cells))
    return "\n".join(lines)


def launching(results: Mapping) -> str:
    """The CPU's time for a call, and the minimum time of the products of a short one, D = 128."""
    host = max(row["flashlearn"]["host us"] for row in results["decoding"])
    lines = [
        f"the CPU's time for one call, recorded in decoding alone: up to {host:.0f} µs",
        "D = 128, the minimum time of the products in µs, without a mask / causal",
        "    N" + columns(("forward", "backward")),
    ]
    for N in (512, 1024, 2048, 4096):
        least = [part * least_products(128, N) for part in (1, 2.5)]
        lines.append(f"{N:5}" + columns(f"{us:.0f} / {us / 2:.0f}" for us in least))
    return "\n".join(lines)


def least_products(D: int, N: int, tokens: int = 16384) -> float:
    """µs that both products of a forward pass need at an H200's peak: 16384 tokens in all, H D = 2048."""
    ideal = cost.ideal_cost(tokens // N, HIDDEN // D, N, N, D)
    return 1e6 * ideal.flops / max(H200_SXM.peak.values())


def gqa(results: Mapping) -> str:
    """Four query heads to a key head, causal, float16."""
    some = ("flashlearn", "cudnn", "fa2", "flex")
    lines = ["four query heads to a key head, causal, TFLOP/s, forward / backward", "  D      N" + columns(some)]
    for row in chosen(results["gqa"], dtype="float16"):
        lines.append(f"{row['D']:3}  {row['N']:5}" + columns(_both_ways(row, some)))
    return "\n".join(lines)


def order(trials: Mapping) -> str:
    """The rate of the deterministic backward pass over the nondeterministic one, before and now, by length; float16."""
    names = ("block by block for all heads, in even sets", "three warps that add in turn, D = 192 and 256")
    rows = [row for name in names for row in trials["trials"][f"backward, in order, {name}"]["rows"]]
    rows = chosen(rows, dtype="float16")
    lengths = sorted({row["N"] for row in rows})
    before = lambda row: f"{row['before']:.2f}" if "before" in row else "-"  # noqa: E731  not measured
    lines = [
        "deterministic rate over nondeterministic rate, before > now; blank: not measured",
        "heads: query heads to a key head; a column for each N",
        "  D heads         " + columns(map(str, lengths)),
    ]
    for D, group, causal in dict.fromkeys((row["D"], row["group"], row["causal"]) for row in rows):
        some = {row["N"]: row for row in chosen(rows, D=D, group=group, causal=causal)}
        cells = (f"{before(some[N])} > {some[N]['ratio']:.2f}" if N in some else "" for N in lengths)
        lines.append(f"{D:3} {group:5}  {'causal' if causal else '':7}" + columns(cells))
    return "\n".join(line.rstrip() for line in lines)


def dims(results: Mapping) -> str:
    """Head dimensions that the fast kernels pad: N = 4096, float16; a dash where a peer was not measured."""
    some = ("flashlearn", "cudnn", "fa2", "fa4")
    lines = [
        f"{results['provenance']['gpu']}, N = 4096, TFLOP/s, forward / backward",
        "  D        " + columns(some, 14),
    ]
    for row in chosen(results["dims"], dtype="float16"):
        lines.append(f"{row['D']:3}  {'causal' if row['causal'] else '':6}" + columns(_both_ways(row, some), 14))
    return "\n".join(lines)


def _both_ways(row: Mapping, names: Iterable[str]) -> Iterable[str]:
    return (f"{shown(rate(row, name))} / {shown(rate(row, name, 'backward'))}" for name in names)


def decoding(results: Mapping) -> str:
    """One query against a long cache, D = 128, 32 query heads and 8 key heads, in µs."""
    rows = chosen(results["decoding"], dtype="float16", D=128, H_kv=8)
    lines = [
        "D = 128, 32 query heads, 8 key heads, µs; bound: K and V at the bandwidth of HBM",
        "                    as called" + " " * 27 + "in a CUDA graph",
        "  B      N   bound" + columns(DECODERS) * 2,
    ]
    for row in rows:
        least = 1e6 * 2 * 2 * row["B"] * row["H_kv"] * row["N"] * row["D"] / H200_SXM.bandwidth
        times = [shown(rate(row, name, key), 1) for key in ("us", "graph us") for name in DECODERS]
        lines.append(f"{row['B']:3}  {row['N']:5}  {least:6.1f}" + columns(times))
    return "\n".join([*lines, "", _host_times(results)])


def _host_times(results: Mapping) -> str:
    rows = chosen(results["decoding"], dtype="float16")
    times = (f"{NAMES[name]} {median(row[name]['host us'] for row in rows):.0f} µs" for name in DECODERS)
    return "host time of a call, median: " + ", ".join(times)


def decoding_over(results: Mapping, peer: str, key: str, dtype: str) -> list[float]:
    """The peer's time over ours in every setting of decoding: above 1 ours is faster."""
    return [rate(row, peer, key) / rate(row, "flashlearn", key) for row in chosen(results["decoding"], dtype=dtype)]


def decoding_ratios(results: Mapping) -> str:
    """`decoding_over` of every peer, as called and in a CUDA graph."""
    lines = ["its time over that of ours          mean minimum maximum   ours takes longer in"]
    for key, how in {"us": "as called", "graph us": "in a CUDA graph"}.items():
        for peer in ("fa2", "cudnn"):
            for dtype in ("float16", "bfloat16"):
                over = decoding_over(results, peer, key, dtype)
                slower = f"{sum(ratio < 1 for ratio in over):4} of {len(over)} settings, {dtype}"
                numbers = f"{geometric_mean(over):6.2f}  {min(over):6.2f}  {max(over):6.2f}"
                lines.append(f"{how:15}  {NAMES[peer]:16}  {numbers}  {slower}")
    return "\n".join(lines)


def first_calls(results: Mapping) -> str:
    """Seconds until the first result is there, in a new process."""
    lines = []
    for name, times in results["first_call"].items():
        for caches in [caches for caches in ("empty", "filled") if caches in times]:
            took = f"forward {times[caches]['forward']:5.2f} s, backward {times[caches]['backward']:5.2f} s"
            lines.append(f"{NAMES[name]:16} caches {caches:6}: {took}")
        if "reason" in times:
            lines.append(f"{NAMES[name]:16} {times['reason']}")
    return "\n".join(lines)


def needed(row: Mapping) -> int:
    """Bytes that one forward and backward pass must allocate: the results, lse and delta, and dQ in float32."""
    return row["results"] + row["H_q"] * row["N"] * (4 + 4 + 4 * row["D"])


def counters(profile: Mapping) -> str:
    """The profiler's counters (`gpu_profile.json`) of our fast kernels, cuDNN's and FlashAttention-4's, in two settings each way."""
    lines = textwrap.wrap(provenance(profile), 92)
    for way in TARGETS:
        rows = chosen(profile["rows"], direction=way)
        settings = dict.fromkeys(f"D {row['D']}  N {row['N']}{'  causal' * row['causal']}" for row in rows)
        names = {"flashlearn": "ours", "cudnn": "cuDNN", "fa4": "FA-4"}
        lines += ["", f"{way:40}" + "".join(f"{setting:27}" for setting in settings)]
        lines.append(f"{'':37}" + columns((names[row["backend"]] for row in rows), 9))
        lines_of = {key: [row[key] for row in rows] for key in ("ms", "clock, GHz")}
        lines_of["products need, % of cycles"] = [products_need(row) for row in rows]
        lines_of |= {key: [row[key] for row in rows] for key in rows[0] if "%" in key}
        lines_of["registers reloaded, thousands"] = [row["registers reloaded from memory"] / 1e3 for row in rows]
        lines_of["time of consumers in iterations, %"] = [in_iterations(row) for row in rows]
        kinds = [kind for kind in rows[0]["round"] if kind != "of all samples"]
        lines_of |= {f"  {kind}": [100 * row["round"][kind] for row in rows] for kind in kinds}
        for words, numbers in lines_of.items():
            digits = 2 if words in ("ms", "clock, GHz") else 1 if max(numbers) < 1000 else 0
            lines.append(f"{words:37}" + columns((f"{number:,.{digits}f}" for number in numbers), 9))
    return "\n".join(line.rstrip() for line in lines)


def products_need(row: Mapping) -> float:
    """Cycles of the products at the tensor cores' full rate, 4096 FLOP a cycle and SM, in % of a kernel's cycles."""
    return 100 * credited(row, row["direction"]) / (row["ms"] / 1e3 * row["clock, GHz"] * 1e9 * H200_SXM.sms * 4096)


def in_iterations(row: Mapping) -> float:
    """The part of the time of computing warps that is in iterations, in %.

    An SM has four schedulers. The profiler looks at each of them equally often, and then at one of its warps. All have as many
    computing warps, and some have one more, which does not compute.
    """
    warps = round(4 * row["warps of a scheduler"])
    computing = (warps - 1) // 4
    others = warps - 4 * computing
    seen = (others * computing / (computing + 1) + 4 - others) / 4
    return 100 * row["round"]["of all samples"] / seen


def lesson(results: Mapping) -> str:
    """The time of the kernels of notebook 15 for each tile of keys, by the number of stages."""
    stages = sorted({row["stages"] for row in results["rows"]})
    heads = (f"{n} stage{'s' * (n > 1)}" for n in stages)
    lines = [f"{'ns a tile':9}" + columns(heads, 10)]
    for name in dict.fromkeys(row["kernel"] for row in results["rows"]):
        found = {row["stages"]: row["ns_per_tile"] for row in chosen(results["rows"], kernel=name)}
        lines.append(f"{name:9}" + columns((shown(found.get(n)) for n in stages), 10))
    return "\n".join([*lines, provenance(results)])
