"""A batch that requests join and leave at every step: none waits until the longest is done.

    batch = Batch(pool, greedy(model, pool), most_tokens=64)
    request = batch.submit(prompt, 20)   at any time
    while batch.busy:
        batch.step()                     one pass of the model: prompts in chunks, one token of every other request
    request.tokens                       prompt and answer

A step takes at most `most_tokens` tokens: one for each request that is answering, the rest for prompts in order of
arrival. So a long prompt is read in chunks and delays no answer (chunked prefill).

Pages are taken when they are needed. If none is left, the request that came last releases its pages and waits. It keeps
its tokens, and reads them again as its prompt when there is room. The first request always proceeds, and a request that
would not fit the empty pool is rejected at once, so all accepted requests are finished.

A step in which the model fails leaves the requests as they were, and the next one tries again.

A request whose tokens begin as those of a running request starts from its pages (`PagePool.fork`).

Source: G.-I. Yu et al., "Orca", OSDI 2022 (a step at a time); A. Agrawal et al., "Sarathi-Serve", 2024,
arXiv:2403.02310 (chunks); W. Kwon et al., 2023, arXiv:2309.06180 (pages).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from flashlearn.core.inputs import check_block, check_bool
from flashlearn.serving.pool import OutOfPages, PagedSequence, PagePool, Ragged


@dataclass(eq=False)
class Request:
    """A prompt, and the `count` tokens requested after it.

    tokens      prompt and answer so far
    cached      the pages of those tokens that went through the model; None while it waits
    """

    prompt: tuple[int, ...]
    count: int
    tokens: list[int] = field(default_factory=list)
    cached: PagedSequence | None = None

    @property
    def answer(self) -> list[int]:
        """The tokens behind the prompt, so far."""
        return self.tokens[len(self.prompt) :]

    @property
    def done(self) -> bool:
        return len(self.tokens) == len(self.prompt) + self.count

    @property
    def new(self) -> int:
        """The number of its tokens that the model has not read."""
        return len(self.tokens) - (self.cached.length if self.cached else 0)

    def read(self, n: int) -> list[int]:
        """The last n tokens that are in the pool."""
        stop = self.cached.length if self.cached else 0
        return self.tokens[stop - n : stop]


class Batch:
    """Requests that wait, and requests that run, over one pool; both in order of arrival.

    `forward(tokens, batch)` takes the new tokens (T,) of all sequences, one after another, and a `Ragged`, and returns
    the next token of each sequence; `flashlearn.serving.greedy` makes one of a GPT. If it has a `vocabulary`, the number
    of its tokens, prompts with others are rejected.
    """

    def __init__(
        self, pool: PagePool, forward: Callable[[Tensor, Ragged], Sequence[int]], *, most_tokens: int = 64,
        share: bool = True,
    ):  # fmt: skip
        """share: whether a request may start from the pages of another whose tokens begin alike."""
        if not isinstance(pool, PagePool):
            raise TypeError(f"expected pool to be a PagePool, got {type(pool).__name__}")
        if not callable(forward):
            raise TypeError(
                f"expected forward to be a callable (tokens, batch) -> tokens, got {type(forward).__name__}"
            )
        check_block(most_tokens, "most_tokens")
        check_bool(share, "share")
        self.pool, self.forward, self.most_tokens, self.share = pool, forward, most_tokens, share
        self.vocabulary: int | None = getattr(forward, "vocabulary", None)
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.interrupted = 0  # how often a running request released its pages

    @property
    def busy(self) -> bool:
        """Whether any request is not done."""
        return bool(self.waiting or self.running)

    def submit(self, prompt: Sequence[int], count: int) -> Request:
        """Request `count` tokens after a prompt. ValueError if the empty pool could not hold them."""
        tokens = read_prompt(prompt, self.vocabulary)
        check_block(len(tokens), "the length of a prompt")
        check_block(count, "count")
        room = self.pool.pages * self.pool.page
        if len(tokens) + count - 1 > room:  # the last token is not fed to the model
            raise ValueError(f"expected at most {room + 1} tokens, of which the pool holds all but the last, "
                             f"got {len(tokens)} + {count}")  # fmt: skip
        request = Request(tuple(tokens), count, tokens)
        self.waiting.append(request)
        return request

    def step(self) -> list[Request]:
        """One pass of the model over the next tokens of all requests that fit; returns those that are done now.

        An error of the model reaches the caller, and the requests are as they were, or wait again.
        """
        written = {request: request.cached.length for request in self.running if request.cached}
        try:
            chosen = self._choose()
            following = self._run_model(chosen) if chosen else []
        except BaseException:  # a cell that is interrupted, too
            self._undo(written)
            raise
        for (request, _), token in zip(chosen, following, strict=True):
            if not request.new:  # all of its tokens have been read: this one is new
                request.tokens.append(token)
        done = [request for request, _ in chosen if request.done]
        for request in done:
            self.running.remove(request)
            self._release(request)
        return done

    def _run_model(self, chosen: Sequence[tuple[Request, int]]) -> list[int]:
        """The model's next tokens for the requests of this step."""
        sequences, counts = [r.cached for r, _ in chosen if r.cached], [n for _, n in chosen]
        new = [token for r, n in chosen for token in r.read(n)]
        return read_tokens(
            self.forward(torch.tensor(new, device=self.pool.k.device), self.pool.ragged(sequences, counts)), len(chosen)
        )

    def _undo(self, written: dict[Request, int]) -> None:
        """After a step that failed: running requests keep the tokens `written` before it, those that began in it wait again."""
        began = [request for request in self.running if request not in written]
        self.running = [request for request in self.running if request in written]
        for request in self.running:
            if request.cached is not None:
                self.pool.truncate(request.cached, written[request])
        for request in began:
            self._release(request)
        self.waiting[:0] = began

    def run(self) -> None:
        """Step until every request is done. OutOfPages if others, outside this batch, hold the pages that it needs."""
        while self.busy:
            interrupted = self.interrupted
            if not self.step() and not self.running and self.interrupted == interrupted:
                held = self.pool.pages - self.pool.free_pages
                raise OutOfPages(
                    f"expected free pages for the {len(self.waiting)} requests that wait, got {self.pool.free_pages}: "
                    f"the other {held} are held outside this batch"
                )

    def _choose(self) -> list[tuple[Request, int]]:
        """The requests of this step and their numbers of tokens, for which the pool then has room."""
        left = self.most_tokens - sum(request.new == 1 for request in self.running)  # for prompts
        chosen, interrupted = [], self.interrupted
        for request in list(self.running):
            n = 1 if request.new == 1 else min(request.new, left)
            if request in self.running and n and self._make_room(request, n):
                left -= n if request.new + n > 1 else 0
                chosen.append((request, n))
        if self.interrupted == interrupted:  # otherwise a request that just released its pages would get them again
            chosen += self._admit(left, dict(chosen))
        return chosen

    def _make_room(self, request: Request, n: int) -> bool:
        """Make room for n tokens of a running request, if need be from later ones; False if it has to wait."""
        while request.cached is not None:
            try:
                self.pool.reserve(request.cached, n)
                return True
            except OutOfPages:
                last = self.running.pop()
                self._release(last)
                self.waiting.insert(0, last)
                self.interrupted += 1
        return False

    def _admit(self, left: int, taking_part: dict[Request, int]) -> list[tuple[Request, int]]:
        """Requests that begin now, in order of arrival, while there are pages for all of their tokens so far."""
        admitted = []
        while self.waiting and left > 0 and len(self.running) < self.most_tokens:
            request = self.waiting[0]
            request.cached = self._start(request, taking_part)
            if self.pool.pages_needed(request.cached, request.new) > self.pool.free_pages:
                self._release(request)
                break
            n = min(request.new, left)
            self.pool.reserve(request.cached, n)
            self.running.append(self.waiting.pop(0))
            taking_part[request], left = n, left - n
            admitted.append((request, n))
        return admitted

    def _start(self, request: Request, taking_part: dict[Request, int]) -> PagedSequence:
        """The pages of the request with most tokens in common, or none.

        Only tokens that the model read before this step count, since a page is copied before this step's are written.
        The last token is always left: its logits are needed.
        """
        best, most = None, 0
        for other in self.running if self.share else ():
            written = other.tokens[: other.cached.length - taking_part.get(other, 0)] if other.cached else []
            common = common_length(written, request.tokens[:-1])
            if common > most:
                best, most = other.cached, common
        return self.pool.fork(best, most) if best else self.pool.allocate()

    def _release(self, request: Request) -> None:
        if request.cached is not None:
            self.pool.free(request.cached)
            request.cached = None


