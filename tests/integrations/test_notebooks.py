"""The notebooks of the documentation, run as a reader runs them, and what a notebook shows of results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def run(path: Path, folder: Path) -> Any:
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    return book


def shown(book: Any) -> list[dict[str, Any]]:
    """What every cell shows as its value."""
    outputs = [out for cell in book.cells if cell.cell_type == "code" for out in cell.outputs]
    return [dict(out.data) for out in outputs if out.output_type == "execute_result"]


def test_there_are_three_and_they_are_kept_without_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        book = nbformat.read(path, as_version=4)
        nbformat.validate(book)
        assert not any(cell.outputs for cell in book.cells if cell.cell_type == "code")
        assert re.search(r"\*\*Takes about \w+ minutes?\*\*", book.cells[0].source)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path) -> None:
    found = shown(run(path, tmp_path))
    pages = [data["text/html"] for data in found if "text/html" in data]
    assert any("data:image/png;base64," in page for page in pages) or any("image/png" in data for data in found)
    assert any("<table" in page for page in pages)
    assert all(len(data["text/plain"]) < 4000 for data in found)


def test_dataframes() -> None:
    import numpy as np

    import hesscope as hs

    norms = hs.BlockNorms(np.eye(2), np.zeros((2, 2)), ("a", "b"), ("a", "b"), np.ones(2), "hessian", True, 0)
    frame = norms.to_dataframe().set_index("block")
    assert frame.loc["b", "b"] == 1.0
    assert list(frame.columns) == ["a", "b"]
