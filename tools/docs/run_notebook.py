"""Runs examples/tour.ipynb in a kernel, as Jupyter does, and checks that it shows replays.

    python -m tools.docs.run_notebook

For the environment of the site, which has Jupyter; without torch the cells from training on are
left out. `tests/docs/test_tour.py` runs all of them without Jupyter.
"""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "tour.ipynb"


def main() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    if find_spec("torch") is None:
        first = next(i for i, cell in enumerate(notebook.cells) if "agents.ppo" in cell.source)
        notebook.cells = notebook.cells[:first]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ship").symlink_to(ROOT / "examples" / "ship")
        NotebookClient(notebook, resources={"metadata": {"path": folder}}, timeout=60).execute()
    shown = [
        output["data"]["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "text/html" in output.get("data", {})
    ]
    if sum("srcdoc" in each for each in shown) < 2:
        sys.exit(f"{NOTEBOOK.name} shows {len(shown)} replays: expected two or more")
    print(f"{NOTEBOOK.name}: {len(notebook.cells)} cells, {len(shown)} replays")


if __name__ == "__main__":
    main()
