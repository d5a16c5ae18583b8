"""The guide for instructors: its exercises and files are there, and the numbers of its teaching part computed anew."""

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import flashlearn as fl
from flashlearn.__main__ import COMMANDS
from flashlearn.__main__ import main as flashlearn_command
from flashlearn.cost import standard_backward_cost, standard_cost, two_pass_backward_cost, v2_cost
from flashlearn.course import MINUTES
from flashlearn.course.triton_forward.mutation_lab import MUTANTS
from flashlearn.exercises import EXERCISES
from flashlearn.exercises.assessment import grade
from flashlearn.exercises.report import MOST_WITHOUT_CORE, score
from flashlearn.grading.__main__ import NO_SANDBOX, Grade, grade_notebook
from flashlearn.grading.__main__ import main as grading_command
from flashlearn.grading.sandbox import NOTEBOOK
from flashlearn.grading.stripped import KEPT, OTHERS, PROVIDED
from flashlearn.measurements.records import load
from flashlearn.show.explorers.tiling import PAPER, tiling_explorer
from flashlearn.show.player import AHEAD
from tools.lecture import runs

ROOT = Path(__file__).parent.parent
GUIDE, GRADING = ((ROOT / "notebooks" / name).read_text(encoding="utf-8") for name in ("INSTRUCTORS.md", "GRADING.md"))
BOTH = GUIDE + GRADING
SESSIONS = re.split(r"^### Session ", GUIDE[: GUIDE.index("\n## One lecture")], flags=re.MULTILINE)[1:]


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def test_exercises_are_there():
    named = set(re.findall(r"`(\d\d\.[a-z_]+)`", BOTH)) | set(re.findall(r"^\| (\d\d\.\w+) \|", GRADING, flags=re.M))
    assert named - {"12.mutants"} <= set(EXERCISES), named - set(EXERCISES)
    assert len(named) > 20


def test_files_are_there():
    for name in re.findall(r"`((?:flashlearn|tools)/[a-z_/.]+)`", BOTH):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("guide", [GUIDE, GRADING], ids=["guide", "grading"])
def test_headings_do_not_skip_a_level(guide):
    levels = [len(mark) for mark in re.findall(r"^(#+) ", guide, flags=re.MULTILINE)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))


# The numbers: each function computes what the guide says, in its words.


def frames_that_are_fetched() -> str:
    return f"up to {AHEAD} steps ahead and behind"


def largest_float16() -> str:
    e11 = torch.exp(torch.tensor(11.0, dtype=torch.float16))
    assert e11.isfinite() and not torch.tensor(65536.0).to(torch.float16).isfinite()
    return f'"float16 overflows at 65536": the largest is {torch.finfo(torch.float16).max:.0f}, and e^11 still fits'


def low_start() -> str:
    low = torch.tensor([-2000.0, -2001.0])
    weights = torch.exp(low - low.max().clamp(min=-1000))
    assert weights.sum() == 0
    return '"start it at −1000": logits of −2000 give 0/0'


def third_step() -> str:
    step = fl.record(fl.online_softmax_steps(torch.tensor([3.0, 2.0, 5.0, 1.0])))[2]
    old, term, l = (step.values[name].item() for name in ("l_old", "term", "l_i"))
    return f"03, the run over 3, 2, 5, 1; stop at step 3, let them compute l | {old + term:.4f}, without rescaling; it is {l:.4f}"


def paper_rule() -> str:
    explorer = tiling_explorer()
    explorer.blocks = PAPER
    rows, cols, D = explorer.block_q, explorer.block_k, explorer.D
    assert "do not fit" in explorer.transcript[0] and rows * D == cols * D >= 59 // 4
    need = fl.sram_elements(rows, cols, D)
    said = f'"{rows} × {cols} blocks fit, a quarter each": they need {need} of {explorer.sram} elements'
    (deck_rows, deck_cols), deck_need = runs.PAPER, runs.NEED[runs.PAPER]
    assert runs.M == explorer.sram and deck_need > runs.M
    deck = f"where d = {runs.D}, the rule takes {deck_rows} × {deck_cols} blocks, which need {deck_need}"
    return f"{said} in the explorer, where d = {D}; in the deck and in the text of 07, {deck}"


