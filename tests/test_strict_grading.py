"""Grading of examinations: what counts is what a function returns, and nothing that is said about it."""

import ast
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from flashlearn.course import NOTEBOOKS
from flashlearn.course.triton_forward.mutation_lab import MUTANTS
from flashlearn.exercises.checking import EXERCISES
from flashlearn.grading import landlock, strict
from flashlearn.grading import stripped as stripped_module
from flashlearn.grading.__main__ import grade_notebook
from flashlearn.grading.messages import HEAD, Channel, MessageError, error_of
from flashlearn.grading.notebook import code_cells
from flashlearn.grading.strict import grade_cells
from flashlearn.grading.stripped import stripped
from tests.test_grading_command import gone, submission

COURSE = Path("flashlearn/course")
TESTS = {name: len(exercise.cases) for name, exercise in EXERCISES.items()}
FIRST = "import math, torch\nfrom flashlearn.exercises import check, hint"
MEMORY = 4 * 2**30


def graded(*cells, timeout=120, own_work=False):
    """{exercise: (passed, remark)} of the best that the cells hand in."""
    entries, problem = grade_cells([FIRST, *cells], timeout, MEMORY, own_work)
    best = {entry.exercise: entry for entry in sorted(entries, key=lambda entry: entry.passed)}
    return {name: (entry.passed, entry.remark) for name, entry in best.items()}, problem


def solved(notebook):
    """Cells that submit the solutions of a notebook as a student who had found them: by their source."""
    yield (COURSE / notebook / "solutions.py").read_text(encoding="utf-8")
    if notebook.startswith("triton_"):
        yield "import triton.language as tl"
    for exercise in (each for each in EXERCISES.values() if each.id.startswith(f"{notebook}.")):
        function = exercise.solution.__name__
        yield f'check("{exercise.id}", {function.removesuffix("_solution") if notebook == "gpu_and_triton" else function})'
    if notebook == "triton_forward":
        yield "from flashlearn.course.triton_forward.mutation_lab import run_lab\nrun_lab(test_scale, test_causal)"


@pytest.mark.slow
def test_every_right_answer_passes():
    """All kinds of inputs cross, functions and GPUs too, and so does what is watched."""
    found, problem = graded(*(cell for name in NOTEBOOKS for cell in solved(name)), timeout=300)
    killed, remark = found.pop("12.mutants")
    assert remark == ""
    assert found.pop("05.loop")[0] == 0, "steps are no plain data: GRADING.md says so"
    assert found == {name: (tests, "") for name, tests in TESTS.items() if name != "05.loop"}
    assert 2 <= killed < len(MUTANTS), "two tests kill their mutants, and no others"
    assert problem == ""


LIBRARY_CALLS = """
check("01.softmax", lambda x: torch.nn.Softmax(-1)(x))
check("02.lse", lambda x: torch.logsumexp(x, -1))
check("04.attention", torch.nn.functional.scaled_dot_product_attention)
"""


@pytest.mark.slow
def test_a_library_call_passes_with_a_remark_and_fails_where_it_is_forbidden():
    found, problem = graded(LIBRARY_CALLS, MERGE)
    assert problem == "" and {name: passed for name, (passed, _) in found.items()} == {
        name: TESTS[name] for name in ("01.softmax", "02.lse", "03.merge", "04.attention")
    }
    for name, call in LIBRARY.items():
        assert found[name][1].startswith(f"right; the library did the work: {call}.")
    assert found["03.merge"][1] == ""
    found, problem = graded(LIBRARY_CALLS, MERGE, own_work=True)
    assert problem == "" and found.pop("03.merge") == (TESTS["03.merge"], "")
    for name, call in LIBRARY.items():
        assert found[name] == (0, f"in every test expected the steps in your own code, got a call of {call}")


# What is not an answer earns nothing

