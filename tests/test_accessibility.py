"""What those need who cannot see colours, or pictures, or motion, or cannot use a mouse.

Contrast is computed as WCAG 2.2 does: 4.5 for text, 3 for the outlines of what must be told apart. The rest of
it is tested where it lives: heading order in test_notebooks.py, names and keys in a browser in tests/browser.
"""

import base64
import importlib.util
import io
import re
from html.parser import HTMLParser

import ipywidgets
import numpy as np
import pytest
import torch
from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text
from PIL import Image

import flashlearn as fl
from flashlearn.algorithms.own_scales import own_scales_steps
from flashlearn.algorithms.projection import projection_steps
from flashlearn.algorithms.softmax import uncorrected_sum_steps
from flashlearn.cost import race
from flashlearn.gpu import layout_steps, pipeline_steps, program_steps
from flashlearn.show import animation, draw, play, player
from flashlearn.show.draw.pipeline import draw_pipeline
from flashlearn.show.draw.programs import draw_programs
from flashlearn.show.draw.strides import draw_strides
from flashlearn.show.draw.style import COLOURS, INK, QUIET, STYLE
from flashlearn.show.explorers import backward_explorer, program_explorer, stride_explorer, tiling_explorer
from flashlearn.show.film import nearest
from flashlearn.show.frame import as_runs, paint
from flashlearn.show.still import Still
from tests.slow import every, slow
from tests.test_notebooks import every_notebook, pictures, read

VIEW = "application/vnd.jupyter.widget-view+json"
X = torch.tensor([3.0, 2.0, 5.0, 1.0])
Q, K, V, DO = torch.randn(4, 1, 1, 8, 4, generator=torch.Generator().manual_seed(2))
BLOCKS = {"block_q": 3, "block_k": 2, "causal": True}
O, LSE = fl.tiled_attention_v2(Q, K, V, return_lse=True, **BLOCKS)

PICTURES = {  # every picture of steps: how it is drawn, its steps, its size
    "row": (draw.draw_row, fl.online_softmax_steps(X), (12.8, 5.0)),
    "tree": (draw.draw_tree, fl.merge_tree_steps(torch.arange(16.0), 2), (12.8, 5.0)),
    "terms": (draw.draw_terms, fl.record(uncorrected_sum_steps(X))[:4], (6.4, 5.0)),
    "query": (draw.draw_query, fl.one_pass_attention_steps(Q[:, :, :1], K, V), (12.8, 5.6)),
    "converge": (draw.draw_converge, fl.one_pass_attention_steps(Q[:, :, :1], K, V), (12.8, 5.0)),
    "round trip": (draw.draw_round_trip, fl.standard_attention_steps(Q, K, V), (12.8, 5.0)),
    "projection": (draw.draw_projection, projection_steps(Q[0, 0], *torch.randn(3, 4, 2)), (12.8, 5.0)),
    "own scales": (draw.draw_own_scales, own_scales_steps(Q[:1, 0, 0], K[0, 0, :4], 2), (12.8, 5.0)),
    "matmul": (draw.draw_matmul, fl.tiled_matmul_steps(Q[0, 0], K[0, 0].T, block_m=4, block_n=2, block_k=2), (12.8, 5.6)),
    "tiling": (draw.draw_tiling, fl.tiled_attention_v2_steps(Q, K, V, **BLOCKS), (12.8, 5.5)),
    "tiling v1": (draw.draw_tiling, fl.tiled_attention_v1_steps(Q, K, V, **BLOCKS), (6.4, 4.4)),
    "walk": (draw.draw_walk, fl.tiled_attention_v1_lines(*(t[:, :, :5, :3] for t in (Q, K, V)), block_q=3, block_k=4), (12.8, 5.0)),
    "backward": (draw.draw_backward, fl.tiled_attention_backward_steps(DO, Q, K, V, O, LSE, **BLOCKS), (12.8, 6.2)),
    "jacobian": (draw.draw_jacobian, fl.contract_steps(X, torch.randn(4, 4)), (12.8, 5.2)),
    "traffic": (draw.draw_traffic, race({"A": fl.standard_attention_steps(Q, K, V),
                                         "B": fl.tiled_attention_v2_steps(Q, K, V, **BLOCKS)}, 8), (12.8, 5.0)),
    "launch": (draw_programs, program_steps(10, 4, H=2), (12.8, 4.6)),
    "strides": (draw_strides, layout_steps(torch.arange(12.0).reshape(3, 4)), (12.8, 4.6)),
    "pipeline": (draw_pipeline, pipeline_steps(4, 2), (12.8, 4.6)),
}  # fmt: skip
PICTURES = {name: (function, fl.record(steps), size) for name, (function, steps, size) in PICTURES.items()}
every_picture = pytest.mark.parametrize("name", PICTURES)
some_pictures = pytest.mark.parametrize("name", every(2, PICTURES))
other_pictures = pytest.mark.parametrize("name", [*every(3, list(PICTURES)[1:]), slow(next(iter(PICTURES)))])


