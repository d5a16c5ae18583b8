"""Recorded measurements: they say where they were made, and the log and the appendix have the recorded figures."""

import doctest
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashlearn.measurements import records, tables
from flashlearn.measurements.records import chosen, geometric_mean, load, provenance, ratios, recordings
from tools import engineering_log

DTYPES = ("float16", "bfloat16")
ROOT = Path(__file__).parents[1]
LOG, APPENDIX, KERNELS = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("docs/engineering_log.md", "notebooks/14_appendix.md", "docs/kernels.md")
)
# Figures of the log's last part are looked up by tests/test_appendix.py
TRIED, _, MEASURED = LOG.partition("\n## Measurements\n")
WORDS = " ".join(TRIED.split())
RECORD = load("gpu_trials_h200")
TRIALS = RECORD["trials"]


def span(values, digits: int = 2) -> str:
    """From the minimum to the maximum."""
    values = list(values)
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def spread(trial, what: str = "ratio") -> str:
    """The range of the rate over that before, or of another column of the rows."""
    return span(row[what] for row in trial["rows"])


def deterministic(gpu: str, **where) -> list[float]:
    """The deterministic backward pass over the other, as called, in settings of the records of a GPU."""
    rows = chosen(load(f"gpu_attention_{gpu}")["order"], **where)
    return [row["in order"]["backward"] / row["flashlearn"]["backward"] for row in rows]


def test_examples_in_docstrings():
    assert doctest.testmod(records).failed == 0


@pytest.mark.parametrize("name", recordings())
def test_every_recording_says_where_it_was_made(name):
    assert provenance(load(name)).startswith("recorded 20")
    assert load(name)["provenance"].get("commit") or "machine" in load(name)["provenance"]


def test_a_recording_that_does_not_is_rejected(tmp_path):
    (tmp_path / "x.json").write_text(
        json.dumps({"provenance": {"gpu": "H200", "date": "2026-11-20"}}), encoding="utf-8"
    )
    with pytest.raises(ValueError, match="got none of driver, torch, triton"):
        provenance(load("x", tmp_path))
    with pytest.raises(FileNotFoundError, match=r"one of \['x'\].*got 'y'"):
        load("y", tmp_path)


def test_rows_and_ratios():
    rows = [{"D": D, "flashlearn": {"forward": 2.0 * D}, "cudnn": {"forward": 100.0}} for D in (50, 100, 200)]
    assert ratios(rows, "forward", "cudnn") == [1, 2, 4]
    assert [row["D"] for row in chosen(rows, D=(50, 200))] == [50, 200]
    assert geometric_mean(ratios(rows, "forward", "cudnn")) == pytest.approx(2)
    with pytest.raises(ValueError, match="expected at least one number"):
        geometric_mean([])


def test_peers_that_do_not_run_are_left_out_but_ours_is_missed():
    rows = [{"D": D, "flashlearn": {"forward": 2.0, "backward": 1.0}, "math": {"forward": 1.0}} for D in (64, 128, 256)]
    rows[0]["math"], rows[1]["math"] = None, {"forward": None, "backward": 4.0}
    assert ratios(rows, "forward", "math") == [2]
    assert ratios(rows, "backward", "math") == [0.25]
    rows[2]["flashlearn"] = None
    with pytest.raises(ValueError, match=r"expected flashlearn .* got none, forward, at {'D': 256}"):
        ratios(rows, "forward", "math")


def test_a_recording_of_a_laptop_names_the_machine():
    where = {"machine": "a laptop, 4 cores", "date": "2026-11-21", "torch": "2.13", "triton": "3.7"}
    assert provenance({"provenance": where}) == "recorded 2026-11-21: a laptop, 4 cores, PyTorch 2.13, Triton 3.7"


def test_the_recording_covers_the_settings_of_the_targets():
    rows = chosen(load("gpu_attention_h200")["rows"], N=(4096, 16384), dtype="float16")
    assert len(rows) == 8, "D x N x causal"
    for direction in ("forward", "backward"):
        assert all(ratio > 1 for ratio in ratios(rows, direction, "fa2")), "never slower than FlashAttention-2"


