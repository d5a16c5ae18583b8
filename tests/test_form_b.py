"""Form B of the inventory: every item has a partner in form A and is in no notebook, and its numbers are right."""

from __future__ import annotations

import math
import re
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import flashlearn as fl
from flashlearn.course import NUMBERS
from flashlearn.exercises.checking import EXERCISES
from flashlearn.exercises.questions import QUESTIONS
from flashlearn.grading.inventory import FORMS

ROOT = Path(__file__).parents[1]
ITEMS = FORMS["B"]
HEADINGS = re.findall(r"(?m)^## (\S+)$", (files("flashlearn.course") / "form_b.md").read_text(encoding="utf-8"))
MYTHS = set(re.findall(r"(?m)^\| (\w+) \| \"", (files("flashlearn.course") / "myths.md").read_text(encoding="utf-8")))
SOURCES = {mistake.id for exercise in EXERCISES.values() for mistake in exercise.mistakes} | {
    f"myth.{id}" for id in MYTHS
}


def test_every_item_has_a_partner_in_a_notebook():
    missing = set(HEADINGS) - {question.id for question in QUESTIONS.values()}
    assert not missing, f"form_b.md: name another question on the same idea in place of {missing}"
    assert len(HEADINGS) == len(set(HEADINGS)) == len(ITEMS) == 30


def test_no_item_is_in_a_notebook():
    notebooks = [path.read_text(encoding="utf-8") for path in (ROOT / "notebooks").glob("*.ipynb")]
    assert not any(item.text in text for item in ITEMS.values() for text in notebooks)
    assert not {item.text for item in ITEMS.values()} & {question.text for question in QUESTIONS.values()}


def test_both_forms_ask_about_the_same_notebooks():
    for idea, item in ITEMS.items():
        assert item.shown == idea.partition(".")[0] and item.shown in NUMBERS


@pytest.mark.parametrize("idea", ITEMS)
def test_what_is_wrong_is_what_people_say(idea):
    item = ITEMS[idea]
    assert 3 <= len(item.choices) <= 4 and {wrong.source for wrong in item.wrong} <= SOURCES
    texts = (item.text, item.why, *item.choices, *(wrong.believes for wrong in item.wrong))
    assert not any(mark in text for text in texts for mark in ("`", "**", "$", "\\"))
    assert len(item.text.split()) <= 60 and item.why.endswith(".")


def test_neither_place_nor_length_gives_the_right_choice_away():
    places = [item.choices.index(item.right) for item in ITEMS.values()]
    assert all(places.count(place) >= len(places) / 6 for place in range(3))
    longest = [name for name, item in ITEMS.items() if len(item.right) > max(len(each.text) for each in item.wrong)]
    assert len(longest) <= len(ITEMS) / 6, longest


def test_the_forms_differ_in_every_item():
    for idea, item in ITEMS.items():
        assert set(item.choices) != set(FORMS["A"][idea].choices), idea


# The right choices that are numbers, computed from what the text says


def shown(*values: float) -> str:
    """Numbers as choices have them."""
    texts = [f"{value:.2f}".rstrip("0").rstrip(".") for value in values]
    return f"({', '.join(texts)})" if len(texts) > 1 else texts[0]


def naive_softmax_edge() -> str:
    logits = sorted(int(text.replace(",", "")) for text in ITEMS["naive_softmax.edge"].choices)
    return next(f"{logit:,}" for logit in logits if logit > math.log(1000))


def naive_softmax_pair() -> str:
    row = torch.full((4,), 10.0, dtype=torch.float16)
    assert row.exp()[0] == 22_032 and row.exp().sum().isinf()
    return shown(*(row.exp() / row.exp().sum()).tolist())


def naive_softmax_after() -> str:
    terms = torch.tensor([0.0, 1.0]).exp() - 1
    assert shown(*torch.softmax(torch.tensor([0.0, 1.0]), 0).tolist()) == "(0.27, 0.73)"
    return shown(*(terms / terms.sum()).tolist())


def safe_softmax_sum() -> str:
    rows = (torch.zeros(1000), torch.cat([torch.zeros(1), torch.full((999,), -1e4)]))
    low, high = sorted(float((row - row.max()).exp().sum()) for row in rows)
    return f"{low:.0f} and {high:,.0f}"


def safe_softmax_start() -> str:
    row = torch.tensor([-200.0, -201.0])
    terms = (row - row.max().clamp(min=0)).exp()
    return shown(*(terms / terms.sum()).tolist())


def online_softmax_correction() -> str:
    return f"{2 * math.exp(1 - 4) + 1:.2f}"


def online_softmax_hidden() -> str:
    row = torch.full((3,), -math.inf)
    return shown(*torch.softmax(row, 0).tolist())


def one_pass_attention_factor() -> str:
    assert abs(2 + math.log(2) - 2.69) < 0.005
    return shown(*(value * math.exp(2 - (2 + math.log(2))) for value in (4, 8)))


def one_pass_attention_share() -> str:
    a, b = torch.softmax(torch.tensor([math.log(2), math.log(8)]), 0).tolist()
    return f"{round(5 * a)}/5 and {round(5 * b)}/5"


