"""Both forms of the inventory: the same ideas by different examples, and right choices that are computed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
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
A, B = FORMS["A"], FORMS["B"]
MYTHS = set(re.findall(r"(?m)^\| (\w+) \| \"", (files("flashlearn.course") / "myths.md").read_text(encoding="utf-8")))
SOURCES = {mistake.id for exercise in EXERCISES.values() for mistake in exercise.mistakes} | {
    f"myth.{id}" for id in MYTHS
}
every_item = pytest.mark.parametrize("form, idea", [(form, idea) for form in FORMS for idea in FORMS[form]])


def test_both_forms_have_the_same_thirty_ideas():
    assert list(A) == list(B) and len(A) == 30
    for idea in A:
        assert A[idea].shown == B[idea].shown == idea.partition(".")[0] and A[idea].shown in NUMBERS
        assert A[idea].text != B[idea].text


def test_no_item_of_form_b_is_in_a_notebook():
    notebooks = [path.read_text(encoding="utf-8") for path in (ROOT / "notebooks").glob("*.ipynb")]
    assert not any(item.text in text for item in B.values() for text in notebooks)
    assert not {item.text for item in B.values()} & {question.text for question in QUESTIONS.values()}


@every_item
def test_what_is_wrong_is_what_people_say(form, idea):
    item = FORMS[form][idea]
    assert 3 <= len(item.choices) <= 4 and {wrong.source for wrong in item.wrong} <= SOURCES
    texts = (item.text, item.why, *item.choices, *(wrong.believes for wrong in item.wrong))
    assert not any(mark in text for text in texts for mark in ("`", "**", "$", "\\"))
    assert len(item.text.split()) <= 60 and item.why.endswith(".")


@pytest.mark.parametrize("form", FORMS)
def test_neither_place_nor_length_gives_the_right_choice_away(form):
    items = FORMS[form].values()
    places = [item.choices.index(item.right) for item in items]
    assert all(places.count(place) >= len(places) / 6 for place in range(3))
    longest = [item.id for item in items if len(item.right) > max(len(each.text) for each in item.wrong)]
    assert len(longest) <= len(items) / 6, longest


# The right choices, computed from what the texts say: for each idea, how, and the numbers of form A and of form B


def shown(values: Sequence[float] | torch.Tensor) -> str:
    """Numbers as choices have them."""
    return f"({', '.join(f'{float(value):.2f}'.rstrip('0').rstrip('.') for value in values)})"


def first_infinite(largest: float, form: str) -> str:
    logits = sorted(float(text.replace(",", "")) for text in FORMS[form]["naive_softmax.edge"].choices)
    return f"{next(logit for logit in logits if logit > math.log(largest)):g}"


def naive_in_float16(logit: float, count: int, term: int) -> str:
    row = torch.full((count,), logit, dtype=torch.float16)
    assert row.exp()[0] == term and row.exp().sum().isinf()
    return shown(row.exp() / row.exp().sum())


def subtracted_after(row: list[float]) -> str:
    terms = torch.tensor(row).exp() - max(row)
    weights = terms / terms.sum()
    return "weights of which one is negative" if (weights < 0).sum() == 1 else shown(weights)


def shifted(row: list[float], by: float) -> bool:
    """Whether a shift changes nothing; the choice says so in words."""
    x = torch.tensor(row, dtype=torch.float64)
    terms = (x - by).exp()
    return torch.allclose(terms / terms.sum(), torch.softmax(x, 0))


def bounds_of_the_sum(count: int) -> list[float]:
    rows = (torch.zeros(count), torch.cat([torch.zeros(1), torch.full((count - 1,), -1e4)]))
    return sorted(float((row - row.max()).exp().sum()) for row in rows)


def started_at(start: float, row: list[float]) -> str:
    x = torch.tensor(row, dtype=torch.float32)
    terms = (x - x.max().clamp(min=start)).exp()
    return shown(terms / terms.sum())


def factor(row: list[float], new: float) -> str:
    """By what the sum over a row is multiplied when a larger logit comes, as a power of e."""
    x, m = torch.tensor(row), max(row)
    quotient = float((x - new).exp().sum() / (x - m).exp().sum())
    assert math.isclose(quotient, math.exp(m - new), rel_tol=1e-5)
    return f"e^({m:g} − {new:g})"


def weights_written_at_once(row: list[float]) -> list[int]:
    """Which weights are right."""
    x = torch.tensor(row, dtype=torch.float32)
    terms = (x - x.max()).exp()
    return (terms / terms.cumsum(0) - torch.softmax(x, 0)).abs().lt(1e-6).nonzero().flatten().tolist()


def shares(*lse: float) -> str:
    weights = torch.tensor(lse).exp()
    return " and ".join(f"{weight / weights.min():.0f}/{weights.sum() / weights.min():.0f}" for weight in weights)


def reads_by_side(small: int, large: int) -> float:
    """The share of the bytes that is left, and that as many products of entries are made."""
    a = torch.randn(128, 128)
    runs = [fl.record(fl.tiled_matmul_steps(a, a, block_m=s, block_n=s, block_k=s)) for s in (small, large)]
    return fl.hbm_bytes(runs[1]).read / fl.hbm_bytes(runs[0]).read


def own_scales() -> str:
    scores, values = torch.tensor([0.0, math.log(3)]), torch.tensor([0.0, 4.0])
    own = (scores - scores).exp()
    return f"{float(own @ values / own.sum()):.0f}, although o is {float(torch.softmax(scores, 0) @ values):.0f}"


def scaled(diagonal: list[float], x: list[list[float]]) -> list[list[float]]:
    return (torch.diag(torch.tensor(diagonal)) @ torch.tensor(x)).tolist()


def written(N: int, block: int, causal: bool) -> list[fl.Traffic]:
    q, k, v = torch.randn(3, 1, 1, N, 4)
    algorithms = (fl.tiled_attention_v1_steps, fl.tiled_attention_v2_steps)
    return [fl.hbm_bytes(each(q, k, v, block_q=block, block_k=block, causal=causal)).written for each in algorithms]


def rows_of_o_written(N: int, block: int) -> str:
    q, k, v = torch.randn(3, 1, 1, N, 4)
    words, times = {1: "once", 3: "three times"}, []
    for algorithm in (fl.tiled_attention_v1_steps, fl.tiled_attention_v2_steps):
        steps = fl.record(algorithm(q, k, v, block_q=block, block_k=block))
        times.append(words[sum(tile.name == "O" for step in steps for tile in step.writes) // (N // block)])
    return f"FlashAttention-1 {times[0]}, FlashAttention-2 {times[1]}"


def milliseconds(peak: float, bandwidth: float, flops: float, moved: float) -> float:
    return 1000 * max(flops / peak, moved / bandwidth)


def ds(p: list[float], dp: list[float]) -> str:
    weights, upstream = torch.tensor(p), torch.tensor(dp, dtype=torch.float32)
    return f"{float(weights[0] * (upstream[0] - weights @ upstream)):g}".replace("-", "−")


def dw(rows: list[float]) -> str:
    w = torch.ones(1, 1, requires_grad=True)
    (torch.tensor(rows, dtype=torch.float32)[:, None] @ w).sum().backward()
    return f"{w.grad.item():g}"


def attended_in_pytorch(queries: int, keys: int) -> str:
    eye = torch.eye(keys)[None]
    o = scaled_dot_product_attention(torch.zeros(1, queries, keys), eye, eye, is_causal=True)
    return " and ".join(map(str, o[0, -1].nonzero().flatten().tolist()))


def growth(window: int, short: int, long: int) -> str:
    visited = [
        sum(
            64 * k <= 64 * q + 63 and 64 * k + 63 >= 64 * q - window
            for q in range(-(-N // 64))
            for k in range(-(-N // 64))
        )
        for N in (short, long)
    ]
    return f"it grows about {({2: 'two', 4: 'four'})[round(visited[1] / visited[0])]} times"


# idea -> (right in form A, right in form B); None for words
COMPUTED: dict[str, tuple[Callable[[], str] | None, Callable[[], str]]] = {
    "naive_softmax.edge": (lambda: first_infinite(65_504, "A"), lambda: first_infinite(1_000, "B")),
    "naive_softmax.pair": (lambda: naive_in_float16(11, 2, 59_872), lambda: naive_in_float16(10, 4, 22_032)),
    "naive_softmax.after": (lambda: subtracted_after([1, 2, 3, 4, 5, 6]), lambda: subtracted_after([0, 1])),
    "safe_softmax.shift": (
        lambda: {True: "they stay the same, up to rounding"}[shifted([1, 2, 3, 4, 5, 6], 100)],
        lambda: {True: "those of softmax, up to rounding"}[shifted([1, 2, 6], 3)],
    ),
    "safe_softmax.sum": (
        lambda: f"{bounds_of_the_sum(7)[0]:.0f}",
        lambda: " and ".join(f"{bound:,.0f}" for bound in bounds_of_the_sum(1000)),
    ),
    "safe_softmax.start": (lambda: started_at(-1000, [-2000, -2001]), lambda: started_at(0, [-200, -201])),
    "online_softmax.correction": (lambda: factor([1.0, 3.0], 5.0), lambda: f"{2 * math.exp(1 - 4) + 1:.2f}"),
    "online_softmax.hidden": (
        lambda: f"m = −∞, ℓ = {(torch.tensor([-math.inf]) - -math.inf).exp().sum():g}",
        lambda: shown(torch.softmax(torch.full((3,), -math.inf), 0)),
    ),
    "one_pass_attention.weights": (
        lambda: {(5,): "the last one only"}[tuple(weights_written_at_once([3, 1, 4, 1, 5, 2]))],
        lambda: {(5,): "one: the last"}[tuple(weights_written_at_once([6, 5, 4, 3, 2, 1]))],
    ),
    "one_pass_attention.factor": (
        lambda: f"acc is multiplied by {factor([2.5, 3.0], 5.0)}",
        lambda: shown([value * math.exp(2 - (2 + math.log(2))) for value in (4, 8)]),
    ),
    "one_pass_attention.share": (lambda: shares(0, math.log(3)), lambda: shares(math.log(2), math.log(8))),
    "tiled_matmul.bytes": (
        lambda: {0.5: "half the bytes, as many operations"}[reads_by_side(16, 32)],
        lambda: {0.25: "a quarter of the bytes, as many operations"}[reads_by_side(16, 64)],
    ),
    "tiled_matmul.scales": (None, own_scales),
    "tiled_attention.rows": (
        lambda: {((0.5,) * 3, (2.0,) * 3): "a row of ½ above a row of 2"}[
            tuple(map(tuple, scaled([0.5, 2], [[1.0] * 3] * 2)))
        ],
        lambda: " and ".join(map(shown, scaled([3, 0.5], [[1.0, 2.0], [4.0, 6.0]]))),
    ),
    "tiled_attention.written": (
        lambda: {True: "FlashAttention-1: unfinished rows of O leave the chip"}[
            written(9, 3, True)[0] > written(9, 3, True)[1]
        ],
        lambda: rows_of_o_written(12, 4),
    ),
    "tiled_attention.visited_blocks": (lambda: str(sum(range(17))), lambda: str(sum(range(7)))),
    "why_it_is_fast.less_time": (
        lambda: {(26, 3): "FlashAttention: it moves fewer bytes"}[
            tuple(round(milliseconds(312e12, 1.555e12, *of)) for of in ((66.6e9, 40.3e9), (75.2e9, 4.4e9)))
        ],
        lambda: {(20, 15): "B, with 15 ms at least"}[
            tuple(round(milliseconds(100e12, 1e12, *of)) for of in ((1e12, 20e9), (1.5e12, 2e9)))
        ],
    ),
    "gradients_by_hand.dw": (None, lambda: dw([1, 2, 3])),
    "tiled_backward.again": (None, lambda: f"1/{1 / math.exp(2 - (2 + math.log(4))):.0f}"),
    "tiled_backward.delta": (lambda: ds([0.75, 0.25], [1, 5]), lambda: ds([0.5, 0.5], [0, 4])),
    "gpu_and_triton.warps": (lambda: str(4 * 32), lambda: str(8 * 32)),
    "gpu_and_triton.mask": (lambda: str(-98_432 % 1_024), lambda: str(-900 % 256)),
    "triton_forward.strict": (
        lambda: {0: "to none"}[sum(0 > column for column in range(9))],
        lambda: str(sum(row > column for row in range(3) for column in range(3))),
    ),
    "use_it.causal": (lambda: attended_in_pytorch(1, 10), lambda: attended_in_pytorch(2, 6)),
    "which_keys.longer": (lambda: growth(1_024, 8_192, 16_384), lambda: growth(512, 10_000, 40_000)),
    "serving.batch": (lambda: f"{5 * (16 + 16 * 0.25) / 16:g} ms", lambda: f"{10 + 8 * 0.5:g} ms"),
    "many_gpus.bytes": (lambda: f"{16 - 1} N / 16", lambda: f"{4 - 1} N / 4"),
}


@pytest.mark.parametrize("idea", COMPUTED)
def test_the_right_choice_is_what_comes_out(idea):
    for compute, form in zip(COMPUTED[idea], (A, B), strict=True):
        assert compute is None or compute() == form[idea].right


def test_every_choice_with_a_number_is_computed():
    for idea, *items in zip(A, A.values(), B.values(), strict=True):
        computed = COMPUTED.get(idea, (None, None))
        for item, compute in zip(items, computed, strict=True):
            if not compute and idea != "online_softmax.complexity":  # 2N numbers, counted in notebook 03
                assert not re.search(r"\d", item.right), item.id
