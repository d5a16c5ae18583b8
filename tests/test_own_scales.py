"""The sum over blocks on scales of their own: wrong where it says so, right beside it, and drawn from the record."""

import pytest
import torch

from flashlearn import hbm_bytes, record
from flashlearn.algorithms.own_scales import own_scales_steps
from flashlearn.core.signs import number
from flashlearn.show.draw import draw_own_scales
from tests.drawing import sound

X = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


def wrong_of(s, v, size):
    """acc / l with the blocks' own maxima, all at once."""
    P = torch.cat([torch.exp(block - block.max()) for block in s[0].split(size)])
    return (P @ v) / P.sum()


@pytest.mark.parametrize("n, d, size", [(6, 1, 2), (7, 3, 3), (5, 2, 8), (1, 1, 1)])
def test_both_ways_are_what_they_say(n, d, size):
    generator = torch.Generator().manual_seed(n)
    s, v = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((1, n), (n, d)))
    steps = record(own_scales_steps(s, v, size))
    at = steps[-1].values
    torch.testing.assert_close(steps[-1].output, torch.softmax(s, -1) @ v)
    torch.testing.assert_close(at["acc_own"] / at["l_own"], wrong_of(s, v, size)[None])
    same = torch.allclose(at["acc_own"] / at["l_own"], steps[-1].output)
    assert same == (size >= n), "one block for the whole row is right, more are not"
    assert hbm_bytes(steps) == (8 * (n + n * d), 8 * d)


def test_six_numbers_give_3_7311_in_place_of_5_4329():
    steps = record(own_scales_steps(X[None], X[:, None], 2))
    assert round((steps[-1].values["acc_own"] / steps[-1].values["l_own"]).item(), 4) == 3.7311
    assert round(steps[-1].output.item(), 4) == 5.4329


def texts(step):
    sound(draw_own_scales(step, narrow=True))
    return sound(draw_own_scales(step)).texts()


def test_picture_says_what_is_wrong_and_when():
    steps = record(own_scales_steps(X[None], X[:, None], 2))
    marked = [any("(wrong)" in words for words in texts(step)) for step in steps]
    assert marked == [False, True, True, True, True], "one block alone is right"
    for step in steps[:3]:
        shown = texts(step)
        for sums in (("acc_own", "l_own"), ("acc", "l_i")):
            for name in sums:
                assert number(step.values[name].item()) in shown
    assert sum(words == "1.00" for words in texts(steps[2])) == 3, "the best key of every block"
    steps[2].values["P_own"][0, 0] = 0.5
    assert "0.50" in texts(steps[2]), "a wrong record makes a wrong picture"


def test_other_shapes_and_steps_are_rejected():
    with pytest.raises(ValueError, match=r"expected s \(1, N\) and v \(N, D\), got \(6,\)"):
        record(own_scales_steps(X, X[:, None], 2))
    with pytest.raises(ValueError, match="block_size"):
        record(own_scales_steps(X[None], X[:, None], 0))
