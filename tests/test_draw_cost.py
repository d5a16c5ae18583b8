"""The pictures of notebook 08: what they show is what they were given, and all of it can be read."""

import math
from functools import partial

import pytest
import torch

import flashlearn as fl
from flashlearn import cost as costs
from flashlearn.show.draw import draw_block_sizes, draw_budgets, draw_memory, draw_roofline, draw_traffic
from tests.drawing import painted, readable, sound
from tests.slow import slow

EVERY_GPU = pytest.mark.parametrize("gpu", costs.HARDWARE.values(), ids=lambda gpu: gpu.name)


CURVES = {"layout": "constrained", "render": True}
WIDE = {"size": (12.8, 6.2), **CURVES}

# The race.


def runs(N=64, d=8, block=16):
    q, k, v = (torch.randn(1, 1, N, d, generator=torch.Generator().manual_seed(s)).half() for s in range(3))
    return {
        "standard attention": fl.record(fl.standard_attention_steps(q, k, v)),
        "version 1": fl.record(fl.tiled_attention_v1_steps(q, k, v, block_q=block, block_k=block)),
        "version 2": fl.record(fl.tiled_attention_v2_steps(q, k, v, block_q=block, block_k=block)),
    }


def test_race_gives_every_lane_the_same_bytes():
    recorded = runs()
    totals = {title: fl.hbm_bytes(run).total for title, run in recorded.items()}
    frames = fl.record(costs.race(recorded, 10))
    assert len(frames) == 10 and frames[-1].values["moved"] == frames[-1].values["full"] == max(totals.values())
    for frame in frames:
        for title, runner in frame.values["runners"].items():
            finished = sum(runner.moved.values())
            if runner.over:
                assert finished == totals[title] and runner.under_way == 0 and runner.work == 1
            else:
                assert finished + runner.under_way == frame.values["moved"] < totals[title]


def test_race_ends_in_the_order_of_the_bytes():
    recorded = runs()
    over = {title: next(n for n, frame in enumerate(costs.race(recorded, 48)) if frame.values["runners"][title].over)
            for title in recorded}  # fmt: skip
    assert sorted(over, key=over.get) == sorted(recorded, key=lambda title: fl.hbm_bytes(recorded[title]).total)


def test_race_counts_each_matrix():
    runners = fl.record(costs.race(runs(), 4))[-1].values["runners"]
    recorded = runs()
    for title, runner in runners.items():
        for name, moved in runner.moved.items():
            assert moved == fl.hbm_bytes(recorded[title], name).total


def test_race_without_products_counts_bytes():
    runner = fl.record(costs.race({"safe": fl.safe_softmax_steps(torch.zeros(4, 10))}, 2))[0].values["runners"]["safe"]
    assert runner.work == pytest.approx(0.5)


@pytest.mark.parametrize("number", [0, 5, 11])
def test_traffic_can_be_read(number):
    frames = fl.record(costs.race(runs(), 12))
    for narrow in (False, True):
        shown = sound(draw_traffic(frames[number], narrow=narrow)).texts()
        for title, runner in frames[number].values["runners"].items():
            moved = sum(runner.moved.values())
            assert title in shown
            assert (f"done with {moved:,} B" if runner.over else f"products done: {runner.work:.0%}") in shown


def test_bars_are_as_long_as_the_bytes():
    last = fl.record(costs.race(runs(), 3))[-1]
    scene = draw_traffic(last)
    for n, runner in enumerate(last.values["runners"].values()):
        here = [item.rect for item in scene.walk() if item.id.startswith(f"bytes{n}-")]
        full = scene.width - 2 * min(rect.x for rect in here)
        moved = sum(runner.moved.values())
        assert sum(rect.w for rect in here) == pytest.approx(full * moved / last.values["full"])


def test_lanes_may_be_many():
    q = torch.zeros(1, 1, 8, 4)
    runners = {f"runner {n}": fl.one_pass_attention_steps(q, q, q) for n in range(4)}
    sound(draw_traffic(fl.record(costs.race(runners, 2))[0]))


# The roofline.


def placements(gpu, N=4096, d=64):
    given = {
        "naive softmax": costs.softmax_cost("naive", N, N, dtype=torch.float16),
        "safe softmax": costs.softmax_cost("safe", N, N, dtype=torch.float16),
        "two-pass attention": costs.two_pass_cost(1, 1, N, N, d),
        "standard attention": costs.standard_cost(1, 1, N, N, d),
        "flash, every read counted": costs.v2_cost(1, 1, N, N, d, block_q=128),
        "flash, perfect cache": costs.ideal_cost(1, 1, N, N, d),
    }
    return {name: costs.placement(cost, gpu) for name, cost in given.items()}


