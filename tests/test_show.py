"""What `flashlearn.show` has, and what it needs; an explorer whose picture fails."""

import importlib.util
import subprocess
import sys
import textwrap
import weakref

import pytest

import flashlearn as fl
from flashlearn.show import Player, picture, reduced_motion
from flashlearn.show.draw import draw_row
from flashlearn.show.explorers import gpu, program_explorer


def test_a_picture_says_what_it_needs():
    with pytest.raises(TypeError, match=r"expected a function plot\(ax\), got str"):
        picture("plot", alt="a")
    with pytest.raises(TypeError, match="expected a step of a softmax, got Axes"):
        picture(draw_row, alt="a")
    for alt in ("", "  ", None):
        with pytest.raises(ValueError, match="expected alt text that says what the picture shows"):
            picture(lambda ax: None, alt=alt)
    with pytest.raises(ValueError, match="expected figsize"):
        picture(lambda ax: None, alt="a", figsize=(0, 0))
    with pytest.raises(TypeError, match="expected on to be True or False, got 'no'"):
        reduced_motion("no")


def fails(ax, step):
    raise ZeroDivisionError("no such picture")


def test_an_explorer_that_fails_leaves_the_projector_alone(monkeypatch):
    """It fails while its first step is painted, after its settings were found good."""
    monkeypatch.setattr(Player, "all", weakref.WeakSet())
    monkeypatch.setattr(gpu, "draw_programs", fails)
    with pytest.raises(ZeroDivisionError) as kept:  # keeps the half-made widget alive, as a notebook's traceback does
        program_explorer()
    assert set(Player.all) == set() and kept.value.__traceback__
    fl.projector()
    fl.projector(False)


def test_a_change_that_fails_leaves_the_picture(monkeypatch):
    explorer = program_explorer()
    runs, before = explorer.runs, explorer._made(0)
    monkeypatch.setattr(gpu, "draw_programs", fails)
    with pytest.raises(ZeroDivisionError):
        explorer.N = 3
    monkeypatch.undo()
    assert explorer.runs is runs and explorer._made(0) == before


def test_show_gives_what_notebooks_need():
    """Every name is there, by import and in dir(); none hides a module, and a wrong one is an AttributeError."""
    from flashlearn import show

    for name in show.__all__:
        assert getattr(show, name).__module__ == f"flashlearn.show.{show.HOMES[name]}" and name in dir(show)
        assert importlib.util.find_spec(f"flashlearn.show.{name}") is None, f"{name} hides a module"
    assert show.projector is fl.projector
    with pytest.raises(AttributeError, match="module 'flashlearn.show' has no attribute 'animation_'"):
        show.animation_  # noqa: B018


@pytest.mark.slow  # a process of its own
def test_names_of_show_import_what_they_need_only():
    program = """
        import sys
        import flashlearn
        assert "matplotlib" not in sys.modules and "flashlearn.show" not in sys.modules
        import flashlearn.show
        assert "matplotlib" not in sys.modules and "ipywidgets" not in sys.modules
        from flashlearn.show import picture
        assert "matplotlib" in sys.modules
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