MERGE = """
def my_merge(a, b):
    m = torch.maximum(a[0], b[0])
    shift = 0 if m == -math.inf else m
    return m, a[1] * torch.exp(a[0] - shift) + b[1] * torch.exp(b[0] - shift)
check("03.merge", my_merge)
"""
LIBRARY = {
    "01.softmax": "torch.softmax",
    "02.lse": "torch.logsumexp",
    "04.attention": "torch.nn.functional.scaled_dot_product_attention",
}
CHEATS = {
    "00.scores": """
print("Exercise 00.scores: 4 of 4 tests passed")
class Report:
    exercise, passed, attempted = "00.scores", True, True
    def __repr__(self): return "Exercise 00.scores: 4 of 4 tests passed"
Report()
""",
    "01.softmax": """
from flashlearn.exercises import EXERCISES
check("01.softmax", EXERCISES["01.softmax"].solution)
""",
    "01.overflow": """
from flashlearn.course.naive_softmax.solutions import overflow_solution
check("01.overflow", overflow_solution)
""",
    "02.safe": "import flashlearn as fl\ncheck('02.safe', fl.safe_softmax)",
    "02.lse": """
class Same(torch.Tensor):
    def __eq__(self, other): return torch.ones(self.shape, dtype=torch.bool)
    def __sub__(self, other): return torch.zeros(self.shape)
    __rsub__ = __sub__
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None): return torch.zeros(())
check("02.lse", lambda x: torch.full(x.shape[:-1], 7.0).as_subclass(Same))
""",
    "02.shift": """
try:
    import flashlearn.exercises.assessment as grading
    grading.largest_error = lambda got, expected: 0.0
finally:
    torch.equal = torch.allclose = lambda *a, **k: True
    check("02.shift", lambda softmax: torch.zeros(2))
""",
    "03.tree": """
import copy, functools, importlib, types
import flashlearn.algorithms.softmax as softmax
from flashlearn import merge_tree
importlib.reload(softmax)
again = types.FunctionType(merge_tree.__code__, merge_tree.__globals__)
def tree(x, n): return tuple(t[0] for t in softmax.merge_tree(x, n))
check("03.tree", tree)
check("03.tree", lambda x, n: tuple(t[0] for t in again(x, n)))
check("03.tree", functools.partial(lambda f, x, n: tuple(t[0] for t in f(x, n)), merge_tree))
def late(x, n):
    from flashlearn.algorithms.softmax import merge_tree
    return tuple(t[0] for t in merge_tree(x, n))
check("03.tree", late)
""",
    "04.attention": "import sys\ncheck('04.attention', lambda q, k, v: sys.exit('5 of 5'))",
    "04.decode": """
def found(*args):
    import gc, sys
    frame = sys._getframe()
    while frame:
        for name, value in frame.f_locals.items():
            if name in ("want", "expected", "whole", "compare", "case"): return value
        frame = frame.f_back
    return [x for x in gc.get_objects() if type(x).__name__ in ("Case", "Exercise")][0]
check("04.decode", found)
""",
    "05.recurrence": "check('05.recurrence', lambda *a: torch.zeros(1).expand(2**40))",
    "05.merge_outputs": """
def deep(*a):
    x = []
    for _ in range(900): x = [x]
    return x
check("05.merge_outputs", deep)
""",
    "06.blocks": """
class Always(tuple):
    def __eq__(self, other): return True
class Whatever:
    def __eq__(self, other): return True
    def __len__(self): return 5
    def __iter__(self): return iter([self] * 5)
    def __reduce__(self): import os; return os.mkdir, ("PICKLED",)
check("06.blocks", lambda *a: Whatever())
check("06.blocks", lambda *a: Always([Whatever()] * 5))
""",
    "07.visited": """
import os, json
try:
    line = [os.environ["FLASHLEARN_RECORD_TOKEN"], "07.visited", 6, 6, ""]
    open(os.environ["FLASHLEARN_RECORD"], "a").write(json.dumps(line))
finally:
    check("07.visited", lambda *a: 10**5000)
""",
    "08.bytes": "import flashlearn.cost as cost\ncheck('08.bytes', lambda *a: cost.v2_cost(1, 1, *a[:3], block_q=a[3]))",
    "09.softmax_backward": "from flashlearn import softmax_backward\ncheck('09.softmax_backward', softmax_backward)",
    "14.flops": """
import numpy
check("14.flops", lambda *a: numpy.int64(3))
check("14.flops", 3)
for n in range(30): check("14.flops", lambda *a, n=n: 4 * a[1] * a[2] * a[3]**2 * a[4] / a[0] / 1e12 if n == 29 else n)
""",
    "07.update": """
import importlib.util, sys
package = sys.modules["flashlearn"].__path__[0]
place = package + "/course/tiled_attention/solutions.py"
spec = importlib.util.spec_from_file_location("mine", place)
mine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mine)
check("07.update", mine.update_solution)
""",
    "08.block": """
import flashlearn.algorithms.tiled as tiled
check("08.block", lambda N, D, hardware: tiled.paper_block_sizes(D, 100)[0] or hardware.no_such)
""",
    "09.matmul_backward": """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "_Finder"]
hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("flashlearn.exercises")}
import flashlearn.exercises
solution = flashlearn.exercises.EXERCISES["09.matmul_backward"].solution
sys.modules.update(hidden)
check("09.matmul_backward", solution)
""",
    "10.ds": """
def mine(p, do, o, v_j):
    from flashlearn.algorithms.tiled_backward import tiled_attention_backward
    return tiled_attention_backward(do, p, p, p, o, o, block_q=1, block_k=1)
check("10.ds", mine)
""",
    "16.gqa": """
from flashlearn.exercises.assessment import grade
""",
}


