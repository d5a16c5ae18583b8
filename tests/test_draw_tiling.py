"""Pictures of tiles: whatever is recorded can be painted, and what is painted is what the step says."""

from functools import partial

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

import flashlearn as fl
from flashlearn.core.inputs import Sizes
from flashlearn.core.steps import Step, Tile
from flashlearn.show.draw import (
    backward,
    budget_step,
    colour,
    draw_backward,
    draw_budget,
    draw_matmul,
    draw_tiling,
    tiling,
)
from flashlearn.show.draw.sheet import Grid, blocks_of
from flashlearn.show.draw.style import fixed, index
from flashlearn.show.frame import as_runs, paint
from tests.drawing import painted, readable
from tests.slow import across, every, slow
from tests.speed import times_plain


def qkv(N_q=12, N_k=12, D=4, H=1, H_kv=1, seed=94):
    generator = torch.Generator().manual_seed(seed)
    shapes = (1, H, N_q, D), (1, H_kv, N_k, D), (1, H_kv, N_k, D)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def axes_of(step, draw=draw_tiling, width=12.8):
    return painted(draw, step, size=(width, 5.0))


def texts(step, draw=draw_tiling, width=12.8):
    return [text.get_text() for text in axes_of(step, draw, width).texts]


def pixels(step, draw=draw_tiling, size=(12.8, 5.0)):
    return np.asarray(paint(as_runs(step.run) if step.run else {"": [step]}, step.number, draw, size)) / 255


def area(picture, name):
    """How many pixels have exactly the full colour of this matrix."""
    return int((np.abs(picture - np.array(to_rgb(colour(name)))).max(-1) < 0.004).sum())


VERSIONS = {"v1": fl.tiled_attention_v1_steps, "v2": fl.tiled_attention_v2_steps}
PROBLEMS = {
    "plain": ({}, {"block_q": 3, "block_k": 3}),
    "causal": ({}, {"block_q": 4, "block_k": 3, "causal": True}),
    "ragged": ({"N_q": 11, "N_k": 7}, {"block_q": 4, "block_k": 3}),
    "one token": ({"N_q": 1, "N_k": 1}, {"block_q": 4, "block_k": 4}),
    "rows that see no key": ({"N_q": 9, "N_k": 4}, {"block_q": 3, "block_k": 2, "causal": True}),
    "no key at all": ({"N_q": 4, "N_k": 0}, {"block_q": 3, "block_k": 2}),
    "grouped heads": ({"H": 4, "H_kv": 2}, {"block_q": 4, "block_k": 4}),
    "wide heads": ({"D": 128}, {"block_q": 4, "block_k": 4}),
    "one dimension": ({"D": 1}, {"block_q": 4, "block_k": 4}),
    "tall blocks": ({"N_q": 64, "N_k": 64}, {"block_q": 32, "block_k": 16}),
}