def explorer_settings() -> str:
    explorer = tiling_explorer()
    assert (explorer.block_q, explorer.block_k, explorer.mask) == (3, 3, "causal")
    for block_q, block_k, mask in ((1, 1, "causal"), (1, 1, "full")):
        explorer.set(block_q=block_q, block_k=block_k, mask=mask)
        assert "they fit" in explorer.report
    return f'then B_r = 1, B_c = 1, then the full mask, then "the paper\'s rule" with {explorer.sram} elements'


def bytes_of_both() -> str:
    explorer, more = tiling_explorer(), []
    for block_q, block_k, mask in ((3, 3, "causal"), (1, 3, "causal"), (1, 1, "causal"), (1, 1, "full")):
        explorer.set(block_q=block_q, block_k=block_k, mask=mask)
        v1, v2 = (fl.hbm_bytes(run).total for run in explorer.runs.values())
        more.append(v1 > v2)
    assert more == [True, False, True, True]
    return '"FlashAttention-1 and -2 move the same bytes": -1 moves more, except on the way, at B_r = 1, B_c = 3'


def projector_size() -> str:
    script = (ROOT / "flashlearn" / "show" / "browser" / "projector.js").read_text(encoding="utf-8")
    (size,) = re.findall(r"innerWidth / (\d+), innerHeight / (\d+)", script)
    return f"laid out on {size[0]} × {size[1]}"


CLAIMS = (
    frames_that_are_fetched,
    largest_float16,
    low_start,
    third_step,
    paper_rule,
    explorer_settings,
    bytes_of_both,
    projector_size,
)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_the_guide_says_what_comes_out(claim):
    assert claim() in GUIDE


def test_products_of_the_lecture():
    """Forward as many as in standard attention, backward more."""
    sizes = (1, 1, 512, 512, 64)
    assert 'it computes less": as many products forward, more backward' in GUIDE
    assert v2_cost(*sizes).flops == standard_cost(*sizes).flops
    assert two_pass_backward_cost(*sizes).flops > standard_backward_cost(*sizes).flops


PARTS = {
    "before the course": "00",
    "I, softmax": "01 02 03",
    "II, attention": "04 05",
    "III, tiles and cost": "06 07 08",
    "IV, gradients": "09 10",
    "V, kernels": "11 12 13 14 15 16",
    "VI, in the field": "17 18 19",
}


def test_minutes_are_those_of_the_course():
    assert " ".join(PARTS.values()).split() == list(MINUTES)
    rows = [
        f"| {part} | {', '.join(f'{number}: {MINUTES[number]}' for number in numbers.split())} "
        f"| {sum(MINUTES[number] for number in numbers.split())} |"
        for part, numbers in PARTS.items()
    ]
    table = "\n".join(rows)
    assert table in GUIDE, f"the table of minutes in INSTRUCTORS.md should be\n{table}"


def bullet(session: str, name: str) -> str:
    (text,) = re.findall(rf"^- \*\*{name}:\*\* ((?:.|\n  )*)", session, flags=re.MULTILINE)
    return text


def test_eight_sessions_take_every_notebook_once_and_exercises_that_were_read():
    assert [session[0] for session in SESSIONS] == list("12345678") and "## Eight sessions" in GUIDE
    taken = []
    for session in SESSIONS:
        taken += re.findall(r"\b\d\d\b", bullet(session, "Notebooks"))
        exercises = re.findall(r"`(\d\d)\.\w+`", session)
        assert exercises and set(exercises) <= {*taken, "00"}
        assert all(bullet(session, name) for name in ("Project", "Students do", "Expect to hear"))
    assert taken == sorted(MINUTES)[1:], "and 00 is read before the first session"
    assert all(re.search(r"read (\d\d)", bullet(session, "Homework"))[1] in MINUTES for session in SESSIONS[:-1])


