"""`Mask` against booleans worked out one by one: bounds, blocks and crossings, many random cases."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
import torch

from flashlearn.core.inputs import Sizes
from flashlearn.core.mask import Mask, causal_mask, check_window, limits
from flashlearn.core.numerics import spans


def by_brute_force(mask: Mask) -> torch.Tensor:
    """(N_q, N_k) booleans from the definition, pair by pair."""
    seen = torch.zeros(mask.N_q, mask.N_k, dtype=torch.bool)
    for i in range(mask.N_q):
        for j in range(mask.N_k):
            offset = j - (i + mask.N_k - mask.N_q)
            seen[i, j] = (mask.left is None or offset >= -mask.left) and (mask.right is None or offset <= mask.right)
            seen[i, j] &= mask.documents is None or text_of(mask.documents, i) == text_of(mask.documents, j)
    return seen


def text_of(offsets: tuple[int, ...], token: int) -> int:
    """The number of the text that a token is in."""
    (number,) = [n for n in range(len(offsets) - 1) if offsets[n] <= token < offsets[n + 1]]
    return number


def draw(rng: random.Random) -> tuple[Mask, int, int]:
    limit = lambda: rng.choice([None, 0, 1, 2, 5, 20])  # noqa: E731
    N_q, N_k, documents = rng.randint(0, 9), rng.randint(0, 9), None
    if rng.random() < 0.5:
        N_q = N_k
        documents = (0, *sorted(rng.randint(0, N_k) for _ in range(rng.randint(0, 4))), N_k)
    return Mask(N_q, N_k, limit(), limit(), documents), rng.randint(1, 5), rng.randint(1, 5)


def span_of(seen: torch.Tensor) -> tuple[int, int]:
    """(first, last + 1) of the True ones; (0, 0) if there are none. They must lie together."""
    places = seen.nonzero().flatten().tolist()
    assert places == list(range(places[0], places[-1] + 1)) if places else True
    return (places[0], places[-1] + 1) if places else (0, 0)


def test_bounds_blocks_and_crossings_are_those_of_the_booleans():
    rng = random.Random(0)
    for _ in range(1200):
        mask, block_q, block_k = draw(rng)
        seen = by_brute_force(mask)
        for i, rows in enumerate(spans(mask.N_q, block_q)):
            assert mask.keys(rows) == span_of(seen[slice(*rows)].any(0)), (mask, rows)
            visited = [
                (j, cols)
                for j, cols in enumerate(spans(mask.N_k, block_k))
                if seen[rows[0] : rows[1], cols[0] : cols[1]].any()
            ]
            assert mask.key_blocks(rows, block_k) == visited, (mask, rows, block_k)
            for j, cols in enumerate(spans(mask.N_k, block_k)):
                block = seen[rows[0] : rows[1], cols[0] : cols[1]]
                assert mask.attends(rows, cols) == bool(block.any()) == ((i, rows) in mask.query_blocks(cols, block_q))
                assert mask.crosses(rows, cols) == (not block.all())
                assert torch.equal(mask.visible(rows, cols), block), (i, j)
        for cols in spans(mask.N_k, block_k):
            assert mask.queries(cols) == span_of(seen[:, slice(*cols)].any(1)), (mask, cols)


def test_a_batch_with_padding_visits_what_any_of_its_sequences_sees():
    rng = random.Random(1)
    for _ in range(400):
        one, block_q, block_k = draw(rng)
        ranges = [tuple(sorted(rng.randint(0, one.N_k) for _ in range(2))) for _ in range(rng.randint(1, 3))]
        mask, keys = replace(one, key_range=tuple(ranges)), torch.arange(one.N_k)
        exists = torch.stack([(keys >= start) & (keys < stop) for start, stop in ranges])[:, None]
        seen = by_brute_force(one) & exists  # (B, N_q, N_k)
        assert torch.equal(mask.visible((0, mask.N_q), (0, mask.N_k)), seen[:, None])
        for i, rows in enumerate(spans(mask.N_q, block_q)):
            assert mask.keys(rows) == hull_of(seen[:, slice(*rows)].any(0).any(0)), (mask, rows)
            for j, cols in enumerate(spans(mask.N_k, block_k)):
                block = seen[:, slice(*rows), slice(*cols)]
                assert mask.attends(rows, cols) == bool(block.any()), (mask, rows, cols)
                assert ((j, cols) in mask.key_blocks(rows, block_k)) == mask.attends(rows, cols)
                assert ((i, rows) in mask.query_blocks(cols, block_q)) == mask.attends(rows, cols)
                assert mask.crosses(rows, cols) == (not block.all())
        for cols in spans(mask.N_k, block_k):
            assert mask.queries(cols) == hull_of(seen[:, :, slice(*cols)].any(0).any(1)), (mask, cols)


def hull_of(seen: torch.Tensor) -> tuple[int, int]:
    """(first, last + 1) of the True ones, which may have others between them; (0, 0) if there are none."""
    places = seen.nonzero().flatten().tolist()
    return (places[0], places[-1] + 1) if places else (0, 0)


def test_empty_blocks_see_nothing():
    mask = Mask(4, 4, None, 0)
    packed = Mask(4, 4, documents=(0, 4))
    assert packed.keys((2, 2)) == (0, 0) and packed.queries((3, 3)) == (0, 0)
    assert mask.keys((2, 2)) == (0, 0) and mask.queries((3, 3)) == (0, 0) and not mask.attends((0, 1), (2, 4))
    assert Mask(0, 3).queries((0, 3)) == (0, 0) and Mask(3, 0).keys((0, 3)) == (0, 0)


def test_hide_touches_only_what_is_hidden():
    S = torch.randn(2, 3)
    assert Mask(4, 4).hide(S, (0, 2), (0, 3)) is S
    hidden = Mask(4, 4, right=0).hide(S, (0, 2), (0, 3))
    assert hidden.isneginf().tolist() == [[False, True, True], [False, False, True]]
    assert Mask(4, 4, right=0).hide(S, (0, 2), (0, 3), 0.0)[0, 1] == 0


def test_causal_is_a_window_without_keys_to_the_right():
    sizes = Sizes(1, 1, 1, 3, 5, 2)
    assert Mask.of(sizes, causal=True) == Mask.of(sizes, window=(None, 0)) == Mask.of(sizes, True, (None, 7))
    assert Mask.of(sizes, True, (2, 7)) == Mask(3, 5, 2, 0) and Mask.of(sizes).full
    assert causal_mask(3, 5).tolist() == by_brute_force(Mask(3, 5, right=0)).tolist()


@pytest.mark.parametrize(
    ("error", "message", "window"),
    [
        (TypeError, r"expected window to be a tuple \(left, right\) or None, got 3", 3),
        (TypeError, r"expected window to be a tuple \(left, right\) or None, got \[1, 2\]", [1, 2]),
        (TypeError, r"expected window to be a tuple \(left, right\) or None, got \(1, 2, 3\)", (1, 2, 3)),
        (TypeError, "expected the left of window to be an int or None, got 1.5", (1.5, None)),
        (TypeError, "expected the right of window to be an int or None, got True", (0, True)),
        (ValueError, "the right of window to be at least 0, or None for no limit .*, got -1", (None, -1)),
    ],
)
def test_windows_are_checked(error, message, window):
    with pytest.raises(error, match=message):
        check_window(window)


INTS = "expected documents to be a tuple of ints or None, got "
SPANS = r"expected key_range to be a tuple of \(start, stop\)"


@pytest.mark.parametrize(
    ("error", "message", "fields"),
    [
        (ValueError, "expected N_q of at least 0, got -4", {"N_q": -4}),
        (TypeError, "expected N_q to be an int, got str", {"N_q": "4"}),
        (TypeError, "expected N_k to be an int, got float", {"N_k": 4.0}),
        (TypeError, "expected N_k to be an int, got float", {"N_k": float("nan")}),
        (TypeError, "expected N_k to be an int, got bool", {"N_k": True}),
        (TypeError, "expected left to be an int or None, got 1.5", {"left": 1.5}),
        (TypeError, "expected right to be an int or None, got False", {"right": False}),
        (ValueError, "expected documents to end at N = 4, got 9", {"documents": (0, 9)}),
        (ValueError, "expected documents to start at 0, got 1", {"documents": (1, 4)}),
        (ValueError, "expected documents that do not fall, got 3 and then 2 at 1 and 2", {"documents": (0, 3, 2, 4)}),
        (ValueError, "expected N_q = N_k with documents, got N_q = 4 and N_k = 5", {"N_k": 5, "documents": (0, 4)}),
        (TypeError, INTS + r"\[0, 4\]", {"documents": [0, 4]}),
        (TypeError, INTS + r"\(0, 1.5, 4\)", {"documents": (0, 1.5, 4)}),
        (TypeError, INTS + r"\(\)", {"documents": ()}),
        (TypeError, SPANS + r" or None, got \(0, 4\)", {"key_range": (0, 4)}),
        (TypeError, SPANS + r" or None, got \(\(0, 4, 4\),\)", {"key_range": ((0, 4, 4),)}),
    ],
)
def test_masks_are_checked(error, message, fields):
    with pytest.raises(error, match=message):
        Mask(**{"N_q": 4, "N_k": 4, **fields})
    assert Mask(4, 4, -1, -2).left == -1, "what two shares of a ring see of each other may lie off the diagonal"
    assert Mask(4, 4, key_range=((-9, 9),)).keys((0, 1)) == (0, 4), "keys that do not exist are cut away"


@pytest.mark.parametrize(
    ("error", "message", "block"),
    [
        (ValueError, "of at least 1, got 0", 0),
        (ValueError, "of at least 1, got -2", -2),
        (TypeError, "to be an int, got float", 2.0),
    ],
)
def test_blocks_of_a_mask_are_checked(error, message, block):
    for blocks_of, name in ((Mask(4, 4).key_blocks, "block_k"), (Mask(4, 4).query_blocks, "block_q")):
        with pytest.raises(error, match=f"expected {name} {message}"):
            blocks_of((0, 4), block)


@pytest.mark.parametrize("causal", ["False", 0, 1, None])
def test_causal_must_be_a_boolean(causal):
    with pytest.raises(TypeError, match="expected causal to be True or False, got"):
        Mask.of(Sizes(1, 1, 1, 3, 5, 2), causal)


@pytest.mark.parametrize("N_q, N_k", [(1, 1), (1, 4), (4, 1), (3, 5), (5, 3), (4, 4), (0, 3), (3, 0)])
def test_limits_that_hide_nothing_are_none(N_q, N_k):
    """What `limits` leaves out hides nothing, and what it keeps hides something; a right of 0 is kept."""
    sides = (None, *range(7))
    whole = (0, N_q), (0, N_k)
    for left, right, causal in itertools.product(sides, sides, (False, True)):
        found = limits((left, right), causal, N_q, N_k)
        asked = Mask(N_q, N_k, left, 0 if causal else right).visible(*whole)
        assert torch.equal(Mask(N_q, N_k, *found).visible(*whole), asked)
        if N_q and N_k:
            assert found[0] is None or not Mask(N_q, N_k, left=found[0]).visible(*whole).all()
            assert not found[1] or not Mask(N_q, N_k, right=found[1]).visible(*whole).all()
        assert (found[1] == 0) == (causal or right == 0)
