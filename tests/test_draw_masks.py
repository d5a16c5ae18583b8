"""The pictures of masks: blocks are those of the steps, cells those of the mask, numbers those of the tables."""

import itertools

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

import flashlearn as fl
from flashlearn.core.mask import Mask
from flashlearn.show.draw import draw_reach, draw_tables, draw_visits
from flashlearn.show.draw.masks import visited
from flashlearn.show.draw.style import COLOURS, tint
from tests.drawing import painted, readable

Q, K, V = torch.randn(3, 1, 2, 10, 4, generator=torch.Generator().manual_seed(17)).unbind(0)
WINDOWS = {"causal": (None, 0), "window (2, 0)": (2, 0), "window (1, 3)": (1, 3)}
RUNS = {
    name: fl.record(fl.tiled_attention_v2_steps(Q, K, V, window=window, block_q=3, block_k=4))
    for name, window in WINDOWS.items()
}
MASKS = {name: Mask(10, 10, *window).visible((0, 10), (0, 10)) for name, window in WINDOWS.items()}
TABLE = torch.tensor([[0.25, -1.0], [2.0, -float("inf")]])


def drawn(plot):
    ax = painted(plot, size=(12.8, 4.2), render=True)
    return ax, np.asarray(ax.figure.canvas.buffer_rgba())[..., :3]


def words(ax):
    return [text.get_text() for text in ax.texts]


def test_blocks_are_those_that_the_steps_visited():
    for name, run in RUNS.items():
        blocks = visited(run)
        assert len(blocks) == run[-1].values["visits"]
        seen = {
            (rows, cols)
            for rows in fl_spans(3)
            for cols in fl_spans(4)
            if MASKS[name][slice(*rows), slice(*cols)].any()
        }
        assert set(blocks) == seen
    assert words(drawn(lambda ax: draw_visits(ax, RUNS, MASKS))[0]).count("9 blocks") == 1


def fl_spans(block):
    return [(start, min(start + block, 10)) for start in range(0, 10, block)]


def test_a_block_that_was_not_visited_is_not_shown_as_visited():
    run = [step for step in RUNS["causal"] if step.values.get("j") != 1]
    assert len(visited(run)) < len(visited(RUNS["causal"]))
    whole, less = (
        drawn(lambda ax, run=run: draw_visits(ax, {"causal": run}, MASKS))[1] for run in (RUNS["causal"], run)
    )
    grey = np.array(to_rgb(COLOURS["masked"])) * 255
    counts = [(np.abs(pixels - grey).max(-1) < 3).sum() for pixels in (whole, less)]
    assert counts[1] > 1.2 * counts[0]


def test_cells_that_are_seen_have_the_colour_of_scores_and_no_others():
    pixels = drawn(lambda ax: draw_visits(ax, {"window (1, 3)": RUNS["window (1, 3)"]}, MASKS))[1]
    pink = np.abs(pixels - np.array(tint("S", 0.85)) * 255).max(-1) < 3
    side = (pixels.shape[0] - 62 - 96) / 10  # the panel is as high as the picture leaves it, in the middle
    left = (pixels.shape[1] - 10 * side) / 2
    for i, j in itertools.product(range(10), range(10)):
        cell = pink[
            round(62 + i * side) + 4 : round(62 + (i + 1) * side) - 4,
            round(left + j * side) + 4 : round(left + (j + 1) * side) - 4,
        ]
        assert cell.all() if MASKS["window (1, 3)"][i, j] else not cell.any(), (i, j)


def test_reach_says_how_many_the_last_output_depends_on():
    ax, _ = drawn(lambda ax: draw_reach(ax, {"one": MASKS["window (2, 0)"], "two": MASKS["causal"]}))
    assert {"last output: 3", "last output: 10", "one", "two"} <= set(words(ax))


def test_tables_have_their_numbers_their_sinks_and_their_sums():
    ax, _ = drawn(lambda ax: draw_tables(ax, {"scores": TABLE}))
    assert {"0.2", "−1.0", "2.0"} <= set(words(ax)) and not any("∞" in word for word in words(ax)), "hatched"
    weights = torch.tensor([[0.25, 0.5]])
    ax, _ = drawn(lambda ax: draw_tables(ax, {"P": weights, "Q": weights}, {"Q": torch.tensor([0.125])}, sums=True))
    assert words(ax).count("Σ 0.75") == 2 and words(ax).count("sink") == 1 and words(ax).count("0.12") == 1


@pytest.mark.parametrize(
    "plot",
    [
        lambda ax: draw_visits(ax, RUNS, MASKS),
        lambda ax: draw_reach(ax, MASKS),
        lambda ax: draw_tables(ax, {name: torch.rand(6, 6) for name in "abc"}, {"b": torch.rand(6)}, sums=True),
    ],
)
def test_no_words_overlap_or_leave_the_picture(plot):
    readable(drawn(plot)[0])


def test_what_does_not_fit_is_rejected():
    with pytest.raises(ValueError, match="expected up to 6 runs, each with a mask of its name"):
        drawn(lambda ax: draw_visits(ax, RUNS, {"causal": MASKS["causal"]}))
    with pytest.raises(ValueError, match="expected up to 6 runs"):
        drawn(lambda ax: draw_reach(ax, {}))
    with pytest.raises(ValueError, match=r"expected up to three tables of at most 9 x 9, got \[\(10, 10\)\]"):
        drawn(lambda ax: draw_tables(ax, {"too large": torch.rand(10, 10)}))


def test_a_mask_of_another_size_or_without_booleans_is_rejected():
    (name, run), mask = next(iter(RUNS.items())), MASKS["causal"]
    for size in (4, 12):
        message = (
            rf"expected a mask of the size of the scores of its run, got \({size}, {size}\) for a run of \(10, 10\)"
        )
        with pytest.raises(ValueError, match=message):
            drawn(lambda ax, size=size: draw_visits(ax, {name: run}, {name: torch.ones(size, size, dtype=torch.bool)}))
    with pytest.raises(ValueError, match="for a run of no scores"):
        drawn(lambda ax: draw_visits(ax, {name: fl.record(fl.online_softmax_steps(Q[0, 0, 0]))}, {name: mask}))
    for plot in (
        lambda ax: draw_visits(ax, {name: run}, {name: mask.float()}),
        lambda ax: draw_reach(ax, {"a": TABLE}),
    ):
        with pytest.raises(TypeError, match="expected masks as tensors of booleans, got torch.float32"):
            drawn(plot)


def test_only_minus_infinity_is_hatched_in_a_table():
    inf = float("inf")
    ax, _ = drawn(lambda ax: draw_tables(ax, {"scores": torch.tensor([[inf, -inf], [1.0, 2.0]])}))
    assert words(ax).count("∞") == 1 and words(ax).count("2.00") == 1
    ax, _ = drawn(lambda ax: draw_tables(ax, {"hidden": torch.full((2, 2), -inf)}))
    assert words(ax) == ["hidden"]


def test_a_table_may_hold_what_is_no_number():
    ax, _ = drawn(lambda ax: draw_tables(ax, {"scores": torch.tensor([[float("nan"), 0.5]])}))
    assert "nan" in [text.get_text() for text in ax.texts]
