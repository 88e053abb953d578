"""How far a run has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
        from tqdm.auto import tqdm

        with tqdm(
            total=None, unit=" rounds", unit_scale=True, delay=_SHOW_AFTER, leave=False
        ) as bar:

            def shown(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield shown
    elif callable(progress):
        last = (0, 0)

        def told(done: int, total: int) -> None:
            nonlocal last
            last = (done, total)
            progress(done, total)

        yield told
        if last != (0, 0) and last[0] < last[1]:
            progress(last[1], last[1])
    else:
        raise TypeError(f"progress is {progress!r}; True, False or a function is expected")
