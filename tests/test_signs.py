"""The running sum is written ℓ and delta δ wherever people read it, by one function."""

import functools
import re
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.text import Text

import flashlearn as fl
from flashlearn.core.signs import signed
from flashlearn.show.draw import draw_query, draw_row, draw_tiling, draw_tree, paint
from tests.slow import every

X = torch.tensor([3.0, 2.0, 5.0, 1.0])
Q, K, V = torch.randn(3, 1, 1, 4, 2, generator=torch.Generator().manual_seed(0)).unbind(0)
PICTURES = {
    "row": (draw_row, fl.online_softmax_steps, (X,)),
    "tree": (draw_tree, fl.merge_tree_steps, (X, 1)),
    "query": (draw_query, fl.one_pass_attention_steps, (Q, K, V)),
    "tiling": (draw_tiling, functools.partial(fl.tiled_attention_v1_steps, block_q=2, block_k=2), (Q, K, V)),
}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("old l × 0.5, l = 2", "old ℓ × 0.5, ℓ = 2"),
        ("m, l", "m, ℓ"),
        ("l_old / l_new", "ℓ_old / ℓ_new"),
        ("lse = m + log l", "lse = m + log ℓ"),
        ("delta2 = dP - delta", "δ2 = dP − δ"),
        ("m = -0.5, (-1, .5) - l, exp(m_old - m_new), -inf", "m = −0.5, (−1, .5) − ℓ, exp(m_old − m_new), −∞"),
        ("x[-1], rows 0-3, 1e-05, FlashAttention-2, --help", "x[-1], rows 0-3, 1e-05, FlashAttention-2, --help"),
        ("all values, el.l, dl, l(x), l_shaped, deltas", "all values, el.l, dl, l(x), l_shaped, deltas"),
    ],
)
def test_names_that_stand_alone_get_their_sign(words, told):
    assert signed(words) == told


@pytest.mark.parametrize("name", every(2, PICTURES))
def test_pictures_and_sentences_write_the_running_sum_with_its_sign(name):
    draw, algorithm, inputs = PICTURES[name]
    found = ""
    for step in fl.record(algorithm(*inputs)):
        ax = plt.figure().add_subplot()
        paint(draw, ax, step)
        with warnings.catch_warnings(action="error"):  # as of a font that has no such letter
            ax.figure.canvas.draw()
        found += step.sentence + " ".join(text.get_text() for text in ax.findobj(Text))
        plt.close(ax.figure)
    assert "ℓ" in found and not re.search(r"\bl\b", found)


def as_the_width(text):
    """Where delta is called D_i, as the papers call it; D is the width."""
    return [line.strip() for line in text.splitlines() if re.search(r"(?<![A-Za-z0-9])D_i(?![a-z])", line)]


def test_delta_is_never_called_as_the_width():
    root = Path(fl.__file__).parents[1]
    read = [
        *root.glob("notebooks/*.ipynb"),
        *root.glob("notebooks/*.md"),
        *root.glob("flashlearn/**/*.py"),
        root / "README.md",
        *root.glob("docs/*.md"),
    ]
    assert (
        len(read) > 100
        and {path.name: found for path in read if (found := as_the_width(path.read_text("utf-8")))} == {}
    )
    assert as_the_width("no delta\nno D_i, no rescale\n$D_i = P_i$") == ["no D_i, no rescale", "$D_i = P_i$"]