def test_lines_that_the_grading_command_would_print():
    lines = re.findall(
        r"^ {4}submissions/\S+ +(\d\d\.[a-z_]+) +(\d+) of +(\d+) +(\d+) %(.*)$", GRADING, flags=re.MULTILINE
    )
    assert len(lines) >= 4
    for name, passed, of, percent, said in lines:
        exercise, said = EXERCISES[name], said.strip()
        assert int(of) == len(exercise.cases), name
        if "This is what you get if" in said:
            (mistake,) = [m for m in exercise.mistakes if m.what in said]
            report = grade(exercise, mistake.function)
            assert int(passed) == sum(row.passed for row in report.rows) and said in str(report)
            assert int(percent) == int(100 * score(int(passed), int(of), report.core_passed))
        else:
            assert int(percent) == (0 if said else 100)
            assert int(passed) == (0 if said else int(of))


def test_numbers_of_the_grading_part():
    (seconds, times), (gigabytes,) = (
        re.search(rf"^\| `--{name} \d+` \| .*{words}", GRADING, flags=re.MULTILINE).groups()
        for name, words in (
            ("timeout", r"\(default: (\d+)\); a notebook has (\d+) times"),
            ("memory", r"\(default: (\d+)\)"),
        )
    )
    assert int(times) == NOTEBOOK
    assert int(gigabytes) == inspect.signature(grade_notebook).parameters["memory"].default
    assert int(seconds) == inspect.signature(grade_notebook).parameters["timeout"].default
    (least, most) = re.search(r"as long as its notebooks do, (\d+) to (\d+) s each", GRADING).groups()
    recorded = [notebook["seconds"] for notebook in load("laptop")["notebooks"]]
    assert int(least) <= min(recorded) and max(recorded) <= int(most) < 2 * max(recorded)
    assert f"at most {MOST_WITHOUT_CORE:.0%}".replace("%", " %") + " if a core test failed" in GRADING
    assert f"notebook, {', '.join(Grade._fields[1:])}. A cell" in in_one_line(GRADING)
    counts = [len(exercise.cases) for exercise in EXERCISES.values()]
    assert f"a check that runs {min(counts)} to {max(counts)} named tests" in GRADING
    assert "shows the first of three hints" in GRADING
    assert {len(exercise.hints) for exercise in EXERCISES.values()} == {3}


def test_what_an_examination_keeps_out():
    (open_there,) = re.findall(r"no bodies of these functions, except (.*?) \|", GRADING)
    assert open_there == "`causal_mask`, `placement` and, in `08.block`, `v2_cost`"
    assert "flashlearn.core.mask.causal_mask" in OTHERS and KEPT["cost/roofline.py"] == ("placement",)
    assert PROVIDED == {"08.block": ("flashlearn.cost.formulas.v2_cost",)}
    assert "Linux 5.13 or later" in NO_SANDBOX and "(Linux 5.13 or later; TCP from Linux 6.7)" in GRADING


def test_what_the_command_says_of_the_lab_and_of_missing_files(tmp_path):
    lab = json.loads((ROOT / "notebooks" / "12_triton_forward.ipynb").read_text(encoding="utf-8"))
    assert f"1 of {len(MUTANTS)} mutants killed" in json.dumps(lab)
    assert f"has 1 of {len(MUTANTS)} in a notebook that nobody has touched" in in_one_line(GRADING)
    with pytest.raises(SystemExit) as ended:
        grading_command([str(tmp_path / "03_missing.ipynb")])
    assert f"ends the command before anything runs, with exit code {ended.value.code}" in in_one_line(GRADING)


def test_explorer_has_what_the_closing_task_asks_for():
    """Both orders of the loops at once, and sliders for the sizes of blocks."""
    assert "07's explorer, which shows both orders of the loops" in GUIDE.replace("\n", " ")
    explorer = tiling_explorer()
    outside = [next(step.reads for step in run if step.reads)[0].name for run in explorer.runs.values()]
    assert outside == ["K", "Q"]


# Commands and snippets: what the guide tells to type.

SHOWN = """
import torch
import flashlearn as fl
from flashlearn.show import play
from flashlearn.show.draw import draw_row
play(fl.online_softmax_steps(torch.tensor([3.0, 2.0])), draw_row, alt="two bars", figsize=(2, 1))
"""


