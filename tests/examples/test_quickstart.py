"""examples/quickstart.ipynb runs from its top to its end, and is kept without outputs."""

import nbformat
import pytest

from models import shipped
from tests.stages import ROOT

NOTEBOOK = nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4)


def test_the_notebook_shows_every_workload_and_keeps_no_output():
    code = [cell for cell in NOTEBOOK.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    source = "".join(cell.source for cell in code)
    workloads = {path.name.partition("-")[0] for path in shipped.FOLDER.iterdir() if path.is_dir()}
    loaded = {workload for workload in workloads if f'SHIPPED / "{workload}-' in source}
    assert loaded == workloads == {"bep", "crypto", "cvrp", "lmol", "tinystories"}


@pytest.mark.slow
def test_the_notebook_runs():
    import nbclient  # which takes as long to import as many a test to run

    done = nbclient.NotebookClient(
        NOTEBOOK.copy(), timeout=240, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}
    ).execute()
    printed = "".join(
        str(output.get("text", "")) + ("figure" if "image/png" in output.get("data", {}) else "")
        for cell in done.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    assert printed.count("figure") == 2  # routes and candles
    assert "once upon a time" in printed
    assert ".md" in printed  # the source of a suggestion
    assert "scores" in printed or "score" in printed
