"""`bytes_moved` and the map of the course: titles are those of the notebooks, numbers those of steps, formulas and kernels."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import flashlearn as fl
from flashlearn import cost
from flashlearn.course import LIMITS, MINUTES
from flashlearn.show import bytes_moved, course, course_map, moved

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
every_stage = pytest.mark.parametrize("stage", course.STAGES, ids=lambda stage: stage.number)
FP32 = {"dtype": torch.float32}
BLOCKS = {**FP32, **course.BLOCKS}
SIZES = (1, 1, course.TOKENS, course.TOKENS, course.WIDTH)
FORMULAS = {  # of what is counted from steps
    "naive_softmax": lambda: cost.softmax_cost("naive", 1, course.TOKENS),
    "safe_softmax": lambda: cost.softmax_cost("safe", 1, course.TOKENS),
    "online_softmax": lambda: cost.softmax_cost("online", 1, course.TOKENS),
    "blocked_softmax": lambda: cost.softmax_cost("blocked", 1, course.TOKENS, block_size=course.BLOCK),
    "standard_attention": lambda: cost.standard_cost(*SIZES, **FP32),
    "two_pass_attention": lambda: cost.two_pass_cost(*SIZES, **FP32),
    "one_pass_attention": lambda: cost.one_pass_cost(*SIZES, **FP32),
    "tiled_attention_v1": lambda: cost.v1_cost(*SIZES, **BLOCKS),
    "tiled_attention_v2": lambda: cost.v2_cost(*SIZES, **BLOCKS),
    "flash_attention": lambda: cost.v2_cost(*SIZES, **BLOCKS),
    "flash_attention, one query": lambda: cost.v2_cost(1, 1, 1, course.TOKENS, course.WIDTH, **BLOCKS),
    "flash_attention_paged": lambda: cost.v2_cost(1, 1, 1, course.TOKENS, course.WIDTH, **BLOCKS),
    "flash_attention, window (16, 0)": lambda: cost.v2_cost(*SIZES, **BLOCKS, window=(course.BLOCK, 0)),
    "attention_backward": lambda: cost.standard_backward_cost(*SIZES, **FP32),
    "tiled_attention_backward": lambda: cost.two_pass_backward_cost(*SIZES, **BLOCKS),
    "kernels.attention_backward": lambda: cost.two_pass_backward_cost(*SIZES, **BLOCKS),
}


def test_stages_are_the_notebooks_by_their_titles():
    titles = {}
    for path in NOTEBOOKS:
        first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
        titles[path.stem[:2]] = re.match(r"# \d\d · (.*)", first)[1]
    there = {stage.number: stage.title for stage in course.STAGES}
    assert {number: there.get(number) for number in titles} == titles
    assert list(there) == [f"{number:02}" for number in range(len(there))]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_says_how_many_minutes_it_takes_below_its_title(path):
    number, title = path.stem[:2], "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
    assert f"\n\n*Notebook {number} of {len(MINUTES) - 1:02} · about {MINUTES[number]} minutes*\n\n" in title
    assert MINUTES[number] <= LIMITS.minutes


@every_stage
def test_counts_are_those_of_the_formulas(stage):
    for algorithm in stage.algorithms:
        if algorithm.kind != "large" and algorithm.name in FORMULAS:
            found, formula = algorithm.count, FORMULAS[algorithm.name]()
            assert (found.read, found.written, found.extra) == (formula.read, formula.written, formula.extra)
        else:
            assert algorithm.kind == "large" or algorithm.name in ("tiled_matmul", "kernels.matmul", "kernels.softmax")


def test_what_a_planted_step_moves_is_counted():
    def twice(q, k, v, **blocks):
        yield from fl.tiled_attention_v2_steps(q, k, v, **blocks)
        yield from fl.tiled_attention_v2_steps(q, k, v, **blocks)

    once = course.FLASH_2.count
    both = course.count(twice(*course.qkv(), **course.BLOCKS), "K")
    assert (both.read, both.written, both.reads) == (2 * once.read, 2 * once.written, 2 * once.reads)
    assert (both.extra, both.on_chip, both.held) == (once.extra, once.on_chip, once.held)


def test_the_kernels_move_what_is_said_of_them():
    pytest.importorskip("triton", reason="no Triton on this machine")
    from flashlearn import kernels
    from flashlearn.kernels.recorder import kernel_steps

    if not kernels.INTERPRETED:
        pytest.skip("kernels are recorded in Triton's interpreter only")
    traffic = fl.hbm_bytes(kernel_steps(kernels.softmax, course.row()[None]))
    assert traffic == (course.ROW_KERNEL.count.read, course.ROW_KERNEL.count.written)


def test_a_program_holds_its_own_query_alone():
    assert course.ONE_PASS.count.on_chip < 64 * course.WIDTH < course.count(
        fl.one_pass_attention_steps(*course.qkv()), "K"
    ).on_chip  # fmt: skip
    assert course.FLASH_2.count.on_chip == max(
        sum(tile.nbytes for tile in step.on_chip)
        for step in fl.tiled_attention_v2_steps(*course.qkv(), **course.BLOCKS)
    )


class _Read(HTMLParser):
    """What a page says, and the attributes of its elements."""

    def __init__(self, page: str):
        super().__init__()
        self.words, self.found, self.open = "", [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


@every_stage
def test_the_table_says_the_same_as_its_text(stage):
    table = bytes_moved(stage.number)
    read = _Read(table._repr_html_())
    assert read.open == []
    for row in table.rows:
        for cell in row:
            assert cell in read.words and cell in repr(table)


@pytest.mark.parametrize("number", ["99", "3", 3, None, ""])
def test_a_number_of_no_notebook_is_rejected(number):
    with pytest.raises(
        ValueError, match=f'expected the number of a notebook, "00" to "{course.STAGES[-1].number}", got'
    ):
        bytes_moved(number)


@pytest.mark.slow  # a process of its own
def test_it_comes_before_the_choice_where_kernels_run():
    program = "import sys\nfrom flashlearn.show import bytes_moved\nrepr(bytes_moved('12'))\nassert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, cwd=ROOT)


# --- the map of all algorithms ---


def test_the_map_has_every_notebook_and_every_number_once():
    page = moved.page()
    read = _Read(page.replace("<!doctype html>", "").replace('<meta charset="utf-8">', ""))
    assert read.open == []
    for stage in course.STAGES[1:]:
        assert page.count(f'rowgroup" rowspan="{len(stage.algorithms)}">{stage.number}</th>') == 1
        for algorithm in stage.algorithms:
            assert all(cell in read.words for cell in (algorithm.name, *moved.cells(algorithm)))


def test_the_number_that_stays_the_same_does():
    x = torch.arange(1.0, 7.0)
    found = [moved.same_number(each) for stage in course.STAGES[:8] for each in stage.algorithms]
    assert {text for text in found if text} == {f"{(torch.softmax(x, 0) @ x).item():.4f}"} == {"5.4329"}
    assert found.count("") == 1, "the product of notebook 06 is no attention"
    assert moved.same_number(course.FLASH) == moved.same_number(course.BACKWARD) == ""


def test_bars_are_bytes():
    lengths = re.findall(r'<rect width="([\d.]+)"', moved._bar(course.TWO_PASS))
    count = course.TWO_PASS.count
    assert float(lengths[0]) == pytest.approx(moved.BAR * count.read / (count.read + count.written), abs=0.1)


def test_the_command_writes_the_page(tmp_path, capsys):
    assert course_map.main([str(tmp_path / "map.html")]) == 0
    assert (tmp_path / "map.html").read_text(encoding="utf-8") == moved.page()
    with pytest.raises(SystemExit):
        course_map.main([str(tmp_path / "no" / "map.html")])
    assert "expected a file that can be written" in capsys.readouterr().err
