"""The working copy of the course: without outputs, never overwritten, and brought up to date where nothing was changed."""

import json
import re
import subprocess
from pathlib import Path

import nbformat
import pytest

from tools import my_course

ROOT = Path(__file__).parents[1]
OUTPUT = {"output_type": "stream", "name": "stdout", "text": ["ℓ\n"]}


def notebook(*sources, outputs=()):
    cells = [
        {"cell_type": "code", "id": f"cell-{at:02}", "metadata": {}, "source": [text], "outputs": [*outputs]}
        | {"execution_count": 1}
        for at, text in enumerate(sources)
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


@pytest.fixture
def course(tmp_path):
    """A folder of notebooks, one of them with outputs, and the place of the copy; both with spaces and umlauts."""
    source, mine = tmp_path / "notes für alle", tmp_path / "mein Kurs"
    source.mkdir()
    (source / "00_a.ipynb").write_text(notebook("x = 'ℓ'", outputs=[OUTPUT]), encoding="utf-8")
    (source / "01_b.ipynb").write_text(notebook("y = 2"), encoding="utf-8")
    for name in ("14_appendix.md", *my_course.NOT_FOR_STUDENTS):
        (source / name).write_text("# Words\n", encoding="utf-8")
    return source, mine


def refreshed(course):
    return list(my_course.hand_out(*course, refresh=True))


def handed_out(course):
    return list(my_course.hand_out(*course, refresh=False))


def test_what_is_missing_is_handed_out_without_outputs(course):
    assert [line.split(":")[0] for line in handed_out(course)] == ["00_a.ipynb", "01_b.ipynb", "14_appendix.md"]
    copy = nbformat.read(course[1] / "00_a.ipynb", as_version=4)
    nbformat.validate(copy)
    assert (copy.cells[0].source, copy.cells[0].outputs, copy.cells[0].execution_count) == ("x = 'ℓ'", [], None)
    assert handed_out(course) == refreshed(course) == []


def test_what_was_changed_is_kept_and_what_was_only_run_is_not(course):
    source, mine = course
    handed_out(course)
    (mine / "00_a.ipynb").write_text(notebook("my answer"), encoding="utf-8")
    (mine / "01_b.ipynb").write_text(notebook("y = 2", outputs=[OUTPUT]), encoding="utf-8")
    assert refreshed(course) == [], "there is nothing new"
    for name in ("00_a.ipynb", "01_b.ipynb"):
        (source / name).write_text(notebook("a new text"), encoding="utf-8")
    assert handed_out(course) == [] and "my answer" in (mine / "00_a.ipynb").read_text(encoding="utf-8")
    first, second = refreshed(course)
    assert first.startswith("00_a.ipynb: kept") and second == "01_b.ipynb: new version"
    assert "my answer" in (mine / "00_a.ipynb").read_text(encoding="utf-8")
    assert "a new text" in (mine / "01_b.ipynb").read_text(encoding="utf-8")
    (mine / "00_a.ipynb").rename(mine / "my 00.ipynb")
    assert handed_out(course) == ["00_a.ipynb: handed out"] and refreshed(course) == []


@pytest.mark.parametrize("broken", ["", "{", "{}", "[1]"])
def test_a_broken_copy_is_kept(course, broken):
    handed_out(course)
    (course[1] / "00_a.ipynb").write_text(broken, encoding="utf-8")
    (course[0] / "00_a.ipynb").write_text(notebook("a new text"), encoding="utf-8")
    assert "kept" in refreshed(course)[0] and (course[1] / "00_a.ipynb").read_text(encoding="utf-8") == broken


def test_a_copy_that_is_no_text_is_kept(course):
    handed_out(course)
    (course[1] / "00_a.ipynb").write_bytes(b"\xff\xfe")
    (course[0] / "00_a.ipynb").write_text(notebook("a new text"), encoding="utf-8")
    assert "kept" in refreshed(course)[0] and (course[1] / "00_a.ipynb").read_bytes() == b"\xff\xfe"


@pytest.mark.parametrize("broken", ["", "{", "[1]", "1"])
def test_a_broken_note_is_named(course, broken):
    handed_out(course)
    (course[1] / my_course.NOTE).write_text(broken, encoding="utf-8")
    with pytest.raises(SystemExit, match=f"expected an object of JSON in .*{my_course.NOTE}, got.*Delete it"):
        refreshed(course)


def test_without_the_note_nothing_is_overwritten(course):
    handed_out(course)
    (course[1] / my_course.NOTE).unlink()
    assert refreshed(course) == [], "all are the newest"
    (course[0] / "00_a.ipynb").write_text(notebook("a new text"), encoding="utf-8")
    assert "kept" in refreshed(course)[0]


def test_a_folder_that_cannot_be_written_is_said(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr(my_course, "MINE", tmp_path / "file")
    with pytest.raises(SystemExit):
        my_course.main([])
    assert "expected a folder" in capsys.readouterr().err


def test_the_copy_lies_beside_the_notebooks_and_is_none_of_gits():
    """So that what a cell names from there, as ../benchmarks, is found; and a pull never meets it."""
    assert my_course.MINE.parent == my_course.NOTEBOOKS.parent == ROOT
    ignored = subprocess.run(["git", "check-ignore", "-q", "my_course/00_start_here.ipynb"], cwd=ROOT)
    assert ignored.returncode == 0


def test_every_link_leads_to_something_in_the_copy(tmp_path):
    list(my_course.hand_out(ROOT / "notebooks", tmp_path / "mine", refresh=False))
    links = 0
    for path in (tmp_path / "mine").glob("*.*"):
        for target in re.findall(r"\]\((?!https?:|#)([\w./-]+\.(?:ipynb|md))\b", path.read_text(encoding="utf-8")):
            links += 1
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
    assert links > 20


def test_where_nothing_is_to_do_one_line_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(my_course, "MINE", tmp_path / "my_course")
    assert my_course.main([]) == 0 and "handed out" in capsys.readouterr().out
    assert my_course.main([]) == 0 and capsys.readouterr().out.startswith("my_course/ has every notebook: --refresh")
    assert my_course.main(["--refresh"]) == 0 and capsys.readouterr().out == "my_course/ is up to date\n"
