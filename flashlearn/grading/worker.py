"""The process with the student's functions: it runs the cells of a notebook, and calls functions on request.

    python -P worker.py SOCKET PACKAGE

It gets inputs and returns the functions' results (messages.py); it does not have the right ones. It imports a copy of
the package that has no answers (stripped.py). Of `flashlearn.exercises` there is only what a notebook needs: a `check`
and a `run_lab` that submit a function and do not say how it was graded. PACKAGE is the package itself, which it cannot
access.

The student controls this process: its messages are answers to be graded, and nothing more.
"""

from __future__ import annotations
import __future__

import contextlib
import functools
import importlib
import inspect
import linecache
import os
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

PACKAGE = Path(__file__).parents[1]  # a copy without answers (stripped.py)
EXERCISES = "flashlearn.exercises"
SYSTEM = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/nix", "/proc", "/sbin", "/sys", "/usr")  # that anybody may read


class Submitted:
    """The return value of `check` and `run_lab` here: no outcome."""

    passed = attempted = False
    rows = misconceptions = verdicts = survivors = rejected = ()
    headline = diagnosis = ""

    def __init__(self, exercise: str):
        self.exercise = exercise

    def __repr__(self) -> str:
        return f"Exercise {self.exercise}: submitted"


def check(name: str, function: Callable) -> Submitted:
    return Worker.it.submit(str(name), function)


def run_lab(*tests: Callable) -> Submitted:
    return Worker.it.submit("12.mutants", *tests)


def _stand_in(name: str, **content: Any) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(content)
    sys.modules[name] = module


SILENT = dict.fromkeys(("hint", "lines", "predict"), lambda *args, **kwargs: None)
_stand_in(EXERCISES, check=check, **SILENT, __path__=[str(PACKAGE / "exercises")])
_stand_in("flashlearn.course.triton_forward.mutation_lab", run_lab=run_lab, diff=lambda name: "")
import flashlearn  # noqa: E402  after the stand-ins

flashlearn.exercises = sys.modules[EXERCISES]  # type: ignore[attr-defined]

from flashlearn.core.steps import Step, Tile  # noqa: E402
from flashlearn.grading import stand_ins  # noqa: E402
from flashlearn.grading.landlock import fence, version, without  # noqa: E402
from flashlearn.grading.messages import Channel, MessageError, error_of  # noqa: E402

# What is out of reach


def close_off(package: Path) -> None:
    """Keep this process, and all that it starts, from the installed package, from other files and from the network.

    Without Landlock only Python itself is kept from the package and from starting processes: that is no sandbox.
    """
    paths = {Path(path).resolve() for path in sys.path if Path(path).is_dir()} - {PACKAGE.parent}
    hidden = [package, *(path / PACKAGE.name for path in paths)]
    if version():
        roots = {Path(path).resolve() for path in (sys.prefix, sys.base_prefix, *SYSTEM) if Path(path).exists()}
        roots |= {
            path for path in paths if not (path / "pyproject.toml").exists()
        }  # none where the package is developed
        readable = [path for root in sorted(roots) for path in without(root, hidden)]
        fence([*readable, PACKAGE], [Path.cwd(), Path("/dev/null")])
    sys.addaudithook(functools.partial(_audit, tuple(f"{path}{os.sep}" for path in hidden)))


STARTS = (
    "subprocess.Popen",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "pty.spawn",
)
# Except for the compiler, which flashlearn.compiler starts; the second takes a folder, too
PYTHON = [sys.executable, "-W", "ignore"]
COMPILER = [*PYTHON, str(PACKAGE / "compiler" / "process.py")]
GLUON = [*PYTHON, "-m", "flashlearn.compiler.compiled_source"]


def _audit(hidden: tuple[str, ...], event: str, args: tuple) -> None:
    """Called by Python for every event that it reports; see PEP 578."""
    if event == "open" and isinstance(args[0], str | bytes):
        if os.path.realpath(os.fsdecode(args[0])).startswith(hidden):
            raise PermissionError(f"expected a file that an answer may read, got {os.fsdecode(args[0])}")
    compiles = event == "subprocess.Popen" and (args[1] == COMPILER or args[1][:-1] == GLUON)
    if event in STARTS and not compiles:
        raise PermissionError(f"expected an answer that starts no other process, got {event}")


# What the other side may request


