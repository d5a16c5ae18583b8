"""Recorded measurements: they are read as they stand, and say where they were made."""

import doctest
import itertools
import json
import math
import re
from pathlib import Path

import pytest

from flashlearn.measurements import records, tables
from flashlearn.measurements.records import chosen, geometric_mean, load, provenance, ratios, recordings

DTYPES = ("float16", "bfloat16")


def test_examples_in_docstrings():
    assert doctest.testmod(records).failed == 0


@pytest.mark.parametrize("name", recordings())
def test_every_recording_says_where_it_was_made(name):
    assert provenance(load(name)).startswith("recorded 20")
    assert load(name)["provenance"].get("commit") or "machine" in load(name)["provenance"]


def test_a_recording_that_does_not_is_refused(tmp_path):
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


# What is said of the records


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
    constraints = (Path(__file__).parents[1] / "constraints.txt").read_text(encoding="utf-8")
    (pinned,) = re.findall(r"^triton==(\S+?);", constraints, re.MULTILINE)
    assert load(name)["provenance"]["triton"] == pinned


class Figures(str):
    """A text; a sentence is in it if all of its ranges and decimal numbers are, whatever the words around them."""

    def __contains__(self, sentence) -> bool:
        pattern = r"\d+(?:\.\d+)? to \d+(?:\.\d+)?|\d+\.\d+"
        return set(re.findall(pattern, sentence)) <= set(re.findall(pattern, self))


def said_of(module: str) -> Figures:
    """The section of the engineering log on a file of the fast kernels."""
    log = (Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8")
    (section,) = (section for section in log.split("\n## ") if f"{module}.py`" in section.partition("\n")[0])
    return Figures(section)


def test_the_forward_kernels_docstring_says_what_was_measured():
    results, words = load("gpu_attention_h200"), said_of("forward")
    found = ratios(chosen(results["rows"], N=(4096, 16384), dtype="float16"), "forward", "cudnn")
    assert len(found) == 8
    rows = chosen(results["rows"], N=(4096, 16384), dtype="float16", D=128)
    wide = min(row["flashlearn"]["forward"] for row in rows)
    assert f"Result (float16, 16384 tokens in all, {results['provenance']['date']}): {wide:.0f} TFLOP/s" in words
    assert f"{geometric_mean(found):.2f} of cuDNN in the geometric mean" in words
    level = ratios(chosen(results["rows"], N=(4096, 16384), dtype="float16"), "forward", "fa4")
    levels = f"{geometric_mean(level):.2f} and {min(level):.2f} of FlashAttention-4"
    assert f"and {min(found):.2f} in the least of them, {levels}" in words
    (wide,), (narrow,) = (
        chosen(load("gpu_profile")["rows"], direction="forward", backend="flashlearn", D=D) for D in (128, 64)
    )
    assert f"busy in {wide['tensor cores busy, % of cycles']:.0f} % of the cycles at D = 128, N = 16384" in words
    units = [narrow[unit] for unit in ("tensor cores busy, % of cycles", "unit for exponentials busy, %")]
    assert f"causal, in {units[0]:.0f} %, and the unit for exponentials in {units[1]:.0f} %" in words
    changes = " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    assert f"float16: {geometric_mean(level):.2f} of it in the mean, {min(level):.2f} at least), and at" in changes
    assert f"at least), and at {geometric_mean(found):.2f} of cuDNN" in changes


def test_the_backward_kernels_docstring_says_what_was_measured():
    results, words = load("gpu_attention_h200"), said_of("backward")
    rows = chosen(results["rows"], N=(4096, 8192, 16384), dtype="float16")
    rates = {D: [row["flashlearn"]["backward"] for row in chosen(rows, D=D)] for D in (128, 64)}
    spans = " and ".join(f"{min(found):.0f} to {max(found):.0f} at D = {D}" for D, found in rates.items())
    assert f"Result (float16, 16384 tokens, N >= 4096, {results['provenance']['date']}): {spans}" in words
    assert f"{geometric_mean(ratios(rows, 'backward', 'cudnn')):.2f} of cuDNN in the geometric mean" in words
    wide, narrow = (chosen(load("gpu_profile")["rows"], direction="backward", D=D) for D in (128, 64))
    ours, theirs, level = (f"{row['tensor cores busy, % of cycles']:.0f} %" for row in wide)
    assert (
        f"under way in {ours} of the cycles, in cuDNN's kernel in {theirs} and in FlashAttention-4's in {level};"
        in words
    )
    ours, theirs, level = (f"{row['tensor cores busy, % of cycles']:.0f}" for row in narrow)
    assert f"at D = 64, N = 4096, causal, in {ours}, {theirs} and {level} %" in words
    ours, _, level = (f"{tables.in_rounds(row):.0f} %" for row in narrow)
    assert f"are in rounds for {ours} of their time, FlashAttention-4's for {level}." in words
    assert wide[0]["round"]["registers from memory"] == 0, "none reloaded in a round"
    trials = load("gpu_trials_h200")["trials"]
    barriers, both, one = (
        spread(trials[f"backward, {name}"])
        for name in ("barriers of later rounds made ready after the first loads are asked for",
                     "dK and dV stored by the threads", "dK stored by the threads")
    )  # fmt: skip
    assert f"asked for (causal {barriers})," in words and f"copy engine ({both}; dK alone {one}; H200)" in words


def test_all_time_is_accounted_for_in_the_profile():
    rows = load("gpu_profile")["rows"]
    assert [row["backend"] for row in rows] == ["flashlearn", "cudnn", "fa4"] * 4
    for row in rows:
        assert sum(row["warps"].values()) == pytest.approx(row["warps of a scheduler"], rel=0.02), "by cause"
        kinds = {kind: part for kind, part in row["round"].items() if kind != "of all samples"}
        assert sum(kinds.values()) == pytest.approx(1, abs=1e-3)
        assert 90 < tables.in_rounds(row) <= 100, "of computing warps, in rounds"
        busy = row["tensor cores busy, % of cycles"]
        assert 0.9 * busy < tables.products_need(row) < busy, "busy longer than at full rate"


@pytest.mark.parametrize(
    ("warps", "seen"), [(2.25, 11 / 12), (2.47, 5 / 6), (3.0, 2 / 3), (3.25, 15 / 16), (4.0, 3 / 4)]
)
def test_computing_warps_share_a_scheduler_with_others(warps, seen):
    row = {"warps of a scheduler": warps, "round": {"of all samples": seen / 2}}
    assert tables.in_rounds(row) == pytest.approx(50)


def test_the_appendix_says_which_short_rows_are_of_which_kernels():
    ours = chosen(load("gpu_attention_h200")["rows"], N=(512, 1024, 2048), dtype="float16")
    ways = [rounded(ratios(ours, way, "fa4")) for way in ("forward", "backward")]
    short = chosen(load("gpu_attention_h100")["rows"], N=(512, 1024, 2048), dtype="float16")
    forward, backward = (rounded(ratios(short, way, "fa4")) for way in ("forward", "backward"))
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    assert len(short) == len(ours) == 12
    assert {row["commits"]["flashlearn"] for row in ours} == {"e46c9c4"}
    assert {row["commits"]["flashlearn"] for row in short} == {"f751127"}
    assert f"reaches {ways[0]} of FlashAttention-4 forward and {ways[1]} backward (float16, N 512 to 2048)" in appendix
    assert f"on an H100 (`gpu_attention_h100.json`) {forward} and {backward}." in appendix


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


def readme_rows() -> list[str]:
    """The table of the README: geometric means of the eight main settings as a range over runs, and the minimum of all runs."""
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


def test_the_readmes_table_says_what_was_measured():
    words = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    assert "\n".join(readme_rows()) in words
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


@pytest.mark.parametrize("gpu", ("h100", "h200"))
def test_ours_is_level_with_flashattention_4(gpu):
    """The goal in both directions and dtypes, in the mean and in each setting; of a GPU that has rested."""
    results, means, least = load(f"gpu_attention_{gpu}"), [], []
    for way in ("forward", "backward"):
        for dtype in DTYPES:
            found = ratios(chosen(results["rows"], N=(4096, 16384), dtype=dtype), way, "fa4")
            assert len(found) == 8 and geometric_mean(found) >= tables.LEVEL[0] and min(found) >= tables.LEVEL[1]
            means.append(f"{geometric_mean(found):.2f}")
            least.append(min(found))
    said = f"on an {gpu.upper()} at {min(least):.2f} of it at least, forward {means[0]} and {means[1]}, backward {means[2]} and {means[3]}"
    assert said in " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())


