"""Validation of the lab's arguments, with errors that name them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, overload

#: Whole numbers are below this.
LIMIT = 2**64

#: Arguments that may be 0. Others are checked later, together with their maximum.
FROM_ZERO = ("seed", "a seed", "first_seed", "change_at", "categories", "price_bands", "numbers", "delay")


@overload
def whole(name: str, value: None) -> None: ...
@overload
def whole(name: str, value: object) -> int: ...
def whole(name: str, value: Any) -> int | None:
    """A whole number, also NumPy's."""
    if value is None:
        return None
    try:
        number = int(value.__index__())
    except (AttributeError, TypeError):
        raise TypeError(f"{name} is {value!r}; a whole number is expected") from None
    if not 0 <= number < LIMIT:
        least = 0 if name in FROM_ZERO else 1
        raise ValueError(f"{name} is {number}; it must be between {least} and 2**64 - 1")
    return number


def real(name: str, value: Any) -> float | None:
    """A number."""
    if value is None:
        return None
    try:
        return float(value.__float__() if hasattr(value, "__float__") else value.__index__())
    except (AttributeError, TypeError):
        raise TypeError(f"{name} is {value!r}; a number is expected") from None


def many(count: int, one: str, several: str | None = None) -> str:
    """A count in words, such as "1 seed" and "3 seeds"."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def is_or_are(count: int) -> str:
    """The verb of a count."""
    return "is" if count == 1 else "are"


def text(name: str, value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; a string is expected")
    return value


_WHOLE = (
    "users", "clusters", "dim", "items", "change_at", "corrupted_rounds", "items_fixed", "item_clusters",
    "cascade", "servers",
)  # fmt: skip
_OPTIONAL = (
    "noise", "users_a_round", "reward_scale", "newcomers_every", "change_at", "items_fixed", "item_clusters",
    "cascade", "smoothed", "servers",
)  # fmt: skip


def recipe(values: dict[str, Any]) -> dict[str, object]:
    """The validated arguments of a synthetic world."""
    checks: dict[str, Callable[[str, Any], object]] = {
        **dict.fromkeys(_WHOLE, whole),
        **dict.fromkeys(("frequencies", "rewards", "sizes"), text),
    }
    checked: dict[str, object] = {
        name: checks.get(name, real)(name, value) for name, value in values.items()
    }
    for name, value in checked.items():
        if value is None and name not in _OPTIONAL:
            raise TypeError(f"{name} is None; a value is required")
    return checked


def shop(values: dict[str, Any]) -> dict[str, object]:
    """The validated arguments of a catalogue."""
    counts = ("items", "categories", "price_bands", "numbers", "users", "tastes", "delay", "slots")
    checks: dict[str, Callable[[str, Any], object]] = {
        **dict.fromkeys(counts, whole),
        **dict.fromkeys(("link", "visits"), text),
    }
    checked: dict[str, object] = {
        name: checks.get(name, real)(name, value) for name, value in values.items()
    }
    for name, value in checked.items():
        if value is None and name not in ("link_scale", "bias", "newcomers_every"):
            raise TypeError(f"{name} is None; a value is required")
    return checked


def seed_list(seeds: int | Iterable[int], first_seed: int, default: int = 1) -> list[int]:
    """The seeds: those given, or a number of them."""
    if isinstance(seeds, Iterable):
        numbers = [whole("a seed", seed) for seed in seeds]
        if first_seed != default:
            raise ValueError(
                f"first_seed is {first_seed}, and seeds are given one by one; give a number of seeds"
            )
        for number, count in Counter(numbers).items():
            if count > 1:
                raise ValueError(f"seed {number} is there twice")
        return numbers
    first = whole("first_seed", first_seed)
    count = whole("seeds", seeds)
    if first + count > LIMIT:
        raise ValueError(f"the last seed is {first + count - 1}; it must be below {LIMIT - 1}")
    return list(range(first, first + count))
