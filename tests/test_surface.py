"""Frames painted one after the other on the same pixels are those that matplotlib paints afresh, byte for byte."""

import pytest
import torch
from matplotlib.backends.backend_agg import RendererAgg

import flashlearn as fl
from flashlearn.show.draw import draw_row, draw_tiling, surface
from flashlearn.show.frame import as_runs, drawn, look, paint, pixels

X = torch.tensor([3.0, 2.0, 5.0, 1.0])
Q, K, V = torch.randn(3, 1, 1, 4, 2, generator=torch.Generator().manual_seed(0)).unbind(0)
ROW = as_runs(fl.online_softmax_steps(X))
TILING = as_runs(fl.tiled_attention_v2_steps(Q, K, V, block_q=2, block_k=2))


def words(ax, step):
    """The same words everywhere: in other places, colours, sizes, directions, cut off, as a formula."""
    ax.set_axis_off()
    more = [{}, {"color": "red"}, {"x": 0.123}, {"fontsize": 9}, {"rotation": 30}, {"family": "monospace"}]
    more += [{"clip_on": True, "x": 0.97}, {"antialiased": False}, {"s": "$l_i^2$"}, {"s": "two\nlines"}, {"s": "l"}]
    ax.text(**{"x": 0.12, "y": 0.5, "s": "l = 1.5", **more[step.number % len(more)]})


WORDS = as_runs([fl.Step(sentence=str(n)) for n in range(24)])
EVERY = [(ROW, draw_row), (TILING, draw_tiling), (WORDS, words)]


def painted(runs, draw, size=(6.4, 2.5)):
    return [paint(runs, number, draw, size).tobytes() for number in range(len(runs[""]))]


@pytest.mark.parametrize("scale", (1.0, 1.5))
@pytest.mark.parametrize(("runs", "draw"), EVERY, ids=["row", "tiling", "words"])
def test_frames_are_those_of_matplotlib(runs, draw, scale, monkeypatch):
    monkeypatch.setattr(look, "scale", scale)
    ours = [painted(runs, draw), painted(runs, draw)]  # once with letters that are new, once with those that are kept
    monkeypatch.setattr(surface, "_pixels", lambda width, height, dpi, thread: RendererAgg(width, height, dpi))
    fresh = painted(runs, draw)
    assert ours == [fresh, fresh] and len(set(fresh)) > 4


def test_words_are_rendered_once_in_each_place_and_look(monkeypatch):
    rendered, draw_text = [], RendererAgg.draw_text

    def noted(self, gc, x, y, s, *args, **how):
        rendered.append(s)
        return draw_text(self, gc, x, y, s, *args, **how)

    monkeypatch.setattr(RendererAgg, "draw_text", noted)
    surface._pixels.cache_clear()
    for _ in range(3):
        paint(WORDS, 0, words, (3.0, 1.0))
    assert rendered == ["l = 1.5"]
    paint(WORDS, 1, words, (3.0, 1.0))  # red
    assert rendered == ["l = 1.5"]
    paint(WORDS, 2, words, (3.0, 1.0))  # somewhere else
    assert rendered == ["l = 1.5"] * 2


def test_words_are_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(surface, "MOST", 3)
    surface._pixels.cache_clear()
    for number in (0, 2, 3, 4, 5):
        paint(WORDS, number, words, (3.0, 1.0))
    kept = drawn(WORDS, 0, words, (3.0, 1.0)).get_renderer()._seen
    assert len(kept) == 2


@pytest.mark.parametrize("scale", (1.0, 1.5))
def test_frames_painted_in_turns_are_those_painted_alone(scale, monkeypatch):
    """Between the halves of one frame another can be painted."""
    monkeypatch.setattr(look, "scale", scale)
    alone = [paint(ROW, number, draw_row, (12.8, 5.0)).tobytes() for number in (0, 5)]
    first = drawn(ROW, 0, draw_row, (12.8, 5.0))
    assert paint(ROW, 5, draw_row, (12.8, 5.0)).tobytes() == alone[1]
    assert paint(WORDS, 5, words, (6.4, 2.5)).width == 640 * scale
    assert pixels(first).tobytes() == alone[0] != alone[1]
