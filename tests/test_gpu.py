"""Strides, launch grids and pipelines: the steps hold what PyTorch and the formulas say, and can be seen."""

import importlib.util
import itertools

import pytest
import torch

from flashlearn.core.steps import hbm_bytes, record, run, sram_peak
from flashlearn.gpu import layout_steps, pipeline_schedule, pipeline_steps, program_steps
from flashlearn.show.draw import draw_pipeline, draw_programs, draw_strides
from flashlearn.show.explorers import program_explorer, stride_explorer
from tests.drawing import sound
from tests.slow import slow

X = torch.arange(24.0).reshape(2, 4, 3)
VIEWS = {
    "x": X,
    "transposed": X.transpose(1, 2),
    "moved to the front": X.permute(2, 0, 1),
    "every second row": X[:, ::2],
    "a part": X[1, 2:],
    "expanded": X[:, :1].expand(2, 4, 3),
    "a row": X.reshape(24),
    "one number": X[0, 0, 0],
    "empty": X[:0],
}
needs_triton = pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is not installed here")


@pytest.mark.parametrize("name", VIEWS)
def test_every_element_is_where_pytorch_has_it(name):
    x = VIEWS[name]
    steps = record(layout_steps(x))
    memory = steps[-1].values["memory"]
    assert len(memory) == 24 and len(steps) == x.numel() + 1
    assert torch.equal(memory[steps[-1].output], x)
    for step in steps[:-1]:
        assert memory[step.values["offset"]] == x[step.values["index"]]
        assert step.sentence.endswith(f"= {step.values['offset']}.")


def test_transpose_swaps_strides_and_nothing_else():
    x, transposed = (record(layout_steps(t))[-1] for t in (X, X.transpose(1, 2)))
    assert x.values["strides"] == (12, 3, 1) and transposed.values["strides"] == (12, 1, 3)
    assert torch.equal(x.values["memory"], transposed.values["memory"])
    assert torch.equal(x.output.transpose(1, 2), transposed.output)
    assert "not contiguous" in transposed.sentence and "not contiguous" not in x.sentence


def test_vector_of_98432():
    steps = record(program_steps(98432, 1024))
    assert len(steps) == 97 + 1 and steps[-1].output == 97
    assert steps[96].values["valid"] == 128 and "896 elements are masked" in steps[96].sentence
    assert hbm_bytes(steps).read == 98432 * 4, "every element belongs to one program"


