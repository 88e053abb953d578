"""Validation and conversion of arguments, before anything is sent."""

from __future__ import annotations

import json
import math
import numbers
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Protocol, SupportsIndex, TypeAlias

import numpy as np

Id: TypeAlias = str | SupportsIndex
"""An id of a user or an item. A whole number of Python or NumPy is sent as its decimal digits."""

Features: TypeAlias = Iterable[float]
"""The features of an item: a list, a tuple, a NumPy array."""


Context: TypeAlias = Mapping[str, float | bool | str]
"""Values of context features, by name."""

Reward: TypeAlias = float | Sequence[float] | np.ndarray[Any, np.dtype[Any]]
"""The reward of an item, or those of a list, in the order shown."""


#: Truth values. In some versions of NumPy its own pass as whole numbers.
_BOOLS = (bool, np.bool_)


class Frame(Protocol):
    """The part of a pandas DataFrame that is used here. pandas need not be installed."""

    @property
    def columns(self) -> Any: ...
    @property
    def index(self) -> Any: ...
    @property
    def iloc(self) -> Any: ...


Items: TypeAlias = (
    Frame
    | Mapping[str, Features | Mapping[str, Any]]
    | Mapping[int, Features | Mapping[str, Any]]
    | Iterable[tuple[Id, Features | Mapping[str, Any]]]
    | Iterable[Mapping[str, Any]]
)
"""Items with their features or raw fields: a DataFrame, a mapping from ids, pairs, or mappings with ``"id"``."""

Entry: TypeAlias = tuple[str, list[float] | None, dict[str, Any]]
"""An item: id, features, and other fields. Without features they are raw fields, which a server makes features of."""


def id_of(value: Any, name: str) -> str:
    """An id as it is sent.

    >>> id_of("anna", "user"), id_of(7, "user"), id_of(7.0, "user")
    ('anna', '7', '7')
    >>> id_of(7.5, "user")
    Traceback (most recent call last):
    TypeError: user must be a string or a whole number, not float: 7.5
    """
    if isinstance(value, str):
        text = plain_text(value)
    elif isinstance(value, (float, np.floating)) and float(value).is_integer():
        # As the server reads it: in JSON it is the same number.
        text = _digits(int(value), name)
    elif isinstance(value, _BOOLS) or not hasattr(value, "__index__"):
        kind = type(value).__name__
        shown = repr(value)[:80]
        raise TypeError(f"{name} must be a string or a whole number, not {kind}: {shown}")
    else:
        text = _digits(operator.index(value), name)
    if not text:
        raise ValueError(f"{name} is empty; it must have at least one character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} is not valid Unicode: {text!r}") from None
    return text


def plain_text(value: str) -> str:
    """A text as it is sent. `str` would give the name of a member of an `Enum` of texts.

    >>> from enum import Enum
    >>> plain_text(Enum("Device", {"PHONE": "phone"}, type=str).PHONE)
    'phone'
    """
    return str.__str__(value)


def _digits(number: int, name: str) -> str:
    """A whole number as an id. The limits are those of the server, for all clients."""
    if not -(2**63) <= number < 2**64:
        raise ValueError(
            f"{name}: an id that is a number must be from -2^63 to 2^64-1; give a larger one as a string"
        )
    return str(number)


def ids_of(values: Any, name: str) -> list[str]:
    """A list of ids."""
    if isinstance(values, (str, bytes, int)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of ids, not {type(values).__name__}")
    return [id_of(value, f"{name}[{place}]") for place, value in enumerate(values)]


def several_of(values: Any, name: str, what: str) -> Iterable[Any]:
    """An iterable. A single string or mapping is refused: it would be split into its parts.

    >>> several_of("anna", "requests", "users")
    Traceback (most recent call last):
    TypeError: requests must be a list of users, not str
    """
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of {what}, not {type(values).__name__}")
    return values


def whole_of(value: Any, name: str) -> int:
    """A whole number."""
    if isinstance(value, _BOOLS) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}")
    return operator.index(value)


def count_of(value: Any, name: str) -> int:
    """A whole number that is not negative."""
    number = whole_of(value, name)
    if number < 0:
        raise ValueError(f"{name} is {number}; it must be 0 or more")
    return number


def is_list(value: Any) -> bool:
    """True for lists, tuples, ranges and other sequences, and for arrays with a dimension. A text is none."""
    is_sequence = isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))
    return is_sequence or getattr(value, "ndim", 0) > 0


