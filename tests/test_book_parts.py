"""What the book is made of, without building it: pictures, scripts bundled, links, formulas, folds."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
import torch

import flashlearn as fl
from flashlearn.course import MINUTES
from flashlearn.exercises.questions import QUESTIONS
from flashlearn.show import course, draw, play
from flashlearn.show.explorers.tiling import tiling_explorer
from tests.slow import slow

pytest.importorskip("latex2mathml", reason="needs the extra `book`")
from tools import figures as exhibition
from tools.book import (
    api,
    build,
    chapter,
    colab,
    faces,
    figures,
    finish,
    formulas,
    gallery,
    pages,
    pictures,
    rerun,
    runs,
    sections,
    theme,
)
from tools.book.address import Address

ROOT = Path(__file__).parents[1]
X = torch.tensor([3.0, 2.0, 5.0, 1.0])
TWO = {"safe": fl.safe_softmax_steps(X), "online": fl.online_softmax_steps(X)}
TWO = {title: fl.record(steps) for title, steps in TWO.items()}


def stored_in(figure):
    return json.loads(re.search(r'json">(.*?)</script>', figure)[1])


def test_a_picture_that_is_no_scene_is_the_stored_file(tmp_path):
    made = play(TWO["online"][:2], lambda ax, step: ax.text(0, 0, step.number), alt="Its <number>.", figsize=(2, 1))
    figure = pictures.Pictures(tmp_path).figure("99-1", made.png, made.alt, None)
    assert (tmp_path / "frames" / "99-1.png").read_bytes() == made.png
    assert 'src="../frames/99-1.png" alt="Its &lt;number&gt;." width="200" height="100"' in figure


# --- notebooks are run again -------------------------------------------------------------------------------

CELLS = {
    "imports": "import flashlearn as fl\nimport torch\nfrom flashlearn.show import picture, play\nfrom flashlearn.show.draw import draw_row",
    "runs": "play(fl.online_softmax_steps(torch.tensor([3.0, 2, 5])), draw_row, alt='Three bars, read twice.', still=2, predict=True)",
    "both": "shown = picture(lambda ax: ax.plot([1, 3]), alt='A line that rises from 1 to 3.')\ndisplay(shown, shown)",
}


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """A small notebook, and what its cells display."""
    folder = tmp_path_factory.mktemp("notebook")
    cells = [nbformat.v4.new_code_cell(source, id=id) for id, source in CELLS.items()]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "01_small.ipynb")
    return folder / "01_small.ipynb", gallery.of([folder / "01_small.ipynb"], folder / "kept")["01_small"]


def test_a_notebook_that_is_run_again_shows_its_runs_and_plots(notebook):
    _, shown = notebook
    (run,), plots = shown["runs"], shown["both"]
    assert run["kind"] == "run" and run["still"] == 2 and run["titles"] == [""]
    assert len(run["run"]["captions"]) == len(run["run"]["scenes"]["wide"]) == 7 and run["run"]["predict"]
    assert [plot["kind"] for plot in plots] == ["plot", "plot"] and plots[0] == plots[1]
    for layout in ("wide", "narrow"):
        svg = plots[0][layout]
        assert "#ffffff" not in svg and "<?xml" not in svg and "<style" not in svg
        assert svg.startswith('<svg class="plot" viewBox=') and "2.75</text>" in svg
    wide, narrow = (float(plots[0][layout].split('viewBox="')[1].split()[2]) for layout in ("wide", "narrow"))
    assert narrow < 400 < wide


def test_what_was_run_is_kept_until_a_line_of_code_changes(notebook, monkeypatch):
    path, shown = notebook
    monkeypatch.setattr(gallery.subprocess, "run", None)
    assert gallery.of([path], path.parent / "kept")["01_small"] == shown
    before = gallery.key(path)
    read = nbformat.read(path, 4)
    read.cells.append(nbformat.v4.new_markdown_cell("More words."))
    nbformat.write(read, path)
    assert gallery.key(path) == before
    read.cells[0].source += "  # changed"
    nbformat.write(read, path)
    assert gallery.key(path) != before


def test_a_notebook_that_fails_says_where(tmp_path):
    cells = [nbformat.v4.new_code_cell("1 / 0", id="broken")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "02_broken.ipynb")
    with pytest.raises(SystemExit, match="02_broken.ipynb, cell broken: ZeroDivisionError"):
        gallery.of([tmp_path / "02_broken.ipynb"], tmp_path / "kept")


def test_a_run_of_scenes_has_its_first_frame_and_its_still_on_the_page(notebook, tmp_path):
    run = notebook[1]["runs"][0]
    book = pictures.Pictures(tmp_path)
    figure = book.figure("07-1", b"", "", run)
    stored = stored_in(figure)
    assert "scenes" not in stored and "table" not in stored and len(stored["frames"]) == 1
    assert stored["frames"][0] == list(figures.unpacked(run["run"]["scenes"], 0))
    whole = figures.unpacked(run["run"]["scenes"], 2)[0]
    assert whole.split(">", 1)[1].replace("scene-hatch", "07-1-still-hatch") in figure
    assert run["run"]["captions"][2] in figure and figure.count("<tr>") == 8
    script = (tmp_path / "frames" / "07-1.js").read_text(encoding="utf-8")
    assert json.loads(script.removeprefix('flashlearnScenes("07-1",').removesuffix(");\n")) == run["run"]["scenes"]
    assert book.covers["07"].slug == "07-1" and "aria-hidden" in book.covers["07"].wide


def test_a_plot_has_both_layouts_and_its_words(notebook, tmp_path):
    figure = pictures.Pictures(tmp_path).figure("01-1", b"", "", notebook[1]["both"][0])
    assert figure.count("A line that rises from 1 to 3.") == 2
    assert 'class="wide"' in figure and 'class="narrow"' in figure


def test_a_scene_is_painted_for_a_phone_too():
    scene = rerun._twice(draw.draw_colour_key)()
    assert rerun.narrow_of(scene).width == 360 < scene.width
    alone = draw.draw_colour_key()
    assert rerun.narrow_of(alone) is alone


def test_a_plot_is_scrolled_where_its_words_would_become_too_small():
    plot = '<svg class="plot" viewBox="0 0 {} 300"><text style="font: 15px a">a</text><text style="font: 20px a">b</text></svg>'
    assert 'style="min-width:720px"' in rerun.legible(plot.format(900))
    assert rerun.legible(plot.format(400)) == plot.format(400)


def test_figures_are_files_of_their_own(notebook, tmp_path, monkeypatch):
    monkeypatch.setattr(exhibition, "OUT", tmp_path)
    exhibition.export(notebook[0])
    exhibition.contact_sheet(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    run, plots = "01_small-1-runs", {"01_small-2-both", "01_small-3-both"}
    stems = {run, f"{run}-step1", f"{run}-step7", *plots}
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("svg", "pdf")} | {"index.html"}
    for stem in stems:
        root = ElementTree.parse(tmp_path / f"{stem}.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.get("width")
        assert (tmp_path / f"{stem}.pdf").read_bytes().startswith(b"%PDF")
    assert "var(--" not in (tmp_path / f"{run}.svg").read_text(encoding="utf-8")
    assert (tmp_path / "index.html").read_text(encoding="utf-8").count("<figure>") == len(stems)


# --- scripts, formulas, policy -----------------------------------------------------------------------------


def test_modules_become_one_script_that_keeps_their_names_apart(tmp_path):
    (tmp_path / "a.js").write_text(
        "const hidden = 1;\nexport const SEEN = 2;\nexport function f() {}\n", encoding="utf-8"
    )
    (tmp_path / "b.js").write_text('import { SEEN, f } from "./a.js";\nconst hidden = 3;\n', encoding="utf-8")
    finish.bundle([tmp_path / "a.js", tmp_path / "b.js"], tmp_path / "all.js")
    text = (tmp_path / "all.js").read_text(encoding="utf-8")
    assert "return { SEEN, f };" in text and "const { SEEN, f } = modules_a;" in text
    assert not re.search("^(import|export)", text, re.MULTILINE)


@pytest.mark.parametrize("line", ['import a from "./a.js";', "export default 3;", "export { a };"])
def test_other_forms_of_modules_are_rejected(tmp_path, line):
    (tmp_path / "a.js").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="something else in a.js"):
        finish.bundle([tmp_path / "a.js"], tmp_path / "all.js")


def test_every_module_comes_after_those_it_imports():
    seen = []
    for path in build.SCRIPTS:
        if path.exists():  # hardware.js and grid.js are written when the book is built
            assert set(
                re.findall(r'^import .* from "\./(\w+)\.js"', path.read_text(encoding="utf-8"), re.MULTILINE)
            ) <= set(seen)
        seen.append(path.stem)
    assert {path.stem for path in (ROOT / "book" / "_static").glob("*.js")} <= set(seen)


def test_every_table_scrolls_in_one_box():
    """A bare one gets it, also on several lines and behind another; one that has a box keeps that alone."""
    bare, boxed = "<table>\n<tr></tr>\n</table>", '<div class="scroll" tabindex="0"><table class="a"></table></div>'
    theirs = '<div class="table-wrapper docutils container">\n<table class="docutils"></table>\n</div>'
    wrapped = f'<div class="table-wrapper container">{bare}</div>'
    assert finish.with_boxes(f"<p></p>{bare}{boxed}{theirs}{bare}") == f"<p></p>{wrapped}{boxed}{theirs}{wrapped}"


def test_a_line_of_code_knows_its_indentation():
    page = '<pre><span></span><span class="k">if</span> x:\n\n    <span class="n">y</span>\n</pre><pre>z</pre>'
    lined = finish.with_lines(page)
    assert re.findall(r"--indent:(\d+)ch", lined) == ["4"] and lined.count('class="line"') == 4
    assert re.sub(r"</?span[^>]*>", "", lined) == re.sub(r"</?span[^>]*>", "", page)


def test_the_policy_names_inline_scripts_by_their_hash_and_forbids_the_rest():
    page = '<html><head></head><script>go()</script><script src="a.js"></script><script type="application/json">{}</script>'
    closed = finish.with_policy(page)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', closed)[1]
    assert policy.count("'sha256-") == 1 and "default-src 'none'" in policy and "http" not in policy
    assert "unsafe-eval" not in policy and "script-src 'self' 'unsafe-inline'" not in policy


@pytest.mark.parametrize(
    ("tex", "inside"),
    [
        (r"\boxed{x}", 'class="boxed"'),
        (r"\begin{aligned}a&=b\\c&=d\end{aligned}", "<mtable"),
        (r"e^{x}\!", "-0.167em"),
        (r"\frac{1}{2}", "<mfrac>"),
        (r"\log 65", '<mi>log</mi><mspace width="0.167em"></mspace><mn>65'),
        (r"\log_2 e", '<mn>2</mn></msub><mspace width="0.167em"></mspace><mi>e'),
        (r"\log(x) + \log_2 \left(x\right)", '<mi>log</mi><mo stretchy="false">'),
    ],
)
def test_formulas_are_mathml(tex, inside):
    assert inside in formulas.mathml(tex) and "menclose" not in formulas.mathml(tex)


def test_every_formula_of_the_course_is_understood():
    seen = set()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                found = re.findall(r"\$\$(.*?)\$\$|\$([^$\n]+)\$", "".join(cell["source"]), re.DOTALL)
                seen |= {one or other for one, other in found}
    assert len(seen) > 300
    for tex in seen:
        assert not re.search(r">\s*\\[a-zA-Z]|<mi>&</mi>|menclose", formulas.mathml(tex)), tex


def test_the_font_has_what_formulas_use_and_little_else(tmp_path):
    formulas.font("λ", tmp_path / "math.woff")
    assert 20_000 < (tmp_path / "math.woff").stat().st_size < 250_000


def test_faces_are_cut_once_and_keep_their_licence(tmp_path, monkeypatch):
    monkeypatch.setattr(faces, "FACES", faces.FACES[1:2])
    for folder in ("one", "two"):
        faces.write(tmp_path / folder, tmp_path / "cache")
        monkeypatch.setattr(faces, "cut", None)  # the second time there is nothing to cut
    assert 15_000 < (tmp_path / "two" / "text-italic.woff").stat().st_size < 60_000
    assert "SIL OPEN FONT LICENSE" in (tmp_path / "two" / "fontpkg-source-serif-4-LICENSE.txt").read_text(
        encoding="utf-8"
    )


# --- how a chapter opens -----------------------------------------------------------------------------------

FOLDED = {
    "import math\n\nimport torch": "imports",
    "import math\nimport torch\nfrom a import b\nx = 3": "imports",
    'predict("03.merge")': "asks",
    'in_a_sentence("03.why", "")': "asks",
    'bytes_moved("03")': None,
    "for n in (1, 2):\n    assert f(n) == g(n)": "tests",
    "torch.testing.assert_close(f(x), g(x))": "tests",
    "def f(x):\n    return x\n\n\nassert f(1)": None,
    "x = 3\ny = f(x)\nz = g(y)\nprint(z)\nassert z": None,
    "play(steps, draw_row)": None,
    "%timeit f(x)": None,
}


@pytest.mark.parametrize("source", FOLDED)
def test_what_most_readers_skip_is_folded(source):
    cell = nbformat.v4.new_code_cell(source, outputs=[nbformat.v4.new_output("stream", text="1")])
    assert chapter.kind_of(cell) == FOLDED[source]
    chapter.fold(cell)
    assert bool(cell.metadata) == (FOLDED[source] is not None)


def test_a_cell_that_asserts_and_shows_nothing_is_a_test():
    assert chapter.kind_of(nbformat.v4.new_code_cell("x = f(3)\ny = g(x)\nz = h(y)\nassert z")) == "tests"


def test_a_cell_that_is_folded_in_the_notebook_is_folded_on_its_page():
    cell = nbformat.v4.new_code_cell("x = f(3)", metadata={"jupyter": {"source_hidden": True}})
    chapter.fold(cell)
    assert cell.metadata.tags == ["hide-input"]


def test_a_chapter_opens_with_its_lead_and_its_goals_beside_it():
    source = "# 03 · Online\n\nShort.\n\nStill short.\n\n" + "long " * 70 + "\n\nYou will\n\n- derive;\n\nNo GPU."
    before, behind = chapter.opening(source, "LINKS")
    lead, margin = before.split("{container} margin")
    assert before.startswith("# Online\n") and "Still short." in lead and "long" not in lead
    assert "- derive;" in margin and "LINKS" in margin
    assert behind.startswith("long") and behind.endswith("No GPU.")


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_an_opening_loses_no_word_but_its_place(path):
    source = nbformat.read(path, 4).cells[0].source
    kept = re.sub(r"^\*Notebook .*\*$", "", theme.without_number(source), flags=re.MULTILINE)
    assert set(kept.split()) <= set(" ".join(chapter.opening(source, "")).split())


def asks(*names):
    """A cell whose output asks these questions."""
    data = {chapter.PREDICT: {"questions": [{"name": name} for name in names]}}
    cell = nbformat.v4.new_code_cell("predict(...)")
    cell.outputs = [nbformat.v4.new_output("execute_result", data)]
    return cell


def text(source):
    return nbformat.v4.new_markdown_cell(source)


def code(id, source="print(1)"):
    return nbformat.v4.new_code_cell(source, id=id)


def marks(cells):
    """What marked() makes of cells: their sources, and the marks."""
    return [piece.source for piece in chapter.marked(cells)]


ANSWER = '<div class="answer" data-questions="{}">'.format
WRONG, ANY_ORDER = QUESTIONS["03.wrong"].shown, QUESTIONS["03.any_order"].shown


def test_an_answer_is_marked_with_the_text_around_it_and_no_heading_or_other_code():
    cells = [asks("03.wrong"), text("read"), code("other"), text("end\n\n## Head\n\nbefore"), code(WRONG, "x")]
    after = [text("after\n\n### Next\n\nrest"), code("last")]
    folded = [ANSWER("03.wrong"), "before", "x", "after", "</div>"]
    start = ["predict(...)", "read", "print(1)", "end", "## Head"]
    assert marks(cells + after) == [*start, *folded, "### Next", "rest", "print(1)"]


def test_neither_an_earlier_answer_nor_a_recall_question_nor_an_exercise_is_marked():
    recall = next(name for name in QUESTIONS if name.startswith("03.recall"))
    cells = [asks(recall), code(WRONG, "x"), asks("03.wrong", "03.any_order"), code(ANY_ORDER, "y"), text("Your task")]
    folded = [ANSWER("03.any_order"), "y", "</div>"]
    assert marks([*cells, code("stub", 'check("03.merge", f)')])[3:] == [*folded, "Your task", 'check("03.merge", f)']


def test_a_cell_may_answer_two_questions_and_text_between_two_answers_belongs_to_the_first():
    cells = [asks("03.wrong", "03.any_order"), code(WRONG, "x"), text("between"), code(ANY_ORDER, "y")]
    first = [ANSWER("03.wrong"), "x", "between", "</div>"]
    assert marks(cells)[1:] == [*first, ANSWER("03.any_order"), "y", "</div>"]


def test_a_section_that_is_stored_collapsed_is_marked_below_its_heading():
    cell = text("## More\n\ntext")
    cell.metadata["jp-MarkdownHeadingCollapsed"] = True
    assert marks([cell, text("## Plain")]) == ["## More", chapter.DEEPER, "text", "## Plain"]


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_marks_lose_no_word_and_every_answer_has_one(path):
    cells = nbformat.read(path, 4).cells
    out = marks(cells)
    kept = " ".join(source for source in out if not source.startswith(("<div", "</div")))
    assert kept.split() == " ".join(cell.source for cell in cells).split()
    asked = [question["name"] for cell in cells for data in chapter.asked_in(cell) for question in data["questions"]]
    marked = re.findall(r'data-questions="([^"]*)"', "\n".join(out))
    assert sorted(" ".join(marked).split()) == sorted(name for name in asked if ".recall" not in name)


def test_pages_say_their_part_and_their_place():
    contexts = {}
    for page in ("notebooks/03_online_softmax", "notebooks/14_appendix", "index", "explorers/tiling"):
        contexts[page] = {}
        theme.about(None, page, "page.html", contexts[page], None)
    assert (
        contexts["notebooks/03_online_softmax"]["over"] == f"Notebook 03 · One row of softmax · {MINUTES['03']} minutes"
    )
    assert contexts["notebooks/14_appendix"]["over"].startswith("Appendix to notebook 14")
    assert [context["kind"] for context in contexts.values()] == ["chapter", "chapter", "page", "explorers"]
    assert contexts["index"]["place"] == "" and contexts["notebooks/14_appendix"]["place"] == "14 of 19"


def test_sections_are_what_search_looks_through():
    page = (
        '<nav>chapters</nav><article><section id="top"><h1>Top<a>¶</a></h1><p>First &amp; second</p>'
        '<section id="in"><h2>In</h2><pre>code</pre><math>x</math><table>t</table><p>in</p></section><p>Last</p></section></article>'
    )
    top, inside = sections.of_page("a.html", page)
    assert top == ["a.html", "", "Top", "Top", "First & second Last"]
    assert inside == ["a.html", "in", "Top", "In", "code in"]


# --- addresses ---------------------------------------------------------------------------------------------


def test_links_follow_from_one_setting(tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    (tmp_path / "pyproject.toml").write_text(
        '[project.urls]\nRepository = "https://github.com/some/where"\n', encoding="utf-8"
    )
    address = Address.of(tmp_path)
    assert address.binder("a b.ipynb") == "https://mybinder.org/v2/gh/some/where/main?labpath=notebooks%2Fa%20b.ipynb"
    assert address.colab("a.ipynb") == "https://colab.research.google.com/github/some/where/blob/colab/a.ipynb"
    monkeypatch.setenv("GITHUB_REPOSITORY", "a/fork")
    assert "/a/fork/" in Address.of(tmp_path).binder("a.ipynb")
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://example.org"\n', encoding="utf-8")
    with pytest.raises(ValueError, match="expected https://github.com/owner/name"):
        Address.of(tmp_path)


def test_colab_installs_first_and_the_notebook_stays_as_it_is(tmp_path):
    path = ROOT / "notebooks" / "03_online_softmax.ipynb"
    colab.write([path], tmp_path, Address("some/where"))
    there, here = nbformat.read(tmp_path / path.name, 4), nbformat.read(path, 4)
    assert (
        there.cells[0].source
        == '%pip install -q "flashlearn-course[measured,notebooks,transformers] @ git+https://github.com/some/where"'
    )
    assert [cell.source for cell in there.cells[1:]] == [cell.source for cell in here.cells]
    assert not any(cell.get("outputs") for cell in there.cells)
    assert not any("pip install" in cell.source for cell in here.cells)


# --- recorded runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "N, D, block_q, block_k, mask",
    [(5, 3, 3, 5, "full"), (12, 4, 3, 3, "causal"), *[slow(16, 4, 4, 2, "window of 4"), slow(12, 3, 6, 2, "full")]],
)
def test_a_recorded_run_is_that_of_the_notebook(N, D, block_q, block_k, mask):
    """Its scenes, captions and numbers are those that the explorer of a notebook makes."""
    sizes = {"N": N, "D": D, "block_q": block_q, "block_k": block_k}
    explorer = tiling_explorer(**sizes, sram=128, mask=mask)
    recorded = runs.setting(*sizes.values(), mask)
    assert recorded["captions"] == list(explorer.transcript) and recorded["alt"] == explorer.alt
    wide, narrow = (
        [frame[layout] for frame in map(explorer._made, range(len(explorer.transcript)))] for layout in (0, 1)
    )
    lines = recorded["scenes"]["lines"]

    def unpacked(numbers):
        ranges = (list(map(int, each.split("-"))) for each in numbers.split())
        return "".join(lines[number] for first, *last in ranges for number in range(first, (last or [first])[0] + 1))

    for layout, made in (("wide", wide), ("narrow", narrow)):
        assert [unpacked(each) for each in recorded["scenes"][layout]] == [frame.replace("\n", "") for frame in made]
    assert recorded["need"] == explorer.said["need"] and explorer.report.endswith(f"they fit. {recorded['text']}")
    rising = [number for number in range(len(wide)) if "new maximum" in recorded["captions"][number]]
    assert recorded["rises"] == rising


def test_a_wrong_scene_would_be_seen():
    """Every step of a run has a picture of its own, and another mask has others."""
    causal, full = (runs.setting(8, 4, 4, 4, mask)["scenes"]["wide"] for mask in ("causal", "full"))
    assert len(set(causal)) == len(causal) >= 3 and causal != full


def test_an_explorer_of_the_book_begins_as_its_cell_says():
    cell = 'shown = tiling_explorer(N=12, block_q=3, sram=59, mask="documents, window")\nshown'
    assert pages.start_of(cell) == "N=12&block_q=3&sram=59&mask=documents%2C+window"
    assert pages.start_of("tiling_explorer()") == ""


def test_the_grid_holds_what_the_text_asks_for():
    grid = runs.grid()
    assert (3, 5) in grid[3][5] and (1, 1) in grid[4][8] and (3, 3) in grid[4][12]
    offered = {control["name"]: control.get("values") for control in runs.controls(grid) if "name" in control}
    for D, lengths in grid.items():
        for N, pairs in lengths.items():
            assert D in offered["D"] and N in offered["N"]
            assert all(q in offered["block_q"] and k in offered["block_k"] for q, k in pairs)
    assert list(offered) == list(runs.START) and (3, 3) in grid[runs.START["D"]][runs.START["N"]]
    assert all(max(pair) <= N for lengths in grid.values() for N, pairs in lengths.items() for pair in pairs)


def test_questions_are_put_into_the_page():
    choices = [{"text": "yes</script>", "right": True}]
    page = pages.asked("predict", {"questions": [{"question": "1 < 2?", "choices": choices}]}, "<p>or so</p>")
    (asked,) = json.loads(re.search(r'json">(.*?)</script>', page)[1])["questions"]
    assert asked["choices"][0]["text"] == "yes</script>"
    assert page.count("</script>") == 1 and "<noscript><p>or so</p></noscript>" in page


def test_an_appendix_comes_right_after_its_notebook():
    found = sorted((ROOT / "notebooks").glob("1[345]_*"))
    ordered = sorted(found[::-1], key=pages.chapter_order)
    assert [path.name[:11] for path in ordered] == ["13_triton_b", "14_making_i", "14_appendix", "15_inside_a"]
    listed = re.findall(r"^\d\d · (.*) <notebooks/(\w+)>$", pages.contents(ordered), flags=re.MULTILINE)
    assert [page for _, page in listed] == [path.stem for path in ordered] and listed[0][
        0
    ] == f"Triton backward · {MINUTES['13']} min"


def test_the_parts_of_the_book_are_those_of_the_course():
    files = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    words = pages.contents(files)
    for stage in course.STAGES:
        part = stage.part or course.STAGES[1].part
        inside = words[words.index(f":caption: {part}\n") :].split("```")[0]
        assert f"notebooks/{stage.number}_" in inside
    assert words.count("notebooks/") == len(files) == len(course.STAGES)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_formulas_keep_all_of_their_lines(path):
    """The converter drops a line that ends with an empty column."""
    cells = [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown"]
    for tex in re.findall(r"\$\$(.*?)\$\$", "\n".join(cells), flags=re.DOTALL):
        inside = re.findall(r"\\begin{(?:aligned|cases|array|pmatrix)}(?:{[rlc]*})?(.*?)\\end", tex, flags=re.DOTALL)
        lines = [line for part in inside for line in part.split(r"\\") if line.strip()]
        assert formulas.mathml(tex, True).count("<mtr>") == len(lines), tex


def test_the_api_pages_have_every_public_name_once():
    named = [name.rpartition(".")[2] for names in api.TOPICS.values() for name in names]
    assert len(set(named)) == len(named) and set(fl.__all__) <= set(named)


def test_docstrings_are_shown_as_they_are_written():
    lines = ["The `lse` of rows.", "And * more.", "", "q    (B, H, N, D)", "k    the same", "", "    fl.run(steps)"]
    api.as_written(None, "function", "f", None, None, lines)
    shown = ["The ``lse`` of rows.", r"And \* more.", "", "q", "   (B, H, N, D)", "k", "   the same", ""]
    assert lines == [*shown, "::", "", "       fl.run(steps)", ""]
