"""Every picture given every run of the course: it paints it, or it says what it expected and what came."""

import inspect
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import pytest
import torch
from matplotlib.figure import Figure

import flashlearn as fl
from flashlearn.algorithms.own_scales import own_scales_steps
from flashlearn.algorithms.projection import projection_steps
from flashlearn.algorithms.softmax import uncorrected_sum_steps
from flashlearn.core.steps import Step
from flashlearn.cost import race
from flashlearn.cost.sectors import sector_steps
from flashlearn.gpu import layout_steps, pipeline_steps, program_steps
from flashlearn.gpu.overlap import overlap_steps
from flashlearn.ring import ring_attention_steps
from flashlearn.serving import Batch, PagePool, batch_steps
from flashlearn.show import draw, play
from flashlearn.simulator.barriers import Flip, Task
from flashlearn.simulator.simulated import Run, timeline_steps
from tests.drawing import sound
from tests.slow import every

X = torch.tensor([3.0, 2.0, 5.0, 1.0])
Q, K, V, DO = torch.randn(4, 1, 1, 6, 3, generator=torch.Generator().manual_seed(2))
ONE = Q[:, :, :1]  # query
BLOCKS = {"block_q": 3, "block_k": 2}
O, LSE = fl.tiled_attention_v2(Q, K, V, return_lse=True, **BLOCKS)
P = torch.softmax(X, -1)
PAGES = K[0].reshape(3, 1, 2, 3), V[0].reshape(3, 1, 2, 3), torch.tensor([[2, 0, 1]]).int(), torch.tensor([5]).int()
TASKS = [Task("load", "copy", "K0 to k_tile[0]", 0, 8), Task("consume 0", "product", "k_tile", 8, 9)]


def served() -> Iterable[Step]:
    batch = Batch(PagePool(4, 2, 1, 4), lambda tokens, ragged: [0] * len(ragged.lengths))
    return batch_steps(batch, {0: {"A": ([1, 2, 3], 2)}})


RUNS = {
    "naive": lambda: fl.naive_softmax_steps(X),
    "safe": lambda: fl.safe_softmax_steps(X),
    "online": lambda: fl.online_softmax_steps(X),
    "uncorrected": lambda: uncorrected_sum_steps(X),
    "blocked": lambda: fl.blocked_softmax_steps(X, 2),
    "tree": lambda: fl.merge_tree_steps(X, 2),
    "standard": lambda: fl.standard_attention_steps(Q, K, V),
    "two pass": lambda: fl.two_pass_attention_steps(ONE, K, V, block_k=2),
    "one pass": lambda: fl.one_pass_attention_steps(ONE, K, V),
    "normalised": lambda: fl.one_pass_attention_steps(ONE, K, V, normalised=True),
    "matmul": lambda: fl.tiled_matmul_steps(Q[0, 0], K[0, 0].T, block_m=2, block_n=2, block_k=2),
    "qkv": lambda: fl.tiled_qkv_steps(Q[0, 0], K[0, 0], V[0, 0], **BLOCKS),
    "own scales": lambda: own_scales_steps(X[None], K[0, 0, :4], 2),
    "projection": lambda: projection_steps(Q[0, 0], *K[0, 0, :3, :, None].expand(3, 3, 2)),
    "v1": lambda: fl.tiled_attention_v1_steps(Q, K, V, **BLOCKS),
    "v1 in lines": lambda: fl.tiled_attention_v1_lines(Q, K, V, **BLOCKS),
    "v2": lambda: fl.tiled_attention_v2_steps(Q, K, V, **BLOCKS),
    "without numbers": lambda: draw.without_numbers(fl.tiled_attention_v2_steps(Q, K, V, **BLOCKS)),
    "paged": lambda: fl.paged_attention_steps(ONE, *PAGES),
    "backward": lambda: fl.tiled_attention_backward_steps(DO, Q, K, V, O, LSE, **BLOCKS),
    "fused": lambda: fl.tiled_attention_backward_steps(DO, Q, K, V, O, LSE, **BLOCKS, fused=True),
    "gradients": lambda: fl.attention_backward_steps(DO, Q, K, V),
    "softmax backward": lambda: fl.softmax_backward_steps(X, P),
    "a row backward": lambda: (
        replace(step, values={**step.values, "S": X}) for step in fl.softmax_backward_steps(X, P)
    ),
    "matmul backward": lambda: fl.matmul_backward_steps(K[0, 0], Q[0, 0], Q[0, 0, :3]),
    "contraction": lambda: fl.contract_steps(X, X.expand(4, 4)),
    "ring": lambda: ring_attention_steps(Q, K, V, P=2, order="zigzag", do=DO),
    "batch": served,
    "race": lambda: race({"A": fl.standard_attention_steps(Q, K, V)}, 4),
    "layout": lambda: layout_steps(X.view(2, 2)),
    "programs": lambda: program_steps(10, 4),
    "pipeline": lambda: pipeline_steps(3, 2),
    "overlap": lambda: overlap_steps(2, ("one warpgroup", "two warpgroups, product ahead"), product=2, softmax=3),
    "barriers": lambda: timeline_steps({"A": Run(TASKS, [Flip("full[0]", 0, 8)], 9)}),
    "sectors": lambda: sector_steps([1, 2]),
    "budget": lambda: [draw.budget_step(2, 2, 4, 59)],
}
OWN = {"backward_chip": "backward", "converge": "one pass", "gradient_row": "a row backward", "jacobian": "contraction"}
OWN |= {"own_scales": "own scales", "pages": "batch", "query": "one pass", "round_trip": "standard", "row": "online"}
OWN |= {
    "strides": "layout",
    "sums": "backward",
    "terms": "online",
    "tiling": "v2",
    "traffic": "race",
    "walk": "v1 in lines",
}
OWN |= {
    name: name for name in "backward barriers budget gradients matmul overlap pipeline programs projection ring".split()
}
OWN |= {name: name for name in ("sectors", "tree")}  # a picture and its own run
LOOPS = ("two pass", "normalised", "v1", "v1 in lines", "v2")
FITS = {  # other runs that have what a picture looks for
    "backward": ("fused", "ring"),
    "backward_chip": ("fused",),
    "converge": (*LOOPS, "paged"),
    "query": ("standard", *LOOPS, "ring"),
    "round_trip": ("ring",),
    "row": ("naive", "safe", "uncorrected", "blocked", "tree"),
    "sums": ("fused",),
    "terms": ("uncorrected",),
    "tiling": ("standard", "one pass", "qkv", "without numbers", "ring", "budget", "paged", *LOOPS[:-1]),
}
EXPECTED = "expected (a |the )?(step|steps) of .*, with .* in (its|their) (shapes|values|writes|phases), got .* another picture's"


