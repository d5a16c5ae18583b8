"""What wrong answers to the exercises of notebook 15 get wrong."""

from __future__ import annotations

import re

import torch

from flashlearn.course.inside_a_fast_kernel.solutions import arrive_solution, stages_solution
from flashlearn.exercises.altered import altered
from flashlearn.exercises.simulating import simulated


def whole_bits(phases):
    for t in range(6):
        got = phases(t, 2)
        if any(int(p) not in (0, 1) for p in got):
            return f"tile {t} of two stages: {tuple(map(int, got))} came back, and a phase is 0 or 1, the last bit of a number"
    return ""


def in_the_simulator(phases):
    """The lesson's kernel with these phases."""
    from flashlearn.kernels import lesson
    from flashlearn.simulator.barriers import Race
    from flashlearn.simulator.scheduler import Deadlock
    from flashlearn.simulator.simulated import simulate, tiles

    for stages in (2, 3, 1):
        load = altered(lesson.load.fn, ("t // STAGES & 1 ^ 1", "PHASES[t][0]"))
        multiply = altered(lesson.multiply.fn, ("t // STAGES & 1", "PHASES[t][1]"))
        for function in (load, multiply):
            space = getattr(function, "fn", function).__globals__
            space["PHASES"] = [tuple(map(int, phases(t, stages))) for t in range(7)]
        matrices = zip("QKVO", (128, 448, 448, 128), strict=True)
        given = [tiles(name, torch.zeros(rows, 64).half(), (64, 64)) for name, rows in matrices]
        try:
            simulate(lesson.shared_kernel, *given, 7, 1.0, STAGES=stages, replaced={"load": load, "multiply": multiply})
        except (Race, Deadlock) as error:
            return f"{_with(stages)} the simulator finds a {type(error).__name__.lower()}: {error}"
    return ""


def _with(stages):
    return f"with {stages} stage{'s' * (stages > 1)}"


def what_the_simulator_says(multiply):
    for blocks, stages in ((4, 1), (6, 2), (7, 3)):
        try:
            simulated(multiply, blocks, stages)
        except RuntimeError as error:
            if said := _meaning(str(error)):
                return f"{_with(stages)} {said}"
    return ""


def _meaning(error):
    """What a race or a deadlock in the simulator, whose own words are shown beside this, says of the answer."""
    if filled := re.search(r"lands in (\w+\[\d+\]).* a product of", error):
        return f"{filled[1]} is filled again while a product may still read it: await that product, then arrive"
    if never := re.search(r"deadlock.*load waits for phase \d of (\w_free\[\d+\])", error):
        return (
            f"the loader waits at {never[1]} for an arrive of both groups that never comes, or comes at another barrier"
        )
    return f"the simulator finds a {error}" if "slot" in error else ""


def how_early(multiply):
    for blocks, stages in ((4, 1), (6, 2)):
        _, got = simulated(multiply, blocks, stages)
        _, want = simulated(arrive_solution, blocks, stages)
        if got > want:
            told = f"{_with(stages)} it takes {got} slots where {want} would do"
            return f"{told}: a buffer is handed back later than it could be"
    return ""


def _asked(args, why):
    def cause(slots):
        got, want = slots(*args), stages_solution(*args)
        blocks, stages, land, work = args
        told = f"{blocks} tile{'s' * (blocks > 1)}, {stages} stage{'s' * (stages > 1)}, land {land}, work {work}"
        return "" if abs(got - want) < 1e-9 else f"{told}: {want} slots, and {got:.4g} came back; {why}"

    return cause


AFTER_TILE_0 = "tile 2 is asked for when tile 0 has been multiplied, which frees its buffer, not before and not later"
CAUSES = {
    "deadlock": (whole_bits, in_the_simulator),
    "arrive": (what_the_simulator_says, how_early),
    "stages": (
        _asked((1, 2, 8, 4), "one tile lands and is then multiplied"),
        _asked((3, 1, 8, 4), "with one buffer nothing overlaps, a tile after the other lands and is multiplied"),
        _asked((4, 4, 8, 4), "with a buffer for each tile all copies are asked for at once, and land at once"),
        _asked((3, 2, 8, 4), AFTER_TILE_0),
        _asked((9, 3, 8, 4), "a tile waits for its own landing and for the tile before it"),
    ),
}