@pytest.mark.parametrize("version, problem, width", across(VERSIONS, PROBLEMS, [6.4, 12.8]))
def test_any_run_can_be_painted(version, problem, width):
    sizes, options = PROBLEMS[problem]
    run = fl.record(VERSIONS[version](*qkv(**sizes), **options))
    for step in {0: run[0], 1: run[len(run) // 2], 2: run[-1]}.values():
        shown = texts(step, width=width)
        assert {"HBM", "SRAM", "S is never stored:"} <= set(shown)


@pytest.mark.parametrize("version", VERSIONS)
def test_names_shapes_and_bytes_are_those_of_the_step(version):
    run = fl.record(VERSIONS[version](*qkv(N_q=11), block_q=4, block_k=3))
    step = next(step for step in run if step.values.get("i") == 2 and step.values["j"] == 1)
    shown = texts(step)
    traffic = fl.hbm_bytes(step.so_far)
    assert f"▼ read {traffic.read:,} B" in shown and f"▲ written {traffic.written:,} B" in shown
    assert f"+{fl.hbm_bytes([step]).read:,}" in shown
    assert f"{sum(tile.nbytes for tile in step.on_chip):,} B on chip" in shown
    names = {"v1": {"Q₂ ▼", "K₁ᵀ", "V₁", "S₂₁", "O₂ ▼▲"}, "v2": {"Q₂", "K₁ᵀ ▼", "V₁ ▼", "S₂₁", "acc₂"}}
    assert names[version] <= set(shown)
    assert {"3×4", "4×3", "3×3"} <= set(shown)  # the last block of Q has three rows
    assert {"8", "9", "10"} <= set(shown)


@pytest.mark.parametrize("version", [slow("v1"), "v2"])
def test_rescaling_is_marked_with_its_factor(version):
    run = fl.record(VERSIONS[version](*qkv(), block_q=3, block_k=3))
    marked = 0
    for step in run:
        ax = axes_of(step)
        white = {
            text.get_text() for text in ax.texts if text.get_text().startswith("×") and text.get_color() == "white"
        }
        if "m_old" not in step.values:
            assert not white
            continue
        old, new, factor = (step.values[name].flatten() for name in ("m_old", "m_i", "factor"))
        risen = (new > old) & old.isfinite()
        assert white == {f"×{value:.2f}" for value in factor[risen].tolist()}
        shown = [text.get_text() for text in ax.texts]
        assert shown.count("start") == int(old.isinf().sum())
        assert all(fixed(value, 2) in shown for value in (*new.tolist(), *step.values["l_i"].flatten().tolist()))
        marked += bool(white)
    assert marked >= 4


def test_numbers_inside_tiles_if_they_fit():
    run = fl.record(fl.tiled_attention_v2_steps(*qkv(), block_q=3, block_k=3))
    acc = [fixed(value, 1) for value in run[5].values["acc"].flatten().tolist()]
    assert set(acc) <= set(texts(run[5], width=12.8))
    assert not set(acc) <= set(texts(run[5], width=6.4))


def test_scores_stay_in_sight_beside_many_columns():
    """Eight tokens of 128 columns, as in notebook 06: drawn as wide as they are they leave no room for S."""
    Q, K, V = (t[0, 0] for t in qkv(8, 8, 128))
    run = fl.record(fl.tiled_qkv_steps(Q, K, V, block_q=2, block_k=2))
    assert area(pixels(run[6]), "S") > 2500, "the block of now"
    assert area(pixels(run[6]), "K") > 2500 and {"Q 8×128", "O 8×128", "2×128"} <= set(texts(run[6]))
    assert "Q" in texts(fl.record(fl.tiled_qkv_steps(*(t[0, 0] for t in qkv(8, 8, 32)), block_q=2, block_k=2))[6])


def test_what_is_on_chip_has_its_colour_in_both_memories():
    run = fl.record(fl.tiled_attention_v2_steps(*qkv(D=4), block_q=3, block_k=3))
    done = pixels(run[-1])
    for name in "QKV":
        assert area(pixels(run[2]), name) > area(done, name) + 3000
    assert area(done, "Q") == 0, "nothing is on chip at the end"


class Cells:
    """A sheet that notes which cells of a matrix at (0, 0), of cells 1 x 1, were hatched."""

    def __init__(self, shape):
        self.hatched = np.zeros(shape, bool)

    def hatch_cells(self, grid, cells, face=None):
        self.hatched |= cells

    def fill(self, *args):
        pass

    outline = fill


OFFSETS, RANGE = (torch.tensor(ends, dtype=torch.int32) for ends in ([0, 3, 8, 12], [[3, 0], [12, 7]]))
SEEN = {
    "window": {"window": (3, 2)},
    "documents": {"documents": OFFSETS},
    "documents, causal, window": {"documents": OFFSETS, "causal": True, "window": (2, None)},
    "key range": {"key_range": tuple(RANGE)},
    "scores made otherwise": {"causal": True, "softcap": 0.5, "alibi": torch.ones(1), "sinks": torch.ones(1)},
}


@pytest.mark.parametrize("name", every(2, SEEN))
def test_hatched_is_what_the_mask_hides(name):
    """In the pictures of both versions and of both backward passes; pictures show the first sequence."""
    options, blocks = SEEN[name], {"block_q": 3, "block_k": 4}
    q, k, v = (torch.cat([t, t + 1]) for t in qkv())
    sight = {key: value for key, value in options.items() if key not in ("softcap", "alibi", "sinks")}
    visible = fl.Mask.of(Sizes(2, 1, 1, 12, 12, 4), **sight).visible((0, 12), (0, 12))
    hidden = ~visible.expand(2, 1, 12, 12)[0, 0].numpy()
    o, lse = fl.tiled_attention_v2(q, k, v, return_lse=True, **options, **blocks)
    runs = [(tiling._scores, steps(q, k, v, **options, **blocks)) for steps in VERSIONS.values()]
    for fused in (False, True):
        steps = fl.tiled_attention_backward_steps(q, q, k, v, o, lse, fused=fused, **options, **blocks)
        runs.append((backward._square, steps))
    for paint_square, steps in runs:
        run = fl.record(steps)
        sheet = Cells((12, 12))
        paint_square(sheet, run[-1], run, Grid(0, 0, 12, 12, 1, 1))
        assert np.array_equal(sheet.hatched, hidden)
        assert {"masked"} <= set(texts(run[-2], draw_tiling if paint_square is tiling._scores else draw_backward))


def test_never_visited_and_masked_cells_are_told_apart():
    causal = fl.record(fl.tiled_attention_v2_steps(*qkv(), block_q=4, block_k=3, causal=True))
    plain = fl.record(fl.tiled_attention_v2_steps(*qkv(), block_q=4, block_k=3))
    assert {"masked", "never visited"} <= set(texts(causal[0]))
    assert not {"masked", "never visited"} & set(texts(plain[0]))
    assert area(pixels(causal[0]), "masked") > 3000 and area(pixels(plain[0]), "masked") < 300


def test_a_score_of_minus_infinity_that_no_mask_hides_is_not_called_masked():
    q, k, v = qkv()
    k[0, 0, 2, 1] = float("inf")
    for version in VERSIONS.values():
        run = fl.record(version(q, k, v, block_q=4, block_k=3))
        assert any((step.values["S"] == -float("inf")).any() for step in run if "S" in step.values)
        assert not {"masked", "never visited"} & set(texts(run[-1]))


def test_a_row_is_ticked_when_it_is_written_for_the_last_time():
    for version, ticks in (("v1", [0, 0, 0, 0, 1, 2, 3, 3]), ("v2", [0, 1, 1, 2, 2, 3, 3])):
        run = fl.record(VERSIONS[version](*qkv(N_q=9, N_k=6), block_q=3, block_k=3))
        assert [texts(step).count("✓") for step in run] == ticks, version


def test_steps_without_values():
    """A recorded kernel gives grids only; S may be missing as well, and lse may have no last dimension."""
    shapes = {
        "Q": (1, 2, 8, 4),
        "K": (1, 2, 8, 4),
        "V": (1, 2, 8, 4),
        "S": (1, 2, 8, 8),
        "O": (1, 2, 8, 4),
        "lse": (1, 2, 8),
    }
    head = ((0, 1), (1, 2))
    Q, K, V = (Tile(name, (*head, span, (0, 4)), 2) for name, span in (("Q", (4, 8)), ("K", (0, 4)), ("V", (0, 4))))
    writes = (Tile("O", (*head, (4, 8), (0, 4)), 2), Tile("lse", (*head, (4, 8)), 4))
    both = {"phase": "kernel", "shapes": shapes, "on_chip": (Q, K, V), "program": (1, 1, 0)}
    steps = fl.record([Step(sentence="reads", reads=(Q, K, V), **both), Step(sentence="writes", writes=writes, **both)])
    assert "Q₁ ▼" in texts(steps[0]) and "scaled" not in texts(steps[0])
    assert "O ▲" in texts(steps[1])
    picture = pixels(steps[1])
    assert area(picture, "S") > 1000 and area(picture, "O") > 1000 and area(picture, "m, l") > 100


def test_only_the_head_of_the_step_is_drawn():
    shapes = {"Q": (1, 2, 4, 4), "K": (1, 2, 4, 4), "V": (1, 2, 4, 4), "S": (1, 2, 4, 4), "O": (1, 2, 4, 4)}
    tiles = [Tile("O", ((0, 1), (h, h + 1), (0, 4), (0, 4)), 4) for h in (0, 1)]
    steps = [Step(sentence="", phase="kernel", shapes=shapes, writes=(tile,)) for tile in tiles]
    first, second = (texts(step).count("✓") for step in fl.record(steps))
    assert first == second == 1


def test_runs_share_a_scale_of_bytes():
    run = fl.record(fl.tiled_attention_v2_steps(*qkv(), block_q=3, block_k=3))
    full = max(fl.hbm_bytes(run))
    alone, halved = (pixels(run[-1], draw) for draw in (draw_tiling, partial(draw_tiling, full=2 * full)))
    grey = np.array(to_rgb("#9A9A9A"))
    bars = [int((np.abs(picture - grey).max(-1) < 0.004).sum()) for picture in (alone, halved)]
    assert bars[0] == pytest.approx(2 * bars[1], rel=0.05)


def test_a_wrong_algorithm_makes_a_wrong_picture():
    def forgets_to_visit():
        for step in fl.tiled_attention_v2_steps(*qkv(), block_q=3, block_k=3):
            if step.values.get("j") != 2:
                yield step

    assert "never visited" in texts(fl.record(forgets_to_visit())[0])


def test_matmul_shows_elements_and_blocks():
    a, b = torch.arange(32.0).reshape(8, 4), torch.arange(32.0).reshape(4, 8) - 8
    run = fl.record(fl.tiled_matmul_steps(a, b, block_m=4, block_n=2, block_k=2))
    for step in run[::3]:
        shown = texts(step, draw_matmul)
        assert {"elements in HBM", "blocks", "SRAM", "A₀₀", "B₁₃", "C₁₃"} <= set(shown)
    shown = texts(run[7], draw_matmul)
    assert {"A₀₁ ▼", "B₁₃ ▼", "acc₀₃", "4×2", "2×2", "A ▼", "C ▲"} <= set(shown)
    assert fixed(run[7].values["acc"][0, 0].item(), 2) in shown
    ragged = fl.record(fl.tiled_matmul_steps(torch.ones(5, 7), torch.ones(7, 3), block_m=2, block_n=2, block_k=4))
    for step in ragged[::2] + ragged[-1:]:
        texts(step, draw_matmul)


def test_budget_shows_what_fits():
    good, bad = budget_step(3, 4, 3, 59), budget_step(3, 5, 3, 59)
    assert "needed: 54 elements, they fit" in texts(good, draw_budget)
    assert "needed: 63 elements, 4 too many: they do not fit" in texts(bad, draw_budget)
    assert {"Q\n3×3", "S\n3×5", "SRAM: 59 elements"} <= set(texts(bad, draw_budget))
    for blocks in ((1, 1, 1, 5), (64, 64, 128, 40000)):
        texts(budget_step(*blocks), draw_budget)


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((0, 2, 3, 5), ValueError, "expected block_q of at least 1, got 0"),
        ((1, 2.5, 3, 5), TypeError, "expected block_k to be an int, got float"),
        ((1, 2, "3", 5), TypeError, "expected D to be an int, got str"),
        ((1, 2, 3, -5), ValueError, "expected capacity of at least 0, got -5"),
    ],
)
def test_a_budget_of_no_sizes(sizes, error, message):
    with pytest.raises(error, match=message):
        budget_step(*sizes)