def setting(row):
    return tuple(row[name] for name in ("D", "N", "causal", "dtype"))


def slower(values) -> str:
    """From how much slower to how much, rates over the rate before."""
    return f"{100 * (1 - max(values)):.0f} to {100 * (1 - min(values)):.0f} %"


def test_what_was_tried_is_told_as_it_was_recorded():
    trials = load("gpu_trials_h200")["trials"]
    found = {name: [row["ratio"] for row in trial["rows"]] for name, trial in trials.items()}
    forward, backward = said_of("forward"), said_of("backward")
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    late = found["backward, dQ a round later, D = 64"]
    assert f"{100 * min(late) - 100:.0f} to {100 * max(late) - 100:.0f} % faster (H200, N 2048 to 16384" in backward
    assert f"At D = 128 the first was {slower(found['backward, dQ a round later, D = 128'])} slower" in backward
    atomic = [ratio for name, ratios in found.items() if "atomic additions" in name for ratio in ratios]
    assert (
        f"two or four numbers ({slower(atomic)} slower, and" in backward and f"| {slower(atomic)} slower:" in appendix
    )
    after = slower(found["backward, lse and delta after the products"])
    assert f"than there are ({after} slower)" in backward and f"| {after} slower, D = 64 too" in appendix
    for name in ("backward, lse and delta loaded four at a time", "backward, lse and delta stored negated"):
        assert 0.98 < geometric_mean(found[name]) < 1.01, "nothing"
    pairs = [found[f"forward, P rounded after the wait{more}"] for more in ("", ", maximum as a tree")]
    assert 0.99 < geometric_mean(tree / chain for chain, tree in zip(*pairs, strict=True)) < 1.01, "nothing"
    spared = trials["forward, P rounded after the wait, K handed back with V"]["rows"]
    three, two = ([row["ratio"] for row in chosen(spared, D=64, groups=groups)] for groups in (3, 2))
    gained = f"gained {100 * min(three) - 100:.0f} to {100 * max(three) - 100:.0f} % at D = 64"
    assert f"{gained}, and with two groups lost up to {100 - 100 * min(two):.0f} %" in forward


def spread(trial, what: str = "ratio") -> str:
    """From the least rate over that before to the most, or of another column of the rows."""
    return span(row[what] for row in trial["rows"])


def span(numbers) -> str:
    found = list(numbers)
    return f"{min(found):.2f} to {max(found):.2f}"


def deterministic(gpu: str, **where) -> list[float]:
    """Backward in order over any order, as called, in settings of the records of a GPU."""
    rows = chosen(load(f"gpu_attention_{gpu}")["order"], **where)
    return [row["in order"]["backward"] / row["flashlearn"]["backward"] for row in rows]


DETERMINISTIC = "backward, in order, block by block for all heads"
WIDE = ", D = 192 and 256"


def test_what_order_costs_is_told_as_it_was_recorded():
    record = load("gpu_trials_h200")
    trials, backward, wide = record["trials"], said_of("backward"), said_of("backward_wide")
    course = [
        (Path(__file__).parents[1] / name).read_text(encoding="utf-8")
        for name in ("docs/engineering_log.md", "notebooks/14_appendix.md")
    ]
    changes, appendix = (" ".join(text.split()) for text in course)
    kept = trials[f"{DETERMINISTIC}, in even sets"]
    more = trials["backward, in order, three warps that add in turn, D = 192 and 256"]
    assert min(row["ratio"] for row in kept["rows"]) > 0.8 and {row["group"] for row in kept["rows"]} == {1, 4, 8}
    assert f"reaches {spread(kept)} of the speed in any order (H200, {len(kept['rows'])} settings of N 512" in backward
    assert f"reaches {spread(more)} of the speed in any order (H200, {len(more['rows'])} settings of N 512" in wide
    assert f"With two warps, each for a group, it was {spread(more, 'before')}" in wide
    others = [f"four warps that add in turn over three{WIDE}"]
    others += [f"a turn for every tile, {warps} warps{WIDE}" for warps in ("three", "four")]
    four, *tiles = (spread(trials[f"backward, in order, {name}"]) for name in others)
    assert f"with four, {four} of that; with a turn for every tile {tiles[0]}, and {tiles[1]} with four." in wide
    three = trials["backward, in order, three warps that add in turn, D = 64 and 128"]["rows"]
    said = [span(row["ratio"] for row in chosen(three, D=D)) for D in (128, 64)]
    assert f"as at D = 192 and 256, were {said[0]} at D = 128 and {said[1]} at 64" in backward
    unchanged = trials["backward, in any order, of the kernel with these"]
    assert 0.98 < min(row["ratio"] for row in unchanged["rows"]), "the same instructions"
    assert f"at {spread(kept)} of the speed in any order up to D = 128" in changes
    assert f"and at {spread(more)} at D 192 and 256" in changes and f"and now {spread(more)}." in appendix
    spans = trials["backward, in order, with spans, as called, who adds before counted in one launch"]
    rates = f"at {spread(spans)} of the speed in any order, not {spread(spans, 'before')}"
    assert f"{rates} (D 64 and 128, H200)" in changes
    notebook = (Path(__file__).parents[1] / "notebooks/14_making_it_fast.ipynb").read_text(encoding="utf-8")
    least = min(row["ratio"] for row in kept["rows"] + more["rows"])
    assert f"take turns: on an H200 at most {math.ceil(100 - 100 * least)} % slower, more with windows." in notebook
    assert min(row["ratio"] for row in spans["rows"]) < least
    called = deterministic("h100", D=(64, 128))
    assert f"on an H100, as called, {span(called)} ({len(called)} settings of float16)" in backward
    alone = trials[f"{DETERMINISTIC}, alone"]
    settings = f"{len(alone['rows'])} settings of D 64 to 256"
    assert f"is {spread(alone)} times the speed (H200, {settings}, nothing else" in backward
    assert f"alone was worth {spread(alone)} times" in appendix
    assert (
        f"In any order it is {spread(trials['backward, in any order, block by block for all heads'])}, and" in backward
    )
    awaited, ticket = (
        spread(trials[f"backward, in order, {what}"])
        for what in ("the turn awaited before dQ is there", "tickets in shared memory")
    )
    assert f"shared memory: {awaited} and {ticket}." in backward
    later = spread(trials["backward, in order, the turn passed a round later"])
    assert f"by itself, was {later}," in backward and f"by itself ({later})" in appendix
    further = [
        spread(trials[f"backward, in order, each block of keys of a wave beginning {blocks} further up"])
        for blocks in ("a block of queries", "two blocks of queries")
    ]
    assert f"the first, {further[0]} and {further[1]}:" in backward
    assert f"the first ({further[0]} and {further[1]})" in appendix
    filled = spread(trials["backward, in order, memory filled with NaN before it is written"])
    assert f"took the backward pass to {filled} of that" in changes and f"reached {filled} of its speed" in appendix
    long = [row for row in record["in order, what it waits for"]["rows"] if row["N"] >= 4096]
    said = lambda rows, what: span(row[what] for row in rows)  # noqa: E731
    narrow = [row for row in long if row["D"] <= 128]
    assert f"it was {said(narrow, 'in order')} from N = 4096 on, without waiting" in backward
    assert f"order, {said(narrow, 'without waiting')}, and without turns {said(narrow, 'without turns')}." in backward
    own = [row for row in long if row["D"] == 192 and row["group"] == 1]
    assert f"reached {said(own, 'in order')} from N = 4096 on, it was {said(own, 'without waiting')} without" in wide
    assert f"and {said(own, 'without turns')} without turns" in wide
    groups = trials["backward, in order, added by the computing groups, blocks of queries from the first to the last"]
    assert f"began at the diagonal, it was {spread(groups)}" in backward
    launches = spread(trials["backward, in order, one block of keys launched after the other"])
    assert f"one block of keys after the other {launches}" in backward and f"| {launches} of the speed" in appendix
    asked = trials["backward, the same, and groups that ask for their products in turns"]
    mean = f"{100 - 100 * geometric_mean(row['ratio'] for row in asked['rows']):.0f} % slower in the mean"
    assert f"products in turns ({mean})" in backward and f"| {mean} |" in appendix
    waits = trials["backward, a wait with nothing under way before the first product"]
    assert 0.99 < geometric_mean(row["ratio"] for row in waits["rows"]) < 1.01, "nothing"
    later = trials["backward, dQ a round later, D = 128, and that wait"]
    assert max(row["ratio"] for row in later["rows"]) < 1, "not enough"
    alone = trials["backward, a warp of its own adds dQ, blocks of queries from the last to the first"]
    assert 0.99 < geometric_mean(row["ratio"] for row in alone["rows"]) < 1.01