def one_pass_attention_weights() -> str:
    row = torch.tensor([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    written = torch.stack([(row[: n + 1] - 6).exp()[n] / (row[: n + 1] - 6).exp().sum() for n in range(6)])
    (last,) = (written - torch.softmax(row, 0)).abs().lt(1e-6).nonzero().flatten().tolist()
    return {5: "one: the last", 0: "one: the first"}[last]


def tiled_matmul_bytes() -> str:
    a = torch.randn(128, 128)
    read = {
        side: fl.hbm_bytes(fl.tiled_matmul_steps(a, a, block_m=side, block_n=side, block_k=side)).read
        for side in (16, 64)
    }
    return {4: "a quarter of the bytes, as many operations"}[read[16] / read[64]]


def tiled_matmul_scales() -> str:
    scores, values = torch.tensor([0.0, math.log(3)]), torch.tensor([0.0, 4.0])
    own = (scores - scores).exp()
    return f"{shown(float(own @ values / own.sum()))}, although o is {shown(float(torch.softmax(scores, 0) @ values))}"


def tiled_attention_rows() -> str:
    first, second = (torch.diag(torch.tensor([3.0, 0.5])) @ torch.tensor([[1.0, 2.0], [4.0, 6.0]])).tolist()
    return f"{shown(*first)} and {shown(*second)}"


def tiled_attention_written() -> str:
    q, k, v = torch.randn(3, 1, 1, 12, 4)
    words = {1: "once", 3: "three times"}
    times = []
    for algorithm in (fl.tiled_attention_v1_steps, fl.tiled_attention_v2_steps):
        steps = fl.record(algorithm(q, k, v, block_q=4, block_k=4))
        times.append(sum(tile.name == "O" for step in steps for tile in step.writes) // 3)
    return f"FlashAttention-1 {words[times[0]]}, FlashAttention-2 {words[times[1]]}"


def tiled_attention_visited_blocks() -> str:
    return str(sum(key <= query for query in range(6) for key in range(6)))


def why_it_is_fast_kernels() -> str:
    a, b = (max(tflop / 100, gigabytes / 1000) * 1000 for tflop, gigabytes in ((1.0, 20), (1.5, 2)))
    assert (round(a), round(b)) == (20, 15)
    return f"B, with {min(a, b):.0f} ms at least"


def gradients_by_hand_dw() -> str:
    w = torch.ones(1, 1, requires_grad=True)
    (torch.tensor([[1.0], [2.0], [3.0]]) @ w).sum().backward()
    return shown(w.grad.item())


def tiled_backward_again() -> str:
    return f"1/{1 / math.exp(2 - (2 + math.log(4))):.0f}"


def tiled_backward_delta() -> str:
    p, dp = torch.tensor([0.5, 0.5]), torch.tensor([0.0, 4.0])
    return f"{(p * (dp - (p * dp).sum()))[0]:.0f}".replace("-", "−")


def gpu_and_triton_warps() -> str:
    return str(8 * 32)


def gpu_and_triton_mask() -> str:
    return str(-(-900 // 256) * 256 - 900)


def triton_forward_strict() -> str:
    return str(sum(row > column for row in range(3) for column in range(3)))


def use_it_causal() -> str:
    eye = torch.eye(6)
    o = scaled_dot_product_attention(torch.zeros(1, 2, 6), eye[None], eye[None], is_causal=True)
    return " and ".join(map(str, o[0, -1].nonzero().flatten().tolist()))


def which_keys_longer() -> str:
    blocks = [
        sum(64 * k <= 64 * q + 63 and 64 * k + 63 >= 64 * q - 512 for q in range(N // 64) for k in range(N // 64))
        for N in (10_048, 40_192)
    ]
    return {4: "it grows about four times"}[round(blocks[1] / blocks[0])]


def serving_batch() -> str:
    return f"{10 + 8 * 0.5:.0f} ms"


def many_gpus_bytes() -> str:
    return f"{4 - 1} N / 4"


COMPUTED = (
    naive_softmax_edge, naive_softmax_pair, naive_softmax_after, safe_softmax_sum, safe_softmax_start,
    online_softmax_correction, online_softmax_hidden, one_pass_attention_factor, one_pass_attention_share,
    one_pass_attention_weights, tiled_matmul_bytes, tiled_matmul_scales, tiled_attention_rows, tiled_attention_written,
    tiled_attention_visited_blocks, why_it_is_fast_kernels, gradients_by_hand_dw, tiled_backward_again,
    tiled_backward_delta, gpu_and_triton_warps, gpu_and_triton_mask, triton_forward_strict, use_it_causal,
    which_keys_longer, serving_batch, many_gpus_bytes,
)  # fmt: skip


@pytest.mark.parametrize("compute", COMPUTED, ids=lambda compute: compute.__name__)
def test_the_right_choice_is_what_comes_out(compute):
    (idea,) = [idea for idea in ITEMS if idea.replace(".", "_") == compute.__name__]
    assert compute() == ITEMS[idea].right


def test_every_choice_with_a_number_is_computed():
    computed = {compute.__name__ for compute in COMPUTED}
    without = {idea for idea in ITEMS if idea.replace(".", "_") not in computed}
    assert not any(re.search(r"\d", ITEMS[idea].right) for idea in without), without
