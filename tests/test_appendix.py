"""The appendix of notebook 14 and the last part of the engineering log: tables and numbers are those of the records."""

import importlib.util
import re
from functools import partial
from statistics import median
from typing import ClassVar

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here", allow_module_level=True)

from flashlearn.kernels import INTERPRETED  # noqa: F401  # isort: skip (first: it chooses the backend)

from flashlearn.cost import H200_SXM
from flashlearn.fast.hopper.tile_scheduler import LAGS, LONG, heads_of_shared_keys
from flashlearn.kernels.forward import forward_launch
from flashlearn.kernels.ladder import TUNED
from flashlearn.measurements import chosen, load, tables
from flashlearn.measurements.records import geometric_mean, ratios
from flashlearn.measurements.story import CHANGES, candidates, gain, third_stage
from tests.balance import last_over_mean
from tests.test_notebooks import NOTEBOOKS, markdown, read, typed_in_prose
from tests.test_recorded import deterministic, span, spread
from tools import appendix


class Read(str):
    """A text that notes what was looked up in it and found."""

    found: ClassVar[set[str]] = set()

    def __contains__(self, words: object) -> bool:
        there = super().__contains__(words)
        if there:
            Read.found.add(" ".join(str(words).split()))
        return there


LOG = appendix.LOG.read_text(encoding="utf-8")
APPENDIX = appendix.APPENDIX.read_text(encoding="utf-8")
MEASURED = APPENDIX + LOG.partition("\n## Measurements\n")[2]
TEXT = Read(APPENDIX + LOG)
WORDS = Read(" ".join(TEXT.split()))
BESIDE, LADDER, PROFILE = (load(name) for name in ("gpu_attention_h200", "gpu_ladder", "gpu_profile"))


def gains(version, D=(64, 128)):
    """Of one change, at both lengths, under the mask under which it is compared."""
    rows = chosen(
        LADDER["forward"], D=D if isinstance(D, tuple) else (D,), N=(4096, 16384), causal=CHANGES[version].causal
    )
    return [gain(row, version) for row in rows]


def percent(values):
    return f"{100 * (min(values) - 1):.0f} to {100 * (max(values) - 1):.0f} %"


def test_its_tables_are_those_of_the_records():
    assert appendix.main(["--check"]) == 0, "run `python tools/appendix.py`"
    assert set(re.findall(r"<!-- table: (\w+)", TEXT)) == set(appendix.TABLES)


def test_it_is_short():
    assert len(APPENDIX.split()) <= 1500


def test_the_story_of_the_notebook_is_short():
    (path,) = (path for path in NOTEBOOKS if path.stem.startswith("14"))
    text = (re.sub(r"```.*?```", "", cell.source, flags=re.S) for cell in markdown(read(path)))
    assert sum(len(words.split()) for words in text) <= 2000


def test_a_stale_table_is_noticed_and_made_anew(tmp_path):
    path = tmp_path / "a.md"
    path.write_text("Before\n\n<!-- table: passes -->\n```text\nold\n```\n\nAfter\n", encoding="utf-8")
    assert appendix.main(["--check"], [path]) == 1 and "old" in path.read_text(encoding="utf-8")
    assert appendix.main([], [path]) == 0 and appendix.main(["--check"], [path]) == 0
    assert "old" not in path.read_text(encoding="utf-8") and path.read_text(encoding="utf-8").endswith("```\n\nAfter\n")


def test_short_sequences_beside_flash_attention_4():
    said = []
    for gpu in ("h200", "h100"):
        rows = chosen(load(f"gpu_attention_{gpu}")["rows"], N=(512, 1024, 2048), dtype="float16")
        for way in ("forward", "backward"):
            said.append(span(row["flashlearn"][way] / row["fa4"][way] for row in rows if row.get("fa4", {}).get(way)))
    assert f"{said[0]} of FlashAttention-4 forward and {said[1]} backward (float16, N 512 to 2048)" in WORDS
    assert f"on an H100 {said[2]} and {said[3]}." in WORDS
    h200, h100 = (chosen(load(f"gpu_attention_{gpu}")["rows"], D=64, N=(512, 1024, 2048)) for gpu in ("h200", "h100"))
    of_cudnn = [
        span(ratios(rows, "forward", "cudnn")) for rows in (chosen(h200, dtype="float16"), chosen(h100, causal=True))
    ]
    assert f"it is {of_cudnn[0]} of cuDNN; on an H100, causal, float16 and bfloat16, {of_cudnn[1]}." in WORDS


