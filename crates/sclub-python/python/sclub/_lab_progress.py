"""Progress of runs and of reading."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: A function that is called with the rounds played and the rounds in all, or with the bytes read and the bytes in all.
Progress = Callable[[int, int], object]

#: Seconds before a bar is shown.
_SHOW_AFTER = 2.0

#: Seconds between two lines in a file or a pipe.
_PIPE_INTERVAL = 10.0


@contextmanager
def watching(progress: bool | Progress | None, unit: str = " rounds") -> Iterator[Progress]:
    """The function to call with the progress."""
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
                    unit=unit,
                    unit_scale=True,
                    delay=_SHOW_AFTER,
                    leave=False,
                    # Into a file or a pipe a line now and then is enough.
                    mininterval=0.1 if sys.stderr.isatty() else 1.0 if _in_notebook() else _PIPE_INTERVAL,
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
