"""Exercises of notebook 15: the phases of producer and consumers, the place of an arrive, stages, and `attend` for D = 128."""

from __future__ import annotations

import math

import torch

from flashlearn.course.inside_a_fast_kernel.solutions import (
    arrive_solution,
    deadlock_solution,
    stages_solution,
    wide_solution,
)
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.launching import DoesNotCompile
from flashlearn.exercises.simulating import attended, heads, problem, rejected_by_compiler, simulated


def _phases(blocks, stages):
    def compare(function):
        return tuple(
            tuple(torch.tensor(column) for column in zip(*(each(t, stages) for t in range(blocks)), strict=True))
            for each in (function, deadlock_solution)
        )

    return compare


def _multiplied(blocks, stages):
    def compare(function):
        q, k, v = (t.float() for t in problem(blocks))
        slots = simulated(arrive_solution, blocks, stages)[1]
        return simulated(function, blocks, stages), ((q @ k.T @ v).half().float(), slots)

    return compare


def _slots(*args):
    return lambda function: (function(*args), stages_solution(*args))


def _attended(blocks, stages, scale=128**-0.5):
    def compare(function):
        q, k, v = (t.double() for t in heads(blocks))
        want = torch.softmax(q @ k.mT * scale, -1) @ v
        return attended(function, blocks, stages, scale * math.log2(math.e)), want

    return compare


def _compiles(function):
    """Whether the compiler accepts the kernel, for an H100."""
    attended(function, 5, 2, 0.1)  # a stub, a race or a deadlock need not be compiled
    found = rejected_by_compiler(function)
    if found:
        line, says = map(str, found)
        means = ": a value must be converted to the layout of what it meets" if "Layout mismatch" in says else ""
        at = f" at `{line}`" if line else ""
        raise DoesNotCompile(
            f"expected a kernel that compiles for sm_90, got an error{at}{means}. It says: {says}", line or says
        )
    return 1.0, 1.0


# fmt: off
EXERCISES = (
    Exercise(
        "deadlock",
        "phases(t, stages) -> (the parity of `free` that the producer waits for before it loads tile t, the parity of "
        "`full` that a consumer waits for before it multiplies tile t), 0 or 1 each",
        deadlock_solution, (
            Case("two stages", _phases(8, 2), "tiles 0 and 1 are use 0 of their buffers, tiles 2 and 3 are use 1"),
            Case("one stage", _phases(5, 1), "every tile is another use of the one buffer"),
            Case("three stages", _phases(9, 3), "the number of the use grows after as many tiles as there are stages"),
            Case("more stages than tiles", _phases(3, 5), "every tile is use 0 of its buffer"),
            Case("many uses", _phases(40, 4), "the parity is 0 again after two uses"),
        ), hints=(
            "For two stages, write down which use of its buffer tile t is. What must be over before the use begins?",
            "A consumer waits until the tile of its own use has landed. The producer waits until the use before is over.",
            "The use is t // stages. The consumer waits for its last bit, and the producer waits for the other bit.",
        ),
        values=("what the producer waits for", "what a consumer waits for"),
    ),
    Exercise(
        "arrive",
        "multiply(t, q, acc, smem, full, free) -> acc + (Q K_t^T) V_t; smem, full and free are pairs (of K, of V); release "
        "both buffers as early as it is safe; no decorator, since the simulator runs it",
        arrive_solution, (
            Case("one stage", _multiplied(4, 1), "K_t can be released as soon as the wait for S has returned"),
            Case("two stages", _multiplied(6, 2), "arrive at the barriers of the stage of tile t"),
            Case("three stages", _multiplied(7, 3), "release every stage in every use"),
            Case("a stage for each tile", _multiplied(2, 3),
                 "no buffer is used twice here, so the result itself is wrong"),
        ), hints=(
            "What may overwrite K_t as soon as you arrive? Which line reads K_t last, and when is it finished?",
            "A product that was issued still reads its buffer. It is finished when warpgroup_mma_wait has returned.",
            "Two mbarrier.wait, each right before the product that reads its tile; two mbarrier.arrive(..., count=1), each "
            "right after the wait for that product. Which barriers?",
        ),
        values=("O", "slots"),
    ),
    Exercise(
        "stages",
        "slots(blocks, stages, land, work) -> the slots until all `blocks` tiles are multiplied: a copy lands `land` slots "
        "after it is issued, a tile takes `work` slots, copies may overlap, and tile t waits for the buffer of t - stages",
        stages_solution, (
            Case("two stages", _slots(6, 2, 8, 4), "the copy of tile t is issued when tile t - stages has been multiplied"),
            Case("a third stage", _slots(6, 3, 8, 4), "a tile is multiplied when it has landed and the tile before is done"),
            Case("a fourth stage", _slots(6, 4, 8, 4), "if the tensor cores never wait, another stage gains nothing"),
            Case("one stage", _slots(3, 1, 8, 4), "with one buffer, nothing overlaps"),
            Case("one tile", _slots(1, 2, 5, 3), "a tile must land before it is multiplied"),
            Case("more stages than tiles", _slots(3, 5, 7, 2), "the first tiles wait for no buffer"),
            Case("slow copies", _slots(7, 2, 20, 3), "the tensor cores wait in every use of a buffer"),
            Case("quick copies", _slots(7, 2, 1, 3), "the tensor cores wait only for the first tile"),
        ), hints=(
            "Keep a list of the slots at which tile t is done. What must have happened before tile t can be multiplied?",
            "The copy of tile t is issued when the tile before it in the same buffer is done, or at 0. It lands `land` slots later.",
            "done[t] = max(when it landed, when tile t - 1 was done) + work. Which tile frees the buffer of tile t?",
        ),
    ),
    Exercise(
        "wide",
        "attend_wide(index, descs, smem, barriers, blocks, qk_scale): `attend` for tiles of 64 by 128, without a decorator",
        wide_solution, (
            Case("one tile of keys", _attended(1, 1),
                 "acc is (64, 128), S and P are (64, 64); divide by l, then `write`", 2e-3),
            Case("five tiles, two stages", _attended(5, 2), "alpha rescales acc before the new product is added", 2e-3),
            Case("four tiles, one stage", _attended(4, 1),
                 "the consumer arrives at `free` once for every tile, after the last product that reads it", 2e-3),
            Case("large scores", _attended(3, 3, 3.0), "multiply S by qk_scale before the softmax", 5e-3),
            Case("compiles for sm_90", _compiles,
                 "alpha and l_i are in the rows of S: convert both to gl.SliceLayout(1, O_LAYOUT) before they meet acc"),
        ), core=("compiles for sm_90",), hints=(
            "Two tiles have different widths now: S is 64 by 64, acc is 64 by 128. Which lines of `attend` name a layout?",
            "acc gets a layout with 128 columns. alpha and l_i are in the rows of S: convert them before they meet acc. P becomes "
            "the left factor of a product in acc's layout.",
            "S_LAYOUT [16, 64, 16], O_LAYOUT [16, 128, 16]; acc = zeros([64, 128], ..., ?); "
            "alpha = gl.convert_layout(alpha, gl.SliceLayout(1, ?)); DotOperandLayout(0, ?, 2); l_i = gl.convert_layout(l_i, ?)",
        ),
    ),
)
