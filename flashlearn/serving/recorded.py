"""A batch and its pool as `Step`s: which requests arrive and wait, which holds each page, and which held it before.

    for step in batch_steps(batch, {0: {"A": (prompt, 6)}, 2: {"B": (prompt, 3)}}): ...

What a step shows is read from the batch and its pool after it, and its caption from the difference to the step before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from flashlearn.core.steps import Step
from flashlearn.serving.batch import Batch, Request
from flashlearn.serving.pool import Ragged

Arrivals = Mapping[int, Mapping[str, tuple[Sequence[int], int]]]  # step -> name -> (prompt, tokens wanted)
Within = dict[int, tuple[str, ...]]  # page -> who holds it
WAITS, RUNS, DONE = "waits", "runs", "done"


@dataclass(frozen=True)
class RequestState:
    """A request after a step: its tokens in the pool, those read in it, their pages, and its tokens at the end."""

    name: str
    state: str
    length: int
    new: int
    pages: tuple[int, ...]
    last: int

    def in_page(self, number: int, page: int) -> tuple[int, int]:
        """How many tokens its page number `number` holds, and how many of them are new."""
        first = number * page
        stop = min(first + page, self.length)
        return stop - first, max(0, stop - max(first, self.length - self.new))


@dataclass(frozen=True)
class PageState:
    """A page after a step: who holds it, its tokens, how many of these are new, and who held it before."""

    number: int
    holders: tuple[str, ...]
    filled: int
    new: int
    was: str


def batch_steps(batch: Batch, arrivals: Arrivals) -> Iterator[Step]:
    """Run a batch whose requests arrive before the given steps, until all are done; a `Step` for each of its steps.

    values   requests (RequestState, ...), pages (PageState, ...), page: tokens of one, came: names of those just arrived,
             taken: pages that are held now and were free before; given: pages that are free now and were held before or
             within the step, since a finished request releases at once what it took for its last token
    output   of the last step: {name: its answer}
    """
    known: dict[str, Request] = {}
    requests: tuple[RequestState, ...] = ()
    pages = tuple(PageState(number, (), 0, 0, "") for number in range(batch.pool.pages))
    with _observed(batch, known) as (new, within):
        for time in range(10**6):
            came = arrivals.get(time, {})
            known |= {name: batch.submit(*given) for name, given in came.items()}
            new.clear()
            within.clear()
            batch.step()
            before, requests = requests, tuple(_request(name, one, new) for name, one in known.items())
            old = pages
            pages = tuple(_page(each, within.get(each.number, ()), requests, batch.pool.page) for each in old)
            last = not batch.busy and time >= max(arrivals)
            yield Step(
                sentence=caption,
                phase="step",
                values={
                    "requests": requests, "pages": pages, "page": batch.pool.page, "came": tuple(came), "before": before,
                    "taken": tuple(b.number for a, b in zip(old, pages, strict=True) if b.holders and not a.holders),
                    "given": tuple(
                        b.number for a, b in zip(old, pages, strict=True)
                        if (a.holders or b.number in within) and not b.holders
                    ),
                },
                output={name: request.answer for name, request in known.items()} if last else None,
            )  # fmt: skip
            if last:
                return


@contextmanager
def _observed(batch: Batch, known: Mapping[str, Request]) -> Iterator[tuple[dict[tuple[int, int], int], Within]]:
    """What the batch does not keep from within a step.

    new      how many tokens the model read, by (last page, length) of their sequence: its last page is its own
    within   who held a page meanwhile, by its number
    """
    forward, new, within = batch.forward, dict[tuple[int, int], int](), Within()

    def observing(tokens: Tensor, ragged: Ragged) -> Sequence[int]:
        counts = ragged.cu_seqlens_q.diff().tolist()
        for table, length, n in zip(ragged.page_table.tolist(), ragged.lengths.tolist(), counts, strict=True):
            new[table[(length - 1) // batch.pool.page], length] = n
        for name, request in known.items():
            for number in request.cached.pages if request.cached else ():
                within[number] = (*within.get(number, ()), name)
        return forward(tokens, ragged)

    batch.forward = observing
    try:
        yield new, within
    finally:
        batch.forward = forward


def _request(name: str, request: Request, new: Mapping[tuple[int, int], int]) -> RequestState:
    """A request as it is now."""
    cached = request.cached
    length, pages = (cached.length, tuple(cached.pages)) if cached else (0, ())
    state = DONE if request.done else RUNS if cached else WAITS
    n = new.get((pages[-1], length), 0) if pages else 0
    return RequestState(name, state, length, n, pages, len(request.prompt) + request.count)


def _page(old: PageState, within: tuple[str, ...], requests: tuple[RequestState, ...], page: int) -> PageState:
    """A page as it is now; `within` held it while the model ran."""
    held = {one.name: one.in_page(one.pages.index(old.number), page) for one in requests if old.number in one.pages}
    was = _owner(_owner(old.was, old.holders, within), within, tuple(held))
    filled, new = (max((each[which] for each in held.values()), default=0) for which in (0, 1))
    return PageState(old.number, tuple(held), filled, new, was)


def _owner(was: str, before: tuple[str, ...], after: tuple[str, ...]) -> str:
    """The request that held a page last, once others hold it, or none."""
    return was if set(before) & set(after) or not before else " ".join(before)


def caption(step: Step) -> str:
    """The caption of a step: requests that came, began, share, wait or are done; then those that go on."""
    values = step.values
    before = {one.name: one for one in values["before"]}
    parts = []
    for one in values["requests"]:
        parts += _changes(one, before.get(one.name), step)
    busy = [one.name for one in values["requests"] if one.state == RUNS and one.new == 1 and one.name in before]
    if busy:
        parts.append(f"{_listed(busy)} {'gets' if len(busy) == 1 else 'get'} a token{' each' * (len(busy) > 1)}")
    return ". ".join(parts) + "." if parts else "Nothing changes."


def _changes(one: RequestState, before: RequestState | None, step: Step) -> list[str]:
    """The changes of one request."""
    pages, came = step.values["pages"], one.name in step.values["came"]
    was = before.state if before else WAITS
    arrived = f"{one.name} arrives" if came else one.name
    if one.state == DONE:
        held = before.pages if before else ()
        back = [number for number in held if number in step.values["given"]]
        back += [n for n in step.values["given"] if n not in held and pages[n].was == one.name]
        return [f"{one.name} is done: {_named(back)} back" if back else f"{arrived} is done"] if was != DONE else []
    if one.state == WAITS:
        why = "waits" if was == WAITS else "gives its pages back and waits"
        return [f"{arrived} {'and ' * came}{why}"] if came or was != WAITS else []
    taken = [number for number in one.pages if number in step.values["taken"]]
    if was == WAITS:
        shared = [number for number in one.pages if len(pages[number].holders) > 1]
        with_whom = sorted({name for number in shared for name in pages[number].holders} - {one.name})
        copies = [number for number in taken if pages[number].filled > pages[number].new]
        begins = f"{arrived} {'and ' * came}begins with {one.new} token{'s' * (one.new > 1)}"
        shares = f", shares {_named(shared)} with {_listed(with_whom)}" if shared else ""
        copied = f", and has a copy in page {copies[0]}" if copies else ""
        taken = [number for number in taken if number not in copies]
        return [f"{begins}{shares}{copied}{f', takes {_with_owners(taken, pages)}' if taken else ''}"]
    reads = f" reads {one.new} more and" if one.new > 1 else ""
    if not taken:
        return [f"{one.name} reads {one.new} more"] if one.new > 1 else []
    return [f"{one.name}{reads} takes {_with_owners(taken, pages)}"]


def _with_owners(taken: Sequence[int], pages: tuple[PageState, ...]) -> str:
    """The pages, and the former owner of each."""
    was = [f"{number} (was {pages[number].was}'s)" if pages[number].was else str(number) for number in taken]
    return f"page{'s' * (len(taken) > 1)} {_listed(was)}"


def _named(pages: Sequence[int]) -> str:
    return f"page{'s' * (len(pages) != 1)} {_listed(list(map(str, pages)))}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
