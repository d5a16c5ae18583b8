"""What every notebook of the course must be, read from its file: no notebook is run here (nbval does that)."""

import ast
import base64
import functools
import io
import re
import symtable
from pathlib import Path

import nbformat
import pytest
from PIL import Image

import flashlearn.exercises
import flashlearn.show
from flashlearn.course import LIMITS

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@functools.cache  # two dozen tests ask for each
def read(path):
    """A notebook, which no test may change."""
    return nbformat.read(path, as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def markdown(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def pictures(notebook):
    """(PNG, alt text) of every picture in the stored outputs; alt is None where there is none."""
    for cell in code(notebook):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                png = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"])))
                alt = output.metadata.get("image/png", {}).get("alt") or output.data.get("text/plain")
                yield png, alt


def test_numbers_have_no_gap_and_names_no_spaces():
    assert NOTEBOOKS, "no notebook was found"
    for number, path in enumerate(NOTEBOOKS):
        assert re.fullmatch(rf"{number:02d}_[a-z0-9_]+", path.stem), path.name


@every_notebook
def test_one_h1_with_the_number(path):
    lines = [line for cell in markdown(read(path)) for line in cell.source.splitlines()]
    titles = [line for line in lines if line.startswith("# ")]
    assert len(titles) == 1
    assert titles[0].startswith(f"# {path.stem[:2]} · ")


@every_notebook
def test_headings_do_not_skip_a_level(path):
    levels = [
        len(mark.group(1))
        for cell in markdown(read(path))
        for mark in re.finditer(r"^(#+) ", cell.source, flags=re.MULTILINE)
    ]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False)), levels


@every_notebook
def test_imports_flashlearn_and_asserts_against_torch(path):
    source = "\n".join(cell.source for cell in code(read(path)))
    assert re.search(r"^(import|from) flashlearn", source, flags=re.MULTILINE)
    compared = [
        cell
        for cell in code(read(path))
        if re.search(r"torch\.softmax|scaled_dot_product_attention", cell.source)
        and re.search(r"\bassert\b|assert_close", cell.source)
    ]
    assert compared, "no cell asserts against torch.softmax or scaled_dot_product_attention"


@every_notebook
def test_has_run_top_to_bottom(path):
    cells = [cell for cell in code(read(path)) if cell.source.strip()]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


@every_notebook
def test_stores_no_error_and_no_stderr(path):
    for cell in code(read(path)):
        for output in cell.outputs:
            assert output.output_type != "error", output.get("evalue")
            assert output.get("name") != "stderr", output.text


@every_notebook
def test_stores_an_animated_picture_and_alt_text_for_all(path):
    shown = list(pictures(read(path)))
    assert any(getattr(png, "is_animated", False) for png, _ in shown)
    for _, alt in shown:
        assert alt and len(alt) > 20 and "object at" not in alt and "Figure" not in alt, alt


def typed_in_alt_texts(source):
    """Decimals, and numbers of four digits or more, that stand in an alt text as typed, not as computed."""
    alts = [
        word.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg == "alt"
    ]
    texts = [part.value for alt in alts for part in ast.walk(alt) if isinstance(part, ast.Constant)]
    return [number for text in texts if isinstance(text, str) for number in re.findall(r"\d+\.\d+|\d[\d,]{2,}\d", text)]


@every_notebook
def test_numbers_in_alt_texts_come_from_the_run_or_are_its_inputs(path):
    sources = [cell.source for cell in code(read(path))]
    all_code = "\n".join(sources).replace("_", "")
    for number in (number for source in sources for number in typed_in_alt_texts(source)):
        times = len(re.findall(rf"(?<![\d.]){re.escape(number)}(?!\d)", all_code))
        assert times > sum(typed_in_alt_texts(source).count(number) for source in sources), number


def test_numbers_typed_in_an_alt_text_are_found():
    typed = 'play(run, draw, alt="grows to 636.08, " f"then {l:.2f}" " and 1,008 bytes of 12 rows")'
    assert typed_in_alt_texts(typed) == ["636.08", "1,008"]


NO_MEASUREMENT = (
    r"\]\([^)]*\)|https?:\S+|arXiv:\S+|`[^`]*`|^#.*$|(?<=[(, ])(1[6-9]|20)\d\d(?=[),:])"  # links, code, titles, years
)
DATED = r"\b20\d\d-\d\d-\d\d\b"  # a measurement of that day, told in a paragraph or an item of its own


