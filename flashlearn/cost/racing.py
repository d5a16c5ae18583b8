"""Runs in parallel at the same bandwidth: the progress of each when all have moved as many bytes."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from flashlearn.core.inputs import check_block
from flashlearn.core.steps import Step, hbm_bytes, matmul_flops, record


@dataclass(frozen=True)
class Runner:
    """The progress of one run of a race.

    moved     bytes of every matrix that its finished steps moved, by the matrix's name
    under_way bytes that it has moved of the step after those
    work      how much of its matrix products is done, 0 to 1 (of its bytes, if it has no products)
    over      whether all its steps are finished
    """

    moved: Mapping[str, int]
    under_way: int
    work: float
    over: bool


def race(runs: Mapping[str, Iterable[Step]], frames: int = 24) -> Iterator[Step]:
    """Runs in parallel, all with the same bandwidth: from frame to frame each may move as many bytes.

    `values["runners"]` is {title: Runner}, `values["moved"]` the bytes that each may have moved so far, and
    `values["full"]` the largest total of a run. The frames divide it evenly.
    """
    check_block(frames, "frames")
    if not runs:
        raise ValueError("expected at least one run, got none")
    recorded = {title: record(steps) for title, steps in runs.items()}
    ends = {
        title: list(itertools.accumulate(hbm_bytes([step]).total for step in run)) for title, run in recorded.items()
    }
    full = max(end[-1] for end in ends.values())
    for frame in range(1, frames + 1):
        moved = full * frame // frames
        runners = {title: _runner(run, ends[title], moved) for title, run in recorded.items()}
        over = [title for title, runner in runners.items() if runner.over]
        states = [
            f"{title} has done {runner.work:.0%} of its work" for title, runner in runners.items() if not runner.over
        ]
        states = [f"{', '.join(over)} {'is' if len(over) == 1 else 'are'} done"] * bool(over) + states
        sentence = f"In the time for {moved:,} bytes: {'; '.join(states)}."
        yield Step(sentence=sentence, phase="race", values={"runners": runners, "moved": moved, "full": full})


def _runner(run: list[Step], ends: list[int], moved: int) -> Runner:
    """The steps that end within `moved` bytes are finished."""
    finished = run[: bisect.bisect_right(ends, moved)]
    by_name: Counter[str] = Counter()
    for step in finished:
        for tile in (*step.reads, *step.writes):
            by_name[tile.name] += tile.nbytes
    over, products = len(finished) == len(run), matmul_flops(run)
    work = matmul_flops(finished) / products if products else by_name.total() / max(1, ends[-1])
    return Runner(by_name, 0 if over else moved - by_name.total(), work, over)
