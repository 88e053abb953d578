"""Ratings as people have them: files, and tables in memory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Union, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ._lab_checks import real, text
from ._sclub import lab_columns


@runtime_checkable
class Table(Protocol):
    """An object with columns: a DataFrame of pandas or polars, a table of pyarrow, a mapping."""

    def __getitem__(self, column: Any, /) -> Any:
        """A column by its name."""


#: A file, or a table.
Source = Union[str, "os.PathLike[str]", Table]


@dataclass(frozen=True)
class Reading:
    """The arguments that tell how ratings are read."""

    user_column: str | None
    item_column: str | None
    rating_column: str | None
    like_from: float | None
    rating_values: bool
    skip_bad_lines: bool

    def checked(self) -> dict[str, object]:
        """The validated arguments, without the data."""
        least = real("like_from", self.like_from)
        if least is not None and not math.isfinite(least):
            raise ValueError(f"like_from is {least}; it must be a finite number")
        if least is not None and self.rating_values:
            raise ValueError("like_from and rating_values exclude each other; give one of them")
        names = {
            name: None if value is None else text(name, value)
            for name, value in (
                ("user_column", self.user_column),
                ("item_column", self.item_column),
                ("rating_column", self.rating_column),
            )
        }
        return {
            "path": None,
            "table": None,
            "skip_bad_lines": bool(self.skip_bad_lines),
            "like_from": least,
            "rating_values": bool(self.rating_values),
            **names,
        }


def data_of(source: object, reading: Reading) -> tuple[dict[str, object], str | None]:
    """The data as the compiled part takes them, and the name of the file if it is one."""
    data = reading.checked()
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return {**data, "path": path}, path.name
    columns = columns_of(source)
    if columns is None:
        kind = type(source).__name__
        raise TypeError(f"ratings: a file or a table with columns is expected, not {kind}")
    return {**data, "table": _table(source, columns, reading)}, None


def columns_of(source: Any) -> list[str] | None:
    """The names of the columns of a table; None if it is none."""
    if isinstance(source, (np.ndarray, str, bytes, list, tuple)):
        return None
    if isinstance(source, Mapping):
        return [str(name) for name in source]
    # A table of pyarrow has the columns themselves in `columns`.
    for attribute in ("column_names", "columns"):
        names = getattr(source, attribute, None)
        if names is not None and isinstance(names, Iterable):
            return [str(name) for name in names]
    return None


def is_ratings(source: object, reading: Reading) -> bool:
    """True for a table with a column of users and one of items."""
    columns = columns_of(source)
    if columns is None:
        return False
    if reading.user_column is not None or reading.item_column is not None:
        return True
    try:
        lab_columns(columns, None, None, None)
    except ValueError:
        return False
    return True


def _table(source: Any, columns: list[str], reading: Reading) -> tuple[object, ...]:
    user, item, rating = lab_columns(
        columns, reading.user_column, reading.item_column, reading.rating_column
    )
    users, user_of_row = _numbered(source, columns[user], "user")
    items, item_of_row = _numbered(source, columns[item], "item")
    ratings = None
    if rating is not None and (reading.like_from is not None or reading.rating_values):
        ratings = _numbers(source, columns[rating])
    lengths = {columns[user]: len(user_of_row), columns[item]: len(item_of_row)}
    if rating is not None and ratings is not None:
        lengths[columns[rating]] = len(ratings)
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"'{name}' has {length}" for name, length in lengths.items())
        raise ValueError(f"columns have different numbers of rows: {told}")
    return users, items, user_of_row, item_of_row, ratings


def _array(source: Any, column: str) -> NDArray[Any]:
    try:
        values = source[column]
    except (KeyError, TypeError, IndexError):
        # The name of the column is not a string.
        named = {str(name): name for name in getattr(source, "columns", source)}
        values = source[named[column]]
    if hasattr(values, "to_pylist"):
        values = values.to_pylist()
    array: NDArray[Any] = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"column '{column}' has the shape {array.shape}; one value a row is expected")
    return array


def _numbered(source: Any, column: str, kind: str) -> tuple[list[str], NDArray[np.uint32]]:
    """The different names in order of appearance, and the number of each row's."""
    array = _array(source, column)
    if array.dtype.kind in "iu":
        values, first, inverse = np.unique(array, return_index=True, return_inverse=True)
        order = np.argsort(first)
        places = np.empty(len(order), dtype=np.uint32)
        places[order] = np.arange(len(order), dtype=np.uint32)
        return [str(int(values[place])) for place in order], places[np.reshape(inverse, -1)]
    if array.dtype.kind not in "OUST":
        raise TypeError(
            f"column '{column}' holds {array.dtype}; {kind}s must be strings or whole numbers"
        )
    numbers: dict[str, int] = {}
    rows = np.empty(len(array), dtype=np.uint32)
    first_type: tuple[str, int] | None = None
    for row, value in enumerate(array.tolist()):
        if isinstance(value, str):
            this, name = "strings", value
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            this, name = "whole numbers", str(int(value))
        elif value is None or value != value:
            raise ValueError(f"there is no {kind} in row {row + 1} of column '{column}'")
        else:
            raise TypeError(
                f"column '{column}' holds {value!r} in row {row + 1}; {kind}s must be strings or whole numbers"
            )
        if not name:
            raise ValueError(f"there is no {kind} in row {row + 1} of column '{column}'")
        if first_type is None:
            first_type = (this, row + 1)
        elif first_type[0] != this:
            raise TypeError(
                f"column '{column}' holds {first_type[0]} in row {first_type[1]} and {this} in row {row + 1}; "
                "make them all strings"
            )
        rows[row] = numbers.setdefault(name, len(numbers))
    return list(numbers), rows


def _numbers(source: Any, column: str) -> NDArray[np.float64]:
    """Ratings, NaN where there is none."""
    array = _array(source, column)
    if array.dtype.kind in "iufb":
        return np.ascontiguousarray(array, dtype=np.float64)
    ratings = np.empty(len(array), dtype=np.float64)
    for row, value in enumerate(array.tolist()):
        if value is None or value != value:
            ratings[row] = math.nan
            continue
        try:
            ratings[row] = float(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"the rating {value!r} in row {row + 1} of column '{column}' is not a number"
            ) from None
    return ratings
