"""The picture of FlashAttention-1 line by line: every number in it is one of the step's."""

import pytest
import torch

import flashlearn as fl
from flashlearn.show.draw import draw_walk
from flashlearn.show.frame import rescales
from tests.drawing import sound
from tests.slow import every

Q, K, V = torch.randn(3, 1, 1, 5, 3, generator=torch.Generator().manual_seed(3)).unbind(0)
RUN = fl.record(fl.tiled_attention_v1_lines(Q, K, V, block_q=3, block_k=4))


def words(step):
    return draw_walk(step).texts()


def as_drawn(values, digits=2):
    return [f"{round(float(x), digits) + 0.0:.{digits}f}".replace("-", "−") for row in values for x in row]


def test_unfinished_rows_become_right():
    """What HBM holds after each visit: the attention over the keys so far, and for which keys that is."""
    for at, (rows, seen, said) in {
        6: ((0, 3), 4, "keys 0–3"),
        12: ((3, 5), 4, "keys 0–3"),
        24: ((3, 5), 5, "all keys ✓"),
    }.items():
        shown = words(RUN[at])
        right = torch.softmax(Q[0, 0] @ K[0, 0, :seen].T / 3**0.5, -1) @ V[0, 0, :seen]
        assert set(as_drawn(right[slice(*rows)])) <= set(shown)
        assert said in shown
    assert words(RUN[0]).count("nothing yet") == 5 and words(RUN[-1]).count("all keys ✓") == 5
    assert words(RUN[6]).count("nothing yet") == 2 and words(RUN[18]).count("all keys ✓") == 3


def test_what_a_line_makes_is_there_from_that_line_on():
    scores, weights = as_drawn(RUN[2].values["S"][0, 0]), as_drawn(RUN[3].values["P"][0, 0])
    assert set(scores) <= set(words(RUN[2])) and not set(scores) <= set(words(RUN[3])), "P takes the place of S"
    assert set(weights) <= set(words(RUN[3])) and not set(weights) <= set(words(RUN[2]))
    assert "mnew" not in words(RUN[3]) and "mnew" in words(RUN[4])
    assert "old O" not in words(RUN[4]) and "old O" in words(RUN[5])


@pytest.mark.parametrize("at", every(3, (5, 1, 4, 19, 13, 25)))
def test_nothing_overlaps_or_leaves_the_picture(at):
    for narrow in (False, True):
        sound(draw_walk(RUN[at], narrow=narrow), apart=4)


def test_a_maximum_rises_from_line_11_on():
    risen = [step.phase for step in RUN if rescales(step)]
    assert "line 11" in risen and "line 10" not in risen


def test_a_head_dimension_that_does_not_fit_is_rejected():
    q, k, v = torch.zeros(3, 1, 1, 5, 4).unbind(0)
    with pytest.raises(
        ValueError, match="expected a head dimension of at most 3, which is what fits the picture, got 4"
    ):
        draw_walk(fl.record(fl.tiled_attention_v1_lines(q, k, v, block_q=3, block_k=4))[0])