def test_the_recordings_of_masks_and_rings_reach_their_targets():
    masks = load("gpu_masks_h200")["rows"]
    assert {(row["mask"], row["dtype"]) for row in masks} == {
        (mask, dtype) for mask in ("window", "documents") for dtype in ("float16", "bfloat16")
    }
    for direction in ("forward", "backward"):
        assert min(ratios(masks, direction, "flex")) >= 1.2
    for row in load("gpu_ring_h200x2")["rows"]:
        zigzag, theirs = (
            sum(row[name][way] for way in ("forward", "backward")) for name in ("zigzag", "context_parallel")
        )
        assert zigzag <= 0.65 * theirs
        assert row["zigzag"]["efficiency"] >= 0.92 or row["N"] < 131072


def test_the_lessons_kernels_gain_by_stages_as_notebook_15_says():
    results = load("gpu_lesson_h200")
    took = {(row["kernel"], row["stages"]): row["ns_per_tile"] for row in results["rows"]}
    assert [took["shared", n] / took["shared", 1] for n in (2, 3, 4)] == pytest.approx(
        [6 / 12, 4 / 12, 4 / 12], abs=0.05
    )
    assert took["attend", 1] > 1.8 * took["attend", 2] and took["attend", 2] < 1.05 * took["attend", 4]
    assert took["alone", 3] < took["alone", 2] < took["alone", 1]
    table = tables.lesson(results).splitlines()
    assert table[0].split() == ["ns", "a", "tile", "1", "stage", "2", "stages", "3", "stages", "4", "stages"]
    assert [line.split()[0] for line in table[1:5]] == ["double", "alone", "shared", "attend"]
    assert table[1].split()[2:] == ["-"] * 3 and "H200" in table[-1]


@pytest.mark.parametrize("name", (
    "gpu_attention_h200", "gpu_attention_h100", "gpu_ladder", "gpu_profile", "gpu_masks_h200", "gpu_paged_h200", "gpu_ring_h200x2", "gpu_lesson_h200",
    "gpt_verse_h100", "gpu_trials_h200",
))  # fmt: skip
def test_the_triton_that_is_pinned_is_the_one_measured(name):
    """These are what notebooks 14, 15 and 17 to 19, the long training of notebook 16 and the fast kernels' docstrings speak of."""
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (pinned,) = re.findall(r"^triton==(\S+?);", constraints, re.MULTILINE)
    assert load(name)["provenance"]["triton"] == pinned


def test_all_time_is_accounted_for_in_the_profile():
    rows = load("gpu_profile")["rows"]
    assert [row["backend"] for row in rows] == ["flashlearn", "cudnn", "fa4"] * 4
    for row in rows:
        assert sum(row["warps"].values()) == pytest.approx(row["warps of a scheduler"], rel=0.02), "by cause"
        kinds = {kind: part for kind, part in row["round"].items() if kind != "of all samples"}
        assert sum(kinds.values()) == pytest.approx(1, abs=1e-3)
        assert 90 < tables.in_iterations(row) <= 100, "of computing warps, in rounds"
        busy = row["tensor cores busy, % of cycles"]
        assert 0.9 * busy < tables.products_need(row) < busy, "busy longer than at full rate"


@pytest.mark.parametrize(
    ("warps", "seen"), [(2.25, 11 / 12), (2.47, 5 / 6), (3.0, 2 / 3), (3.25, 15 / 16), (4.0, 3 / 4)]
)
def test_computing_warps_share_a_scheduler_with_others(warps, seen):
    row = {"warps of a scheduler": warps, "round": {"of all samples": seen / 2}}
    assert tables.in_iterations(row) == pytest.approx(50)


@pytest.mark.parametrize(
    "name", [name for name in recordings() if name.startswith(("gpu_attention", "gpu_masks", "gpu_paged", "gpu_pro"))]
)
def test_a_record_names_the_versions_of_its_peers_and_the_commit_of_each_row(name):
    """Where a version was not recorded, the record says so."""
    results = load(name)
    peers, commits = results["provenance"]["peers"], results["provenance"]["commit"]
    assert peers["cuDNN"] == "9.19.0" and peers["flash-attn-4"] in ("4.0.0b36", "not recorded")
    assert ("flashinfer-python" in peers) == ("paged" in name)
    parts = results.get("runs") or [
        results[part] for part in results if part in ("rows", "sustained", "gqa", "dims", "order", "decoding", "memory")
    ]
    for row in itertools.chain(*parts):
        measured = {name for name in row if name in (*tables.NAMES, "in order") and row[name]}
        if "attention" in name:
            assert set(row["commits"]) == measured and all(
                re.fullmatch("[0-9a-f]{7}", commit) for commit in row["commits"].values()
            )
        else:
            assert re.fullmatch("[0-9a-f]{7}", commits), "one commit for all rows"


