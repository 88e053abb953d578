"""How far a run has come."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Is called with the rounds played and those in all.
Progress = Callable[[int, int], object]

#: What takes less needs no bar.
_SHOW_AFTER = 2.0

#: Seconds between two lines where nobody watches.
_SELDOM = 10.0


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
                with warnings.catch_warnings():
                    # A notebook without widgets has a bar of text, and that is fine.
                    warnings.simplefilter("ignore")
                    from tqdm.auto import tqdm

                bar = tqdm(
                    total=total,
                    unit=" rounds",
                    unit_scale=True,
                    delay=_SHOW_AFTER,
                    leave=False,
                    # Into a file or a pipe a line now and then is enough.
                    mininterval=0.1 if sys.stderr.isatty() else 1.0 if _in_notebook() else _SELDOM,
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


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules
