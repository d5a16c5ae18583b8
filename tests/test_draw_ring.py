"""Pictures of the ring: what is drawn is what the steps say."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest
import torch

from flashlearn.core.steps import Step, record
from flashlearn.ring import ring_attention_steps
from flashlearn.show.draw import draw_clocks, draw_ring

Q = torch.randn(1, 1, 16, 4)


@pytest.fixture
def ax():
    figure = plt.figure(figsize=(12.8, 5), dpi=100)
    yield figure.add_axes((0, 0, 1, 1))
    plt.close(figure)


def run(order: str, **options) -> list[Step]:
    return record(ring_attention_steps(Q, 2 * Q, 3 * Q, P=4, order=order, **options))


def words(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_processes_have_what_the_step_says(ax):
    step = run("plain")[1]
    draw_ring(ax, step)
    said = words(ax)
    assert [word for word in said if word.startswith("V")] == ["V3", "V0", "V1", "V2"]
    assert sorted(word for word in said if word.isdigit()) == ["0", "1", "2", "3"], "a block of scores each"
    assert "forward, plain order: ring step 1 (from 0 to 3)" in said and "▸ to 0" in said


def test_zigzag_has_two_blocks_each_and_labels_in_a_fold(ax):
    draw_ring(ax, run("zigzag", causal=True)[2])
    said = words(ax)
    assert sorted(word for word in said if word.isdigit()) == sorted("00112233")
    assert sum(word == "Q2" for word in said) == 3, "two chunks of rows, and the process"


def test_the_last_step_and_the_backward_pass_are_drawn(ax):
    steps = run("zigzag", causal=True, do=Q.flip(2))
    draw_ring(ax, steps[-1])
    assert "backward, zigzag order: done" in words(ax)


def test_clocks_show_the_idle_time(ax):
    draw_clocks(ax, {"plain": run("plain", causal=True), "zigzag": run("zigzag", causal=True)})
    said = words(ax)
    assert "plain: 58 units of time, busy 59%" in said and "zigzag: 34 units of time, busy 100%" in said


def test_steps_of_another_algorithm_are_rejected(ax):
    with pytest.raises(ValueError, match="expected a step of ring attention"):
        draw_ring(ax, Step(phase="blocks"))
    with pytest.raises(ValueError, match="expected recorded steps of ring attention"):
        draw_clocks(ax, {})