def test_what_is_said_of_the_deterministic_pass():
    trials, words = load("gpu_trials_h200")["trials"], WORDS
    assert f"{LAGS['none']} without a mask; causal {LAGS['causal']:.0f}, and {LAGS['long causal']:.0f} where" in words
    assert f"heads have {LONG} keys or more" in words
    three = trials["backward, in order, three warps that add in turn, D = 64 and 128"]["rows"]
    means = [geometric_mean(row["ratio"] for row in chosen(three, D=D)) for D in (64, 128)]
    assert means[0] < 1 < means[1], "a little less at 64 and a little more at 128"
    called = [span(deterministic(gpu, D=D)) for gpu in ("h200", "h100") for D in ((64, 128), (192, 256))]
    assert f"it reaches {called[0]} up to D = 128, and {called[1]} at D 192 and 256, N = 4096" in words
    assert f"On an H100, float16, it is {called[2]} and {called[3]}." in words
    assert {row["N"] for row in BESIDE["order"]} == {512, 1024, 4096, 16384}


def test_with_spans_lags_count_the_rounds_that_see_a_key_in_the_mean():
    """Of those tried 1, if all of a window count, and 2, of documents, which are seen by half as many in the mean: in the geometric
    mean of the settings at 0.98 or more of the fastest."""
    assert LAGS["ranges"] == 1
    rows, wide = load("gpu_trials_h200")["in order, lags with spans"]["rows"], []
    for mask, lag in (("window", "1"), ("documents", "2")):
        some = chosen(rows, mask=mask)
        means = {
            each: geometric_mean(row[each] for row in some) for each in ("as if all were seen", "1", "2", "4", "8")
        }
        assert means[lag] >= 0.98 * max(means.values()), (mask, means)
        gain = means[lag] / means["as if all were seen"]
        assert f"{gain:.2f}" == {"window": "1.00", "documents": "1.05"}[mask]
        wide += [row[lag] for row in some if row["D"] > 128]
    assert span(wide) == "0.73 to 0.94"
    assert "1.05 times as fast with documents in the mean, and as fast with a window" in WORDS
    assert "alone reaches 0.73 to 0.94 of its nondeterministic speed there" in WORDS


def test_the_lags_are_near_the_fastest_of_those_tried():
    """In the geometric mean of the lengths, for every mask, at 0.98 or more of the fastest of the seven."""
    rows = load("gpu_trials_h200")["in order, lags"]["rows"]
    for mask, lag in LAGS.items() - {("ranges", LAGS["ranges"])}:
        some = chosen(rows, causal=mask != "none")
        if mask != "none":
            some = [row for row in some if (row["N"] >= LONG) == (mask == "long causal")]
        tried = {each: [nearest(row, each) for row in some] for each in (0.5, 1, 1.5, 2, 3, 4.5, 6)}
        means = {each: geometric_mean(ratios) for each, ratios in tried.items()}
        assert means[lag] >= 0.98 * max(means.values()), (mask, means)


def nearest(row: dict, lag: float) -> float:
    """The ratio of a lag; lags that come to as many rows were measured once, under the least of them."""
    return row[max((key for key in row if key[0].isdigit() and float(key) <= lag), key=float)]


def test_what_is_said_of_the_order_of_registers():
    found = [
        row["ratio"]
        for row in load("gpu_trials_h200")["trials"]["backward, dQ summed in the order of registers"]["rows"]
    ]
    assert (min(found), round(max(found), 2)) == (1.023, 1.10)
    assert "made the pass 1.02 to 1.10 times as fast (H200, N 512 to 16384)" in WORDS