@pytest.mark.parametrize("N, block, H, B", [(10, 4, 2, 2), (8, 4, 3, 1), (1, 16, 1, 2), (7, 1, 1, 1)])
def test_programs_cover_everything_once(N, block, H, B):
    seen = torch.zeros(B, H, N)
    programs = [step for step in program_steps(N, block, H=H, B=B) if step.program]
    for pid, step in enumerate(programs):
        (tile,) = step.reads
        seen[tuple(slice(*span) for span in tile.index)] += 1
        assert step.values["pid"] == pid
    assert (seen == 1).all()
    grid = itertools.product(range(B), range(H), range(-(-N // block)))
    assert [step.program for step in programs] == [(i, head, batch) for batch, head, i in grid]


@pytest.mark.parametrize("stages", range(1, 8))
@pytest.mark.parametrize("n, load, compute", [(6, 3, 1), (5, 1, 1), (7, 2, 3), (1, 4, 2), (4, 1, 3)])
def test_pipeline_keeps_its_promises(stages, n, load, compute):
    schedule = pipeline_schedule(n, stages, load, compute)
    for i, (fetch, use) in enumerate(schedule):
        assert use.start >= fetch.end and fetch.end - fetch.start == load and use.end - use.start == compute
        assert i == 0 or use.start >= schedule[i - 1][1].end, "one computation at a time"
        assert i < stages or fetch.start >= schedule[i - stages][1].end, "a buffer is free before it is filled again"
    steps = record(pipeline_steps(n, stages, load, compute))
    assert len(steps) == steps[-1].output + 1 == schedule[-1][1].end + 1
    assert sram_peak(steps) <= stages and hbm_bytes(steps).read == n
    assert steps[-1].output >= load + n * compute, "the first load cannot be hidden, nor any computation"


def test_worked_pipeline():
    assert [run(pipeline_steps(6, stages)) for stages in (1, 2, 3, 4, 5)] == [24, 19, 11, 9, 9]
    phases = [step.phase for step in pipeline_steps(6, 3)]
    assert list(dict.fromkeys(phases)) == ["prologue", "steady", "epilogue", "done"]
    assert {step.phase for step in pipeline_steps(6, 1)} == {"one after the other", "done"}


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: next(layout_steps([1])), "expected x to be a torch.Tensor, got list"),
        (lambda: next(program_steps(0, 4)), "expected N of at least 1, got 0"),
        (lambda: next(program_steps(4, 2.5)), "expected block to be an int, got float"),
        (lambda: next(pipeline_steps(3, 0)), "expected num_stages of at least 1, got 0"),
    ],
)
def test_refusals(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


PICTURES = (
    *((draw_strides, step) for x in VIEWS.values() for step in record(layout_steps(x))[:: max(1, x.numel() // 2)]),
    *(
        (draw_programs, record(program_steps(*sizes, H=H, B=B, name="Q"))[at])
        for sizes, H, B in (((98432, 1024), 1, 1), ((10, 4), 2, 2), ((32, 1), 3, 2), ((9, 16), 1, 2), ((1, 1), 1, 1))
        for at in (0, -2, -1)
    ),
    *((draw_pipeline, step) for n, s in ((6, 1), (6, 3), (1, 1), (8, 8)) for step in record(pipeline_steps(n, s))[::4]),
)


@pytest.mark.parametrize(
    "draw, step",
    [picture if i % 6 == 0 else slow(*picture) for i, picture in enumerate(PICTURES)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_pictures_can_be_read(draw, step):
    for narrow in (False, True):
        sound(draw(step, narrow=narrow), usual=False, apart=4)


def test_four_dimensions_are_rejected():
    with pytest.raises(ValueError, match="at most three dimensions, got shape"):
        draw_strides(next(layout_steps(torch.zeros(1, 1, 1, 1))))


def said(explorer):
    return explorer.transcript[explorer.step]


def test_stride_explorer():
    explorer = stride_explorer()
    explorer.j = 2
    assert explorer.step == 6 and "0 × 12 + 2 × 3 + 0 × 1 = 6" in said(explorer)
    explorer.step = 23
    assert (explorer.i, explorer.j, explorer.k) == (1, 3, 2)
    explorer.transposed = True
    assert explorer.step == 0 and (explorer.i, explorer.j, explorer.k) == (0, 0, 0)
    explorer.k = 3
    assert "0 × 12 + 0 × 1 + 3 × 3 = 9" in said(explorer)
    explorer.j = 3
    assert explorer.j == 2, "the last of that index now"
    explorer.step = 24
    assert "not contiguous" in said(explorer)
    explorer.transposed = False
    assert len(explorer.transcript) == 25


def test_program_explorer():
    explorer = program_explorer(step=8)
    assert "block 2, head 0, batch entry 1" in said(explorer)
    for name, value, programs in (("N", 32, 32), ("block", 1, 128), ("H", 3, 192), ("B", 1, 96)):
        setattr(explorer, name, value)
        assert len(explorer.transcript) == programs + 1
    for control in (*explorer.controls, *stride_explorer().controls):
        assert control["label"] and control["help"]


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("N", -5, ValueError, "expected N from 1 to 32, got -5"),
        ("N", 10**6, ValueError, "expected N from 1 to 32, got 1000000"),
        ("N", "3", TypeError, "expected N to be an int, got str"),
        ("H", 9, ValueError, "expected H from 1 to 3, got 9"),
        ("B", 0, ValueError, "expected B from 1 to 2, got 0"),
        ("block", 3, ValueError, "expected block to be one of 1, 2, 4, 8, 16, got 3"),
        ("block", True, TypeError, "expected block to be an int, got bool"),
    ],
)
def test_first_values_of_the_program_explorer(name, value, error, message):
    with pytest.raises(error, match=message):
        program_explorer(**{name: value})


@pytest.mark.slow  # processes of their own; notebook 11 compiles too
@needs_triton
def test_the_compiler_gives_a_program_its_warps_and_a_stage_its_tiles():
    from flashlearn.compiler.compiled import compiled

    four, eight, one_stage, three = compiled(
        ("vector_add", "H100", {"num_warps": 4}),
        ("vector_add", "H100", {"num_warps": 8}),
        ("matmul", "H100", {"num_stages": 1}),
        ("matmul", "H100", {"num_stages": 3}),
    )
    assert (four[:2], eight[:2]) == ((128, 0), (256, 0))
    assert four.registers > 0 and four.spilled == 0
    assert 3 * one_stage.shared == three.shared == 3 * 2 * 64 * 32 * 2
    with pytest.raises(ValueError, match="expected a kernel of .* got 'scan', 'H100'"):
        compiled(("scan", "H100", {}))
    with pytest.raises(TypeError, match="expected options of .*num_warps.*, got num_warp, BLOCK_m"):
        compiled(("matmul", "H100", {"num_warp": 8, "BLOCK_m": 128}))
    with pytest.raises(RuntimeError, match="expected Triton to compile"):
        compiled(("vector_add", "H100", {"num_warps": 3}))


@pytest.mark.slow  # processes of their own; notebook 14 counts them too
@needs_triton
def test_the_compiler_counts_instructions_and_says_what_spills():
    from flashlearn.compiler.compiled import compiled

    blocks = {"HEAD_DIM": 64, "BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 4, "num_stages": 2}
    e, two, cramped = compiled(
        ("ladder", "H100", {**blocks, "EXP2": False}),
        ("ladder", "H100", blocks),
        ("ladder", "H100", {**blocks, "HEAD_DIM": 128, "BLOCK_N": 128}),
    )
    scores = 128 * 64 // 128  # of a thread
    for each in (e, two):
        assert sum(n for name, n in each.instructions.items() if name.startswith("ex2")) == scores + 4  # and alpha
        assert each.spilled == 0 and each.registers <= 255
    assert e.instructions["mul.f32"] - two.instructions["mul.f32"] >= scores - 4
    assert cramped.registers == 255 and cramped.spilled > 0
    assert cramped.shared == 5 * 128 * 128 * 2  # Q, and two stages of K and V
