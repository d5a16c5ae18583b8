"""The pictures of masks: blocks are those of the steps, cells those of the mask, numbers those of the tables."""

import itertools
from functools import partial

import pytest
import torch

import flashlearn as fl
from flashlearn.core.mask import Mask
from flashlearn.show.draw import draw_reach, draw_tables, draw_visits
from flashlearn.show.draw.masks import visited
from tests.drawing import sound

Q, K, V = torch.randn(3, 1, 2, 10, 4, generator=torch.Generator().manual_seed(17)).unbind(0)
WINDOWS = {"causal": (None, 0), "window (2, 0)": (2, 0), "window (1, 3)": (1, 3)}
RUNS = {
    name: fl.record(fl.tiled_attention_v2_steps(Q, K, V, window=window, block_q=3, block_k=4))
    for name, window in WINDOWS.items()
}
MASKS = {name: Mask(10, 10, *window).visible((0, 10), (0, 10)) for name, window in WINDOWS.items()}
TABLE = torch.tensor([[0.25, -1.0], [2.0, -float("inf")]])


def cells_of(scene, at=0, n=10, **look):
    """Which cells of a panel the shapes of this look cover, as the scene has them."""
    frames = [shape.rect for shape in scene.shapes("", edge="quiet") if shape.rect and shape.rect.w > 60]
    x, y, w, h = frames[at]
    found = [[False] * n for _ in range(n)]
    for r, c in itertools.product(range(n), range(n)):
        middle, down = x + (c + 0.5) * w / n, y + (r + 0.5) * h / n
        rects = [shape.rect for shape in scene.shapes(**look)]
        found[r][c] = any(rect.x < middle < rect.right and rect.y < down < rect.bottom for rect in rects)
    return found


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
    assert draw_visits(RUNS, MASKS).texts().count("9 blocks") == 1


def fl_spans(block):
    return [(start, min(start + block, 10)) for start in range(0, 10, block)]


def test_a_block_that_was_not_visited_is_not_shown_as_visited():
    run = [step for step in RUNS["causal"] if step.values.get("j") != 1]
    assert len(visited(run)) < len(visited(RUNS["causal"]))
    whole, less = (
        sum(map(sum, cells_of(draw_visits({"causal": each}, MASKS), face="masked"))) for each in (RUNS["causal"], run)
    )
    assert less > 1.2 * whole


def test_cells_that_are_seen_have_the_colour_of_scores_and_no_others():
    scene = draw_visits({"window (1, 3)": RUNS["window (1, 3)"]}, MASKS)
    assert cells_of(scene, face="S") == MASKS["window (1, 3)"].tolist()
    hatched = cells_of(scene, hatched=True)
    assert hatched == (~MASKS["window (1, 3)"]).tolist()


def test_reach_says_how_many_the_last_output_depends_on():
    shown = draw_reach({"one": MASKS["window (2, 0)"], "two": MASKS["causal"]}).texts()
    assert {"last output: 3", "last output: 10", "one", "two"} <= set(shown)


def test_tables_have_their_numbers_their_sinks_and_their_sums():
    shown = draw_tables({"scores": TABLE}).texts()
    assert {"0.2", "−1.0", "2.0"} <= set(shown) and not any("∞" in word for word in shown), "hatched"
    weights = torch.tensor([[0.25, 0.5]])
    shown = draw_tables({"P": weights, "Q": weights}, {"Q": torch.tensor([0.125])}, sums=True).texts()
    assert shown.count("Σ 0.75") == 2 and shown.count("sink") == 1 and shown.count("0.12") == 1


@pytest.mark.parametrize(
    "plot",
    [
        partial(draw_visits, RUNS, MASKS),
        partial(draw_reach, MASKS),
        partial(draw_tables, {name: torch.rand(6, 6) for name in "abc"}, {"b": torch.rand(6)}, sums=True),
    ],
)
def test_no_words_overlap_or_leave_the_picture(plot):
    for narrow in (False, True):
        sound(plot(narrow=narrow))


def test_what_does_not_fit_is_rejected():
    with pytest.raises(ValueError, match="expected up to 6 runs, each with a mask of its name"):
        draw_visits(RUNS, {"causal": MASKS["causal"]})
    with pytest.raises(ValueError, match="expected up to 6 runs"):
        draw_reach({})
    with pytest.raises(ValueError, match=r"expected up to three tables of at most 9 x 9, got \[\(10, 10\)\]"):
        draw_tables({"too large": torch.rand(10, 10)})


def test_a_mask_of_another_size_or_without_booleans_is_rejected():
    (name, run), mask = next(iter(RUNS.items())), MASKS["causal"]
    for size in (4, 12):
        message = (
            rf"expected a mask of the size of the scores of its run, got \({size}, {size}\) for a run of \(10, 10\)"
        )
        with pytest.raises(ValueError, match=message):
            draw_visits({name: run}, {name: torch.ones(size, size, dtype=torch.bool)})
    with pytest.raises(ValueError, match="for a run of no scores"):
        draw_visits({name: fl.record(fl.online_softmax_steps(Q[0, 0, 0]))}, {name: mask})
    for plot in (
        partial(draw_visits, {name: run}, {name: mask.float()}),
        partial(draw_reach, {"a": TABLE}),
    ):
        with pytest.raises(TypeError, match="expected masks as tensors of booleans, got torch.float32"):
            plot()


def test_only_minus_infinity_is_hatched_in_a_table():
    inf = float("inf")
    shown = draw_tables({"scores": torch.tensor([[inf, -inf], [1.0, 2.0]])}).texts()
    assert shown.count("∞") == 1 and shown.count("2.00") == 1
    shown = draw_tables({"hidden": torch.full((2, 2), -inf)}).texts()
    assert shown == ["hidden"]


def test_a_table_may_hold_what_is_no_number():
    shown = draw_tables({"scores": torch.tensor([[float("nan"), 0.5]])}).texts()
    assert "NaN" in shown
