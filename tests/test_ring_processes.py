"""Real processes: the same results as one, and what happens when one of them dies. All must have ended in the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from flashlearn.algorithms.attention import standard_attention
from flashlearn.ring import processes as helper
from flashlearn.ring.processes import processes, threads

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]


def attend(group, q, k, v):
    from flashlearn.ring import join, ring_attention, split

    here = {"order": "zigzag", "group": group}
    print(f"process {group.rank()} of {group.size()}")
    return join(ring_attention(*(split(t, **here) for t in (q, k, v)), causal=True, **here), **here)


def die(group, how):
    import os
    import signal

    import torch

    from flashlearn.ring import ring_attention

    q = torch.randn(1, 2, 4, 8)
    ring_attention(q, q, q, order="plain", group=group)
    if group.rank() == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("no wish to go on")
    ring_attention(q, q, q, order="plain", group=group)


def sleep(group, folder):
    import os
    import time
    from pathlib import Path

    (Path(folder) / f"{group.rank()}").write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(60)


@pytest.fixture
def started(monkeypatch):
    """The processes that were started; none of them may be left."""
    found = []
    start = subprocess.Popen

    def note(*args, **kwargs):
        found.append(start(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(helper.subprocess, "Popen", note)
    yield found
    assert found and all(process.poll() is not None for process in found)


def test_processes_equal_one(started, capsys):
    q, k, v = (torch.randn(1, 2, 13, 8, dtype=torch.float64) for _ in range(3))
    results = processes(3, attend, q, k, v)
    for result in results:
        torch.testing.assert_close(result, standard_attention(q, k, v, causal=True))
    assert capsys.readouterr().out.splitlines() == [f"[{r}] process {r} of 3" for r in range(3)]


@pytest.mark.parametrize(
    "how, words", [("killed", "process 1: ended by signal 9"), ("raised", "ValueError: no wish to go on")]
)
def test_survivors_say_whom_they_lost(started, how, words):
    begin = time.monotonic()
    with pytest.raises(RuntimeError) as told:
        processes(3, die, how, limit=40)
    assert words in str(told.value) and str(told.value).count("lost another one") == 2
    assert time.monotonic() - begin < 30


def test_time_is_limited(started, tmp_path):
    with pytest.raises(TimeoutError, match="within 3 seconds"):
        processes(2, sleep, str(tmp_path), limit=3)


def hang(group):
    import time
    from datetime import timedelta

    import torch

    from flashlearn.ring import ring_attention

    assert group.options._timeout == timedelta(seconds=20), "half of the limit"
    group._set_default_timeout(timedelta(seconds=3))  # all are there: nobody need wait for another's imports
    if group.rank() == 1:
        time.sleep(120)
    q = torch.randn(1, 2, 4, 8)
    ring_attention(q, q, q, order="plain", group=group)


def test_who_waits_for_a_process_that_hangs_is_told_before_the_time_is_over(started):
    with pytest.raises(RuntimeError, match="process 1: was still running, and was ended") as told:
        processes(3, hang, limit=40)
    assert str(told.value).count("lost another one") == 2


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_a_cell_is_interrupted_or_killed(sign, tmp_path):
    # whoever runs the tests in the background may have told all programs to ignore SIGINT
    program = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from tests.test_ring_processes import sleep\nfrom flashlearn.ring.processes import processes\n"
    program += f"processes(2, sleep, {str(tmp_path)!r}, limit=60)"
    cell = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.DEVNULL)
    until(
        lambda: (
            len(list(tmp_path.glob("[01]"))) == 2 and all(p.read_text(encoding="utf-8") for p in tmp_path.glob("[01]"))
        ),
        40,
    )
    pids = [int(path.read_text(encoding="utf-8")) for path in tmp_path.glob("[01]")]
    cell.send_signal(sign)
    assert cell.wait(timeout=20) != 0
    until(lambda: not any(alive(pid) for pid in pids), 20)


def until(done, seconds: float) -> None:
    over = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < over, f"not within {seconds} seconds"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")  # a process that nobody has waited for yet has ended all the same
    return not (status.exists() and status.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z")


WITHOUT = ["unshare", "--user", "--map-root-user", "--net"]
can_unshare = shutil.which("unshare") and subprocess.run([*WITHOUT, "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_unshare, reason="this machine does not let a test take its network away")
def test_without_a_network_there_is_an_error_soon():
    program = "from tests.test_ring_processes import nothing\nfrom flashlearn.ring.processes import threads\n"
    program += "threads(2, nothing, limit=5)"
    begin = time.monotonic()
    done = subprocess.run(
        [*WITHOUT, sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        encoding="utf-8",
    )
    assert done.returncode and "127.0.0.1" in done.stderr.splitlines()[-1]
    assert time.monotonic() - begin < 40


def nothing(group):
    pass


def test_threads_end_when_one_is_late():
    """A process that hangs, and never comes: the others wait no longer than the limit."""

    def go(group):
        if group.rank() == 0:
            time.sleep(4)
            return "late"
        try:
            attend(group, *(torch.randn(1, 2, 6, 4) for _ in range(3)))
        except RuntimeError as error:
            return str(error)

    begin = time.monotonic()
    late, told = threads(2, go, limit=2)
    assert late == "late" and "lost another one" in told and time.monotonic() - begin < 8