def typed_in_prose(text):
    """Decimals, and numbers of four digits or more, in the paragraphs that give no day."""
    parts = [part for part in re.split(r"\n\n|\n(?=- )", text) if not re.search(DATED, part)]
    prose = re.sub(NO_MEASUREMENT, "", "\n\n".join(parts), flags=re.MULTILINE).replace("{,}", ",").replace("\\,", "")
    found = re.findall(r"(?<![\w.])(?:\d{1,3}(?:[, ]\d{3})+|\d+\.\d+|\d{4,})(?!\w)", prose)
    return [re.sub("[, ]", "", number) for number in found]


@every_notebook
def test_numbers_in_prose_are_in_the_code_or_in_what_it_printed(path):
    printed = [output for cell in code(read(path)) for output in cell.outputs]
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in printed]
    known = re.sub(r"(?<=\d)[_,](?=\d)", "", "\n".join([cell.source for cell in code(read(path))] + texts))
    for number in (number for cell in markdown(read(path)) for number in typed_in_prose(cell.source)):
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", known), number


def test_numbers_typed_in_prose_are_found():
    text = "# 3.14\n\nTakes 636.08 and 1,008 B, `2.5`, 98{,}304.\n\n- 8.2 µs (2026-11-21)\n- FA-2 (Dao, 2023), [x](https://a/1.5)"
    assert typed_in_prose(text) == ["636.08", "1008", "98304"]


@pytest.mark.parametrize("number", ["01", "02", "03", "04", "05", "06", "07"])
def test_one_row_goes_through_the_first_rungs(number):
    """x = v = 1..6, whose softmax mixes to 5.4329, asserted in each."""
    (path,) = FOLDER.glob(f"{number}_*.ipynb")
    asserted = [line for cell in code(read(path)) for line in cell.source.splitlines() if "assert" in line]
    assert any("5.4329" in line for line in asserted)


@every_notebook
def test_is_small_enough(path):
    assert path.stat().st_size < LIMITS.bytes


def shows_a_kernel(source):
    """Whether a cell holds kernels and device functions, and nothing else."""
    return bool(source) and all(
        isinstance(node, ast.FunctionDef) and any(ast.unparse(mark).endswith(".jit") for mark in node.decorator_list)
        for node in ast.parse(source).body
    )


def lines_of(cell):
    """How many lines a cell of code has, and how many it may have: empty ones count where it is folded."""
    lines = cell.source.splitlines()
    filled = sum(bool(line.strip()) for line in lines)
    if shows_a_kernel(cell.source):
        return filled, LIMITS.kernel_lines
    if cell.metadata.get("jupyter", {}).get("source_hidden"):
        return len(lines), LIMITS.folded_lines
    return filled, LIMITS.code_lines


@every_notebook
def test_no_wall_of_code(path):
    for cell in code(read(path)):
        lines, most = lines_of(cell)
        assert lines <= most, f"{cell.id} has {lines} lines, expected at most {most}"
        widest = max(map(len, cell.source.splitlines()), default=0)
        assert widest <= LIMITS.code_columns, f"{cell.id} is wider than {LIMITS.code_columns}"


@every_notebook
def test_text_is_short_enough_for_one_reading(path):
    words = sum(len(cell.source.split()) for cell in markdown(read(path)))  # boxes of algorithms included
    assert words <= LIMITS.words, f"{words} words, expected at most {LIMITS.words}"


def checked(cells):
    """The places of cells in which an answer of the student is checked."""
    return [
        at for at, cell in enumerate(cells) if cell.cell_type == "code" and re.search(r"^check\(", cell.source, re.M)
    ]


@every_notebook
def test_the_student_writes_within_the_first_third(path):
    cells = read(path).cells
    assert checked(cells)[0] <= LIMITS.first_check * len(cells)


@every_notebook
def test_the_end_holds_one_exercise_at_most(path):
    cells = read(path).cells
    sections = [
        at for at, cell in enumerate(cells) if re.search(r"^## ", cell.source, re.M) and cell.cell_type == "markdown"
    ]
    (end,) = (at for at in sections if "## What can go wrong" in cells[at].source)
    last = max(at for at in sections if at < end)
    assert sum(at >= last for at in checked(cells)) <= 1