def test_blocks_of_covers_exactly_the_true_cells():
    generator = torch.Generator().manual_seed(0)
    for density in (0.0, 0.2, 0.8, 1.0):
        mask = (torch.rand(9, 7, generator=generator) < density).numpy()
        seen = np.zeros_like(mask, dtype=int)
        for (r0, r1), (c0, c1) in blocks_of(mask):
            seen[r0:r1, c0:c1] += 1
        assert (seen == mask).all()
    assert len(blocks_of(np.ones((5, 4), dtype=bool))) == 1
    assert blocks_of(np.zeros((3, 3), dtype=bool)) == []


def test_small_helpers():
    assert index(2, 1) == "₂₁" and index(12, 1) == "₁₂,₁" and index(3) == "₃"
    assert [fixed(value, 1) for value in (-0.04, 1.0, -2.26, float("-inf"))] == ["0.0", "1.0", "−2.3", "−∞"]
    assert Grid(10, 20, 4, 3, 5, 6).rect((1, 3), (0, 2)) == (10, 26, 10, 12)


@pytest.mark.parametrize(
    "options",
    [
        {"block_q": 3, "block_k": 3, "causal": True},
        slow({"block_q": 8, "block_k": 4}),
        slow({"block_q": 2, "block_k": 8}),
    ],
    ids=str,
)
def test_text_stays_inside_the_picture(options):
    for version in VERSIONS.values():
        step = fl.record(version(*qkv(16, 16), **options))[4]
        for width, height in ((6.4, 4.4), (12.8, 5.5)):
            readable(painted(draw_tiling, step, size=(width, height)), apart=None)