def table_rows() -> list[str]:
    """The table of docs/kernels.md: geometric means of the eight main settings as a range over runs, and the minimum of all runs."""
    runs = [{"rows": run} for run in load("gpu_attention_runs_h200")["runs"]]
    gpus = {"H200": [load("gpu_attention_h200"), *runs], "H100": [load("gpu_attention_h100")]}
    others = load("gpu_attention_runs_h200")["another script"]
    names = {"cudnn": "cuDNN", "fa2": "FlashAttention-2", "fa4": "FlashAttention-4"}
    lines = [(names[peer], "rows", peer) for peer in names] + [
        ("FlashAttention-4, sustained clocks", "sustained", "fa4")
    ]

    def cell(gpu: str, section: str, dtype: str, way: str, peer: str) -> str:
        means, lowest = [], []
        for run in gpus[gpu]:
            found = ratios(chosen(run.get(section, ()), N=(4096, 16384), dtype=dtype), way, peer)
            if len(found) == 8:
                means.append(geometric_mean(found))
                lowest.append(min(found))
        if (gpu, section, peer) == ("H200", "rows", "fa4"):
            means.append(others[dtype][way]["mean"])
            lowest.append(others[dtype][way]["minimum"])
        ends = list(dict.fromkeys(f"{end:.2f}" for end in (min(means), max(means))))
        return f"{' to '.join(ends)}, minimum {min(lowest):.2f}"

    table = [
        "| ours over | dtype | H200, forward | H200, backward | H100, forward | H100, backward |",
        "|---|---|---|---|---|---|",
    ]
    for name, section, peer in lines:
        for dtype in DTYPES:
            cells = [cell(gpu, section, dtype, way, peer) for gpu in gpus for way in ("forward", "backward")]
            table.append(f"| {name} | {dtype} | {' | '.join(cells)} |")
    return table


def test_the_table_of_the_kernels_says_what_was_measured():
    words = KERNELS
    assert "\n".join(table_rows()) in words
    runs, h100 = load("gpu_attention_runs_h200"), load("gpu_attention_h100")["provenance"]
    where = runs["provenance"]
    assert all(
        h100[name] == where[name] == load("gpu_attention_h200")["provenance"][name]
        for name in ("torch", "triton", "cudnn")
    )
    torch, fa4 = where["torch"].partition("+")[0], where["peers"]["flash-attn-4"]
    versions = f"PyTorch {torch} with its FlashAttention-2, Triton {where['triton']}, cuDNN {where['peers']['cuDNN']}, FlashAttention-4 {fa4}"
    assert versions in " ".join(words.split())
    counted = [sum(len(chosen(run, N=(4096, 16384), dtype=dtype)) == 8 for run in runs["runs"]) for dtype in DTYPES]
    assert counted == [3, 0] and "three more runs in float16" in " ".join(words.split())
    fixed = load("gpu_trials_h200")["beside FlashAttention-4"]
    lowest = min(min(ratios(fixed[name], way, "fa4")) for name in ("rows", "again") for way in ("forward", "backward"))
    assert f"one setting was as low as {lowest:.2f}" in " ".join(words.split())


def test_the_readme_says_in_words_how_fast_the_kernels_are():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "about as fast as FlashAttention-4 and twice as fast as the FlashAttention-2 in PyTorch" in text
    for gpu, way, dtype in itertools.product(("h100", "h200"), ("forward", "backward"), DTYPES):
        rows = chosen(load(f"gpu_attention_{gpu}")["rows"], N=(4096, 16384), dtype=dtype)
        assert 0.97 < geometric_mean(ratios(rows, way, "fa4")) < 1.06
        assert 1.9 < geometric_mean(ratios(rows, way, "fa2")) < 2.2


# Ranges like "1.02 to 1.10"

RANGE = r"(?<![\d.])\d\.\d\d to \d\.\d\d(?!\d)"
# Trials whose whole range is not in the log: a part of it is, or a percentage, one figure, or nothing
OTHERWISE = {
    "backward, dQ a round later, D = 64",
    "backward, dQ a round later, D = 128",
    "backward, dQ by atomic additions of two numbers",
    "backward, dQ by atomic additions of four numbers",
    "backward, dQ a round later, D = 128, and that wait",
    "forward, tiles with masks by ticket, some rows side by side",
    "softcap of 30, by the fast kernels in place of the portable ones",
    "forward, maxima trusted, of which each block has a larger one",
    "forward, no maximum looked for, and wrong results",
    "backward, programs that set the sums of the next row to zero",
    "backward, half of V in registers, D = 128",
    "forward, the same, beside one program and two groups that overlap, D = 64",
    "forward, the same, beside three groups, D = 64",
    "forward, the same with masks, D = 64",
    "forward, blocks of 64 keys with masks, D = 128",
    "backward, D = 192 and 256, the first Q and dO asked for before V",
    "backward, the place of a program worked out in each partition, a window",
    "backward, the same, and half of V in registers, D = 128",
    "backward, what is hidden by fewer comparisons, and the first round's product of dQ left out at D = 128",
    "forward, the same, D = 128, up to N = 2048",
}


