"""Which tile of queries a CTA computes next, and where that tile is. CTAs are persistent: each computes one tile after another.

The schedule is dynamic where a counter is given. A CTA's first tile index is its own number; its producer warp takes each next one from
an atomic counter and passes it to the consumers through shared memory. Otherwise the schedule is static: the next tile index is
as many further as there are CTAs.

Neighbouring tiles run at the same time and read the same K and V, so that the L2 cache serves them. Under a mask the tiles of a head
differ in length, in the same way in every head. A few heads then run side by side, the longest causal tiles first. The backward
pass, whose CTAs compute one tile each, has a scheduler of its own.
"""

from __future__ import annotations

from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from flashlearn.fast.hopper.scheduling import side_by_side
from flashlearn.fast.hopper.versions import aggregate


@aggregate
class TileScheduler:
    """Tile indices for a CTA; i counts its tiles."""

    slots: Any  # (2, 1) int32 in shared memory: the tile index after the i-th is in slot i % 2
    full: Any  # (2, 1) barriers of the slots
    counter_ptr: Any  # (1,) int32: how many tile indices are taken; None: a static schedule
    heads_at_once: Any  # heads that run side by side, under a mask
    problem: Any
    HEIGHT: Any  # queries of a tile

    @gluon.jit
    def tiles(self):
        """How many tiles there are, in all heads of all sequences."""
        return self.problem.batches * self.problem.heads * gl.cdiv(self.problem.N_q, self.HEIGHT)

    @gluon.jit
    def coordinates(self, index):
        """The first query of a tile, and its head, counted over all sequences."""
        problem = self.problem
        tiles = gl.cdiv(problem.N_q, self.HEIGHT)  # of a head
        if problem.MASK == "none":
            head, tile = index // tiles, index % tiles
        else:
            tile, head = side_by_side(index, self.heads_at_once, tiles, problem.batches * problem.heads)
            if problem.MASK == "causal":
                tile = tiles - 1 - tile
        return tile * self.HEIGHT, head

    @gluon.jit
    def fetch_next(self, i, index):
        """The producer warp: the tile index after this one, the i-th.

        Its slot is free: a consumer reads it before it releases its Q of tile i - 2, and that Q's buffer has been acquired since.
        """
        if self.counter_ptr is not None:
            ONE: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
            taken = gl.atomic_add(self.counter_ptr, 1, sem="relaxed")
            # One index is taken after each tile, so that this is the last one: 0 again, for the next launch
            if taken == self.tiles() - 1:
                gl.atomic_add(self.counter_ptr, -self.tiles(), sem="relaxed")
            index = gl.num_programs(0) + taken
            self.slots.index(i % 2).store(gl.zeros([1], gl.int32, ONE) + index)
            mbarrier.arrive(self.full.index(i % 2), count=1)
        else:
            index += gl.num_programs(0)
        return index

    @gluon.jit
    def receive_next(self, i, index):
        """A consumer: the tile index after this one, the i-th."""
        if self.counter_ptr is not None:
            ONE: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
            mbarrier.wait(self.full.index(i % 2), i // 2 & 1)
            index = gl.sum(self.slots.index(i % 2).load(ONE), 0)
        else:
            index += gl.num_programs(0)
        return index
