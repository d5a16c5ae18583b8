"""The first half of the lecture: one row of softmax, then one query (notebooks 01, 02, 03 and 05)."""

from __future__ import annotations

import math

import torch

import flashlearn as fl
from flashlearn.show.draw import draw_converge, draw_query, draw_row, draw_tree
from tools.lecture.slides import Plot, Poll, Run, Section, Slide

X = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
ROW = torch.tensor([3.0, 2.0, 5.0, 1.0])
FORMATS = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32", torch.float64: "float64"}
EDGES = {name: math.log(torch.finfo(dtype).max) for dtype, name in FORMATS.items()}  # exp overflows from here on


def edges(ax) -> None:
    """Where exp overflows, a bar a format."""
    ax.barh(range(len(EDGES)), list(EDGES.values()), height=0.6, color="#CC79A7")
    for place, edge in enumerate(EDGES.values()):
        ax.text(edge * 1.08, place, f"{edge:.2f}", va="center", fontsize=24)
    ax.set_yticks(range(len(EDGES)), list(EDGES), fontsize=24)
    ax.tick_params(axis="x", labelsize=20)
    ax.set(xscale="log", xlim=(1, 4000), ylim=(len(EDGES) - 0.4, -0.6))
    ax.set_xlabel("the logit x from which exp(x) is inf", fontsize=22)


def one_query(N: int, D: int) -> tuple[torch.Tensor, ...]:
    """One query, N keys and values, as in notebook 05."""
    generator = torch.Generator().manual_seed(49)
    q, k, v = (torch.randn(1, 1, n, D, generator=generator).round(decimals=1) for n in (1, N, N))
    return q, k, v


def shuffled() -> tuple[torch.Tensor, ...]:
    """x = v = [1..6] in another order, so that the maximum rises on the way; the query is 1."""
    k = X[torch.tensor([2, 0, 3, 1, 5, 4])].view(1, 1, 6, 1)
    return torch.ones(1, 1, 1, 1), k, k


online = [step.values for step in fl.record(fl.online_softmax_steps(ROW))]
L = [values["l_i"].item() for values in online[:4]]
wrong = L[1] + 1  # what is left on chip if the sum is not rescaled
e_max, e11 = torch.finfo(torch.float16).max, math.exp(11)
answer = fl.last(fl.one_pass_attention_steps(*shuffled())).output.item()

NAIVE = Section(
    "01",
    (
        Slide(
            "The promise",
            (2, 0),
            "Say what the hour is for: the same numbers as attention, fewer trips to memory. Everything that moves on these "
            "slides was recorded from a program that ran; ask before every step what it will do.",
            "<p>From one row of softmax to a Triton kernel: every algorithm computes the same numbers, and the last moves the fewest bytes.</p>"
            "<p>Before each step: <b>what happens next?</b></p>",
        ),
        Slide(
            "Softmax in two passes",
            (4, 0),
            "First the sum, then the division: the row is read twice. Point at the bytes in the sentence below. "
            "In the second pass the sum on chip is final.",
            shows=Run(
                lambda: fl.naive_softmax_steps(X),
                draw_row,
                f"Six bars are read while the sum grows to {X.exp().sum():.2f}, then read again and divided by it.",
            ),
        ),
        Slide(
            "Where does exp overflow?",
            (2, 0),
            f"Expect 11, or 65,536. The largest float16 is {e_max:,.0f}, and e^11 = {e11:,.0f} still fits.",
            shows=Poll.of("01.edge"),
        ),
        Slide(
            "exp overflows early",
            (2, 0),
            "A logit of 12 is too large for float16 already. bfloat16 has the range of float32, and a third of its digits.",
            shows=Plot(edges, "Bars: " + ", ".join(f"{name} {edge:.2f}" for name, edge in EDGES.items()) + "."),
        ),
    ),
)

SAFE = Section(
    "02",
    (
        Slide(
            "Which number may be taken off?",
            (3, 0),
            "Any number may, on paper: the factor cancels. Only the maximum keeps every exponential at most 1 and one of them at 1.",
            "<p>softmax(x) = exp(x − c) / Σ exp(x − c), for every c</p>",
            shows=Poll(
                "Which c is safe for every row of finite logits?",
                (
                    ("the first entry", "A later entry that is 12 larger overflows float16."),
                    ("the mean", "Half of a row may lie far above it."),
                    ("the maximum", "Right: every exponent is at most 0, and the sum is at least 1."),
                    ("1000", "Logits of −2000 give 0 / 0."),
                ),
                2,
            ),
        ),
        Slide(
            "Safe softmax: three passes",
            (4, 0),
            "The maximum is known only after the whole row was read; then the sum; then the division. Three reads of every logit.",
            shows=Run(
                lambda: fl.safe_softmax_steps(ROW),
                draw_row,
                "Four bars, 3, 2, 5 and 1, are read three times: for the maximum, for the sum, for the weights.",
            ),
        ),
        Slide(
            "Where does the maximum start?",
            (3, 0),
            "Let them compute: the maximum stays at −1000, every exponential of −1000 is 0, and 0 / 0 is NaN.",
            shows=Poll.of("02.start"),
        ),
    ),
)

