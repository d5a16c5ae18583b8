"""A wheel, installed where nothing but its own dependencies is, does what the checkout does, from another folder."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
import tomllib
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import flashlearn

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow

USE = {
    "attention": """
        import torch, flashlearn as fl
        q, k, v = torch.randn(3, 1, 2, 20, 8)
        here = fl.tiled_attention_v2(q, k, v, block_q=4, block_k=8, causal=True)
        assert torch.allclose(here, torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), atol=1e-5)
    """,
    "attention by a kernel": """
        import torch, flashlearn as fl
        q, k, v = torch.randn(3, 1, 2, 20, 16, device="cuda" if torch.cuda.is_available() else "cpu")
        assert torch.allclose(fl.flash_attention(q, k, v), fl.standard_attention(q, k, v), atol=1e-5)
    """,
    "backward": """
        import torch, flashlearn as fl
        q, k, v, do = torch.randn(4, 1, 2, 20, 8)
        o, lse = fl.tiled_attention_v2(q, k, v, block_q=4, block_k=8, return_lse=True)
        by_tiles = fl.tiled_attention_backward(do, q, k, v, o, lse, block_q=4, block_k=8)
        for mine, theirs in zip(by_tiles, fl.attention_backward(do, q, k, v), strict=True):
            assert torch.allclose(mine, theirs, atol=1e-5)
    """,
    "backward by a kernel": """
        import torch, flashlearn as fl
        q, k, v, do = torch.randn(4, 1, 1, 20, 16, device="cuda" if torch.cuda.is_available() else "cpu")
        q.requires_grad_()
        fl.flash_attention(q, k, v).backward(do)
        assert torch.allclose(q.grad, fl.attention_backward(do, q.detach(), k, v)[0], atol=1e-5)
    """,
    "the text": """
        from flashlearn.models.gpt import TEXT
        assert "Of Man's first disobedience" in TEXT.read_text()
    """,
    "measurements": """
        from flashlearn.measurements import load, provenance, recordings
        assert len(recordings()) >= 5
        assert all(provenance(load(name)).startswith("recorded 20") for name in recordings())
    """,
    "exercises": """
        from flashlearn.exercises import check
        from flashlearn.course.naive_softmax.solutions import softmax_solution
        assert all(row.passed for row in check("01.softmax", softmax_solution).rows)
    """,
    "commands": """
        import contextlib, io, os, sys
        from flashlearn.__main__ import main
        os.environ["FLASHLEARN_HOME"] = "kept"
        for command in (["review", "--all"], ["inventory", "--form", "B"]):
            sys.stdin = io.StringIO("a\\nb\\n")
            with contextlib.redirect_stdout(io.StringIO()) as said:
                assert main(command) == 0
            assert "of 2 answered" in said.getvalue()
    """,
}

USE_WITH_COURSE = {
    "style": """
        from matplotlib import style
        from flashlearn.show.draw.style import STYLE
        with style.context(STYLE):
            pass
    """,
    "a picture": """
        import torch, flashlearn as fl
        from flashlearn.show import play
        from flashlearn.show.draw import draw_row
        shown = play(fl.online_softmax_steps(torch.tensor([3.0, 2.0, 5.0])), draw_row, alt="three numbers")
        assert shown.png.startswith(b"\\x89PNG")
    """,
    "browser files": """
        import flashlearn
        flashlearn.projector()
    """,
    "exercises by command": """
        from pathlib import Path
        from flashlearn.grading.__main__ import main
        Path("broken.ipynb").write_text("no notebook")
        assert main(["broken.ipynb"]) == 0
    """,
}


WHERE = f"""
    import sys, flashlearn
    assert flashlearn.__file__.startswith(sys.prefix), flashlearn.__file__
    assert not any(path.startswith({str(ROOT)!r}) and "site-packages" not in path for path in sys.path), sys.path
"""

WITHOUT_COURSE = """
    from pathlib import Path
    from flashlearn.grading.__main__ import main
    Path("broken.ipynb").write_text("no notebook")
    import flashlearn.show
    for needy in (lambda: flashlearn.show.play, lambda: flashlearn.projector(), lambda: main(["broken.ipynb"])):
        try:
            needy()
        except ModuleNotFoundError as error:
            assert "pip install -c constraints.txt -e '.[notebooks]'" in str(error), error
        else:
            raise AssertionError("expected an error that names the extra")
    import torch
    from flashlearn.show.draw import draw_row  # scenes need nothing else
    assert draw_row(next(flashlearn.online_softmax_steps(torch.tensor([[3.0, 2.0]])))).svg().startswith("<svg")
