"""A pipeline of buffers in shared memory: TMA fills them for a producer warp, and consumer warpgroups read them.

Iteration t uses buffer t % STAGES. The state of a pipeline is therefore one number, t, which the producer and each
consumer count for themselves. Buffer and phase follow from it, and t + 1 is the next state:

    producer    pipeline.producer_acquire(t)    wait until every consumer has released the buffer
                pipeline.load(t, desc, at)      let TMA fill it
    consumer    pipeline.consumer_wait(t)       wait until its bytes have landed
                pipeline.chunks(t)              read them
                pipeline.consumer_release(t)    arrive at its barrier

Only the parity of a barrier's phase is visible. A consumer waits for the parity of its own phase. The producer waits for
the opposite one, so that it passes a new barrier at once.
"""

from __future__ import annotations

from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from flashlearn.fast.hopper.versions import aggregate, async_load


@aggregate
class Pipeline:
    """STAGES buffers and their barriers."""

    smem: Any  # (STAGES * TILES * CHUNKS, 1, 1, rows, columns); None: the barriers alone
    full: Any  # (STAGES * TILES, 1) barriers: the bytes have landed
    free: Any  # (STAGES * TILES, 1) barriers: every consumer has read them
    STAGES: Any
    CHUNKS: Any = 1  # of the head dimension: each has a buffer of its own
    TILES: Any = 1  # of a stage, such as one for each consumer
    TILE: Any = 0  # which of these
    # After how many more iterations `free` tells of a buffer: 1 if it is read in the next one. The producer then fills it an iteration
    # later, too: of V, a tile less is under way than there are stages (V of iteration STAGES - 1 waits for iteration 0)
    RELEASE_LAG: Any = 0

    @gluon.jit
    def index(self, t):
        """The number of the barrier of iteration t."""
        return t % self.STAGES * self.TILES + self.TILE

    @gluon.jit
    def phase(self, t):
        """The parity of the phase of iteration t."""
        return t // self.STAGES & 1

    @gluon.jit
    def producer_acquire(self, t):
        """Wait until the consumers have released the buffer of iteration t."""
        mbarrier.wait(self.free.index(self.index(t + self.RELEASE_LAG)), self.phase(t + self.RELEASE_LAG) ^ 1)

    @gluon.jit
    def load(self, t, desc, batch, head, row, OTHERS: gl.constexpr = 0):
        """Let TMA fill the buffer of iteration t with the tile (rows, D) that begins at a row of a head.

        OTHERS: bytes of other copies that the same barrier waits for.
        """
        index = self.index(t)
        mbarrier.expect(self.full.index(index), self.CHUNKS * desc.block_type.nbytes + OTHERS)
        for c in gl.static_range(self.CHUNKS):
            chunk = self.smem.index(index * self.CHUNKS + c)
            async_load(desc, [batch, head, row, c * self.smem.shape[4]], self.full.index(index), chunk)

    @gluon.jit
    def producer_commit(self, t):
        """A warpgroup has filled the buffer of iteration t, in place of TMA."""
        mbarrier.arrive(self.full.index(self.index(t)), count=1)

    @gluon.jit
    def consumer_wait(self, t):
        """Wait until the buffer of iteration t is full."""
        mbarrier.wait(self.full.index(self.index(t)), self.phase(t))

    @gluon.jit
    def consumer_release(self, t):
        """This consumer has read what iteration t releases."""
        mbarrier.arrive(self.free.index(self.index(t)), count=1)

    @gluon.jit
    def chunks(self, t):
        """The tile of iteration t as matrices (rows, columns), one for each chunk of the head dimension."""
        chunks: gl.tuple = ()
        for c in gl.static_range(self.CHUNKS):
            chunk = self.smem.index(self.index(t) * self.CHUNKS + c)
            chunks = chunks + (chunk.reshape([self.smem.shape[3], self.smem.shape[4]]),)
        return chunks

    @gluon.jit
    def tile(self, number: gl.constexpr):
        """The pipeline of one of the TILES of each stage."""
        return Pipeline(self.smem, self.full, self.free, self.STAGES, self.CHUNKS, self.TILES, number, self.RELEASE_LAG)


@gluon.jit
def make_barriers(number: gl.constexpr, COUNT: gl.constexpr = None):
    """So many barriers in shared memory, initialised with COUNT unless that is None: then `init_barriers` must follow."""
    return init_barriers(gl.allocate_shared_memory(gl.int64, [number, 1], mbarrier.MBarrierLayout()), COUNT)


@gluon.jit
def init_barriers(barriers, COUNT: gl.constexpr):
    """A phase of each barrier is over once COUNT have arrived."""
    if COUNT is not None:
        NUMBER: gl.constexpr = barriers.shape[0]
        for i in gl.static_range(NUMBER):
            mbarrier.init(barriers.index(i), count=COUNT)
    return barriers
