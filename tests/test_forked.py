"""Kernels copied from one process: each by itself, with nothing of the course in it, and none is left behind."""

import itertools
import os
import signal
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="kernels are copied on Linux only")]
nbval = pytest.importorskip("nbval.kernel")
from tests import forked  # noqa: E402

SAYS = """import os, sys
course = sorted(name for name in sys.modules if name.split(".")[0] in ("flashlearn", "triton", "tests"))
print(os.getcwd(), os.environ.get("ONLY_HERE"), "torch" in sys.modules, course, os.getpgid(0) == os.getpid())
x = 1"""


@pytest.fixture
def start(monkeypatch):
    """nbval's `start_new_kernel` with the plugin at work, as in a run of pytest; afterwards it is as before."""
    undo, started = [], []

    class Config:
        pluginmanager = type("Plugins", (), {"hasplugin": staticmethod(lambda name: name == "nbval")})
        add_cleanup = undo.append

    forked.pytest_configure(Config)

    def one(**more):
        started.append(nbval.start_new_kernel(kernel_name=nbval.CURRENT_ENV_KERNEL_NAME, **more))
        return started[-1]

    yield one
    for manager, client in started:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    undo[0]()


def told(client, code):
    """What a cell prints."""
    client.execute(code)
    while (message := client.get_iopub_msg(timeout=30))["msg_type"] not in ("stream", "error"):
        pass
    return message["content"].get("text", "").strip()


def test_each_is_a_process_of_its_own_with_nothing_of_the_course(start, tmp_path, monkeypatch):
    monkeypatch.setenv("ONLY_HERE", "yes")
    (one, its), (other, ones) = start(cwd=str(tmp_path)), start(cwd=str(tmp_path))
    assert type(one.provisioner.process) is forked.Kernel
    assert told(its, SAYS) == f"{tmp_path} yes True [] True"
    assert told(ones, "print('x' in dir(), __name__)") == "False __main__"
    assert told(ones, "import matplotlib; print(matplotlib.get_backend())").endswith("inline")
    assert one.provisioner.pid != other.provisioner.pid


def test_no_two_workers_give_a_kernel_the_same_port(start):
    ports = [set(itertools.islice(forked.own_ports(worker), 2 * forked.PORTS)) for worker in ("", "gw1", "gw31")]
    assert [len(each) for each in ports] == [forked.PORTS] * 3 and not ports[0] & ports[1] | ports[1] & ports[2]
    given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8").split()[0])
    assert max(set.union(*ports)) < given, "the system gives out others"
    first, second = start()[0], start()[0]
    mine = set(itertools.islice(forked.own_ports(os.environ.get("PYTEST_XDIST_WORKER", "")), forked.PORTS))
    taken = [
        getattr(kernel, f"{name}_port") for kernel in (first, second) for name in ("shell", "iopub", "hb", "control")
    ]
    assert len(set(taken)) == len(taken) and mine.issuperset(taken)
    assert not forked.is_free(first.ip, first.shell_port)


def test_a_kernel_that_dies_is_noticed_and_none_outlives_the_process_it_is_a_copy_of(start):
    (one, its), (other, _) = start(), start()
    its.execute("import os; os._exit(3)")
    assert one.provisioner.process.wait(20) == 3
    source = other.provisioner.process.source
    assert other.provisioner.process.poll() is None
    other.provisioner.process.send_signal(signal.SIGINT)
    assert told(start()[1], "print('still here')") == "still here"
    pid = other.provisioner.pid
    source.close()
    over = time.monotonic() + 20
    while alive(pid):
        assert time.monotonic() < over, "it went on"
        time.sleep(0.1)


def alive(pid):
    """Whether a process of that id runs; one that ended and that nobody asked about does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
