"""Executes the notebook."""

from __future__ import annotations

import nbformat
import pytest
from common import ROOT
from nbclient import NotebookClient

FOLDER = ROOT / "bindings/python/notebooks"


@pytest.mark.timeout(900)
def test_the_notebook_runs_and_draws_a_table_of_each_thread() -> None:
    notebook = nbformat.read(FOLDER / "threads.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs for cell in code), "strip the outputs before you commit"
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": FOLDER}}).execute()
    outputs = [output for cell in code for output in cell.outputs]
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    assert kinds.count("image/png") == 4
    assert kinds.count("text/html") >= 4