def test_what_is_told_of_beginning_and_ending_backward():
    record, backward = load("gpu_trials_h200"), said_of("backward")
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    trials = record["trials"]
    first = [row["ratio"] for row in trials["backward, D = 64, dQ before dK"]["rows"]]
    faster = f"{100 * min(first) - 100:.0f} to {100 * max(first) - 100:.0f} % faster"
    assert f"second another {faster} (H200)" in backward and f"{faster}, kept" in appendix
    ends = ("until Q and dO are there", "to dK stored", "to the next program")
    spent = [sum(row[end] for end in ends) for row in record["timeline"]["rows"]]
    rounds = [cycles / row["round"] for cycles, row in zip(spent, record["timeline"]["rows"], strict=True)]
    most, long = (f"{min(found):.{digits}f} to {max(found):.{digits}f}" for found, digits in ((spent, 0), (rounds, 1)))
    assert most == "6811 to 8078" and f"6800 to 8100 cycles, as long as {long} rounds" in backward
    assert f"and {long} rounds are spared" in appendix
    told = {
        "programs that take one block of keys after the other": "leave ({}",
        "lse subtracted in the exponential": "exponential ({}",
        "two rounds in a loop, the scores of the second under way when dQ of the first leaves": "of the loop ({}",
    }
    for name, words in told.items():
        figures = spread(trials[f"backward, {name}"])
        assert words.format(figures) in backward and f"| {figures} of the speed" in appendix
    sums = trials["backward, the sums of dQ begun and ended in kernels"]
    assert f"reaches {spread(sums)} times the speed" in said_of("dq_sums")
    changes = " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    gained = 100 * max(row["ratio"] for row in sums["rows"]) - 100
    assert (
        f"up to {gained:.0f} % faster on an H200 (N 512 to 16384); at D = 64 dQ leaves before dK is done, {faster}"
        in changes
    )
    assert (3 * 2 + 2 * 4) * 2048 == 28 * 2**10, "O, dO and dQ in 16 bits, the sums twice in 32"


