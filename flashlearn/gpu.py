"""How a GPU program finds its data and overlaps its work, as steps: strides, launch grids, pipelines.

Nothing here runs on a GPU. The three generators say what any Triton kernel does before it computes: turn an
index into an address, turn a program id into a block, and start loads before their values are needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from flashlearn.inputs import check_block
from flashlearn.steps import Step, Tile


def layout_steps(x: Tensor) -> Iterator[Step]:
    """Visit x in index order, the last index fastest; yield where in memory each element lies.

    offset = start + sum_d index_d stride_d, in elements

    x       any tensor, views included; what a view leaves out is in `values["memory"]` all the same
    values  memory (all elements of the storage), start, shape, strides, index, offset, offsets
    output  the offset of every element, shaped as x
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"expected x to be a torch.Tensor, got {type(x).__name__}")
    memory = x.new_empty(0).set_(x.untyped_storage())
    start, strides = x.storage_offset(), x.stride()
    layout = {"memory": memory, "start": start, "shape": tuple(x.shape), "strides": strides}
    offsets = torch.full(x.shape, start, dtype=torch.long)
    for d, stride in enumerate(strides):
        offsets += (stride * torch.arange(x.shape[d])).reshape(-1, *[1] * (x.ndim - d - 1))
    layout["offsets"] = offsets
    shapes = {"memory": tuple(memory.shape)}
    for index in np.ndindex(*x.shape):
        offset = offsets[index].item()
        sum_of = " + ".join(f"{i} × {stride}" for i, stride in zip(index, strides, strict=True))
        begin = f"{start} + " if start else ""
        sentence = f"Element {list(index)} lies at offset {begin}{sum_of} = {offset}."
        read = Tile("memory", ((offset, offset + 1),), x.element_size())
        yield Step(sentence, "in index order", shapes, (read,), values={**layout, "index": index, "offset": offset})
    kind = (
        "contiguous: index order is memory order" if x.is_contiguous() else "not contiguous: the walk jumps in memory"
    )
    sentence = f"Done: shape {tuple(x.shape)}, strides {strides}: {kind}."
    yield Step(sentence, "done", shapes, values=layout, output=offsets)


def launch_steps(N: int, block: int, *, H: int = 1, B: int = 1, name: str = "x") -> Iterator[Step]:
    """One step per program of a launch grid of (ceil(N / block), H, B): what the program works on.

    pid -> (block, head, batch) = (pid % blocks, pid // blocks % H, pid // (blocks H))

    name     the matrix that is cut into blocks, (B, H, N)
    program  (block, head, batch), as tl.program_id(0), (1) and (2) say
    values   pid, block (lanes of a program), N, valid (lanes that are not masked)
    """
    for size, what in ((N, "N"), (block, "block"), (H, "H"), (B, "B")):
        check_block(size, what)
    blocks, shapes = math.ceil(N / block), {name: (B, H, N)}
    for pid in range(blocks * H * B):
        i, head, batch = pid % blocks, pid // blocks % H, pid // (blocks * H)
        first, last = i * block, min((i + 1) * block, N)
        valid = last - first
        masked = f"{block - valid} lanes are masked" if valid < block else "no lane is masked"
        place = f"block {i}" + (f", head {head}, batch entry {batch}" if H * B > 1 else "")
        held = f"elements {first} to {last - 1}" if valid > 1 else f"element {first}"
        sentence = f"Program {pid}: {place}. It holds {held}; {masked}."
        tile = Tile(name, ((batch, batch + 1), (head, head + 1), (first, last)), 4)
        values = {"pid": pid, "block": block, "N": N, "valid": valid}
        yield Step(sentence, "launch", shapes, (tile,), values=values, program=(i, head, batch))
    sentence = f"Done: {blocks * H * B} programs of {block} lanes. On a GPU they run in no particular order."
    values = {"pid": None, "block": block, "N": N, "valid": 0}
    yield Step(sentence, "done", shapes, values=values, output=blocks * H * B)


class Span(NamedTuple):
    """When something starts and ends, in slots of time."""

    start: int
    end: int


def pipeline_schedule(iterations: int, num_stages: int, load: int = 3, compute: int = 1) -> list[tuple[Span, Span]]:
    """When each iteration of a loop loads its tile and when it computes: (load, compute) per iteration.

    Triton's schedule: num_stages - 1 loads start before the loop, one slot apart; iteration i waits for its
    tile, starts load i + num_stages - 1, and computes. One stage: load, compute, load, compute, ...

    load, compute   slots of time that one load and one computation take
    """
    for size, what in ((iterations, "iterations"), (num_stages, "num_stages"), (load, "load"), (compute, "compute")):
        check_block(size, what)
    loads, computes = [], []
    for i in range(iterations):
        if i < num_stages - 1:
            begin = i  # the prologue
        elif num_stages == 1:
            begin = computes[-1].end if computes else 0
        else:
            begin = max(computes[i - num_stages].end if i >= num_stages else 0, loads[i - num_stages + 1].end)
        loads.append(Span(begin, begin + load))
        ready = max(loads[i].end, computes[-1].end if computes else 0)
        computes.append(Span(ready, ready + compute))
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
            _what_happens(time, loading, computing), phase, shapes, tuple(_tile(i) for i in begun),
            on_chip=tuple(_tile(i) for i in held),
            values={**common, "time": time, "loading": loading, "computing": computing},
        )  # fmt: skip
    sentence = f"Done after {end} slots, {iterations * compute} of them spent computing."
    yield Step(sentence, "done", shapes, values={**common, "time": end, "loading": [], "computing": []}, output=end)


def _tile(i: int) -> Tile:
    return Tile("tiles", ((i, i + 1), (0, 1)), 1)


def _what_happens(time: int, loading: list[int], computing: list[int]) -> str:
    tiles = f"tile{'s' * (len(loading) > 1)} {', '.join(map(str, loading))}"
    under_way = f"{tiles} on the way" if loading else "nothing on the way"
    work = f"computing with tile {computing[0]}" if computing else f"waiting for tile {loading[0]}"
    return f"Slot {time}: {under_way}; {work}."
