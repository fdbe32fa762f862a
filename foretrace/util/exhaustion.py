"""Memory or nesting that gives out, in one sentence instead of a traceback."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foretrace.errors import ForetraceError


@contextmanager
def within_means(what: str, error: type[ForetraceError]) -> Iterator[None]:
    """Raise *error* about *what* where the block takes more memory or nesting than there is.

    >>> from foretrace.errors import TraceError
    >>> with within_means("a.json", TraceError):
    ...     raise RecursionError
    Traceback (most recent call last):
    foretrace.errors.TraceError: a.json: nested too deeply
    """
    try:
        yield
    except MemoryError:
        raise error(f"{what}: needs more memory than there is here") from None
    except RecursionError:
        raise error(f"{what}: nested too deeply") from None