@pytest.mark.slow  # a time
def test_two_panels_of_sixteen_tokens_take_no_longer_than_a_plain_picture():
    """Measured 0.63 of it; in milliseconds: benchmarks/redraw.py."""
    runs = as_runs({name: steps(*qkv(16, 16), block_q=3, block_k=3) for name, steps in VERSIONS.items()})
    assert times_plain(lambda number: paint(runs, number, draw_tiling, (12.8, 4.4)), 11) < 1


# --- what fits, standard attention, tiles on their way -----------------------------------------------------------


def test_the_bar_of_what_fits_counts_tiles_and_not_m_and_l():
    run = fl.record(fl.tiled_attention_v2_steps(*qkv(), block_q=3, block_k=3))
    shown = {step.number: texts(step, partial(draw_tiling, capacity=59), width=6.4) for step in run}
    assert fl.sram_elements(3, 3, 4) == 57
    assert f"{57} of 59 elements" in shown[0] and not any("on chip" in words for words in shown[0])
    assert "0 of 59 elements" in shown[len(run) - 1], "at the end nothing is on chip"


@pytest.mark.parametrize("width", [4.27, 6.4])
def test_standard_attention_stores_s_and_then_p(width):
    run = fl.record(fl.standard_attention_steps(*qkv(), causal=True))
    shown = [texts(step, partial(draw_tiling, capacity=59), width=width) for step in run]
    for words, moves in zip(shown, ("S ▲", "S ▼  P ▲", "P ▼", "P"), strict=True):
        assert moves in words and "whole matrices: no tile is kept" in words
        assert "S is never stored:" not in words and ("S, P are stored:" in words) == (width > 5)
    traffic = fl.hbm_bytes(run)
    assert f"▼ read {traffic.read:,} B" in shown[-1] and f"▲ written {traffic.written:,} B" in shown[-1]


@pytest.mark.parametrize("version", VERSIONS)
def test_tiles_travel_from_where_they_are_to_where_they_go(version):
    """What is read is not on chip before it has arrived, and moves down all the way."""
    run = fl.record(VERSIONS[version](*qkv(), block_q=3, block_k=3))
    step = next(step for step in run if any(tile.name == "Q" for tile in step.reads))
    heights = []
    for travelled in (0.1, 0.5, 0.9):
        moving = axes_of(step, partial(draw_tiling, travelled=travelled), width=6.4)
        (word,) = (text for text in moving.texts if text.get_text() == "Q" and text.get_zorder() > 4)
        heights.append(word.get_position()[1])
        assert not any(text.get_text() == "Q₀ ▼" for text in moving.texts)
    assert heights == sorted(heights) and heights[-1] - heights[0] > 100
    arrived = texts(step, width=6.4)
    assert "Q₀ ▼" in arrived and arrived == texts(step, partial(draw_tiling, travelled=1.0), width=6.4)


def test_nothing_to_travel():
    """A step that moves no tile is painted as it is."""
    run = fl.record(fl.standard_attention_steps(*qkv()))
    for step in run:
        assert texts(step, partial(draw_tiling, travelled=0.5)) == texts(step)