def test_what_is_said_of_the_clock():
    """Nothing for 25 ms; less after 70 and no less later; what the card may and does."""
    found = load("gpu_trials_h200")["clock"]
    over = {}
    for row in found["rows"]:
        early, late = (
            [rate for ms, rate in zip(row["ms"], row["rates"], strict=True) if low < ms < high]
            for low, high in ((1, 25), (70, 100))
        )
        assert min(early) > 0.99 * max(early) and max(late) < 0.94 * min(early) and min(late) > 0.97 * max(late)
        over[row["N"], row["dtype"], row["backend"]] = median(early), median(late)
    pairs = (over[16384, "bfloat16", name] for name in ("flashlearn", "fa4"))
    before, after = (f"{ours / theirs:.2f}" for ours, theirs in zip(*pairs, strict=True))
    assert f"In that trial it is {before} before the steps and {after} after them, and on an H200" in TEXT
    clocks = [row["MHz"] for row in found["rows at work"]]
    assert (
        f"at {min(clocks)} to {max(clocks)} MHz of the 1980" in TEXT and "1980 MHz, its limit 700 W" in found["at work"]
    )
    assert (
        700 <= min(row["W"] for row in found["rows at work"]) and max(row["W"] for row in found["rows at work"]) < 780
    )
    rows = chosen(BESIDE["rows"], D=128, N=16384, causal=False, dtype="bfloat16")
    again = f"{rows[0]['flashlearn']['forward'] / rows[0]['fa4']['forward']:.2f}"
    assert again == "0.99" and f"after them, and on an H200, measured again, {again}." in TEXT
    assert "ours then stood at 0.92 of FlashAttention-4" in TEXT, "as it was recorded before"


def test_what_is_said_of_the_first_call_on_an_h100():
    empty = load("gpu_attention_h100")["first_call"]["flashlearn"]["empty"]
    assert (f"{empty['forward']:.2f}", f"{empty['backward']:.2f}") == ("2.38", "2.28")
    assert "took 2.38 s and 2.28 s with empty caches" in TEXT
    hosts = load("gpu_trials_h200")["first_call"]["rows of hosts"]
    ways = ([row[way] for row in hosts] for way in ("forward", "backward"))
    forward, backward = (f"{min(found):.2f} to {max(found):.2f} s" for found in ways)
    assert (len(hosts), forward, backward) == (4, "2.43 to 3.29 s", "2.13 to 2.76 s")
    assert f"Four runs on two others took {forward} forward and {backward} backward." in TEXT
    calls = load("gpu_trials_h200")["first_call"]
    empty, filled = (
        [calls[name][caches]["forward"] for name in ("before", "flashlearn")] for caches in ("empty", "filled")
    )
    assert (
        f"from {empty[0]:.1f} to {empty[1]:.1f} s with empty caches and from {filled[0]:.2f} to {filled[1]:.2f} s"
        in TEXT
    )


