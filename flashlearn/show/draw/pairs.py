"""The square of queries and keys: which pairs of a run are done, which now, which are masked, and which never visited."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flashlearn.show.draw.scene import Grid, Look, Scene, Span, blocks_of

Block = tuple[Span, Span]  # (rows, cols)


class Visit(NamedTuple):
    """A block of pairs that a step visits, and which of its cells the mask hides; none unless given."""

    number: int
    block: Block
    masked: list[list[bool]] | None = None


def pairs(scene: Scene, grid: Grid, visits: Iterable[Visit], number: int, now: Block | None) -> list[tuple[str, Look]]:
    """Draw the square at step `number`; the entries of its key: done, now, and masked and never visited if there are such."""
    visits = list(visits)
    done, never, masked = ([[cell] * grid.cols for _ in range(grid.rows)] for cell in (False, True, False))
    for visit in visits:
        (r0, r1), (c0, c1) = visit.block
        for r in range(r0, r1):
            never[r][c0:c1] = [False] * (c1 - c0)
            if visit.number < number:
                done[r][c0:c1] = [True] * (c1 - c0)
            if visit.masked:
                hidden = visit.masked[r - r0]
                masked[r][c0:c1] = [a or b for a, b in zip(masked[r][c0:c1], hidden, strict=True)]
    for block in blocks_of(done):
        scene.rect(grid.rect(*block), "S", "light")
    if now:
        scene.rect(grid.rect(*now), "S", id="S-now")
        scene.outline(grid.rect(*now), id="S-frame")
    for block in blocks_of(never):
        scene.hatch(grid.rect(*block), "masked")
    for block in blocks_of(masked):
        scene.hatch(grid.rect(*block))
    entries = [("done", Look("S", "light")), ("now", Look("S"))]
    entries += [("masked", Look(hatched=True))] * any(map(any, masked))
    return entries + [("never visited", Look("masked", hatched=True))] * any(map(any, never))