class Remote:
    """A function of the other side: a call goes there, and its result comes back."""

    def __init__(self, channel: Channel, name: Any):
        self._channel, self._name = channel, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        Worker.it.send({"callback": self._name, "args": args, "kwargs": kwargs})
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
    """Answers one message after another, until none comes."""

    it: Worker  # the only one

    def __init__(self, end: socket.socket):
        Worker.it = self
        self._channel = Channel(end, self)
        self._process, self._number = os.getpid(), 0  # and the number of the present request
        self._answers: list[Callable] = []
        self._shell = _shell()
        stand_ins.request = self.provided

    def submit(self, exercise: str, *functions: Callable) -> Submitted:
        """Have functions graded, while the cell waits. What an answer submits while it is called does not count."""
        answers = [_function(answer) for answer in functions if callable(answer) or isinstance(answer, str | list)]
        if not self._answers and answers and threading.current_thread() is threading.main_thread():
            self._answers = answers
            with _uninterruptible():
                self.send({"submitted": exercise, "answers": len(answers)})
                number = self._number
                self.serve("go_on")
                self._number = number
            self._answers = []
        return Submitted(exercise)

    def provided(self, name: str, args: tuple, options: dict[str, Any]) -> Any:
        """The other side's result for a function of the package, if the exercise may use it."""
        if not self._answers:
            return stand_ins.Closed(name)()
        return Remote(self._channel, ("package", name))(*args, **options)

    def name(self, value: Any) -> Any:
        """Functions do not leave this process; the steps of a recorded kernel do."""
        if isinstance(value, Tile):
            return "tile", value.name, value.index, value.itemsize, value.times
        if isinstance(value, Step):
            values = {tile.name: value.values[tile.name] for tile in value.writes if tile.name in value.values}
            fields = ("phase", "program", "reads", "writes", "on_chip", "matmuls", "output")
            content = {name: getattr(value, name) for name in fields}
            return "step", content | {"shapes": dict(value.shapes), "values": values}
        return None

    def make(self, name: Any) -> Any:
        kind, *rest = name
        if kind == "answer":
            return self._answers[rest[0]]
        if kind == "record":
            return _record(*rest)
        remote = Remote(self._channel, name)
        return _attention(remote) if kind == "attention" else remote

    def serve(self, until: str = "") -> None:
        """Answer requests until the message `until`, or until the other side is gone."""
        while True:
            try:
                message = self._channel.receive()
            except EOFError:
                os._exit(0)
            do = message.pop("do")
            if do == until:
                return
            self._number = message.pop("number")
            self._reply(getattr(self, f"do_{do}"), message)

    def _reply(self, do: Callable, message: dict[str, Any]) -> None:
        try:
            with _interruptible():
                value = do(**message)
            self.send({"value": value})
        except BaseException as error:  # whatever a student's function raises is its answer
            self.send({"error": _described(error)})

    def send(self, message: dict[str, Any]) -> None:
        """Send something about the present request; a forked copy of this process ends instead."""
        if os.getpid() != self._process:
            os._exit(0)
        self._channel.send(message | {"number": self._number})

    def do_cell(self, source: str) -> None:
        self._shell.run_cell(source, store_history=True)

    def do_call(self, answer: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, tuple]:
        """Its result, and its arguments afterwards."""
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            return answer(*args, **kwargs), args

    def do_run(self, module: str, function: str, args: tuple) -> Any:
        """The result of a function of ours that watches an answer, and its arguments afterwards."""
        return getattr(importlib.import_module(f"{EXERCISES}.{module}"), function)(*args), args

    def do_launch(self, name: str, source: str, args: tuple, options: dict[str, Any]) -> tuple:
        """Launch a kernel of the other side around the answer in its options: shapes it transposed, and its arguments."""
        from flashlearn.exercises.launching import launch

        return launch(_kernel(name, source), *args, **options), args


def _function(answer: Any) -> Callable:
    """The answer, or, where lines are to be put in order, a function that returns their letters."""
    return answer if callable(answer) else lambda: answer


@functools.cache
def _kernel(name: str, source: str) -> Callable:
    """The kernel as a function, from its source; Triton reads that source again."""
    filename = f"<kernel: {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    space: dict[str, Any] = {"tl": None, "__name__": "kernel"}
    exec(compile(source, filename, "exec", __future__.annotations.compiler_flag, dont_inherit=True), space)
    return space[name]


def _record(path: str, fields: dict[str, Any]) -> Any:
    """One of the package's own records, such as a GPU."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)(**fields)


def _described(error: BaseException) -> tuple[str, str]:
    """Type and text of an error, without the wrapping of Triton's interpreter."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, MessageError):
        return "ValueError", str(error)[:2000]
    try:
        return type(error).__name__[:60], str(error)[:2000]
    except BaseException as inner:  # its own __str__ may raise anything
        return type(error).__name__[:60], f"and its text raised {type(inner).__name__[:60]}"


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C interrupts code inside, and nothing else here."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def _uninterruptible() -> Iterator[None]:
    """No Ctrl-C inside, except for what is `_interruptible`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
    assert inspect  # Triton's interpreter needs sources
    worker = Worker(socket.socket(fileno=int(sys.argv[1])))
    close_off(Path(sys.argv[2]))
    worker._channel.send("ready")
    worker.serve()
