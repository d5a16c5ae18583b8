"""Grades the functions of a notebook in an examination: they run in a separate process, and are compared here.

The process (worker.py) gets inputs and returns numbers and tensors; expected values, tolerances and the comparison stay
here. A function that a test passes to an answer (a softmax, a mutant of attention) runs here too.

A test calls its answer, or passes it to a function that watches it, such as `watched` of watching.py. Such a function
runs in the answer's process.
"""

from __future__ import annotations

import importlib
import inspect
import os
import random
import signal
import site
import socket
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from flashlearn.core.steps import Step, Tile
from flashlearn.course import numbered
from flashlearn.course.triton_forward.mutation_lab import EXERCISE as LAB
from flashlearn.course.triton_forward.mutation_lab import MUTANTS, Mutant, build, right
from flashlearn.exercises import EXERCISES
from flashlearn.exercises.assessment import grade
from flashlearn.grading.messages import Channel, MessageError, error_of
from flashlearn.grading.record import NOT_ATTEMPTED, REMARK, Entry
from flashlearn.grading.sandbox import NOTEBOOK, PACKAGE, SEARCH_PATH, Sandbox, empty_folder
from flashlearn.grading.stripped import PROVIDED, stripped

START, GRACE, STARTS = 120, 10, 8  # seconds to start, and to heed an interrupt; starts of the process for one notebook
MOST_TRIES, MOST_TESTS = 10, 20  # functions graded for one exercise; tests for the lab at once
RIGHT = 5  # how often the right implementation is among the mutants, in random order
LONGER = 4  # the lab's tests may take this multiple of the seconds for one function: each runs some twenty times
SMALL = 2**16  # the maximum numbers of elements of q, k and scores with which a test of the lab may call attention
AGAIN = 1.0  # seconds between two alarms

T = TypeVar("T")


class OutOfTime(BaseException):
    """Raised in any running code: a BaseException, which `except Exception` does not catch."""


