"""Every mutant of one token of the two capstones fails its check, but for those that are stated to be right.

What is stated is judged: such a mutant is run beside the solution, against float64, on lengths that fill no block, more
keys than queries and the other way round, large and tiny scores, float16 and long texts, and is nowhere worse.

    .venv/bin/python -m tests.test_mutants 12.kernel       the table: how many there are of each kind, and what stays
"""

import collections
import functools
import importlib.util
import math
import random
import re
import sys

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here", allow_module_level=True)

from flashlearn import kernels  # isort: skip (first: it chooses the backend)

from flashlearn.core.mask import causal_mask
from flashlearn.exercises import EXERCISES, assessment
from flashlearn.exercises.launching import launched, launched_far, launched_with_tf32
from tests.mutants import Mutant, mutants

ROUNDED = ".to(q_ptr.dtype.element_ty).to(tl.float32)"

if not kernels.INTERPRETED:
    pytest.skip("kernels are compiled here: what they read is not seen", allow_module_level=True)

KINDS = ("bound", "comparison", "dtype", "factor", "mask", "name", "statement")


def loads(text: str) -> tuple[str, str, str]:
    """A masked load: what it gives behind the last element is not said, 1 or -1."""
    return f"{text})", f"{text}, other=1.0)", f"{text}, other=-1.0)"


# The changed lines of mutants that pass the check, by the reason why they are right
EQUIVALENT: dict[str, dict[str, tuple[str, ...]]] = {
    "12.kernel": {
        "rows of Q behind the last are not stored": (*loads("q = tl.load(q_ptr + at_q, mask=(rows < N_q)[:, None]"),),
        "scores with keys behind the last become -inf, whatever they were, and their weight is 0": (
            *loads("k = tl.load(k_ptr + at_k, mask=(keys < N_k)[:, None]"),
            *loads("v = tl.load(v_ptr + at_k, mask=(keys < N_k)[:, None]")[1:],
        ),
        "an iteration more at most, of which every load and score is masked": (
            "end = N_k + 1",
            "end = tl.maximum(start_m + BLOCK_M + N_k - N_q, 0)",
            "end = tl.minimum(tl.maximum(start_m + BLOCK_M + N_k - N_q, 0), N_k + 1)",
        ),
        "a loop to a negative end does nothing, as one to 0": ("end = tl.minimum(start_m + BLOCK_M + N_k - N_q, N_k)",),
        "no query of which a row is stored sees a key behind the last": (
            "visible = keys[None, :] <= rows[:, None] + N_k - N_q",
        ),
        "-inf is -inf plus or minus 1": (
            "base = tl.where(m_new == float('-inf') + 1, 0.0, m_new)",
            "base = tl.where(m_new == float('-inf') - 1, 0.0, m_new)",
        ),
        "any number will do: -inf less a number is -inf, and 0 over a number is 0": (
            "base = tl.where(m_new == float('-inf'), 1.0, m_new)",
            "base = tl.where(m_new == float('-inf'), -1.0, m_new)",
            "l = tl.where(l == 0.0, 2.0, l)",
        ),
        "0 and -inf are the same in every dtype": (
            "m = tl.full((BLOCK_M,), float('-inf'), dtype=tl.float32)ROUNDED",
            "l = tl.zeros((BLOCK_M,), dtype=tl.float32)ROUNDED",
            "acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)ROUNDED",
        ),
        "a store converts, and what was rounded is rounded to itself": (
            "tl.store(o_ptr + at_q, o, mask=(rows < N_q)[:, None])",
            "o = (acc / l[:, None])ROUNDED",
        ),
    },
    "13.kernel": {
        "rows of dK and dV behind the last are not stored": (
            *loads("k = tl.load(k_ptr + at_k, mask=(keys < N_k)[:, None]"),
            *loads("v = tl.load(v_ptr + at_k, mask=(keys < N_k)[:, None]"),
        ),
        "lse is infinite behind the last query, so P and dS are 0 whatever is finite": (
            *loads("q = tl.load(q_ptr + at_q, mask=(rows < N_q)[:, None]")[1:],
            *loads("do = tl.load(do_ptr + at_q, mask=(rows < N_q)[:, None]")[1:],
            *loads("delta = tl.load(delta_ptr + head * N_q + rows, mask=rows < N_q")[1:],
        ),
        "0 and 1 are in the same block of queries": (
            "first = tl.maximum(start_n + N_q - N_k, 1) // BLOCK_M * BLOCK_M",
        ),
        "an iteration more at most, of which every load is masked": ("for start_m in range(first, N_q + 1, BLOCK_M):",),
        "P and dS are rounded to this dtype for their products anyway, and P counts no more than that in dS": (
            "p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)ROUNDED",
            "p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)ROUNDED",
            "ds_t = (p_t * (dp_t - delta[None, :]))ROUNDED",
        ),
        "0 is the same in every dtype": (
            "dk = tl.zeros((BLOCK_N, D), dtype=tl.float32)ROUNDED",
            "dv = tl.zeros((BLOCK_N, D), dtype=tl.float32)ROUNDED",
        ),
        "a store converts, and what was rounded is rounded to itself": (
            "tl.store(dk_ptr + at_k, dk, mask=(keys < N_k)[:, None])",
            "tl.store(dv_ptr + at_k, dv, mask=(keys < N_k)[:, None])",
            "dk = (dk * scale)ROUNDED",
        ),
    },
}


