"""The benchmarks' commands: everything but the clock. No GPU is needed; a stub stands for the time that is measured."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import itertools
import json
import sys
import types
from collections import Counter
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import gpu_attention
import gpu_ladder
import gpu_lesson
import gpu_masks
import gpu_profile
import gpu_ring
import laptop
import redraw
from side_by_side import backends, first_call, measure, rounds
from side_by_side.measure import Setting
from side_by_side.report import SETTINGS, report, targets

from flashlearn.measurements.records import chosen, load, ratios
from tests.slow import slow

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed here")
HERE = {"gpu": "no GPU", "driver": "none", "torch": "2", "triton": "3", "commit": "abc", "date": "2026-11-21"}
BOTH = ("float16", "bfloat16")
ATTENTION = str(gpu_attention.RECORDS / "gpu_attention_h200.json")
LATE = {name: 10.0 if name == "flashlearn" else 11.0 for name in backends.NAMES}


def compile_nothing() -> bool:
    """Whether kernels are interpreted in this process, so that ours run on the CPU."""
    from flashlearn.kernels import INTERPRETED

    return INTERPRETED


ORDER = "in order / in any order"
TINY = Setting(64, 64, True, "float16", 1, 2, 2, 64)


def synthetic() -> dict:
    """A whole recording in which ours is faster by a tenth everywhere, and takes as much memory as the others."""
    settings = measure.speed_settings(BOTH, gpu_attention.LENGTHS)
    rate = {name: {"forward": 110.0 if name == "flashlearn" else 100.0} for name in backends.NAMES}
    rate = {name: found | {"backward": found["forward"]} for name, found in rate.items()}
    late = {name: {"us": us, "graph us": us - 5, "GB/s": 900.0} for name, us in LATE.items()}
    peak = lambda s: dict.fromkeys(("flashlearn", "fa2", "cudnn", "efficient", "math"), 1000 * s.N)  # noqa: E731
    return {
        "provenance": dict(HERE),
        "rows": [s._asdict() | rate | {"reasons": {}} for s in settings],
        "gqa": [s._asdict() | rate | {"reasons": {}} for s in measure.gqa_settings(BOTH)],
        "dims": [s._asdict() | rate | {"reasons": {}} for s in measure.dims_settings(BOTH)],
        "order": [
            s._asdict() | {name: {"backward": 100.0} for name in ("flashlearn", "in order")} | {"reasons": {}}
            for s in measure.order_settings(BOTH)
        ],
        "decoding": [s._asdict() | late | {"reasons": {}} for s in measure.decoding_settings(BOTH)],
        "memory": [s._asdict() | peak(s) | {"results": 800 * s.N, "reasons": {}} for s in measure.memory_settings()],
        "first_call": {
            "flashlearn": {"empty": {"forward": 2.0, "backward": 3.0}, "filled": {"forward": 0.5, "backward": 0.25}}
        },
    }


def change(results: dict, section: str, name: str, value, **where) -> None:
    (row,) = chosen(results[section], **where)
    row[name] = value


ONE = {"D": 128, "N": 4096, "causal": True, "dtype": "float16"}


# tables and targets


def test_all_targets_are_met_and_every_number_is_shown():
    text = report(synthetic())
    assert {target.state for target in targets(synthetic())} == {"met"}
    assert "MISSED" not in text and "open" not in text and "Not measured" not in text
    assert "forward / cudnn, float16, N 4096 and 16384: geometric mean at least 0.95: 1.100 (8 settings)" in text
    assert "caches empty: forward 2.00, backward 3.00; caches filled: forward 0.50, backward 0.25" in text
    for title in (
        "Speed, forward",
        "Speed, backward",
        "GQA, forward",
        "Other head",
        "Backward with torch.use_deterministic_algorithms(True)",
        "Decoding, one query",
        "Peak memory",
    ):
        assert title in text
    assert "1.10" in next(line for line in text.splitlines() if line.startswith("128    512        fp16"))


@pytest.mark.parametrize(
    "gpu, elsewhere",
    (("h200", ()), ("h100", (f"{ORDER}, bfloat16", "/ flex", "decoding, as called, / fa2", "graph / fa2"))),
)
def test_the_targets_that_the_benchmark_prints_are_reached(gpu, elsewhere):
    """All; on an H100 but those beside flex, where it was not timed, order in bfloat16, which was not either, and one setting of
    decoding, a hundredth slower."""
    for target in targets(load(f"gpu_attention_{gpu}")):
        assert target.state == "met" or any(words in target.words for words in elsewhere), target
        assert target.state != "MISSED" or [place[:4] for place in target.where] == ["0.99"], target


def test_settings_are_those_that_the_targets_count():
    assert len(measure.speed_settings(["float16"], gpu_attention.LENGTHS)) == SETTINGS["rows"]
    assert len(measure.gqa_settings(["float16"])) == SETTINGS["gqa"]
    assert len(measure.decoding_settings(["float16"])) == SETTINGS["decoding"]
    assert len([s for s in measure.order_settings(["float16"]) if s.D <= 128]) == SETTINGS["order"]
    assert [s.N for s in measure.memory_settings()] == [1024 * 2**i for i in range(8)]
    assert all(s.B * s.N == 16384 and s.H_q * s.D == 2048 for s in measure.speed_settings(BOTH, gpu_attention.LENGTHS))


@pytest.mark.parametrize(
    ("section", "name", "value", "where", "words"),
    [
        (
            "rows",
            "flashlearn",
            {"forward": 80.0, "backward": 100.0},
            ONE,
            [
                "forward / cudnn, float16, N 4096 and 16384: each at least 0.88, missed by 0.080 at worst, in 1 of 8 settings",
                "0.800 at D 128, N 4096, causal, float16, forward",
                "speed forward / fa2, float16, every N: each at least 1, missed by 0.200 at worst, in 1 of 24 settings",
            ],
        ),
        (
            "rows",
            "flashlearn",
            {"forward": 1.0, "backward": 100.0},
            ONE,
            ["forward / cudnn, float16, N 4096 and 16384: geometric mean at least 0.95, missed by 0.339: 0.611"],
        ),
        ("rows", "flashlearn", None, ONE, ["0.000 at D 128, N 4096, causal, float16, backward"]),
        (
            "rows",
            "fa4",
            {"forward": 125.0, "backward": 250.0},
            ONE,
            [
                "forward / fa4, float16, N 4096 and 16384: each at least 0.95, missed by 0.070 at worst, in 1 of 8 settings",
                "backward / fa4, float16, N 4096 and 16384: geometric mean at least 1, missed by 0.019: 0.981",
            ],
        ),
        (
            "rows",
            "flex",
            {"forward": 200.0, "backward": 100.0},
            ONE | {"N": 1024, "dtype": "bfloat16"},
            ["forward / flex, bfloat16, N 1024: each at least 1, missed by 0.450 at worst, in 1 of 4 settings"],
        ),
        (
            "order",
            "in order",
            {"backward": 75.0},
            ONE | {"H_kv": 16},
            [
                "backward in order / in any order, float16: each at least 0.8, missed by 0.050 at worst, in 1 of 22",
                "0.750 at D 128, N 4096, causal, float16",
            ],
        ),
        ("order", "in order", None, ONE | {"H_kv": 16}, ["0.000 at D 128, N 4096, causal, float16"]),
        (
            "gqa",
            "fa2",
            {"forward": 100.0, "backward": 220.0},
            ONE,
            ["gqa backward / fa2, float16, every N", "0.500 at D 128, N 4096, causal, float16, backward, heads 16/4"],
        ),
        (
            "decoding",
            "flashlearn",
            {"us": 22.0, "graph us": 8.0, "GB/s": 450.0},
            {"D": 64, "N": 8192, "B": 8, "H_kv": 8, "dtype": "bfloat16"},
            [
                "decoding, as called, / fa2, bfloat16, every N",
                "0.500 at D 64, N 8192, bfloat16, heads 32/8, B 8",
                "decoding in a CUDA graph / fa2, bfloat16, every N",
                "0.750 at D 64, N 8192, bfloat16, heads 32/8, B 8",
            ],
        ),
        ("memory", "fa2", 8_000_000, {"N": 16384}, ["peak memory, fa2 / ours", "0.488 at N 16384"]),
        ("memory", "flashlearn", 2000 * 131072, {"N": 131072}, ["peak memory linear in N", "0.500 at N 131072"]),
    ],
)
def test_a_missed_target_says_by_how_much_and_where(section, name, value, where, words):
    results = synthetic()
    change(results, section, name, value, **where)
    missed = "\n".join(str(target) for target in targets(results) if target.state == "MISSED")
    assert all(each in missed for each in words), missed


def test_targets_are_open_until_all_settings_are_there():
    results = synthetic()
    results["rows"] = [row for row in results["rows"] if row["N"] != 16384]
    results["memory"] = []
    states = {target.words.split(":")[0]: target.state for target in targets(results)}
    assert states["forward / cudnn, float16, N 4096 and 16384"] == "open"
    assert states["forward / flex, float16, N 1024"] == "met"
    assert states["peak memory linear in N, least per token / per token, within 1.1x"] == "open"
    assert "(4 of 8 settings measured)" in report(results)


def test_a_peer_that_does_not_run_is_a_dash_with_its_reason():
    results = synthetic()
    for row in results["gqa"]:
        row["efficient"], row["reasons"] = None, {"efficient": "num_heads must be equal"}
    change(results, "memory", "math", None, N=131072)
    text = report(results)
    assert "gqa, efficient: num_heads must be equal (12 settings, first D 128, N 1024, causal, float16" in text
    assert "-     -" in text and "MISSED" not in text
    for row in results["gqa"]:
        row["fa2"] = None
    assert "gqa forward / fa2, float16, every N: each at least 1 (6 of 6 settings measured)" in report(results)


def test_the_recorded_run_is_readable():
    text = report(load("gpu_attention_h200"))
    assert text.startswith("recorded 20") and "Targets\n" in text
    assert len(ratios(chosen(load("gpu_attention_h200")["rows"], dtype="float16", N=4096), "forward", "cudnn")) == 4


# going on, putting together, refusing


def arguments(tmp_path, *more):
    return gpu_attention.arguments().parse_args(["--out", str(tmp_path / "out.json"), *more])


def test_runs_are_put_together_only_if_all_provenance_agrees(tmp_path):
    args = arguments(tmp_path, "--parts", "speed", "memory", "--dtype", "float16", "--lengths", "512", "1024")
    results = gpu_attention.start(args.out, HERE, False)
    assert len(list(gpu_attention.todo(results, args))) == 8 + 8
    results["rows"] = [row for row in synthetic()["rows"] if row["N"] == 512]
    gpu_attention.save(results, args.out)
    again = gpu_attention.start(args.out, HERE, False)
    left = [setting for part, setting in gpu_attention.todo(again, args) if part == "speed"]
    assert [s.N for s in left] == [1024] * 4, "what is there is not measured again"
    other = HERE | {"commit": "def", "cuda": "13"}
    with pytest.raises(ValueError, match=r"commit 'def', got 'abc', cuda '13', got None.*--new to start anew"):
        gpu_attention.start(args.out, other, False)
    assert gpu_attention.start(args.out, other, True)["rows"] == []
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "expected a CUDA GPU to measure on, found none"),
        (["--table", "nowhere.json"], "expected a recorded run, found no file nowhere.json"),
        (["--parts", "sped"], "invalid choice: 'sped'"),
        (["--dtype", "float32"], "invalid choice: 'float32'"),
        (["--lengths", "0"], "expected lengths of at least 1, got 0"),
        (["--without", "flashlearn"], "invalid choice: 'flashlearn'"),
    ],
)
def test_errors_are_clear_and_end_with_2(given, words, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as end:
        gpu_attention.main(given)
    assert end.value.code == 2 and words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "given", "words"),
    [
        (gpu_ladder, [], "expected a CUDA GPU to measure on, found none"),
        (gpu_ladder, ["--table", "nowhere.json"], "expected a recorded run, found no file nowhere.json"),
        (laptop, ["--table", "nowhere.json"], "expected a recorded run, found no file nowhere.json"),
        (gpu_masks, ["--table", ATTENTION], "expected rows with 'mask' in "),
        (gpu_lesson, ["--table", ATTENTION], "expected rows with 'kernel' in "),
        (gpu_ring, ["--table", ATTENTION], "expected rows with 'P' in "),
        (gpu_profile, [], "found no `ncu`: it comes with Nsight Compute"),
        (redraw, ["--bogus"], "unrecognized arguments: --bogus"),
        (redraw, ["bogus"], "expected pictures of row, 16 logits, "),
    ],
)
def test_errors_of_the_other_scripts(script, given, words, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu_profile.shutil, "which", lambda command: None)
    with pytest.raises(SystemExit) as end:
        script.main(given)
    assert end.value.code == 2 and words in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("script", (gpu_attention, gpu_ladder))
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "got no JSON: Expecting property name"),
        (b"\xff\xfe", "got no JSON"),
        (b"[1]", "expected a recorded run with provenance, "),
        (b'{"provenance": {}}', "expected a recorded run with "),
    ],
)
def test_a_broken_record_is_told_in_one_line(script, content, words, tmp_path, capsys):
    (tmp_path / "broken.json").write_bytes(content)
    with pytest.raises(SystemExit) as end:
        script.main(["--table", str(tmp_path / "broken.json")])
    assert end.value.code == 2 and words in capsys.readouterr().err.splitlines()[-1]


def test_fa4_is_timed_where_it_is_installed(monkeypatch):
    """In the part speed alone; with heads and tokens swapped, as it wants them, and back."""
    pytest.importorskip("triton", reason="Triton is not installed here")
    assert "fa4" not in backends.installed(), "it is not installed here"
    seen = []

    def flash_attn_func(q, k, v, causal):
        seen.append(tuple(q.shape))
        return torch.nn.functional.scaled_dot_product_attention(
            *(t.transpose(1, 2) for t in (q, k, v)), is_causal=causal
        ).transpose(1, 2), None

    cute = types.ModuleType("flash_attn.cute")
    cute.flash_attn_func = flash_attn_func
    package = types.ModuleType("flash_attn")
    package.__path__, package.cute = [], cute
    for name, module in {"flash_attn": package, "flash_attn.cute": cute}.items():
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    assert backends.installed() == list(backends.NAMES)
    names = ["fa4", "math"]
    monkeypatch.setattr(measure, "median_ms", lambda call: (call(), 0.5)[1])
    setting = TINY._replace(H_q=4, H_kv=4)
    row = gpu_attention.row_of("speed", setting, {}, names, False, "cpu")
    assert row["fa4"]["forward"] and row["fa4"]["backward"] and set(seen) == {(1, 64, 4, 64)}
    assert "fa4" not in gpu_attention.row_of("gqa", setting, {}, names, False, "cpu")


def test_the_table_of_a_recorded_run(tmp_path, capsys):
    (tmp_path / "x.json").write_text(json.dumps(synthetic()), encoding="utf-8")
    assert gpu_attention.main(["--table", str(tmp_path / "x.json")]) == 0
    assert capsys.readouterr().out == report(synthetic()) + "\n"


def test_ours_in_order_is_ours_where_algorithms_are_deterministic():
    before = torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ZeroDivisionError), backends.context(backends.DETERMINISTIC):
        assert torch.are_deterministic_algorithms_enabled()
        1 / 0  # noqa: B018
    assert torch.are_deterministic_algorithms_enabled() == before
    assert backends.DETERMINISTIC not in backends.installed(), "no peer"


def test_every_gpu_has_a_file_of_its_own():
    names = {"NVIDIA H100 80GB HBM3": "gpu_attention_h100.json", "NVIDIA H200": gpu_attention.RESULTS.name}
    assert {gpu: gpu_attention.file_of("attention", gpu).name for gpu in names} == names


# measuring, in miniature


@pytest.fixture
def miniature(monkeypatch):
    """Everything runs, on the CPU, flex uncompiled; only the clock and the count of bytes are stubs."""
    pytest.importorskip("triton")
    if not compile_nothing():
        pytest.skip("kernels are compiled here: the miniature runs ours on the CPU")
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(measure, "median_ms", lambda call: (call(), 0.5)[1])
    monkeypatch.setattr(measure, "sustained_ms", lambda call: (call(), 1.0)[1])
    monkeypatch.setattr(measure, "_graph_ms", lambda *given: 0.25)
    monkeypatch.setattr(measure, "_host_ms", lambda *given: 0.125)
    monkeypatch.setattr(measure, "peak_bytes", lambda call: sum(t.nbytes for t in call()))
    monkeypatch.setattr(measure, "first_call", lambda name: {"reason": "not measured here"})
    monkeypatch.setattr(measure, "TOKENS", 64)
    monkeypatch.setattr(measure, "HIDDEN", 128)
    lone = {"gqa_settings": TINY._replace(H_kv=1), "decoding_settings": TINY._replace(N_q=1, causal=False)}
    lone["dims_settings"] = TINY._replace(D=24)
    lone["order_settings"] = TINY
    lone["sustained_settings"] = TINY
    for name, setting in lone.items():
        monkeypatch.setattr(measure, name, lambda dtypes, s=setting: [s._replace(dtype=each) for each in dtypes])
    monkeypatch.setattr(measure, "memory_settings", lambda: [TINY, TINY._replace(N=128, N_q=128)])


@pytest.mark.slow  # twelve seconds; its parts are tested below
def test_the_whole_flow(miniature, tmp_path):
    args = arguments(tmp_path, "--lengths", "64", "--graphs")
    results = gpu_attention.start(args.out, HERE, False)
    assert gpu_attention.run(results, args, device="cpu") == 0
    assert json.loads(args.out.read_text(encoding="utf-8")) == results, "saved as measured"
    sections = ("rows", "sustained", "memory", "gqa", "dims", "order", "decoding")
    assert [len(results[key]) for key in sections] == [8, 2, 2, 2, 2, 2, 2]
    row = results["rows"][0]
    rate = 4 * 1 * 64 * 64 * 128 / 0.5e-3 / 1e12
    for name in ("flashlearn", "fa2", "math"):
        assert row[name]["forward"] == pytest.approx(rate, rel=1e-4)
        assert row[name]["backward"] == pytest.approx(2.5 * rate, rel=1e-4)
        assert row[name]["graph"] == pytest.approx(2 * rate, rel=1e-4)
    assert row["cudnn"] is None and row["reasons"]["cudnn"], "there is no cuDNN on a CPU"
    sustained = results["sustained"][0]
    rate = 0.5 * 4 * 2 * 64 * 64 * 64 / 1e-3 / 1e12
    assert sustained["flashlearn"] == {
        "forward": pytest.approx(rate, rel=1e-4),
        "backward": pytest.approx(2.5 * rate, rel=1e-4),
    }
    assert "fa2" not in sustained and sustained["cudnn"] is None
    assert "backward on CPU" in row["reasons"]["flex"] and results["decoding"][0]["flex"]["us"] == 500
    decoding = results["decoding"][0]["flashlearn"]
    assert decoding["us"] == 500 and decoding["graph us"] == 250 and "graph us" not in results["decoding"][0]["math"]
    assert decoding["host us"] == 125 and [row["passes"] for row in results["decoding"]] == [5, 5]
    assert decoding["GB/s"] == pytest.approx(2 * 2 * 2 * 64 * 64 / 0.5e-3 / 1e9, rel=1e-4)
    assert [row["flashlearn"] == row["results"] for row in results["memory"]] == [True, True]
    assert results["first_call"] == {key: {"reason": "not measured here"} for key in ("flashlearn", "flex")}
    assert "Not measured (-)" in report(results)


def test_short_calls_are_measured_in_turn(miniature, monkeypatch):
    """A slow second of the host is not held against the backend that happened to be measured in it."""
    times, measured = itertools.cycle((0.5, 0.9, 0.4, 0.6)), []
    monkeypatch.setattr(measure, "_timed", lambda name, kind, call: (measured.append((name, kind)), next(times))[1])
    row = measure.side_by_side(TINY, ("fa2", "math"), device="cpu")
    kinds = ("forward", "backward")
    turn, other = ([(name, kind) for name in names for kind in kinds] for names in (("fa2", "math"), ("math", "fa2")))
    assert measured == turn + other + turn
    assert row["fa2"] == {"forward": 0.4, "backward": 0.6} and row["math"] == {"forward": 0.4, "backward": 0.6}


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8])
def test_over_the_rounds_every_backend_follows_every_other_equally_often(n):
    """Whoever is measured after a kernel that draws much power runs at a lower clock."""
    rounds_of = [measure.sequence(range(n), turn) for turn in range(n if n % 2 == 0 else 2 * n)]
    assert all(sorted(order) == list(range(n)) for order in rounds_of)
    pairs = Counter(pair for order in rounds_of for pair in itertools.pairwise(order))
    assert set(pairs) == set(itertools.permutations(range(n), 2)) and len(set(pairs.values())) <= 1


def test_a_record_names_the_version_of_every_peer_and_the_commit_of_every_row(miniature, monkeypatch):
    assert set(gpu_attention.provenance("abc1234")["peers"]) <= {"cuDNN", *backends.PACKAGES}
    found = {"cuDNN": "9.19.0", "numpy": np.__version__}
    monkeypatch.setattr(backends, "PACKAGES", ("no-such-package", "numpy"))
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)
    assert gpu_attention.provenance("abc1234")["peers"] == found
    results = {"provenance": {"commit": "abc1234"}}
    row = {"flashlearn": {"forward": 1.0}, "fa4": None, "in order": {"backward": 1.0}}
    assert gpu_attention.commits(row, results, ("flashlearn", "fa4", "in order")) == {
        "flashlearn": "abc1234",
        "in order": "abc1234",
    }


def test_of_short_calls_the_lowest_of_three_counts_of_longer_ones_the_middle_of_five(miniature, monkeypatch):
    """A GPU that has worked for long runs slower: one measurement of a long call would depend on what went before."""
    times = iter((0.5, 1.5, 0.7, 1.4, 0.3, 1.9, 1.2, 1.6))
    monkeypatch.setattr(measure, "_timed", lambda name, kind, call: next(times))
    assert measure.side_by_side(TINY, ("fa2",), device="cpu")["fa2"] == {"forward": 0.3, "backward": 1.5}
    assert next(times, None) is None


def test_calls_of_long_milliseconds_are_measured_once(miniature, monkeypatch):
    times = iter((21.0, 60.0))
    monkeypatch.setattr(measure, "_timed", lambda name, kind, call: next(times))
    assert measure.side_by_side(TINY, ("fa2",), device="cpu")["fa2"] == {"forward": 21.0, "backward": 60.0}


def test_decoding_is_measured_in_passes(miniature, monkeypatch, tmp_path):
    """Spread over the run; the later ones without what is not compared; the least of all counts."""
    times, seen = itertools.count(1.5, -0.1), []

    def timed(name, kind, call):
        seen.append(name)
        return next(times)

    args = arguments(
        tmp_path, "--parts", "speed", "decoding", "--dtype", "float16", "--lengths", "64", "--without", "flex"
    )
    results = gpu_attention.start(args.out, HERE, False)
    parts = [part for part, _ in gpu_attention.todo(results, args)]
    assert parts == ["decoding", *("speed", "decoding") * 4]
    args.parts = ["decoding"]
    monkeypatch.setattr(measure, "_timed", timed)
    assert gpu_attention.run(results, args, device="cpu") == 0
    passes = [seen[:3], *(seen[at : at + 2] for at in range(3, 11, 2))]
    assert [sorted(names) for names in passes] == [["fa2", "flashlearn", "math"], *[["fa2", "flashlearn"]] * 4]
    assert {names[0] for names in passes} == {"fa2", "flashlearn"}, "not always in the same order"
    (row,) = results["decoding"]
    rate = measure.cache_bytes(TINY) / 600 / 1e3
    assert row["flashlearn"] == pytest.approx({"us": 600, "graph us": 250, "host us": 125, "GB/s": rate}, rel=1e-4)
    assert [round(row[name]["us"]) for name in ("fa2", "math")] == [500, 1300]
    assert row["passes"] == 5 and not list(gpu_attention.todo(results, args))


@pytest.mark.slow
def test_a_run_that_is_cut_off_goes_on(miniature, tmp_path):
    args = arguments(tmp_path, "--parts", "gqa", "decoding", "--without", "flex", "--minutes", "1.1")
    results = gpu_attention.start(args.out, HERE, False)
    ticks = itertools.count(step=25)  # seconds; every look at the clock takes so long
    assert gpu_attention.run(results, args, device="cpu", clock=lambda: next(ticks)) == 11
    again = gpu_attention.start(args.out, HERE, False)
    assert [len(again[key]) for key in ("gqa", "decoding")] == [0, 1]
    assert gpu_attention.run(again, args, device="cpu") == 0
    assert [len(again[key]) for key in ("gqa", "decoding")] == [2, 2]


def test_what_is_wrong_is_not_timed(miniature, monkeypatch):
    right = backends.bind

    def bind(name, q, k, v, causal):
        call = right(name, q, k, v, causal)
        return call if name == "fa2" else lambda: call() * (1.1 if name == "math" else float("nan"))

    monkeypatch.setattr(measure, "bind", bind)
    row = measure.side_by_side(TINY, ("flashlearn", "fa2", "math"), device="cpu")
    assert row["flashlearn"] is None and row["math"] is None and row["fa2"]["backward"] == 0.5
    assert row["reasons"] == {
        "flashlearn": "o is wrong, relative error nan: not timed",
        "math": "o is wrong, relative error 1.0e-01: not timed",
    }


def test_a_wrong_gradient_leaves_the_forward_time(miniature, monkeypatch):
    right = backends.bind

    def bind(name, q, k, v, causal):
        return lambda: right(name, q, k.detach(), v, causal)() + 0 * k.sum()

    monkeypatch.setattr(measure, "bind", bind)
    row = measure.side_by_side(TINY, ("math",), device="cpu")
    assert row["math"] == {"forward": 0.5} and "backward: dk is wrong" in row["reasons"]["math"]
    assert measure.rates(row, ("math",))["math"]["backward"] is None


def test_memory_that_ran_out_is_not_tried_again(miniature, monkeypatch):
    def no_memory(call):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(measure, "peak_bytes", no_memory)
    row = measure.memory_row(TINY, ("math",), {}, "cpu")
    assert row["math"] is None and row["reasons"] == {"math": "out of memory"}
    monkeypatch.setattr(measure, "inputs", None)  # would fail
    assert measure.memory_row(TINY, ("math",), row["reasons"], "cpu")["reasons"] == {"math": "out of memory"}


def test_scores_too_large_to_time_are_skipped():
    large = measure.speed_settings(["float16"], (16384,))
    sizes = {s.D: 4 * s.B * s.H_q * s.N_q * s.N for s in large}
    assert sizes[64] > measure.SCORES_LIMIT > sizes[128]


def test_reasons_are_those_that_pytorch_gives():
    said = ["Memory efficient kernel not used because:", "same num_heads are needed", "Flash was runtime disabled."]
    assert (
        backends.reason(RuntimeError("No available kernel. Aborting execution."), said) == "same num_heads are needed"
    )
    assert backends.reason(RuntimeError("No available kernel."), []) == "PyTorch has no such kernel for this setting"
    assert backends.reason(torch.OutOfMemoryError("CUDA: tried to allocate"), []) == "out of memory"
    assert backends.reason(ValueError("\nfirst\nsecond"), []) == "ValueError: first"


def test_a_gpu_in_an_undefined_state_ends_the_run():
    pytest.importorskip("triton", reason="Triton is not installed here")

    def broken():
        raise torch.AcceleratorError("an illegal memory access")

    with pytest.raises(torch.AcceleratorError):
        measure._failure(broken)


def test_compiling_ahead_tells_of_failures_and_goes_on(capfd):
    backends.compile_flex(str.strip, ["", " no such kernel ", "no such kernel"], workers=1)
    assert capfd.readouterr().out == "compiling flex ahead: no such kernel\n"


@pytest.mark.slow
def test_flex_is_compiled_ahead_for_every_kind_of_setting(miniature):
    for setting in (TINY, TINY._replace(H_kv=1), TINY._replace(N_q=1, causal=False)):
        assert measure.warm_flex((setting, False), "cpu") is None
    assert "does not support backward on CPU" in measure.warm_flex((TINY, True), "cpu")
    assert measure.warm_flex((TINY._replace(H_q=3), False), "cpu"), "2 heads for 3: rejected in words"


@pytest.mark.slow  # a process of its own
@needs_triton
def test_first_call_in_this_process_and_its_failure_in_another():
    found = first_call.main("flashlearn", TINY, "cpu" if compile_nothing() else "cuda")
    assert set(found) == {"forward", "backward"} and all(seconds > 0 for seconds in found.values())
    if not torch.cuda.is_available():
        assert measure.first_call("flashlearn")["reason"].startswith("caches empty: ")


def test_a_first_call_is_the_median_of_three(monkeypatch):
    empty, filled = iter((4.0, 9.0, 1.0)), iter((0.3, 0.1, 0.2))
    once = lambda name: {"empty": {"forward": next(empty)}, "filled": {"forward": next(filled)}}  # noqa: E731
    monkeypatch.setattr(measure, "_first_call", once)
    assert measure.first_call("flashlearn") == {"empty": {"forward": 4.0}, "filled": {"forward": 0.2}}
    monkeypatch.setattr(measure, "_first_call", lambda name: {"reason": "none"})
    assert measure.first_call("flashlearn") == {"reason": "none"}


# the ladder


@pytest.fixture
def launches(monkeypatch):
    """The ladder with three small launches, the last of which does not fit."""
    ladder = pytest.importorskip("flashlearn.kernels.ladder", exc_type=ImportError)
    from triton.runtime.errors import OutOfResources

    attend = ladder.attend

    def fits(*given, launch, **options):
        if launch.num_warps == 8:
            raise OutOfResources(300, 227, "shared memory")
        return attend(*given, launch=launch, **options)

    found = [ladder.Launch(16, 16), ladder.Launch(32, 16), ladder.Launch(64, 16, 8)]
    monkeypatch.setattr(ladder, "attend", fits)
    monkeypatch.setattr(ladder, "CANDIDATES", found)
    device = "cpu" if compile_nothing() else "cuda"
    monkeypatch.setattr(gpu_ladder, "inputs", lambda D, N: torch.randn(4, 1, 1, N, D, device=device).unbind())
    return found


def test_block_sizes_take_turns(launches, monkeypatch):
    """Of each the lowest of three rounds; where one does not fit, the compiler's words."""
    times, timed = iter((9, 8, 4, 3, 6, 5)), []
    monkeypatch.setattr(gpu_ladder, "median_ms", lambda call: (timed.append(call.keywords["launch"]), next(times))[1])
    *rates, words = (each["forward"] for each in gpu_ladder.sweep_row(16, 64)["candidates"])
    assert timed == 3 * launches[:2]
    assert rates == [round(gpu_ladder.flops(64, causal=True) / ms / 1e9, 1) for ms in (4, 3)]
    assert words.startswith("OutOfResources: ")