@pytest.mark.slow
def test_what_runs_in_projector_mode_is_saved_as_it_looks():
    assert "with the large type of whatever runs while it is on" in in_one_line(GUIDE)
    cells = [new_code_cell(source) for source in (SHOWN, "import flashlearn\nflashlearn.projector()", SHOWN)]
    notebook = new_notebook(cells=cells)
    NotebookClient(notebook, kernel_name="python3").execute(env={**os.environ, "FLASHLEARN_REDUCED_MOTION": "1"})
    before, after = (cell.outputs[0].data["image/png"] for cell in cells[::2])
    assert before != after


def blocks() -> list[str]:
    """The indented blocks of the guide, as one would type them."""
    found = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}|\n {4}))+", BOTH, flags=re.MULTILINE)
    return [textwrap.dedent(block).strip() for block in found]


def test_commands_name_what_is_there():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = [block for block in blocks() if re.match(r"(python|make|git|docker) ", block)]
    text = "\n".join(commands)
    targets = set(re.findall(r"make ([a-z]+)", text + "".join(re.findall(r"`make [a-z]+`", BOTH))))
    assert len(commands) >= 7 and {"lecture", "lab", "book"} <= targets
    assert all(f"\n{target}: " in makefile for target in targets)
    modules = set(re.findall(r"-m ([a-z._]+)", text))
    assert modules == {"flashlearn", "flashlearn.show.course_map"}
    assert importlib.util.find_spec("flashlearn.show.course_map")


def command_lines() -> dict[str, set[str]]:
    """The commands of `python -m flashlearn` that the guides call -> the options that they give them."""
    found: dict[str, set[str]] = {}
    for line in re.findall(r"-m flashlearn (.*)", "\n".join(blocks())):
        found.setdefault(line.split()[0], set()).update(re.findall(r"--[a-z-]+", line))
    found["grade"] |= set(re.findall(r"^\| `(--[a-z-]+)", GRADING, flags=re.MULTILINE))
    found["export"] |= {"--notebook", "--form", "--points"}
    return found


@pytest.mark.parametrize("name, options", command_lines().items())
def test_options_of_the_commands_exist(name, options, capsys):
    with pytest.raises(SystemExit):
        flashlearn_command([name, "--help"])
    told = capsys.readouterr().out
    assert name in COMMANDS and all(option in told for option in options), options


def test_the_guides_show_every_command():
    assert set(command_lines()) == set(COMMANDS)
    assert {"--strict", "--csv", "--own-work", "--timeout", "--memory"} <= command_lines()["grade"]


@pytest.mark.slow
def test_the_exercise_of_ones_own_works_as_it_stands(tmp_path):
    (source,) = [block for block in blocks() if "EXERCISES[" in block]
    notebook = new_notebook(
        cells=[new_code_cell("from flashlearn.exercises import check\ncheck('90.double', lambda x: x + x)")]
    )
    nbformat.write(notebook, tmp_path / "90_examination.ipynb")
    (command,) = [block for block in blocks() if block.startswith("python -P - ")]
    options = [word for word in command.split("<")[0].split()[3:] if word.startswith("-")]
    graded = [sys.executable, "-P", "-", *options, str(tmp_path / "90_examination.ipynb")]
    result = subprocess.run(graded, input=source, capture_output=True, text=True, encoding="utf-8")
    assert result.returncode == 0 and result.stdout.splitlines()[1].split(",")[1:4] == ["90.double", "1", "1"], result
    without = [word for word in graded if word != "--strict"]
    result = subprocess.run(without, input=source, capture_output=True, text=True, encoding="utf-8")
    assert result.returncode == 2 and "expected --strict with 90.double" in result.stderr


def test_the_image_for_grading_is_what_the_guide_says():
    """No test builds it: that needs a network and Docker. Its one command was run by hand."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    (base,) = re.findall(r"^FROM python:(3\.\d+)-slim$", "\n".join(lines), flags=re.MULTILINE)
    assert base in ("3.11", "3.12", "3.13", "3.14")
    (install,) = [line for line in lines if line.startswith("RUN ")]
    (extra,) = re.findall(r"'\.\[([a-z,]+)\]'", install)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert extra in project["optional-dependencies"] and f"the extra `{extra}`" in GRADING
    assert "-c constraints.txt" in install
    (built,), (run,) = re.findall(r"docker build --tag (\w+) -\n", GRADING), re.findall(r':/in:ro" (\w+) \\\n', GRADING)
    assert built == run
