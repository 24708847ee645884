"""The notebooks of examples/: they run, and their stored output is what comes of it."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SIZE_MAX = 300_000


def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("examples_run", EXAMPLES / "run.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(notebook: Any) -> list[tuple[str, list[str]]]:
    """Of each cell of code its source, and its output as text; of a picture, that there is one."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            texts = []
            for output in cell.outputs:
                data = output.get("data", {})
                texts.append(output.get("text") or data.get("text/plain", ""))
                texts += ["picture"] if "image/png" in data else []
            found.append((cell.source, texts))
    return found


NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_stored_output_is_what_comes_of_it(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    for package in ["nbclient", "ipykernel", "matplotlib", "polars", "distributed"]:
        pytest.importorskip(package)
    stored = nbformat.read(path, as_version=4)
    assert path.stat().st_size < SIZE_MAX
    assert all(output.output_type != "error" for cell in stored.cells for output in cell.get("outputs", []))
    assert any("picture" in texts for _, texts in shown(stored))
    made = runner().run(path)
    assert shown(made) == shown(stored), "examples/run.py stores the output anew"
