"""Every softmax against float64, at its edges, and its claims as properties."""

import functools
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flashlearn as fl

INF, NAN = float("inf"), float("nan")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def blocked(block_size):
    return functools.partial(fl.blocked_softmax, block_size=block_size)


ALGORITHMS = {
    "naive": fl.naive_softmax,
    "safe": fl.safe_softmax,
    "online": fl.online_softmax,
    "blocked 4": blocked(4),
    "blocked 1000": blocked(1000),
}
STEPS = {
    "naive": fl.naive_softmax_steps,
    "safe": fl.safe_softmax_steps,
    "online": fl.online_softmax_steps,
    "blocked 4": functools.partial(fl.blocked_softmax_steps, block_size=4),
    "blocked 1000": functools.partial(fl.blocked_softmax_steps, block_size=1000),
}
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


def randn(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


@every_algorithm
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (64,), (111,), (3, 16), (2, 3, 5), (1, 1, 1, 9)], ids=str)
def test_against_float64(algorithm, dtype, shape):
    """Error at most twice that of plain PyTorch in the same dtype, plus a few units in the last place."""
    x = 2 * randn(*shape, dtype=dtype)
    got, oracle = ALGORITHMS[algorithm](x), torch.softmax(x.double(), -1)
    assert got.shape == x.shape and got.dtype == dtype
    plain = (torch.softmax(x, -1).double() - oracle).abs().max()
    # naive sums in the dtype itself: its error grows with the number of terms
    floor = torch.finfo(dtype).eps * (shape[-1] if algorithm == "naive" else 4)
    error = (got.double() - oracle).abs().max()
    assert error <= 2 * plain + floor, f"{algorithm}: error {error:.2e}, PyTorch's {plain:.2e}"


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "naive"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_logits(algorithm, dtype):
    x = torch.tensor([[60000.0, 59900.0, -60000.0, 0.0], [-60000.0, -60001.0, -59999.0, -60000.0]]).to(dtype)
    torch.testing.assert_close(ALGORITHMS[algorithm](x), torch.softmax(x, -1))


@every_algorithm
@pytest.mark.parametrize(
    "row",
    [
        [-INF, 1.0, 2.0],
        [1.0, -INF, -INF, -INF, -INF, 2.0],
        [-INF, -INF, -INF, -INF, -INF, 0.5],
        [-INF] * 6,
        [-INF],
        [1.0, NAN, 2.0],
        [NAN, -INF],
        [0.0],
        [3.0],
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_edges_agree_with_torch(algorithm, row, dtype):
    x = torch.tensor(row, dtype=dtype)
    torch.testing.assert_close(ALGORITHMS[algorithm](x), torch.softmax(x, -1), equal_nan=True)


@every_algorithm
@pytest.mark.parametrize("row", [[INF, 1.0], [1.0, INF, -INF], [INF, INF], [INF]], ids=str)
def test_plus_infinity(algorithm, row):
    """NaN throughout, as in torch; naive has NaN there and 0 elsewhere, as its docstring says."""
    x = torch.tensor(row)
    expected = torch.softmax(x, -1)
    assert expected.isnan().all()
    if algorithm == "naive":
        expected = torch.where(x == INF, NAN, 0.0)
    torch.testing.assert_close(ALGORITHMS[algorithm](x), expected, equal_nan=True)


@every_algorithm
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5), (2, 0, 4)], ids=str)
def test_empty(algorithm, shape):
    x = torch.zeros(shape)
    assert ALGORITHMS[algorithm](x).shape == torch.softmax(x, -1).shape
    assert fl.last(STEPS[algorithm](x)).output.shape == shape


@every_algorithm
@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (torch.tensor([1, 2]), TypeError, "expected x in float16, bfloat16, float32 or float64, got torch.int64"),
        (torch.tensor([True]), TypeError, "got torch.bool"),
        (torch.tensor([1j]), TypeError, "got torch.complex64"),
        ([1.0, 2.0], TypeError, "expected x to be a torch.Tensor, got list"),
        (torch.tensor(1.0), ValueError, "at least one dimension, \\(..., N\\), got a scalar"),
    ],
    ids=str,
)
def test_bad_input(algorithm, x, error, words):
    with pytest.raises(error, match=words):
        ALGORITHMS[algorithm](x)


@pytest.mark.parametrize(
    ("size", "error", "words"),
    [
        (0, ValueError, "expected block_size of at least 1, got 0"),
        (-3, ValueError, "expected block_size of at least 1, got -3"),
        (2.0, TypeError, "expected block_size to be an int, got float"),
        (True, TypeError, "expected block_size to be an int, got bool"),
    ],
)
@pytest.mark.parametrize("function", [fl.blocked_softmax, fl.merge_tree])
def test_bad_block_size(function, size, error, words):
    with pytest.raises(error, match=words):
        function(torch.zeros(4), size)