def test_block_sizes_are_checked_before_they_are_timed(launches, monkeypatch):
    monkeypatch.setattr("flashlearn.kernels.ladder.attend", lambda version, q, k, v, **options: (q, None))
    monkeypatch.setattr(gpu_ladder, "median_ms", lambda call: pytest.fail("a wrong result was timed"))
    with pytest.raises(AssertionError, match="block_m=16.* is wrong, relative error"):
        gpu_ladder.sweep_row(16, 64)


@needs_triton
def test_a_first_call_that_compiles_does_not_pass_for_a_slow_one(monkeypatch):
    calls = []
    monkeypatch.setattr(measure, "event_ms", lambda call: (call(), 500.0 if len(calls) == 1 else 0.5)[1])
    monkeypatch.setattr("triton.testing.do_bench", lambda call, **options: 0.4)
    assert measure.median_ms(lambda: calls.append("called")) == 0.4


@pytest.mark.parametrize("once, measured", ((1.5, 14), (3.2, 5), (9.5, 3), (19.0, 3)))
def test_long_calls_are_over_before_the_gpu_lowers_its_clock(once, measured, monkeypatch):
    """Two calls before those that count, and 25 ms in all; three at least."""
    calls = []
    monkeypatch.setattr(measure, "event_ms", lambda call: (call(), once)[1])
    monkeypatch.setattr(measure, "flushed_ms", lambda call, calls: calls)
    assert measure.median_ms(lambda: calls.append("called")) == measured and len(calls) == 2
    assert measured == 3 or (measured + 2) * once <= 25 < (measured + 3) * once


