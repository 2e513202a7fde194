"""The walk-through runs from top to bottom in a fresh kernel; its answers are right and its doubts are where
they belong.
"""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

PLACE = Path(__file__).parents[2] / "examples" / "walkthrough.ipynb"


def test_it_is_stored_without_outputs():
    cells = [c for c in nbformat.read(PLACE, as_version=4).cells if c.cell_type == "code"]
    assert cells and all(not cell.outputs and cell.execution_count is None for cell in cells)


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(tmp_path):
    notebook = nbformat.read(PLACE, as_version=4)
    notebook.cells.append(
        nbformat.v4.new_code_cell(
            "print(truth(firmer) in estimate.budget.honest, estimate.verdict != 'distrust', doubtful.verdict)"
        )
    )
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert notebook.cells[-1].outputs[0].text == "True True distrust\n"
    assert (tmp_path / "report.html").is_file() and (tmp_path / "results.json").is_file()
    pictures = [output for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    assert any("image/png" in picture.data for picture in pictures)
