"""A process for students' code: without access to their files, limited, and ended with all that it starts."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

import flashlearn

PACKAGE = Path(flashlearn.__file__).resolve().parent
GIGABYTE = 2**30
PR_SET_DUMPABLE = 4  # <linux/prctl.h>
NOTEBOOK = 15  # times the seconds of a cell may a whole notebook take
FILES = 256 * 2**20  # bytes of the largest file that may be written
PASSES_ON = "SUPERVISOR_PASSES_ON"  # names the file descriptors that supervisor.py passes to the command


class Sandbox:
    """A running command in a new, empty folder, `folder`; a context manager at whose end nothing of it is left.

    `environment` is added to that of this process, or, if `clean`, to the little that Python needs; `memory` is in
    bytes. Python's safe path is on, and `flashlearn` is the package that runs here.
    """

    def __init__(
        self, command: Sequence[str], environment: dict[str, str], memory: int, folder: Path, *, clean: bool = False,
        pass_on: Sequence[int] = (),
    ):  # fmt: skip
        limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": FILES, "RLIMIT_DATA": memory}
        supervisor = str(Path(__file__).with_name("supervisor.py"))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor, json.dumps(limits), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=_inherited(folder, clean) | SEARCH_PATH | {PASSES_ON: " ".join(map(str, pass_on))} | environment,
            pass_fds=pass_on,
            start_new_session=True,  # a Ctrl-C at the terminal is for us; the end of the input is for the supervisor
        )

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def interrupt(self) -> None:
        """Interrupt it, as Ctrl-C does."""
        assert self._process.stdin
        with contextlib.suppress(OSError):  # it has just ended
            self._process.stdin.write(b"i")
            self._process.stdin.flush()


def closed_to_others() -> None:
    """Keep other processes of this user from reading or changing this one's memory. Linux only, and not against root."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def empty_folder() -> tempfile.TemporaryDirectory:
    """A new folder, removed at the end of `with`, whatever is in it."""
    return tempfile.TemporaryDirectory(prefix="flashlearn-", ignore_cleanup_errors=True)


def _search_path() -> dict[str, str]:
    """The environment that makes Python find this package and no file of the folder in which it starts."""
    paths = [str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    if PACKAGE.parent not in installed:
        paths.insert(0, str(PACKAGE.parent))
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


SEARCH_PATH = _search_path()  # now: a relative entry is relative to the folder in which this process started


def _inherited(folder: Path, clean: bool) -> dict[str, str]:
    """The environment of this process; if `clean`, no more of it than Python needs, and a home that is empty."""
    if not clean:
        return {**os.environ, "IPYTHONDIR": str(folder / "ipython")}
    keep = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "TZ", "OMP_NUM_THREADS", "SYSTEMROOT")
    own = dict.fromkeys(("HOME", "TMPDIR", "IPYTHONDIR"), str(folder))
    return {name: os.environ[name] for name in keep if name in os.environ} | own
