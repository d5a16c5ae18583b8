"""Pages are handed out and taken back: nobody's are overwritten, none is lost, and no request notices the others."""

from __future__ import annotations

import copy
import functools
import itertools
import random

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

import flashlearn as fl
from flashlearn.models.gpt import GPT
from flashlearn.serving import Batch, OutOfPages, PagePool, gathered_attention, greedy
from flashlearn.serving.batch import common_length
from flashlearn.serving.pool import PagedSequence
from tests.slow import slow

LAYERS, VOCABULARY = 2, 5
HEADS = torch.tensor([[0.25], [0.5]])  # what each of two heads adds to a token, so that it knows its own


class Pages(RuleBasedStateMachine):
    """The pool beside what it stands for: every sequence as a list of its own."""

    sequences = Bundle("sequences")

    def __init__(self, make=PagePool):
        super().__init__()
        self.pool = make(7, 3, 2, 1, layers=LAYERS, dtype=torch.float64)
        self.content = {}
        self.written = 0

    @rule(target=sequences)
    def allocate(self):
        sequence = self.pool.allocate()
        self.content[sequence] = []
        return sequence

    @rule(sequence=sequences, n=st.integers(0, 8))
    def append(self, sequence, n):
        before = list(self.pool.holders), list(sequence.pages), sequence.length
        wanted = self.pool.pages_needed(sequence, n)
        try:
            slots = self.pool.append(sequence, n)
        except OutOfPages:
            assert wanted > self.pool.free_pages
            assert before == (self.pool.holders, sequence.pages, sequence.length), "nothing changed"
            return
        assert sum(map(bool, self.pool.holders)) - sum(map(bool, before[0])) == wanted, "as many as it said"
        tokens = list(range(self.written + 1, self.written + n + 1))
        self.written += n
        self.content[sequence] += tokens
        for layer in range(LAYERS):
            k = torch.tensor(tokens, dtype=torch.float64)[None, :, None] + HEADS[..., None]
            self.pool.write(layer, slots, k + 1000 * layer, -k)

    @rule(target=sequences, sequence=sequences, part=st.floats(0, 1))
    def fork(self, sequence, part):
        length, free = round(part * sequence.length), self.pool.free_pages
        child = self.pool.fork(sequence, length)
        self.content[child] = self.content[sequence][:length]
        assert self.pool.free_pages == free, "a fork costs nothing"
        return child

    @rule(sequence=sequences, part=st.floats(0, 1))
    def truncate(self, sequence, part):
        length = round(part * sequence.length)
        self.pool.truncate(sequence, length)
        self.content[sequence] = self.content[sequence][:length]
        assert sequence.length == length

    @rule(sequence=consumes(sequences))
    def free(self, sequence):
        self.pool.free(sequence)
        del self.content[sequence]
        with pytest.raises(ValueError, match="was not freed, got another"):
            self.pool.free(sequence)

    @invariant()
    def every_page_is_counted(self):
        held = [number for sequence in self.content for number in sequence.pages]
        assert self.pool.holders == [held.count(number) for number in range(7)]
        assert self.pool.free_pages == self.pool.holders.count(0)
        assert all(len(s.pages) == -(-s.length // 3) for s in self.content), "no page more than its tokens fill"

    @invariant()
    def everybody_finds_what_they_wrote(self):
        k, v = self.pool.k.tolist(), self.pool.v.tolist()  # [layer][page][head][place][0]
        for sequence, tokens in self.content.items():
            for layer, head in ((0, 0), (0, 1), (1, 0), (1, 1)):
                want = [token + (head + 1) / 4 for token in tokens]
                keys, values = (self.of(sequence, t[layer], head) for t in (k, v))
                assert [x - 1000 * layer for x in keys] == want and [-x for x in values] == want

    @staticmethod
    def of(sequence, pages, head):
        """What the pages of a sequence hold for one head."""
        return [x for number in sequence.pages for (x,) in pages[number][head]][: sequence.length]

    @invariant()
    def the_last_to_come_finds_it_in_one_piece(self):
        for sequence, tokens in list(self.content.items())[-1:]:
            want = torch.tensor(tokens, dtype=torch.float64) + HEADS
            for layer in range(LAYERS):
                k, v = self.pool.gather(layer, sequence)
                assert torch.equal(k[..., 0] - 1000 * layer, want) and torch.equal(-v[..., 0], want)


@pytest.mark.parametrize("examples", (15, slow(500)))
def test_pages_are_nobody_elses(examples):
    run_state_machine_as_test(Pages, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None))


class NoCopy(PagePool):
    """Wrong: writes into pages that others hold."""

    def _shared_end(self, sequence):
        return False


class HalfCopied(PagePool):
    """Wrong: a copy of the keys, and the values of whoever held the page before."""

    def _copy_last_page(self, sequence):
        v = self.v.clone()
        super()._copy_last_page(sequence)
        self.v.copy_(v)


class Forgetful(PagePool):
    """Wrong: a page whose last holder goes is free only if it was the only one ever."""

    def fork(self, sequence, length=None):
        child = super().fork(sequence, length)
        for number in child.pages:
            self.holders[number] += 1
        return child


@pytest.mark.parametrize("wrong", (slow(NoCopy), slow(HalfCopied), Forgetful))
def test_what_is_wrong_is_found(wrong):
    with pytest.raises((AssertionError, RuntimeError)):
        run_state_machine_as_test(
            lambda: Pages(wrong),
            settings=settings(
                max_examples=300, stateful_step_count=30, deadline=None, derandomize=True, phases=[Phase.generate]
            ),
        )


def next_of(tokens) -> int:
    """Any function of all the tokens, and of their order."""
    return functools.reduce(lambda state, token: (state * 31 + token + 7) % 1009, tokens, 1) % VOCABULARY


def read_back(pool, tokens, batch):
    """What stands for a model: writes each token into the pages, then reads all of them through the page table."""
    pool.write(0, batch.slots, tokens[None, :, None].double(), batch.positions[None, :, None].double())
    k, v = (t[0, :, 0, :, 0].tolist() for t in (pool.k, pool.v))  # once for all: a tensor's element costs a microsecond
    following = []
    for row, length in zip(batch.page_table.tolist(), batch.lengths.tolist(), strict=True):
        tokens, positions = ([one for page in row for one in t[page]][:length] for t in (k, v))
        assert positions == list(range(length)), "every token at its position"
        following.append(next_of(map(int, tokens)))
    return following


def zeros(tokens, batch):
    """A model that always says 0."""
    return [0] * len(batch.lengths)


def alone(prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_of(tokens))
    return tokens


class Failed(RuntimeError):
    """What the model raises whenever it is told to."""


def serve(arrivals, pages, page, most_tokens, share=True, fails=()):
    """Run a batch in which arrivals[t] = [(prompt, count), ...] come before step t; the batch, and its requests.

    Calls of the model whose numbers are in `fails` write nonsense where they may, and raise.
    """
    pool, calls = PagePool(pages, page, 1, 1, dtype=torch.float64), itertools.count()

    def forward(tokens, batch):
        if next(calls) not in fails:
            return read_back(pool, tokens, batch)
        pool.write(0, batch.slots, *torch.full((2, 1, len(tokens), 1), -7.0))
        raise Failed

    batch = Batch(pool, forward, most_tokens=most_tokens, share=share)
    requests, steps = [], 0
    arrivals = list(arrivals)
    while arrivals or batch.busy:
        for prompt, count in arrivals.pop(0) if arrivals else ():
            try:
                requests.append(batch.submit(prompt, count))
            except ValueError:
                assert len(prompt) + count - 1 > pages * page
        before = {r: (r.cached.length if r.cached else 0, list(r.tokens)) for r in batch.running + batch.waiting}
        try:
            batch.step()
        except Failed:
            assert list(before) == batch.running + batch.waiting, "in the same order, and nobody is lost"
            now = {r: (r.cached.length if r.cached else 0, r.tokens) for r in before}
            assert all(now[r] == was if r in batch.running else now[r] == (0, was[1]) for r, was in before.items())
        held = [number for r in batch.running for number in r.cached.pages]
        assert pool.holders == [held.count(number) for number in range(pages)]
        assert share or max(pool.holders, default=0) <= 1, "no page is owned twice"
        steps += 1
        assert steps < 5000, "no request is held up for ever"
    assert pool.free_pages == pages
    return batch, requests


# Of two tokens: many begin alike. A text is one choice of Hypothesis, a list two for every token
prompts = st.text("01", min_size=1, max_size=20).map(lambda text: [int(letter) for letter in text])
arrivals = st.lists(st.lists(st.tuples(prompts, st.integers(1, 12)), max_size=3), max_size=12)
sizes = {"pages": st.integers(1, 9), "page": st.sampled_from((1, 2, 4)), "most_tokens": st.integers(1, 12)}


@pytest.mark.parametrize("examples", (60, slow(3000)))
def test_everybody_gets_what_they_would_get_alone(examples):
    @settings(max_examples=examples, deadline=None)
    @given(arrivals=arrivals, share=st.booleans(), **sizes)
    def check(arrivals, share, **sizes):
        _, requests = serve(arrivals, share=share, **sizes)
        for request in requests:
            assert request.tokens == alone(request.prompt, request.count) and request.cached is None

    check()


@pytest.mark.parametrize("examples", (60, slow(3000)))
def test_a_step_that_fails_is_tried_again(examples):
    @settings(max_examples=examples, deadline=None)
    @given(arrivals=arrivals, share=st.booleans(), fails=st.sets(st.integers(0, 40), max_size=20), **sizes)
    def check(arrivals, share, fails, **sizes):
        _, requests = serve(arrivals, share=share, fails=fails, **sizes)
        for request in requests:
            assert request.tokens == alone(request.prompt, request.count) and request.cached is None

    check()


def test_the_error_of_a_model_reaches_the_caller_once():
    """And so does what no program expects: that somebody interrupts it."""
    pool, errors = PagePool(4, 4, 1, 1, dtype=torch.float64), [Failed(), KeyboardInterrupt()]

    def forward(tokens, batch):
        if errors:
            raise errors.pop(0)
        return read_back(pool, tokens, batch)

    batch = Batch(pool, forward)
    request = batch.submit([1, 0, 1, 1, 0], 4)
    for error in (Failed, KeyboardInterrupt):
        with pytest.raises(error):
            batch.step()
        assert batch.waiting == [request] and not batch.running and pool.free_pages == 4 and request.cached is None
    batch.run()
    assert request.tokens == alone([1, 0, 1, 1, 0], 4)


@pytest.mark.parametrize("rounds", (200, slow(2000)))
def test_thousands_of_arrivals(rounds):
    draw = random.Random(22)
    trace = []
    for _ in range(rounds):
        prompt = [draw.randrange(2) for _ in range(draw.randrange(1, 24))]
        trace.append([(prompt[: draw.randrange(1, 25)], draw.randrange(1, 10)) for _ in range(draw.choice((0, 1, 5)))])
    batch, requests = serve(trace, pages=25, page=4, most_tokens=40)
    assert len(requests) > 1.5 * rounds and batch.interrupted > rounds / 40
    assert all(request.tokens == alone(request.prompt, request.count) for request in requests)


def test_out_of_pages_the_last_to_come_waits():
    trace = [[([0] * 4, 5), ([1] * 4, 5)]]
    batch, (first, second) = serve(trace, pages=3, page=4, most_tokens=20)
    assert batch.interrupted == 1 and first.done and second.done
    pool = PagePool(3, 4, 1, 1, dtype=torch.float64)
    batch = Batch(pool, functools.partial(read_back, pool))
    first, second = batch.submit([0] * 4, 5), batch.submit([1] * 4, 5)
    batch.step()
    assert batch.running == [first, second]
    batch.step()  # both want a second page, and there is one
    assert batch.running == [first] and batch.waiting == [second] and len(second.tokens) == 5


def test_pages_that_others_hold_are_not_awaited_for_ever():
    gpt = GPT(11, layers=2, heads=4, kv_heads=2, width=32)
    for held, prompt, count in ((5, [1, 2, 3], 3), (4, [1, 2, 3], 4)):  # no room to begin, and none to go on
        pool = PagePool(2, 4, 2, 8, layers=2)
        pool.append(mine := pool.allocate(), held)
        batch = Batch(pool, greedy(gpt, pool))
        request = batch.submit(prompt, count)
        with pytest.raises(
            OutOfPages, match="for the 1 requests that wait, got .: the other . are held outside this batch"
        ):
            batch.run()
        pool.free(mine)
        batch.run()
        assert request.done, "once they are free"


def test_a_model_of_no_numbers_has_no_likeliest_token():
    gpt = GPT(11, layers=1, heads=2, kv_heads=1, width=16)
    with torch.no_grad():
        gpt.head.weight.fill_(torch.nan)
    pool = PagePool(4, 4, 1, 8)
    batch = Batch(pool, greedy(gpt, pool))
    batch.submit([1, 2], 2)
    with pytest.raises(ValueError, match="expected logits for the next tokens, got NaN"):
        batch.run()


def test_a_prompt_in_chunks_holds_nobody_up():
    pool = PagePool(20, 4, 1, 1, dtype=torch.float64)
    batch = Batch(pool, functools.partial(read_back, pool), most_tokens=5)
    first = batch.submit([1, 0], 8)
    batch.step()
    long = batch.submit([0] * 18, 1)
    for chunk in range(1, 5):
        batch.step()
        assert len(first.answer) == 1 + chunk and long.cached.length == 4 * chunk and not long.answer
    assert batch.step() == [long] and len(long.answer) == 1


def test_a_prefix_that_is_shared_is_read_once():
    pool = PagePool(20, 4, 1, 1, dtype=torch.float64)
    fed = []

    def forward(tokens, batch):
        fed.append(len(tokens))
        return read_back(pool, tokens, batch)

    batch = Batch(pool, forward)
    first = batch.submit([0] * 10, 4)
    batch.step()
    second, third = batch.submit([0] * 10 + [1], 3), batch.submit([0] * 10, 3)
    batch.step()
    assert fed == [10, 1 + 1 + 1]
    assert second.cached.pages[:2] == third.cached.pages[:2] == first.cached.pages[:2]
    assert len({r.cached.pages[2] for r in (first, second, third)}) == 3, "each has a page of its own to write in"
    batch.run()
    assert [r.tokens for r in (first, second, third)] == [alone(r.prompt, r.count) for r in (first, second, third)]


def triton(*tensors, **options):
    """The kernel, in float32, since float64 it does not take, and on a GPU where it is compiled."""
    pytest.importorskip("triton")
    from flashlearn.core.target import INTERPRETED

    device = "cpu" if INTERPRETED else "cuda"
    there = [t.to(device, torch.float32 if t.is_floating_point() else t.dtype) for t in tensors]
    options = {name: t.to(device) if isinstance(t, torch.Tensor) else t for name, t in options.items()}
    return fl.flash_attention_paged(*there, **options).to(tensors[0])


@torch.no_grad()
@pytest.mark.parametrize(
    "attention, share",
    [(gathered_attention, False), (gathered_attention, True), slow(fl.paged_attention, True), slow(triton, True)],
)
def test_greedy_tokens_of_a_gpt(attention, share):
    """Of a batch with arrivals, those of each request alone, whose cache is one piece."""
    torch.manual_seed(0)
    model = GPT(11, layers=LAYERS, heads=4, kv_heads=2, width=16).double()
    for weight in model.parameters():  # of its first weights the likeliest token is nearly always the same
        torch.nn.init.normal_(weight, std=0.5)
    pool = PagePool(12, 4, 2, 4, layers=LAYERS, dtype=torch.float64)
    batch = Batch(pool, greedy(model, pool, attention), most_tokens=9, share=share)
    draw, requests = random.Random(3), []
    for _ in range(12 if attention is gathered_attention else 6):
        prompt = [draw.randrange(2) for _ in range(draw.randrange(1, 14))]
        requests.append(batch.submit(prompt, draw.randrange(1, 12)))
        batch.step()
    batch.run()
    assert batch.interrupted or len(requests) < 12
    for request in requests:
        caches, tokens = model.empty_caches(1, 30), list(request.prompt)
        new = tokens
        for _ in range(request.count):
            new = [int(model(torch.tensor([new]), caches)[0, -1].argmax())]
            tokens += new
        assert request.tokens == tokens
    assert len({token for r in requests for token in r.answer}) > 4


def attend_to(pool, sequence, **options):
    at = pool.ragged([sequence], [3])
    q, offsets = torch.ones(3, 1, 1), at.cu_seqlens_q
    return gathered_attention(q, pool.k[0], pool.v[0], at.page_table, at.lengths, cu_seqlens_q=offsets, **options)


def freed(pool, sequence):
    pool.free(sequence)
    return sequence


@pytest.mark.parametrize(
    "call, error, message",
    (
        (lambda pool, s: PagePool(0, 4, 1, 1), ValueError, "pages of at least 1, got 0"),
        (
            lambda pool, s: PagePool(2, 4, 1, 1, dtype=torch.int32),
            TypeError,
            "the pages in float16, .* got torch.int32",
        ),
        (lambda pool, s: PagePool(2, 4, 1, 1, dtype=torch.bool), TypeError, "the pages in float16, .* got torch.bool"),
        (
            lambda pool, s: PagePool(2, 4, 1, 1, requires_grad=True),
            ValueError,
            "without gradients, .*, got requires_grad",
        ),
        (lambda pool, s: pool.append(s, -1), ValueError, "n of at least 0, got -1"),
        (lambda pool, s: pool.append(PagedSequence(), 1), ValueError, "a sequence that this pool allocated"),
        (lambda pool, s: pool.append(s, 9), OutOfPages, "at most 1 more pages, as many as are free, got 2"),
        (lambda pool, s: pool.fork(s, 5), ValueError, "length of at most 3, that of the sequence, got 5"),
        (lambda pool, s: pool.ragged([s], [5]), ValueError, r"counts\[0\] of at most the sequence.s length 3, got 5"),
        (lambda pool, s: pool.ragged([s], [-1]), ValueError, r"expected counts\[0\] of at least 0, got -1"),
        (lambda pool, s: pool.ragged([s], [1.0]), TypeError, r"expected counts\[0\] to be an int, got float"),
        (lambda pool, s: pool.ragged([s], []), ValueError, "a count for each of 1 sequences, got 0 counts"),
        (lambda pool, s: pool.ragged([s], [1, 1]), ValueError, "a count for each of 1 sequences, got 2 counts"),
        (lambda pool, s: pool.ragged([freed(pool, s)], [0]), ValueError, "a sequence that this pool allocated"),
        (lambda pool, s: pool.ragged([None], [0]), TypeError, "expected the PagedSequence .*, got NoneType"),
        (lambda pool, s: pool.slots(s, -3, 0), ValueError, "expected start of at least 0, got -3"),
        (lambda pool, s: pool.slots(s, 3, 70), ValueError, "start <= stop <= 3, .*, got start 3 and stop 70"),
        (lambda pool, s: pool.slots(s, 2, 1), ValueError, "start <= stop <= 3, .*, got start 2 and stop 1"),
        (lambda pool, s: pool.slots(freed(pool, s), 0, 0), ValueError, "a sequence that this pool allocated"),
        (lambda pool, s: pool.truncate(s, 4), ValueError, "length of at most 3, that of the sequence, got 4"),
        (lambda pool, s: pool.truncate(s, -1), ValueError, "length of at least 0, got -1"),
        (lambda pool, s: pool.truncate(freed(pool, s), 0), ValueError, "a sequence that this pool allocated"),
        (lambda pool, s: pool.gather(0, freed(pool, s)), ValueError, "a sequence that this pool allocated"),
        (lambda pool, s: attend_to(pool, s, causal="no"), TypeError, "expected causal to be True or False, got 'no'"),
        (lambda pool, s: Batch(None, zeros), TypeError, "expected pool to be a PagePool, got NoneType"),
        (lambda pool, s: Batch(PagePool, zeros), TypeError, "expected pool to be a PagePool, got type"),
        (lambda pool, s: Batch(pool, None), TypeError, "expected forward to be a callable .*, got NoneType"),
        (lambda pool, s: Batch(pool, zeros, share="no"), TypeError, "expected share to be True or False, got 'no'"),
        (lambda pool, s: Batch(pool, zeros, most_tokens=0), ValueError, "most_tokens of at least 1, got 0"),
        (lambda pool, s: Batch(pool, zeros).submit([], 3), ValueError, "length of a prompt of at least 1, got 0"),
        (lambda pool, s: Batch(pool, zeros).submit([1], 0), ValueError, "count of at least 1, got 0"),
        (lambda pool, s: Batch(pool, zeros).submit([1] * 6, 4), ValueError, r"at most 9 tokens, .* got 6 \+ 4"),
    ),
)
def test_pools_and_batches_say_what_they_take(call, error, message):
    pool = PagePool(2, 4, 1, 1)
    sequence = pool.allocate()
    pool.append(sequence, 3)
    batch = pool.ragged([sequence, sequence], [3, 0])
    with pytest.raises(error, match=message):
        call(pool, sequence)
    assert batch.positions.tolist() == [0, 1, 2] and batch.cu_seqlens_q.tolist() == [0, 3, 3]
    assert PagePool(2, 4, 1, 1, dtype=torch.bfloat16, requires_grad=False).k.dtype == torch.bfloat16


def good_k(n=3, H=2, D=4, **options):
    return torch.ones(H, n, D, **options)


@pytest.mark.parametrize(
    "layer, k, v, error, message",
    (
        (0, good_k(device="meta"), good_k(), ValueError, "expected k on the device of the pool, cpu, got meta"),
        (0, good_k(), good_k(device="meta"), ValueError, "expected v on the device of the pool, cpu, got meta"),
        (0, good_k(1), good_k(), ValueError, r"expected k of shape \(H_kv, n, D\) = \(2, 3, 4\), got \(2, 1, 4\)"),
        (0, good_k(), good_k(H=1), ValueError, r"expected v of shape .* = \(2, 3, 4\), got \(1, 3, 4\)"),
        (0, good_k(D=1), good_k(D=1), ValueError, r"expected k of shape .* = \(2, 3, 4\), got \(2, 3, 1\)"),
        (0, good_k(2), good_k(2), ValueError, r"expected k of shape .* = \(2, 3, 4\), got \(2, 2, 4\)"),
        (0, good_k(dtype=torch.int32), good_k(), TypeError, "expected k in float16, .*, got torch.int32"),
        (0, None, good_k(), TypeError, "expected k to be a torch.Tensor, got NoneType"),
        (-1, good_k(), good_k(), ValueError, "expected layer of at least 0, got -1"),
        (2, good_k(), good_k(), ValueError, "expected layer from 0 to 1, got 2"),
        ("0", good_k(), good_k(), TypeError, "expected layer to be an int, got str"),
    ),
)
def test_nothing_is_written_but_what_there_is_room_for(layer, k, v, error, message):
    pool = PagePool(2, 4, 2, 4, layers=2)
    sequence = pool.allocate()
    slots = pool.append(sequence, 3)
    with pytest.raises(error, match=message):
        pool.write(layer, slots, k, v)
    assert not pool.k.any() and not pool.v.any()
    pool.write(1, slots, good_k().double(), good_k().half())
    assert pool.gather(1, sequence)[0].all() and pool.k.sum() == pool.v.sum() == 3 * 2 * 4
    with pytest.raises(ValueError, match="expected layer from 0 to 1, got 2"):
        pool.gather(2, sequence)
    with pytest.raises(TypeError, match="expected the Slots that append returns, got tuple"):
        pool.write(0, (0, 0), good_k(), good_k())


def test_no_gradient_flows_through_pages():
    pool = PagePool(2, 4, 2, 4)
    sequence = pool.allocate()
    k = good_k().requires_grad_()
    pool.write(0, pool.append(sequence, 3), 2 * k, k)
    assert not pool.k.requires_grad and not pool.v.requires_grad
    assert pool.gather(0, sequence)[0].eq(2).all() and copy.deepcopy(pool).k.equal(pool.k)


@pytest.mark.parametrize(
    "prompt, error, message",
    (
        ([9], ValueError, "expected a prompt of tokens from 0 to 4, got 9 in it"),
        ([1, -1], ValueError, "expected a prompt of tokens from 0 to 4, got -1 in it"),
        ([1.7], TypeError, "expected a prompt of whole numbers, got 1.7 in it"),
        (torch.tensor([1.0]), TypeError, r"expected a prompt of whole numbers, got tensor\(1.\) in it"),
        ("12", TypeError, "expected a prompt of whole numbers, got '1' in it"),
        ([True], TypeError, "expected a prompt of whole numbers, got True in it"),
        (3, TypeError, "expected a prompt of whole numbers, got int"),
    ),
)
def test_prompts_are_tokens_that_the_model_knows(prompt, error, message):
    pool = PagePool(4, 4, 1, 4)
    model = GPT(5, layers=1, heads=1, width=4)
    batch = Batch(pool, greedy(model, pool))
    with pytest.raises(error, match=message):
        batch.submit(prompt, 2)
    assert not batch.busy
    kept = [batch.submit(good, 2) for good in ([1, 2], (1, 2), torch.tensor([1, 2]), range(1, 3))]
    batch.run()
    assert len({tuple(request.tokens) for request in kept}) == 1 and kept[0].prompt == (1, 2)


@pytest.mark.parametrize(
    "following, error, message",
    (
        ([], ValueError, "expected forward to return 2 tokens, one for each sequence, got 0"),
        (torch.tensor([1]), ValueError, "expected forward to return 2 tokens, one for each sequence, got 1"),
        ([1, 2, 3], ValueError, "expected forward to return 2 tokens, one for each sequence, got 3"),
        (None, TypeError, "expected forward to return a token for each sequence, got NoneType"),
    ),
)
def test_a_model_returns_a_token_for_each_sequence(following, error, message):
    batch = Batch(PagePool(2, 4, 1, 1), lambda tokens, batch: following)
    requests = [batch.submit([1, 0], 2) for _ in range(2)]
    with pytest.raises(error, match=message):
        batch.step()
    assert [request.answer for request in requests] == [[], []]


def test_an_empty_batch():
    batch = PagePool(2, 4, 1, 1).ragged([], [])
    assert batch.page_table.shape == (0, 0) and batch.cu_seqlens_q.tolist() == [0]
    assert Batch(PagePool(2, 4, 1, 1), zeros).step() == []


def test_common_length():
    assert [common_length(*pair) for pair in (("ab", "ac"), ("ab", "abc"), ("", "a"), ("b", "a"))] == [1, 2, 0, 0]
