"""The notebooks run, and show what they showed when they were written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def code_cells(notebook: Any) -> Iterator[Any]:
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def shown(cell: Any) -> list[tuple[str, ...]]:
    """The kinds of output of a cell, without progress bars."""
    return [
        (output.output_type, *sorted(output.get("data", {})))
        for output in cell.outputs
        if output.get("name") != "stderr"
    ]


def text(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs if "text" in output)


def test_both_notebooks_are_here() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["cold-start", "figure-1a"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_showed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCLUB_QUICK", "1")
    monkeypatch.delenv("SCLUB_RATINGS", raising=False)
    kept = nbformat.read(path, 4)
    again = nbformat.read(path, 4)
    NotebookClient(again, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    exact = 0
    for before, now in zip(code_cells(kept), code_cells(again), strict=True):
        if "exact" in before.metadata.get("tags", []):
            assert text(now) == text(before) != "", before.source
            exact += 1
        elif "quick" not in before.source:
            assert shown(now) == shown(before), before.source
    assert exact >= 2