@pytest.mark.slow
def test_what_is_not_an_answer_earns_nothing(tmp_path):
    """Twenty-one ways to cheat in one notebook, beside it a package of its own, and one right answer at the end."""
    pickled = tmp_path / "PICKLED"
    cells = [source.replace("PICKLED", str(pickled)) for source in CHEATS.values()]
    (tmp_path / "flashlearn" / "exercises").mkdir(parents=True)
    for file in ("flashlearn/__init__.py", "flashlearn/exercises/__init__.py", "torch.py", "sitecustomize.py"):
        (tmp_path / file).write_text("raise SystemExit('of the submission')", encoding="utf-8")
    path = submission(tmp_path / "03_online_softmax.ipynb", FIRST, *cells, MERGE)
    grades = {grade.exercise: grade for grade in grade_notebook(path, strict=True)}
    assert {name: grades[name].passed for name in CHEATS if name in grades and grades[name].passed} == {}
    assert grades["03.merge"][2:] == (TESTS["03.merge"], TESTS["03.merge"], 100, "")
    rejected = ("expected a function of your own", "in an examination")
    for name in ("02.safe", "03.tree", "09.softmax_backward", "10.ds"):
        assert any(text in grades[name].remark for text in rejected), name
    for name in ("00.scores", "01.softmax", "01.overflow", "07.update", "09.matmul_backward", "16.gqa"):
        assert name not in grades or grades[name].remark == "missing"
    assert not pickled.exists()


@pytest.mark.slow
def test_a_test_of_the_lab_that_counts_its_calls_kills_nothing():
    """The right implementation comes first in `run_lab`; here nobody knows when it comes."""
    count = """
calls = []
def counts(attention):
    calls.append(attention)
    assert len(calls) == 1
def dies(attention): raise SystemExit
from flashlearn.course.triton_forward.mutation_lab import run_lab
run_lab(counts, dies, lambda attention: False, 3)
"""
    wrong = "check('03.merge', lambda a, b: (torch.maximum(a[0], b[0]), a[1] + b[1]))"
    (found, problem) = graded(count, wrong)
    assert found["03.merge"][1].startswith("This is what you get if the sums are added without rescaling")
    assert problem == "" and found["12.mutants"][0] == 0
    assert found["12.mutants"][1].startswith("the right kernel fails a test too")


