"""Captions: what a step did, in one sentence, from its record alone. Each algorithm gives one of these to its `HBM`.

They follow one number for the reader: the first row of softmax, or the last query of the first head of attention, which
attends to every key unless a window hides some.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from flashlearn.core.numerics import INF, Span, exp_diff, row_max
from flashlearn.core.steps import Step


def softmax(step: Step) -> str:
    """A pass of softmax over a row, or a merge of two pairs of it."""
    return _SOFTMAX[step.phase](step)


def _sum(step: Step) -> str:
    x, j, term, l = step.values["x"], step.reads[0].cols[0], _show(step.values["term"]), _show(step.values["l_i"])
    if "m_i" in step.values:
        return f"{_of(step)}: exp(x[{j}] − m) = {term} is added to the sum: l = {l}."
    return f"{_named('x', (j, j + 1), x)}: its exponential, {term}, is added to the sum: l = {l}."


def _maximum(step: Step) -> str:
    m = _show(step.values["m_i"])
    raised = _first(step.values["m_old"]) != _first(step.values["m_i"])
    return f"{_of(step)} {f'raises the maximum to m = {m}' if raised else f'leaves m = {m}'}."


def _maximum_and_sum(step: Step) -> str:
    """Say whether the sum so far had to be rescaled."""
    m_old, m, l_old, l, alpha, term = _shown(step, "m_old", "m_i", "l_old", "l_i", "alpha", "term")
    if step.reads[0].cols[0] == 0:
        return f"{_of(step)} comes first: m = {m}, l = {l}."
    if _first(step.values["m_old"]) == _first(step.values["m_i"]):
        return f"{_of(step)} leaves m = {m}: l = {l_old} + {term} = {l}."
    if _first(step.values["m_old"]) == -INF:
        return f"{_of(step)} is the first that counts: m = {m}, l = {l}."
    return f"{_of(step)} raises m from {m_old} to {m}: the old sum is rescaled, l = {l_old} × {alpha} + {term} = {l}."


def _uncorrected(step: Step) -> str:
    m_old, m, l_old, l, term = _shown(step, "m_old", "m_i", "l_old", "l_i", "term")
    raised = _first(step.values["m_i"]) > _first(step.values["m_old"]) > -INF
    what = f"raises m from {m_old} to {m}, and the old sum stays as it was" if raised else f"leaves m = {m}"
    what = what if step.reads[0].cols[0] else f"comes first: m = {m}"
    return f"{_of(step)} {what}: l = {l_old} + {term} = {l}."


def _divide(step: Step) -> str:
    return f"Read {_of(step)} again and write {_named('y', step.writes[0].cols, step.values['y'], whole=False)}."


def _done(step: Step) -> str:
    if "y" not in step.values or isinstance(step.output, tuple):
        m, l = _shown(step, "m_i", "l_i")
        return f"One pair is left for the whole row: m = {m}, l = {l}."
    y = step.output
    return f"Done: the {y.shape[-1]} weights of a row sum to {_show(y.sum(-1, keepdim=True))}."


def _reduce(step: Step) -> str:
    start, stop = step.values["span"]
    return f"Reduce x[{start}:{stop}] to m = {_show(step.values['m_i'])}, l = {_show(step.values['l_i'])}."


def _merge(step: Step) -> str:
    (start, middle), (_, stop) = step.values["parts"]
    m, l = _shown(step, "m_i", "l_i")
    both = [
        f"{_show(l_part)} × {_show(exp_diff(m_part, step.values['m_i']))}" for m_part, l_part in step.values["merged"]
    ]
    return f"Merge {start}:{middle} with {middle}:{stop}: m = {m}, l = {' + '.join(both)} = {l}."


_SOFTMAX = {
    "sum": _sum,
    "maximum": _maximum,
    "maximum and sum": _maximum_and_sum,
    "maximum and sum, uncorrected": _uncorrected,
    "divide": _divide,
    "reduce": _reduce,
    "merge": _merge,
    "done": _done,
}


def _first(t: Tensor) -> float:
    """The number of the first row."""
    return t.detach().flatten()[0].item() if t.numel() else float("nan")


def _show(t: Tensor) -> str:
    return f"{_first(t):.4f}"


def _shown(step: Step, *names: str) -> list[str]:
    """The numbers of the first row by their names."""
    return [_show(step.values[name]) for name in names]


def _of(step: Step) -> str:
    """The block of x that the step read: "x[2:4]", or one element with its value."""
    return _named("x", step.reads[0].cols, step.values["x"])


def _named(name: str, cols: Span, t: Tensor, whole: bool = True) -> str:
    """`t` is the whole row, or just the block."""
    start, stop = cols
    here = t[..., start:stop] if whole else t
    return f"{name}[{start}:{stop}]" if stop - start > 1 else f"{name}[{start}] = {_first(here):.4g}"


def projection(step: Step) -> str:
    """The products that make Q, K and V from the tokens."""
    if not step.writes:
        return "Done: every token has a query, a key and a value; all three come from the same row of X."
    name = step.writes[0].name
    row = ", ".join(f"{value + 0.0:.1f}" for value in step.values[name][-1].tolist()).replace("-", "−")
    return f"{step.phase}: the last row of X, times W_{name.lower()}, is the last row of {name}: ({row})."


def own_scales(step: Step) -> str:
    """Blocks of a row, each measured from its own maximum."""
    values = step.values
    wrong = _first(values["acc_own"]) / (_first(values["l_own"]) or 1.0)
    if "cols" not in values:
        return f"The row's o is {_show(values['O'])}; blocks that each have their own maximum give {wrong:.4f}."
    here, m = _show(values["m_own"]), _show(values["m_i"])
    what = f"{_named('s', values['cols'], values['S'])}: its maximum, {here}, gets weight 1 on the block's own scale"
    if here == m:
        return f"{what}, and on that of the row so far."
    return f"{what}, but e^({here} − {m}) on that of the row so far."


def standard(step: Step) -> str:
    """Unfused attention: three operations on whole matrices."""
    N_q, N_k = step.shapes["S"][-2:]
    at = {name: show(step.values[name]) for name in "SPO" if name in step.values}
    if step.phase == "scores":
        return f"Multiply Q by K^T, write all {N_q} × {N_k} scores S of a head to HBM; the last is {at['S']}."
    if step.phase == "softmax":
        return f"Read S back, take the softmax of each row and write P to HBM; the last weight is {at['P']}."
    if step.phase == "weighted sum":
        return f"Read P back, multiply it by V and write O to HBM; its last entry is {at['O']}."
    return f"Done: O is complete, at the cost of two {N_q} × {N_k} matrices in HBM."


def one_query(step: Step) -> str:
    """Two-pass and one-pass attention, seen from the last query."""
    return _ONE_QUERY[step.phase](step)


def _scored(step: Step) -> str:
    """Say the score, and whether the sum so far had to be rescaled."""
    m_old, m_i, l, alpha = (step.values[name] for name in ("m_old", "m_i", "l_i", "alpha"))
    (j0, j1), best = step.values["cols"], show(row_max(step.values["S"]))
    what = f"Key {j0} scores {best}" if j1 - j0 == 1 else f"Keys {j0}:{j1} score {best} at most"
    if number(row_max(step.values["S"])) == -INF:
        return f"{what}, hidden from this query: m = {show(m_i)} and l = {show(l)} stay."
    if number(m_old) == number(m_i):
        return f"{what}, m stays {show(m_i)}: l = {show(l)}."
    if number(m_old) == -INF:
        return f"{what}, the first: m = {show(m_i)}, l = {show(l)}."
    scaled = f"the old sum is scaled by exp(m_old - m_new) = {show(alpha)}"
    return f"{what}, a new maximum: {scaled}, l = {show(l)}."


def _weighted(step: Step) -> str:
    (j0, j1), weight = step.values["cols"], show(step.values["P"].sum(-1, keepdim=True))
    what = f"Value {j0} gets" if j1 - j0 == 1 else f"Values {j0}:{j1} together get"
    return f"{what} weight {weight}: o = {_vector(step.values['acc'])}."


def _one_pass(step: Step) -> str:
    """Say whether l and the accumulator had to be rescaled."""
    (j0, j1), m_old, m_i = (step.values[name] for name in ("cols", "m_old", "m_i"))
    name, alpha = "o'" if step.values["normalised"] else "acc", show(step.values["alpha"])
    what = f"Key and value {j0}" if j1 - j0 == 1 else f"Keys and values {j0}:{j1}"
    result = f"m = {show(m_i)}, l = {show(step.values['l_i'])}, {name} = {_vector(step.values[name])}."
    if number(row_max(step.values["S"])) == -INF:
        return f"{what}: hidden from this query, nothing changes; {result}"
    if number(m_old) == number(m_i):
        kept = "nothing is rescaled"
        if name == "o'":
            kept = f"l is not rescaled, the old o' is scaled by l_old / l_new = {show(step.values['factor'])}"
        return f"{what}: no new maximum, {kept}; {result}"
    if number(m_old) == -INF:
        return f"{what}, the first: {result}"
    scaled = f"the old l and {name} are scaled by exp(m_old - m_new) = {alpha}"
    if name == "o'":
        factor = show(step.values["factor"])
        scaled = f"the old l is scaled by exp(m_old - m_new) = {alpha}, o' by that times l_old / l_new, {factor}"
    return f"{what}: new maximum, {scaled}; {result}"


def _written(step: Step) -> str:
    what = "Write o, whose weights are already divided by l, to HBM"
    if number(step.values["l_i"]) == 0:
        what = "There was no key to attend to: write 0 to HBM"
    elif step.phase == "divide":
        what = f"Divide acc by l = {show(step.values['l_i'])}, once, and write O to HBM"
    elif "normalised" in step.values:
        what = "Write o', which needs no further division, to HBM"
    return f"{what}: {_vector(step.values['O'])}."


def _all_keys(step: Step) -> str:
    return f"Done: lse = m + log l = {show(step.values['lse'])} says in one number what m and l say in two."


_ONE_QUERY = {
    "maximum and sum": _scored,
    "weighted sum": _weighted,
    "one pass": _one_pass,
    "write": _written,
    "divide": _written,
    "done": _all_keys,
}


def tiled(step: Step) -> str:
    """FlashAttention-1 and -2."""
    if step.phase == "initialise":
        first = "l = 1 and m = the sink of the head" if "sinks" in step.values else "l = 0 and m = -inf"
        return f"Write O = 0, {first} to HBM for every row."
    if step.phase == "done":
        visits, pairs = step.values["visits"], step.values["pairs"]
        return f"Done: {visits} of {pairs} pairs of blocks were visited, and S was never stored."
    if step.phase.startswith("line "):
        return _line(step)
    if step.values["j"] is None:
        lse = "the sink" if "sinks" in step.values else "-inf"
        return f"Block Q{step.values['i']} attends to no key: write O = 0 and lse = {lse}."
    return _met(step)


def paged(step: Step) -> str:
    """Attention over pages."""
    values, read = step.values, sum(tile.nbytes for tile in step.reads)
    if step.phase == "done":
        return f"Done: {values['visits']} pages were read, each once for every head of K and V."
    if values["j"] is None:
        return f"Sequence {values['i']} attends to no key: nothing is read, and O is 0."
    start, stop = values["cols"]
    written = "; its O and lse are written" if step.writes else ""
    masked = ", part of them masked" if values["masked"] else ""
    return (
        f"Sequence {values['i']}: its keys {start} to {stop - 1} are on page {values['page']}{masked}; "
        f"{read} bytes are read{written}."
    )


def _line(step: Step) -> str:
    """A line of FlashAttention-1, followed in the first row of the block."""
    values, row = step.values, step.values["rows"][0]
    at = {name: _one(values[name], 0) for name in _OF_A_ROW if name in values}
    return f"Q{values['i']} x K{values['j']}, {step.phase}: " + _LINES[step.phase](step, row, at)


def _loaded(step: Step, row: int, at: dict[str, str]) -> str:
    i, j = step.values["i"], step.values["j"]
    first = f"K{j} and V{j} are loaded (line 6), then " if any(tile.name == "K" for tile in step.reads) else ""
    return f"{first}Q{i} and its rows of O, l and m; row {row} starts with l = {at['l_old']}, m = {at['m_old']}."


def _weighed(step: Step, row: int, at: dict[str, str]) -> str:
    new, last = _one(1 - step.values["factor"], 0), step.values["cols"][1] - 1
    return f"in row {row} the old O weighs {at['factor']}, this block {new}; O, right for the keys up to {last}, is written."


_OF_A_ROW = ("m_old", "l_old", "m_block", "l_block", "m_i", "l_i", "alpha", "beta", "factor")
_LINES: dict[str, Callable[[Step, int, dict[str, str]], str]] = {
    "line 8": _loaded,
    "line 9": lambda step, row, at: f"S = Q{step.values['i']} K{step.values['j']}^T / sqrt(d), {_scores(step)} scores.",
    "line 10": lambda step, row, at: (
        f"this block by itself, in row {row}: m~ = {at['m_block']}, P~ = exp(S - m~), l~ = {at['l_block']}."
    ),
    "line 11": lambda step, row, at: (
        f"in row {row} m_new = {at['m_i']}, and l_new = {at['l_old']} × {at['alpha']} + {at['l_block']} × {at['beta']}"
        f" = {at['l_i']}."
    ),
    "line 12": _weighed,
    "line 13": lambda step, row, at: f"l and m of these rows go to HBM; row {row}: l = {at['l_i']}, m = {at['m_i']}.",
}


def _scores(step: Step) -> str:
    """How many rows by how many columns of scores."""
    return " × ".join(str(size) for size in step.values["S"].shape[-2:])


def _met(step: Step) -> str:
    """Say where we are and what was rescaled, in the first row of the first head in which it happens."""
    values, v1 = step.values, "acc" not in step.values
    head = f"Block Q{values['i']} meets block K{values['j']}"
    head += ", part of it masked" if values["masked"] else ""
    tail = " Its last block: O = acc / l and lse = m + log l are written." if "lse" in values else ""
    if not values["m_i"].numel():
        return f"{head}.{tail}"
    columns = (values[name].detach()[0, 0, :, 0].tolist() for name in ("m_old", "m_i", "l_i", "factor"))
    rows = list(enumerate(zip(*columns, strict=True), start=values["rows"][0]))
    risen = [(r, new, by) for r, (old, new, _, by) in rows if new > old > -INF]
    if risen:
        r, new, by = risen[0]
        others = f" (and in {len(risen) - 1} more)" if len(risen) > 1 else ""
        what = "its l and acc are scaled by exp(m_old - m_new)"
        if v1:
            what = "its O is scaled by exp(m_old - m_new) l_old / l_new"
        return f"{head}: new maximum {new:.2f} in row {r}{others}: {what} = {by:.2f}.{tail}"
    if all(new == -INF for _, (_, new, *_) in rows):
        where = f"Block Q{values['i']} meets block K{values['j']}"
        return f"{where}, hidden from these rows: nothing changes.{tail}"
    r, (_, new, l, by) = rows[0]
    if all(old == -INF for _, (old, *_) in rows):
        r, (_, new, l, by) = next((row for row in rows if row[1][1] > -INF), rows[0])
        return f"{head}, its first: row {r} starts with m = {new:.2f}, l = {l:.2f}.{tail}"
    late = next(((r, new, l) for r, (old, new, l, _) in rows if old == -INF < new), None)
    if late:
        r, new, l = late
        return f"{head}: row {r} attends to its first key and starts with m = {new:.2f}, l = {l:.2f}; no other maximum rises.{tail}"
    what = f"yet its O is scaled by l_old / l_new = {by:.2f}" if v1 else f"and now has l = {l:.2f}"
    return f"{head}: no maximum rises; row {r} keeps m = {new:.2f}, {what}.{tail}"


def number(t: Tensor) -> float:
    """The number of the last query of the first head."""
    return t.detach()[0, 0, -1, -1].item() if t.numel() else float("nan")


def show(t: Tensor) -> str:
    return f"{number(t):.4f}"


def _vector(t: Tensor) -> str:
    """At most four entries of the row that sentences follow."""
    if not t.numel():
        return "()"
    row = t.detach()[0, 0, -1, :4].tolist()
    return f"({', '.join(f'{x:.4f}' for x in row)}{', ...' if t.shape[-1] > 4 else ''})"


def matmul(step: Step) -> str:
    """A matrix product by blocks."""
    if step.phase == "done":
        return f"Done: each of the {step.values['blocks']} blocks of C was written once."
    i, j, p = (step.values[name] for name in "ijp")
    what = f": the sum is complete and C{i}{j} is written" if step.writes else ""
    product = f"A{i}{p} times B{p}{j}"
    return f"Worker ({i}, {j}) {'starts its sum with' if p == 0 else 'adds'} {product}{what}."


def qkv(step: Step) -> str:
    """(Q K^T) V by blocks."""
    if step.phase == "done":
        return "Done: no block of scores was ever stored."
    i, j = (step.values[name] for name in "ij")
    what = f" That was the last block: O{i} = acc is written." if step.writes else ""
    return f"Block Q{i} meets block K{j}: their scores times V{j} are added to acc.{what}"


def matmul_gradients(step: Step) -> str:
    """dX and dW of Y = X W."""
    return {
        "dX": "dX = dY W^T: every row of dY times W transposed.",
        "dW": "dW = X^T dY: X transposed times dY, which adds up over the rows.",
        "done": "Done: two products of ordinary size, no Jacobian.",
    }[step.phase]


def softmax_gradient(step: Step) -> str:
    """dS of P = softmax(S)."""
    if step.phase == "delta":
        return f"δ = rowsum(P ∘ dP), one number a row; the first is {_one(step.values['delta'], 0)}."
    if step.phase == "dS":
        return f"dS = P ∘ (dP − δ); the first entry is {_one(step.values['dS'], 0)}."
    return "Done: every row of dS adds up to 0."


def contraction(step: Step) -> str:
    """A gradient carried through a Jacobian, column by column."""
    (m, n), (given, made) = step.shapes["J"], [name for name in step.shapes if name != "J"]
    if step.phase == "done":
        return f"Done: the {m} × {n} = {m * n} numbers of J have become {n}."
    i, value = step.values["i"], _one(step.values[made], 0)
    return f"Column {i} of J times {given}, {m} products, adds up to one number: {made}[{i}] = {value}."


_COUNT = {3: "three", 4: "four", 5: "five"}
_GRADIENTS = {
    "scores": "Make S = scale Q K^T again",
    "softmax": "Make P = softmax(S) again",
    "dV": "dV = P^T dO",
    "dP": "dP = dO V^T",
    "dS": "dS = P o (dP - rowsum(P o dP))",
    "dQ": "dQ = scale dS K",
    "dK": "dK = scale dS^T Q",
}


def gradients(step: Step) -> str:
    """The backward pass of attention, one operation after the other."""
    if step.phase == "done":
        N_q, N_k = step.shapes["S"][-2:]
        held = _COUNT[sum(name in step.values for name in ("S", "P", "dP", "dS"))]
        return f"Done: {_COUNT[len(step.output)]} gradients, at the cost of {held} {N_q} × {N_k} matrices in HBM."
    write, *others = step.writes
    read, value = ", ".join(tile.name for tile in step.reads), step.values[write.name]
    last = _one(value[0, 0], -1) if value.numel() else "nothing"
    also = f", and {' and '.join(tile.name for tile in others)}" if others else ""
    return f"{_GRADIENTS[step.phase]}: read {read}, write {write.name}; its last entry is {last}{also}."


def tiled_gradients(step: Step) -> str:
    """The backward pass by tiles, in two passes or fused."""
    values, i, j = step.values, step.values.get("i"), step.values.get("j")
    if step.phase == "delta":
        start, stop = values["rows"]
        sinks = "; dsinks −= exp(sink − lse) δ in HBM" if "dsinks" in step.shapes else ""
        return f"δ{i} = rowsum(dO{i} ∘ O{i}): one number for each of {stop - start} rows{sinks}."
    if step.phase == "initialise":
        names = [tile.name for tile in step.writes]
        return f"Write {' = '.join(names)} = 0 to HBM for every {'row' if names == ['dQ'] else 'head'}."
    if step.phase == "done":
        twice = "" if values["fused"] else ", twice"
        return (
            f"Done: {values['visits']} of {values['pairs']} pairs of blocks were visited{twice}; "
            "nothing N × N was stored."
        )
    if i is None:
        return f"No query attends to block K{j}: write dK{j} = dV{j} = 0."
    if j is None:
        return f"Block Q{i} attends to no key: write dQ{i} = 0."
    return f"{_visited(step, i, j)}{'; part is masked' if values['masked'] else ''}."


def _visited(step: Step, i: int, j: int) -> str:
    """Which block stays on chip, which is loaded, and what adds up."""
    if step.phase == "dQ":
        what = f"Q{i} stays on chip, K{j} is loaded: dQ{i} += dS K{j}"
        return what + "; dQ written" if step.writes else what
    what = f"K{j} stays on chip, Q{i} is loaded: dV{j} += Pᵀ dO{i}, dK{j} += dSᵀ Q{i}"
    if step.phase == "dQ, dK and dV":
        what += f", dQ{i} += dS K{j} in HBM"
    return what + "; dK, dV written" if any(tile.name == "dK" for tile in step.writes) else what


def _one(t: Tensor, at: int) -> str:
    """One entry of a tensor as text."""
    return f"{t.detach().flatten()[at].item():.4f}" if t.numel() else "nothing"
