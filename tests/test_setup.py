"""The files that install flashlearn agree with each other, `make` keeps its word, and Triton is optional."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import flashlearn
from flashlearn.measurements import load, recordings

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
CORE = [Requirement(r) for r in PROJECT["dependencies"]]
OTHERS = [Requirement(r) for name, extra in EXTRAS.items() if name != "dev" for r in extra]
TARGETS = set(
    "book clean figures format help lab lecture lint notebooks pins refresh setup test test-all test-slow".split()
)


def pins() -> list[Requirement]:
    lines = (line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines())
    return [Requirement(line) for line in lines if line]


def make(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    # These tests may themselves run under make, whose own variables must not reach the inner one.
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE") and key != "MFLAGS"}
    return subprocess.run(
        ["make", *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=60, encoding="utf-8"
    )


def needs_python() -> tuple[int, int]:
    """(first, last) minor version of Python 3 that pyproject.toml admits."""
    first, end = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups()
    return int(first), int(end) - 1


# Versions


def test_every_constraint_is_one_exact_public_version():
    for pin in pins():
        assert re.fullmatch(r"==[0-9][0-9a-z.]*", str(pin.specifier)), f"{pin}: not a plain name==version"


def test_no_package_is_pinned_twice():
    names = [canonicalize_name(pin.name) for pin in pins()]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("requirement", CORE + OTHERS, ids=lambda requirement: requirement.name)
def test_direct_dependency_is_pinned_once_in_constraints(requirement):
    (pin,) = (pin for pin in pins() if canonicalize_name(pin.name) == canonicalize_name(requirement.name))
    (version,) = (specifier.version for specifier in pin.specifier)
    assert requirement.specifier.contains(version)


def test_lower_bounds_admit_every_version_that_was_measured():
    bounds = {requirement.name: requirement.specifier for requirement in CORE if requirement.specifier}
    assert set(bounds) == {"torch", "triton"}
    recorded = [load(name)["provenance"] for name in recordings()]
    assert len(recorded) >= 4
    for name, bound in bounds.items():
        assert [specifier.operator for specifier in bound] == [">="]
        assert all(bound.contains(Version(run[name]).public) for run in recorded)
    assert not any(requirement.specifier for requirement in OTHERS if requirement.name not in bounds)


def test_the_extra_measured_is_the_pair_of_the_constraints():
    """Without constraints.txt a fresh installation takes the newest Triton, for which the Hopper kernels are not admitted."""
    from flashlearn.fast.dispatch import GLUON_VERSIONS

    pinned = {pin.name: str(pin.specifier) for pin in pins()}
    measured = [Requirement(each) for each in EXTRAS["measured"]]
    assert {each.name: str(each.specifier) for each in measured} == {name: pinned[name] for name in ("torch", "triton")}
    assert any(str(each.specifier).startswith(f"=={version}.") for each in measured for version in GLUON_VERSIONS)
    attention = [load(name)["provenance"] for name in recordings() if name.startswith("gpu_attention")]
    assert {run["triton"] for run in attention} == {pinned["triton"].removeprefix("==")}, "Triton as it was measured"


def test_the_extra_dev_is_all_the_others():
    (dev,) = map(Requirement, EXTRAS["dev"])
    assert dev.name == PROJECT["name"] == "flashlearn-course"
    assert dev.extras == set(EXTRAS) - {"dev", "measured"}, "constraints.txt has that pair"


@pytest.mark.parametrize("name, version", [("torch", "2.13.0"), ("triton", "3.7.1")])
def test_torch_and_triton_are_a_pair_that_goes_together(name, version):
    assert [str(pin.specifier) for pin in pins() if pin.name == name] == [f"=={version}"]


def test_no_text_proposes_to_install_a_package_of_somebody_else():
    """What stands behind `pip install` is a file of this folder, a repository's address, or a package that is pinned here."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, encoding="utf-8").stdout
    known = {canonicalize_name(pin.name) for pin in pins()} | {"pip", "text2qti"}  # the last reads an export of ours
    wrong, seen = [], 0
    for name in files.split("\0"):
        if name.endswith(
            (".md", ".py", ".yml", ".ipynb", ".toml", ".txt", ".json", ".cff", "Makefile")
        ) and not name.startswith("tests/"):
            for command in re.findall(r"pip install ([^`\n]+)", (ROOT / name).read_text(encoding="utf-8")):
                seen += 1
                wrong += [f"{name}: pip install {command}"] if "{" not in command and strangers(command, known) else []
    assert seen >= 10 and not wrong, "\n".join(wrong)