def parts(rows: list[dict]) -> Iterator[list[dict]]:
    """All rows, and those with one property in common."""
    yield rows
    for key in ("D", "causal", "direction", "mask", "group", "groups", "dtype"):
        for value in {row[key] for row in rows if key in row}:
            yield [row for row in rows if row.get(key) == value]
    for bound in (2048, 3072, 4096):
        for long in (True, False):
            yield [row for row in rows if (row.get("N", 0) >= bound if long else row.get("N", 0) <= bound)]
    for key in ("softcap", "window"):
        for there in (True, False):
            yield [row for row in rows if (key in row) == there]


def spreads(trial: dict) -> set[str]:
    """The ranges of a trial and its parts, in every column of ratios."""
    columns = {key for row in trial["rows"] for key in row if key in ("ratio", "before") or key.startswith("of ")}
    found = ([row[key] for row in part if key in row] for part in parts(trial["rows"]) for key in columns)
    return {span(values) for values in found if values}


def over(rows: list[dict], one: str, other: str, way: str = "") -> str:
    """The range of one column over another, of a direction if there are two."""
    pairs = [(row[one][way], row[other][way]) if way else (row[one], row[other]) for row in rows]
    return span(mine / theirs for mine, theirs in pairs)


def computed() -> dict[str, str]:
    """Ranges that are of no single trial: what they are, and the range."""
    attention = {gpu: load(f"gpu_attention_{gpu}") for gpu in ("h100", "h200")}
    wide, narrow = attention["h100"]["dims"], chosen(attention["h100"]["rows"], D=64, N=(512, 1024, 2048))
    short = chosen(attention["h200"]["rows"], D=64, N=(512, 1024, 2048), dtype="float16")
    long = [row for row in RECORD["in order, what it waits for"]["rows"] if row["N"] >= 4096]
    few = ("window 256", "window 1024", "window 2048", "documents", "short documents", "documents of 2048")
    masked = TRIALS["forward, the same with masks, D = 64"]["rows"]
    zeros = TRIALS["backward, programs that set the sums of the next row to zero"]["rows"]
    side_by_side = [name for name in TRIALS if re.fullmatch("forward, .* by ticket, some rows side by side", name)]
    heads = chosen(RECORD["decoding, alone"]["rows"], D=128)
    few_keys = [row for row in heads if row["B"] * row["H_kv"] * row["N"] < 512 * 128]
    alone = [row for row in heads if row not in few_keys and row["B"] * row["H_kv"] <= 132]
    narrow_chunks = TRIALS["forward, D = 96, tiles in three parts of 32 columns, three stages"]["rows"]
    paged, pages = load("gpu_paged_h200")["rows"], RECORD["pages"]["rows"]
    speed = sorted(row["portable"]["us"] / row["flashlearn"]["us"] for row in paged)
    beside = (min(row["fa4"]["us"], row["flashinfer"]["us"]) / row["flashlearn"]["us"] for row in paged)
    calls, tried = RECORD["first_call"], RECORD["decoding, H100"]["tried on another"]
    found = {
        "wide, backward, of cuDNN": span(ratios(chosen(wide, D=(192, 256), N=4096), "backward", "cudnn")),
        "D = 192, backward, of FlashAttention-4": span(ratios(chosen(wide, D=192), "backward", "fa4")),
        "D = 256, backward, of FlashAttention-4": span(ratios(chosen(wide, D=256), "backward", "fa4")),
        "short and causal, D = 64, of cuDNN": span(ratios(chosen(narrow, causal=True), "forward", "cudnn")),
        "short, D = 64, of cuDNN": span(ratios(short, "forward", "cudnn")),
        "few keys, two CTAs per SM": span(row["ratio"] for row in masked if row["mask"].removeprefix("capped ") in few),
        "zeros of the next heads": span(row["ratio"] for row in zeros if row["N"] <= 32 * row["D"]),
        "tiles by ticket": span(row["ratio"] for name in side_by_side for row in TRIALS[name]["rows"]),
        "decoding, of cuDNN's time": over(RECORD["graphs, H100"]["rows"], "flashlearn", "cudnn"),
        "decoding, one launch": over(RECORD["decoding, H100"]["tried"], "one launch", "begins early"),
        "decoding, one CTA with few keys": over(few_keys, "alone", "before"),
        "decoding, one CTA for two": over(alone, "alone", "before"),
        "pages, of the portable kernel": span(speed),
        "pages, of the portable kernel, but for one": span(speed[1:]),
        "pages, of the better peer": span(beside),
        "pages, of the bandwidth": span(row["flashlearn"]["GB/s"] / 4800 for row in paged if row["bytes"] >= 2**28),
        "pages, half the ring": over(pages, "2 x 3", "1 x 6"),
        "pages, six tiles": over(pages, "1 x 6", "1 x 4"),
        "D = 96, chunks of 32, causal, long": spread(
            {"rows": [row for row in narrow_chunks if row["causal"] and row["N"] >= 4096]}
        ),
        "first call, s": " to ".join(f"{calls[name]['filled']['forward']:.2f}" for name in ("before", "flashlearn")),
        "blocks skipped": over(chosen(load("gpu_ladder")["forward"], N=(4096, 16384), causal=True), "skip", "exp2"),
    }
    for what, rows in (("D up to 128", chosen(long, D=(64, 128))), ("D = 192", chosen(long, D=192, group=1))):
        for column in ("in order", "without waiting", "without turns"):
            found[f"deterministic, {what}, {column}"] = span(row[column] for row in rows)
    for version, cells in engineering_log.second_run(load("gpu_paths_h200")).items():
        found |= {f"second run, {version}, {column}": span(cell) for column, cell in cells.items()}
    again, repeated = (
        load("gpu_paths_h200")["second run"]["ratios"][name] for name in ("both, added again", "both, timed again")
    )
    steady = (again[setting] for setting in again if abs(repeated[setting] - 1) <= engineering_log.STEADY)
    found["second run, both, added again"] = span(steady)
    for name in ("four stages", "three programs of a multiprocessor", "one program", "each warp has keys of its own"):
        found[f"decoding, {name}"] = over(tried, name, "begins early")
    for D, way in itertools.product((64, 128, (64, 128)), ("forward", "backward")):
        found[f"Triton 3.8, {way}, D of {D}"] = over(chosen(RECORD["Triton 3.8"]["rows"], D=D), "3.8.0", "3.7.1", way)
    return found


