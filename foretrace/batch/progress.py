"""How far a batch is: a bar with the time left on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LINES = 10
"""How many lines a log gets, at most."""


@contextmanager
def progress(total: int) -> Iterator[Callable[[str | None], None]]:
    """Give what is to be called for each of *total* items, with its error, as it finishes."""
    if not total:
        yield lambda _error: None
    elif sys.stderr.isatty():
        with _bar(total) as advance:
            yield advance
    else:
        yield _lines(total)


def line(done: int, total: int, failed: int, seconds: float) -> str:
    """Return how far it is after *seconds*.

    >>> line(20, 80, 1, 30.0)
    '20 of 80 items, 1 failed, about 0:01:30 left'
    >>> line(80, 80, 0, 120.0)
    '80 of 80 items in 0:02:00'
    """
    text = f"{done} of {total} items" + (f", {failed} failed" if failed else "")
    if done == total:
        return f"{text} in {timedelta(seconds=round(seconds))}"
    return f"{text}, about {timedelta(seconds=round(seconds / done * (total - done)))} left"


@contextmanager
def _bar(total: int) -> Iterator[Callable[[str | None], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (
        "predicting",
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        "{task.description}",
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task, failed = shown.add_task("", total=total), 0

        def advance(error: str | None) -> None:
            nonlocal failed
            failed += error is not None
            shown.update(task, advance=1, description=f"{failed} failed" if failed else "")

        yield advance


def _lines(total: int) -> Callable[[str | None], None]:
    began, done, failed = time.monotonic(), 0, 0

    def advance(error: str | None) -> None:
        nonlocal done, failed
        done, failed = done + 1, failed + (error is not None)
        if done * LINES // total > (done - 1) * LINES // total:
            sys.stderr.write(line(done, total, failed, time.monotonic() - began) + "\n")
            sys.stderr.flush()

    return advance