def strangers(command: str, known: set[str]) -> list[str]:
    """The packages that a command would fetch, and that are neither known nor of this folder."""
    text = command.split("  #")[0].split(" && ")[0].replace("\\", "").replace('"', "'")
    if " @ git+" in text:
        return []
    words = iter(re.findall(r"'[^']*'|\S+", text))
    found = []
    for word in words:
        word = word.strip("'.,;:()")
        if word in ("-c", "-r", "--target", "--extra-index-url", "--index-url"):
            next(words, None)
        elif word.startswith("-") or word == "" or word.startswith("["):  # an option, this folder, or its extras
            continue
        elif (name := re.match(r"[A-Za-z0-9._-]+", word)) and canonicalize_name(name[0]) in known:
            continue
        else:
            found.append(word)
            break  # the rest may be prose
    return found


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("flashlearn", ["flashlearn"]),
        ("'flashlearn[course]'", ["flashlearn[course]"]),
        ("flashlearn-course", ["flashlearn-course"]),
        ("-c constraints.txt -e '.[notebooks]'", []),
        ("-c constraints.txt .    # all", []),
        ("torch==2.13.0 --index-url https://example.org", []),
        ('-q "flashlearn-course[notebooks] @ git+https://github.com/some/where"', []),
    ],
)
def test_a_command_that_fetches_a_stranger_is_seen(command, found):
    assert strangers(command, {"torch"}) == found


def test_the_citation_names_what_pyproject_names():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"] and citation["repository-code"] == PROJECT["urls"]["Repository"]
    papers = {reference["url"] for reference in citation["references"]}
    assert papers >= {url for name, url in PROJECT["urls"].items() if "paper" in name}


def test_triton_is_asked_for_only_where_it_has_wheels():
    (triton,) = [requirement for requirement in CORE if requirement.name == "triton"]
    wanted = {("linux", "x86_64"), ("linux", "aarch64")}
    others = {("linux", "armv7l"), ("darwin", "arm64"), ("darwin", "x86_64"), ("win32", "AMD64")}
    for system, machine in wanted | others:
        asked_for = triton.marker.evaluate({"sys_platform": system, "platform_machine": machine})
        assert asked_for == ((system, machine) in wanted), (system, machine)


# The files that build an environment


def environment_items() -> list[str]:
    """The list items of environment.yml, nested ones too, in order."""
    return re.findall(r"^ *- (.+)$", (ROOT / "environment.yml").read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_environment_yml_pins_python_alone_and_installs_from_constraints():
    channel, python, *rest = environment_items()
    assert channel == "conda-forge"
    assert re.fullmatch(r"python=3\.\d+", python)
    index = "--extra-index-url https://download.pytorch.org/whl/cpu"
    assert rest == ["pip", "pip:", index, "-c constraints.txt", "-e .[notebooks,transformers]"]
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    assert index.endswith(container["containerEnv"]["PIP_EXTRA_INDEX_URL"]), "the same build of PyTorch"


def test_python_versions_agree():
    first, last = needs_python()
    (conda,) = [item.removeprefix("python=") for item in environment_items() if item.startswith("python=")]
    assert first <= int(conda.removeprefix("3.")) <= last
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    assert container["image"].endswith(f"python:{conda}")
    jobs = workflow()["jobs"]
    assert jobs["linux"]["strategy"]["matrix"]["python"] == [f"3.{minor}" for minor in range(first, last + 1)]
    assert jobs["linux"]["container"] == "python:${{ matrix.python }}-bookworm"
    assert jobs["newest"]["container"].startswith(f"python:{conda}-")
    assert f"(3, {first}) <= v <= (3, {last})" in (ROOT / "Makefile").read_text(encoding="utf-8")


def workflow() -> dict:
    """The workflow file; YAML reads the key `on` as True."""
    return yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))


def commands(job: str) -> list[str]:
    return [step["run"] for step in workflow()["jobs"][job]["steps"] if "run" in step]