"""


def closure(requirements: list[Requirement]) -> set[str]:
    """The installed packages that these ask for, and those that they ask for, and so on."""
    wanted, done = list(requirements), set()
    while wanted:
        requirement = wanted.pop()
        for extra in ("", *requirement.extras):
            if (requirement.name, extra) not in done:
                done.add((requirement.name, extra))
                wanted += asked_for(distribution(requirement.name).requires or (), extra)
    return {name for name, _ in done}


def asked_for(requirements, extra: str) -> list[Requirement]:
    """Those of the requirements whose markers hold here, for an extra or, if it is "", for none."""
    read = map(Requirement, requirements)
    return [each for each in read if not each.marker or each.marker.evaluate({"extra": extra})]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from a copy of what it needs."""
    folder = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "flashlearn", folder / "flashlearn", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "dist"), str(folder))
    (built,) = (folder / "dist").glob("flashlearn_course-*.whl")
    return built


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments, "--no-index"]
    subprocess.run(command, check=True, env=clean(), capture_output=True, text=True, timeout=300, encoding="utf-8")


def clean() -> dict[str, str]:
    """The environment without what leads Python to this checkout, or decides how kernels run."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRITON"))}


def install(wheel: Path, folder: Path, extra: str) -> Path:
    """The Python of a new environment: the wheel, and links to the packages that it asks for, and to no other."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=300)
    python = folder / "bin" / "python"
    pip("--python", str(python), "install", "--no-deps", str(wheel))
    (site,) = folder.glob("lib/python*/site-packages")
    (metadata,) = site.glob("flashlearn_course-*.dist-info")
    for name in closure(asked_for(Distribution.at(metadata).requires, extra)):
        package = distribution(name)
        for top in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(package.locate_file(top))
    return python


def run(python: Path, snippets: dict[str, str], folder: Path) -> tuple[list[str], str]:
    """Run the snippets, one after the other, in one process; the names of those that passed, and what it said."""
    parts = [f"{textwrap.dedent(code)}\nprint('passed: {name}')" for name, code in snippets.items()]
    script = folder / "use.py"
    script.write_text("\n".join(parts), encoding="utf-8")
    env = clean() | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, "-I", script], cwd=folder, env=env, capture_output=True, text=True, timeout=300, encoding="utf-8"
    )
    passed = [line.removeprefix("passed: ") for line in done.stdout.splitlines() if line.startswith("passed: ")]
    return passed, done.stderr


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare")
    return run(install(wheel, folder / "env", ""), USE | {"without course": WITHOUT_COURSE, "where": WHERE}, folder)


@pytest.fixture(scope="module")
def course(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("course")
    return run(install(wheel, folder / "env", "notebooks"), USE_WITH_COURSE | {"where": WHERE}, folder)


def test_the_wheel_has_every_file_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("flashlearn/")}
    files = (path for path in (ROOT / "flashlearn").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert packed == {path.relative_to(ROOT).as_posix() for path in files}


def test_the_wheel_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    assert f"\nVersion: {flashlearn.__version__}\n" in metadata
    assert "\nDescription-Content-Type: text/markdown\n" in metadata
    assert metadata.count("\nProject-URL: ") >= 3


def test_links_of_the_package_page_are_absolute(wheel):
    """The page of a package shows its README without the files beside it."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode().partition("\n\n")[2]
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    links = re.findall(r"\]\(([^)\s]+)\)", prose)
    assert len(links) >= 15 and all(link.startswith(("https://", "#")) for link in links)
    repository = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    ours = [link for link in links if link.startswith(f"{repository}/blob/main/")]
    assert len(ours) >= 12
    assert all((ROOT / link.removeprefix(f"{repository}/blob/main/").partition("#")[0]).exists() for link in ours)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", prose) + re.findall(r'<img src="([^"]+)"', prose)
    assert len(pictures) >= 3 and all(link.startswith("https://raw.githubusercontent.com/") for link in pictures)


def test_the_source_distribution_has_all_that_the_repository_has(tmp_path):
    copy = tmp_path / "flashlearn"
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True, encoding="utf-8"
    )
    names = set(filter(None, files.stdout.split("\0")))
    for name in names:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=copy, check=True, env=clean(), capture_output=True, timeout=300)
    (built,) = (tmp_path / "dist").glob("flashlearn_course-*.tar.gz")
    with tarfile.open(built) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert packed - {"PKG-INFO"} == names


@pytest.mark.parametrize("name", [*USE, "without course", "where"])
def test_with_its_dependencies_alone(bare, name):
    passed, said = bare
    assert name in passed, said


@pytest.mark.parametrize("name", [*USE_WITH_COURSE, "where"])
def test_with_the_extra_notebooks(course, name):
    passed, said = course
    assert name in passed, said
