"""Software pipelining as steps: a loop starts loads before their values are needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from flashlearn.core.inputs import check_block
from flashlearn.core.steps import Step, Tile


class Slots(NamedTuple):
    """When something starts and ends, in slots of time."""

    start: int
    end: int


def pipeline_schedule(iterations: int, num_stages: int, load: int = 3, compute: int = 1) -> list[tuple[Slots, Slots]]:
    """When each iteration of a loop loads its tile and when it computes: (load, compute) per iteration.

    Triton's schedule: num_stages - 1 loads start before the loop, one slot apart; iteration i waits for its
    tile, starts load i + num_stages - 1, and computes. One stage: load, compute, load, compute, ...

    load, compute   slots of time that one load and one computation take
    """
    for size, what in ((iterations, "iterations"), (num_stages, "num_stages"), (load, "load"), (compute, "compute")):
        check_block(size, what)
    loads: list[Slots] = []
    computes: list[Slots] = []
    for i in range(iterations):
        if i < num_stages - 1:
            begin = i  # the prologue
        elif num_stages == 1:
            begin = computes[-1].end if computes else 0
        else:
            begin = max(computes[i - num_stages].end if i >= num_stages else 0, loads[i - num_stages + 1].end)
        loads.append(Slots(begin, begin + load))
        ready = max(loads[i].end, computes[-1].end if computes else 0)
        computes.append(Slots(ready, ready + compute))
    return list(zip(loads, computes, strict=True))


def pipeline_steps(iterations: int, num_stages: int, load: int = 3, compute: int = 1) -> Iterator[Step]:
    """One step per slot of time of a software-pipelined loop.

    phase    "prologue" until the first computation, "epilogue" from the first iteration that starts no load,
             "steady" between; "one after the other" with one stage
    on_chip  the tiles whose buffer is taken: on their way, waiting, or being used
    values   schedule, time, loading, computing (iterations), horizon (slots that one stage would take)
    output   slots taken, in the last step
    """
    schedule = pipeline_schedule(iterations, num_stages, load, compute)
    end, shapes = schedule[-1][1].end, {"tiles": (iterations, 1)}
    common = {"schedule": schedule, "num_stages": num_stages, "horizon": iterations * (load + compute)}
    drained = schedule[max(iterations - num_stages + 1, 0)][1].start if num_stages > 1 else end
    for time in range(end):
        loading = [i for i, (span, _) in enumerate(schedule) if span.start <= time < span.end]
        computing = [i for i, (_, span) in enumerate(schedule) if span.start <= time < span.end]
        held = [i for i, (begin, use) in enumerate(schedule) if begin.start <= time < use.end]
        begun = [i for i in loading if schedule[i][0].start == time]
        phase = "prologue" if time < schedule[0][1].start else "epilogue" if time >= drained else "steady"
        phase = "one after the other" if num_stages == 1 else phase
        yield Step(
            sentence=_what_happens(time, loading, computing),
            phase=phase,
            shapes=shapes,
            reads=tuple(_tile(i) for i in begun),
            on_chip=tuple(_tile(i) for i in held),
            values={**common, "time": time, "loading": loading, "computing": computing},
        )
    sentence = f"Done after {end} slots, {iterations * compute} of them spent computing."
    values = {**common, "time": end, "loading": [], "computing": []}
    yield Step(sentence=sentence, phase="done", shapes=shapes, values=values, output=end)


def _tile(i: int) -> Tile:
    return Tile("tiles", ((i, i + 1), (0, 1)), 1)


def _what_happens(time: int, loading: list[int], computing: list[int]) -> str:
    tiles = f"tile{'s' * (len(loading) > 1)} {', '.join(map(str, loading))}"
    under_way = f"{tiles} on the way" if loading else "nothing on the way"
    work = f"computing with tile {computing[0]}" if computing else f"waiting for tile {loading[0]}"
    return f"Slot {time}: {under_way}; {work}."
