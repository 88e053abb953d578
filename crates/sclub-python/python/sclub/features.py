"""Vectors of items from what a catalogue has: a transformer with the methods of scikit-learn."""

from __future__ import annotations

import inspect
import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._lab_worlds import Taken, read_ratings
from ._sclub import Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ItemFeatures"]


class ItemFeatures:
    """Turns items with titles, tags, categories and numbers into vectors.

    The transform is that of ``sclub features --items``, with the same bits and the same file. Parameters are
    scikit-learn's: stored as they are given, looked at by `fit`, and copied by `sklearn.base.clone`.

    Parameters
    ----------
    dim : int
        The number of features, a constant one included.
    id_column : str, optional
        The column of ids. By default the one called ``id``, ``item_id`` or the like.
    text, tags, category, number, ignore : sequences of str
        The columns of words, of several tags, of one category, of numbers, and those to leave out. Others are guessed.
    separator : str, optional
        The text between two tags. By default it is guessed: ``|``, ``;`` or a comma.

    Attributes
    ----------
    report_ : dict
        What was made of each column (``columns``), how much it explains, the columns that were left out (``ignored``)
        and why (``reasons``), and the warnings of the fit (``warnings``). Not there after `load`.
    n_features_out_ : int
        The number of features.

    Examples
    --------
    >>> import sclub
    >>> films = [
    ...     {"id": 1, "title": "Alien", "genres": "horror|space"},
    ...     {"id": 2, "title": "Aliens", "genres": "action|space"},
    ...     {"id": 3, "title": "Heat", "genres": "action|crime"},
    ... ]
    >>> features = sclub.ItemFeatures(dim=4, tags=["genres"], ignore=["title"])
    >>> features.fit_transform(films).shape
    (3, 4)
    >>> list(features.get_feature_names_out())
    ['genres=action', 'genres=space', 'x3', 'constant']
    >>> features.transform([{"id": 4, "title": "Solaris", "genres": "space"}]).shape
    (1, 4)
    """

    def __init__(
        self,
        dim: int = 20,
        *,
        id_column: str | None = None,
        text: Sequence[str] = (),
        tags: Sequence[str] = (),
        category: Sequence[str] = (),
        number: Sequence[str] = (),
        ignore: Sequence[str] = (),
        separator: str | None = None,
    ) -> None:
        self.dim = dim
        self.id_column = id_column
        self.text = text
        self.tags = tags
        self.category = category
        self.number = number
        self.ignore = ignore
        self.separator = separator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, by name."""
        del deep
        return {name: getattr(self, name) for name in _parameters()}

    def set_params(self, **parameters: Any) -> ItemFeatures:
        """Changes parameters. They take effect with the next `fit`."""
        for name, value in parameters.items():
            if name not in _parameters():
                known = ", ".join(_parameters())
                raise ValueError(f"there is no parameter '{name}'; the parameters are {known}")
            setattr(self, name, value)
        return self

    def fit(self, X: Any, y: object = None, *, ratings: Any = None) -> ItemFeatures:
        """Fits the transform to a catalogue.

        Parameters
        ----------
        X : DataFrame, or iterable of mappings
            The items.
        y : ignored
        ratings : file, table or `sclub.lab.Taken`, optional
            Who took what, as `sclub.lab.read_ratings` reads it. Items that at least 5 users took get vectors made
            from that, and all others those that their columns predict.

        Warns
        -----
        UserWarning
            If texts in a column of numbers were taken as missing, a comma can mean two things, or a column has almost
            only numbers. The items are named by their places, from 1.
        """
        self._fit(X, ratings)
        return self

    def fit_transform(self, X: Any, y: object = None, *, ratings: Any = None) -> NDArray[np.float64]:
        """`fit`, and the vectors of the same items."""
        return self._fit(X, ratings)

    def transform(self, X: Any) -> NDArray[np.float64]:
        """The vectors of items: an array of shape (items, dim). No row is longer than 1."""
        return self._fitted().apply(_json(X))

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """The names of the features."""
        del input_features
        return np.asarray(self._fitted().feature_names(), dtype=object)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file that ``sclub serve --features`` takes."""
        Path(path).write_bytes(self._fitted().encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ItemFeatures:
        """Reads a file that `save` or ``sclub features --items`` wrote."""
        transform = Transform.decode(Path(path).read_bytes())
        kinds: dict[str, list[str]] = {"text": [], "tags": [], "number": []}
        for column, kind in transform.columns():
            kinds[kind].append(column)
        features = cls(
            transform.dim,
            id_column=transform.id_column,
            text=kinds["text"],
            tags=kinds["tags"],
            number=kinds["number"],
        )
        features._keep(transform)
        return features

    def __repr__(self) -> str:
        defaults = inspect.signature(ItemFeatures).parameters
        given = (
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value != defaults[name].default
        )
        return f"ItemFeatures({', '.join(given)})"

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if "_transform" in state:
            state["_transform"] = state["_transform"].encode()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_transform" in state:
            self._transform = Transform.decode(state["_transform"])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_transform")

    def _fit(self, items: Any, ratings: Any) -> NDArray[np.float64]:
        options = {name: _plain(value) for name, value in self.get_params().items()}
        taken = None
        if ratings is not None:
            read = ratings if isinstance(ratings, Taken) else read_ratings(ratings)
            taken = (read.items, read.user, read.item)
        transform, vectors, report = Transform.fit(_json(items), json.dumps(options), taken)
        self._keep(transform)
        self.report_ = json.loads(report)
        for hint in self.report_["warnings"]:
            warnings.warn(hint, UserWarning, stacklevel=3)
        return vectors

    def _keep(self, transform: Transform) -> None:
        self._transform = transform
        self.n_features_out_ = transform.dim

    def _fitted(self) -> Transform:
        if not hasattr(self, "_transform"):
            raise ValueError("this ItemFeatures is not fitted yet; call fit, or load a file")
        return self._transform


def _parameters() -> list[str]:
    return list(inspect.signature(ItemFeatures).parameters)


def _json(items: Any) -> str:
    """The items as a list in JSON."""
    if hasattr(items, "to_dict") and hasattr(items, "columns"):
        # A DataFrame of pandas.
        items = items.to_dict("records")
    elif hasattr(items, "to_dicts"):
        # A DataFrame of polars.
        items = items.to_dicts()
    elif isinstance(items, (Mapping, str, bytes)) or not isinstance(items, Iterable):
        kind = type(items).__name__
        raise TypeError(f"items: a DataFrame or a list of dicts is expected, not {kind}")
    rows = []
    for item in items:
        if not isinstance(item, Mapping):
            raise TypeError(f"items: a dict for each item is expected, not {type(item).__name__}")
        rows.append({str(name): _plain(value) for name, value in item.items()})
    return json.dumps(rows, allow_nan=False)


def _plain(value: Any) -> Any:
    """A value as JSON has it. What is not a number is missing."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
        return [_plain(part) for part in parts]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    # NaT and NA of pandas are not equal to themselves.
    try:
        if bool(value != value):
            return None
    except TypeError:
        return None
    return str(value)