def test_naive_breaks_where_it_should():
    for dtype, edge in zip(DTYPES, (11.0899, 88.7189, 88.7228, 709.7827), strict=True):
        below, above = torch.full((2,), edge * 0.98, dtype=dtype), torch.full((2,), edge * 1.01, dtype=dtype)
        assert torch.exp(below).isfinite().all()
        assert fl.naive_softmax(above).isnan().all()
    assert fl.naive_softmax(torch.tensor([11.0, 11.0]).half()).tolist() == [0, 0]


@every_algorithm
def test_strided_and_expanded_inputs(algorithm):
    base = randn(6, 8)
    for x in (base.T, base[:, ::2], base[:1].expand(5, 8), base.flip(0)):
        torch.testing.assert_close(ALGORITHMS[algorithm](x), torch.softmax(x, -1))


@every_algorithm
def test_gradients_flow(algorithm):
    x = randn(2, 5).requires_grad_()
    assert torch.autograd.gradcheck(ALGORITHMS[algorithm], (x,))


@every_algorithm
@pytest.mark.parametrize("shape", [(5,), (3, 16), (2, 2, 7)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_and_passes(algorithm, shape, dtype):
    x = randn(*shape, dtype=dtype)
    n_bytes = x.numel() * x.element_size()
    times = 3 if algorithm == "safe" else 2
    steps = fl.record(STEPS[algorithm](x))
    assert fl.hbm_bytes(steps) == (times * n_bytes, n_bytes)
    assert fl.passes(steps, "x") == times
    assert [step.output is None for step in steps] == [True] * (len(steps) - 1) + [False]
    torch.testing.assert_close(steps[-1].written("y"), steps[-1].output.double())


def test_worked_numbers_of_the_correction():
    steps = [s for s in fl.online_softmax_steps(torch.tensor([3.0, 2.0, 5.0, 1.0])) if s.phase != "divide"][:4]
    assert [round(s.values["l_i"].item(), 4) for s in steps] == [1.0, 1.3679, 1.1851, 1.2034]


def test_steps_are_not_changed_afterwards():
    x = randn(9)
    steps = []
    frozen = []
    for step in fl.blocked_softmax_steps(x, 2):
        steps.append(step)
        frozen.append({name: value.clone() for name, value in step.values.items()})
    for step, values in zip(steps, frozen, strict=True):
        for name, value in values.items():
            assert torch.equal(step.values[name], value), name


def test_merge_takes_numbers_and_rejects_other_shapes():
    m, l = fl.merge((3, 1), (5, 2))
    assert (m.item(), l.item()) == (5, pytest.approx(2 + math.exp(-2)))
    two, three = torch.zeros(2), torch.zeros(3)
    with pytest.raises(
        ValueError, match=r"expected m and l of one shape on both sides, got \(2,\), \(2,\), \(3,\), \(3,\)"
    ):
        fl.merge((two, two), (three, three))


GOOD, META = (torch.zeros(2), torch.ones(2)), (torch.zeros(2, device="meta"), torch.ones(2, device="meta"))


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (None, GOOD, TypeError, r"expected a to be a pair \(m, l\), got NoneType"),
        (GOOD, (*GOOD, 1.0), TypeError, r"expected b to be a pair \(m, l\), got tuple of length 3"),
        (GOOD, (0.0, None), TypeError, "expected l of b to be a tensor or a number, got NoneType"),
        (("a", 1.0), GOOD, TypeError, "expected m of a to be a tensor or a number, got str"),
        (GOOD, (GOOD[0] + 1j, GOOD[1]), TypeError, "expected m of b in real numbers, got torch.complex64"),
        ((1j, 1.0), (0.0, 1.0), TypeError, "expected m of a in real numbers, got torch.complex64"),
        (
            (GOOD[0].to(torch.float8_e4m3fn), GOOD[1]),
            GOOD,
            TypeError,
            "expected m of a in float16, bfloat16, float32 or float64, got torch.float8_e4m3fn",
        ),
        (GOOD, META, ValueError, "expected m and l on one device on both sides, got cpu, cpu, meta, meta"),
    ],
)
def test_merge_says_what_it_takes(a, b, error, message):
    with pytest.raises(error, match=message):
        fl.merge(a, b)


