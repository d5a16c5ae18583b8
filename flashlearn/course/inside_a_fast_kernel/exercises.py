"""Exercises of notebook 15: the phases that loader and groups wait for, the place of an arrive, what a stage brings."""

from __future__ import annotations

import torch

from flashlearn.course.inside_a_fast_kernel.solutions import arrive_solution, deadlock_solution, stages_solution
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.simulating import problem, simulated


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


# fmt: off
EXERCISES = (
    Exercise(
        "deadlock",
        "phases(t, stages) -> (the phase of `free` that the loader waits for before it asks for tile t, the phase of "
        "`full` that a group waits for before it multiplies tile t), 0 or 1 each",
        deadlock_solution, (
            Case("two stages", _phases(8, 2), "tiles 0 and 1 are round 0, tiles 2 and 3 round 1"),
            Case("one stage", _phases(5, 1), "every tile is a round of its own"),
            Case("three stages", _phases(9, 3), "a round has as many tiles as there are stages"),
            Case("more stages than tiles", _phases(3, 5), "all tiles are in round 0"),
            Case("many rounds", _phases(40, 4), "the phase is 0 again after two rounds"),
        ), hints=(
            "Write down, for two stages, which round of its buffer tile t belongs to. Who must have finished what before?",
            "A group waits for the landing of its own round. The loader waits for the end of the round before.",
            "The round is t // stages; its last bit is what the group waits for, and the loader waits for the other bit.",
        ),
        values=("what the loader waits for", "what a group waits for"),
    ),
    Exercise(
        "arrive",
        "multiply(t, q, acc, smem, full, free) -> acc + (Q K_t^T) V_t; smem, full and free are pairs (of K, of V); both buffers "
        "are handed back as early as that is safe; it runs in the simulator, without a decorator",
        arrive_solution, (
            Case("one stage", _multiplied(4, 1), "K_t is not needed any more once S has been awaited"),
            Case("two stages", _multiplied(6, 2), "arrive at the barriers of the stage of tile t"),
            Case("three stages", _multiplied(7, 3), "every round of every stage is handed back"),
            Case("a stage for each tile", _multiplied(2, 3),
                 "nobody waits for a free buffer here: it is the result that is wrong"),
        ), hints=(
            "Who may overwrite K_t as soon as you arrive? Which line reads K_t last, and when is it over?",
            "A product that was asked for still reads its buffer. It is over when warpgroup_mma_wait has returned.",
            "Two mbarrier.wait, each right before the product that reads its tile; two mbarrier.arrive(..., count=1), each "
            "right after the wait for that product. Which barriers?",
        ),
        values=("O", "slots"),
    ),
    Exercise(
        "stages",
        "slots(blocks, stages, land, work) -> the slots until all `blocks` tiles are multiplied: a copy lands `land` slots "
        "after it is asked for, a tile takes `work` slots, copies may overlap, and tile t waits for the buffer of t - stages",
        stages_solution, (
            Case("two stages", _slots(6, 2, 8, 4), "tile t is asked for when tile t - stages has been multiplied"),
            Case("a third stage", _slots(6, 3, 8, 4), "a tile is multiplied when it has landed and the one before is done"),
            Case("a fourth stage", _slots(6, 4, 8, 4), "when the tensor cores never wait, more stages bring nothing"),
            Case("one stage", _slots(3, 1, 8, 4), "with one buffer, nothing overlaps"),
            Case("one tile", _slots(1, 2, 5, 3), "a tile must land before it is multiplied"),
            Case("more stages than tiles", _slots(3, 5, 7, 2), "the first tiles wait for no buffer"),
            Case("slow copies", _slots(7, 2, 20, 3), "the tensor cores wait in every round"),
            Case("quick copies", _slots(7, 2, 1, 3), "the tensor cores wait for the first tile alone"),
        ), hints=(
            "Keep a list: when has tile t been multiplied? What must have happened before it can be?",
            "Tile t is asked for when the tile before it in the same buffer is done, or at 0; it lands `land` slots later.",
            "done[t] = max(when it landed, when tile t - 1 was done) + work. Which tile frees the buffer of tile t?",
        ),
    ),
)
