"""The process with the student's functions: it runs the cells of a notebook, then calls the functions that it is told.

    python -P worker.py SOCKET

It gets inputs and gives back what functions return (flashlearn.exercises.submissions.wire); what is right it does not
know. Of `flashlearn.exercises` there is only what a notebook needs: a `check` and a `run_lab` that take what is handed
in. Functions of the package, but for what an exercise may use, are closed once the cells have run.

What is here is in the student's hands: whoever grades must take nothing that comes from here for more than an answer.
"""

from __future__ import annotations
import __future__

import contextlib
import functools
import gc
import importlib
import importlib.abc
import inspect
import linecache
import os
import signal
import socket
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

PACKAGE = Path(__file__).parents[2]
EXERCISES = "flashlearn.exercises"
OURS = tuple(f"{EXERCISES}.{name}" for name in ("launching", "recording", "watching", "submissions"))
# What of the package every answer may use, and what one of them may besides
OPEN = (
    "__init__.py",
    "_moved.py",
    "core/",
    "exercises/",
    "kernels/__init__.py",
    "kernels/recorder.py",
    "kernels/target.py",
)
ALSO = {"08.block": ("cost/",)}
LATEST = 5  # of several functions handed in for one exercise, so many count


class HandedIn:
    """What `check` and `run_lab` return here: nothing is known of it yet."""

    passed = attempted = False
    rows = misconceptions = verdicts = survivors = rejected = ()
    headline = diagnosis = ""

    def __init__(self, exercise: str):
        self.exercise = exercise

    def __repr__(self) -> str:
        return f"Exercise {self.exercise}: handed in"


handed_in: list[tuple[str, tuple[Any, ...]]] = []  # exercise, and the function or, in the lab, the tests


def check(name: str, function: Callable) -> HandedIn:
    handed_in.append((str(name), (function,)))
    return HandedIn(name)


def run_lab(*tests: Callable) -> HandedIn:
    handed_in.append(("12.mutants", tests))
    return HandedIn("12.mutants")


class _Finder(importlib.abc.MetaPathFinder):
    """Nothing of the exercises is found but `OURS`; once `closed`, nothing of the package that was not there before."""

    closed = False

    def find_spec(self, name, path=None, target=None):
        part = name.startswith(f"{EXERCISES}.") and not name.startswith(OURS)
        if part or (self.closed and name.startswith("flashlearn.") and not name.startswith(OURS)):
            raise ModuleNotFoundError(f"No module named {name!r} in an examination", name=name)
        return None


def _stand_in(name: str, **content: Any) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(content)
    sys.modules[name] = module


FINDER = _Finder()
sys.meta_path.insert(0, FINDER)
_stand_in(EXERCISES, check=check, hint=lambda name, number=None: None, __path__=[str(PACKAGE / "exercises")])
_stand_in(f"{EXERCISES}.mutation_lab", run_lab=run_lab, diff=lambda name: "")
import flashlearn  # noqa: E402  after the stand-ins: it must not find the exercises themselves

sys.meta_path.remove(FINDER)
sys.meta_path.insert(0, FINDER)  # first again
flashlearn.exercises = sys.modules[EXERCISES]  # type: ignore[attr-defined]

from flashlearn.core.steps import Step, Tile  # noqa: E402
from flashlearn.exercises.submissions.wire import Channel, WireError, error_of  # noqa: E402

# The package, closed


def _place(function: types.FunctionType) -> str:
    """The file of a function within the package, "" if it is not of the package."""
    file = function.__code__.co_filename
    prefix = f"{PACKAGE}{os.sep}"
    return file.removeprefix(prefix).replace(os.sep, "/") if file.startswith(prefix) else ""


def _refusal(name: str, free: int) -> types.CodeType:
    """The code of a function that says it is closed, with as many free variables as the one whose place it takes."""
    names = ", ".join(f"v{n}" for n in range(free)) or "_"
    source = f"""
def outer({names}):
    def closed(*args, **kwargs):
        {names if free else "0"}
        raise PermissionError({f"expected a function of your own, got {name} of the package"!r})
    return closed
"""
    space: dict[str, Any] = {}
    exec(source, space)
    return space["outer"](*[None] * max(free, 1)).__code__


class Package:
    """The functions of the package, of which those that an exercise may not use are closed."""

    def __init__(self) -> None:
        functions = (f for f in gc.get_objects() if isinstance(f, types.FunctionType) and _place(f))
        self._functions = [(f, f.__code__, _place(f)) for f in functions if not _place(f).startswith(OPEN)]
        self._triton()
        FINDER.closed = True

    def close(self, exercise: str) -> None:
        """Close all but what the exercise may use."""
        also = ALSO.get(exercise, ())
        for function, code, place in self._functions:
            if place.startswith(also):
                function.__code__ = code
            elif function.__code__ is code:
                function.__code__ = _refusal(f"{function.__module__}.{function.__name__}", len(code.co_freevars))

    @staticmethod
    def _triton() -> None:
        """Kernels and device functions of the package are closed too."""
        if "triton.runtime" not in sys.modules:
            return
        from triton.runtime.interpreter import InterpretedFunction

        rewrite = InterpretedFunction.rewrite

        def watched_rewrite(kernel):
            if _place(kernel.fn):
                raise PermissionError(f"expected a function of your own, got {kernel.fn.__name__} of the package")
            return rewrite(kernel)

        InterpretedFunction.rewrite = watched_rewrite


# What the other side may ask


