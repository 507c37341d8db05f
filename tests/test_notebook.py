"""The notebook runs on a finished run's tables, and what it shows is small."""

import re

import nbformat
from conftest import ROOT
from nbclient import NotebookClient

PATH = ROOT / "notebooks/explore.ipynb"


def test_the_notebook_runs_and_says_little(finished, tmp_path, monkeypatch):
    notebook = nbformat.read(PATH, as_version=4)
    assert not [cell for cell in notebook.cells if cell.get("outputs")], "the file in git holds no output"
    monkeypatch.setenv("RESULTS", str(finished / "results"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    assert sum("image/png" in output["data"] for output in shown) == 2
    texts = [output["data"]["text/plain"] for output in shown]
    assert not [text for text in texts if re.search(r"shape: \(0,|Empty DataFrame", text)]
    asked = [cell.source.splitlines()[0] for cell in notebook.cells if cell.source.startswith("## ")]
    assert [title[-1] for title in asked] == ["?"] * 5 + ["e"], "five questions, and what one key changes"
    *_, answers = texts
    differences = [
        int(row.split("┆")[-1].strip(" │")) for row in answers.splitlines() if re.search(r"┆ -?\d+ +│$", row)
    ]
    assert max(differences) <= 0 > min(differences), "half of the memory never holds more, and somewhere less"
    assert len(nbformat.writes(notebook)) < 150_000