ONLINE = Section(
    "03",
    (
        Slide(
            "One pass for maximum and sum?",
            (3, 3),
            f"The row is 3, 2, 5, 1. After 3 and 2: m = 3, ℓ = {L[1]:.4f}. Now 5 comes. Let them compute before you go on. "
            f"Expect {wrong:.4f}.",
            f"<p>Row: 3, 2, 5, 1. So far m = 3, ℓ = 1 + e<sup>2−3</sup> = {L[1]:.4f}. Now <b>5</b> comes.</p>",
            shows=Poll.of("04.recall.b"),
        ),
        Slide(
            "Online softmax",
            (8, 7),
            "Stop at step 3: the line of the maximum jumps, the sum is multiplied by e^(3−5) before 1 is added. "
            "The invariant after every step: ℓ is the sum over what was read, taken with the maximum of what was read.",
            shows=Run(
                lambda: fl.online_softmax_steps(ROW),
                draw_row,
                f"Bars 3, 2, 5 and 1 are read once. At 5 the sum {L[1]:.4f} is rescaled and becomes {L[2]:.4f}. "
                "A second pass writes the weights.",
                still=2,
                questions={2: "5 is larger than the maximum so far, 3. What becomes of ℓ?"},
            ),
        ),
        Slide(
            "The rule",
            (4, 2),
            "Two lines: this is all of FlashAttention's mathematics. Reads fall from three to two for each logit; the "
            "number of exponentials does not fall.",
            "<p class='formula'>m<sub>new</sub> = max(m, x<sub>j</sub>)</p>"
            "<p class='formula'>ℓ<sub>new</sub> = ℓ · e<sup>m − m<sub>new</sub></sup> + e<sup>x<sub>j</sub> − m<sub>new</sub></sup></p>"
            "<p>After every step ℓ is the sum of e<sup>x − m</sup> over everything read so far.</p>",
        ),
        Slide(
            "Two halves of a row",
            (2, 1),
            "The pairs merge like the single logits did: bring both to the same maximum, then add.",
            shows=Poll(
                "One half of a row has (m, ℓ) = (5, 1.2), the other (3, 1.4). What is ℓ of both?",
                (
                    ("2.6", "Sums may be added only once they have the same maximum."),
                    (f"{1.2 + 1.4 * math.exp(-2):.4f}", "Right: 1.2 + 1.4 × e<sup>3−5</sup>."),
                    (f"{1.2 + 1.4 * math.exp(2):.4f}", "The half with the smaller maximum shrinks; it does not grow."),
                ),
                1,
            ),
        ),
        Slide(
            "Any order, any tree",
            (3, 2),
            "Blocks can be done by different programs, at different times: this is what split keys, ring attention and decoding use. "
            "On paper the tree does not matter; in floating point the last digits may differ.",
            shows=Run(
                lambda: fl.merge_tree_steps(torch.randn(26, generator=torch.Generator().manual_seed(0)), block_size=4),
                draw_tree,
                "26 logits in seven blocks become seven pairs, which merge two by two until one is left.",
            ),
        ),
    ),
)

ONE_PASS = Section(
    "05",
    (
        Slide(
            "Softmax times V",
            (2, 0),
            "Softmax alone needs its second pass: a weight cannot be written before ℓ is known. Its product with V does not.",
            "<p>A weight cannot be written before ℓ is known. But nobody asked for the weights: we want</p>"
            "<p class='formula'>o = Σ<sub>j</sub> e<sup>x<sub>j</sub> − m</sup> v<sub>j</sub> / ℓ</p>",
        ),
        Slide(
            "What must be rescaled?",
            (2, 0),
            "Expect: ℓ, but not acc. Both are sums of terms taken with the old maximum.",
            shows=Poll.of("07.recall.both"),
        ),
        Slide(
            "One pass",
            (5, 0),
            f"x = v = 1..6 in another order. acc runs above the dashed line; the division by ℓ at the end lands on {answer:.4f}.",
            shows=Run(
                lambda: fl.one_pass_attention_steps(*shuffled()),
                draw_converge,
                f"acc grows, is rescaled twice where the maximum rises, and is divided by ℓ at the end: {answer:.4f}.",
            ),
        ),
        Slide(
            "One query over its keys",
            (6, 0),
            "This is decoding: one new token meets the keys and values kept so far. One score is on chip at a time.",
            shows=Run(
                lambda: fl.one_pass_attention_steps(*one_query(10, 4)),
                draw_query,
                "A query slides over ten rows of K and V; ℓ and acc are rescaled where the maximum rises.",
                figsize=(12.8, 5.6),
            ),
        ),
    ),
)
