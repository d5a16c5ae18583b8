"""The look of a projector: what bounds a surface or is a line can be told from its ground."""

import numpy as np
import pytest
import torch
from matplotlib.collections import Collection, LineCollection
from matplotlib.colors import to_hex, to_rgb, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

import flashlearn as fl
from flashlearn.show import draw, frame
from flashlearn.show.draw.style import COLOURS, TONES, contrast, outline_of, tint
from tests.slow import every, slow

X = torch.tensor([3.0, 2.0, 5.0, 1.0])
GROUNDS = ["white", COLOURS["HBM"], COLOURS["SRAM"]]


def tensors(N=12, D=4):
    generator = torch.Generator().manual_seed(94)
    return [torch.randn(1, 1, N, D, generator=generator) for _ in range(3)]


def tiled(version=fl.tiled_attention_v1_steps):
    return version(*tensors(), block_q=3, block_k=3, causal=True)


PICTURES = {
    "row": (lambda: fl.online_softmax_steps(X), draw.draw_row),
    "tiling, version 1": (tiled, draw.draw_tiling),
    "tiling, version 2": (lambda: tiled(fl.tiled_attention_v2_steps), draw.draw_tiling),
    "query": (lambda: fl.one_pass_attention_steps(*tensors()), draw.draw_query),
}


@pytest.fixture
def projected(monkeypatch):
    """The look that `projector()` sets, and the figures painted with it."""
    figures, thicken = [], frame.thicken
    monkeypatch.setattr(frame.look, "lines", 1.6)
    monkeypatch.setattr(frame.look, "scale", 1.5)
    monkeypatch.setattr(frame, "thicken", lambda fig: (thicken(fig), figures.append(fig)))
    return figures


def test_contrast_is_that_of_the_standard():
    assert contrast("black", "white") == pytest.approx(21) and contrast("white", "white") == 1
    assert contrast("#767676", "white") == pytest.approx(4.54, abs=0.01), "the lightest grey for text"
    assert contrast("white", "#0072B2") == contrast("#0072B2", "white")


@pytest.mark.parametrize("name", [name for name in COLOURS if name not in ("HBM", "masked", "SRAM")])
def test_tints_are_too_pale_and_their_outlines_are_not(name):
    """The reason for the outlines: a tint alone cannot be told from white by everybody."""
    assert contrast(tint(name, TONES["pale"])) < 1.3
    for ground in GROUNDS:
        assert contrast(outline_of(tint(name, TONES["pale"])), ground) >= 3
    assert to_hex(outline_of("#0072B2")) == "#0072b2", "what is dark enough stays"


@pytest.mark.parametrize("name", every(2, PICTURES))
def test_every_surface_and_line_has_a_contrast_of_three(projected, name):
    steps, painter = PICTURES[name]
    runs = frame.as_runs(steps())
    for number in (1, len(runs[""]) // 2, len(runs[""]) - 1):
        frame.paint(runs, number, painter, (12.8, 5.0))
        seen = list(inks(projected[-1]))
        assert len(seen) > 5
        assert [ink for ink, _ in seen if min(contrast(ink, ground) for ground in GROUNDS) < 3] == []
    monochrome = [ink for ink, coloured in seen if not coloured]
    assert len(monochrome) < len(seen), "some of them are coloured surfaces"


def inks(fig):
    """(ink, whether of a coloured surface): what bounds every coloured surface, and what every line is drawn in."""
    for artist in fig.findobj(lambda artist: isinstance(artist, (Line2D, Patch, Collection))):
        if not artist.get_visible():
            continue
        widths = np.atleast_1d(artist.get_linewidth())
        if isinstance(artist, (Line2D, LineCollection)):
            colours = to_rgba_array(artist.get_color())
            yield from ((tuple(ink[:3]), False) for ink, width in cycled(colours, widths) if width >= 1)
            continue
        faces, edges = to_rgba_array(artist.get_facecolor()), to_rgba_array(artist.get_edgecolor())
        edges = edges if len(edges) else np.zeros((1, 4))
        for face, edge, width in cycled(faces, edges, widths):
            if max(face[:3]) - min(face[:3]) > 0.02 and face[3] == 1:
                bounded = edge[3] == 1 and width >= 1
                dark = contrast(face[:3]) >= 3 and not (bounded and contrast(edge[:3]) >= 3)
                yield tuple((face if dark or not bounded else edge)[:3]), True


def cycled(*lists):
    most = max(map(len, lists))
    return [tuple(each[n % len(each)] for each in lists) for n in range(most)]


@pytest.mark.parametrize("name", ["Q", slow("V")])
def test_a_pale_matrix_has_an_edge_on_the_painted_pixels(projected, name):
    """From its tint to the ground of HBM on the left, there is a pixel that stands out from both."""
    runs = frame.as_runs(tiled())
    pixels = np.asarray(frame.paint(runs, 3, draw.draw_tiling, (12.8, 5.0))) / 255
    rows, cols = np.nonzero(np.abs(pixels - np.array(tint(name, TONES["pale"]))).max(-1) < 0.004)
    row = int(np.median(rows))
    left = cols[rows == row].min()
    between = [tuple(pixel) for pixel in pixels[row, left - 12 : left]]
    assert contrast(tint(name, TONES["pale"]), COLOURS["HBM"]) < 1.3
    assert (
        max(min(contrast(pixel, tint(name, TONES["pale"])), contrast(pixel, COLOURS["HBM"])) for pixel in between) >= 3
    )


def test_a_plot_is_bounded_too(monkeypatch, projected):
    """The edges of its bars change the picture, beside what thicker lines do."""

    def bars():
        return fl.show.picture(lambda ax: ax.bar([1, 2], [3, 4], color="#56B4E9"), alt="two bars").projected()

    bounded = bars()
    monkeypatch.setattr(frame, "_outline", lambda surface: None)
    assert bars() != bounded


def test_greys_and_thin_lines_stay():
    """Grounds, hatching, and the lines between cells are as they were."""
    fig = Figure()
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    (bar,) = ax.bar([1], [1], color=COLOURS["HBM"])
    (line,) = ax.plot([1, 2], color="#D5D5D5", linewidth=0.7)
    (thick,) = ax.plot([1, 2], color="#56B4E9", linewidth=2)
    frame.thicken(fig)
    assert bar.get_facecolor()[:3] == pytest.approx(to_rgb(COLOURS["HBM"])) and line.get_color() == "#D5D5D5"
    assert contrast("#56B4E9") < 3 <= contrast(tuple(thick.get_color())[:3])


def test_a_dark_line_on_a_broad_grey_one_is_seen():
    fig = Figure()
    ax = fig.add_axes((0, 0, 1, 1))
    (broad,) = ax.plot([1, 2], color="#C4C4C4", linewidth=12)
    (dark,) = ax.plot([1, 2], color="#1A1A1A", linestyle="--")
    frame.thicken(fig)
    grey, black = (tuple(line.get_color())[:3] for line in (broad, dark))
    assert contrast(grey) >= 3 and contrast(grey, black) >= 3


def test_on_is_a_truth_value():
    with pytest.raises(TypeError, match="expected on to be True or False, got 'no'"):
        fl.projector("no")
    assert frame.look.lines == 1
