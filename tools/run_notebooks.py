"""Run notebooks in place, top to bottom, and keep only outputs that are the same every time.

    python tools/run_notebooks.py                      all of notebooks/
    python tools/run_notebooks.py notebooks/03*.ipynb  some

Widget views are dropped from the stored outputs: their ids are random, and a page that cannot run them shows an error
in their place. The picture and the text next to them stay. Every run is stored as an animated PNG, a long one too. A
notebook that comes out as it was is not written.
"""

import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from tqdm import tqdm

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
EVERY_FRAME = {"FLASHLEARN_ALL_FRAMES": "1", "FLASHLEARN_REDUCED_MOTION": ""}


def run(path: Path) -> float:
    """Execute one notebook in place, and write it if that changed something; seconds taken."""
    notebook = nbformat.read(path, as_version=4)
    start = time.monotonic()
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        store_widget_state=False,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute(env={**os.environ, **EVERY_FRAME})
    seconds = time.monotonic() - start
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)
        if "outputs" in cell:  # words below a picture are a widget and nothing else
            cell.outputs = [output for output in cell.outputs if output.get("data") != {}]
    nbformat.validate(notebook)
    stored = nbformat.writes(notebook) + "\n"
    if stored != path.read_text(encoding="utf-8"):
        path.write_text(stored, encoding="utf-8", newline="\n")  # on Windows too
    return seconds


if __name__ == "__main__":
    named = [Path(name) for name in sys.argv[1:]]
    for path in tqdm(named or sorted(Path("notebooks").glob("*.ipynb")), unit="notebook", disable=None):
        tqdm.write(f"{path}: {run(path):.1f} s")
        sys.stdout.flush()
