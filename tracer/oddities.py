"""Everything a reader may have to repair, guess or drop, each with a name and a severity.

Readers count in a `Tally`; the counts end up in `TraceMeta.warnings`. Nothing is lost without one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

Severity = Literal["info", "data_loss", "error"]


@dataclass(frozen=True)
class Oddity:
    """One thing that can be odd in a recording; ``{n}`` in the sentence is the count."""

    name: str
    severity: Severity
    sentence: str


ODDITIES = (
    Oddity("bare_list", "info", "the file is a bare list of events, without metadata"),
    Oddity("control_characters", "info", "{n} raw control characters inside strings were escaped"),
    Oddity("bad_utf8", "info", "{n} bytes that are no UTF-8 were replaced"),
    Oddity("bad_escapes", "info", "{n} backslashes that escape nothing were doubled"),
    Oddity("raw_quotes", "info", "{n} unescaped quotes inside strings were escaped"),
    Oddity("trailing_commas", "info", "{n} trailing commas were removed"),
    Oddity("truncated", "data_loss", "the file is cut short; the events before the cut were kept"),
    Oddity("unreadable_events", "data_loss", "{n} events could not be parsed and were skipped"),
    Oddity("unknown_category", "info", "{n} events of unknown categories were left out"),
    Oddity("unfinished_ranges", "data_loss", "{n} ranges never ended and were left out"),
    Oddity("duplicate_events", "info", "{n} exact copies of events were dropped"),
    Oddity("bad_timestamp", "data_loss", "{n} events without a usable timestamp were dropped"),
    Oddity("zero_timestamp", "data_loss", "{n} device events with start 0 and length 0 were dropped"),
    Oddity("missing_duration", "info", "{n} events without a usable length got length 0"),
    Oddity("negative_duration", "data_loss", "{n} events with a negative length got length 0"),
    Oddity("absurd_duration", "data_loss", "{n} impossibly long events were cut at the next event"),
    Oddity("bad_number", "info", "{n} fields that should be numbers are not and count as unknown"),
    Oddity("nested_calls", "info", "{n} driver calls inside a runtime call were merged into it"),
    Oddity("kernel_before_launch", "info", "{n} device tasks start before the call that launched them"),
    Oddity("launch_without_kernel", "data_loss", "{n} launches have no device task in the recording"),
    Oddity("kernel_without_launch", "info", "{n} device tasks were launched before the recording began"),
    Oddity("dangling_flows", "info", "{n} flow arrows lack their other end"),
    Oddity("clock_shift", "info", "the device clock was off; {n} device events were moved"),
    Oddity("steps_without_device", "data_loss", "{n} steps lost most of their device events"),
    Oddity("unknown_rank", "info", "{n} files do not say their rank; the order given was used"),
    Oddity("rank_clocks", "info", "the clocks of {n} ranks were aligned on their collectives"),
    Oddity("unaligned_ranks", "error", "{n} ranks share no collective with the first and keep their own clock"),
)
"""Every counter there is, in the order they are reported."""

BY_NAME = {oddity.name: oddity for oddity in ODDITIES}


class Tally:
    """Counts oddities by name; a name that is not declared is a bug."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Count *name*; a count of 0 leaves no trace."""
        assert name in BY_NAME, name
        if count:
            self._counts[name] += int(count)

    def counts(self) -> dict[str, int]:
        """Return name -> count, in the order of `ODDITIES`."""
        return {o.name: self._counts[o.name] for o in ODDITIES if self._counts[o.name]}


def sentences(warnings: dict[str, int]) -> list[str]:
    """Say *warnings* in words, gravest first.

    >>> sentences({"duplicate_events": 3, "truncated": 1})[0]
    'the file is cut short; the events before the cut were kept'
    """
    grave = {"error": 0, "data_loss": 1, "info": 2}
    known = sorted((BY_NAME[n] for n in warnings if n in BY_NAME), key=lambda o: grave[o.severity])
    return [o.sentence.format(n=warnings[o.name]) for o in known]
