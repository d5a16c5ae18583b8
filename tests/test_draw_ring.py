"""Pictures of the ring: what is drawn is what the steps say."""

from __future__ import annotations

import pytest
import torch

from flashlearn.core.steps import Step, record
from flashlearn.ring import ring_attention_steps
from flashlearn.show.draw import draw_clocks, draw_ring
from tests.drawing import sound

Q = torch.randn(1, 1, 16, 4)


def run(order: str, **options) -> list[Step]:
    return record(ring_attention_steps(Q, 2 * Q, 3 * Q, P=4, order=order, **options))


def words(draw, given) -> list[str]:
    sound(draw(given, narrow=True))
    return sound(draw(given)).texts()


def test_processes_have_what_the_step_says():
    step = run("plain")[1]
    said = words(draw_ring, step)
    assert [word for word in said if word.startswith("V")] == ["V3", "V0", "V1", "V2"]
    assert sorted(word for word in said if word.isdigit()) == ["0", "1", "2", "3"], "a block of scores each"
    assert "forward, plain order: ring step 1 (from 0 to 3)" in said and "▸ to 0" in said


def test_zigzag_has_two_blocks_each_and_labels_in_a_fold():
    said = words(draw_ring, run("zigzag", causal=True)[2])
    assert sorted(word for word in said if word.isdigit()) == sorted("00112233")
    assert sum(word == "Q2" for word in said) == 3, "two chunks of rows, and the process"


def test_the_last_step_and_the_backward_pass_are_drawn():
    steps = run("zigzag", causal=True, do=Q.flip(2))
    assert "backward, zigzag order: done" in words(draw_ring, steps[-1])


def test_clocks_show_the_idle_time():
    said = words(draw_clocks, {"plain": run("plain", causal=True), "zigzag": run("zigzag", causal=True)})
    assert "plain: 58 units of time, busy 59%" in said and "zigzag: 34 units of time, busy 100%" in said


def test_steps_of_another_algorithm_are_rejected():
    with pytest.raises(ValueError, match="expected a step of ring attention"):
        draw_ring(Step(phase="blocks"))
    with pytest.raises(ValueError, match="expected recorded steps of ring attention"):
        draw_clocks({})