SECTIONS = {section.partition("\n")[0]: section for section in TRIED.split("\n## ")[1:]}
LINES = (APPENDIX + MEASURED).splitlines()
TABLES = {"tables of the appendix": "\n".join(line for line in LINES if line.startswith("|"))}


@pytest.mark.parametrize("title", {**SECTIONS, **TABLES})
def test_every_range_is_that_of_a_record(title):
    """Of a trial of the direction that a section is on, of a part of it, or of what is computed."""
    way = "forward" if "/forward" in title else "backward" if re.search("/(backward|dq_accumulator)", title) else ""
    known = set(computed().values())
    for trial in TRIALS.values():
        if trial["direction"] in (way, "both") or "fast/" not in title:
            known |= spreads(trial)
    assert not set(re.findall(RANGE, " ".join({**SECTIONS, **TABLES}[title].split()))) - known


@pytest.mark.parametrize("name", TRIALS)
def test_every_trial_is_in_the_log(name):
    """So that a wrong figure is missed where the right one was."""
    assert (spread(TRIALS[name]) in WORDS) != (name in OTHERWISE)


# Percentages, and what is computed from records


def percent(values, of: str = "faster") -> str:
    """From how much faster, or slower, to how much: rates over the rate before."""
    ends = sorted(100 * abs(1 - end) for end in (min(values), max(values)))
    return f"{ends[0]:.0f} to {ends[1]:.0f} % {of}"


# What a trial gained or lost: the figures, and the words of the log after them
PERCENT = {
    "backward, dQ a round later, D = 64": ("faster", "(H200, N 2048 to 16384"),
    "backward, D = 64, dQ before dK": ("", "and the second another {}."),
    "backward, dQ a round later, D = 128": ("slower", "At D = 128 the first was {} while"),
    "backward, lse and delta after the products": ("slower", "registers than there are ({})"),
    "backward, dQ added straight from registers, in their order, not by the copy engine": ("", "and {} where four"),
}


