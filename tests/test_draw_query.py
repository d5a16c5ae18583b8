"""The pictures of one query: all in them comes from the steps, and nothing is too slow or too small."""

import re

import pytest
import torch

import flashlearn as fl
from flashlearn.algorithms.projection import projection_steps
from flashlearn.core.mask import causal_mask
from flashlearn.core.signs import fixed
from flashlearn.show.draw import draw_converge, draw_masks, draw_projection, draw_query, draw_round_trip
from tests.drawing import sound
from tests.slow import across, slow

RUNS = {
    "two pass": lambda *qkv: fl.two_pass_attention_steps(*qkv),
    "two pass, recomputed": lambda *qkv: fl.two_pass_attention_steps(*qkv, recompute=True, block_k=4),
    "one pass": lambda *qkv: fl.one_pass_attention_steps(*qkv),
    "one pass, normalised": lambda *qkv: fl.one_pass_attention_steps(*qkv, normalised=True, block_k=3),
    "causal": lambda *qkv: fl.one_pass_attention_steps(*qkv, causal=True),
}
PAIRS = [  # and N_q, N_k, D
    ("two pass", (1, 10, 4)),
    ("one pass", (1, 10, 4)),
    ("one pass", (1, 1, 1)),
    ("one pass, normalised", (1, 11, 4)),
    ("causal", (3, 7, 2)),
]
LONGER = [("two pass", (1, 40, 64)), ("two pass, recomputed", (2, 12, 3))]


def inputs(N_q=1, N_k=10, D=4):
    generator = torch.Generator().manual_seed(49)
    return tuple(torch.randn(2, 1, n, D, generator=generator) for n in (N_q, N_k, N_k))


def texts(step, draw):
    return draw(step).texts()


def points(scene, id):
    """The heights of a line."""
    return [y for _, y in scene[id].rings[0]]