class Remote:
    """A function of the other side: a call goes there, and its result comes back."""

    def __init__(self, channel: Channel, name: Any):
        self._channel, self._name = channel, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._channel.send({"callback": self._name, "args": args, "kwargs": kwargs})
        reply = self._channel.receive()
        if "error" in reply:
            raise error_of(reply["error"])
        return reply["value"]


class _Attention(torch.autograd.Function):
    """Attention that is computed on the other side, forward and backward."""

    @staticmethod
    def forward(ctx, remote, q, k, v, causal, scale):
        ctx.save_for_backward(q, k, v)
        ctx.remote, ctx.options = remote, (causal, scale)
        return remote("forward", q, k, v, causal, scale)

    @staticmethod
    def backward(ctx, do, dlse):
        return None, *ctx.remote("backward", *ctx.saved_tensors, *ctx.options, do, dlse), None, None


def _attention(remote: Remote) -> Callable:
    def attention(q, k, v, *, causal=False, scale=None, return_lse=False):
        o, lse = _Attention.apply(remote, q, k, v, causal, scale)
        return (o, lse) if return_lse else o

    return attention


class Worker:
    """Answers one message after another, until nobody asks any more."""

    def __init__(self, end: socket.socket):
        self._channel = Channel(end, self)
        self._package: Package | None = None
        self._shell = _shell()

    def name(self, value: Any) -> Any:
        """Functions do not leave this process; the steps of a recorded kernel do."""
        if isinstance(value, Tile):
            return "tile", value.name, value.index, value.itemsize, value.times
        if isinstance(value, Step):
            values = {tile.name: value.values[tile.name] for tile in value.writes if tile.name in value.values}
            fields = ("phase", "program", "reads", "writes", "on_chip", "matmuls", "output")
            return "step", {name: getattr(value, name) for name in fields} | {
                "shapes": dict(value.shapes),
                "values": values,
            }
        return None

    def make(self, name: Any) -> Any:
        kind, *rest = name
        if kind == "answer":
            return self._answers[rest[0]]
        if kind == "record":
            return _record(*rest)
        remote = Remote(self._channel, name)
        return _attention(remote) if kind == "attention" else remote

    def serve(self) -> None:
        self._channel.send("ready")
        while True:
            try:
                message = self._channel.receive()
            except EOFError:
                return
            self._reply(message)

    def _reply(self, message: dict[str, Any]) -> None:
        do = getattr(self, f"do_{message.pop('do')}")
        try:
            with _interruptible():
                value = do(**message)
            self._channel.send({"value": value})
        except (EOFError, ConnectionError):
            raise
        except BaseException as error:  # whatever a student's function raises is its answer
            self._channel.send({"error": _told(error)})

    def do_cell(self, source: str) -> None:
        self._shell.run_cell(source, store_history=True)

    def do_list(self) -> list[tuple[str, int]]:
        """(exercise, number of the function) of what was handed in, of one exercise the latest; a lab has many numbers."""
        import flashlearn.cost  # what an answer may use is there before the rest is closed

        if any(name[:2] in ("11", "12", "13") for name, _ in handed_in):
            import flashlearn.kernels.recorder  # noqa: F401
        self._package = Package()
        self._answers: list[Any] = []
        found: list[tuple] = []
        for name, functions in handed_in:
            first = len(self._answers)
            self._answers += filter(callable, functions)
            found.append((name, *range(first, len(self._answers))))
        return [one for n, one in enumerate(found) if [later[0] for later in found[n:]].count(one[0]) <= LATEST]

    def do_begin(self, exercise: str) -> None:
        """From now on only what this exercise may use of the package is open."""
        assert self._package
        self._package.close(exercise)

    def do_call(self, answer: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, tuple]:
        """What it returns, and its arguments as it left them."""
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            return answer(*args, **kwargs), args

    def do_through(self, module: str, function: str, args: tuple) -> Any:
        """What one of our own functions returns that watches an answer, and its arguments as they were left."""
        through = getattr(importlib.import_module(f"{EXERCISES}.{module}"), function)
        return through(*args), args

    def do_launch(self, name: str, source: str, args: tuple, options: dict[str, Any]) -> tuple:
        """Launch a kernel of the other side around the answer that is among its options; the arguments as it left them."""
        from flashlearn.exercises.launching import launch

        launch(_kernel(name, source), *args, **options)
        return args


@functools.cache
def _kernel(name: str, source: str) -> Callable:
    """The kernel as a function, from its source; Triton reads that source again."""
    filename = f"<kernel: {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    space: dict[str, Any] = {"tl": None, "__name__": "kernel"}
    exec(compile(source, filename, "exec", __future__.annotations.compiler_flag, dont_inherit=True), space)
    return space[name]


def _record(place: str, fields: dict[str, Any]) -> Any:
    """One of the package's own records, such as a GPU."""
    module, _, name = place.rpartition(".")
    return getattr(importlib.import_module(module), name)(**fields)


def _told(error: BaseException) -> tuple[str, str]:
    """Type and text of an error, without what Triton's interpreter wraps around it."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, WireError):
        return "ValueError", str(error)[:2000]
    try:
        return type(error).__name__[:60], str(error)[:2000]
    except BaseException as inner:  # its own __str__ may raise anything
        return type(error).__name__[:60], f"and its text raised {type(inner).__name__[:60]}"


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C reaches what runs inside, and nothing else here."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _shell():
    """IPython without a terminal and without a history: magics and `display` work, and Triton finds the source."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    return InteractiveShell.instance(config=config)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert inspect  # Triton's interpreter asks for sources
    Worker(socket.socket(fileno=int(sys.argv[1]))).serve()