def test_the_script_checks_style_and_types_and_runs_every_test(tmp_path):
    """Run with stubs in place of `make` and of what prepares the machine; a target that fails ends it."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci")
    stubs = {".ci/prepare": "", "chromium": "echo Chromium", "make": 'echo "made $1"; [ "$1" != "$FAILS" ]'}
    for name, body in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    for fails, made in (("", ["lint", "test", "test-slow"]), ("test", ["lint", "test"])):
        env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "FAILS": fails}
        done = subprocess.run(
            [tmp_path / ".ci/run"], env=env, capture_output=True, text=True, timeout=60, encoding="utf-8"
        )
        assert re.findall("^made (.*)", done.stdout, flags=re.MULTILINE) == made, done.stderr
        assert bool(done.returncode) == bool(fails)


def test_ci_tries_macos_without_triton_up_to_notebook_10():
    assert workflow()["jobs"]["macos"]["runs-on"].startswith("macos-")
    lint, test = commands("macos")
    assert lint == "make lint"
    patterns = re.fullmatch(r"make test NOTEBOOKS='(.*)'", test).group(1).split()
    notebooks = {path.stem[:2] for pattern in patterns for path in ROOT.glob(pattern)}
    assert notebooks == {f"{number:02}" for number in range(11)}
    assert (
        f" {' '.join(patterns)} tests\n"
        in make("--dry-run", *test.split(maxsplit=2)[1:2], f"NOTEBOOKS={' '.join(patterns)}").stdout
    )


def test_ci_tries_the_newest_versions_once_a_week():
    timing = workflow()[True]["schedule"]
    assert [len(each["cron"].split()) for each in timing] == [5] and timing[0]["cron"].split()[-1].isdigit()
    assert commands("newest")[-1] == ".ci/newest"
    assert (ROOT / ".ci/newest").read_text(encoding="utf-8").rstrip().endswith(".venv/bin/python tools/pins.py --all")
    for job, about in workflow()["jobs"].items():
        assert about["if"] == f"github.event_name {'==' if job == 'newest' else '!='} 'schedule'"


# The Makefile


def test_plain_make_lists_every_target():
    listed = re.findall(r"^make ([\w-]+) +\S", make().stdout, flags=re.MULTILINE)
    assert len(listed) == len(set(listed)) and set(listed) == TARGETS


def test_make_lab_opens_the_first_notebook_on_loopback_with_the_token_on():
    command = make("--dry-run", "lab").stdout.partition(" -m jupyterlab ")[2]
    assert "--ip=127.0.0.1 " in command
    assert "default_url=/lab/tree/my_course/00_start_here.ipynb" in command
    # Jupyter's defaults are a random token and, when the port is taken, the next free one; leave them alone.
    for switch in ("token", "password", "port"):
        assert switch not in command


def test_make_clean_leaves_the_working_copy_alone(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    for folder in ("my_course/.ipynb_checkpoints", "notebooks/.ipynb_checkpoints"):
        (tmp_path / folder).mkdir(parents=True)
    make("clean", cwd=tmp_path)
    assert [path.name for path in tmp_path.rglob(".ipynb_checkpoints")] == [".ipynb_checkpoints"]
    assert (tmp_path / "my_course/.ipynb_checkpoints").exists()


def test_make_test_compares_stored_outputs_of_all_notebooks():
    command = make("--dry-run", "test").stdout
    assert " --nbval " in command and "lax" not in command and "sanitize" not in command
    assert " --dist loadscope " in command
    pytest_options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"][
        "ini_options"
    ]
    assert pytest_options["testpaths"] == ["tests", "notebooks"]
    assert command.split()[-2:] == ["notebooks", "tests"]


def test_make_test_and_make_test_slow_run_every_test_once():
    quick, slow, both = (
        [line for line in make("--dry-run", target).stdout.splitlines() if " -m pytest " in line]
        for target in ("test", "test-slow", "test-all")
    )
    assert len(quick) == 1 and " -m 'not slow' " in quick[0]
    notebooks, tests = slow
    assert tests.endswith(" -m slow tests") and both == quick + slow
    assert notebooks.endswith(" notebooks") and " --nbval " in notebooks
    assert quick[0].startswith("FLASHLEARN_REDUCED_MOTION=1 ") and "MOTION" not in notebooks, (
        "there all frames are painted"
    )


@pytest.mark.parametrize("version", ["3.10", "3.15"])
def test_make_rejects_another_python_and_says_what_it_expected(tmp_path, version):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    first, last = needs_python()
    stub = tmp_path / "other-python"  # the Python of these tests, made to believe that it is another version
    major, minor = version.split(".")
    believe = f"import sys; sys.version_info = ({major}, {minor}, 0)"
    stub.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{believe}; exec(sys.argv[1])" "$2"\n', encoding="utf-8")
    stub.chmod(0o755)

    result = make("setup", f"PYTHON={stub}", cwd=tmp_path)

    assert result.returncode != 0
    assert f"needs Python 3.{first} to 3.{last}" in result.stderr
    assert f"is Python {version}." in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_make_says_so_when_there_is_no_python(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    result = make("setup", "PYTHON=no-such-python", cwd=tmp_path)
    assert result.returncode != 0
    assert "there is no 'no-such-python'" in result.stderr


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A checkout whose .venv is set up, as far as `make` can see."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=folder, check=True, timeout=60)
    (folder / ".venv" / ".installed").touch()
    return folder


def test_make_leaves_a_living_environment_alone(checkout):
    assert "venv" not in make("--dry-run", "setup", cwd=checkout).stdout


def test_make_updates_a_living_environment_when_pins_change(checkout):
    stamp = checkout / ".venv" / ".installed"
    os.utime(stamp, (0, 0))
    commands = make("--dry-run", "setup", cwd=checkout).stdout
    assert " -m pip install " in commands and "rm -rf" not in commands


def moved(checkout: Path) -> Path:
    return checkout.rename(checkout.with_name("moved"))


def copied(checkout: Path) -> Path:
    return shutil.copytree(checkout, checkout.with_name("copied"), symlinks=True)


def without_python(checkout: Path) -> Path:
    (checkout / ".venv/bin/python").unlink()
    (checkout / ".venv/bin/python").symlink_to(checkout / "no-such-python")
    return checkout


@pytest.mark.parametrize("die", [moved, copied, without_python])
def test_make_replaces_a_dead_environment(checkout, die):
    commands = make("--dry-run", "setup", cwd=die(checkout)).stdout
    assert commands.index("rm -rf .venv\n") < commands.index(" -m venv .venv\n") < commands.index(" -m pip install ")


# What is installed


def test_metadata_is_complete():
    assert {"license", "classifiers", "keywords", "urls"} <= set(PROJECT) and "readme" in PROJECT["dynamic"]
    first, last = needs_python()
    named = {entry for entry in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", entry)}
    assert named == {f"Programming Language :: Python :: 3.{minor}" for minor in range(first, last + 1)}


def test_the_version_has_one_source():
    assert "version" in PROJECT["dynamic"] and "version" not in PROJECT
    assert Version(flashlearn.__version__) > Version("0.1.0")
    assert f"## {Version(flashlearn.__version__).base_version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# Triton

IMPORT_ALL_WITHOUT_TRITON = """
import importlib, pkgutil, sys