def luminance(colour):
    """Relative luminance (WCAG) of colours, in the last dimension red, green and blue from 0 to 1."""
    part = np.asarray(colour, dtype=float)
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    light, dark = np.maximum(luminance(one), luminance(other)), np.minimum(luminance(one), luminance(other))
    return (light + 0.05) / (dark + 0.05)


some_steps = pytest.mark.parametrize("places", ["middle", slow("four")])


def steps_at(name, places):
    """Numbers of steps: that in the middle, or those at the start, in the middle and at the end."""
    steps = PICTURES[name][1]
    wanted = {len(steps) // 2} if places == "middle" else {0, 1, len(steps) // 2, len(steps) - 1}
    return sorted(wanted & set(range(len(steps))))


def on_axes(name, number):
    """A figure with one step drawn on it, and its canvas."""
    function, steps, size = PICTURES[name]
    with style.context(STYLE):
        fig = Figure(figsize=size, dpi=100)
        canvas = FigureCanvasAgg(fig)
        draw.paint(function, fig.add_axes((0, 0, 1, 1)), steps[number])
    return fig, canvas


def pixels_of(canvas):
    with style.context(STYLE):
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].astype(int)


# --- colours -----------------------------------------------------------------------------------------------


def test_contrast_is_that_of_wcag():
    assert contrast(to_rgb("white"), to_rgb("black")) == pytest.approx(21)
    assert contrast(to_rgb("#777777"), to_rgb("white")) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("ground", ["white", COLOURS["HBM"], COLOURS["SRAM"], COLOURS["masked"]])
@pytest.mark.parametrize("ink", [INK, QUIET])
def test_text_can_be_read_on_every_ground(ink, ground):
    assert contrast(to_rgb(ink), to_rgb(ground)) >= 4.5


@pytest.mark.parametrize("ground", ["white", *COLOURS.values()])
def test_outlines_can_be_seen(ground):
    """What is read or written now is framed in ink; matrices and memories are framed in QUIET on their grounds."""
    assert contrast(to_rgb(INK), to_rgb(ground)) >= 3
    if ground in ("white", COLOURS["HBM"], COLOURS["SRAM"]):
        assert contrast(to_rgb(QUIET), to_rgb(ground)) >= 3


@some_steps
@some_pictures
def test_text_stands_out_from_what_lies_behind_it(name, places):
    """Measured on the pixels: a colour that fills a fifth of what lies behind a text counts."""
    for number in steps_at(name, places):
        fig, canvas = on_axes(name, number)
        texts = [text for text in fig.findobj(Text) if text.get_visible() and text.get_text().strip()]
        canvas.draw()
        boxes = [text.get_window_extent() for text in texts]
        for text in texts:
            text.set_visible(False)
        behind = pixels_of(canvas)
        for text, box in zip(texts, boxes, strict=True):
            top, bottom = (round(behind.shape[0] - y) for y in (box.y1, box.y0))
            part = behind[max(top, 0) : bottom, max(round(box.x0), 0) : round(box.x1)].reshape(-1, 3)
            packed, counts = np.unique(part @ [1 << 16, 1 << 8, 1], return_counts=True)
            common = packed[counts >= 0.2 * len(part)][:, None] // [1 << 16, 1 << 8, 1] % 256 / 255
            worst = min((contrast(to_rgb(text.get_color()), colour) for colour in common), default=21)
            assert worst >= 4.5, f"step {number}: {text.get_text()!r} has a contrast of {worst:.1f}"