def test_a_mutant_is_the_kernel_with_one_change():
    def kernel(x_ptr, N_q, CAUSAL):
        rows = tl.arange(0, 16)  # noqa: F821
        end = N_q
        if CAUSAL:
            end = tl.minimum(end, 8)  # noqa: F821
        tl.store(x_ptr + rows, end, mask=rows < N_q)  # noqa: F821

    found = mutants(kernel)
    described = {mutant.described for mutant in found}
    assert len(described) >= 25 and len({mutant.source for mutant in found}) == len(found)
    assert {
        "line 3: N_q -> (N_q - 1)",
        "line 4: if CAUSAL: -> if not CAUSAL:",
        "line 5: tl.minimum -> tl.maximum",
        "line 6: rows < N_q -> rows <= N_q",
        "line 6: tl.store(x_ptr + rows, end, mask=rows < N_q) -> pass",
    } <= described
    (strict,) = [mutant for mutant in found if mutant.described == "line 6: rows < N_q -> rows <= N_q"]
    assert strict.changed == "tl.store(x_ptr + rows, end, mask=rows <= N_q)"
    assert "rows <= N_q" in strict.source and strict.source.count("N_q") == 3


@functools.cache
def all_of(name: str) -> list[Mutant]:
    return mutants(EXERCISES[name].solution)


def first_that_fails(name: str, kernel) -> str:
    """The case of the check that kills a kernel, empty if none does."""
    return next((case.name for case in EXERCISES[name].cases if not assessment._run(case, kernel).passed), "")


def stated(name: str) -> dict[str, str]:
    """{changed line: why it is right}"""
    return {line.replace("ROUNDED", ROUNDED): why for why, lines in EQUIVALENT[name].items() for line in lines}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EQUIVALENT)
def test_a_mutant_fails_the_check_or_is_right(name, kind):
    of_this_kind = [mutant for mutant in all_of(name) if mutant.kind == kind]
    survivors = [mutant for mutant in of_this_kind if not first_that_fails(name, mutant.kernel())]
    assert len(of_this_kind) >= 15
    right = {mutant.changed for mutant in of_this_kind} & stated(name).keys()
    assert {mutant.changed for mutant in survivors} == right, (
        "either the check needs a case, or the kernel is right: say why"
    )
    for mutant in survivors:
        assert not wrong_on(name, mutant.kernel()), mutant.described


def test_what_is_stated_is_a_mutant():
    for name in EQUIVALENT:
        assert stated(name).keys() <= {mutant.changed for mutant in all_of(name)}