EXAMINATION = """
import atexit, ctypes, sys
from flashlearn.exercises import EXERCISES, Case, Exercise
from flashlearn.grading.__main__ import main

def double(x):
    return 2 * x

def compare(function):
    return function(3.0), double(3.0)

EXERCISES["90.double"] = Exercise("90.double", "double(x) -> 2 x", double, (Case("3", compare, "add x to itself"),))
if sys.platform == "linux":  # elsewhere nobody can be kept from looking in
    atexit.register(lambda: print("others may look in:", ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), file=sys.stderr))
raise SystemExit(main())
"""


@pytest.mark.slow
def test_a_way_that_the_task_rules_out_is_seen_over_there():
    found, problem = graded(
        """
from torch.nn.functional import scaled_dot_product_attention
def grouped(q, k, v):
    return scaled_dot_product_attention(q, k, v, enable_gqa=True)
check("16.gqa", grouped)
""",
        """
import triton
import triton.language as tl
@triton.jit
def ds_t(p_t, v, do, delta):
    return p_t * (tl.trans(tl.dot(do, tl.trans(v), input_precision="ieee")) - delta[None, :])
check("13.ds", ds_t)
""",
    )
    assert {name: passed for name, (passed, _) in found.items()} == {n: TESTS[n] - 1 for n in ("16.gqa", "13.ds")}
    assert problem == ""


@pytest.mark.slow
def test_an_exercise_of_ones_own_comes_by_standard_input(tmp_path):
    """As GRADING.md says: what is in no file cannot be read from one, nor in the memory of the process (Linux)."""
    ours = "check('90.double', lambda x: x + x)\ncheck('00.scores', lambda q, k: q @ k.T)"
    path = submission(tmp_path / "90_exam.ipynb", FIRST, ours)
    command = [sys.executable, "-P", "-", "--strict", "--csv", str(path)]
    result = subprocess.run(command, input=EXAMINATION, capture_output=True, text=True, check=True, encoding="utf-8")
    assert sys.platform != "linux" or "others may look in: 0\n" in result.stderr  # PR_GET_DUMPABLE
    rows = [line.split(",")[1:4] for line in result.stdout.splitlines()]
    assert rows == [
        ["exercise", "passed", "tests"],
        ["00.scores", "0", str(TESTS["00.scores"])],
        ["90.double", "1", "1"],
    ]


