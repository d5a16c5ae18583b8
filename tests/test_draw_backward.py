"""Pictures of the backward pass and of a Jacobian: every step can be painted, and shows what the step says."""

import pytest
import torch

import flashlearn as fl
from flashlearn.core.signs import number
from flashlearn.show.draw import draw_backward, draw_jacobian
from tests.drawing import sound
from tests.slow import across, slow


def recorded(N_q=12, N_k=12, D=2, H_q=1, H_kv=1, B=1, *, block_q=3, block_k=3, causal=True, fused=False, phase=None):
    generator = torch.Generator().manual_seed(0)
    q, do = (torch.randn(B, H_q, N_q, D, generator=generator) for _ in range(2))
    k, v = (torch.randn(B, H_kv, N_k, D, generator=generator) for _ in range(2))
    options = {"block_q": block_q, "block_k": block_k, "causal": causal}
    o, lse = fl.tiled_attention_v2(q, k, v, **options, return_lse=True)
    steps = fl.tiled_attention_backward_steps(do, q, k, v, o, lse, **options, fused=fused)
    return fl.record(s for s in steps if phase in (None, s.phase))


PROBLEMS = (
    {},
    {"causal": False},
    {"N_q": 7, "N_k": 5, "D": 3, "block_q": 2, "block_k": 4},  # two queries see no key
    {"N_q": 1, "N_k": 40, "D": 8, "block_k": 16},
    {"N_q": 0, "N_k": 4},
    {"N_q": 4, "N_k": 0},
    {"H_q": 4, "H_kv": 2, "B": 2},
    {"N_q": 64, "N_k": 96, "D": 64, "block_q": 32, "block_k": 32},
)
PAINTED = across(PROBLEMS[:-2], [False, True]) + [
    slow(problem, fused) for problem in PROBLEMS[-2:] for fused in (False, True)
]