@contextmanager
def time_limit(end: float) -> Iterator[None]:
    """OutOfTime inside, from `end` on (time.monotonic()), and again if it is caught; in the main thread alone."""

    def alarm(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, max(end - time.monotonic(), 0.001), AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Again(RuntimeError):
    """The process is gone, and another must be started."""


def grade_cells(sources: Sequence[str], timeout: int, memory: int, own_work: bool = False) -> tuple[list[Entry], str]:
    """The outcomes of the functions that the cells submit, and other failures, "" if there were none.

    `timeout` is in seconds, for one cell and for all tests of one function; the notebook has `NOTEBOOK` times that.
    `memory` is in bytes. With `own_work` functions fail where they call one that does the whole task.
    """
    session = Session(sources, timeout, memory, own_work)
    try:
        session.run()
    finally:
        session.close()
    return session.entries, session.problem


class Session:
    """The process of one notebook. A function is graded when it is submitted, while its cell waits for `check`.

    A process that ends is started again, without the cell that ended it; functions are graded once.
    """

    def __init__(self, sources: Sequence[str], timeout: int, memory: int, own_work: bool = False):
        self._sources, self._timeout, self._memory = dict(enumerate(sources)), timeout, memory
        self._own_work = own_work
        self._stack = ExitStack()
        self._channel: Channel | None = None
        self._functions: dict[int, Callable] = {}
        self._exercise_now = ""
        self._position = (0, 0)  # of the next submission: the number of the cell, and how many came before in that cell
        self._graded: set[tuple[int, int]] = set()
        self._deadline, self._end, self._requests = 0.0, 0.0, 0
        self.entries: list[Entry] = []
        self.problem = ""

    def close(self) -> None:
        """End the process and all that it started."""
        self._channel = None
        self._stack.close()

    # Running the cells

    def run(self) -> None:
        """Run all cells, whatever fails, and grade what they submit."""
        self._end = time.monotonic() + NOTEBOOK * self._timeout
        for _ in range(STARTS):
            try:
                self._start()
                for number, source in list(self._sources.items()):
                    if time.monotonic() > self._end:
                        self.problem = f"the notebook took longer than {NOTEBOOK * self._timeout} s"
                        return
                    self._run(number, source)
                return
            except _Again:
                self.close()
        self.problem += ", again and again"

    def _start(self) -> None:
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(empty_folder()))
        package = stripped(Path(self._stack.enter_context(empty_folder())))
        ours, theirs = socket.socketpair()
        self._stack.callback(ours.close)
        worker = package / "grading" / "worker.py"
        command = [sys.executable, "-P", str(worker), str(theirs.fileno()), str(PACKAGE)]
        with theirs:
            sandbox = Sandbox(
                command, _environment(package), self._memory, folder, clean=True, pass_on=[theirs.fileno()]
            )
        self._sandbox = self._stack.enter_context(sandbox)
        self._channel = Channel(ours, self)
        try:
            self._channel.receive(time.monotonic() + START)
        except (EOFError, TimeoutError, MessageError):
            self.problem = "the process did not start"
            raise _Again from None

    def _run(self, number: int, source: str) -> None:
        """Run one cell; _Again if the process is gone then."""
        self._position = (number, 0)
        try:
            self._request({"do": "cell", "source": source}, time.monotonic() + self._timeout)
        except TimeoutError:
            self.problem = f"a cell took longer than {self._timeout} s"
        except (EOFError, MessageError):
            self.problem = "a cell ended the process"
            self.close()
        except _Again:
            raise  # not of the cell
        except Exception as error:  # sent by a process that misbehaves
            self.problem = f"a cell ended with {type(error).__name__}"
        if self._channel is None:
            del self._sources[number]
            raise _Again

    # Grading

    def _grade(self, exercise: Any, answers: Any) -> None:
        """Grade what a cell submitted, unless that was done before the process was started again."""
        position = self._position
        self._position = (position[0], position[1] + 1)
        if position in self._graded:
            return
        self._graded.add(position)
        if type(answers) is not int or not 0 < answers <= MOST_TESTS or not isinstance(exercise, str):
            return
        exercise = numbered(exercise)
        if exercise not in (LAB, *EXERCISES):
            return
        tries = sum(entry.exercise == exercise for entry in self.entries)
        if tries >= MOST_TRIES or time.monotonic() > self._end:
            return
        self._deadline = time.monotonic() + self._timeout
        self._functions.clear()
        self._exercise_now = exercise
        functions = [Answer(self, number) for number in range(answers)]
        if exercise == LAB:
            self._deadline = time.monotonic() + LONGER * self._timeout
            late = Entry(LAB, 0, len(MUTANTS), f"longer than {LONGER * self._timeout} s")
            entry = self._limited(lambda: self._lab(functions), late)
        else:
            entry = self._exercise(exercise, functions[0])
        self.entries.append(entry)
        self._functions.clear()  # a cell has nothing to call
        self._exercise_now = ""

    def _exercise(self, name: str, function: Answer) -> Entry:
        report = grade(EXERCISES[name], function, own_work=self._own_work, limited=self._limited)
        tests = len(EXERCISES[name].cases)
        if not report.rows:
            return Entry(name, 0, tests, NOT_ATTEMPTED)
        failed = [f"{row.case}: {row.detail}" for row in report.rows if not row.passed]
        remark = next(filter(None, (report.diagnosis, *(note.text for note in report.notes), *failed)), "")
        passed = sum(row.passed for row in report.rows)
        return Entry(name, passed, tests, " ".join(remark.split())[:REMARK], report.core_passed)

    def _limited(self, action: Callable[[], T], otherwise: T) -> T:
        """The result of the action; after the deadline the process is ended, and the result is `otherwise`. The process
        has its own deadline; this one is for the computation here.
        """
        try:
            with time_limit(max(self._deadline, time.monotonic()) + GRACE + 1):
                return action()
        except OutOfTime:
            self.close()
            return otherwise

    def _lab(self, tests: list[Answer]) -> Entry:
        """Run each test on the mutants that are left and on the right implementation, in random order.

        A test that fails the right one, or that fails a mutant once and not again, does not count.
        """
        killed: set[str] = set()
        remarks = []
        for test in tests:
            failed, problem = self._failed(test, [mutant for mutant in MUTANTS if mutant.name not in killed])
            again, other = self._failed(test, failed) if failed else (failed, "")
            remarks.append(problem or other or ("" if again == failed else "a test gives two verdicts on one mutant"))
            killed |= set() if remarks[-1] else {mutant.name for mutant in failed}
        if remarks and all(remark == NOT_ATTEMPTED for remark in remarks):
            return Entry(LAB, 0, len(MUTANTS), NOT_ATTEMPTED)
        return Entry(LAB, len(killed), len(MUTANTS), next(filter(None, remarks), ""))

    def _failed(self, test: Answer, mutants: Sequence[Mutant]) -> tuple[list[Mutant], str]:
        """The mutants that a test fails, and the fault of the test, "" if it has none."""
        order: list[Mutant | None] = [*mutants, *[None] * RIGHT]
        random.SystemRandom().shuffle(order)
        failed = set()
        for mutant in order:
            problem = _failure(test, Attention(self, mutant))
            if isinstance(problem, NotImplementedError):
                return [], NOT_ATTEMPTED
            if isinstance(problem, ProcessLookupError | TimeoutError):
                return [], str(problem)
            if problem is not None and mutant is None:
                return [], f"the right kernel fails a test too: {type(problem).__name__}"
            if problem is not None and mutant is not None:
                failed.add(mutant.name)
        return [mutant for mutant in mutants if mutant.name in failed], ""

    # Requests

    def request(self, message: dict[str, Any]) -> Any:
        """The answer of the process; its errors are raised here, and TimeoutError when the function's time is up."""
        if self._channel is None:
            raise ProcessLookupError("the process had ended before")
        try:
            return self._request(message, self._deadline)
        except EOFError:
            self.close()
            raise ProcessLookupError("the process ended") from None
        except MessageError as error:
            self.close()
            raise ValueError(str(error)) from None
        except TimeoutError:
            raise TimeoutError(f"longer than {self._timeout} s") from None

    def _request(self, message: dict[str, Any], deadline: float) -> Any:
        channel = self._channel
        assert channel
        self._requests += 1
        number = self._requests
        channel.send(message | {"number": number}, deadline)
        late = False
        while True:
            try:
                reply = channel.receive(deadline)
            except TimeoutError:
                if late:
                    self.close()
                    raise
                self._sandbox.interrupt()
                late, deadline = True, time.monotonic() + GRACE
                continue
            if not isinstance(reply, dict):
                raise MessageError("expected an answer")
            if reply.get("number") != number:
                raise MessageError("expected the answer to this request, got another")
            if "callback" in reply:
                channel.send(self._call_back(reply, late), deadline)
            elif "submitted" in reply and message["do"] == "cell":
                left = deadline - time.monotonic()
                self._grade(reply["submitted"], reply.get("answers"))
                if self._channel is None:
                    raise _Again  # a function that was graded has ended the process, not the cell
                deadline = time.monotonic() + left
                channel.send({"do": "go_on"}, deadline)
            elif late:
                raise TimeoutError
            elif "value" in reply:
                return reply["value"]
            else:
                raise error_of(reply.get("error"))

    def _call_back(self, reply: dict[str, Any], late: bool) -> dict[str, Any]:
        """Call a function of ours for the process: the reply, with whatever it raised."""
        try:
            if late:
                raise TimeoutError("no time left")
            name, args, kwargs = (reply[key] for key in ("callback", "args", "kwargs"))
            return {"value": self._function(*name)(*args, **kwargs)}
        except Exception as error:  # for any message from the student's side
            return {"error": (type(error).__name__, str(error)[:2000])}

    def _function(self, kind: str, name: Any) -> Callable:
        """A function that was passed to the process, or one of the package that the exercise may use."""
        if kind != "package":
            return self._functions[name]
        if name not in PROVIDED.get(self._exercise_now, ()):
            raise PermissionError(f"expected a function of your own, got {name} of the package")
        module, _, function = name.rpartition(".")
        return getattr(importlib.import_module(module), function)

    # What crosses in addition to numbers and tensors

    def name(self, value: Any) -> Any:
        """The name by which a function, or a record such as a GPU, crosses."""
        if isinstance(value, Answer):
            return "answer", value.number
        kind = type(value)
        if is_dataclass(value) and not isinstance(value, type) and kind.__module__.startswith("flashlearn.cost."):
            content = {field.name: getattr(value, field.name) for field in fields(value)}
            return "record", f"{kind.__module__}.{kind.__qualname__}", content
        if callable(value):
            self._functions[id(value)] = value  # kept, so that no other gets the number
            return "attention" if isinstance(value, Attention) else "function", id(value)
        return None

    @staticmethod
    def make(name: Any) -> Any:
        """A step or a tile that a recorded kernel made."""
        if isinstance(name, tuple) and name and name[0] == "tile":
            _, tensor, index, itemsize, times = name
            if not all(type(n) is int for n in (itemsize, times, *(n for bounds in index for n in bounds))):
                raise MessageError("expected a tile with numbers")
            return Tile(str(tensor), index, itemsize, times)
        if isinstance(name, tuple) and name and name[0] == "step":
            return Step(**name[1])
        raise MessageError("expected a step or a tile")