SOLUTION = str((COURSE / "start_here" / "solutions.py").resolve())
OTHERS = "check('00.scores', lambda q, k: q @ k.mT / math.sqrt(q.shape[-1]))"  # right: it must not come so far
READS = {
    "text of a solution": "exec(open(SOLUTION).read())\ncheck('00.scores', scores_solution)",
    "by numpy": "import numpy\nexec(numpy.fromfile(SOLUTION, 'u1').tobytes())\ncheck('00.scores', scores_solution)",
    "by torch": """
import os
text = torch.from_file(SOLUTION, size=os.path.getsize(SOLUTION), dtype=torch.uint8)
exec(bytes(text.tolist()))
check("00.scores", scores_solution)
""",
    "by the C library": """
import ctypes
libc, text = ctypes.CDLL(None), ctypes.create_string_buffer(10000)
exec(text.raw[: libc.read(libc.open(SOLUTION.encode(), 0), text, 10000)])
check("00.scores", scores_solution)
""",
    "by another program": "import os\nos.system(f'cp {SOLUTION} mine.py')\nexec(open('mine.py').read())\ncheck('00.scores', scores_solution)",
    "by the C library's system": """
import ctypes
ctypes.CDLL(None).system(f"cp {SOLUTION} mine.py".encode())
exec(open("mine.py").read())
check("00.scores", scores_solution)
""",
    "a link": "import os\nos.symlink(SOLUTION, 'mine.py')\nexec(open('mine.py').read())\ncheck('00.scores', scores_solution)",
    "compiled": """
import glob, marshal, pathlib
(path,) = glob.glob(f"{pathlib.Path(SOLUTION).parent}/__pycache__/start_here.*11*.pyc")[:1]
exec(marshal.loads(open(path, "rb").read()[16:]))
check("00.scores", scores_solution)
""",
    "the installed package": """
import importlib, pathlib, sys
for name in [name for name in sys.modules if name.startswith("flashlearn")]: del sys.modules[name]
sys.path.insert(0, str(pathlib.Path(SOLUTION).parents[3]))
check("00.scores", importlib.import_module("flashlearn.course.start_here.solutions").scores_solution)
""",
    "the tests": f"text = open({str(Path(__file__).resolve())!r}).read()\n{OTHERS}",
    "another submission": f"exec(open('ANOTHER').read())\n{OTHERS}",
    "who grades, by /proc": f"import os\nopen(f'/proc/{os.getpid()}/mem', 'rb')\n{OTHERS}",
    "the network": f"import socket\nsocket.create_connection(('127.0.0.1', PORT), 5)\n{OTHERS}",
}
SAVED = """
import gc, types, flashlearn as fl
from flashlearn.algorithms import softmax
codes = [(f, f.__code__) for f in gc.get_objects() if isinstance(f, types.FunctionType)]
codes = [(f, code) for f, code in codes if "flashlearn" in code.co_filename]
code, space = fl.merge.__code__, fl.merge.__globals__
def restored(x):
    for f, own in codes: f.__code__ = own
    return fl.safe_softmax(x)
check("02.safe", restored)
check("03.merge", lambda a, b: types.FunctionType(code, space)(a, b))
"""
SECOND = """
import subprocess, sys
def second(x):
    program = "import sys, torch, flashlearn as fl; print(fl.safe_softmax(torch.tensor(eval(sys.stdin.read()))).tolist())"
    done = subprocess.run([sys.executable, "-c", program], input=repr(x.tolist()), capture_output=True, text=True)
    return torch.tensor(eval(done.stdout), dtype=x.dtype)
check("02.safe", second)
"""
FORKED = """
import ctypes, flashlearn
def second(x):  # Python reports no event for this one
    ctypes.CDLL(None).system(b"echo 'import flashlearn as fl, torch; print(fl.safe_softmax(torch.ones(2)))' | python > out")
    return eval(open("out").read(), {"tensor": torch.tensor})
check("02.safe", second)
"""
landlocked = pytest.mark.skipif(not landlock.version(), reason="needs Landlock: Linux 5.13 or later")


