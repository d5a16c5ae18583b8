"""The record every algorithm yields, and what is computed from it."""

import subprocess
import sys

import pytest
import torch

from flashlearn.core.steps import Step, Tile, hbm_bytes, last, matmul_flops, passes, record, run, sram_peak


def counting(n):
    """n steps that read x[j] and write y[j] = j."""
    x = torch.zeros(n)
    for j in range(n):
        here = Tile("x", ((j, j + 1),), 4)
        yield Step(
            sentence=f"step {j}",
            phase="copy",
            shapes={"x": (n,), "y": (n,)},
            reads=(here,),
            writes=(Tile("y", ((j, j + 1),), 4),),
            on_chip=(here,),
            values={"y": torch.tensor([float(j)])},
            matmuls=((1, 2, 3, 4),),
            output=x if j == n - 1 else None,
        )


def test_tile_rows_cols_and_name():
    tile = Tile("K", ((0, 1), (2, 4), (0, 64)), itemsize=2, times=3)
    assert (tile.rows, tile.cols, tile.nbytes) == ((2, 4), (0, 64), 2 * 64 * 2 * 3)
    assert str(tile) == "K[0:1, 2:4, 0:64]"
    assert (Tile("l", (), 4).rows, Tile("l", (), 4).cols, Tile("l", (), 4).nbytes) == ((0, 1), (0, 1), 4)


@pytest.mark.parametrize(
    ("error", "message", "index", "sizes"),
    [
        (ValueError, "tile K: expected 0 <= start <= stop, got 4:2", ((4, 2),), (4,)),
        (ValueError, "expected itemsize of at least 1, got -2", (), (-2,)),
        (ValueError, "expected itemsize of at least 1, got 0", (), (0,)),
        (TypeError, "expected itemsize to be an int, got float", (), (2.0,)),
        (ValueError, "expected times of at least 0, got -3", (), (2, -3)),
        (TypeError, "expected times to be an int, got bool", (), (2, True)),
    ],
)
def test_tiles_of_no_size_are_rejected(error, message, index, sizes):
    with pytest.raises(error, match=message):
        Tile("K", index, *sizes)
    assert Tile("K", ((2, 4),), 2, 0).nbytes == 0, "an empty batch has no programs"


def test_step_rejects_a_tile_outside_its_matrix():
    with pytest.raises(ValueError, match=r"expected a tile inside x of shape \(3,\), got x\[2:4\]"):
        Step(sentence="", shapes={"x": (3,)}, reads=(Tile("x", ((2, 4),), 4),))
    with pytest.raises(ValueError, match=r"expected a tile inside x of shape \(3, 3\), got x\[0:2\]"):
        Step(sentence="", shapes={"x": (3, 3)}, writes=(Tile("x", ((0, 2),), 4),))
    with pytest.raises(ValueError, match=r"expected the shape of y in `shapes`, got \['x'\]"):
        Step(sentence="", shapes={"x": (3,)}, writes=(Tile("y", ((0, 1),), 4),))


def test_run_and_last():
    assert last(counting(3)).sentence == "step 2"
    assert run(counting(3)).shape == (3,)


COUNTS = {"bytes": hbm_bytes, "peak": sram_peak, "flops": matmul_flops, "passes": lambda steps: passes(steps, "x")}


@pytest.mark.parametrize("consumer", [last, run, record, *COUNTS.values()])
def test_a_generator_gives_its_steps_once(consumer):
    spent = counting(2)
    consumer(spent)
    for none in (spent, iter(())):
        with pytest.raises(ValueError, match="expected at least one step, got none: a generator gives its steps once"):
            consumer(none)


def test_no_steps_at_all():
    for consumer in (last, run, record):
        with pytest.raises(ValueError, match="expected at least one step, got none"):
            consumer([])
    assert (hbm_bytes([]), sram_peak([]), matmul_flops(())) == ((0, 0), 0, 0), "a list is known to be empty"


def test_record_knows_number_run_and_what_is_written():
    steps = record(counting(4))
    assert [step.number for step in steps] == [0, 1, 2, 3]
    assert all(step.run is steps[0].run and len(step.run) == 4 for step in steps)
    assert [s.sentence for s in steps[1].so_far] == ["step 0", "step 1"]
    written = steps[1].written("y")
    assert written[:2].tolist() == [0, 1] and written[2:].isnan().all()


def test_an_unrecorded_step_stands_for_itself():
    step = next(counting(4))
    assert list(step.so_far) == [step]
    assert step.written("y")[0] == 0 and step.written("y")[1:].isnan().all()


def test_counts():
    steps = record(counting(5))
    assert hbm_bytes(steps) == (20, 20) and hbm_bytes(steps).total == 40
    assert hbm_bytes(steps, "x") == (20, 0) and hbm_bytes(steps, "y") == (0, 20)
    assert sram_peak(steps) == 4
    assert matmul_flops(steps) == 5 * 2 * 2 * 3 * 4
    assert passes(steps, "x") == 1 and passes(steps, "y") == 0


@pytest.mark.slow
def test_steps_imports_no_picture_library():
    code = (
        "import sys, flashlearn.core.steps, flashlearn.algorithms.softmax; "
        "sys.exit(bool({'matplotlib', 'ipywidgets', 'triton'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("count", [lambda steps: hbm_bytes(steps, "x", "Z"), lambda steps: passes(steps, "Z")])
def test_counts_of_a_matrix_that_is_not_there_are_rejected(count):
    with pytest.raises(ValueError, match=r"expected names of matrices, one of \['x', 'y'\], got \['Z'\]"):
        count(counting(2))


@pytest.mark.parametrize("consumer", [last, run, record, *COUNTS.values()])
@pytest.mark.parametrize(
    ("what", "got"),
    [
        ([1], "int: 1$"),
        ([[1] * 99], r"list: \[(1, ){26}1$"),
        ([next(counting(1)), None], "NoneType: None$"),
        (None, "NoneType: None$"),
        (counting, "function: <function counting at"),
        (next(counting(1)), "Step: Step"),
    ],
)
def test_only_steps_are_steps(consumer, what, got):
    with pytest.raises(TypeError, match="expected steps, e.g. those of online_softmax_steps.x., got " + got):
        consumer(what)


def test_a_sentence_is_told_when_it_is_read():
    told = []
    steps = record(Step(sentence=lambda step: told.append(step.phase) or step.phase, phase=f"{n}") for n in range(3))
    assert not told and steps[1].sentence == "1" == steps[1].sentence and told == ["1"]


def test_fields_of_a_step_have_names():
    with pytest.raises(TypeError, match="positional"):
        Step("a sentence")