@pytest.mark.parametrize(
    "pair, draw",
    across(PAIRS, [draw_query, draw_converge])
    + [slow(pair, draw) for pair in LONGER for draw in (draw_query, draw_converge)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_step_of_any_run_can_be_painted_and_read(pair, draw):
    name, shape = pair
    steps = fl.record(RUNS[name](*inputs(*shape)))
    for narrow in (False, True):
        scenes = [draw(step, narrow=narrow) for step in (steps[0], steps[len(steps) // 2], steps[-2], steps[-1])]
        assert len({(sound(scene).width, scene.height) for scene in scenes}) == 1, "nothing jumps"


def test_scores_fill_in_and_stay_with_two_passes():
    steps = fl.record(fl.two_pass_attention_steps(*inputs()))
    for j in (0, 4, 9):
        assert f"scores on chip: {j + 1} of 10" in texts(steps[j], draw_query)
        assert "scores on chip: 10 of 10" in texts(steps[10 + j], draw_query)


def test_one_score_is_on_chip_with_one_pass():
    for step in fl.record(fl.one_pass_attention_steps(*inputs()))[:10:4]:
        assert "scores on chip: 1 of 10" in texts(step, draw_query)


@pytest.mark.parametrize("normalised, draw", across([False, True], [draw_query, draw_converge]))
def test_rescaling_is_marked_where_the_maximum_rises(draw, normalised):
    steps = fl.record(fl.one_pass_attention_steps(*inputs(), normalised=normalised))
    rises = 0
    for step in steps[:10]:
        alpha, factor = (step.values[name][0, 0, 0, 0].item() for name in ("alpha", "factor"))
        marks = [text for text in texts(step, draw) if f"× {factor:.4f}".rstrip("0") in text]
        if 0 < alpha < 1:
            rises += 1
            assert marks
            assert draw is draw_converge or f"old ℓ × {alpha:.4f}".rstrip("0") in texts(step, draw)
        elif draw is draw_query:
            assert not any("old ℓ" in text for text in texts(step, draw))
    assert rises == 3


def test_picture_shows_the_numbers_of_the_step():
    step = fl.record(fl.one_pass_attention_steps(*inputs()))[4]
    shown = " ".join(texts(step, draw_query)).replace("−", "-")
    for name in ("m_i", "l_i"):
        assert f"{step.values[name][0, 0, 0, 0].item():.4f}".rstrip("0") in shown
    for value in step.values["acc"][0, 0, 0].tolist():
        assert f"{value:.2f}".rstrip("0") in shown


@pytest.mark.parametrize("draw", [draw_query, draw_converge])
def test_what_is_summed_has_its_own_name(draw):
    steps = (
        fl.two_pass_attention_steps(*inputs()),
        *(fl.one_pass_attention_steps(*inputs(), normalised=n) for n in (False, True)),
    )
    for run, name in zip(steps, ("o", "acc", "o'"), strict=True):
        shown = set(texts(fl.record(run)[14 if name == "o" else 4], draw))
        assert name in shown and {"acc", "o'"} & shown == {name} - {"o"}


def test_sentence_of_a_normalised_step_says_what_was_scaled():
    quiet = fl.record(fl.one_pass_attention_steps(*inputs(), normalised=True))[1:10]
    quiet = [step for step in quiet if step.values["alpha"][0, 0, 0, 0] == 1]
    assert quiet
    for step in quiet:
        factor = step.values["factor"][0, 0, 0, 0].item()
        assert 0 < factor < 1 and f"the old o' is scaled by ℓ_old / ℓ_new = {factor:.4f}" in step.sentence
        assert f"old o' × {factor:.4f}".rstrip("0") in texts(step, draw_query)
        assert "nothing is rescaled" not in step.sentence
    plain = fl.record(fl.one_pass_attention_steps(*inputs()))[1:10]
    assert any("nothing is rescaled" in step.sentence for step in plain)


def test_converge_ends_on_the_answer():
    steps = fl.record(fl.one_pass_attention_steps(*inputs(D=1)))
    scene = draw_converge(steps[-1])
    answer = f"o = {steps[-1].output[0, 0, 0, 0].item():.4f}".rstrip("0").replace("-", "−")
    assert answer in scene.texts()
    (dashed,) = scene.shapes("", edge="quiet", width=1.2)
    assert points(scene, "way0")[-1] == pytest.approx(dashed.rings[0][0][1])
    assert len(points(scene, "way0")) == 11  # ten keys, then o


def test_converge_shows_how_every_number_was_made():
    """Of values of one number: l and acc (or o') are the sums that are written below them."""
    for normalised, name in ((False, "acc"), (True, "o'")):
        steps = fl.record(fl.one_pass_attention_steps(*inputs(D=1), normalised=normalised))
        for step in (steps[0], steps[1], steps[4], steps[9]):
            shown = [words[2:].replace("−", "-") for words in texts(step, draw_converge) if words.startswith("= ")]
            made = [eval(words.replace("×", "*")) for words in shown]
            assert made == pytest.approx([step.values[at][0, 0, -1, -1].item() for at in ("l_i", name)], abs=2e-3)
    assert not any(words.startswith("= ") for words in texts(fl.record(RUNS["one pass"](*inputs()))[4], draw_converge))


def test_converge_shows_what_acc_is_worth():
    q, k, v = inputs(D=1)
    steps = fl.record(fl.one_pass_attention_steps(q, k, v))
    scene, end = draw_converge(steps[6]), draw_converge(steps[-1])
    assert len(points(scene, "worth")) == len(points(scene, "way0")) == 7
    (dashed,) = end.shapes("", edge="quiet", width=1.2)
    assert points(end, "worth")[-1] == pytest.approx(dashed.rings[0][0][1], abs=1e-3), "after the last key: the answer"
    for line in (points(scene, "worth"), points(end, "worth"), points(end, "way0")):
        assert max(line) <= 290 and min(line) >= 80, "between the floor and the top"
    plain = fl.record(fl.one_pass_attention_steps(q, k, v, normalised=True))
    with pytest.raises(KeyError):
        draw_converge(plain[6])["worth"]


def test_names_of_answers_that_lie_close_are_apart():
    q, k, v = inputs()
    v[..., 1:] = v[..., :1] + torch.tensor([0.0, 0.001, -0.001])
    scene = sound(draw_converge(fl.record(fl.one_pass_attention_steps(q, k, v))[-1]))
    assert sum(words.startswith("o = ") for words in scene.texts()) == 4


def test_round_trip_shows_the_bytes_of_every_matrix_to_scale():
    n, d = 10, 4
    q, k, v = inputs(N_q=n)
    steps = fl.record(fl.standard_attention_steps(q, k, v))
    for number, there in enumerate(("QKS", "QKSSP", "QKSSPPVO", "QKSSPPVO")):
        scene = sound(draw_round_trip(steps[number]))
        sound(draw_round_trip(steps[number], narrow=True), apart=5)
        pipes = {item.id: item.rect for item in scene.walk() if item.id.startswith(("reads-", "writes-"))}
        assert len(pipes) == len(there)
        for id, rect in pipes.items():
            assert rect.w / pipes["reads-Q"].w == pytest.approx(n / d if id[-1] in "SP" else 1)
        sizes = [int(words.replace(",", "")) for words in scene.texts() if re.fullmatch(r"[\d,]+", words)]
        assert sum(sizes) == fl.hbm_bytes(steps[: number + 1]).total
    stored = [sum(words[-1:] == "▲" for words in draw_round_trip(step).texts() if words[0] in "SPO") for step in steps]
    assert stored == [1, 1, 1, 0]


def test_projection_fills_q_k_and_v_one_after_the_other():
    generator = torch.Generator().manual_seed(0)  # so that no two rows are alike with one digit
    x, *weights = torch.randn(1, 3, 4, generator=generator), *torch.randn(3, 4, 2, generator=generator)
    steps = fl.record(projection_steps(x[0], *weights))
    for step, made in zip(steps, ("Q", "QK", "QKV", "QKV"), strict=True):
        shown = sound(draw_projection(step)).texts()
        sound(draw_projection(step, narrow=True))
        for name, w in zip("QKV", weights, strict=True):
            row = [fixed(value, 1) for value in (x[0] @ w)[0].tolist()]
            assert (name in made) == all(words in shown for words in row), name
        assert len([words for words in shown if re.fullmatch(r"−?\d+\.\d", words)]) == 12 + 24 + 6 * len(made)
    for output, w in zip(steps[-1].output, weights, strict=True):
        torch.testing.assert_close(output, x[0] @ w)
    with pytest.raises(ValueError, match=r"expected x \(N, E\)"):
        fl.record(projection_steps(x[0], *weights[:2], torch.ones(3, 2)))


def test_masks_are_hatched_where_they_hide():
    scene = draw_masks({"a": causal_mask(3, 5), "b": causal_mask(1, 5)})
    size = scene.shapes("S")[0].rect.w / 3  # the first query attends to three keys
    hidden = sum(shape.rect.w * shape.rect.h for shape in scene.shapes("", hatched=True) if shape.rect.h != 14)
    assert hidden == pytest.approx(int((~causal_mask(3, 5)).sum()) * size**2)
    with pytest.raises(ValueError, match=r"expected up to three masks of at most 10 x 11, got \[\(12, 12\)\]"):
        draw_masks({"too large": causal_mask(12, 12)})
    with pytest.raises(ValueError, match=r"expected up to three masks of at most 10 x 11, got \[\(3,\)\]"):
        draw_masks({"a row": causal_mask(3, 5)[:, 0]})
    with pytest.raises(TypeError, match=r"expected masks by their names, \{name: mask\}, got list"):
        draw_masks([causal_mask(3, 5)])
    for mask, got in ((torch.zeros(3, 5), "torch.float32"), ([[True]], "list")):
        with pytest.raises(TypeError, match=f"expected masks as tensors of booleans, got {got} for 'a'"):
            draw_masks({"a": mask})


@pytest.mark.parametrize("rows", [(10,), (10, 10), (10, 7, 2), (1, 10, 10)])
def test_masks_fit_the_picture(rows):
    for narrow in (False, True):
        sound(draw_masks({f"mask {at}": causal_mask(each, 11) for at, each in enumerate(rows)}, narrow=narrow))


@pytest.mark.parametrize(
    "x, error",
    [
        (torch.ones(3, 2, dtype=torch.int64), "float32 or float64"),
        ([[1.0]], "torch.Tensor"),
        (torch.ones(3, 2).double(), "one dtype"),
    ],
)
def test_projections_of_tokens_that_are_no_floats_are_rejected(x, error):
    with pytest.raises(TypeError, match=error):
        fl.record(projection_steps(x, *torch.ones(3, 2, 2)))