class Answer:
    """A function in the student's process, to be called as if it were here."""

    def __init__(self, session: Session, number: int):
        self._session, self.number = session, number
        self.__name__ = "answer"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value, left = self._session.request({"do": "call", "answer": self, "args": args, "kwargs": kwargs})
        _update(args, left)
        return value

    def run_there(self, function: Callable, *args: Any) -> Any:
        """What a function of `flashlearn.exercises` returns for this answer and `args`, called over there."""
        module = function.__module__.removeprefix("flashlearn.exercises.")
        message = {"do": "run", "module": module, "function": function.__name__, "args": (self, *args)}
        value, (_, *left) = self._session.request(message)
        _update(args, left)
        return value

    def launch_there(self, kernel: Callable, args: Sequence[Any], options: dict[str, Any]) -> list:
        """Launch a kernel of ours around this answer, as `launch` does, and update the tensors in `args`."""
        source = textwrap.dedent(inspect.getsource(kernel))
        message = {"do": "launch", "name": kernel.__name__, "source": source, "args": tuple(args), "options": options}
        turned, left = self._session.request(message)
        _update(args, left)
        return list(turned)


class Attention:
    """An implementation of attention for a test of the lab, computed here, forward and backward."""

    def __init__(self, session: Session, mutant: Any):
        self._session, self._mutant = session, mutant

    def __call__(self, what: str, q, k, v, causal, scale, *gradients) -> Any:
        for t in (q, k, v):
            if not isinstance(t, torch.Tensor):
                raise TypeError(f"expected tensors, got {type(t).__name__}")
        if max(q.numel(), k.numel(), v.numel(), q.numel() // q.shape[-1] * k.shape[-2]) > SMALL:
            raise ValueError(f"expected tensors and scores of at most {SMALL} elements, got more")
        attention = build(self._mutant) if self._mutant else right()
        if what == "forward":
            return attention(q, k, v, causal=causal, scale=scale, return_lse=True)
        inputs = [t.detach().requires_grad_() for t in (q, k, v)]
        return torch.autograd.grad(attention(*inputs, causal=causal, scale=scale, return_lse=True), inputs, gradients)


def _failure(test: Answer, attention: Attention) -> Exception | None:
    """How a test failed, None if it passed."""
    try:
        with np.errstate(all="ignore"):
            result = test(attention)
        return None if result is None or bool(result) else AssertionError("it returned False")
    except Exception as problem:  # whatever it raises is its verdict
        return problem


def _update(args: Sequence[Any], left: Any) -> None:
    """Give tensors in `args` the content with which a function left them."""
    if not isinstance(left, tuple | list) or len(left) != len(args):
        raise MessageError("expected the arguments back")
    for arg, now in zip(args, left, strict=True):
        if isinstance(arg, torch.Tensor):
            if not isinstance(now, torch.Tensor) or (now.shape, now.dtype) != (arg.shape, arg.dtype):
                raise ValueError("expected arguments of the same shape, got others: a function may not resize them")
            if not torch.equal(arg, now):  # nor are they with a NaN in them, and then a copy does no harm
                with torch.no_grad():
                    arg.copy_(now)


def _environment(package: Path) -> dict[str, str]:
    """The environment of the process; `package` is the one that it imports."""
    paths = SEARCH_PATH["PYTHONPATH"].split(os.pathsep)
    others = (path for path in paths if Path(path) != PACKAGE.parent)
    return {
        "PYTHONPATH": os.pathsep.join((str(package.parent), *others)),
        "TRITON_INTERPRET": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "MPLBACKEND": "agg",
        "FLASHLEARN_REDUCED_MOTION": "1",  # no time is spent on pictures
        "PYTHONUSERBASE": site.getuserbase(),  # its home is empty: packages installed for this user are still found
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
