"""Runs the notebooks beside this file and stores their output: `python examples/run.py [NAME.ipynb ...]`.

Needs nbclient, ipykernel, matplotlib, polars and distributed: python/requirements-cluster.in.
"""

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: A cell that runs longer has failed.
LIMIT_SECONDS = 300


def notebooks() -> list[Path]:
    return sorted(HERE.glob("*.ipynb"))


def run(path: Path) -> Any:
    """The notebook as it is after a run in an empty directory.

    What depends on the machine or the moment is left out: paths, wall-clock times, standard error, and versions.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="tidewater-") as folder:
        client = NotebookClient(
            notebook,
            timeout=LIMIT_SECONDS,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        client.execute()
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.metadata = {}
                cell.outputs = _cleaned(cell.outputs, folder)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def _cleaned(outputs: list[Any], folder: str) -> list[Any]:
    kept: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and output.name == "stderr":
            continue
        if output.output_type == "stream":
            output.text = _text(output.text, folder)
            if kept and kept[-1].output_type == "stream":
                kept[-1].text += output.text
                continue
        elif "data" in output:
            output.metadata = {}
            for kind, value in output.data.items():
                if kind.startswith("text/"):
                    output.data[kind] = _text(value, folder)
        kept.append(output)
    return kept


def _text(text: str, folder: str) -> str:
    return re.sub(r"^simulation  .*\n", "", text.replace(folder, "."), flags=re.MULTILINE)


def main(names: list[str]) -> None:
    import nbformat

    for path in [HERE / name for name in names] or notebooks():
        nbformat.write(run(path), path)
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