WRONG = {  # of issue 57, and some more, by the changed line; the oracle finds them, too
    "12.kernel": (
        r"end = .*\(BLOCK_M - 1\) \+ N_k - N_q",
        r"acc = tl\.dot.*to\(q_ptr\.dtype",
        r"l = \(l \* alpha.*to\(q_ptr\.dtype",
        r"head = tl\.program_id\(1\)$",
        r"range\(0, end - 1, BLOCK_N\)",
    ),
    "13.kernel": (
        r"first = .*start_n \+ 1 \+ N_q - N_k",
        r"dk = tl\.dot.*to\(q_ptr\.dtype",
        r"dp_t = tl\.dot\(v, tl\.trans\(do\)\)$",
        r"head = tl\.program_id\(1\)$",
        r"lse = tl\.load.*to\(q_ptr\.dtype",
    ),
}


@pytest.mark.slow  # ten seconds each
@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in WRONG.items() for line in lines])
def test_a_mutant_that_once_passed_fails(name, line):
    (mutant, *_) = [mutant for mutant in all_of(name) if re.search(line, mutant.changed)]
    assert first_that_fails(name, mutant.kernel())
    assert wrong_on(name, mutant.kernel()), "by the oracle, too"


# ---- the oracle ------------------------------------------------------------------------------------------------------

LENGTHS = (
    *((1, 1), (1, 33), (33, 1), (16, 33), (33, 16), (64, 65), (65, 64), (17, 17), (48, 48), (63, 100), (100, 63)),
    *((49, 80), (5, 129), (129, 5), (31, 47), (47, 31), (111, 112), (112, 111), (16, 16), (2, 64)),
)


def problems() -> list[dict]:
    """Every pair of LENGTHS twice with the rest drawn at random, and some long ones. The interpreter multiplies no bfloat16."""
    rng = random.Random(0)
    found = []
    for N_q, N_k in LENGTHS * 2:
        dtype = rng.choice((torch.float32, torch.float16))
        how = rng.choice(("", "", "", "tf32", "far"))
        size = rng.choice((0.3, 1.0, 10.0, 300.0, 3000.0))
        found.append({
            "N": (N_q, N_k), "blocks": (rng.choice((16, 32, 64)), rng.choice((16, 32, 64))), "dtype": dtype, "how": how,
            "H": 1 if how == "far" else rng.choice((1, 2)), "D": rng.choice((16, 32)), "causal": rng.random() < 0.6,
            "scale": rng.choice((0.1, 0.3, 1.0)), "size": size, "mean": rng.choice((0.0, 3.0, 60.0 if size < 100 else 0.0)),
        })  # fmt: skip
    long = {"H": 1, "D": 16, "scale": 0.3, "size": 1.0, "mean": 3.0, "how": ""}
    for N, blocks, dtype in (
        ((64, 2048), (64, 16), torch.float16),
        ((2048, 64), (16, 64), torch.float16),
        ((300, 1033), (64, 64), torch.float32),
    ):
        found.append({"N": N, "blocks": blocks, "causal": N[0] == 300, "dtype": dtype, **long})
    return found


HOW = {"": launched, "far": launched_far, "tf32": launched_with_tf32}


def tensors(N, H, D, size, mean, dtype, **_):
    """q, k, v, do of these sizes; queries by turns small, of the size, and of both signs."""
    generator = torch.Generator().manual_seed(100 * N[0] + N[1])
    q, k, v, do = (torch.randn(H, n, D, generator=generator) for n in (N[0], N[1], N[1], N[0]))
    q = q * torch.tensor([size, 0.3, 1.0]).repeat(N[0])[: N[0], None]
    if N[0] > 2000:  # the last queries are the first again, and what they add to dK and dV takes away what those added
        do[:, :16] *= 500.0
        q[:, -16:], do[:, -16:] = q[:, :16], -do[:, :16] - mean / 5
    return [t.to(dtype) for t in (q, k, v + mean, do + mean / 10)]


