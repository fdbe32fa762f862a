"""How much work a file may ask for; a small file never asks for much.

Most limits grow with what the file takes on disk: real recordings pack thirty times, and have an
event per 60 bytes or more. An environment variable of a limit's name takes the place of both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrace.errors import ForetraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

KIB, MIB = 1 << 10, 1 << 20
MOST = 1 << 62


@dataclass(frozen=True)
class Limit:
    """At most ``least`` of *what*, or ``per_byte`` times the bytes on disk where that is more.

    ``variable`` is the environment variable that sets another number; ``most`` is never exceeded
    without it.
    """

    variable: str
    what: str
    least: int
    per_byte: float = 0.0
    most: int = MOST

    def allowed(self, on_disk: int = 0) -> int:
        """Return how many a file of *on_disk* bytes may have.

        Raises
        ------
        ForetraceError
            The environment variable is set to no whole number above 0.
        """
        given = os.environ.get(self.variable, "")
        if not given:
            return min(max(self.least, int(on_disk * self.per_byte)), self.most)
        if not (given.isascii() and given.isdigit() and 0 < len(given) < len(str(MOST))):
            raise ForetraceError(f"{self.variable} is {given!r}; set a whole number above 0")
        return int(given)

    def check(
        self, count: int, where: str, error: type[ForetraceError], *, on_disk: int = 0
    ) -> None:
        """Raise *error* where *count* is more than a file of *on_disk* bytes may have.

        >>> ROWS.check(5, "a.parquet", ForetraceError)
        """
        if count > (most := self.allowed(on_disk)):
            raise error(self.refusal(where, most, count))

    def refusal(self, where: str, most: int, count: int | None = None) -> str:
        """Return what is said of a file that has more than *most*; *count* where that is known."""
        has = (
            f"{count:,} {self.what}, more than {most:,}"
            if count
            else f"more than {most:,} {self.what}"
        )
        return f"{where}: {has}; if it is meant to, set {self.variable}"


UNPACKED = Limit("FORETRACE_MAX_UNPACKED_BYTES", "bytes once unpacked", 64 * MIB, 100.0, 8 << 30)
"""Of a compressed recording, or of all members of an archive."""
OBJECTS = Limit("FORETRACE_MAX_OBJECTS", "objects in its JSON", 1_000_000, 0.5, 50_000_000)
"""An event is one, its arguments are another."""
ROWS = Limit("FORETRACE_MAX_ROWS", "rows", 1_000_000, 0.5, 50_000_000)
"""Of one table: in Parquet, or in an export of Nsight Systems."""
TABLE_BYTES = Limit(
    "FORETRACE_MAX_TABLE_BYTES", "bytes of text in its table", 64 * MIB, 100.0, 8 << 30
)
"""Of the texts in a table of Parquet, each counted once per row where rows become objects."""
MEMBERS = Limit("FORETRACE_MAX_MEMBERS", "members", 10_000)
"""Of an archive."""
TEXT_BYTES = Limit("FORETRACE_MAX_TEXT_BYTES", "bytes", 1 * MIB)
"""Of a study, a scenario, a cluster or another file in TOML."""
METADATA_BYTES = Limit("FORETRACE_MAX_METADATA_BYTES", "bytes of metadata", 16 * MIB)
"""Of a recording of our own, of a calibration, or of the file of a pair."""
LOG_BYTES = Limit("FORETRACE_MAX_LOG_BYTES", "bytes", 1 << 30)
"""Of a log of losses or step times."""
NAME = Limit("FORETRACE_MAX_NAME_CHARACTERS", "characters in a name", 4096)
"""Longer names are cut, and counted."""
TASKS = Limit("FORETRACE_MAX_TASKS", "tasks", 20_000_000)
"""Of a graph, also of what a what-if makes of it."""


def limits() -> Iterator[Limit]:
    """Give every limit there is."""
    yield from (value for value in globals().values() if isinstance(value, Limit))
