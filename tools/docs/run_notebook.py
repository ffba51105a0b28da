"""Runs examples/tour.ipynb in a kernel, as Jupyter does, and writes it with its outputs.

    python -m tools.docs.run_notebook PACKAGES

Runs in the environment of the site, which has Jupyter. PACKAGES is a folder of installed packages
that the notebook needs and this environment lacks, such as torch. It writes build/tour.ipynb, which
`tools/docs/notebook.py` reads. `tests/docs/test_tour.py` runs the cells without Jupyter.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tools.docs.notebook import EXECUTED, NOTEBOOK, ROOT

_TIMEOUT_S = 300
"""Time limit in seconds for one cell."""


def main(packages: str) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), packages]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ship").symlink_to(ROOT / "examples" / "ship")
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, resources=resources, timeout=_TIMEOUT_S).execute(env=environment)
    EXECUTED.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, EXECUTED)
    print(f"{NOTEBOOK.name}: {len(notebook.cells)} cells, {EXECUTED.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
