"""Every picture given every other picture's steps: it paints them, or it says what it expected and what came."""

import itertools

import pytest
import torch
from matplotlib.figure import Figure

import flashlearn as fl
from flashlearn.cost import race
from flashlearn.gpu import layout_steps, pipeline_steps, program_steps
from flashlearn.gpu.overlap import overlap_steps
from flashlearn.show import draw, play
from tests.slow import every

X = torch.tensor([3.0, 2.0, 5.0, 1.0])
Q, K, V, DO = torch.randn(4, 1, 1, 6, 3, generator=torch.Generator().manual_seed(2))
BLOCKS = {"block_q": 3, "block_k": 2}
O, LSE = fl.tiled_attention_v2(Q, K, V, return_lse=True, **BLOCKS)

RUNS = {
    "row": fl.online_softmax_steps(X),
    "tree": fl.merge_tree_steps(X, 2),
    "query": fl.one_pass_attention_steps(Q[:, :, :1], K, V),
    "matmul": fl.tiled_matmul_steps(Q[0, 0], K[0, 0].T, block_m=2, block_n=2, block_k=2),
    "tiling": fl.tiled_attention_v2_steps(Q, K, V, **BLOCKS),
    "backward": fl.tiled_attention_backward_steps(DO, Q, K, V, O, LSE, **BLOCKS),
    "jacobian": fl.contract_steps(X, torch.randn(4, 4)),
    "traffic": race({"A": fl.standard_attention_steps(Q, K, V)}, 4),
    "strides": layout_steps(X.view(2, 2)),
    "programs": program_steps(10, 4),
    "pipeline": pipeline_steps(3, 2),
    "overlap": overlap_steps(2, ("in turn", "both"), product=2, softmax=3),
    "budget": [draw.budget_step(2, 2, 4, 59)],
}
RUNS = {name: fl.record(steps) for name, steps in RUNS.items()}
DRAWN_ALSO = {"converge": "query"}  # two pictures of the same steps
PICTURES = {name: getattr(draw, f"draw_{name}") for name in (*RUNS, *DRAWN_ALSO)}
FITS = {  # names in common
    ("row", "tree"),
    ("query", "tiling"),
    ("converge", "tiling"),
    ("tiling", "query"),
    ("tiling", "budget"),
}
EXPECTED = (
    "expected (a |the )?(step|steps) of .*, with .* in (its|their) (shapes|values|writes), got .* another picture's"
)


def paint(name, steps):
    for step in (steps[0], steps[len(steps) // 2], steps[-1]):
        PICTURES[name](Figure(figsize=(12.8, 5)).add_axes((0, 0, 1, 1)), step)


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_shows_its_own_steps(name):
    paint(name, RUNS[DRAWN_ALSO.get(name, name)])


@pytest.mark.parametrize("name", PICTURES)
def test_the_beginning_of_a_run_is_shown_too(name):
    """A run that was cut off before it wrote anything."""
    paint(name, fl.record(RUNS[DRAWN_ALSO.get(name, name)][:1]))


@pytest.mark.parametrize(
    ("name", "other"),
    every(3, [pair for pair in itertools.product(PICTURES, RUNS) if DRAWN_ALSO.get(pair[0], pair[0]) != pair[1]]),
)
def test_another_pictures_steps(name, other):
    if (name, other) in FITS:
        paint(name, RUNS[other])
    else:
        with pytest.raises(ValueError, match=EXPECTED):
            paint(name, RUNS[other])


def test_play_says_so():
    with pytest.raises(
        ValueError, match="expected a step of attention by tiles, with Q, K, V, O in its shapes, got x, y"
    ):
        play(RUNS["row"], draw.draw_tiling, alt="tiles")
