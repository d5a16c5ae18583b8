"""Workers share one GPU: each gives back what it no longer needs, and tests that need many GB take turns."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

import pytest
import torch

KEPT = 2**28  # bytes that a worker may keep for its next test
FULL = "out of memory"


def pytest_collection_modifyitems(config, items):
    """A test that finds the GPU full of other workers' tensors runs again when a large test has had time to end.

    Not one that fails for another reason, and not more than twice. Every first failure is told at the end, by
    tests/conftest.py.
    """
    if config.pluginmanager.hasplugin("rerunfailures"):
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=15, only_rerun=[FULL]))


@pytest.fixture(autouse=True)
def given_back():
    """PyTorch keeps what it has once had, which is more and more with every test, and sixteen workers fill a GPU."""
    yield
    if torch.cuda.is_available() and torch.cuda.memory_reserved() > KEPT:
        torch.cuda.empty_cache()


@pytest.fixture
def alone(given_back):
    """For tests that need several GB: one at a time, among all workers; the memory is given back."""
    with open(Path(tempfile.gettempdir(), "flashlearn-gpu-memory.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        torch.cuda.empty_cache()