@pytest.mark.parametrize("once", (0.3, 3.0, 40.0))
def test_sustained_calls_follow_150_ms_of_work(once, monkeypatch):
    calls = []
    monkeypatch.setattr(measure, "event_ms", lambda call: (call(), once)[1])
    monkeypatch.setattr(measure, "flushed_ms", lambda call, count: (len(calls), count))
    before, counted = measure.sustained_ms(lambda: calls.append("called"))
    assert before * once >= 150 and counted == 12


def test_the_recorded_ladder_is_a_table():
    lines = gpu_ladder.table(load("gpu_ladder")).splitlines()
    assert {"standard", "op", "two", "D"} <= {line.split()[0] for line in lines}


# under the profiler


def as_text(lines) -> str:
    return "\n".join(["==PROF== Connected", *(",".join(f'"{cell}"' for cell in line) for line in lines)])


def test_the_profilers_table_is_read():
    header = ["ID", "Kernel Name", *gpu_profile.COUNTERS.values(), *gpu_profile.STALLED.values()]
    lines = [header, ["", "", "ns", *["%"] * (len(header) - 3)]]
    lines += [[number, name, "2,500,000.00", *["1,234"] * (len(header) - 3)] for number, name in enumerate("ab")]
    first, second = gpu_profile.counted(as_text(lines))
    assert (first["kernel"], second["kernel"], first["ms"], first["clock, GHz"]) == ("a", "b", 2.5, 1234e-9)
    assert {first[words] for words in gpu_profile.COUNTERS if words not in ("ms", "clock, GHz")} == {1234.0}
    assert set(first["warps"]) == set(gpu_profile.CAUSES), "for one that is issued, 12.34 in a cycle"
    assert set(first["warps"].values()) == {1234.0 * 12.34}
    assert gpu_profile.to_digits({"ms": 1.23456, "n": 2, "warps": {"wait": 0.00001}}) == {
        "ms": 1.2346, "n": 2, "warps": {"wait": 0.0},
    }  # fmt: skip