@pytest.mark.parametrize("shown", [3, slow(None)])
@other_pictures
def test_every_step_can_be_told_from_the_one_before_without_colours(name, shown):
    """In grey, and without its text: at least 30 pixels change by an eighth of the range from black to white."""
    function, steps, size = PICTURES[name]
    grey = [
        np.asarray(paint({"": steps}, number, function, size).convert("L")).astype(int)
        for number in range(len(steps))[:shown]
    ]
    for number, (before, now) in enumerate(zip(grey, grey[1:], strict=False)):
        assert (abs(now - before) > 32).sum() >= 30, f"step {number + 1} looks like the one before"


def test_the_states_of_scores_differ_without_colours():
    """Done, now, masked and never visited: by grey, by hatching and by a frame."""
    fig, canvas = on_axes("tiling", 4)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("L")
    looks = []
    for words in ("done", "now", "masked", "never visited"):
        text = next(text for text in fig.findobj(Text) if text.get_text() == words)
        box = text.get_window_extent()
        swatch = picture.crop(
            (round(box.x0) - 36, round(picture.height - box.y1), round(box.x0) - 8, round(picture.height - box.y0))
        )
        looks.append(np.asarray(swatch.resize((23, 20))).astype(int))
    for place, one in enumerate(looks):
        for other in looks[:place]:
            assert (abs(one - other) > 24).mean() > 0.1


@some_steps
@every_picture
def test_shapes_have_outlines_that_can_be_seen(name, places):
    """Tints are pale; what bounds them is not. Lines thinner than a pixel between cells are no outlines."""
    for number in steps_at(name, places):
        fig, _ = on_axes(name, number)
        for shape in fig.findobj(lambda artist: isinstance(artist, (Patch, PolyCollection))):
            edges, widths = np.atleast_2d(shape.get_edgecolor()), np.atleast_1d(shape.get_linewidth())
            for edge, width in zip(edges, np.resize(widths, len(edges)), strict=True):
                if width >= 0.8 and edge[3] > 0 and shape is not fig.patch:
                    assert min(contrast(edge[:3], to_rgb(g)) for g in ("white", COLOURS["SRAM"])) >= 3, (shape, edge)


@pytest.mark.parametrize("name", ["row", "query", "matmul", "tiling", "tiling v1", "backward"])
def test_what_moves_is_named(name):
    """Every matrix of which a tile is on chip stands in the picture with its name."""
    for number in steps_at(name, "four"):
        step = PICTURES[name][1][number]
        fig, _ = on_axes(name, number)
        said = " ".join(text.get_text() for text in fig.findobj(Text))
        for tile in (*step.reads, *step.writes):
            label = {"x": "x", "delta": "δ", "m_i": "m", "l_i": "ℓ"}.get(tile.name, tile.name)
            assert label.lower() in said.lower(), f"step {number}: {tile.name} is nowhere named"


# --- words -------------------------------------------------------------------------------------------------


@every_notebook
def test_alt_text_says_what_the_picture_shows(path):
    seen = [re.sub(r"^\[[^\]]*\] ", "", alt) for _, alt in pictures(read(path))]
    for alt in seen:
        assert len(alt.split()) >= 6, alt
        assert not re.match(r"(?i)(an? )?(image|picture|figure|plot|animation) of\b", alt), alt
    assert len(set(seen)) == len(seen), "two pictures with the same words"