@pytest.mark.parametrize("name", PERCENT)
def test_percentages_are_those_of_a_trial(name):
    of, words = PERCENT[name]
    said = percent([row["ratio"] for row in TRIALS[name]["rows"]], of).rstrip()
    assert (words.format(said) if "{}" in words else f"{said} {words}") in WORDS


def test_what_is_computed_of_trials():
    atomic = [row["ratio"] for name in TRIALS if "atomic additions" in name for row in TRIALS[name]["rows"]]
    assert f"two or four numbers: {percent(atomic, 'slower')}" in WORDS
    spared = TRIALS["forward, P rounded after the wait, K handed back with V"]["rows"]
    three, two = ([row["ratio"] for row in chosen(spared, D=64, groups=groups)] for groups in (3, 2))
    assert f"{percent(three)} with three consumers at D = 64, up to {100 - 100 * min(two):.0f} % slower" in WORDS
    (wrong,) = TRIALS["forward, no maximum looked for, and wrong results"]["rows"]
    (worst,) = TRIALS["forward, maxima trusted, of which each block has a larger one"]["rows"]
    assert f"the kernel ran at {wrong['ratio']:.2f} of its speed" in WORDS
    assert f"all scores are computed twice: {worst['ratio']:.2f}." in WORDS
    assert 1 - 1 / wrong["ratio"] == pytest.approx(1 / 6, abs=0.01), "a sixth of their time"
    nothing = "backward, causal, D = 64, N = 16384, instructions that do nothing before the loops of the two groups"
    none, one, _, other = (f"{row['ratio']:.2f}" for row in TRIALS[nothing]["rows"])
    assert (
        f"ran at {none} of the one before" in WORDS and f"made it {one}, and before that of the other {other}" in WORDS
    )
    window = TRIALS["backward, the place of a program worked out in each partition, a window"]
    wide, narrow = ({f"{row['ratio']:.2f}" for row in chosen(window["rows"], D=D)} for D in (128, 64))
    assert (wide, narrow) == ({"1.11"}, {"0.99"}) and "1025 keys 1.11 (H100), at D = 64 0.99" in WORDS
    loads = window["loads from local memory in a round, before and with it"]
    assert f"up to {max(before for before, _ in loads.values())} others were reloaded in each" in WORDS
    before, after = TRIALS["backward, the same, stored and loaded twice, so that no register is copied"][
        "instructions of the loop, before and with it, D = 64, no mask"
    ]
    assert round(before / (before - after)) == 9 and "one instruction in nine at D = 64" in WORDS


# The mean of a trial, and what the log says of it
MEANS = {
    "backward, lse and delta loaded four at a time": (0.98, 1.01),  # nothing
    "backward, lse and delta stored negated": (0.98, 1.01),
    "backward, a wait with nothing under way before the first product": (0.99, 1.01),
    "backward, a warp of its own adds dQ, blocks of queries from the last to the first": (0.99, 1.01),
    "backward, dK leaves from where a Q or dO was, beside dV": (0.995, 1.005),
    "forward, groups that ask for their products in turns": (0.99, 1.01),
    "forward, one barrier for K of a round and V of the one before, two groups": (1.0145, 1.0155),  # 1.5 %
    "backward, the same, and groups that ask for their products in turns": (0.975, 0.985),  # 2 % slower
}


@pytest.mark.parametrize("name", MEANS)
def test_the_mean_of_a_trial(name):
    lowest, highest = MEANS[name]
    assert lowest < geometric_mean(row["ratio"] for row in TRIALS[name]["rows"]) < highest


def test_where_a_change_is_made_is_where_it_gains():
    """The settings of a trial are those in which the kernels do so, or do not."""
    zeros = TRIALS["backward, programs that set the sums of the next row to zero"]["rows"]
    for D, longest in ((64, 2048), (128, 4096)):
        assert max(row["N"] for row in zeros if row["D"] == D and row["N"] <= 32 * D) == longest
    kept = TRIALS["forward, tiles without a mask by ticket, D = 64, and D = 128 from N = 8192 on"]["rows"]
    assert all(row["D"] == 64 or row["N"] >= 8192 for row in kept)
    three = TRIALS["forward, the same, beside three groups, D = 64"]["rows"]
    assert all((row["ratio"] > 1) == (row["N"] <= 2048) for row in three), "where `FORWARD_HOPPER` changes over"
    fast = "backward, D = 192 and 256, by the fast kernel in place of the portable one, in order"
    assert all("window" in row for row in TRIALS[fast]["rows"] if row["ratio"] < 1), "slower only with windows"
    waves = {row["waves"]: row["ms"] for row in RECORD["waves"]["rows"] if row["D"] == 128}
    assert waves[15.52] == pytest.approx(waves[16.0], rel=0.002), "16 whole waves take as long"
    assert waves[15.03] > 1.04 * waves[14.79], "a wave more for 1.6 % more work"
    unchanged = TRIALS["backward, in any order, of the kernel with these"]["rows"]
    assert min(row["ratio"] for row in unchanged) > 0.98, "the same instructions"