def takes_a_step(name):
    taken = list(inspect.signature(getattr(draw, name)).parameters)
    return taken[:1] == ["step"] or taken[:2] == ["ax", "step"]


PICTURES = {
    name.removeprefix("draw_"): getattr(draw, name)
    for name in dir(draw)
    if name.startswith("draw_") and takes_a_step(name)
}


SCENES = [name for name, picture in PICTURES.items() if "narrow" in inspect.signature(picture).parameters]


@cache
def recorded(name):
    return fl.record(RUNS[name]())


def axes():
    return Figure(figsize=(12.8, 5)).add_axes((0, 0, 1, 1))


def paint(name, steps):
    for step in dict.fromkeys((steps[0], steps[len(steps) // 2], steps[-1])):
        if name in SCENES:
            for narrow in (False, True):
                sound(
                    PICTURES[name](step, narrow=narrow), usual=name != "gradients", apart=5
                )  # all numbers of six tokens
        draw.paint(PICTURES[name], axes(), step)


def test_there_is_a_run_for_every_picture():
    assert set(OWN) == set(PICTURES) and len(PICTURES) >= 27


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_shows_its_own_steps(name):
    paint(name, recorded(OWN[name]))


@pytest.mark.parametrize("name", PICTURES)
def test_the_beginning_of_a_run_is_shown_too(name):
    """A run that was cut off before it wrote anything."""
    paint(name, fl.record(recorded(OWN[name])[:1]))


@pytest.mark.parametrize(("name", "other"), every(3, [(name, other) for name in FITS for other in FITS[name]]))
def test_other_steps_with_all_that_is_looked_for_are_shown(name, other):
    paint(name, recorded(other))


@pytest.mark.parametrize("name", PICTURES)
def test_all_other_steps_are_rejected(name):
    for other in RUNS.keys() - {OWN[name], *FITS.get(name, ())}:
        with pytest.raises(ValueError, match=EXPECTED):
            paint(name, recorded(other))


@pytest.mark.parametrize("name", PICTURES)
def test_what_is_no_step_is_rejected(name):
    step = recorded(OWN[name])[0]
    if name in SCENES:
        for other in (axes(), None):
            with pytest.raises(TypeError, match=f"expected a step of .*, got {type(other).__name__}"):
                PICTURES[name](other)
        return
    with pytest.raises(TypeError, match="expected a step of .*, got Axes: are ax and step swapped?"):
        PICTURES[name](step, axes())
    with pytest.raises(TypeError, match="expected a step of .*, got NoneType"):
        PICTURES[name](axes(), None)
    with pytest.raises(TypeError, match="expected axes to draw on, got Figure"):
        PICTURES[name](Figure(), step)


@pytest.mark.parametrize(
    ("run", "picture", "message"),
    [
        ("online", "tiling", "a step of attention by tiles, with Q, K, V, O in its shapes, got x, y"),
        ("standard", "converge", "steps of a loop over keys, with acc or O in their values, got Q, K, V, S: "),
        ("qkv", "converge", r"a step of a loop over keys, with O, S of 4 dimensions in its shapes, got O \(6, 3\), S "),
        ("barriers", "overlap", "a step of overlapping units, with runs of Task in its values, got runs of Bar: "),
        ("gradients", "backward", "steps of the backward .*, with no S, P, dP, dS in their writes, got S, P, dV"),
        ("online", "ring", "a step of ring attention, with s, processes, .* in its values, got x, "),
    ],
)
def test_play_says_so(run, picture, message):
    with pytest.raises(ValueError, match=f"expected {message}.* another picture's"):
        play(recorded(run), PICTURES[picture], alt="another picture's")


def test_scores_on_chip_need_their_numbers():
    """A recorded kernel has tiles of S, and no values."""
    bare = [
        replace(step, values={name: value for name, value in step.values.items() if name != "S"})
        for step in recorded("v2")
    ]
    message = "expected steps of a loop over keys, with S of all keys on chip in their values, got none of key 0: "
    with pytest.raises(ValueError, match=message):
        paint("query", fl.record(bare))
