"""The pipeline of the Hopper kernels, in a small kernel: it runs in the simulator, and each of its waits is needed."""

from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed here: there are no kernels to simulate")
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashlearn.exercises.altered import altered
from flashlearn.fast.hopper.pipeline import Pipeline, init_barriers, make_barriers
from flashlearn.fast.hopper.versions import aggregate
from flashlearn.simulator.barriers import Race
from flashlearn.simulator.scheduler import Deadlock
from flashlearn.simulator.simulated import simulate, tiles
from tests.compiling import compiling


@aggregate
class Total:
    """A running sum, and what it is multiplied by in the end."""

    total: Any
    factor: Any = 1


@gluon.jit
def load(pipeline, desc, blocks):
    for t in range(blocks):
        pipeline.producer_acquire(t)
        pipeline.load(t, desc, 0, 0, t * 64)


@gluon.jit
def consume(index: gl.constexpr, pipeline, blocks, out_ptr, CHUNKS: gl.constexpr):
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    state = Total(gl.zeros([64, 64], gl.float32, LAYOUT), factor=2)
    for t in range(blocks):
        pipeline.consumer_wait(t)
        for c in gl.static_range(CHUNKS):
            state = Total(state.total + pipeline.chunks(t)[c].load(LAYOUT).to(gl.float32), state.factor)
        pipeline.consumer_release(t)
    rows = index * 64 + gl.arange(0, 64, gl.SliceLayout(1, LAYOUT))
    gl.store(out_ptr + rows, gl.sum(state.total, 1) * state.factor)


@gluon.jit
def sum_kernel(desc, out_ptr, blocks, STAGES: gl.constexpr, CHUNKS: gl.constexpr):
    """Twice the sums over columns of tiles (64, 64 CHUNKS), added up, by two consumers."""
    x_smem = gl.allocate_shared_memory(desc.dtype, [STAGES * CHUNKS, 1, 1, 64, 64], desc.layout)
    x_full = make_barriers(STAGES)
    x_free = make_barriers(STAGES)
    init_barriers(x_full, 1)
    init_barriers(x_free, 2)
    pipeline = Pipeline(x_smem, x_full, x_free, STAGES, CHUNKS)
    gl.warp_specialize(
        [
            (consume, (0, pipeline, blocks, out_ptr, CHUNKS)),
            (consume, (1, pipeline, blocks, out_ptr, CHUNKS)),
            (load, (pipeline, desc, blocks)),
        ],
        [4, 1],
        [240, 24],
    )


def run(stages=2, chunks=2, replaced=None):
    """What comes out, and what should."""
    x, out = torch.randint(-8, 8, (5 * 64, 64 * chunks)).half(), torch.empty(2, 64)
    desc = tiles("X", x[None, None], (1, 1, 64, 64))
    simulate(sum_kernel, desc, out, 5, STAGES=stages, CHUNKS=chunks, replaced=replaced)
    return out, 2 * x.float().view(5, 64, -1).sum((0, 2)).expand(2, 64)


@pytest.mark.parametrize("stages", (1, 2, 5))
@pytest.mark.parametrize("chunks", (1, 3))
def test_consumers_read_what_the_producer_loads(stages, chunks):
    assert torch.equal(*run(stages, chunks))


WAIT_FREE = "mbarrier.wait(self.free.index(self.index(t + self.RELEASE_LAG)), self.phase(t + self.RELEASE_LAG) ^ 1)"
WAIT_FULL = "mbarrier.wait(self.full.index(self.index(t)), self.phase(t))"
FAULTS = [  # a method, what it says, what it says instead, stages, the error and its words
    ("producer_acquire", " ^ 1", "", 2, Deadlock, "load waits for phase 0 of x_free"),
    ("consumer_release", "count=1", "count=0", 2, Deadlock, "load waits for phase 0 of x_free"),
    ("producer_acquire", WAIT_FREE, "pass", 2, Race, "lands in x_smem"),
    ("consumer_wait", WAIT_FULL, "pass", 5, Deadlock, "load waits for phase 1 of x_free"),  # released before it is full
]


@pytest.mark.parametrize(("method", "old", "new", "stages", "error", "words"), FAULTS)
def test_every_wait_is_needed(method, old, new, stages, error, words):
    wrong = {f"Pipeline.{method}": altered(getattr(Pipeline, method).fn, (old, new))}
    with pytest.raises(error, match=words):
        run(stages, replaced=wrong)


def test_an_aggregate_wants_its_fields():
    with pytest.raises(TypeError, match="expected Total to be made of .*'total', 'factor'"):
        Total(1, 2, 3)


COMPILE = """
import flashlearn.kernels
from flashlearn.compiler.compile_only import compile_for
launches = compile_for(90)
import torch
from flashlearn.fast.hopper.tiles import in_tiles, launch_hopper
from tests.test_pipeline import sum_kernel
x = torch.empty(1, 1, 320, 128, dtype=torch.float16)
launch_hopper(sum_kernel, (1, 1, 1), (in_tiles(x, (1, 1, 64, 64)), torch.empty(128), 5), dict(STAGES=2, CHUNKS=2))
print(launches[0].spilled, launches[0].shared // 1024)
"""


@pytest.mark.slow  # a process of its own, which compiles
def test_it_compiles():
    done = compiling(COMPILE)
    assert not done.returncode, done.stderr[-2000:]
    assert done.stdout.split() == ["0", "32"]