def context_of(values: Any, name: str) -> dict[str, float | bool | str]:
    """Values of context features: numbers, truth values and names.

    >>> context_of({"hour": np.float32(0.5), "device": "phone"}, "context")
    {'hour': 0.5, 'device': 'phone'}
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be a mapping, not {type(values).__name__}")
    sent: dict[str, float | bool | str] = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise TypeError(f"{name} has the name {key!r}; names must be strings")
        if isinstance(value, str):
            sent[key] = plain_text(value)
        else:
            sent[key] = number_of(value, f"{name}[{key!r}]")
    return sent


def number_of(value: Any, name: str) -> float:
    """A finite number, of Python or of NumPy; a truth value counts as one.

    >>> number_of(True, "reward"), number_of(0.5, "reward")
    (1.0, 0.5)
    >>> number_of(float("nan"), "reward")
    Traceback (most recent call last):
    ValueError: reward is nan; it must be a finite number
    """
    if not isinstance(value, numbers.Real):
        # NumPy's truth values and arrays without dimensions are no `Real`.
        plain = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else None
        if not isinstance(plain, numbers.Real):
            raise TypeError(f"{name} must be a number, not {type(value).__name__}")
        value = plain
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}; it must be a finite number")
    return number


def features_of(values: Any, name: str) -> list[float]:
    """The features of an item."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of numbers, not {type(values).__name__}")
    row = list(values)
    if all(type(value) is float for value in row) and all(map(math.isfinite, row)):
        return row
    return [number_of(value, f"{name}[{place}]") for place, value in enumerate(row)]


_DESCRIPTION = ("title", "tags", "available", "data")
"""The names of the parts of an item's description."""


def described(more: dict[str, Any], name: str) -> dict[str, Any]:
    """The description of an item.

    >>> described({"tags": ("red",), "available": np.bool_(False)}, "items['tea']")
    {'tags': ['red'], 'available': False}
    """
    sent = dict(more)
    if "title" in more and not isinstance(more["title"], str):
        raise TypeError(f"{name}: title must be a string, not {type(more['title']).__name__}")
    if "tags" in more:
        sent["tags"] = ids_of(more["tags"], f"{name}: tags")
    if "available" in more:
        if not isinstance(more["available"], _BOOLS):
            kind = type(more["available"]).__name__
            raise TypeError(f"{name}: available must be True or False, not {kind}")
        sent["available"] = bool(more["available"])
    if "data" in more:
        sent["data"] = json_object(more["data"], f"{name}: data")
    return sent


def raw_fields(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The raw fields of an item, without those that are None.

    >>> raw_fields({"price": np.float32(4.5), "tags": ("hot",), "brand": None}, "items['tea']")
    {'price': 4.5, 'tags': ('hot',)}
    """
    sent = {}
    for field, value in fields.items():
        if not isinstance(field, str):
            raise TypeError(f"{name} has the field {field!r}; names of fields must be strings")
        # Numbers and arrays of NumPy.
        plain = value.tolist() if hasattr(value, "tolist") else value
        if plain is not None:
            sent[field] = plain
    return json_object(sent, name)


def json_object(value: Any, name: str) -> dict[str, Any]:
    """A mapping that can be sent as a JSON object."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, not {type(value).__name__}")
    sent = dict(value)
    try:
        to_json(sent)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name} cannot be sent as JSON: {error}") from None
    return sent


def items_of(
    items: Any, name: str = "items", id: str | None = None, raw: bool = False
) -> list[Entry]:
    """Items with their features or raw fields, each once, and all with the same number of features.

    >>> items_of({"tea": [1, 0], "mate": (0.6, 0.8), "cola": {"price": 2}})
    [('tea', [1.0, 0.0], {}), ('mate', [0.6, 0.8], {}), ('cola', None, {'price': 2})]
    """
    if hasattr(items, "columns") and hasattr(items, "iloc"):
        entries = list(_from_frame(items, name, id, raw))
    elif id is not None or raw:
        raise TypeError(f"id and raw are about the columns of a DataFrame, and {name} is none")
    else:
        entries = list(_from_pairs(items, name))
    seen: dict[str, int] = {}
    first: tuple[int, str, int] | None = None
    for place, (key, features, _) in enumerate(entries):
        if key in seen:
            raise ValueError(f"{name}: id {key!r} is there twice, in rows {seen[key]} and {place}")
        seen[key] = place
        if features is None:
            continue
        first = first or (len(features), key, place)
        if len(features) != first[0]:
            raise ValueError(
                f"{name}: {key!r} (row {place}) has {len(features)} features, and "
                f"{first[1]!r} (row {first[2]}) has {first[0]}"
            )
    return entries


