"""How far a run has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Is called with the rounds played and those in all.
Progress = Callable[[int, int], object]

#: What takes less needs no bar.
_SHOW_AFTER = 2.0


@contextmanager
def watching(progress: bool | Progress | None) -> Iterator[Progress]:
    """What is to be called now and then."""
    if progress is False:
        yield lambda done, total: None
    elif progress is None or progress is True:
        bar: Any = None

        def shown(done: int, total: int) -> None:
            nonlocal bar
            if bar is None and done < total:
                from tqdm.auto import tqdm

                bar = tqdm(
                    total=total, unit=" rounds", unit_scale=True, delay=_SHOW_AFTER, leave=False
                )
            if bar is not None:
                bar.total = total
                bar.update(done - bar.n)

        try:
            yield shown
        finally:
            if bar is not None:
                bar.close()
    elif callable(progress):
        yield progress
    else:
        raise TypeError(f"progress is {progress!r}; True, False or a function is expected")
