"""Constants without a published source: a value, the range it may lie in, and who tuned it.

In: a question about a constant, while a what-if is applied. Out: its value, or one end of its
range where the same what-if is asked under another reading. Which constants an answer rests on is
noted on the way, so that its interval spans their ranges and those of no others.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_READ_AS: ContextVar[Mapping[str, float]] = ContextVar("_READ_AS", default=MappingProxyType({}))
_USED: ContextVar[dict[Assumed, None] | None] = ContextVar("_USED", default=None)


@dataclass(frozen=True)
class Assumed:
    """A constant that no publication gives, in the unit that its name says.

    ``least`` and ``most`` bound what it may be on another machine, model or version; ``why`` says
    where all three come from, ``tuned_on`` names the pairs (`traces/study.toml`) that chose it.
    ``more_is_longer`` tells whether more of it makes a step longer, where that is always so.

    Examples
    --------
    >>> wake = Assumed("wake, ns", 4_000, 1_000, 4_000, "one tick of the scheduler")
    >>> with read_as(wake, wake.least):
    ...     wake.now()
    1000
    """

    name: str
    value: float
    least: float
    most: float
    why: str
    tuned_on: tuple[str, ...] = ()
    more_is_longer: bool | None = None

    def __post_init__(self) -> None:
        """Check that the value lies in its range."""
        if not self.least <= self.value <= self.most:
            raise ValueError(f"{self.name}: {self.value} is not in {self.least} … {self.most}")

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the most that it may be."""
        return self.least, self.most

    def now(self) -> float:
        """Return the value to reckon with, and note that it was asked for."""
        used = _USED.get()
        if used is not None:
            used[self] = None
        return _READ_AS.get().get(self.name, self.value)


@contextmanager
def read_as(constant: Assumed, value: float) -> Iterator[None]:
    """Let *constant* be *value* meanwhile."""
    token = _READ_AS.set({**_READ_AS.get(), constant.name: value})
    try:
        yield
    finally:
        _READ_AS.reset(token)


@contextmanager
def noting_use() -> Iterator[dict[Assumed, None]]:
    """Collect the constants that are asked for meanwhile, in order.

    >>> share = Assumed("share", 0.5, 0.4, 0.6, "an example")
    >>> with noting_use() as used:
    ...     _ = share.now()
    >>> [each.name for each in used]
    ['share']
    """
    used: dict[Assumed, None] = {}
    token = _USED.set(used)
    try:
        yield used
    finally:
        _USED.reset(token)
        if (outer := _USED.get()) is not None:
            outer.update(used)