def test_a_profile_without_kernels_is_rejected(monkeypatch, tmp_path):
    found = gpu_profile.subprocess.CompletedProcess((), 0, "==ERROR== no counters for you", "")
    monkeypatch.setattr(gpu_profile.subprocess, "run", lambda *given, **options: found)
    with pytest.raises(RuntimeError, match="expected the counters of cudnn's kernels, got none; .*\n.*for you"):
        gpu_profile.profile("cudnn", 0, tmp_path)


# One warp loads (0 to 3). The others take tile after tile (4 to 14), each in a loop with products, in which a wait's code lies
# elsewhere (16), and a store of the tile in a loop without. 17 is only reached by an indirect jump.
LISTING = """
@P0 BRA 0x40 | UTMALDG.4D [UR8], [UR4] | @!P1 BRA 0x10 | BRX R2 -0x20
MOV R1, R2 | SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], RZ | @!P0 BRA 0x100 | HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24, gsb0
WARPGROUP.DEPBAR.LE gsb0, 0x0 | @P3 MUFU.EX2 R1, R2 | BRA.DIV UR4, 0xb0 | @P1 BRA 0x50
STS.128 [R0], R1 | @P2 BRA 0xc0 | @P4 BRA 0x40 | EXIT
BRA 0x50 | FADD R1, R2, R3 | EXIT
"""


