"""What every test module gets: a short garbage collection, no widgets of the modules before it, word of second tries."""

import gc
import os
import sys

import pytest

os.environ["PYTHONUTF8"] = "1"  # what processes of tests print is read as UTF-8, whatever the locale is


def pytest_collection_finish():
    """What was imported and collected stays to the end: a million objects that no collection need look at again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config, log):
    """A file's tests stay together, as `--dist loadscope` says, but for those of a GPU, which compile for minutes."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith("tests/gpu/") else super()._split_scope(nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_terminal_summary(terminalreporter):
    """What a browser test failed of before it was tried again (tests/browser/conftest.py)."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"failed at the first try: {report.nodeid}")
        terminalreporter.line(report.longreprtext)


@pytest.fixture(scope="module", autouse=True)
def no_widgets_of_other_modules():
    """Widgets live until they are closed; `projector()` would paint all of them again."""
    yield
    if "ipywidgets" in sys.modules:
        sys.modules["ipywidgets"].Widget.close_all()
    for name, kind in (("player", "Player"), ("still", "Still")):
        module = sys.modules.get(f"flashlearn.show.{name}")
        if module is not None:
            getattr(module, kind).all.clear()