def test_on_chip_does_not_grow_with_the_row():
    peaks = {n: fl.sram_peak(fl.blocked_softmax_steps(torch.zeros(n), 4)) for n in (8, 80)}
    assert (
        peaks[8] == peaks[80] == (4 + 1 + 1 + 1) * 4
    )  # a block of x, in whose place y comes, m, l, and the l of the block


# Properties: the claims of notebooks 02 and 03.

logits = st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=24)


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-9)


@settings(deadline=None)
@given(logits, st.floats(-1000, 1000))
def test_shift_invariance(row, shift):
    x = torch.tensor(row, dtype=torch.float64)
    for softmax in (fl.safe_softmax, fl.online_softmax, blocked(3)):
        close(softmax(x + shift), softmax(x))


@settings(deadline=None)
@given(logits, st.integers(1, 30))
def test_block_size_does_not_matter(row, block_size):
    x = torch.tensor(row, dtype=torch.float64)
    close(fl.blocked_softmax(x, block_size), torch.softmax(x, -1))


pairs = st.tuples(st.floats(-50, 50), st.floats(1, 100)) | st.just((-INF, 0.0))


def as_pair(pair):
    return tuple(torch.tensor(value, dtype=torch.float64) for value in pair)


@settings(deadline=None)  # the first call takes seconds on a busy machine
@given(pairs, pairs, pairs)
def test_merge_is_associative_and_commutative(a, b, c):
    a, b, c = as_pair(a), as_pair(b), as_pair(c)
    for left, right in (
        (fl.merge(a, fl.merge(b, c)), fl.merge(fl.merge(a, b), c)),
        (fl.merge(a, b), fl.merge(b, a)),
        (fl.merge(a, as_pair((-INF, 0.0))), a),
    ):
        close(left[0], right[0])
        close(left[1], right[1])


@settings(deadline=None)
@given(logits, st.integers(1, 30), st.randoms(use_true_random=False))
def test_order_of_blocks_does_not_matter(row, block_size, random):
    x = torch.tensor(row, dtype=torch.float64)
    blocks = [(block.max(), torch.exp(block - block.max()).sum()) for block in x.split(block_size)]
    random.shuffle(blocks)
    m, l = functools.reduce(fl.merge, blocks)
    close(torch.exp(x - m) / l, torch.softmax(x, -1))


@settings(deadline=None)
@given(logits, st.integers(1, 30))
def test_tree_equals_the_whole_row(row, block_size):
    x = torch.tensor(row, dtype=torch.float64)
    m, l = fl.merge_tree(x, block_size)
    assert m.item() == x.max()
    close(l.squeeze(), torch.exp(x - x.max()).sum())


@pytest.mark.parametrize("row", [[], [-INF] * 5, [-INF, -INF, -INF, 1.0, 2.0]], ids=str)
def test_tree_at_its_edges(row):
    x = torch.tensor(row)
    m, l = fl.merge_tree(x, 2)
    finite = [value for value in row if value > -INF]
    assert m.item() == max(finite, default=-INF)
    torch.testing.assert_close(
        l.squeeze(), sum((torch.exp(v - m.squeeze()) for v in torch.tensor(finite)), torch.tensor(0.0))
    )


def test_captions_of_a_merge_state_the_sum_and_both_factors():
    """l_a e^(m_a - m) + l_b e^(m_b - m) = l, in the numbers of the caption; the pairs that were merged left the chip."""
    for row in ([3.0, 1.0, 5.0, 2.0], [5.0, 1.0, 3.0, 2.0], [-INF, -INF, 1.0, 2.0]):
        *blocks, step = list(fl.merge_tree_steps(torch.tensor(row), 2))[:3]
        m = step.values["m_i"].item()
        (m_a, l_a), (m_b, l_b) = ((pair.values["m_i"].item(), pair.values["l_i"].item()) for pair in blocks)
        numbers = [l_a, math.exp(m_a - m), l_b, math.exp(m_b - m), step.values["l_i"].item()]
        assert [f"{number:.4f}" for number in numbers] == re.findall(r"\d+\.\d+", step.sentence)[1:]
        assert l_a * numbers[1] + l_b * numbers[3] == pytest.approx(numbers[4])
        assert sum(tile.nbytes for tile in step.on_chip) == 2 * 4


def test_tree_of_256_logits_in_blocks_of_4():
    x = randn(256)
    steps = fl.record(fl.merge_tree_steps(x, 4))
    assert sum(step.phase == "reduce" for step in steps) == 64
    assert sum(step.phase == "merge" for step in steps) == 63
    assert fl.hbm_bytes(steps) == (256 * 8, 0)
    m, l = steps[-1].output
    close(torch.exp(x - m) / l, torch.softmax(x, -1))
