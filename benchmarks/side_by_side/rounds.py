"""The instructions at which computing warps are in an iteration: the profiler's samples, by the purpose of the instruction."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# What an instruction of a Hopper GPU is for, by the beginning of its name
KINDS = {
    "waiting for products": ("WARPGROUP",),
    "issuing products": ("HGMMA",),
    "waiting at barriers": ("SYNCS", "BAR", "BRA", "NOP", "WARPSYNC", "BSYNC"),
    "exponentials": ("MUFU",),
    "shared memory": ("LDS", "STS", "FENCE"),
    "spills": ("LDL", "STL"),
}
REST = "the rest"


class Instruction(NamedTuple):
    address: int
    words: str  # "@P0 BRA 0x7f0de57ad8d0"
    samples: int  # samples of a warp that waited for this instruction to be issued, or issued it


def listings(page: str) -> list[list[Instruction]]:
    """The machine code of every kernel, from the profiler's page of sources as comma-separated values."""
    kernels: list[list[Instruction]] = []
    header: list[str] = []
    for line in csv.reader(page.splitlines()):
        if line[:1] == ["Kernel Name"]:
            kernels.append([])
        elif line[:1] == ["Address"]:
            header = line
        elif line and line[0].startswith("0x"):
            cells = dict(zip(header, line, strict=True))
            kernels[-1].append(Instruction(int(line[0], 16), cells["Source"].strip(), int(cells["# Samples"])))
    return kernels


def stands(kernel: Sequence[Instruction]) -> dict[str, float]:
    """{kind of instruction: part of the samples in iterations, ..., "of all samples": part of all samples that are in
    iterations}. An iteration is one of an innermost loop with products, whichever warps run it.
    """
    found = dict.fromkeys([*KINDS, REST], 0)
    for index in set().union(*rounds(kernel)):
        name = re.sub(r"^@\S+ +", "", kernel[index].words)
        kind = next((kind for kind, names in KINDS.items() if name.startswith(names)), REST)
        found[kind] += kernel[index].samples
    total = sum(found.values())
    if not total:
        raise ValueError(f"expected samples in loops with products (HGMMA), got none in {len(kernel)} instructions")
    return {kind: n / total for kind, n in found.items()} | {
        "of all samples": total / sum(each.samples for each in kernel)
    }


def rounds(kernel: Sequence[Instruction]) -> list[set[int]]:
    """The innermost loops with products, as places in the listing: natural loops, so that a wait's code elsewhere belongs to
    the loop that it returns to."""
    loops = [loop for loop in _loops(kernel) if any("HGMMA" in kernel[index].words for index in loop)]
    return [loop for loop in loops if not any(other < loop for other in loops)]


def _loops(kernel: Sequence[Instruction]) -> list[set[int]]:
    """All that reach a jump back, without its target, for each target that every way to the jump passes."""
    import networkx

    graph = networkx.DiGraph(_steps(kernel))
    graph.add_nodes_from(range(len(kernel)))
    entry, reached = -1, set()
    for index in range(len(kernel)):  # code behind an indirect jump starts a new block
        if index not in reached:
            graph.add_edge(entry, index)
            reached |= {index} | networkx.descendants(graph, index)
    dominator = networkx.immediate_dominators(graph, entry)
    bodies: dict[int, set[int]] = {}
    for jump, target in graph.edges:
        above = jump
        while above not in (target, entry):
            above = dominator[above]
        if above == target:  # else there is a way to the jump that does not pass its target: no loop
            body = {target, jump}
            if jump != target:
                body |= networkx.ancestors(networkx.restricted_view(graph, [target], []), jump)
            bodies[target] = bodies.get(target, set()) | body
    return list(bodies.values())


def _steps(kernel: Sequence[Instruction]) -> Iterator[tuple[int, int]]:
    """Which instruction may follow which."""
    places = {each.address: index for index, each in enumerate(kernel)}
    for index, each in enumerate(kernel):
        guard, name, operands = re.match(r"(@\S+ +)?(\S+) *(.*)", each.words).groups()
        target = re.search(r"(.*)(0x[0-9a-f]+)$", operands) if name.startswith("BRA") else None
        if target and int(target[2], 16) in places:
            yield index, places[int(target[2], 16)]
        conditional = guard or (target and target[1])  # "BRA.DIV UR4, 0x..." and "BRA !UP0, 0x..." are, too
        leaves = name.split(".")[0] in ("BRA", "BRX", "JMP", "EXIT", "RET") and not conditional
        if not leaves and index + 1 < len(kernel):
            yield index, index + 1
