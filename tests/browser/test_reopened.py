"""A notebook on the second day: run, saved, its kernel gone, opened again. Pictures, words, and no error in their place."""

import base64
import json

import pytest

from flashlearn.show.bundle import VIEW, browser_text

pytest.importorskip("playwright", reason="needs the extra `test`")
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

KEPT = "application/vnd.flashlearn.view+json"
PICTURE = {"image/png": "AAAA", "text/plain": "[picture]"}
CELLS = [
    "import torch, flashlearn as fl, ipywidgets\nfrom flashlearn.exercises import predict",
    "from flashlearn.show.explorers import tiling_explorer\ntiling_explorer()",
    "predict('03.wrong')",
    "fl.projector(True)",
    "fl.projector(False)",
]


def output(data, **metadata):
    return {"output_type": "display_data", "data": data, "metadata": metadata}


def test_what_is_saved_has_no_views_and_the_picture_that_was_painted_since(chromium):
    own = output({VIEW: {"model_id": "1"}, "text/plain": "IntSlider()"})
    words = output({"text/html": "<p>words</p>"}, flashlearn="words")
    plain = {"output_type": "stream", "name": "stdout", "text": "12\n"}
    about = {"image/png": {"alt": "a plot"}}
    cells = [
        {"cell_type": "markdown", "source": "text", "metadata": {}},
        {
            "cell_type": "code",
            "source": "play()",
            "metadata": {},
            "outputs": [
                plain,
                own,
                output({VIEW: {"model_id": "2", "stored": "painted"}, **PICTURE}, **about),
                words,
                output({VIEW: {"model_id": "3", "stored": "not yet"}, **PICTURE}),
                output({VIEW: {"model_id": "4", "stored": ""}}),
            ],
        },
    ]
    page = chromium.new_page()
    manager = f"{{ context: {{ model: {{ toJSON: () => ({json.dumps({'cells': cells})}) }} }} }}"
    page.set_content(
        f"<script type=module>{browser_text('saved.js')}; const widget_manager = {manager};"
        "const films = { painted: new DataView(new Uint8Array([1, 2, 3, 4]).buffer, 1, 2), 'not yet': new DataView(new ArrayBuffer(0)) };"
        "for (const [name, film] of Object.entries(films)) saved({ widget_manager, get: (of) => ({ run: { name }, film })[of] });"
        "saved({}); globalThis.content = widget_manager.context.model.toJSON();</script>"
    )
    page.wait_for_function("globalThis.content")
    first, second = page.evaluate("content.cells")
    page.close()
    assert first == cells[0]
    kept = {name: {KEPT: {"model_id": number, "stored": name}} for name, number in (("painted", "2"), ("not yet", "3"))}
    painted = output({**PICTURE, "image/png": base64.b64encode(bytes([2, 3])).decode(), **kept["painted"]}, **about)
    assert second["outputs"] == [plain, own, painted, words, output({**PICTURE, **kept["not yet"]})]


def outputs_of(page):
    return page.evaluate(
        """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
             .filter(cell => cell.type == 'code').flatMap(cell => cell.outputs.toJSON())"""
    )


def load_again(page):
    page.reload()
    page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.content?.model?.cells?.length > 0", timeout=60_000)


@pytest.mark.slow
def test_reopened_in_jupyterlab(open_in_the_page):
    notebook = open_in_the_page("00_start_here", height=1000)
    page = notebook.page
    for source in CELLS:
        notebook.run_code(source)
    assert notebook.run_all() == []
    live = page.locator(".flashlearn-player:not(.flashlearn-explorer *)")
    expect(live.first).to_be_visible(timeout=60_000)
    players = live.count()
    expect(page.locator(".flashlearn-explorer")).to_have_count(1, timeout=60_000)
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    assert live.count() == players, "saving takes nothing from the page"
    notebook.screenshot("reopened 0 before")
    load_again(page)
    expect(live).to_have_count(players, timeout=60_000)  # its kernel runs
    expect(page.locator(".flashlearn-explorer")).to_have_count(1, timeout=60_000)
    expect(page.get_by_text("run the notebook: menu Run").filter(visible=True)).to_have_count(0)
    live.first.focus()
    page.keyboard.press("ArrowRight")
    expect(live.first.get_by_role("status").first).to_contain_text("Step 2 of")
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    load_again(page)
    expect(page.locator(".jp-RenderedImage img").first).to_be_visible(timeout=60_000)
    assert not [each for each in outputs_of(page) if VIEW in each.get("data", {})]
    expect(page.get_by_text("To play it, run the notebook")).to_have_count(players)
    expect(page.get_by_text("To move it, run the notebook")).to_have_count(1)
    expect(page.get_by_text("Error displaying widget")).to_have_count(0)
    page.get_by_text("This animation in words").first.click()
    table = page.get_by_role("columnheader", name="what happens").first
    sights = (page.get_by_text("To play it, run").first, table, page.get_by_text("To move it, run"))
    for place, sight in enumerate(sights):
        sight.evaluate("node => node.scrollIntoView({ block: 'center' })")
        expect(sight).to_be_visible()
        notebook.screenshot(f"reopened {place + 1}")
    assert notebook.errors == []