@every_notebook
def test_asks_for_one_sentence(path):
    asked = re.findall(r'in_a_sentence\("([^"]+)"\)', "\n".join(cell.source for cell in code(read(path))))
    assert len(asked) == 1 and asked[0][:2] == path.stem[:2]


@every_notebook
def test_stored_outputs_are_compared(path):
    """nbval compares text; a cell may opt out only where its text is a matter of the machine."""
    cells = [cell for cell in code(read(path)) if cell.outputs]
    ignored = [cell for cell in cells if "nbval-ignore-output" in cell.metadata.get("tags", [])]
    assert len(ignored) <= len(cells) / 4


@every_notebook
def test_links_to_other_notebooks_lead_somewhere(path):
    for cell in markdown(read(path)):
        for target in re.findall(r"\]\((\d\d_[^)#]*\.ipynb)", cell.source):
            assert (FOLDER / target).exists(), f"{target} is linked and does not exist"


def bound(source):
    """The names that a cell gives a meaning: its imports, definitions and assignments."""
    symbols = symtable.symtable(source, "cell", "exec").get_symbols()
    return {symbol.get_name() for symbol in symbols if symbol.is_imported() or symbol.is_assigned()}


def called_in_prose(text):
    """The functions of flashlearn.exercises and flashlearn.show that a text calls, as in `hint("01.softmax")`."""
    ours = {*flashlearn.exercises.__all__, *flashlearn.show.__all__}
    return [name for name in re.findall(r"`(\w+)\([^`]*\)`", text) if name in ours]


@every_notebook
def test_what_the_prose_calls_is_imported_before(path):
    known = set()
    for cell in read(path).cells:
        if cell.cell_type == "code":
            known |= bound(cell.source)
        else:
            missing = [name for name in called_in_prose(cell.source) if name not in known]
            assert not missing, f"{cell.id} tells to call {missing}, which no cell above it imports"


@every_notebook
def test_every_import_is_used_in_a_cell_or_called_in_prose(path):
    """ruff cannot judge this: a student calls `hint`, no stored cell does."""
    trees = [ast.parse(cell.source) for cell in code(read(path))]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    imported = {(alias.asname or alias.name).split(".")[0] for node in imports for alias in node.names}
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    told = {name for cell in markdown(read(path)) for name in called_in_prose(cell.source)}
    assert imported <= used | told, imported - used - told


def test_calls_in_prose_and_names_of_a_cell_are_found():
    prose = '`hint("01.softmax")` and `play(run)` help; `torch.exp(x)`, `softmax(x)` and hint() are not ours'
    assert called_in_prose(prose) == ["hint", "play"]
    cell = "import torch as t\nfrom a.b import c\nx, y = 1, 2\ndef f(z):\n    w = [v for v in z]"
    assert bound(cell) == {"t", "c", "x", "y", "f"}


@every_notebook
def test_ends_with_what_can_go_wrong_and_what_we_learned(path):
    headings = [
        title for cell in markdown(read(path)) for title in re.findall(r"^## (.*)$", cell.source, flags=re.MULTILINE)
    ]
    assert headings[-2:] == ["What can go wrong", "What we learned"]


@every_notebook
def test_every_exercise_is_asked_in_its_notebook(path):
    from flashlearn.exercises import EXERCISES

    source = "\n".join(cell.source for cell in read(path).cells)
    for name in EXERCISES:
        if name.startswith(path.stem[:2]):
            assert f"**{name}**" in source and f'check("{name}"' in source, name


@every_notebook
def test_speaks_of_no_machine(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|work|tmp|Users)/", text)


def test_every_myth_is_refuted_by_code_and_listed():
    listed = (FOLDER.parent / "flashlearn/course/myths.md").read_text(encoding="utf-8").replace("`", "")
    found = 0
    for path in NOTEBOOKS:
        cells = read(path).cells
        for cell, following in zip(cells, cells[1:], strict=False):
            for myth in (
                re.findall(r"^### Myth: (.*)$", cell.source, flags=re.MULTILINE) if cell.cell_type == "markdown" else ()
            ):
                found += 1
                assert following.cell_type == "code" and re.search(r"\bassert", following.source), myth
                assert myth.strip('"“”').replace("`", "") in listed, myth
    assert found