NEED_TRITON = {
    "flashlearn.core.target", "flashlearn.core.interpreter_patches",
    "flashlearn.kernels", "flashlearn.fast", "flashlearn.models.transformers",
    "flashlearn.models.continuous", "flashlearn.ring.merge_kernel",
    "flashlearn.course.triton_forward.mutation_lab",
    "flashlearn.course.gpu_and_triton.solutions",
}

class NoTriton:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "triton":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTriton())

import flashlearn
for name in flashlearn.__all__:
    getattr(flashlearn, name)

def walk(path, prefix):
    for module in pkgutil.iter_modules(path, prefix):
        if module.name in NEED_TRITON or module.name.endswith(".wrong"):
            continue  # nor is a package among them entered
        importlib.import_module(module.name)
        print(module.name)
        if module.ispkg:
            walk(sys.modules[module.name].__path__, module.name + ".")

walk(flashlearn.__path__, "flashlearn.")
assert "triton" not in sys.modules
"""


def test_flashlearn_imports_without_triton():
    result = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL_WITHOUT_TRITON], cwd=ROOT, capture_output=True, text=True, encoding="utf-8"
    )
    assert result.returncode == 0, result.stderr
    assert {"flashlearn.core.steps", "flashlearn.algorithms.softmax", "flashlearn.exercises"} <= set(
        result.stdout.split()
    )


@pytest.mark.slow  # a process of its own, as every test of kernels is one without a GPU
def test_without_a_gpu_kernels_run_whatever_else_imports_triton_later():
    pytest.importorskip("triton", reason="Triton is not installed here")
    code = (
        "import flashlearn as fl, torch, triton; x = torch.ones(1, 1, 4, 16); "
        "print(fl.flash_attention(x, x, x).sum().item())"
    )
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    env.pop("TRITON_INTERPRET", None)
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, encoding="utf-8"
    )
    assert result.stdout.strip() == "64.0", result.stderr


LOOK_AT_EVERYTHING = """
import inspect, pydoc, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
import flashlearn as fl

assert [name for name, _ in inspect.getmembers(fl)] == dir(fl) == sorted(fl.__all__)
assert "flash_attention" in pydoc.plain(pydoc.render_doc(fl))
exec("from flashlearn import *")
fl.{lost}(*[None] * {arguments})
"""


@pytest.mark.slow  # processes of their own
@pytest.mark.parametrize(
    "missing, lost, arguments, error",
    (
        ({"triton"}, "flash_attention", 3, "ImportError: flash_attention and flashlearn.kernels need Triton"),
        ({"triton"}, "explain", 3, "ImportError: flash_attention and flashlearn.kernels need Triton"),
        ({"anywidget", "IPython", "ipywidgets", "matplotlib"}, "projector", 0, "ModuleNotFoundError: "),
        ({"nothing"}, "flash_attention", 3, "TypeError: expected q to be a torch.Tensor, got NoneType"),
    ),
)
def test_all_public_names_can_be_looked_at_whatever_is_missing(missing, lost, arguments, error):
    """`help`, `inspect.getmembers` and `import *` work; what is missing is said when a function is called."""
    code = LOOK_AT_EVERYTHING.format(missing=missing, lost=lost, arguments=arguments)
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith(error), result.stderr
    assert "AssertionError" not in result.stderr