@EVERY_GPU
@pytest.mark.parametrize(("N", "d"), [(4096, 64), slow(1024, 128), slow(16384, 64)])
def test_roofline_can_be_read(gpu, N, d):
    between = {"L2 decides": ("flash, every read counted", "flash, perfect cache")}
    ax = painted(partial(draw_roofline, between=between), gpu, placements(gpu, N, d), **WIDE)
    found = readable(ax)
    axis = ax.get_window_extent()
    words = [text.get_text() for text in ax.texts]
    for name, at in found:
        assert name not in words or at.x0 >= axis.x0, f"{name!r} lies across the axis"
    assert f"ridge: {gpu.ridge():.0f} FLOP/B" in words and "L2 decides" in words
    for name in placements(gpu):
        assert any(word.startswith(name) for word in words)


@EVERY_GPU
def test_points_stand_on_the_roof(gpu):
    given = placements(gpu)
    ax = painted(draw_roofline, gpu, given, **WIDE)
    points = {(line.get_xdata()[0], line.get_ydata()[0]): line.get_markerfacecolor()
              for line in ax.lines if line.get_marker() == "o"}  # fmt: skip
    assert set(points) == {(at.intensity, at.attainable) for at in given.values()}
    for at in given.values():
        assert (points[at.intensity, at.attainable] == "white") == (at.bound == "memory-bound")


# The memories.


@EVERY_GPU
def test_memories_are_to_scale(gpu):
    for narrow in (False, True):
        scene = sound(draw_memory(gpu, narrow=narrow))
        pipes = [item.rect for item in scene.walk() if item.id.startswith("pipe-")]
        assert pipes[0].h / pipes[1].h == pytest.approx(gpu.bandwidth / gpu.sram_bandwidth)
        area = {name: scene[name].rect.w * scene[name].rect.h for name in ("hbm", "sram")}
        assert area["sram"] / area["hbm"] == pytest.approx(gpu.sram / gpu.memory)


# Curves of bytes and of least times.


def test_budgets_name_every_curve_at_its_end():
    budgets, traffic = (4096, 8192), {"one": [3_000_000, 1_500_000], "flat": [700_000, 700_000]}
    ax = painted(draw_budgets, budgets, traffic, **CURVES)
    found = readable(ax)
    assert {"one", "flat", "4,096", "8,192", "HBM traffic, MB"} <= {words for words, _ in found}
    drawn = [line.get_xydata().tolist() for line in ax.lines]
    assert drawn == [[[4096, 3.0], [8192, 1.5]], [[4096, 0.7], [8192, 0.7]]]


@pytest.mark.parametrize("last", (True, False))
def test_block_sizes_that_do_not_fit_are_marked(last):
    times = {16: (100.0, 12.0, True), 32: (50.0, 12.0, True), 64: (25.0, 12.0, True), 128: (6.0, 12.0, last)}
    ax = painted(draw_block_sizes, times, **CURVES)
    found = readable(ax)
    assert ("does not\nfit in\nan SM" in {words for words, _ in found}) == (not last)
    least, memory, compute = (line.get_xydata() for line in ax.lines)
    assert (memory[:, 1].tolist(), compute[:, 1].tolist()) == ([100, 50, 25, 6], [12] * 4)
    assert least[0] == pytest.approx([16, 100]) and least[-1] == pytest.approx([128, 12])
    cross = 64 * 2 ** (math.log(25 / 12) / math.log(25 / 6))  # 25 to 6 and 12 to 12, straight on logarithmic axes
    expected = [12 if x >= cross else 25 * (x / 64) ** -math.log2(25 / 6) for x in least[:, 0] if x > 64]
    assert least[least[:, 0] > 64, 1] == pytest.approx(expected), (
        "the band follows the higher curve, and bends where they cross"
    )


@pytest.mark.parametrize("times", ({}, {16: (9.0, 5.0, True)}, {16: (9.0, 5.0, False), 32: (5.0, 5.0, False)}))
def test_block_sizes_are_several_and_one_fits(times):
    with pytest.raises(ValueError, match="expected at least two block sizes, one of which fits, got {"):
        painted(draw_block_sizes, times, **CURVES)