def listing(samples) -> list:
    words = [each.strip() for line in LISTING.strip().splitlines() for each in line.split("|")]
    header = ["Address", "Source", "# Samples"]
    lines = [[hex(16 * i), each, n] for i, (each, n) in enumerate(zip(words, samples, strict=True))]
    page = as_text([["Kernel Name", "none", ""], header, ["Kernel Name", "ours", ""], header, *lines])
    empty, ours = rounds.listings(page)
    assert not empty
    return ours


def test_a_round_is_an_innermost_loop_with_products():
    kernel = listing(range(19))
    assert rounds.rounds(kernel) == [{5, 6, 7, 8, 9, 10, 11, 16}]
    assert sorted(map(sorted, rounds._loops(kernel))) == [
        [1, 2],
        [*range(4, 15), 16],
        [5, 6, 7, 8, 9, 10, 11, 16],
        [12, 13],
    ]
    found = rounds.stands(kernel)
    assert found.pop("of all samples") == 72 / 171
    assert {kind: round(72 * part) for kind, part in found.items() if part} == {
        "waiting at barriers": 5 + 6 + 10 + 11 + 16, "issuing products": 7, "waiting for products": 8, "exponentials": 9,
    }  # fmt: skip


def test_the_record_knows_every_kind_of_instruction():
    for row in load("gpu_profile")["rows"]:
        assert [*row["round"]] == [*rounds.KINDS, rounds.REST, "of all samples"] and [*row["warps"]] == [
            *gpu_profile.CAUSES
        ]
        assert {*gpu_profile.COUNTERS} < {*row}
    settings = [{key: row[key] for key in gpu_profile.SETTINGS[0]} for row in load("gpu_profile")["rows"][::3]]
    assert settings == gpu_profile.SETTINGS