def test_what_the_order_of_registers_gains_is_told_as_it_was_recorded():
    record, words = load("gpu_trials_h200"), said_of("backward")
    trials = record["trials"]
    order = trials["backward, dQ summed in the order of registers"]
    said = f"That is {spread(order)} times as fast as rows and columns in order (H200, {len(order['rows'])} settings"
    assert said in words
    late = trials["backward, the same, and dQ a round later, D = 128"]
    assert f"and is {spread(late)} of the speed since they do not" in words
    leaves = trials["backward, the same, and dV leaves while the last dQ is computed"]
    assert f"dV leaves while the last dQ is computed: {spread(leaves)}." in words
    straight = trials["backward, dQ added straight from registers, in their order, not by the copy engine"]
    assert f"and {slower([row['ratio'] for row in straight['rows']])} where four of them lie side by side" in words
    early, in_registers = (
        trials[f"backward, {name}"] for name in ("dQ asked for before dS is handed over", "V in registers")
    )
    assert (
        f"handed over ({spread(early)} of the speed) and V kept in registers, to spare shared memory ({spread(in_registers)})"
        in words
    )
    appendix = " ".join((Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8").split())
    assert f"made the pass {spread(order)} times as fast" in appendix
    assert f"| {spread(early)} and {spread(in_registers)} of the speed" in appendix
    # D = 128, bytes of shared memory in a round of 64 queries and 128 keys: a product of a group takes steps of 16; S, dP and
    # dQ are 64 by 64 by 128, both sides from there; dK and dV 64 by 128 by 64, the right side alone
    products = 2 * (3 * (128 // 16) * (64 + 64) * 16 * 2 + 2 * (64 // 16) * 128 * 16 * 2)
    moved = products + 2 * 64 * 64 * 2 + 2 * 64 * 128 * 4 + 2 * 64 * 128 * 2  # dS; dQ in and out; Q and dO
    flops = 5 * 2 * 64 * 128 * 128
    assert (
        f"a round moves {moved // 1024} KiB, in {moved // 128} cycles at least, where the products take {flops // 4096}"
        in words
    )
    assert moved // 128 < min(row["round"] for row in record["timeline"]["rows"] if row["D"] == 128) == 3622


def test_what_is_told_of_the_cycles_of_a_round_and_of_what_did_not_help():
    record, words = load("gpu_trials_h200"), said_of("backward")
    trials = record["trials"]
    early = trials["backward, K, Q and dO asked for before the warps part, V last"]["rows"]
    masked, others = ({"rows": chosen(early, causal=causal)} for causal in (True, False))
    assert f"while V comes: {spread(masked)} times the speed. Without one it was {spread(others)}," in words
    rounds = record["round"]["rows"]
    waits = [sum(n for name, n in row.items() if name.startswith("until")) / row["round"] for row in rounds]
    assert f"A group waits in {100 * min(waits):.0f} to {100 * max(waits):.0f} % of them." in words
    parts = [sum(n for name, n in row.items() if name not in ("D", "N", "causal", "group", "round")) for row in rounds]
    for one, other, row in zip(parts[::2], parts[1::2], rounds[::2], strict=True):
        assert abs((one + other) / 2 / row["round"] - 1) < 0.001, "the parts are the round, in the mean of both groups"
    told = {
        "a third group of 64 keys, D = 64, dQ by one group after the other": "computing dQ in turns ({} of the speed)",
        "lse and delta loaded before the round before ends": "before the round before ends ({})",
        "one group begins 1000 cycles late": "1000 cycles late ({})",
        "lse and delta subtracted by products, D = 128": "each: {} of the speed at D = 128",
        "dQ given where dS was, D = 64": "alone is {} of the speed",
        "the same, D = 64, dQ given where dS was": "it was {}; with a group's own half",
    }
    for name, sentence in told.items():
        assert sentence.format(spread(trials[f"backward, {name}"])) in words, name
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    assert f"| {spread(masked)} of the speed under a mask, kept; {spread(others)} without one" in appendix
    for name in list(told)[:2]:
        assert f"| {spread(trials[f'backward, {name}'])} of the speed" in appendix
    for name in list(told)[3::2]:
        assert spread(trials[f"backward, {name}"]) in appendix
    changes = " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    assert f"while V comes: {spread(masked)} times as fast on an H200 (N 512 to 16384)" in changes
    name = "lse and delta subtracted by products, D = 64, a group's own half of dS kept for two rounds"
    assert f"kept for two rounds {spread(trials[f'backward, {name}'])}; with one" in words


def test_zeros_of_the_next_row_are_told_as_they_were_recorded():
    """Where `heads_zeroed` lets the sweep see to them, and where not."""
    zeros = load("gpu_trials_h200")["trials"]["backward, programs that set the sums of the next row to zero"]
    assert zeros["gpu"].startswith("NVIDIA H100")
    short, long = (
        {"rows": [row for row in zeros["rows"] if (row["N"] <= 32 * row["D"]) == is_short]} for is_short in (1, 0)
    )
    assert {row["N"] for row in short["rows"]} == {512, 1024, 2048, 4096}
    for D, most in ((64, 2048), (128, 4096)):
        assert max(row["N"] for row in short["rows"] if row["D"] == D) == most
    words = said_of("backward")
    assert "up to 2048 queries or 4096 at D = 128" in words
    assert f"{spread(short)} times the speed there (H100, N 512 to 4096)" in words
    assert f"where they are long it was {spread(long)}," in words
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    told = f"| up to 2048 queries, or 4096 at D = 128, {spread(short)} of the speed: kept there; {spread(long)} where"
    assert told in appendix
    changes = " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    assert f"{spread(short)} times as fast there on an H100 (N 512 to 4096)" in changes
    each = {N: [row["ratio"] for row in short["rows"] if row["N"] == N] for N in (512, 4096)}
    assert min(each[512]) > max(each[4096])


def test_what_the_copy_engine_gains_by_lse_and_delta_is_told_as_it_was_recorded():
    trials, words = load("gpu_trials_h200")["trials"], said_of("backward")
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    changes = " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    rows = trials["backward, lse and delta brought by the copy engine"]["rows"]
    worst = min(rows, key=lambda row: row["ratio"])
    twice = [row["ratio"] for row in rows if setting(row) == setting(worst)]
    found = rounded([row["ratio"] for row in rows if setting(row) != setting(worst)])
    assert f"{found} times the speed of a loading warp that loads, divides and stores them (H200, N 512 to" in words
    again = f"{len({setting(row) for row in rows})} settings {twice[0]:.2f}, and {twice[1]:.2f} when it was measured"
    assert again in words and len(twice) == 2
    assert f"| {found} of the speed, but for one setting with {twice[0]:.2f}, which had {twice[1]:.2f} when" in appendix
    turns = spread(trials["backward, in order, lse and delta brought by the copy engine"])
    window = spread(trials["backward, the same, a window of 1025 keys"])
    assert f"again; in order {turns}, with a window of 1025 keys {window})" in words
    assert f"In order it is {turns}, with a window of 1025 keys {window}." in appendix
    half = trials["backward, the same, and half of V in registers, D = 128"]["rows"]
    half = " and ".join(f"{row['ratio']:.2f}" for row in half)
    assert f"half of V in registers, {half} of the speed at D = 128 without a mask |" in appendix
    assert f"brings lse and delta, too: {found} times as fast on an H200 in 29 of 30 settings" in changes


def test_causal_rows_of_4096_are_told_as_they_were_recorded():
    trials, words = load("gpu_trials_h200")["trials"], said_of("backward")
    told = {
        "sums set to zero for the next row, causal, D = 64, up to 4096 queries": "2500 on that is {} times the speed",
        "the same, one sequence of 16 heads, causal": "one sequence of 16 heads {})",
        "sums set to zero for the next row, causal, 8192 queries": "with 8192 it is {}, at both D (H100)",
        "causal blocks of queries from the first to the last": "do not add to the same block of dQ, were {} of the speed",
        "the place of a program worked out in each partition, no window": "is its number in the grid, too, was {}: there",
    }
    for name, sentence in told.items():
        assert trials[f"backward, {name}"]["gpu"].startswith("NVIDIA H100")
        assert sentence.format(spread(trials[f"backward, {name}"])) in words
    changes = " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    kept = spread(trials["backward, sums set to zero for the next row, causal, D = 64, up to 4096 queries"])
    assert f"under a causal mask up to 4096 at every D ({kept} times as fast at D = 64 from 2500 on)" in changes
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    one, order, place = (spread(trials[f"backward, {name}"]) for name in list(told)[1::2] + list(told)[4:])
    assert f"4096 at D = 64, too: {kept} from 2500 on, one sequence of 16 heads {one} |" in appendix
    assert f"so that those of one head do not all add to the same | {order} of the speed |" in appendix
    assert f"worked out by each group of warps: one way for all | {place} of the speed |" in appendix


def test_rows_ended_early_are_told_as_they_were_recorded():
    record, words = load("gpu_trials_h200"), said_of("backward")
    trials = {name.removeprefix("backward, "): trial["rows"] for name, trial in record["trials"].items()}
    kept = spread({"rows": trials["rows of dQ ended while the last programs of the sweep run, D = 128"]})
    first, beside = (
        trials["the same, the last dQ before dV leaves"],
        trials["the same, and some heads side by side, causal"],
    )
    narrow = spread({"rows": chosen(first, D=64)})
    assert f"At D = 128 that is {kept} times the speed (H100, N 512 to 16384)" in words
    assert f"to count cost what was gained, {narrow}:" in words
    loose = spread({"rows": trials["the same, counted by an addition that does not release"]})
    assert f"PTX promises nothing for, it was {loose} at both D." in words
    one = {setting(row): row["ratio"] for row in first}
    more = rounded(row["ratio"] / one[setting(row)] for row in beside)
    before = trials["some heads side by side, causal, no row ended before all are, D = 128"]
    assert f"side by side under a mask, {more}, which was {spread({'rows': before})} before" in words
    elsewhere = trials["blocks of queries from another one on for each block of keys"]
    causal = spread({"rows": chosen(elsewhere, causal=True)})
    assert f"were {spread({'rows': elsewhere})}, and {causal} causal." in words
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    assert f"| {kept} of the speed at D = 128: kept; {narrow} at D = 64" in appendix
    assert f"| {spread({'rows': elsewhere})} of the speed, {causal} causal |" in appendix
    changes = " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    assert f"idle: {kept} times as fast on an H100 (N 512 to 16384)" in changes
    ms = {row["waves"]: row["ms"] for row in record["waves"]["rows"] if row["D"] == 128}
    assert 2048 / 132 == pytest.approx(15.52, abs=0.01) and ms[15.52] == pytest.approx(ms[16.0], rel=0.002)
    assert ms[15.03] > 1.04 * ms[14.79], "a wave more for 1.6 % more work"


def test_what_was_tried_of_places_and_shares_is_told_as_it_was_recorded():
    trials, words = load("gpu_trials_h200")["trials"], said_of("backward")
    path = Path(__file__).parents[1]
    appendix, changes = (
        (path / "notebooks/14_appendix.md").read_text(encoding="utf-8"),
        " ".join((path / "docs/engineering_log.md").read_text(encoding="utf-8").split()),
    )
    first = spread(trials["backward, the last dQ before dV leaves, causal, D = 128"])
    assert f"under a causal mask at D = 128: {first} times the speed (H100, N 1024 to 16384)" in words
    assert f"under a causal mask at D = 128 | {first} of the speed: kept" in appendix
    assert f"adds the last dQ before dV leaves: {first} times as fast" in changes
    placed = trials["backward, the place of a program worked out in each partition, a window"]
    loads = placed["loads from local memory in a round, before and with it"]
    assert f"the assembler had up to {max(before for before, _ in loads.values())} others fetched from memory" in words
    assert all(after < before for before, after in loads.values())
    window = placed["rows"]
    wide, narrow = ({f"{row['ratio']:.2f}" for row in window if row["D"] == D} for D in (128, 64))
    deterministic = spread(trials["backward, the same, in order"])
    assert wide == {"1.11"} and narrow == {"0.99"}
    assert f"that is 1.11 times the speed (H100), at D = 64 0.99; in order {deterministic}" in words
    assert f"1.11 of the speed at D = 128, 0.99 at D = 64; in order {deterministic}: kept" in appendix
    assert "1.11 times as fast at D = 128 with a window of 1025 keys on an H100" in changes
    shared = trials["backward, blocks of keys of the last wave shared by several programs"]["rows"]
    at = [spread({"rows": [row for row in shared if row["D"] == D]}) for D in (64, 128)]
    small = spread(trials["backward, the same, one sequence of 16 heads"])
    assert (
        f"{at[0]} of the speed at D = 64 and {at[1]} at D = 128 (H100, N 512 to 16384)" in words
        and f"16 heads {small}" in words
    )
    assert f"{at[0]} of the speed at D = 64, {at[1]} at D = 128; one sequence of 16 heads {small} |" in appendix


def test_what_is_left_out_and_hidden_in_the_backward_sweep_is_told_as_it_was_recorded():
    trials, words = load("gpu_trials_h200")["trials"], said_of("backward")
    root = Path(__file__).parents[1]
    appendix, changes = (
        (root / name).read_text(encoding="utf-8") for name in ("notebooks/14_appendix.md", "docs/engineering_log.md")
    )

    def at(name: str, D: int) -> str:
        trial = trials[f"backward, {name}"]
        assert trial["gpu"].startswith("NVIDIA H100")
        return spread({"rows": chosen(trial["rows"], D=D)})

    left, hidden = (
        [at(name, D) for D in (128, 64)]
        for name in (
            "the first round's product of dQ left out, causal",
            "what is hidden by fewer comparisons, and the first round's product of dQ left out at D = 128",
        )
    )
    window, order = (
        spread(trials[f"backward, the same two changes, {of}"]) for of in ("a window of 1025 keys", "in order")
    )
    once = at("causal, both conditions hidden in one comparison", 64)
    assert f"causal {left[0]} times the speed (H100, N 512 to 16384)" in words and f"the speed was {left[1]}" in words
    assert f"{hidden[0]} times the speed at D = 128, {hidden[1]} at 64 (H100, N 1024 to 16384)" in words
    assert (
        f"in order {order}, and with a window of 1025 keys {window} (H200)." in words
        and f"was {once} at D = 64" in words
    )
    assert f"causal {left[0]} of the speed at D = 128: kept; {left[1]} at D = 64" in appendix
    assert (
        f"{hidden[0]} of the speed at D = 128, {hidden[1]} at D = 64; in order {order}, with a window of 1025 keys {window} ("
        in appendix
    )
    assert f"one comparison in place of two, {once} at D = 64: not kept" in appendix
    changes = " ".join(changes.split())
    assert (
        f"{hidden[0]} times as fast at D = 128 on an H100 (N 1024 to 16384), {hidden[1]} at D = 64, and {window} with"
        in changes
    )
    nothing = trials[
        "backward, causal, D = 64, N = 16384, instructions that do nothing before the loops of the two groups"
    ]
    none, one, _, other = (f"{row['ratio']:.2f}" for row in nothing["rows"])
    assert [row["before each loop"] for row in nothing["rows"]] == [[0, 0], [0, 8], [0, 16], [8, 0]]
    assert f"ran at {none} of the speed of the one before, eight instructions" in words
    assert f"made it {one}, and before that of the other {other}." in words
    assert f"loop turned {none} of the speed into {one}, before the other's into {other}:" in appendix


def test_tickets_without_a_mask_are_told_as_they_were_recorded():
    """Kept where they gain; the rows of where they are not are none of those."""
    trials, words = load("gpu_trials_h200")["trials"], said_of("forward")
    root = Path(__file__).parents[1]
    appendix, changes = (
        (root / name).read_text(encoding="utf-8") for name in ("notebooks/14_appendix.md", "docs/engineering_log.md")
    )
    kept = trials["forward, tiles without a mask by ticket, D = 64, and D = 128 from N = 8192 on"]
    not_kept = [trials[f"forward, the same, {where}"] for where in ("where it is not done", "D = 128, up to N = 2048")]
    less = [row for trial in not_kept for row in trial["rows"]]
    assert kept["gpu"] == "NVIDIA H200" and [trial["gpu"][:11] for trial in not_kept] == ["NVIDIA H200", "NVIDIA H100"]
    assert all(row["D"] == 64 or row["N"] >= 8192 for row in kept["rows"])
    assert all(row["D"] > 128 or row["D"] > 64 and row["N"] < 8192 for row in less)
    kept, less = spread(kept), spread({"rows": less})
    assert (
        f"tickets are {kept} times the speed of fixed shares at D = 64, and at D = 128 from 8192 keys on (H200)"
        in words
    )
    assert f"Elsewhere they were {less}," in words
    assert f"{kept} of the speed at D = 64, and at D = 128 from N = 8192 on: kept there; elsewhere {less} |" in appendix
    assert f"by ticket: {kept} times as fast on an H200" in " ".join(changes.split())


def test_what_was_tried_on_an_h100_is_told_as_it_was_recorded():
    record, words = load("gpu_trials_h200"), said_of("backward")
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    trials = {name.removeprefix("backward, "): trial for name, trial in record["trials"].items()}
    held = trials["half of V in registers, D = 128"]["rows"]
    none, causal = (spread({"rows": [row for row in held if row["causal"] == masked]}) for masked in (False, True))
    narrow = spread(trials["half of V in registers, D = 64"])
    assert f"{none} of the speed at D = 128 without a mask, {causal} causal, and {narrow} at D = 64" in words
    assert f"{none} of the speed without a mask, {causal} causal, {narrow} at D = 64" in appendix
    wide, keys = 64, 64  # columns of V that stay, of the keys of a group, two bytes each, two groups
    assert f"Half of V in registers spares {2 * wide * keys * 2 // 1024} of the 368 KiB" in words
    h100 = load("gpu_attention_h100")["rows"]
    for row in record["one after the other"]["rows"]:  # beside the record, each of what cuDNN reached in the same run
        (usual,) = chosen(h100, **{key: row[key] for key in ("D", "N", "causal", "dtype")})
        share = row["flashlearn"] / row["cudnn"] * usual["cudnn"]["backward"] / usual["flashlearn"]["backward"]
        assert round(share, 1) == 0.8 and "(its remark C7512), at 0.8 of the speed" in words, share
    rounded, all_held = (
        spread(trials[name])
        for name in ("dS from P as it is rounded for dV", "the same, and all of V in registers, D = 64")
    )
    assert f"which frees registers, was {rounded}; with all of V in them {all_held} at D = 64" in words
    assert f"| {rounded} of the speed, with all of V in registers too {all_held} at D = 64" in appendix
    early = spread(trials["dS of the round before awaited before this round's is handed over"])
    halves = spread(trials["dV asked for in two halves, one while the exponentials of the other are taken"])
    late = spread(trials["dP asked for when P is there, once more"])
    leaves = trials["dK leaves from where a Q or dO was, beside dV"]
    assert f"handed over was {early}; dV asked for in two halves {halves}; dP asked for when P is there {late}" in words
    assert f"| {early} and {halves} of the speed |" in appendix
    assert f"beside dV, {spread(leaves)}, nothing in the mean" in words
    assert abs(sum(row["ratio"] for row in leaves["rows"]) / len(leaves["rows"]) - 1) < 0.005
    assert f"| {late} and {spread(leaves)} of the speed, nothing in the mean of the second" in appendix
    rows_turned = spread(trials["rows from the last to the first in the kernels before and after the sweep"])
    assert f"the L2 cache still holds what came last | {rows_turned} of the speed" in appendix
    assert all(0.2 < row["apart"] / row["round"] < 0.3 for row in record["apart"]["rows"])
    assert 'about a quarter of a round behind the other, not half ("apart")' in words


def test_what_did_not_help_once_more_is_told_as_it_was_recorded():
    trials, words = load("gpu_trials_h200")["trials"], said_of("backward")
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    of = lambda name: spread(trials[f"backward, {name}"])  # noqa: E731
    buffer, parts = (
        of("D = 64, one buffer of dQ for both groups, in turns"),
        of("the same, lse and delta subtracted by products"),
    )
    assert f"in turns, which costs nothing ({buffer}), {parts}." in words
    assert f"| the buffer alone {buffer} of the speed; with the parts {parts} |" in appendix
    twice = "the same, stored and loaded twice, so that no register is copied"
    before, after = trials[f"backward, {twice}"]["instructions of the loop, before and with it, D = 64, no mask"]
    assert round(before / (before - after)) == 9 and "one instruction in nine at D = 64" in words
    assert f"was {of(twice)} of the speed. All of dQ" in words
    assert f": {before - after} of {before} instructions less in the loop | {of(twice)} of the speed" in appendix
    whole, later = of("all of dQ by one group, the groups in turns"), of("the same, awaited before dK is asked for")
    assert f"nothing under way: {whole}, and {later} where dQ is awaited" in words
    assert f"| {whole} of the speed; {later} with dQ awaited" in appendix
    # bytes of shared memory that products of dQ read in steps of 16, D = 64: halves of 64 queries, or 64 columns by 128 queries
    halves, turns = 2 * (64 + 64), 64 + 128
    assert turns / halves == 3 / 4
    eighth = trials["backward, one of eight exponentials as a polynomial of degree 3"]
    short, long = eighth["instructions of the loop, before and with it, D = 64, no mask"]
    numbers = 64 * 128 // 128  # of S of a thread: 64 keys by 128 queries, and four warps
    told = f"of {numbers} a thread has, {numbers // 8} that are polynomials make the loop {long - short} instructions longer"
    assert short == before and told in appendix
    few, some, many = (
        of(name) for name in ("one of eight exponentials as a polynomial of degree 3", "one of four", "one of two")
    )
    assert f"degree 3 was {few}, {some} and {many}." in words and f"| {few}, {some} and {many} of the speed" in appendix
    ended, without = (
        of("dQ ended by programs of later rows"),
        of("without the kernel that ends the sums, and wrong results"),
    )
    assert (
        f"wait for K and V, was {ended}; without the kernel that ends them, and with wrong results, the pass is {without}"
        in words
    )
    assert f"| {ended} of the speed. Without" in appendix and f"no more than {without} |" in appendix


def test_what_is_told_of_the_beginning_and_the_end_of_a_tile():
    trials, words = load("gpu_trials_h200")["trials"], said_of("forward")
    path = Path(__file__).parents[1]
    appendix = " ".join((path / "notebooks/14_appendix.md").read_text(encoding="utf-8").split())
    changes = " ".join((path / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    tickets = spread(trials["forward, the same, and tickets kept from launch to launch"])
    assert f"so that no kernel has to write a 0 first: {tickets} times the speed, causal." in words
    ahead = "forward, scores of the next tile computed while one ends, {} groups"
    two, three = (spread(trials[ahead.format(groups)]) for groups in ("two", "three"))
    assert f"last product and its o are finished: {two} times the speed (H100), with three groups {three}." in words
    assert f"two groups {two} of the speed: kept; three groups {three}: not kept | H100" in appendix
    late = spread(trials["forward, the same, and o's way out awaited in the next tile"])
    times = spread(trials["forward, o times 1 / l, one division a row"])
    assert f"awaited in the next tile ({late}), and o is multiplied by 1 / l ({times})" in words
    assert f"with 1 / l in place of a division, {late} of the speed: kept" in appendix
    rows = trials["forward, the same, two programs of a multiprocessor, D = 64, blocks of 64 keys"]["rows"]
    short = {row["N"]: row["ratio"] for row in rows if row["causal"]}
    assert all(row["ratio"] < 1 for row in rows if not (row["causal"] and row["N"] <= 1024))
    least = min(row["ratio"] for row in rows)
    assert f"| {short[512]:.2f} and {short[1024]:.2f} of the speed at N = 512 and 1024, causal" in appendix
    assert f"slower everywhere else, down to {least:.2f} |" in appendix
    now = ratios(
        chosen(load("gpu_attention_h200")["rows"], D=64, N=(512, 1024, 2048), dtype="float16"), "forward", "cudnn"
    )
    assert f"at D = 64 and N = 512 to 2048 it reaches {min(now):.2f} to {max(now):.2f} of cuDNN" in changes
    assert f"computed: {spread(trials['backward, all three'])} times as fast on an H200 (N 512 to 16384)" in changes


def test_what_is_told_of_two_programs_of_a_multiprocessor():
    trials, words = load("gpu_trials_h200")["trials"], said_of("forward")
    path = Path(__file__).parents[1]
    appendix = (path / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    changes = " ".join((path / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    alone = trials["forward, two programs of a multiprocessor, a group does one thing after the other, D = 64"]
    one = trials["forward, the same, beside one program and two groups that overlap, D = 64"]["rows"]
    short, long = (spread({"rows": [row for row in one if (row["N"] <= 2048) == is_short]}) for is_short in (1, 0))
    assert f"Up to N = 2048 that is {short} times as fast as one program, from 3072 on {long};" in words
    assert f"without, it is {spread(alone)} times as fast" in words
    assert (
        f"| {spread(alone)} times as fast as before: kept; up to N = 2048 {short} of one program, from 3072 on {long}."
        in appendix
    )
    three = trials["forward, the same, beside three groups, D = 64"]["rows"]
    assert all((row["ratio"] > 1) == (row["N"] <= 2048) for row in three), "where `FORWARD_HOPPER` changes over"
    masked = trials["forward, the same with masks, D = 64"]["rows"]
    few = ("window 256", "window 1024", "window 2048", "documents", "short documents", "documents of 2048")
    capped = [row for row in masked if row["mask"].removeprefix("capped ") in few]
    assert len(capped) > len(chosen(masked, mask=few)) and spread({"rows": capped}) == spread(
        {"rows": chosen(masked, mask=few)}
    )
    told = f"documents of 256 to 2048 keys {spread({'rows': capped})}"
    assert f"{told} times (H100)" in words and told in appendix
    assert f"documents of 256 to 2048 keys, too, {spread({'rows': capped})} times as fast" in changes
    narrow = spread(
        trials["forward, two programs of a multiprocessor, overlapping within a group, blocks of 32 keys, D = 64"]
    )
    assert f"finds registers enough, were {narrow} of the speed" in words and f"run together, {narrow} |" in appendix
    record = chosen(load("gpu_attention_h100")["rows"], D=64, N=(512, 1024, 2048))
    beside = ratios([row for row in record if row["causal"]], "forward", "cudnn")
    assert f"{spread(alone)} times as fast as they were, at {rounded(beside)} of cuDNN on an H100" in changes
    assert min(ratios(record, "forward", "cudnn")) >= 1, "level with cuDNN in all short rows at D = 64"


def test_what_is_told_of_rows_in_the_l2_cache_and_of_wide_heads():
    trials, words = load("gpu_trials_h200")["trials"], said_of("forward")
    path = Path(__file__).parents[1]
    appendix = (path / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    changes = " ".join((path / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    side = "no more rows side by side with masks than the L2 cache holds"
    forward, backward = (spread(trials[f"{way}, {side}"]) for way in ("forward", "backward"))
    assert f"keys that are seen: {forward} times the speed" in words
    assert f"find room in the L2 cache: {backward} times the speed" in said_of("backward")
    assert f"| {forward} of the speed forward, {backward} backward: kept |" in appendix
    assert f"forward {forward} times as fast, backward {backward} times" in changes
    (long,) = chosen(trials[f"forward, {side}"]["rows"], D=256, mask="a document")
    assert (long["rows"], long["before"]) == (
        2,
        8,
    ) and f"up to {long['ratio']:.2f} times as fast with two rows as with eight" in words
    assert "256 columns the sums of 64 queries take 128 registers of a thread" in words
    assert 64 * 256 // 128 == 128, "numbers of a group, in float32, for its threads"
    wide = trials["forward, D = 192 and 256, by the fast kernel in place of the portable one"]
    reached = {D: rounded(row["of cuDNN"] for row in chosen(wide["rows"], D=D)) for D in (192, 256)}
    assert (
        f"That is {spread(wide)} times as fast as the portable kernel; at D = 256 it reaches {reached[256]} of cuDNN"
        in words
    )
    assert f"256 columns there too, a quarter of them zeros, {reached[192]} (H100" in words
    slabs = "forward, D up to 192, "
    three, buffers, masked, stages = (
        spread(trials[slabs + name])
        for name in (
            "three slabs of 64 columns in place of 256",
            "two buffers for Q in place of one, no mask",
            "two buffers for Q in place of one, masks",
            "three stages in place of two",
        )
    )
    assert f"o is three sums, which is {three} times the speed (H100, 15 settings)" in words
    assert f"two buffers for Q, {buffers}; with masks they were {masked}, and three stages {stages}." in words
    assert f"were zeros: {three} times as fast on an H100" in changes
    told = f"{three} of the speed: kept; two buffers for Q without a mask {buffers}: kept, with masks {masked}; three stages {stages} |"
    assert told in appendix
    assert f"{spread(wide)} times as fast as the portable one at D 192 and 256" in changes
    assert f"(N 512 to 16384), {reached[256]} of cuDNN at D = 256" in changes
    assert f"it reached {reached[256]} of cuDNN" in appendix


def test_what_is_told_of_the_backward_pass_of_wide_heads():
    trials, path = load("gpu_trials_h200")["trials"], Path(__file__).parents[1]
    words, changes = (
        said_of("backward_wide"),
        " ".join((path / "docs/engineering_log.md").read_text(encoding="utf-8").split()),
    )
    all_of_them = "backward, D = 192 and 256, "
    fast = f"{all_of_them}by the fast kernel in place of the portable one"
    deterministic = trials[f"{fast}, in order"]
    windows = {"rows": [row for row in deterministic["rows"] if "window" in row]}
    assert f"Result: {spread(trials[fast])} times the speed of the portable kernels" in words
    assert (
        f"windows and softcaps {spread(trials[f'{fast}, windows and softcaps'])}, and in order {spread(deterministic)}"
        in words
    )
    assert all("window" in row for row in deterministic["rows"] if row["ratio"] < 1)
    assert f"{spread(trials[fast])} times as fast at D 192 and 256" in changes
    assert f"In order with a window it is {spread(windows)} times as fast" in changes
    for name, said in {
        "dQ not added, and wrong": "Without these additions, and wrong, it ran at {} of its speed",
        "dQ stored in place of added, and wrong": "dQ stored and not added, which HBM and L2 carry more easily, {};",
        "dQ added elsewhere by every program, and wrong": "so that no two add to the same, {};",
        "dO not read from HBM or L2, and wrong": "dO never read, {}.",
        "the first product that nobody uses left out": "which nobody uses, left out ({})",
    }.items():
        assert said.format(spread(trials[all_of_them + name])) in words
    narrow = "backward, D = 192, "
    assert (
        f"buffer for each tile of dQ: {spread(trials[f'{narrow}a buffer for each tile of dQ in place of one for each group'])}."
        in words
    )
    assert (
        f"and one by the other ({spread(trials[f'{narrow}two tiles of dQ by the group that has dV, one by the other'])})"
        in words
    )
    assert spread(trials[f"{all_of_them}the first Q and dO asked for before V"]) == "1.00 to 1.00"
    loops = trials["forward, causal, one loop in place of two, two groups"]
    assert f"compiled sooner, {spread(loops)} times as fast on an H100" in changes
    others = chosen(trials["forward, one loop in place of three, windows, documents and softcaps"]["rows"])
    capped, masked = ({"rows": [row for row in others if ("softcap" in row) == softcap]} for softcap in (True, False))
    appendix = (path / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    wrong = [spread(trials[f"{all_of_them}dQ {what}, and wrong"]) for what in ("not added", "stored in place of added")]
    wrong.append(spread(trials[f"{all_of_them}dQ added elsewhere by every program, and wrong"]))
    capped_too = spread(trials[f"{fast}, windows and softcaps"])
    for told in (
        f"{spread(trials[fast])} times the speed, with windows and softcaps {capped_too}: kept; in order {spread(deterministic)} |",
        f"| {wrong[0]}, {wrong[1]} and {wrong[2]}: with 64 keys",
        f"causal {spread(loops)} of the speed, and compiled sooner: kept; with windows and documents {spread(masked)} |",
    ):
        assert told in appendix
    said = f"with a softcap {spread(capped)} of the speed, with windows and documents {spread(masked)} (H100)"
    assert said in said_of("forward")


def test_what_is_told_of_decoding_on_an_h100():
    record = load("gpu_trials_h200")
    found, graphs = record["decoding, H100"], record["graphs, H100"]["rows"]
    path = Path(__file__).parents[1]
    words = said_of("decode")
    changes = " ".join((path / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    appendix = (path / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    less = max(row["before"] - row["begins early"] for row in found["rows"])
    assert f"and waits for that: up to {less:.1f} us less" in words
    share = rounded(row["flashlearn"] / row["cudnn"] for row in graphs)
    assert len(graphs) == 48 and f"one query takes {share} of cuDNN's time in a CUDA graph, in 48 settings" in words
    assert max(row["flashlearn"] / row["cudnn"] for row in graphs) <= 1.1, "level with cuDNN in all"
    assert f"in CUDA graphs {share} of cuDNN's time on an H100" in changes
    assert f"on an H100 ours takes {share} of cuDNN's time in all of these settings" in appendix
    longer = lambda rows, name: [row[name] / row["begins early"] for row in rows]  # noqa: E731
    tried, others = found["tried"], found["tried on another"]
    assert (
        f"take room and wait (up to {max(longer(tried, 'and lets the next one begin early')):.2f} times as long)"
        in words
    )
    assert f"in a graph too ({rounded(longer(tried, 'one launch'))} times)" in words
    stages, three, one = (
        rounded(longer(others, name)) for name in ("four stages", "three programs of a multiprocessor", "one program")
    )
    assert f"more tiles under way ({stages}), three programs of a multiprocessor ({three}) or one ({one})" in words
    each = rounded(longer(others, "each warp has keys of its own"))
    assert f"({each} times as long)" in words and f"| {each} times as long | H100" in appendix


def test_what_is_told_of_fewer_instructions_and_of_halves():
    trials, words = load("gpu_trials_h200")["trials"], said_of("forward")
    rescaled, ones = "forward, sums rescaled only where a maximum grew by 2^8", "row sums by a product with ones"
    each = [spread(trials[name]) for name in (rescaled, f"forward, {ones}", f"{rescaled}, {ones}")]
    assert (
        f"it ran at {each[0]} of its speed; row sums by a product of P with ones, {each[1]}; both, {each[2]}." in words
    )
    halves = "forward, scores and softmax of a block in two halves"
    one, two = spread(trials[halves]), spread(trials[f"{halves}, two blocks a round"])
    assert f"softmax of the first: {one}." in words
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    assert f"| {each[0]} of the speed; {each[1]}; {each[2]} |" in appendix
    assert f"| {one} of the speed; two blocks in a row, {two} |" in appendix


def test_what_trusted_maxima_gain_is_told_as_it_was_recorded():
    trials, words = load("gpu_trials_h200")["trials"], said_of("forward")
    name = "forward, maxima trusted until a sum grows too large, {} groups"
    three, two = (trials[name.format(groups)] for groups in ("three", "two"))
    (wrong,) = trials["forward, no maximum looked for, and wrong results"]["rows"]
    (worst,) = trials["forward, maxima trusted, of which each block has a larger one"]["rows"]
    assert f"this kernel ran at {wrong['ratio']:.2f} of its speed; with this, and right, at {spread(three)}" in words
    assert len(three["rows"]) == 9 and f"twice, at {worst['ratio']:.2f} of the speed" in words
    assert f"for the sums of all four warps too: {spread(two)} with it" in words
    assert 1 - 1 / wrong["ratio"] == pytest.approx(1 / 6, abs=0.01), "`trust` says a sixth"
    barrier = trials["forward, one barrier for K of a round and V of the one before, two groups"]
    assert 100 * geometric_mean(row["ratio"] for row in barrier["rows"]) - 100 == pytest.approx(1.5, abs=0.05)
    turns = trials["forward, groups that ask for their products in turns"]
    assert f"FlashAttention-3's ping-pong ({spread(turns)} of the speed" in words
    assert 0.99 < geometric_mean(row["ratio"] for row in turns["rows"]) < 1.01, "nothing in the mean"
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    assert f"| {spread(barrier)} of the speed, 1.5 % in the mean: kept |" in appendix
    larger = f"{worst['ratio']:.2f} if every block has a larger maximum by far"
    assert f"| {spread(three)} of the speed: kept; {larger}; two groups, {spread(two)}: not kept |" in appendix
    assert f"| {spread(turns)} of the speed, nothing in the mean;" in appendix
    changes = " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    assert f"up to {spread(three).split()[-1]} times as fast on an H200; tiles of 192 queries" in changes


def test_what_softcaps_gain_is_told_as_it_was_recorded():
    rows = load("gpu_trials_h200")["trials"]["softcap of 30, by the fast kernels in place of the portable ones"]["rows"]
    forward, backward = (spread({"rows": chosen(rows, direction=way)}) for way in ("forward", "backward"))
    assert f"reach {forward} times the speed of the portable ones forward, and {backward} times backward" in said_of(
        "softcap"
    )
    changes = " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    assert f"on an H200 {forward} times as fast forward as the portable kernels" in changes
    assert f"and {backward} times backward (causal, N 1024 to 16384)" in changes
    plain = load("gpu_trials_h200")["trials"]["plain attention, with softcaps known to the kernels"]["rows"]
    means = [geometric_mean(r["ratio"] for r in chosen(plain, direction=way)) for way in ("forward", "backward")]
    said = f"in {len(plain)} settings on an H200: {means[0]:.2f} forward and {means[1]:.2f} backward, in the mean"
    assert said in said_of("softcap")


def test_what_the_docstrings_tell_of_rows_side_by_side():
    trials, words = load("gpu_trials_h200")["trials"], said_of("forward")
    causal = trials["forward, causal tiles by ticket, some rows side by side"]
    masks = trials["forward, tiles with masks by ticket, some rows side by side"]["rows"]
    windows, documents = (spread({"rows": chosen(masks, mask=mask)}) for mask in ("window", "documents"))
    assert f"causal attention took {spread(causal)} of that time" in words
    assert f"windows {windows}, and documents {documents} (H200" in words
    (recorded,) = chosen(masks, mask="documents", D=128, H=16)
    notebook = (Path(__file__).parents[1] / "notebooks/17_which_keys.ipynb").read_text(encoding="utf-8")
    assert "these documents took an eighth longer, forward" in notebook and abs(recorded["ratio"] - 9 / 8) < 0.01
    alone = trials["forward, tickets taken by a warp of its own, row after row"]
    assert f"row after row: {spread(alone)} of the speed of fixed shares" in words
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    both = spread({"rows": causal["rows"] + masks})
    assert (
        f"| {spread(alone)} of the speed of fixed shares; taken by the loading warp, from a few heads side by side, {both} |"
        in appendix
    )
    backward = trials["backward, blocks of keys with masks, some rows side by side"]
    assert f"{spread(backward)} times the speed of one row after the other" in said_of("backward")
    changes = " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    most = [spread({"rows": rows}).split()[-1] for rows in (masks, causal["rows"])]
    assert f"documents run up to {most[0]} times as fast, causal attention up to {most[1]} times" in changes
    found = load("gpu_masks_h200")["rows"]
    assert min(min(ratios(found, way, "fa4")) for way in ("forward", "backward")) >= 0.9


def test_what_is_told_of_rows_of_shared_keys():
    trials, root = load("gpu_trials_h200")["trials"], Path(__file__).parents[1]
    changes = " ".join((root / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    kept = trials["backward, rows of shared keys side by side"]
    lengths = sorted({row["N"] for row in kept["rows"]})
    assert {row["group"] for row in kept["rows"]} == {4, 8} and (lengths[0], lengths[-1]) == (512, 8192)
    told = f"is {spread(kept)} times the speed with four and eight query heads to a key head (H200, {len(kept['rows'])} settings"
    assert told in said_of("backward")
    assert (
        f"busy: {spread(kept)} times as fast with four and eight query heads to a key head on an H200 (N 512" in changes
    )
    short = trials["backward, the same, fewer than 8 blocks of keys"]
    assert f"than 8 blocks were {spread(short)} times as fast side by side" in said_of("backward")


def test_what_is_told_of_triton_3_8():
    root, rows = Path(__file__).parents[1], load("gpu_trials_h200")["Triton 3.8"]["rows"]

    def over(way: str, **of) -> list[float]:
        return [row["3.8.0"][way] / row["3.7.1"][way] for row in chosen(rows, **of)]

    forward, (narrow, wide) = over("forward"), (rounded(over("forward", D=D)) for D in (64, 128))
    source = said_of("versions")
    assert f"With 3.8 the kernels reach {narrow} of their speed with 3.7.1 forward at D = 64" in source
    assert f"{wide} at D = 128, and backward {rounded(over('backward'))} (H200" in source
    slower = sorted(round(100 * (1 - ratio)) for ratio in forward)
    words = " ".join((root / "README.md").read_text(encoding="utf-8").split())
    assert f"(with 3.8 forward is {slower[0]} to {slower[-1]} % slower)" in words
    told = f"3.8 (with 3.8 forward {rounded(forward)} times as fast as with 3.7.1)"
    assert told in (root / "docs/engineering_log.md").read_text(encoding="utf-8")


def test_what_the_changelog_tells_of_launches_and_first_calls():
    trials = load("gpu_trials_h200")["trials"]
    anew = trials["forward, launches at D = 64 chosen anew"]["rows"]
    assert 1.09 < max(row["ratio"] for row in chosen(anew, N=(512, 1024))) < 1.11, "up to a tenth"
    assert min(row["ratio"] for row in anew) >= 1
    before, now = (load("gpu_trials_h200")["first_call"][name] for name in ("before", "flashlearn"))
    text = " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    empty, filled = ([call[caches]["forward"] for call in (before, now)] for caches in ("empty", "filled"))
    assert (
        f"{empty[0]:.1f} to {empty[1]:.1f} s with empty caches, {filled[0]:.2f} to {filled[1]:.2f} s with filled ones"
        in text
    )
    assert f"{empty[0] - empty[1]:.1f} s less forward on an H200" in text


def rounded(values, digits=2) -> str:
    """From the least to the most."""
    values = list(values)
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def test_what_is_told_of_three_parts_of_32_columns():
    trials = load("gpu_trials_h200")["trials"]
    rows = trials["forward, D = 96, tiles in three parts of 32 columns, three stages"]["rows"]
    full, causal, long = (
        spread({"rows": chosen(rows, **which)})
        for which in ({"causal": False}, {"causal": True}, {"causal": True, "N": (4096, 8192, 16384)})
    )
    groups = spread(trials["forward, the same, three groups"])
    appendix = (Path(__file__).parents[1] / "notebooks/14_appendix.md").read_text(encoding="utf-8")
    told = f"{full} of the speed without a mask, {causal} causal, and {long} from N = 4096 on; with three groups {groups}: not kept"
    assert told in appendix


def test_what_is_told_of_pages_on_hopper_gpus():
    record, trials = load("gpu_paged_h200"), load("gpu_trials_h200")["pages"]
    words = said_of("hopper/paged")
    changes = " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    rows = record["rows"]
    ours = [row["flashlearn"]["us"] for row in rows]
    portable = [row["portable"]["us"] / us for row, us in zip(rows, ours, strict=True)]
    peers = [min(row[name]["us"] for name in ("fa4", "flashinfer")) / us for row, us in zip(rows, ours, strict=True)]
    long = [row["flashlearn"]["GB/s"] / 4800 for row in rows if row["bytes"] >= 2**28]
    assert f"{rounded(long)} of the bandwidth in batches that read 256 MB or more" in words and len(long) == 9
    assert f"{rounded(portable)} times as fast as the portable kernel" in words
    assert f"{rounded(peers)} of the better of FlashAttention-4 and FlashInfer" in words
    assert (
        f"at {min(long):.2f} of the bandwidth and more" in changes and f"at {rounded(peers)} of the better" in changes
    )
    slower = [row for row, ratio in zip(rows, portable, strict=True) if ratio < 1]
    assert [(row["B"], row["longest"], row["shape"]) for row in slower] == [(16, 65536, "uniform")]
    assert f"1.00 to {max(portable):.2f} times as fast as the portable kernel, but for" in changes
    plans = record["plans"]["128 x 8192 skewed"]
    faster = 100 * plans["2 programs"] / plans["3 programs"] - 100
    assert f"are {faster:.0f} % faster than two" in str(words)
    assert plans["4 programs"] > 1.1 * plans["3 programs"]
    two = rounded(row["2 x 3"] / row["1 x 6"] for row in trials["rows"])
    assert f"with half the ring each took {two} times as long" in words
    six = rounded(row["1 x 6"] / row["1 x 4"] for row in trials["rows"])
    assert f"six tiles in place of four {six} times" in words
    (busy,) = chosen(trials["rows under way"], B=16, longest=1024)
    longer = 100 * busy["4 tiles, 16 keys"] / busy["3 tiles, 16 keys"] - 100
    assert f"took {longer:.0f} % longer (H200)" in str(words)


def test_what_is_told_of_short_splits_and_of_kernels_that_begin_early():
    rows, trials = load("gpu_trials_h200")["decoding"]["rows"], load("gpu_trials_h200")["trials"]
    words = said_of("decode")
    changes = " ".join((Path(__file__).parents[1] / "docs/engineering_log.md").read_text(encoding="utf-8").split())
    less = rounded((row["one after the other"] - row["at 9f43c74"] for row in rows), 1)
    assert f"{less} us less. And" in words and f"in CUDA graphs {less} us less a step of decoding" in changes
    (short,) = chosen(rows, H_kv=8, N=1024)
    told = f"16 splits take {short['16']:.1f} us, where 4 took {short['4']:.1f}, and cuDNN takes {short['cudnn']:.1f}"
    assert told in words
    assert f"takes {short['16']:.1f} us in a CUDA graph on an H200, where it took {short['4']:.1f}" in changes
    early = trials["backward, kernels that begin while the one before ends, D = 64"]["rows"]
    sums = said_of("dq_sums")
    assert f"{rounded(row['ratio'] for row in early)} times the speed" in sums
    most = max(early, key=lambda row: row["ratio"])
    assert f"up to {most['ratio']:.2f} times the speed at N = {most['N']} (H100)" in changes