@pytest.mark.parametrize("problem, fused", PAINTED, ids=str)
def test_every_step_can_be_painted(problem, fused):
    run = recorded(**problem, fused=fused)
    for narrow in (False, True):
        scenes = [draw_backward(step, narrow=narrow) for step in run[:: max(1, len(run) // 6)] + run[-1:]]
        assert len({(sound(scene, usual="D" not in problem, apart=4).width, scene.height) for scene in scenes}) == 1


@pytest.mark.parametrize("narrow", [slow(False), slow(True)])
def test_no_text_is_clipped_and_no_names_overlap(narrow):
    for phase in ("dK and dV", "dQ", "delta"):
        for step in recorded(phase=phase):
            sound(draw_backward(step, narrow=narrow))


def test_transposes_are_named():
    step = recorded(phase="dK and dV")[4]
    shown = draw_backward(step).texts()
    assert {"S = Q Kᵀ", "dV += Pᵀ dO", "dP = dO Vᵀ", "dK += dSᵀ Q"} <= set(shown)
    assert {"Kᵀ ▼", "Vᵀ ▼", "dKᵀ", "dVᵀ", "Q ▼", "dO ▼", "dQ"} <= set(shown)
    assert {"S = Q Kᵀ", "dP = dO Vᵀ", "dQ += dS K"} <= set(draw_backward(recorded(phase="dQ")[4]).texts())
    diagonals = draw_backward(step).shapes("", edge="paper")
    assert len(diagonals) == 4, "one for each transposed factor"


def test_what_is_read_and_written_gets_an_arrow():
    first, second = recorded(phase="dK and dV")[:2]
    assert "Kᵀ ▼" in draw_backward(first).texts() and "Kᵀ ▼" not in draw_backward(second).texts()
    last_of_column = recorded(phase="dK and dV")[3]
    assert {"dKᵀ ▲", "dVᵀ ▲"} <= set(draw_backward(last_of_column).texts())
    assert "dQ ▼▲" in draw_backward([s for s in recorded(fused=True) if s.values.get("j") == 0][1]).texts()


def test_bytes_are_those_of_the_step():
    run = recorded(phase="dQ")
    read, written = fl.hbm_bytes(run[:3])
    shown = draw_backward(run[2]).texts()
    assert f"▼ read {read:,} B" in shown and f"▲ written {written:,} B" in shown


def test_ticks_count_what_is_final():
    run = recorded(phase="dQ")
    ticks = [draw_backward(step).texts().count("✓") for step in run]
    assert ticks[0] == 0 and ticks == sorted(ticks) and ticks[-1] == 3  # the fourth is being written


def test_masked_and_never_visited_are_told_apart_only_where_there_are_any():
    causal, full = (draw_backward(recorded(causal=c, phase="dQ")[0]).texts() for c in (True, False))
    assert {"masked", "never visited"} <= set(causal)
    assert not {"masked", "never visited"} & set(full)


def test_hatched_is_what_the_mask_hides():
    """A cell is hatched if it is masked in a block that is visited, or in a block that is not."""
    for fused in (False, True):
        scene = draw_backward(recorded(fused=fused)[-1])
        (frame,) = (shape.rect for shape in scene.shapes(edge="hatch") if shape.look.dashed)
        for r in range(12):
            for c in range(12):
                x, y = frame.x + (c + 0.5) * frame.w / 12, frame.y + (r + 0.5) * frame.h / 12
                hatched = [shape.rect for shape in scene.shapes(hatched=True)]
                inside = any(at.x < x < at.right and at.y < y < at.bottom for at in hatched)
                assert inside == (c > r), (r, c)


# the Jacobian


def contraction(m=4, n=3):
    generator = torch.Generator().manual_seed(0)
    return fl.record(fl.contract_steps(torch.randn(m, generator=generator), torch.randn(m, n, generator=generator)))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (4, 3), slow(6, 6), (12, 6), slow(40, 30), (3, 0), (0, 3)])
def test_jacobian_of_any_size(m, n):
    for step in contraction(m, n):
        for narrow in (False, True):
            sound(draw_jacobian(step, narrow=narrow), usual=m < 20)


def test_infinities_of_a_jacobian_are_shown():
    J = torch.tensor([[1.0, float("inf")], [-float("inf"), float("nan")]])
    for step in fl.record(fl.contract_steps(torch.ones(2), J)):
        assert {"∞", "−∞", "NaN"} <= set(draw_jacobian(step).texts())


def test_nan_of_a_jacobian_is_hatched_and_named_and_what_is_not_there_yet_is_not():
    J = torch.tensor([[1.0, float("nan"), 2.0], [1.0, 3.0, 2.0]])
    run = fl.record(fl.contract_steps(torch.ones(2), J))
    assert [draw_jacobian(step).texts().count("NaN") for step in run] == [2, 5, 3, 3]
    assert "NaN" not in draw_jacobian(contraction()[0]).texts(), "not in the key either"
    for step, hatched in ((run[0], True), (contraction()[0], False)):
        assert bool(draw_jacobian(step).shapes(hatched=True)) == hatched


def test_jacobian_shows_the_sum_of_the_current_column():
    step = contraction()[1]
    J, dy = step.values["J"][:, 1], step.values["dy"]
    shown = draw_jacobian(step).texts()
    assert "J: 4 × 3 = 12 numbers" in shown
    assert f"dx[1] = {number((J * dy).sum().item(), 3)}" in shown


@pytest.mark.parametrize("narrow", [False, True])
def test_jacobian_names_its_vectors_as_the_steps_do(narrow):
    usual, named = (
        fl.record(fl.contract_steps(torch.ones(3), torch.eye(3), *names)) for names in ((), (("dp", "ds"),))
    )
    for a, b in zip(usual, named, strict=True):
        expected = [text.replace("dy", "dp").replace("dx", "ds") for text in draw_jacobian(a, narrow=narrow).texts()]
        assert draw_jacobian(b, narrow=narrow).texts() == expected
        assert any(text.startswith("ds") for text in expected)


def test_dx_fills_in_as_it_goes():
    steps = contraction()
    for step in steps[:3]:
        shown = draw_jacobian(step).texts()
        for i, value in enumerate(steps[-1].output.tolist()):
            assert (f"dx[{i}] = {number(value, 3)}" in shown) == (i == step.values["i"])
