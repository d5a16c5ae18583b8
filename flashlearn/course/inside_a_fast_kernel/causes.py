"""What wrong answers to the exercises of notebook 15 get wrong."""

from __future__ import annotations

import math
import re

import torch

from flashlearn.course.inside_a_fast_kernel.solutions import arrive_solution, stages_solution
from flashlearn.exercises.altered import altered
from flashlearn.exercises.formulas import slips_of
from flashlearn.exercises.simulating import attended, heads, simulated


def whole_bits(phases):
    for t in range(6):
        got = phases(t, 2)
        if any(int(p) not in (0, 1) for p in got):
            return f"tile {t} of two stages: expected parities, 0 or 1, the last bit of a number, got {tuple(map(int, got))}"
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
    """What a race or a deadlock in the simulator means; its own words are shown, too."""
    if filled := re.search(r"lands in (\w+\[\d+\]).* a product of", error):
        return f"{filled[1]} is filled again while a product may still read it: wait for that product, then arrive"
    if never := re.search(r"deadlock.*load waits for phase \d of (\w_free\[\d+\])", error):
        return f"the producer waits at {never[1]} for an arrive of both consumers, which is missing, or is at another barrier"
    return f"the simulator finds a {error}" if "slot" in error else ""


def how_early(multiply):
    for blocks, stages in ((4, 1), (6, 2)):
        _, got = simulated(multiply, blocks, stages)
        _, want = simulated(arrive_solution, blocks, stages)
        if got > want:
            return f"{_with(stages)} expected {want} slots, got {got}: a buffer is released later than it could be"
    return ""


def _asked(args, why):
    def cause(slots):
        got, want = slots(*args), stages_solution(*args)
        blocks, stages, land, work = args
        told = f"{blocks} tile{'s' * (blocks > 1)}, {stages} stage{'s' * (stages > 1)}, land {land}, work {work}"
        return "" if abs(got - want) < 1e-9 else f"{told}: expected {want} slots, got {got:.4g}; {why}"

    return cause


def which_slips(attend_wide):
    """Compute O in PyTorch with one thing wrong, then with two: which gives the same?"""
    try:
        got = attended(attend_wide, 3, 2, 0.1 * math.log2(math.e))
    except RuntimeError:
        return ""
    return slips_of([got], lambda slips: [_o(slips)], SLIPS)


SLIPS = {
    "rescale": "acc is not rescaled: alpha converts it to the new maximum",
    "l": "acc is not divided by l",
    "scale": "the scale is missing: S is Q K^T times qk_scale",
}


def _o(slips):
    q, k, v = (t.double() for t in heads(3))
    s = q @ k.mT * (1.0 / math.log2(math.e) if "scale" in slips else 0.1)
    top = s.cummax(-1).values[:, 63::64] if "rescale" in slips else s.amax(-1, keepdim=True)
    p = torch.exp(s - (top.repeat_interleave(64, -1) if "rescale" in slips else top))
    l = torch.exp(s - s.amax(-1, keepdim=True)).sum(-1, keepdim=True)
    return p @ v / (1 if "l" in slips else l)


def stuck(attend_wide):
    """A race or a deadlock in the simulator."""
    try:
        attended(attend_wide, 4, 1, 0.1)
    except RuntimeError as error:
        said = str(error)
        if re.search(r"slot \d+: \w+ lands in", said):
            return "a buffer is filled again while a product may still read it: arrive after the wait for that product"
        if said.startswith("race"):
            return "a product may read a buffer before its tile has landed: wait for `full` with the parity of this use"
        return "the producer waits for an arrive of both consumers at `free`: arrive once for every tile"
    return ""


AFTER_TILE_0 = "the copy of tile 2 is issued exactly when tile 0 has been multiplied, because that frees its buffer"
CAUSES = {
    "deadlock": (whole_bits, in_the_simulator),
    "arrive": (what_the_simulator_says, how_early),
    "wide": (stuck, which_slips),
    "stages": (
        _asked((1, 2, 8, 4), "one tile lands and is then multiplied"),
        _asked((3, 1, 8, 4), "with one buffer nothing overlaps: each tile lands, then is multiplied"),
        _asked((4, 4, 8, 4), "with a buffer for each tile all copies are issued at once, and land at once"),
        _asked((3, 2, 8, 4), AFTER_TILE_0),
        _asked((9, 3, 8, 4), "a tile waits for its own landing and for the tile before it"),
    ),
}
