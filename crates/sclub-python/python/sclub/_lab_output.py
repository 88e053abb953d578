"""Folders with the files of a table, and with the results that are stored beside them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

#: The file of stored results.
CELLS = "cells.jsonl"


def stored_results(out: str | os.PathLike[str] | None, fresh: bool) -> Path | None:
    """The file of stored results in a folder, which is made if it is missing; None without a folder."""
    if out is None:
        if fresh:
            raise ValueError("fresh is True, and out is None; there are no stored results to delete")
        return None
    folder = Path(out)
    cells = folder / CELLS
    if (folder / "index.html").exists() and not cells.exists():
        raise ValueError(
            f"{folder} has an index.html without stored results beside it; choose another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if fresh:
        cells.unlink(missing_ok=True)
    return cells


def write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files, each so that it is there whole or not at all."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_bytes(content)
        part.replace(path)


def call_of(name: str, **arguments: object) -> str:
    """A call of a function of `sclub.lab`, without arguments that are None."""
    given = [f"{key}={value!r}" for key, value in arguments.items() if value is not None]
    return f"sclub.lab.{name}({', '.join(given)})"
