"""A real JupyterLab on a free loopback port, and Chromium to drive it. Skipped, with the reason, without Chromium."""

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ARTIFACTS = ROOT / "tests" / "artifacts"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(config, items):
    """A browser test that fails gets one more try, on a new page: a browser, a server and kernels share two cores.

    What fails twice fails. Every first failure is told at the end, by tests/conftest.py.
    """
    if config.pluginmanager.hasplugin("rerunfailures"):
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """The folder where JupyterLab's kernels keep what was predicted, and not the user's own."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="session")
def lab(tmp_path_factory, kept):
    """(address, token) of a JupyterLab over a copy of the notebooks, so that tests change nothing."""
    with _served(tmp_path_factory.mktemp("lab"), kept) as server:
        yield server


@pytest.fixture
def notebook7(tmp_path, kept):
    """(address, token) of a server for Notebook 7 alone.

    A server remembers where a static file lies by its name. Notebook 7 and JupyterLab have fonts of one name in two
    folders: whichever asks second is rejected, with a 403 in its console.
    """
    with _served(tmp_path, kept) as server:
        yield server


@contextlib.contextmanager
def _served(folder, kept):
    """A Jupyter server with a copy of the notebooks in `folder`, on a free port; both of its pages are there."""
    _need_chromium()
    for needed in ("notebooks", "flashlearn/measurements"):
        shutil.copytree(ROOT / needed, folder / needed)
    settings = folder / "config" / "labconfig" / "default_setting_overrides.json"
    settings.parent.mkdir(parents=True)
    no_news = {"fetchNews": "false", "checkForUpdates": False}
    settings.write_text(json.dumps({"@jupyterlab/apputils-extension:notification": no_news}), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    log = (folder / "lab.log").open("w", encoding="utf-8")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            "--allow-root",
            "--ip=127.0.0.1",
            f"--port={port}",
            "--ServerApp.port_retries=0",
            f"--IdentityProvider.token={token}",
            f"--ServerApp.root_dir={folder}",
            "--LabApp.expose_app_in_browser=True",
        ],
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
        env={
            **os.environ,
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_PREFER_ENV_PATH": "1",
            "FLASHLEARN_HOME": str(kept),
        },
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_up(f"{address}/api/status?token={token}", process, folder / "lab.log")
        yield address, token
    finally:
        process.terminate()
        process.wait(120)  # it ends its kernels first


def _need_chromium():
    """Skip without a browser; but CI installs one, so there its absence is a failure."""
    if CHROMIUM is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Chromium found on this machine")


def _wait_until_up(url, process, log, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            pytest.fail(f"JupyterLab stopped: {log.read_text(encoding='utf-8')[-2000:]}")
        try:
            urllib.request.urlopen(url, timeout=2)
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.3)
    pytest.fail(f"JupyterLab did not answer within {seconds} s: {log.read_text(encoding='utf-8')[-2000:]}")


@pytest.fixture(scope="session")
def chromium():
    _need_chromium()
    pytest.importorskip("playwright", reason="needs the extra `test`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def wait_until(page, script, arg=None, seconds=30):
    """Ask until the answer is true. Playwright's own wait asks by eval, which the book's pages forbid."""
    end = time.monotonic() + seconds
    while not page.evaluate(script, arg):
        assert time.monotonic() < end, f"expected within {seconds} s: {script}"
        page.wait_for_timeout(50)


# The smallest words of the scenes in an element, in pixels of the screen.
SMALLEST_IN_SCENES = """node => Math.min(...[...node.querySelectorAll('.flashlearn-stage > svg text')].filter(text => text.checkVisibility())
    .map(text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a))"""


def shown_width(image):
    """Width in pixels of the picture that an <img> shows, once its bytes are there; none comes of a broken one.

    Not `img.decode()`: it fails whenever the next picture takes the place of this one while it is decoded.
    """
    return image.page.wait_for_function(
        "img => img.complete && img.naturalWidth", arg=image.element_handle(), timeout=10_000
    ).json_value()


LAB_ITSELF = {  # what JupyterLab logs as an error in an empty notebook too, and why
    "Could not restore the debugger state": "the debugger asks the kernel while it starts",
}


class Notebook:
    """One notebook open in JupyterLab."""

    def __init__(self, page, address, token, name):
        self.page, self.errors, self.passed = page, [], False
        page.on("pageerror", self._fail)
        page.on("console", self._listen)
        if page.url.startswith(address):
            self._open_here(f"notebooks/{name}.ipynb")
        else:
            page.goto(f"{address}/lab/tree/notebooks/{name}.ipynb?token={token}&reset")
        page.wait_for_function(
            "window.jupyterapp?.shell?.currentWidget?.content?.model?.cells?.length > 0", timeout=60_000
        )
        page.wait_for_function(
            "window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status == 'idle'", timeout=60_000
        )

    def _open_here(self, path):
        """Another notebook in a JupyterLab that is there already, in place of what is open."""
        self.page.evaluate(
            """async path => {
                 const { commands, shell } = window.jupyterapp;
                 for (const open of shell.widgets('main')) if (open.context?.model) open.context.model.dirty = false;
                 await commands.execute('application:close-all');
                 await commands.execute('docmanager:open', { path, factory: 'Notebook' });
               }""",
            path,
        )
        self.page.wait_for_function("path => window.jupyterapp.shell.currentWidget?.context?.path == path", arg=path)

    def _fail(self, error):
        self.errors.append(str(error))

    def _listen(self, message):
        if message.type == "error" and not any(known in message.text for known in LAB_ITSELF):
            self.errors.append(f"{message.text} {message.location.get('url', '')}")

    def run_code(self, source):
        """Run `source` in a new cell at the end of the notebook."""
        self.page.evaluate(
            """source => {
                 const { content } = window.jupyterapp.shell.currentWidget;
                 content.model.sharedModel.addCell({ cell_type: 'code', source });
                 content.activeCellIndex = content.widgets.length - 1;
                 return window.jupyterapp.commands.execute('notebook:run-cell');
               }""",
            source,
        )

    def shut_down(self):
        """End the kernel and leave the page."""
        self.page.evaluate("window.jupyterapp?.shell?.currentWidget?.sessionContext?.shutdown()")
        self.page.close()

    def leave(self):
        """End the kernel; the page stays, for another notebook."""
        self.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
        self.page.remove_listener("pageerror", self._fail)
        self.page.remove_listener("console", self._listen)

    def unfold(self):
        """Open the sections that the notebook folds."""
        self.page.evaluate("window.jupyterapp.commands.execute('notebook:expand-all-headings')")

    def run_all(self):
        """Run every cell and return the errors of those that failed."""
        done = self.page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        assert done is not None
        return self.page.evaluate(
            """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
                 .filter(cell => cell.type == 'code').flatMap(cell => cell.outputs.toJSON())
                 .filter(output => output.output_type == 'error').map(output => output.ename + ': ' + output.evalue)"""
        )

    def run_cell(self, words):
        """Run the first code cell whose source holds these words once more."""
        self.page.evaluate(
            """words => {
                 const { content } = window.jupyterapp.shell.currentWidget;
                 content.activeCellIndex = [...content.model.cells]
                   .findIndex(cell => cell.type == 'code' && cell.sharedModel.source.includes(words));
                 return window.jupyterapp.commands.execute('notebook:run-cell');
               }""",
            words,
        )

    def show_cell(self, words):
        """Scroll to the first code cell whose source holds these words; its locator."""
        index = self.page.evaluate(
            """words => [...window.jupyterapp.shell.currentWidget.content.model.cells]
                 .findIndex(cell => cell.type == 'code' && cell.sharedModel.source.includes(words))""",
            words,
        )
        assert index >= 0, f"no code cell with {words!r}"
        self.page.evaluate("index => window.jupyterapp.shell.currentWidget.content.scrollToItem(index, 'start')", index)
        cell = self.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"]')
        cell.wait_for(state="visible")
        return cell

    def project(self, on=True):
        """Projector mode on or off."""
        self.run_code(f"import flashlearn\nflashlearn.projector({on})")
        self.page.wait_for_selector(".flashlearn-projector", state="attached" if on else "detached")

    def turn_to(self, stepper):
        """In projector mode, press Up or Down until this stop is on the screen."""
        for _ in range(40):
            if "flashlearn-shown" in stepper.get_attribute("class"):
                return
            order = "node => document.querySelector('.flashlearn-shown')?.compareDocumentPosition(node)"
            self.page.keyboard.press("ArrowUp" if stepper.evaluate(order) == 2 else "ArrowDown")
            self.page.wait_for_timeout(50)
        raise AssertionError("40 keys did not bring the widget on the screen")

    def screenshot(self, name):
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=ARTIFACTS / f"{re.sub(r'[^a-z0-9]+', '_', name.lower())}.png")


@pytest.fixture(scope="session")
def kept_pages():
    """The page that a test left as it found it, if there is one."""
    return []


def in_a_page(lab, chromium, kept_pages, name, width=1280, height=720):
    """A notebook in the page that was kept, or in a new one: loading JupyterLab takes as long as a short notebook."""
    page = kept_pages.pop() if kept_pages else chromium.new_page()
    page.set_viewport_size({"width": width, "height": height})
    return Notebook(page, *lab, name)


@pytest.fixture
def open_in_the_page(lab, chromium, kept_pages):
    """Opens a notebook. A test that leaves the page as it was sets `passed` at its end, and the next one has it."""
    opened = []

    def open_one(name, **size):
        opened.append(in_a_page(lab, chromium, kept_pages, name, **size))
        return opened[-1]

    yield open_one
    for notebook in opened:
        if notebook.passed:
            notebook.leave()
            kept_pages.append(notebook.page)
        else:
            notebook.shut_down()