def forward(kernel, N, blocks, causal, scale, how, **other):
    q, k, v, _ = tensors(N, **other)
    o, lse = torch.full_like(q, torch.nan), torch.full(q.shape[:2], torch.nan)
    constants = {"D": q.shape[-1], "BLOCK_M": blocks[0], "BLOCK_N": blocks[1], "CAUSAL": causal}
    HOW[how](kernel, (-(-N[0] // blocks[0]), len(q)), constants, q, k, v, o, lse, *N, scale * math.log2(math.e))
    return o, lse


def backward(kernel, N, blocks, causal, scale, how, **other):
    q, k, v, do = tensors(N, **other)
    lse, delta = (t.float() for t in reference(q, k, v, do, causal, scale)[1:3])
    dk, dv = torch.full_like(k, torch.nan), torch.full_like(v, torch.nan)
    constants = {"D": q.shape[-1], "BLOCK_M": blocks[0], "BLOCK_N": blocks[1], "CAUSAL": causal}
    HOW[how](kernel, (-(-N[1] // blocks[1]), len(k)), constants, q, k, v, do, lse, delta, dk, dv, *N, scale)
    return dk, dv


def reference(q, k, v, do, causal, scale):
    """o, lse, delta, dk, dv in float64."""
    q, k, v, do = (t.double() for t in (q, k, v, do))
    s = q @ k.mT * scale
    s = s.masked_fill(~causal_mask(q.shape[1], k.shape[1]), -math.inf) if causal else s
    p = torch.softmax(s, -1).nan_to_num(0.0)
    o, dp = p @ v, do @ v.mT
    delta = (do * o).sum(-1)
    return o, torch.logsumexp(s, -1), delta, (p * (dp - delta[..., None])).mT @ q * scale, p.mT @ do


RUN = {"12.kernel": (forward, slice(0, 2)), "13.kernel": (backward, slice(3, 5))}


def errors(name: str, kernel, problem: dict) -> list[float]:
    """Of each result the largest error, as a share of its largest number; infinite where only one of the two is finite."""
    run, which = RUN[name]
    inputs = {key: problem[key] for key in ("N", "H", "D", "size", "mean", "dtype")}
    wanted = reference(*tensors(**inputs), problem["causal"], problem["scale"])[which]
    found = []
    for got, want in zip(run(kernel, **problem), wanted, strict=True):
        got = got.double()
        same = torch.equal(got.isfinite(), want.isfinite()) and torch.equal(
            got[~want.isfinite()], want[~want.isfinite()]
        )
        most = want[want.isfinite()].abs().max().item() if want.isfinite().any() else 1.0
        off = (got - want)[want.isfinite()].abs().max().item() if want.isfinite().any() else 0.0
        found.append(off / max(most, 1e-2) if same else math.inf)
    return found


@functools.cache
def allowed(name: str) -> list[list[float]]:
    """For each problem the errors that a mutant may have: twice the solution's, and half a unit of the last place."""
    found = []
    for problem in problems():
        units = [
            torch.finfo(torch.float32 if name == "12.kernel" and place else problem["dtype"]).eps for place in (0, 1)
        ]
        of_the_solution = errors(name, EXERCISES[name].solution, problem)
        assert all(error < math.inf for error in of_the_solution), problem
        found.append([2 * error + unit / 2 for error, unit in zip(of_the_solution, units, strict=True)])
    return found


def wrong_on(name: str, kernel) -> str:
    """The first problem on which a kernel is worse than the solution, with its errors; empty if there is none."""
    for problem, most in zip(problems(), allowed(name), strict=True):
        try:
            found = errors(name, kernel, problem)
        except Exception as error:  # whatever a mutant raises
            return f"{type(error).__name__} on {problem}"
        if any(error > limit for error, limit in zip(found, most, strict=True)):
            return f"{found}, allowed {most} on {problem}"
    return ""


def table(name: str) -> str:
    """A line for each kind: how many mutants, how many fail the check, and how many that pass are wrong; then which pass."""
    rows, passed = [], []
    for kind in KINDS:
        counts = collections.Counter()
        for mutant in (mutant for mutant in all_of(name) if mutant.kind == kind):
            killed = first_that_fails(name, mutant.kernel())
            why = "" if killed else wrong_on(name, mutant.kernel())
            counts[killed or ("wrong" if why else "right")] += 1
            passed += [] if killed else [f"{kind}: {mutant.changed}  {why or 'right'}"]
        rows.append(
            f"{kind:<12}{counts.total():>4} {counts.total() - counts['wrong'] - counts['right']:>4} {counts['right']:>4} {counts['wrong']:>4}"
        )
    return "\n".join([f"{name:<12} all fail right wrong", *rows, *passed])


if __name__ == "__main__":
    print(table(sys.argv[1]))