class Cells(HTMLParser):
    """Counts tags, and collects the text of a table."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.words = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words += data


@pytest.fixture
def without_frames():
    """Only the still of an animation is painted."""
    animation.reduced_motion()
    yield
    animation.reduced_motion(False)


def test_an_animation_has_a_transcript_and_a_table(without_frames):
    steps = fl.record(fl.online_softmax_steps(X))
    shown = play(steps, draw.draw_row, alt="Four bars & a sum")
    page = Cells(shown.in_words())
    assert page.tags.count("tr") == len(steps) + 1 and page.tags.count("th") == 5
    assert {"details", "summary", "caption"} <= set(page.tags) and "Four bars & a sum" in page.words
    for step in steps:
        assert step.sentence in page.words
    assert "m_i = 5, l_i = 1.1851" in page.words


def test_the_table_of_two_runs_names_them(without_frames):
    runs = {"safe": fl.safe_softmax_steps(X), "online": fl.online_softmax_steps(X)}
    page = Cells(play(runs, draw.draw_row, alt="both").in_words())
    assert page.words.count("safe") == 13 and page.words.count("online") == 9 and page.tags.count("th") == 6


def test_a_still_picture_is_one_output_whose_image_has_the_words(monkeypatch):
    shown = []
    monkeypatch.setattr(animation, "display", lambda data, **more: shown.append((data, more["metadata"])))
    animation.picture(lambda ax: ax.plot([1, 2]), alt="A line that rises", figsize=(2, 1))._ipython_display_()
    ((data, metadata),) = shown
    assert set(data) == {"image/png", "text/plain", VIEW} and metadata["image/png"]["alt"] == "A line that rises"
    widget = ipywidgets.widget._instances[data[VIEW]["model_id"]]
    assert (widget.alt, widget.width, base64.b64encode(widget.png).decode()) == (
        "A line that rises",
        200,
        data["image/png"],
    )


def test_a_projected_still_is_larger_and_thicker_and_comes_back(monkeypatch, capsys):
    shown = animation.picture(lambda ax: ax.plot([1, 2]), alt="A line that rises", figsize=(2, 1))
    widget = Still(shown.projected, shown.alt, shown.size[0])
    fl.projector()
    try:
        assert Image.open(io.BytesIO(widget.png)).size == (300, 150)
        assert Still(shown.projected, shown.alt, shown.size[0]).png == widget.png, "one that is made then, too"
    finally:
        fl.projector(False)
    assert widget.png == shown.png


@pytest.mark.parametrize("asked", ["", "1"])
def test_reduced_motion_may_be_asked_for_before_python_starts(monkeypatch, asked):
    monkeypatch.setenv("FLASHLEARN_REDUCED_MOTION", asked)
    spec = importlib.util.spec_from_file_location("started_anew", animation.__file__)
    anew = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(anew)
    assert anew.moving() is not bool(asked)


@pytest.mark.slow
def test_reduced_motion_gives_the_still_and_the_words(monkeypatch):
    steps = fl.record(fl.online_softmax_steps(X))
    moving = play(steps, draw.draw_row, alt="bars", still=2)
    animation.reduced_motion()
    frames = []
    monkeypatch.setattr(player, "paint", lambda *a, **how: frames.append(paint(*a, **how)) or frames[-1])
    try:
        still = play(steps, draw.draw_row, alt="bars", still=2)
    finally:
        animation.reduced_motion(False)
    image = Image.open(io.BytesIO(still.png))
    assert not getattr(image, "is_animated", False)
    assert len(frames) == 1, "the still alone: the player shows scenes"
    assert (np.asarray(image) == np.asarray(frames[0])).all()
    stands = Image.open(io.BytesIO(moving.png))
    palette = np.array(stands.getpalette()).reshape(-1, 3)  # that of all frames
    assert (nearest(frames[0], palette) == np.asarray(stands)).all()
    assert still.in_words() == moving.in_words() and repr(still) == repr(moving)


# --- widgets -----------------------------------------------------------------------------------------------

WIDGETS = {
    "tiling": tiling_explorer,
    "strides": stride_explorer,
    "programs": program_explorer,
    "backward": backward_explorer,
    "backward, one row": lambda: backward_explorer(view="one row"),
}


@pytest.mark.parametrize("name", WIDGETS)
def test_every_control_has_a_name(name):
    """explorer.js labels every control with it; tests/browser/test_explorer.py looks for the labels."""
    widget = WIDGETS[name]()
    assert all(control["label"].strip() and control["help"].strip() for control in widget.controls)
    assert "Step 1 of" in widget.run["captions"][0] and widget.run["alt"] == widget.alt


def test_what_renderers_without_widgets_show():
    """The stored bundle, which VS Code, a code host or a plain page fall back on: a still and words."""
    for make in WIDGETS.values():
        widget = make()
        bundle = widget._repr_mimebundle_()
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        assert {"image/png", "text/plain"} <= set(data) and widget.alt in data["text/plain"]


@pytest.mark.slow
def test_projected_pictures_are_larger_and_their_lines_thicker():
    from flashlearn.show.frame import look

    steps = as_runs(fl.online_softmax_steps(X))
    plain = paint(steps, 0, draw.draw_row, (12.8, 5.0))
    fl.projector()
    try:
        thick = paint(steps, 0, draw.draw_row, (12.8, 5.0))
    finally:
        fl.projector(False)
    assert (look.scale, look.lines) == (1.0, 1.0)
    assert thick.size == (1920, 720)  # a scene has a shape of its own
    dark = [(np.asarray(shown.convert("L")) < 110).mean() for shown in (plain, thick)]
    assert dark[1] > 1.1 * dark[0]