def read_prompt(prompt: Iterable[Any], vocabulary: int | None) -> list[int]:
    """The tokens of a prompt. TypeError for what are no whole numbers, ValueError for tokens that there are not."""
    if not isinstance(prompt, Iterable):
        raise TypeError(f"expected a prompt of whole numbers, got {type(prompt).__name__}")
    tokens = []
    for token in prompt:
        given: Any = None if isinstance(token, bool) else token
        try:
            number = operator.index(given)
        except TypeError:
            raise TypeError(f"expected a prompt of whole numbers, got {token!r} in it") from None
        if number < 0 or (vocabulary is not None and number >= vocabulary):
            most = "" if vocabulary is None else f" to {vocabulary - 1}"
            raise ValueError(f"expected a prompt of tokens from 0{most}, got {number} in it")
        tokens.append(number)
    return tokens


def read_tokens(following: Iterable[Any], wanted: int) -> list[int]:
    """What a model returned. TypeError for no list of tokens, ValueError for more or fewer than there are sequences."""
    if not isinstance(following, Iterable):
        raise TypeError(f"expected forward to return a token for each sequence, got {type(following).__name__}")
    tokens = [int(token) for token in following]
    if len(tokens) != wanted:
        raise ValueError(f"expected forward to return {wanted} tokens, one for each sequence, got {len(tokens)}")
    return tokens


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """The number of tokens at the beginning that two sequences have in common."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