@landlocked
@pytest.mark.slow
def test_the_package_is_out_of_reach(tmp_path):
    """Whatever reads: Landlock binds the process and all that it starts."""
    (tmp_path / "another.py").write_text("pass", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server:
        cells = [
            f"SOLUTION = {SOLUTION!r}\n"
            + cell.replace("ANOTHER", str(tmp_path / "another.py")).replace("PORT", str(server.getsockname()[1]))
            for cell in READS.values()
        ]
        found, problem = graded(*cells)
    assert found == {} and problem == ""


@pytest.mark.slow
def test_a_solution_is_out_of_reach_of_python_without_landlock(monkeypatch):
    """That is no sandbox, and the guide says so: it holds what Python itself opens and starts."""

    def without_landlock(folder):
        package = stripped(folder)
        with open(package / "grading" / "landlock.py", "a", encoding="utf-8") as file:
            file.write("\n\ndef version():\n    return 0\n")
        return package

    monkeypatch.setattr(strict, "stripped", without_landlock)
    names = ("text of a solution", "by another program", "a link", "compiled", "the installed package")
    found, _ = graded(*(f"SOLUTION = {SOLUTION!r}\n{READS[name]}" for name in names), SECOND)
    assert found.pop("02.safe")[0] == 0 and found == {}


@pytest.mark.slow
def test_nothing_of_the_package_can_be_saved_and_restored():
    """The code of an algorithm is not in that process, nor in one that it starts."""
    found, _ = graded(SAVED, SECOND, FORKED)
    assert {name: passed for name, (passed, _) in found.items()} == {"02.safe": 0, "03.merge": 0}


@pytest.mark.slow
@pytest.mark.parametrize("number", ["08", "12"])
def test_an_untouched_notebook_imports_all_that_it_asks_for(number):
    """Its first cell, which would leave `check` undefined if it failed."""
    (path,) = Path("notebooks").glob(f"{number}_*.ipynb")
    imports = [cell for cell in code_cells(path) if "import" in cell and "flashlearn" in cell]
    found, _ = graded(*imports, "from flashlearn.exercises import check\n" + SCORES)
    assert found == {"00.scores": (TESTS["00.scores"], "")}


def test_what_the_copy_keeps_or_replaces_exists():
    """A function that is renamed would be closed in the copy, and a right answer that needs it would fail."""
    root = stripped_module.PACKAGE
    assert all((root / path).is_file() for path in (*stripped_module.WHOLE, *stripped_module.COPIED))
    provided = [name for names in stripped_module.PROVIDED.values() for name in names]
    kept = [f"{path.removesuffix('.py')}.{name}" for path, names in stripped_module.KEPT.items() for name in names]
    for name in (*stripped_module.OTHERS, *provided, *kept):
        module, _, function = name.removeprefix("flashlearn.").replace("/", ".").rpartition(".")
        tree = ast.parse((root / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
        assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, name


def test_the_copy_has_no_answers(tmp_path, monkeypatch):
    stripped_module._made.cache_clear()
    monkeypatch.setattr(
        stripped_module.compileall, "compile_dir", lambda *args, **options: None
    )  # it takes ten seconds
    package = stripped(tmp_path)
    stripped_module._made().cleanup()
    stripped_module._made.cache_clear()
    files = {file.relative_to(package).as_posix() for file in package.rglob("*.py")}
    assert not [file for file in files if file.startswith("course/") and not file.endswith("__init__.py")]
    assert "exercises/assessment.py" not in files and "grading/worker.py" in files
    bodies = {
        node.name: ast.unparse(node.body[-1])
        for file in ("softmax.py", "tiled.py", "attention.py")
        for node in ast.walk(ast.parse((package / "algorithms" / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert len(bodies) > 20 and all(body.startswith("return closed(") for body in bodies.values())
    whole = "\n".join((package / file).read_text(encoding="utf-8") for file in files)
    for name in ("merge_solution", "def merge_tree(x, block_size):\n    m"):
        assert name not in whole


# A deadline for what is done here


SLOW = """
def slow(softmax):
    return torch.zeros(400_000)
check("02.shift", slow)
"""
COLLIDING = """
import itertools
keys = list(itertools.islice(itertools.product((-1, -2), repeat=16), 60_000))  # hash(-1) == hash(-2)
check("00.scores", lambda q, k: dict.fromkeys(keys))
big = [n * (2**61 - 1) for n in range(60_000)]
check("00.scores", lambda q, k: dict.fromkeys(big))
"""


@pytest.mark.slow
def test_what_an_answer_returns_cannot_keep_the_grader_busy(monkeypatch):
    """With a row of 400,000 the comparison of 02.shift took 192 s, whatever the time limit."""
    monkeypatch.setattr(strict, "GRACE", 2)
    start = time.monotonic()
    found, _ = graded(SLOW, COLLIDING, timeout=10)
    assert time.monotonic() - start < 90
    assert found["02.shift"][0] < TESTS["02.shift"] and found["00.scores"][0] == 0


def test_a_comparison_that_takes_too_long_is_cut_short(monkeypatch):
    session = strict.Session([], 1, MEMORY)
    monkeypatch.setattr(strict, "GRACE", -0.9)

    def endless():
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                pass  # nothing that catches exceptions stops it

    start = time.monotonic()
    assert session._limited(endless, "late") == "late" and session._limited(lambda: "in time", "late") == "in time"
    assert time.monotonic() - start < 1 and signal.getitimer(signal.ITIMER_REAL) == (0, 0)


# What ends the process, or tries to


KILL = "import os\ncheck('00.scores', lambda q, k: os._exit(0))"
SCORES = "check('00.scores', lambda q, k: q @ k.mT / math.sqrt(q.shape[-1]))"
FORGED = """
import os, socket, stat
def forge(q, k):
    for name in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(name).st_mode): os.write(name, b"\\0" * 1000)
        except OSError: pass
    return q @ k.mT
check("00.scores", forge)
"""
STUBBORN = """
import time
def stubborn(q, k):
    while True:
        try:
            while True: time.sleep(1)
        except BaseException: pass
check("00.scores", stubborn)
"""
ENDLESS = "def endless(q, k):\n    while True: q = q + 1\ncheck('00.scores', endless)"
FLOOD = "check('00.scores', lambda q, k: [0] * 10**9)"
FORK = """
import os, subprocess, sys
def fork(q, k):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "NAME"], start_new_session=True)
    if os.fork() == 0: return q @ k.mT  # two processes answer
    return q @ k.mT
check("00.scores", fork)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "remark", "seconds"),
    [
        (KILL, "ProcessLookupError", 15),
        (FORGED, "expected", 15),
        (STUBBORN, "TimeoutError", 5),
        (ENDLESS, "TimeoutError", 5),  # twenty times what one of the others' cells or functions takes
        (FLOOD, "MemoryError", 15),
        (FORK, "", 15),
    ],
    ids=["kill", "forged", "stubborn", "endless", "flood", "fork"],
)
def test_a_function_that_ends_the_process_harms_itself_alone(cell, remark, seconds, monkeypatch):
    """It is started again for the others: the right answer before and the one behind are graded once each."""
    if cell == STUBBORN:
        monkeypatch.setattr(strict, "GRACE", 2)
    name = f"grandchild-{os.getpid()}-strict"
    sources = [FIRST, MERGE, cell.replace("NAME", name), "check('16.gqa', 3)", SCORES]
    entries, _problem = grade_cells(sources, seconds, MEMORY)
    assert [entry.exercise for entry in entries] == ["03.merge", "00.scores", "00.scores"]
    assert entries[0].passed == TESTS["03.merge"] and entries[2].passed == TESTS["00.scores"]
    assert entries[1].passed == 0 and remark in entries[1].remark
    assert gone(name)


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["import os; os._exit(1)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_cell_that_ends_the_process_is_left_out(cell):
    found, problem = graded(MERGE, cell, SCORES)
    assert found == {"03.merge": (TESTS["03.merge"], ""), "00.scores": (TESTS["00.scores"], "")}
    assert problem == "a cell ended the process"


# Messages


class Plain:
    @staticmethod
    def name(value):
        return ("function", 3) if callable(value) else None

    @staticmethod
    def make(name):
        return name


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours, Plain), Channel(theirs, Plain), ours


def sent(ends, value):
    sender = threading.Thread(target=ends[0].send, args=(value,))
    sender.start()
    got = ends[1].receive(time.monotonic() + 20)
    sender.join()
    return got


@pytest.mark.parametrize(
    "value",
    [None, True, -3, {torch.float16: 1}, 10**40, "text", (), [], (1, [2, (3.5, "x")]), {"a": {1: 2}}, math.inf],
    ids=str,
)
def test_values_cross_as_they_are(value, ends):
    got = sent(ends, value)
    assert got == value and type(got) is type(value)


VIEWS = (
    *(lambda t: t, lambda t: t.mT, lambda t: t[1:, ::2]),
    *(lambda t: t[:0], lambda t: t[0, 0], lambda t: t[:1].expand(9, 4)),
)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.bool, torch.int64, torch.complex64]
)
@pytest.mark.parametrize("view", VIEWS)
def test_tensors_cross_with_dtype_shape_and_strides(dtype, view, ends):
    t = view(torch.arange(20).reshape(5, 4).to(dtype))
    got = sent(ends, t)
    assert got.dtype == dtype and got.shape == t.shape and got.stride() == t.stride() and torch.equal(got, t)


def test_what_shares_memory_shares_it_again_and_no_more_crosses_than_is_seen(ends):
    x = torch.arange(12.0)
    a, b, c = sent(ends, [x[2:8], x[6:], x.clone()])
    a[4] = 50
    part = sent(
        ends, torch.arange(1000.0)[500:504]
    )  # what is beside an input, such as the rest of a problem, stays here
    assert part.tolist() == [500, 501, 502, 503] and part.untyped_storage().nbytes() < 64
    assert b[0] == 50 and c[6] == 6 and torch.equal(sent(ends, float("nan") * x).isnan(), torch.ones(12) == 1)


def test_what_cannot_cross_is_named_by_its_type(ends):
    assert repr(sent(ends, {1, 2})) == "<set>" and sent(ends, print) == ("function", 3)
    assert repr(sent(ends, torch.ones(2).to_sparse())).startswith("<torch.float32")


NO_TENSORS = (  # in a storage of 8 bytes
    *((0, 0, "float32", [3], [1]), (0, 4, "float32", [2], [1]), (0, 0, "float32", [2**40], [0])),
    *((0, 0, "float32", [2], [2**39]), (0, -4, "float32", [2], [1]), (0, 1, "float32", [1], [1])),
    *((1, 0, "float32", [1], [1]), (-1, 0, "float32", [1], [1]), (0, 0, "float32", [-1], [1])),
    *((0, 0, "Storage", [1], [1]), (0, 0), (0, 0, "float32", [1] * 20, [1] * 20)),
)
NO_MESSAGES = (
    *((["T", *tensor], [[0, 8]], b"\0" * 8) for tensor in NO_TENSORS),
    *((0, [[0, 800]], b"\0" * 8), (0, [[8, True]], b""), (0, 0, b"")),
    *((tree, [], b"") for tree in (["x"], [], {}, 1.5, ["f", 3], ["f", "x"], ["m", [["l"], 1]], ["d", "float"])),
    *((tree, [], b"") for tree in (["m", [["t", -1, -2], 1]], ["m", [2**61 - 1, 1]])),
)


@pytest.mark.parametrize(("tree", "storages", "data"), NO_MESSAGES)
def test_a_message_that_is_none_is_rejected(tree, storages, data, ends):
    text = json.dumps([tree, storages]).encode()
    ends[2].sendall(HEAD.pack(len(text), len(data)) + text + data)
    with pytest.raises(MessageError):
        ends[1].receive(time.monotonic() + 5)


@pytest.mark.parametrize("raw", [b"[" * 100_000, b"\xff", b"", b"[1, 2, 3]", b"[" + b"9" * 5000 + b", []]"])
def test_what_is_no_json_is_rejected(raw, ends):
    ends[2].sendall(HEAD.pack(len(raw), 0) + raw)
    with pytest.raises(MessageError):
        ends[1].receive(time.monotonic() + 5)


def test_a_message_has_an_end_and_a_deadline(ends):
    with pytest.raises(TimeoutError):
        ends[1].receive(time.monotonic() + 0.05)
    ends[2].sendall(HEAD.pack(2**60, 0))
    with pytest.raises(MessageError, match="at most"):
        ends[1].receive(time.monotonic() + 5)
    with pytest.raises(MessageError, match="inside each other"):
        deep: list = []
        for _ in range(50):
            deep = [deep]
        ends[0].send(deep)
    with pytest.raises(MessageError, match="elements"):
        ends[0].send(torch.zeros(1).expand(2**40))
    ends[2].sendall(HEAD.pack(10, 0) + b"123")
    ends[2].shutdown(socket.SHUT_WR)
    with pytest.raises(EOFError):
        ends[1].receive(time.monotonic() + 5)


@pytest.mark.parametrize(
    ("described", "kind", "text"),
    [
        (("ValueError", "x"), ValueError, "x"),
        (("NotImplementedError", ""), NotImplementedError, ""),
        (("SystemExit", "0"), RuntimeError, "0"),
        (("KeyboardInterrupt", ""), RuntimeError, ""),
        (("UnicodeDecodeError", "x"), RuntimeError, "x"),
        (("Mine", "x" * 5000), RuntimeError, "x" * 2000),
        (("no name", "x"), RuntimeError, "x"),
        (("print", "x"), RuntimeError, "x"),
        ("ValueError", MessageError, "expected an error with a name and a text"),
        (None, MessageError, "expected an error with a name and a text"),
    ],
)
def test_an_error_crosses_by_name_and_text(described, kind, text):
    error = error_of(described)
    assert isinstance(error, kind) and str(error) == text
