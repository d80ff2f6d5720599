"""Every notebook runs from top to bottom, without an error and without a word on stderr; kept without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")
pytest.importorskip("pandas")
pytest.importorskip("sklearn")
nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))
by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


class Shown(NamedTuple):
    pictures: int
    cards: int  # results and explanations


SHOWN = {"first_look": Shown(1, 2), "monitoring": Shown(1, 1), "paper": Shown(4, 0)}


def run(notebook: Any, folder: Path) -> Any:
    """Run it in a kernel of its own."""
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    return client.execute()


def shown(notebook: Any, kind: str) -> list[str]:
    """What the cells show of this kind."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.data[kind] for output in outputs if kind in output.get("data", {})]


def said(notebook: Any) -> list[str]:
    """What the cells wrote to stderr."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == list(SHOWN)


@by_name
def test_kept_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code")
    assert sum(cell["cell_type"] == "markdown" for cell in cells) >= len(cells) / 3  # there to be read


@by_name
def test_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    done = run(nbformat.read(path, as_version=4), tmp_path)
    assert not said(done)
    assert len(shown(done, "image/png")) == SHOWN[path.stem].pictures
    assert sum("xch card" in text for text in shown(done, "text/html")) == SHOWN[path.stem].cards


@pytest.mark.parametrize("source", ["1 / 0", "import warnings; warnings.warn('careful')"])
def test_a_bad_notebook_is_noticed(source: str, tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    try:
        failed = bool(said(run(notebook, tmp_path)))
    except nbclient.exceptions.CellExecutionError:
        failed = True
    assert failed
