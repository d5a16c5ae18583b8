"""Scenes: what is added is what is drawn, as SVG and on axes; and painters of every kind can be called."""

import itertools
import subprocess
import sys
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import pytest
import torch

import flashlearn as fl
from flashlearn.show.draw import draw_row, draw_tiling
from flashlearn.show.draw.letters import pieces, width
from flashlearn.show.draw.scene import Grid, Rect, Scene, blocks_of, hole, paint, scene_of, short
from flashlearn.show.draw.style import DARK_TONES, ROLES, TONES, contrast, rgb, stylesheet
from tests.drawing import painted, sound

X = torch.tensor([3.0, 2.0, 5.0, 1.0])
STEPS = fl.record(fl.online_softmax_steps(X))


def elements(scene, name, **about):
    root = ET.fromstring(scene.svg("words", **about))
    return [element for element in root.iter() if element.tag.split("}")[-1] == name]


def test_scenes_need_nothing_but_python():
    """As in a page, where there is no NumPy and no matplotlib."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
for name in ("numpy", "matplotlib", "IPython", "anywidget", "ipywidgets", "PIL", "torch"):
    sys.modules[name] = None
import types
package = types.ModuleType("flashlearn")  # its own file wants Triton's interpreter
package.__path__ = [sys.path[0] + "/flashlearn"]
sys.modules["flashlearn"] = package
from flashlearn.show.draw.scene import Scene
scene = Scene(100, 50)
scene.rect((0, 0, 10, 10), "Q")
scene.text(20, 20, "l = 1")
assert "ℓ = 1" in scene.svg()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_neighbours_that_look_alike_are_one_element():
    scene = Scene(100, 100)
    for at in range(5):
        scene.rect((10 * at, 0, 10, 10), "Q")
    scene.rect((0, 20, 10, 10), "Q", id="alone")
    scene.rect((0, 40, 10, 10), "K")
    assert len(elements(scene, "path")) == 2 and len(elements(scene, "rect")) == 1
    assert elements(scene, "path")[0].get("d").count("M") == 5


@pytest.mark.parametrize("look", [("q",), ("Q", "dark"), ("Q", "Q"), ("Q", "", "hbm_edge")])
def test_a_look_that_there_is_not(look):
    """It would be black in a page."""
    with pytest.raises(ValueError, match="expected roles among Q, K, .* and a tone among pale, .*, got "):
        Scene(10, 10).rect((0, 0, 5, 5), *look)


def test_layers_cover_each_other_whatever_the_order():
    scene = Scene(100, 100)
    scene.outline((0, 0, 10, 10), id="frame")
    scene.text(5, 5, "words")
    scene.rect((0, 0, 10, 10), "Q", id="tile")
    svg = scene.svg()
    assert svg.index("tile") < svg.index("words") < svg.index("frame")


def test_what_is_raised_and_lowered():
    scene = Scene(200, 100)
    scene.text(10, 50, "e^{3−5} = x_{2}", 20)
    assert scene.texts() == ["e3−5 = x2"]
    spans = elements(scene, "tspan")
    assert [span.text for span in spans] == ["3−5", " = x", "2"]
    assert sum(float(span.get("dy")) for span in spans[:2]) == pytest.approx(0)
    assert [piece.text for piece in pieces("{a} ^b")] == ["{a} ^b"]


def test_letters_are_as_wide_as_those_of_the_widest_face():
    from matplotlib.font_manager import findfont
    from matplotlib.ft2font import FT2Font

    font = FT2Font(findfont("DejaVu Sans"))
    font.set_size(10, 72)
    for words in ("Step 3 of 9", "read 1,024 B · written 0 B", "K₁ᵀ ▼", "m_old − m", "×0.66", "never visited"):
        font.set_text(words, 0)
        assert width(words, 10) == pytest.approx(font.get_width_height()[0] / 64, rel=0.06)


def test_an_address_in_the_page_is_the_callers():
    scene = Scene(100, 100)
    scene.hatch((0, 0, 50, 50), "masked")
    assert 'id="p3-hatch"' in scene.svg(key="p3") and "url(#p3-hatch)" in scene.svg(key="p3")
    assert "pattern" not in Scene(10, 10).svg()
    assert scene.shapes("masked") and scene.shapes(hatched=True)


def test_words_of_a_page_cannot_break_the_markup():
    scene = Scene(300, 100)
    scene.text(10, 10, 'a < b & "c"', id='"x"')
    assert elements(scene, "text")[0].text == 'a < b & "c"'
    assert ET.fromstring(scene.svg('"<&>"')).get("aria-label") == '"<&>"'


def test_a_file_of_its_own_says_its_colours():
    text = draw_row(STEPS[2]).svg("bars", standalone=True)
    assert "xmlns=" in text and "<style>" in text and "var(" not in text
    ET.fromstring(text)


def test_what_moves_says_where_from():
    q, k, v = torch.randn(3, 1, 1, 8, 4, generator=torch.Generator().manual_seed(0)).unbind(0)
    step = next(s for s in fl.record(fl.tiled_attention_v2_steps(q, k, v, block_q=4, block_k=4)) if s.reads)
    scene = draw_tiling(step)
    group = scene["chip-Q"]
    assert group.came and group.came != group.at
    assert any(element.get("data-from") for element in elements(scene, "g"))
    with pytest.raises(KeyError):
        scene["no such thing"]


def test_both_kinds_of_painters_and_those_of_students():
    def of_a_student(ax, step):
        ax.text(0.5, 0.5, step.phase)

    scene = Scene(10, 10)
    assert scene_of(lambda step: scene, STEPS[0]) is scene
    assert scene_of(of_a_student, STEPS[0]) is None
    assert scene_of(partial(draw_row, narrow=True), STEPS[0]).width == 360
    assert scene_of(draw_row, STEPS[0], narrow=True).width == 360
    assert [text.get_text() for text in painted(of_a_student, STEPS[0]).texts] == [STEPS[0].phase]
    with pytest.raises(TypeError, match="to return a Scene, got NoneType"):
        scene_of(lambda step: None, STEPS[0])


def test_axes_show_the_words_of_the_scene_and_keep_its_shape():
    ax = painted(draw_row, STEPS[2])
    shown = {text.get_text() for text in ax.texts}
    plain = {item.text for item in draw_row(STEPS[2]).words() if len(item.pieces) == 1}
    assert plain <= shown
    wide, high = (abs(a - b) for a, b in (ax.get_xlim(), ax.get_ylim()))
    assert wide / high == pytest.approx(1280 / 500)
    with pytest.raises(TypeError, match="expected axes to draw on, got Step"):
        draw_row(STEPS[2]).axes(STEPS[2])
    assert painted(draw_row, STEPS[2], size=(4, 5)).get_xlim()[1] < 500, "narrow axes get the narrow layout"


def test_words_can_be_read_on_their_grounds():
    for at in (0, 1):
        for ground in ("hbm", "sram", "blank"):
            for words in ("ink", "quiet", "m-text"):
                assert contrast(ROLES[words][at], ROLES[ground][at]) >= 4.5, (words, ground, at)
        for face in "KVOSm":
            assert contrast(ROLES["on"][at], ROLES[face][at]) >= 4.5, (face, at)
        for face, tone, ground in itertools.product(
            "QKVOSm", (TONES, DARK_TONES)[at].values(), ("blank", "hbm", "sram")
        ):
            both = zip(*(rgb(ROLES[name][at]) for name in (face, ground)), strict=True)
            mixed = tuple(tone * a + (1 - tone) * b for a, b in both)
            assert contrast(ROLES["ink"][at], mixed) >= 4.5, (face, tone, ground, at)
        assert contrast(ROLES["on-Q"][at], ROLES["Q"][at]) >= 4.5
        assert contrast(ROLES["paper"][at], ROLES["ink"][at]) >= 4.5


def test_every_role_has_its_colour_in_the_stylesheet():
    text = stylesheet()
    assert all(text.count(pair[0]) >= 1 and text.count(pair[1]) >= 1 for pair in ROLES.values())
    assert "var(" not in stylesheet(plain=True)


def test_blocks_of_covers_exactly_the_true_cells():
    generator = torch.Generator().manual_seed(0)
    for density in (0.0, 0.2, 0.8, 1.0):
        mask = (torch.rand(9, 7, generator=generator) < density).tolist()
        seen = [[0] * 7 for _ in range(9)]
        for (r0, r1), (c0, c1) in blocks_of(mask):
            for r in range(r0, r1):
                for c in range(c0, c1):
                    seen[r][c] += 1
        assert seen == [[int(cell) for cell in row] for row in mask]
    assert len(blocks_of([[True] * 4] * 5)) == 1
    assert blocks_of([[False] * 3] * 3) == []


def test_small_helpers():
    assert Grid(10, 20, 4, 3, 5, 6).rect((1, 3), (0, 2)) == (10, 26, 10, 12)
    assert [short(value) for value in (1.0, 1.25, -0.04, 100)] == ["1", "1.2", "0", "100"]
    assert hole(Rect(0, 0, 2, 1))[0] == (0, 1)
    assert sound(Scene(10, 10)).texts() == []
    paint(lambda ax, step: None, painted(draw_row, STEPS[0]), STEPS[0])


def test_frames_cover_groups_on_axes_too():
    scene = Scene(100, 100)
    scene.outline((0, 0, 50, 50))
    with scene.group("tile", Rect(0, 0, 50, 50)):
        scene.rect((0, 0, 50, 50), "Q")
        scene.text(10, 10, "word")
    ax = painted(lambda step: scene, STEPS[0])
    (frame,) = (patch for patch in ax.patches if patch.get_linewidth() > 0)
    assert all(frame.get_zorder() > other.get_zorder() for other in (*ax.texts, *ax.patches) if other is not frame)