def _from_pairs(items: Any, name: str) -> Iterator[Entry]:
    if isinstance(items, Mapping):
        items = items.items()
    if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
        raise TypeError(
            f"{name} must be a DataFrame, a mapping from ids to features, or a list of items, "
            f"not {type(items).__name__}"
        )
    for place, item in enumerate(items):
        if isinstance(item, Mapping):
            if "id" not in item:
                raise ValueError(f"{name}[{place}] must have 'id'")
            fields = dict(item)
            key = fields.pop("id")
        elif isinstance(item, (tuple, list)) and len(item) == 2:
            key, features = item
            fields = dict(features) if isinstance(features, Mapping) else {"features": features}
            if "id" in fields:
                raise ValueError(f"{name}[{place}] has two ids: {key!r} and {fields['id']!r}")
        else:
            raise TypeError(f"{name}[{place}] must be a pair of an id and features")
        key = id_of(key, f"{name}[{place}].id")
        where = f"{name}[{key!r}]"
        if "features" not in fields:
            yield key, None, raw_fields(fields, where)
            continue
        features = features_of(fields.pop("features"), where)
        if not fields.keys() <= set(_DESCRIPTION):
            others = ", ".join(repr(other) for other in _DESCRIPTION)
            raise ValueError(
                f"{name}[{place}] has 'features', so it may have {others}, and nothing else"
            )
        more = {field: value for field, value in fields.items() if value is not None}
        yield key, features, described(more, where)


def _from_frame(frame: Any, name: str, id: str | None, raw: bool) -> Iterator[Entry]:
    columns = list(frame.columns)
    if id is not None and columns.count(id) != 1:
        raise ValueError(f"{name} must have one column {id!r}, and has {columns.count(id)}")
    if id is None and columns.count("id") == 1:
        id = "id"
    if id is None and raw and type(frame.index).__name__ == "RangeIndex":
        raise ValueError(
            f"{name}: which column has the ids? Name it, as id={columns[0]!r}; the rows have only their numbers"
        )
    if id is None:
        keys = frame.index.tolist()
    else:
        keys = frame.iloc[:, columns.index(id)].tolist()
    ids = [id_of(key, f"{name}: the id in row {place}") for place, key in enumerate(keys)]
    others = [place for place, column in enumerate(columns) if column != id]
    if not others:
        raise ValueError(f"{name} has no column of {'raw fields' if raw else 'features'}")
    if raw:
        return _raw_rows(frame.iloc[:, others], name, ids)
    parts = []
    for place in others:
        column, series = columns[place], frame.iloc[:, place]
        if series.dtype.kind not in "biuf":
            raise ValueError(
                f"{name}: column {column!r} is not numeric{_culprit(series, ids)}; raw=True sends "
                "raw fields, which the server makes features of"
            )
        values = series.to_numpy(dtype="float64", na_value=math.nan)
        is_finite = np.isfinite(values)
        if not is_finite.all():
            row = int(is_finite.argmin())
            raise ValueError(
                f"{name}: column {column!r} is {values[row]} in row {row} ({ids[row]!r}); it must be a "
                "finite number"
            )
        parts.append(values)
    rows = np.column_stack(parts).tolist()
    return ((key, row, {}) for key, row in zip(ids, rows, strict=True))


def _raw_rows(frame: Any, name: str, ids: list[str]) -> Iterator[Entry]:
    """Rows whose columns are raw fields. Those that are missing are left out."""
    columns = list(frame.columns)
    if len(set(columns)) != len(columns):
        raise ValueError(f"{name} has two columns of the same name: {columns}")
    series = [frame.iloc[:, place] for place in range(len(columns))]
    rows = zip(*(one.astype(object).where(one.notna(), None) for one in series), strict=True)
    for key, row in zip(ids, rows, strict=True):
        fields = raw_fields(dict(zip(columns, row, strict=True)), f"{name}[{key!r}]")
        yield key, None, fields


def _culprit(series: Any, ids: list[str]) -> str:
    """The first value of a column that is not a number."""
    for row, value in enumerate(series.tolist()):
        if not isinstance(value, numbers.Real):
            return f": row {row} ({ids[row]!r}) has {value!r}"
    return f", but of type {series.dtype}"


def to_json(value: Any) -> bytes:
    """JSON as it is sent.

    >>> to_json({"price": np.float32(0.5), "sizes": np.array([1, 2])})
    b'{"price":0.5,"sizes":[1,2]}'
    """
    try:
        return json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain
        ).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy as those of Python."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def pieces_of(
    entries: list[Entry], most_bytes: int, most_lines: int
) -> Iterator[tuple[int, bytes]]:
    """JSON lines in pieces of bounded size, each with the number of items in it. No item is cut.

    >>> [count for count, _ in pieces_of([("a", [1.0], {}), ("b", [2.0], {}), ("c", [3.0], {})], 1000, 2)]
    [2, 1]
    """
    lines: list[bytes] = []
    size = 0
    for key, features, more in entries:
        made = {} if features is None else {"features": features}
        line = to_json({"id": key, **made, **more}) + b"\n"
        if lines and (size + len(line) > most_bytes or len(lines) == most_lines):
            yield len(lines), b"".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield len(lines), b"".join(lines)
