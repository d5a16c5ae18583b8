"""Pictures of tiles: whatever is recorded can be painted, and what is painted is what the step says."""

import timeit
from functools import partial

import pytest
import torch

import flashlearn as fl
from flashlearn.core.inputs import Sizes
from flashlearn.core.signs import fixed
from flashlearn.core.steps import Step, Tile
from flashlearn.show.draw import (
    budget_step,
    draw_budget,
    draw_matmul,
    draw_tiling,
    scene_of,
)
from flashlearn.show.draw.style import index
from tests.drawing import sound
from tests.slow import across, every, slow


def qkv(N_q=12, N_k=12, D=4, H=1, H_kv=1, seed=94):
    generator = torch.Generator().manual_seed(seed)
    shapes = (1, H, N_q, D), (1, H_kv, N_k, D), (1, H_kv, N_k, D)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def texts(step, draw=draw_tiling, **how):
    return scene_of(partial(draw, **how), step).texts()


def names(tiles):
    return {tile.name for tile in tiles}


def area(scene, face, tone=""):
    """How many pixels have the colour of this role, in HBM, on chip and outside."""
    return sum(shape.rect.w * shape.rect.h for shape in scene.shapes(face, tone=tone) if shape.rect)


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


@pytest.mark.parametrize("version, problem, narrow", across(VERSIONS, PROBLEMS, [False, True]))
def test_any_run_can_be_painted(version, problem, narrow):
    sizes, options = PROBLEMS[problem]
    run = fl.record(VERSIONS[version](*qkv(**sizes), **options))
    scenes = [draw_tiling(step, narrow=narrow) for step in (run[0], run[len(run) // 2], run[-1])]
    for scene in scenes:
        assert "S: never stored" in sound(scene, apart=4).texts()
        assert (scene.width, scene.height) == (scenes[0].width, scenes[0].height), "nothing jumps"


@pytest.mark.parametrize("version", VERSIONS)
def test_names_shapes_and_bytes_are_those_of_the_step(version):
    run = fl.record(VERSIONS[version](*qkv(N_q=11), block_q=4, block_k=3))
    step = next(step for step in run if step.values.get("i") == 2 and step.values["j"] == 1)
    shown = texts(step)
    traffic = fl.hbm_bytes(step.so_far)
    assert f"▼ read {traffic.read:,} B" in shown and f"▲ written {traffic.written:,} B" in shown
    assert f"+{fl.hbm_bytes([step]).read:,}" in shown
    assert f"{sum(tile.nbytes for tile in step.on_chip):,} B" in shown
    names = {"v1": {"Q₂ ▼", "K₁ᵀ", "V₁", "S₂₁", "O₂ ▼▲"}, "v2": {"Q₂", "K₁ᵀ ▼", "V₁ ▼", "S₂₁", "acc₂"}}
    assert names[version] <= set(shown)
    assert {"3×4", "4×3", "3×3"} <= set(shown)  # the last block of Q has three rows
    assert {"8", "9", "10"} <= set(shown)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("version", [slow("v1"), "v2"])
def test_rescaling_is_marked_with_its_factor(version, narrow):
    run = fl.record(VERSIONS[version](*qkv(), block_q=3, block_k=3))
    marked = 0
    for step in run:
        scene = draw_tiling(step, narrow=narrow)
        shown = scene.texts()
        white = {item.text for item in scene.words() if item.text.startswith("×") and item.type.role == "paper"}
        if "m_old" not in step.values:
            assert not white
            continue
        old, new, factor = (step.values[name].flatten() for name in ("m_old", "m_i", "factor"))
        risen = (new > old) & old.isfinite()
        assert white == {f"×{value:.2f}" for value in factor[risen].tolist()}
        assert shown.count("start") == int(old.isinf().sum())
        assert all(fixed(value, 2) in shown for value in (*new.tolist(), *step.values["l_i"].flatten().tolist()))
        marked += bool(white)
    assert marked >= 4


def test_rows_of_the_table_are_those_of_the_block_of_queries():
    q, k, v = torch.randn(3, 1, 1, 9, 4, generator=torch.Generator().manual_seed(1))
    for steps in (fl.tiled_attention_v1_steps, fl.tiled_attention_v2_steps):
        for step in (step for step in fl.record(steps(q, k, v, block_q=3, block_k=3)) if "rows" in step.values):
            named = [text for text in draw_tiling(step, narrow=True).texts() if text.startswith("row ")]
            assert named == [f"row {row}" for row in range(*step.values["rows"])]


def test_numbers_inside_tiles_if_they_fit():
    run = fl.record(fl.tiled_attention_v2_steps(*qkv(), block_q=3, block_k=3))
    acc = [fixed(value, 1) for value in run[5].values["acc"].flatten().tolist()]
    assert set(acc) <= set(texts(run[5]))
    assert not set(acc) <= set(texts(run[5], narrow=True))


def test_scores_stay_in_sight_beside_many_columns():
    """Eight tokens of 128 columns, as in notebook 06: drawn as wide as they are they leave no room for S."""
    Q, K, V = (t[0, 0] for t in qkv(8, 8, 128))
    run = fl.record(fl.tiled_qkv_steps(Q, K, V, block_q=2, block_k=2))
    scene = draw_tiling(run[6])
    assert scene["S-now"].rect.w >= 20 and scene["S-now"].rect.h >= 20
    assert {"Kᵀ 128×8 ▼", "8×128", "2×128"} <= set(scene.texts())
    assert "Q" in texts(fl.record(fl.tiled_qkv_steps(*(t[0, 0] for t in qkv(8, 8, 32)), block_q=2, block_k=2))[6])


def test_what_is_on_chip_has_its_colour_in_both_memories():
    run = fl.record(fl.tiled_attention_v2_steps(*qkv(D=4), block_q=3, block_k=3))
    done = draw_tiling(run[-1])
    for name in "QKV":
        assert area(draw_tiling(run[2]), name) > area(done, name) + 2000
    assert area(done, "Q") == 0, "nothing is on chip at the end"


def cells(scene, grid_at, **look):
    """The cells of S that shapes of this look cover: of 12 × 12, as the scene has them."""
    x, y, w, h = grid_at
    found = [[False] * 12 for _ in range(12)]
    for shape in scene.shapes(**look):
        for r in range(12):
            for c in range(12):
                left, top = x + (c + 0.5) * w / 12, y + (r + 0.5) * h / 12
                inside = shape.rect.x < left < shape.rect.right and shape.rect.y < top < shape.rect.bottom
                found[r][c] |= inside
    return found


def place_of_scores(scene):
    """Where S is: the one matrix with a dashed frame."""
    (frame,) = (shape for shape in scene.shapes(edge="hatch") if shape.look.dashed)
    return frame.rect


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
    """In the pictures of both versions; pictures show the first sequence."""
    options, blocks = SEEN[name], {"block_q": 3, "block_k": 4}
    q, k, v = (torch.cat([t, t + 1]) for t in qkv())
    sight = {key: value for key, value in options.items() if key not in ("softcap", "alibi", "sinks")}
    visible = fl.Mask.of(Sizes(2, 1, 1, 12, 12, 4), **sight).visible((0, 12), (0, 12))
    hidden = (~visible.expand(2, 1, 12, 12)[0, 0]).tolist()
    for steps in VERSIONS.values():
        run = fl.record(steps(q, k, v, **options, **blocks))
        scene = draw_tiling(run[-1])
        assert cells(scene, place_of_scores(scene), hatched=True) == hidden
        assert "masked" in texts(run[-2])


def test_never_visited_and_masked_cells_are_told_apart():
    causal = fl.record(fl.tiled_attention_v2_steps(*qkv(), block_q=4, block_k=3, causal=True))
    plain = fl.record(fl.tiled_attention_v2_steps(*qkv(), block_q=4, block_k=3))
    assert {"masked", "never visited"} <= set(texts(causal[0]))
    assert not {"masked", "never visited"} & set(texts(plain[0]))
    scene = draw_tiling(causal[0])
    never = cells(scene, place_of_scores(scene), face="masked")
    block = [[r // 4 * 4 + 3 < c // 3 * 3 for c in range(12)] for r in range(12)]
    assert never == block, "whole blocks whose first key comes after their last query"


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
    scene = sound(draw_tiling(steps[1]))
    assert area(scene, "S") > 1000 and area(scene, "O") > 1000 and area(scene, "m") > 100


def test_only_the_head_of_the_step_is_drawn():
    shapes = {"Q": (1, 2, 4, 4), "K": (1, 2, 4, 4), "V": (1, 2, 4, 4), "S": (1, 2, 4, 4), "O": (1, 2, 4, 4)}
    tiles = [Tile("O", ((0, 1), (h, h + 1), (0, 4), (0, 4)), 4) for h in (0, 1)]
    steps = [Step(sentence="", phase="kernel", shapes=shapes, writes=(tile,)) for tile in tiles]
    first, second = (texts(step).count("✓") for step in fl.record(steps))
    assert first == second == 1


def test_runs_share_a_scale_of_bytes():
    run = fl.record(fl.tiled_attention_v2_steps(*qkv(), block_q=3, block_k=3))
    full = max(fl.hbm_bytes(run))
    alone, halved = (draw_tiling(run[-1], full=to)["bytes0-before"].rect.w for to in (None, 2 * full))
    assert alone == pytest.approx(2 * halved)


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
        assert {"by elements", "by blocks", "A₀₀", "B₁₃", "C₁₃"} <= set(shown)
    shown = texts(run[7], draw_matmul)
    assert {"A₀₁ ▼", "B₁₃ ▼", "acc₀₃", "4×2", "2×2", "A ▼", "C ▲"} <= set(shown)
    assert fixed(run[7].values["acc"][0, 0].item(), 2) in shown
    ragged = fl.record(fl.tiled_matmul_steps(torch.ones(5, 7), torch.ones(7, 3), block_m=2, block_n=2, block_k=4))
    for step in ragged[::2] + ragged[-1:]:
        for narrow in (False, True):
            sound(draw_matmul(step, narrow=narrow), apart=4)


def test_budget_shows_what_fits():
    good, bad = budget_step(3, 4, 3, 59), budget_step(3, 5, 3, 59)
    assert "needed: 54 elements, they fit" in texts(good, draw_budget)
    assert "needed: 63 elements, 4 too many: they do not fit" in texts(bad, draw_budget)
    assert {"Q", "3×3", "3×5", "SRAM: 59 elements"} <= set(texts(bad, draw_budget))
    for blocks in ((1, 1, 1, 5), (64, 64, 128, 40000)):
        sound(draw_budget(budget_step(*blocks), narrow=True))


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


def test_small_helpers():
    assert index(2, 1) == "₂₁" and index(12, 1) == "₁₂,₁" and index(3) == "₃"
    assert [fixed(value, 1) for value in (-0.04, 1.0, -2.26, float("-inf"))] == ["0.0", "1.0", "−2.3", "−∞"]


@pytest.mark.parametrize(
    "options", [{"block_q": 3, "block_k": 3, "causal": True}, {"block_q": 8, "block_k": 4}], ids=str
)
def test_text_stays_inside_the_picture(options):
    for version in VERSIONS.values():
        step = fl.record(version(*qkv(16, 16), **options))[4]
        for narrow in (False, True):
            sound(draw_tiling(step, narrow=narrow, capacity=100), apart=4)


def test_a_usual_frame_takes_few_milliseconds():
    """Some 8 on an idle machine; here as many as a busy one may take."""
    step = fl.record(fl.tiled_attention_v2_steps(*qkv(16, 16), block_q=4, block_k=4, causal=True))[7]
    assert min(timeit.repeat(lambda: draw_tiling(step).svg(), number=1, repeat=5)) < 0.05


# --- what fits, standard attention, tiles on their way -----------------------------------------------------------


def test_the_bar_of_what_fits_counts_tiles_and_not_m_and_l():
    run = fl.record(fl.tiled_attention_v2_steps(*qkv(), block_q=3, block_k=3))
    shown = {step.number: texts(step, capacity=59) for step in run}
    assert fl.sram_elements(3, 3, 4) == 57
    assert f"{57} of 59 elements" in shown[0] and not any(words.endswith("B on chip") for words in shown[0])
    assert "0 of 59 elements" in shown[len(run) - 1], "at the end nothing is on chip"
    assert draw_tiling(run[0], capacity=59)["fill-Q"].rect.w > 0


@pytest.mark.parametrize("narrow", [False, True])
def test_standard_attention_stores_s_and_then_p(narrow):
    run = fl.record(fl.standard_attention_steps(*qkv(), causal=True))
    shown = [texts(step, capacity=59, narrow=narrow) for step in run]
    for words, moves in zip(shown, ("S ▲", "S ▼  P ▲", "P ▼", "P"), strict=True):
        assert moves in words and "whole matrices: no tile is kept" in words
        assert "S: never stored" not in words and "S, P: stored in HBM" in words
    traffic = fl.hbm_bytes(run)
    assert f"▼ read {traffic.read:,} B" in shown[-1] and f"▲ written {traffic.written:,} B" in shown[-1]


@pytest.mark.parametrize("version", VERSIONS)
def test_tiles_say_where_they_come_from(version):
    """What this step read comes from its rows in HBM, and K from its columns."""
    run = fl.record(VERSIONS[version](*qkv(), block_q=3, block_k=3))
    step = next(step for step in run if any(tile.name == "Q" for tile in step.reads))
    scene = draw_tiling(step)
    read = names(step.reads) & {"Q", "K", "V", "O"}
    for name in read:
        assert scene[f"chip-{name}"].came == scene[f"read-{name}"].rect
    outer = "K" if version == "v1" else "Q"
    kept = next(step for step in run if "Q" in names(step.on_chip) and outer not in names(step.reads))
    assert draw_tiling(kept)[f"chip-{outer}"].came is None


def test_s_is_a_place_outside_hbm_unless_it_is_stored():
    tiled = fl.record(fl.tiled_attention_v2_steps(*qkv(), block_q=3, block_k=3))[2]
    assert len(draw_tiling(tiled)["hbm"].rings) == 2, "the ground of HBM has a hole"
    assert len(draw_tiling(fl.record(fl.standard_attention_steps(*qkv()))[1])["hbm"].rings) == 1