def test_a_kernel_without_products_has_no_rounds():
    kernel = [each._replace(words=each.words.replace("HGMMA", "HMMA")) for each in listing(range(19))]
    with pytest.raises(
        ValueError, match="expected samples in loops with products .HGMMA., got none in 19 instructions"
    ):
        rounds.stands(kernel)
    with pytest.raises(ValueError, match="got none in 19 instructions"):
        rounds.stands(listing([0] * 19))


# on a laptop


@pytest.mark.parametrize("stored", [slow("2"), slow("3")])
def test_one_notebook_is_timed_and_its_failure_told(tmp_path, capsys, stored):
    notebook = tmp_path / "01_naive_softmax.ipynb"
    result = nbformat.v4.new_output("execute_result", {"text/plain": stored}, execution_count=1)
    cell = nbformat.v4.new_code_cell("1 + 1", outputs=[result], execution_count=1)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), notebook)
    out = tmp_path / "laptop.json"
    right = stored == "2"
    assert laptop.main([str(notebook), "--parts", "notebooks", "--out", str(out)]) == (0 if right else 1)
    results = json.loads(out.read_text(encoding="utf-8"))
    (row,) = results["notebooks"]
    assert row["notebook"] == "01_naive_softmax" and row["passed"] is right and row["seconds"] > 0
    said = "all bounds met" if right else "MISSED  01_naive_softmax failed"
    assert results["provenance"]["machine"] and said in capsys.readouterr().out
    assert laptop.main(["--table", str(out)]) == 0


@pytest.mark.slow
def test_a_picture_is_timed():
    (row,) = laptop.redraw_rows(["launch grid"])
    assert row["steps"] == 7 and 0 < row["median_ms"] <= row["slowest_ms"] and row["bound_ms"] == 100


def test_bounds_of_a_laptop_are_told():
    results = {
        "provenance": HERE,
        "notebooks": [
            {"notebook": "01", "seconds": 250.0, "passed": True},
            {"notebook": "02", "seconds": 5.0, "passed": False},
        ],
        "redraw": [{"picture": "row", "steps": 3, "median_ms": 90.0, "slowest_ms": 120.0, "bound_ms": 100}],
    }
    assert laptop.bounds_missed(results) == ["02 failed", "all notebooks: 15 s above 240", "row: 20 ms above the bound"]
    assert "MISSED  02 failed" in laptop.table(results)


def test_a_notebook_that_is_not_there(capsys):
    with pytest.raises(SystemExit) as end:
        laptop.main(["nowhere.ipynb"])
    assert end.value.code == 2 and "found no file nowhere.ipynb" in capsys.readouterr().err
