"""Two pages for students to take home: the rule, a row to do by hand, and what moves how many bytes."""

from __future__ import annotations

import html

import torch

import flashlearn as fl
from flashlearn.cost import A100_40GB
from tools.lecture import softmax, tiles
from tools.lecture.page import filled


def handout(pictures: dict[str, tuple[str, str]]) -> str:
    """The two pages as one; `pictures` are {"online": (file, alt), "tiles": (file, alt)}."""
    pages = f"<section class='half'>{_rows(*pictures['online'])}</section><section class='half'>{_tiles(*pictures['tiles'])}</section>"
    return filled("print.html", title="FlashAttention on two pages", pages=pages, size="A4")


def _image(file: str, alt: str) -> str:
    return f"<img src='{file}' alt='{html.escape(alt, quote=True)}'>"


def _rows(file: str, alt: str) -> str:
    """Page one: softmax."""
    steps = fl.record(fl.online_softmax_steps(softmax.ROW))[: len(softmax.ROW)]
    lines = "".join(
        f"<tr><td>{x:g}</td><td>{step.values['m_i'].item():g}</td><td>{step.values['l_i'].item():.4f}</td></tr>"
        for x, step in zip(softmax.ROW, steps, strict=True)
    )
    weights = ", ".join(f"{weight:.4f}" for weight in torch.softmax(softmax.ROW, -1))
    edges = ", ".join(f"{name} {edge:.2f}" for name, edge in softmax.EDGES.items())
    return f"""<h1>FlashAttention on two pages</h1>
<h2>1 · One row</h2>
<p>softmax(x)<sub>j</sub> = e<sup>x<sub>j</sub> − m</sup> / ℓ, with m the maximum of the row and ℓ the sum of e<sup>x − m</sup>. Without m,
exp overflows from these logits on: {edges}.</p>
<p>m and ℓ in one pass (notebook 03):</p>
<p class="formula">m<sub>new</sub> = max(m, x<sub>j</sub>)<br>
ℓ<sub>new</sub> = ℓ e<sup>m − m<sub>new</sub></sup> + e<sup>x<sub>j</sub> − m<sub>new</sub></sup></p>
<p>Start: m = −∞, ℓ = 0. Two parts of a row merge by the same rule: bring both sums to the larger maximum, then add.</p>
<p>By hand, for the row 3, 2, 5, 1 (weights at the end: {weights}):</p>
<table><tr><th>x<sub>j</sub></th><th>m</th><th>ℓ</th></tr>{lines}</table>
{_image(file, alt)}
<p>Softmax times V in one pass (notebook 05): acc is rescaled with ℓ, and divided by it once, at the end.</p>
<p class="formula">acc<sub>new</sub> = acc e<sup>m − m<sub>new</sub></sup> + e<sup>x<sub>j</sub> − m<sub>new</sub></sup> v<sub>j</sub>, &nbsp; o = acc / ℓ, &nbsp; lse = m + log ℓ</p>"""


def _tiles(file: str, alt: str) -> str:
    """Page two: tiles and bytes."""
    race = "".join(
        f"<tr><td>{name}</td><td>{moved:,}</td><td>{tiles.FLOPS[name]:,}</td></tr>"
        for name, moved in tiles.RACE.items()
    )
    gpu = A100_40GB
    return f"""<h2>2 · Tiles</h2>
<p>FlashAttention-2 (notebook 07): a block of B<sub>r</sub> queries stays on chip, blocks of B<sub>c</sub> keys and values pass by.</p>
<p class="formula">for each block of queries i: &nbsp; load Q<sub>i</sub>; m = −∞, ℓ = 0, acc = 0<br>
&nbsp;&nbsp; for each block of keys j: &nbsp; load K<sub>j</sub>, V<sub>j</sub>; S = Q<sub>i</sub> K<sub>j</sub><sup>T</sup> / √d<br>
&nbsp;&nbsp;&nbsp;&nbsp; m<sub>new</sub> = max(m, rows of S); P = e<sup>S − m<sub>new</sub></sup><br>
&nbsp;&nbsp;&nbsp;&nbsp; ℓ = ℓ e<sup>m − m<sub>new</sub></sup> + sums of rows of P<br>
&nbsp;&nbsp;&nbsp;&nbsp; acc = diag(e<sup>m − m<sub>new</sub></sup>) acc + P V<sub>j</sub>; m = m<sub>new</sub><br>
&nbsp;&nbsp; store O<sub>i</sub> = acc / ℓ and lse<sub>i</sub> = m + log ℓ</p>
{_image(file, alt)}
<p>128 tokens, d = 16, float16, blocks of 32: the same products, other bytes.</p>
<table><tr><th></th><th>bytes through HBM</th><th>FLOPs of products</th></tr>{race}</table>
<p>An {gpu.name} can do {gpu.ridge():.0f} FLOP for each byte from HBM: below that memory decides. Each of its {gpu.sms} SMs has {gpu.sram_per_sm // 1024} KB of SRAM;
HBM has {gpu.memory / 1e9:.0f} GB.</p>
<p>Do it yourself: with {tiles.M} elements of SRAM and d = {tiles.D}, blocks of {tiles.PAPER[0]} and {tiles.PAPER[1]} rows need
{tiles.NEED[tiles.PAPER]} elements, and {tiles.FITTING[0]} and {tiles.FITTING[1]} need {tiles.NEED[tiles.FITTING]}. Why? Then: exercises
<code>03.merge</code>, <code>05.recurrence</code>, <code>07.update</code>.</p>"""