def test_where_the_cycles_go():
    ends = ("until Q and dO are there", "to dK stored", "to the next program")
    rows = RECORD["timeline"]["rows"]
    spent = [sum(row[end] for end in ends) for row in rows]
    rounds = span((cycles / row["round"] for cycles, row in zip(spent, rows, strict=True)), 1)
    assert span((round(cycles, -2) for cycles in spent), 0) == "6800 to 8100"
    assert f"a CTA 6800 to 8100 cycles, as long as {rounds} iterations" in WORDS
    rows = RECORD["round"]["rows"]
    waits = [100 * sum(n for name, n in row.items() if name.startswith("until")) / row["round"] for row in rows]
    assert f"waits in {span(waits, 0)} % of the cycles of an iteration" in WORDS
    parts = [sum(n for name, n in row.items() if name not in ("D", "N", "causal", "group", "round")) for row in rows]
    for one, other, row in zip(parts[::2], parts[1::2], rows[::2], strict=True):
        assert abs((one + other) / 2 / row["round"] - 1) < 0.001, "the parts are all, in the mean of both warpgroups"
    assert all(0.2 < row["apart"] / row["round"] < 0.3 for row in RECORD["apart"]["rows"]), "about a quarter"


def test_shared_memory_bounds_the_backward_pass():
    """Bytes that an iteration of 64 queries and 128 keys moves, D = 128: products take steps of 16. S, dP and dQ are 64 by 64
    by 128, both sides from there; dK and dV 64 by 128 by 64, the right side alone."""
    products = 2 * (3 * (128 // 16) * (64 + 64) * 16 * 2 + 2 * (64 // 16) * 128 * 16 * 2)
    moved = products + 2 * 64 * 64 * 2 + 2 * 64 * 128 * 4 + 2 * 64 * 128 * 2  # dS; dQ in and out; Q and dO
    cycles = f"at least {moved // 128} cycles, where the products take {5 * 2 * 64 * 128 * 128 // 4096}"
    assert f"an iteration moves {moved // 1024} KiB, {cycles}" in WORDS
    assert moved // 128 < min(row["round"] for row in RECORD["timeline"]["rows"] if row["D"] == 128)
    held = 2 * 64 * 64 * 2  # half of V in registers: columns, keys of a group, two bytes each, two groups
    assert f"Half of V in registers saves {held // 1024} of the {moved // 1024} KiB" in WORDS


@pytest.mark.parametrize("way", ("forward", "backward"))
def test_the_result_of_a_kernel_is_in_the_record(way):
    results = load("gpu_attention_h200")
    rows = chosen(results["rows"], N=(4096, 8192, 16384) if way == "backward" else (4096, 16384), dtype="float16")
    rates = {D: [row["flashlearn"][way] for row in chosen(rows, D=D)] for D in (128, 64)}
    of_cudnn, of_fa4 = (ratios(rows, way, peer) for peer in ("cudnn", "fa4"))
    profile = {D: chosen(load("gpu_profile")["rows"], direction=way, D=D) for D in (128, 64)}
    busy = {D: [f"{row['tensor cores busy, % of cycles']:.0f}" for row in profile[D]] for D in profile}
    in_iterations = [f"{tables.in_iterations(row):.0f} %" for row in profile[64]]
    date, mean = results["provenance"]["date"], f"{geometric_mean(of_cudnn):.2f} of cuDNN in the geometric mean"
    said = {
        "forward": (
            f"16384 tokens in all, {date}): at least {min(rates[128]):.0f} TFLOP/s at D = 128. That is {mean} over D 64",
            f"with a minimum of {min(of_cudnn):.2f}; and {geometric_mean(of_fa4):.2f} and {min(of_fa4):.2f} of FlashAtt",
            f"busy in {busy[128][0]} % of the cycles",
            f"in {busy[64][0]} % and the unit for exponentials in {profile[64][0]['unit for exponentials busy, %']:.0f} %",
        ),
        "backward": (
            f"N >= 4096, {date}): {' and '.join(f'{span(found, 0)} at D = {D}' for D, found in rates.items())}. That is {mean}",
            "under way in {} % of the cycles, in cuDNN's kernel in {} % and in FlashAttention-4's in {} %".format(
                *busy[128]
            ),
            "at D = 64, N = 4096, causal, in {}, {} and {} %".format(*busy[64]),
            f"in iterations for {in_iterations[0]} of their time, FlashAttention-4's for {in_iterations[2]}",
        ),
    }
    for words in said[way]:
        assert words in WORDS
    assert way == "forward" or profile[128][0]["round"]["spills"] == 0, "none reloaded"


def test_ours_is_level_with_flashattention_4():
    """The goal in both directions and dtypes, in the mean and in each setting; of a GPU that has rested."""
    for gpu, way, dtype in itertools.product(("h100", "h200"), ("forward", "backward"), DTYPES):
        rows = chosen(load(f"gpu_attention_{gpu}")["rows"], N=(4096, 16384), dtype=dtype)
        found = ratios(rows, way, "fa4")
        assert len(found) == 8 and geometric_mean(found) >= tables.LEVEL[0] and min(found) >= tables.LEVEL[1]
    masks = load("gpu_masks_h200")["rows"]
    assert min(min(ratios(masks, way, "fa4")) for way in ("forward", "backward")) >= 0.9


def test_what_is_said_elsewhere_of_order_triton_and_masks():
    kept = TRIALS["backward, in order, block by block for all heads, in even sets"]["rows"]
    wide = TRIALS["backward, in order, three warps that add in turn, D = 192 and 256"]["rows"]
    lowest = min(row["ratio"] for row in kept + wide)
    notebook = (ROOT / "notebooks/14_making_it_fast.ipynb").read_text(encoding="utf-8")
    assert f"at most {-(-100 * (1 - lowest) // 1):.0f} % slower" in notebook
    slower = [
        round(100 * (1 - row["3.8.0"]["forward"] / row["3.7.1"]["forward"])) for row in RECORD["Triton 3.8"]["rows"]
    ]
    assert f"(with 3.8 forward is {min(slower)} to {max(slower)} % slower)" in " ".join(KERNELS.split())
    masks = TRIALS["forward, tiles with masks by ticket, some rows side by side"]["rows"]
    (recorded,) = chosen(masks, mask="documents", D=128, H=16)
    assert abs(recorded["ratio"] - 9 / 8) < 0.01, "an eighth longer, says notebook 17"
    plain = TRIALS["plain attention, with softcaps known to the kernels"]["rows"]
    means = [
        f"{geometric_mean(row['ratio'] for row in chosen(plain, direction=way)):.2f}" for way in ("forward", "backward")
    ]
    assert f"{means[0]} forward and {means[1]} backward in the mean of {len(plain)} settings" in WORDS


def test_what_is_said_of_decoding_and_of_pages():
    rows, h100 = RECORD["decoding"]["rows"], RECORD["decoding, H100"]
    assert f"{span((row['one after the other'] - row['at 9f43c74'] for row in rows), 1)} us less" in WORDS
    (short,) = chosen(rows, H_kv=8, N=1024)
    said = f"take {short['16']:.1f} us in 16 splits, where 4 splits took {short['4']:.1f} and cuDNN takes {short['cudnn']:.1f}"
    assert said in WORDS
    assert f"up to {max(row['before'] - row['begins early'] for row in h100['rows']):.1f} us less" in WORDS
    longest = max(row["and lets the next one begin early"] / row["begins early"] for row in h100["tried"])
    assert f"which take room and wait (up to {longest:.2f})" in WORDS
    graphs = RECORD["graphs, H100"]["rows"]
    assert len(graphs) == 48 and max(row["flashlearn"] / row["cudnn"] for row in graphs) <= 1.1
    plans = load("gpu_paged_h200")["plans"]["128 x 8192 skewed"]
    assert f"are {100 * plans['2 programs'] / plans['3 programs'] - 100:.0f} % faster than two" in WORDS
    assert plans["4 programs"] > 1.1 * plans["3 programs"], "four slower again"
    (busy,) = chosen(RECORD["pages"]["rows under way"], B=16, longest=1024)
    assert f"took {100 * busy['4 tiles, 16 keys'] / busy['3 tiles, 16 keys'] - 100:.0f} % longer" in WORDS
