"""A batch as steps, and their picture: whose each page is, and whose it was, read off the pool."""

from __future__ import annotations

import pytest
import torch

import flashlearn as fl
from flashlearn.models.gpt import GPT
from flashlearn.serving import Batch, PagePool, batch_steps, greedy
from flashlearn.serving.recorded import DONE, RUNS, WAITS
from flashlearn.show.draw import draw_pages
from tests.drawing import sound
from tests.slow import every

ARRIVALS = {
    0: {"A": (range(10), 6)},
    2: {"B": ([0, 1, 2, 3, 4, 5, 6, 7, 8, 11], 4)},
    3: {"C": (range(20, 38), 3)},
    5: {"D": (range(40, 52), 5)},
    8: {"E": (range(3, 10), 5)},
}


def recorded(pages=12, page=4, pool=PagePool, share=True):
    torch.manual_seed(0)
    model = GPT(60, layers=1, heads=2, kv_heads=1, width=32)
    room = pool(pages, page, 1, 16)
    batch = Batch(room, greedy(model, room), most_tokens=8, share=share)
    forward = batch.forward
    run = fl.record(batch_steps(batch, ARRIVALS))
    assert batch.forward is forward, "as it was"
    return run, model


RUN, MODEL = recorded()


def words(step):
    return draw_pages(step).texts()


def test_answers_are_those_of_each_request_alone():
    for name, (prompt, count) in {n: asked for each in ARRIVALS.values() for n, asked in each.items()}.items():
        pool = PagePool(20, 3, 1, 16)
        batch = Batch(pool, greedy(MODEL, pool))
        alone = batch.submit(prompt, count)
        batch.run()
        assert RUN[-1].output[name] == alone.answer


def test_pages_change_hands_and_none_is_lost():
    held: set[int] = set()
    for step in RUN:
        taken, given = (set(step.values[name]) for name in ("taken", "given"))
        assert not taken & held and not taken & given
        held = (held | taken) - given
        assert held == {page.number for page in step.values["pages"] if page.holders}
        assert held == {number for one in step.values["requests"] for number in one.pages}
    assert not held
    handed_on = [p for step in RUN for p in step.values["pages"] if p.number in step.values["taken"] and p.was]
    assert handed_on, "a page that one gave back is taken by another"
    assert {one.state for step in RUN for one in step.values["requests"]} == {WAITS, RUNS, DONE}


def test_a_page_taken_and_given_back_in_one_step_is_not_passed_over():
    """B's last token needs a fourth page, and B is done with it."""
    before, step = RUN[4:6]
    assert not before.values["pages"][8].holders and not before.values["pages"][8].was
    assert set(step.values["given"]) == {3, 8} and step.values["pages"][8].was == "B"
    d = next(one for one in RUN[8].values["requests"] if one.name == "D")
    assert {RUN[8].values["pages"][number].was for number in d.pages} == {"A", "B", "C"}, "nobody's page is among them"
    once = PagePool(2, 4, 1, 16)
    (only,) = fl.record(batch_steps(Batch(once, greedy(MODEL, once)), {0: {"A": (range(3), 1)}}))
    assert only.values["given"] == (0,)


def test_what_goes_through_the_model_is_new_and_what_is_shared_is_not():
    begins = next(step for step in RUN if "B" in step.values["came"])
    a, b = begins.values["requests"]
    assert b.pages[:2] == a.pages[:2] and b.pages[2] != a.pages[2], "two pages shared, the third a copy"
    assert (b.length, b.new, a.new) == (10, 1, 1)
    copy = begins.values["pages"][b.pages[2]]
    assert (copy.filled, copy.new, copy.holders) == (2, 1, ("B",))
    alone, _ = recorded(share=False)
    begins = next(step for step in alone if "B" in step.values["came"])
    assert begins.values["requests"][1].new == 7, "as many as a step takes beside A's token"


@pytest.mark.parametrize("at", every(4, range(0, len(RUN), 2)))
def test_nothing_overlaps_or_leaves_the_picture(at):
    for narrow in (False, True):
        sound(draw_pages(RUN[at], narrow=narrow))


def test_the_picture_says_who_holds_a_page_and_whose_it_was():
    for step in RUN:
        shown, pages = words(step), step.values["pages"]
        for page in pages:
            assert str(page.number) in shown
            assert not page.holders or " ".join(page.holders) in shown
            assert not page.was or f"was {page.was}" in shown
        free = sum(not page.holders for page in pages)
        assert f"HBM: one pool, {free} of 12 pages free" in shown
        assert shown.count("free") + shown.count("released") == free + 1  # and one in the key
    assert "A B" in words(RUN[2])


def test_a_pool_that_hands_a_page_out_twice_is_shown_so():
    class Careless(PagePool):
        def _take(self):
            number = super()._take()
            if len(self._free) == 7:
                self._free.append(number)
            return number

    run, _ = recorded(pool=Careless, share=False)
    assert any(len(page.holders) > 1 for step in run for page in step.values["pages"])
