"""Kernels for nbval that start as copies of one process: PyTorch is imported once for all notebooks of a worker.

    pytest -p tests.forked --nbval notebooks

Of a short notebook's time nearly all is that import. The process holds nothing else: flashlearn is imported by each
notebook anew. On Linux only; elsewhere, and without this plugin, a kernel starts as ever: so do those of the
browser tests, which run every notebook too.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

# What the notebooks' first cells import, of other projects, and torch.distributed.tensor, which the first assert_close
# imports for a second. Nothing that starts a thread, which a copy would not have.
IMPORTED = (
    "ipykernel.kernelapp",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "anywidget",
    "torch",
    "torch.distributed.tensor",
)
FIRST_PORT, PORTS = 20000, 100  # below those that Linux gives out, from 32768 on; so many for each worker


class Kernel:
    """A kernel's process, with what jupyter_client asks of a subprocess.Popen; it is a child of `Source`'s, not ours."""

    stdin = stdout = stderr = None

    def __init__(self, source: Source, pid: int):
        self.source, self.pid, self.returncode = source, pid, None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = 1 if self.source.closed else self.source.ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        over = time.monotonic() + (float("inf") if timeout is None else timeout)
        while self.poll() is None:
            if time.monotonic() > over:
                raise subprocess.TimeoutExpired("kernel", timeout)
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Source:
    """The process that is copied, started when the first kernel is asked for; it ends with this one."""

    def __init__(self):
        self.process, self.closed = None, False

    def ask(self, question: dict) -> int | None:
        if self.process is None:
            command, pipe = [sys.executable, __file__], subprocess.PIPE
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, text=True, start_new_session=True, encoding="utf-8"
            )
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.closed = True
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def pytest_configure(config) -> None:
    if sys.platform != "linux" or not config.pluginmanager.hasplugin("nbval"):
        return
    from jupyter_client.connect import LocalPortCache
    from jupyter_client.provisioning import local_provisioner

    source, start, find = Source(), local_provisioner.launch_kernel, LocalPortCache.find_available_port

    def launch_kernel(command, cwd=None, env=None, **more):
        if command[1:3] != ["-m", "ipykernel_launcher"]:
            return start(command, cwd=cwd, env=env, **more)
        env = dict(os.environ if env is None else env)
        return Kernel(source, source.ask({"arguments": command[3:], "cwd": cwd or os.getcwd(), "env": env}))

    def undo():
        local_provisioner.launch_kernel, LocalPortCache.find_available_port = start, find
        source.close()

    ports = own_ports(os.environ.get("PYTEST_XDIST_WORKER", ""))
    local_provisioner.launch_kernel = launch_kernel
    LocalPortCache.find_available_port = lambda self, ip: next(port for port in ports if is_free(ip, port))
    config.add_cleanup(undo)


def own_ports(worker: str) -> Iterator[int]:
    """The ports of a worker, "gw3" say, one after the other, for ever.

    A kernel opens its ports a second after they were found free. Where the system gives them out, two kernels of two workers
    may be given the same one meanwhile, and then one of them dies.
    """
    first = FIRST_PORT + PORTS * (int(worker.lstrip("gw") or 0) % PORTS)
    return itertools.cycle(range(first, first + PORTS))


def is_free(ip: str, port: int) -> bool:
    """Whether nobody has opened this port."""
    with socket.socket() as mine:
        try:
            mine.bind((ip, port))
        except OSError:
            return False
    return True


def copy(arguments: list[str], cwd: str, env: dict[str, str]) -> int:
    """Start a kernel in a copy of this process; its id, once it leads a process group of its own."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell)
        os.read(told, 1)
        os.close(told)
        return pid
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    for each in (tell, told, nowhere):
        os.close(each)
    run(arguments, cwd, env)


def run(arguments: list[str], cwd: str, env: dict[str, str]) -> None:
    """What `python -m ipykernel_launcher` does; the kernel ends when the process that it was copied from does."""
    from ipykernel import kernelapp

    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["ipykernel_launcher", *arguments, f"--IPKernelApp.parent_handle={os.getppid()}"]
    try:
        kernelapp.launch_new_instance()
    finally:
        os._exit(0)


def ended(pid: int) -> int | None:
    """The exit status of a kernel, None while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def serve() -> None:
    """Answer questions until nobody asks."""
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # as a kernel does
    for name in IMPORTED:
        __import__(name)
    for line in sys.stdin:
        question = json.loads(line)
        answer = ended(question["ended"]) if "ended" in question else copy(**question)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    del sys.path[0]  # the tests' folder; a kernel puts the notebook's in its place
    serve()