def causal_programs(D: int, N: int, shared: int, together: int = 1) -> list[float]:
    """Rounds of the programs of 128 keys of 16384 tokens of hidden size 2048, and two to begin and to end; `together` rows at once."""
    queries = 64 if D == 128 else 128  # of a round
    row = [shared * (N - first) / queries + 2 for first in range(0, N, 128)]
    rows = 16384 // N * 2048 // D // shared
    assert rows % together == 0
    return [each for each in row for _ in range(together)] * (rows // together)


def test_what_is_said_of_grouped_heads_backward():
    told, gains, text = {}, {}, WORDS
    for N, shared in ((1024, 4), (4096, 4), (1024, 8), (4096, 8)):
        rows = 16384 // N * 16 // shared
        together = heads_of_shared_keys(rows, N // 128, H200_SXM.sms)
        orders = (
            causal_programs(128, N, shared),
            causal_programs(128, N, 1),
            causal_programs(128, N, shared, together),
        )
        over = [last_over_mean(programs, H200_SXM.sms) for programs in orders]
        told[N, shared] = [together, *(f"{each:.2f}" for each in over)]
        gains[N, shared] = f"{over[0] / over[2]:.2f}"
    assert told[1024, 4] == [16, "1.28", "1.07", "1.03"] and told[4096, 4] == [4, "1.28", "1.07", "1.00"]
    assert list(gains.values()) == ["1.24", "1.28", "1.54", "1.59"]
    trials = load("gpu_trials_h200")["trials"]
    kept, twice = (
        trials[f"backward, {name}"]["rows"]
        for name in ("rows of shared keys side by side", "the same, twice as many rows")
    )
    ours = {(row["N"], row["group"]): f"{row['ratio']:.2f}" for row in chosen(kept, D=128, dtype="float16")}
    assert [ours[each] for each in gains] == ["1.05", "1.16", "1.15", "1.24"] and len(kept) == 22
    both = {setting: ratio for setting, ratio in by_setting(kept).items() if setting in by_setting(twice)}
    assert len(both) == len(twice) and all(by_setting(twice)[setting] < ratio for setting, ratio in both.items())
    assert max(row["N"] for row in twice) == 2048
    assert spread({"rows": twice}) == "1.01 to 1.15"
    for words in (
        "1.28 times as long as an even share would, at N = 1024 and at 4096, and with a key head for every query head 1.07 times",
        "sixteen at N = 1024 and four at 4096",
        "1.03 and 1.00 times an even share, so 1.24 and 1.28 times as fast. Measured, alternating: 1.05 and 1.16, with eight",
        "1.15 and 1.24, where the model says 1.54 and 1.59.",
        "| the same with twice as many heads | 1.01 to 1.15 up to N = 2048, less in each setting |",
    ):
        assert words in text, words

    def beside(D: int, N: int, way: str = "backward") -> list[str]:
        """The rate with shared key heads over that with a key head each, in float16 and in bfloat16."""
        parts = (chosen(BESIDE[part], D=D, N=N, causal=True) for part in ("gqa", "rows"))
        return [f"{a['flashlearn'][way] / b['flashlearn'][way]:.2f}" for a, b in zip(*parts, strict=True)]

    assert (beside(128, 1024), beside(128, 4096)) == (["1.00", "1.00"], ["1.01", "1.01"])
    assert (beside(64, 1024), beside(64, 4096)) == (["1.15", "1.17"], ["1.06", "1.08"])
    assert "it is 1.15 and 1.17 at N = 1024 and 1.06 and 1.08 at 4096 (float16 and bfloat16)" in text
    assert (beside(128, 16384), beside(64, 16384)) == (["0.98", "0.98"], ["0.99", "0.99"])
    assert "At N = 16384 it is 0.98 and 0.99 for the two D." in text
    (once,) = chosen(kept, D=128, N=4096, group=4)
    (own,) = chosen(BESIDE["rows"], D=128, N=4096, causal=True, dtype="float16")
    assert (
        f"it was {once['before'] / own['flashlearn']['backward']:.2f} of the rate" in text and "it was 0.89 of" in text
    )
    before = [row["before"] for row in chosen(kept, D=64, N=1024)]
    without = chosen(BESIDE["rows"], D=64, N=1024, causal=True)[0]["flashlearn"]["backward"]
    assert len(before) == 2 and round(min(before)) == 340 and 1.09 < min(before) / without < 1.11
    assert "the one before reached 340 TFLOP/s there, a tenth more than without sharing." in text
    forward = [float(over) for D in (64, 128) for N in (1024, 4096, 16384) for over in beside(D, N, "forward")]
    assert min(forward) > 0.99, "forward it costs nothing"


def by_setting(rows: list[dict]) -> dict[tuple, float]:
    """The ratios of a trial by all that its rows say of their settings."""
    return {
        tuple(value for name, value in row.items() if name not in ("before", "ratio")): row["ratio"] for row in rows
    }


def test_what_is_said_of_every_change():
    assert f"| exp2 | 3 to 4 % | {percent(gains('exp2'))} |" in TEXT
    assert (round(min(gains("skip")), 2), round(max(gains("skip")), 2)) == (1.76, 1.88)
    assert "| skip | 1.94 at N = 4096 | 1.76 to 1.88 |" in TEXT
    assert f"| split | 6 to 9 % | {percent(gains('split'))} |" in TEXT
    assert f"| blocks | 2 to 3 %, for fewer rescalings | {percent(gains('blocks'))} |" in TEXT
    less, more = min(gains("descriptors")), max(gains("descriptors"))
    assert f"between {100 * (1 - less):.0f} % less and {100 * (more - 1):.0f} % more" in TEXT
    assert "| op: warp specialisation | a factor of 1.8 to 2 |" in TEXT, "the prediction"
    assert all(1.35 < each < 1.45 for each in gains("op", 128)), "about two fifths"
    assert all(1.18 < each < 1.26 for each in gains("op", 64)), "a fifth to a quarter"
    assert all(row["op"] / row["two sweeps"] > 7 / 5 for row in chosen(LADDER["backward"], causal=False))
    (row,) = chosen(LADDER["forward"], D=128, N=16384, causal=False)
    same = [row[name] for name in ("exp2", "skip", "split")]
    assert f"up to {100 * (max(same) / min(same) - 1):.0f} % apart" in TEXT


def test_what_is_said_of_launches():
    rates = candidates(LADDER, 128)
    assert TUNED[128] == forward_launch(128, 2)._replace(num_stages=3), "one stage more, and nothing else"
    assert TUNED[64].block_n == forward_launch(64, 2).block_n and TUNED[64].block_m == forward_launch(64, 2).block_m / 2
    assert f"a third stage lost {-100 * min(third_stage(LADDER, 128).values()):.0f} %" in TEXT
    assert 0.45 < rates[128, 128, 4, 2] / rates[128, 128, 8, 2] < 0.55, "spilled: about half as fast"
    assert len(rates) == 8, "eight candidates"
    for D in (64, 128):
        assert candidates(LADDER, D)[TUNED[D]] > 0.99 * max(candidates(LADDER, D).values()), "within 1 % of the best"
    registers = 65536 // (8 * 32)  # of a thread, if one program of 8 warps has all of an SM's
    assert registers // 128 == 2 and registers // 129 == 1


def test_what_is_said_of_the_profiler():
    text = WORDS
    busy, shared, at_barriers = "tensor cores busy, % of cycles", "shared memory busy, %", "waiting at barriers"

    def three(**setting):
        rows = {row["backend"]: row for row in chosen(PROFILE["rows"], **setting)}
        return rows["flashlearn"], rows["cudnn"], rows["fa4"]

    ours, _, level = three(direction="forward", D=128)
    assert f"work in {ours[busy]:.0f} % of the cycles" in text and round(ours[busy]) == round(level[busy])
    assert ours["round"]["waiting for products"] + ours["round"][at_barriers] < 0.1, "rarely"
    ours, *_ = three(direction="forward", D=64)
    assert 57 < ours[busy] < 63 and 57 < ours["unit for exponentials busy, %"] < 63, "three cycles of five"
    ours, theirs, _ = three(direction="backward", D=128)
    assert f"busy in {ours[shared]:.0f} % of the cycles, more than" in text and ours[shared] > ours[busy]
    assert ours["round"][at_barriers] < theirs["round"][at_barriers]
    ours, theirs, level = three(direction="backward", D=64)
    parts = [f"{row['ms']:.2f} ms, of which {tables.in_iterations(row):.0f} %" for row in (ours, level)]
    assert " compared with ".join([f"{parts[0]},", parts[1]]) in text
    in_iterations = [row["ms"] * tables.in_iterations(row) for row in (ours, level)]
    assert 0.99 < in_iterations[0] / in_iterations[1] < 1.01, "the rounds take as long"
    assert "16.5 iterations in the mean" in text and (ours["N"] / 128 + 1) / 2 == 16.5
    assert ours["registers reloaded from memory"] > 1e6 and level["registers reloaded from memory"] == 0
    assert ours["round"]["spills"] < 0.01, "less than 1 % of the time"
    assert ours["round"][at_barriers] < theirs["round"][at_barriers]


def test_the_profiled_settings_are_among_our_slowest_beside_flashattention_4():
    for way, first in (("forward", 0), ("backward", 6)):
        eight = chosen(BESIDE["rows"], N=(4096, 16384))
        ratio = {(row["D"], row["N"], row["causal"]): 9.0 for row in eight}
        for row in eight:
            key = (row["D"], row["N"], row["causal"])
            ratio[key] = min(ratio[key], row["flashlearn"][way] / row["fa4"][way])
        row = PROFILE["rows"][first]
        assert row["direction"] == way and (row["D"], row["N"], row["causal"]) == min(ratio, key=ratio.__getitem__)


def test_what_is_said_of_short_sequences():
    host = max(row["flashlearn"]["host us"] for row in BESIDE["decoding"])
    assert tables.least_products(128, 512) / 2 < host < tables.least_products(128, 1024) / 2
    halved = {key: full / half for key, (full, half) in tables.halved(BESIDE).items()}
    long = [factor for (N, _, _), factor in halved.items() if N == 16384]
    assert f"where neither matters, the factor is {min(long):.2f} to {max(long):.2f}:" in WORDS
    assert all(factor < 1.65 for (N, _, _), factor in halved.items() if N <= 1024)


def test_what_is_said_of_decoding():
    over = {(peer, key): tables.decoding_over(BESIDE, peer, key, "float16") for peer in ("fa2", "cudnn") for key in ("us", "graph us")}  # fmt: skip
    assert min(over["fa2", "graph us"]) >= 1
    longer = sorted(row["flashlearn"]["us"] / row["fa2"]["us"] for row in BESIDE["decoding"])
    assert len(longer) == 48 and longer[-1] < 1
    assert "ours takes no longer than FlashAttention-2 in any setting." in TEXT
    graphs = {N: [row["flashlearn"]["graph us"] / row["cudnn"]["graph us"] for row in chosen(BESIDE["decoding"], N=N)] for N in (1024, 8192, 65536)}  # fmt: skip
    every = [ratio for found in graphs.values() for ratio in found]
    assert (
        "0.81 to 1.07 times" in TEXT
        and f"{min(every):.2f} to {max(every):.2f} times as long as cuDNN's, least where the cache is short" in TEXT
    )
    assert len(every) == 48 and min(graphs[1024]) < min(graphs[8192]) < min(graphs[65536])
    later = [
        row["flashlearn"] / row["cudnn"] for row in chosen(load("gpu_trials_h200")["graphs"]["rows"], dtype="float16")
    ]
    more = sum(ratio > 1.1 for ratio in later)
    assert f"at most {max(later):.2f} times as long" in TEXT and "at most 1.18 times" in TEXT
    assert f"a tenth longer in {more} of {len(later)} settings" in TEXT and (more, len(later)) == (4, 24)
    assert H200_SXM.bandwidth == 4800e9
    least = 256e6 / H200_SXM.bandwidth * 1e6
    assert f"at least {least:.0f} µs at {H200_SXM.bandwidth / 1e9:.0f} GB/s" in TEXT
    late = [
        row[name]["host us"] for row in BESIDE["decoding"] for name in tables.DECODERS if row[name]["host us"] > least
    ]
    assert not late and "In all 48 settings a call is prepared by then." in TEXT
    rows = chosen(BESIDE["decoding"], dtype="float16")
    host = {name: median(row[name]["host us"] for row in rows) for name in tables.DECODERS}
    longer = sorted(host["flashlearn"] / host[name] for name in ("cudnn", "fa2"))
    assert f"takes the CPU {longer[0]:.1f} to {longer[1]:.1f} times as long" in TEXT and "1.7 to 2.0 times" in TEXT
    added = {name: sorted(row[name]["us"] - row[name]["graph us"] for row in rows) for name in ("flashlearn", "cudnn")}
    assert abs(added["flashlearn"][len(rows) // 2] - added["cudnn"][len(rows) // 2]) < 0.5


def test_what_is_said_of_an_sm_with_one_program():
    text, trials = WORDS, load("gpu_trials_h200")
    rows = trials["decoding, alone"]["rows"]

    def over(found: list[dict]) -> list[float]:
        """Times of one program over those of two."""
        return sorted(row["alone"] / row["before"] for row in found)

    heads = {(row["B"] * row["H_kv"], row["N"]): row for row in rows if row["D"] == 128}

    def an_sm_each(programs: int, N: int) -> bool:
        """Splits of at least 512 keys, one for each SM; at most an eighth of the SMs have none."""
        splits = H200_SXM.sms // programs
        return N >= splits * 512 and 8 * splits * programs >= 7 * H200_SXM.sms

    alone = over([row for (programs, N), row in heads.items() if an_sm_each(programs, N)])
    few = over([row for (programs, N), row in heads.items() if programs * N < 512 * 128])
    many = over([row for (programs, _), row in heads.items() if programs > H200_SXM.sms])
    narrow = over(chosen(rows, D=64))
    assert len(alone) + len(few) + len(many) == len(heads)
    assert (len(alone), span(alone)) == (13, "0.93 to 1.01") and span(few) == "1.18 to 1.80"
    assert (span(many), span(narrow[3:]), span(narrow[:3])) == ("1.00 to 1.10", "0.98 to 1.67", "0.70 to 0.84")
    told = heads[8, 8192]
    assert f"it took {told['before'] / told['cudnn']:.2f} of cuDNN's time behind 8192 keys of eight key heads" in text
    assert "it took 1.12 of" in text
    odd = [row["before"] / row["cudnn"] for row in rows if row["alone"] / row["before"] < 0.9]
    assert span(odd) == "1.24 to 1.66"
    for words in (
        "behind 8192 keys of eight key heads, with one 1.06.",
        "With more key heads than SMs one CTA would take 1.00 to 1.10 times as long, and at D = 64 0.98 to 1.67.",
        "In three of those settings it was 0.70 to 0.84, as the time compared with was 1.24 to 1.66 of cuDNN's, in that process alone; in the table above one of them has 1.02.",
        "On another machine the larger tiles took 1.15 to 1.17 times as long with Triton 3.6, behind 65536 keys, too;",
        "had 1.09 of cuDNN's time with Triton 3.6, 1.15 with 3.7.1 and 1.05 with 3.8 before, on one machine, and 1.09, 1.09 and 1.04 with",
    ):
        assert words in text, words
    now = [row["flashlearn"]["graph us"] / row["cudnn"]["graph us"] for row in BESIDE["decoding"] if (row["D"], row["B"], row["H_kv"], row["N"]) == (128, 1, 8, 8192)]  # fmt: skip
    assert [f"{ratio:.2f}" for ratio in now] == ["1.06", "1.06"]
    assert f"twice as large: {span(alone)} of the time (H200, {len(alone)} settings of D = 128" in text
    assert f"With fewer than 512 keys each it would take {span(few)} times as long." in text
    most = max(row["flashlearn"]["graph us"] / row["cudnn"]["graph us"] for row in BESIDE["decoding"])
    assert f"at most {most:.2f} of cuDNN's in 48 settings" in text
    (same,) = (
        row for row in chosen(BESIDE["decoding"], D=64, N=8192, dtype="float16") if (row["B"], row["H_kv"]) == (8, 8)
    )
    assert f"{same['flashlearn']['graph us'] / same['cudnn']['graph us']:.2f}" == "1.02"
    edge = [
        row
        for row in trials["decoding, alone, three Tritons"]["rows"]
        if (row["B"], row["N"], row["H_kv"]) == (1, 8192, 8)
    ]
    assert [(row["triton"], f"{row['before'] / row['cudnn']:.2f}", f"{row['alone'] / row['cudnn']:.2f}") for row in edge] == [
        ("3.6.0", "1.09", "1.09"), ("3.7.1", "1.15", "1.09"), ("3.8.0", "1.05", "1.04"),
    ]  # fmt: skip
    another = trials["decoding, alone, another machine"]["rows"]
    assert span(row["alone"] / row["before"] for row in another) == "1.15 to 1.17"
    assert 2 * 2 * 8192 * 8 * 128 == 32 * 2**20 and "K and V have 32 MB" in text
    assert f"the L2 cache holds {H200_SXM.l2 // 2**20} MB" in text


def test_what_is_said_of_other_head_dimensions():
    rows = load("gpu_attention_h100")["dims"]

    def spread(way, peer, *D):
        found = [row["flashlearn"][way] / row[peer][way] for row in chosen(rows, D=D) if row.get(peer)]
        return f"{min(found):.2f} to {max(found):.2f}"

    beside = sorted(row["flashlearn"][way] / row["fa4"][way] for row in chosen(rows, D=96) for way in row["fa4"])
    words, backward = WORDS, partial(spread, "backward")
    assert (spread("forward", "cudnn", 96), backward("cudnn", 96)) == ("1.06 to 1.14", "1.16 to 1.24")
    assert (f"{beside[0]:.2f}", f"{beside[-1]:.2f}") == ("0.85", "0.93")
    assert (spread("forward", "cudnn", 192), spread("forward", "fa4", 192)) == ("0.99 to 1.06", "0.90 to 0.93")
    assert (backward("cudnn", 192), backward("fa4", 192)) == ("1.23 to 1.25", "0.84 to 0.87")
    assert (backward("cudnn", 256), backward("fa4", 256)) == ("1.04 to 1.10", "1.29 to 1.41")
    for said in (
        "D = 96: 1.06 to 1.14 of cuDNN forward and 1.16 to 1.24 backward, and 0.85 to 0.93 of FlashAttention-4.",
        "D = 192: 0.99 to 1.06 of cuDNN forward and 1.23 to 1.25 backward, 0.90 to 0.93 and 0.84 to 0.87 of FlashAttention-4",
        "D = 256: 1.04 to 1.10 of cuDNN and 1.29 to 1.41 of FlashAttention-4 backward.",
        f"{backward('cudnn', 192, 256)} of cuDNN; {backward('fa4', 256)} of FlashAttention-4 at D = 256, and "
        f"{backward('fa4', 192)} at 192",
    ):
        assert said in words
    rows = load("gpu_attention_h200")["dims"]
    ways = [spread(way, peer, 256) for way in ("forward", "backward") for peer in ("cudnn", "fa4")]
    assert len(chosen(rows, D=256)) == 4 and ways == ["1.04 to 1.17", "0.97 to 0.99", "1.14 to 1.18", "1.23 to 1.28"]
    said = (
        f"bfloat16: {ways[0]} of cuDNN and {ways[1]} of FlashAttention-4 forward, and {ways[2]} and {ways[3]} backward."
    )
    assert said in TEXT
    reached = [
        row["of cuDNN"]
        for row in chosen(
            load("gpu_trials_h200")["trials"][
                "forward, D = 192 and 256, by the fast kernel in place of the portable one"
            ]["rows"],
            D=256,
        )
    ]
    assert (round(min(reached), 2), f"{max(reached):.2f}") == (0.94, "1.28") and "0.94 to 1.28 of cuDNN" in TEXT


def test_memory_is_what_has_to_be_there():
    for row in BESIDE["memory"]:
        assert f"{row['flashlearn'] / tables.needed(row):.3f} of the sum of o, dq, dk and dv" in WORDS
        assert f"{row['flashlearn'] / row['N']:.0f} bytes a token" in WORDS
        assert f"{row['flashlearn'] / row['fa2']:.3f} of FlashAttention-2's peak" in WORDS
    lengths = [row["N"] for row in BESIDE["memory"]]
    assert f"N {lengths[0]} to {lengths[-1]}:" in WORDS and len(lengths) == 8


def test_the_prediction_and_what_came_of_it():
    assert "should take D = 128 from about 400 TFLOP/s to above 550 on an H200" in TEXT
    (row,) = chosen(BESIDE["rows"], dtype="float16", D=128, N=16384, causal=False)
    assert f"Measured, N = 16384, no mask: {row['flashlearn']['forward']:.0f}." in TEXT


def test_numbers_in_its_prose_are_in_its_tables_or_were_looked_up(request):
    """The last of this file: the tests before it compare what they look up with the records."""
    if request.session.testscollected < 10:
        pytest.skip("the tests before this one did not run")
    evidence = "".join(re.findall(r"```text\n(.*?)```", MEASURED, re.DOTALL)).replace(",", "") + "\n".join(Read.found)
    numbers = typed_in_prose(re.sub(r"```text\n.*?```", "", MEASURED, flags=re.DOTALL))
    assert len(numbers) > 5
    missing = [number for number in numbers if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", evidence)]
    assert missing == ["0.5"], "the smallest of seven lags that were tried; no record was kept"
