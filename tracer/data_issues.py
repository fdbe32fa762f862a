"""Everything a reader may have to mend, guess or drop, each with a name and a severity.

Readers count in a `Tally`; the counts end up in `TraceMeta.warnings`. Nothing is lost without one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, SupportsInt

if TYPE_CHECKING:
    from collections.abc import Mapping

Severity = Literal["info", "data_loss", "error"]


@dataclass(frozen=True)
class Issue:
    """One thing that can be wrong with a recording; ``{n}`` in the sentence is the count."""

    name: str
    severity: Severity
    sentence: str


DATA_ISSUES = (
    # the text of the file
    Issue("bare_list", "info", "the file is a bare list of events, without metadata"),
    Issue("bad_utf8", "info", "{n} bytes that are no UTF-8 were replaced"),
    Issue("control_characters", "info", "{n} raw control characters inside strings were accepted"),
    Issue("bad_escapes", "info", "{n} backslashes that escape nothing were doubled"),
    Issue("trailing_commas", "info", "{n} commas before a closing bracket were removed"),
    Issue("raw_quotes", "info", "{n} unescaped quotes inside strings were escaped"),
    Issue("unreadable_events", "data_loss", "{n} events could not be read and were skipped"),
    Issue("truncated", "data_loss", "the file is cut short; what stands before the cut was kept"),
    # what kind of events
    Issue("unknown_category", "info", "{n} events of unknown categories were left out"),
    Issue(
        "uncategorised_work",
        "info",
        "{n} events without a category name a call and a stream: they count as work of a device",
    ),
    Issue(
        "foreign_device_work",
        "data_loss",
        "{n} events are work of a device that is not understood, and were left out",
    ),
    Issue(
        "whole_graphs",
        "info",
        "{n} runs of CUDA graphs were recorded as a whole, each as one kernel: "
        "profile with --cuda-graph-trace=node to tell their kernels apart",
    ),
    Issue("unfinished_ranges", "data_loss", "{n} ranges without an end were left out"),
    Issue("unbegun_ranges", "data_loss", "{n} ends of ranges that never began were left out"),
    # times
    Issue("bad_timestamp", "data_loss", "{n} events without a usable start were dropped"),
    Issue("zero_timestamp", "data_loss", "{n} device events with start and length 0 were dropped"),
    Issue("missing_duration", "info", "{n} events without a usable length got length 0"),
    Issue("negative_duration", "data_loss", "{n} events of negative length got length 0"),
    Issue("absurd_duration", "data_loss", "{n} impossibly long events were cut at the next one"),
    Issue("clock_shift", "info", "the device clock was off: {n} device events were moved"),
    # identities
    Issue("bad_number", "info", "{n} fields that should be numbers are not and count as unknown"),
    Issue("duplicate_events", "info", "{n} exact copies of events were dropped"),
    Issue("coinciding_events", "info", "{n} events equal another one in all but their ids (kept)"),
    Issue("nested_calls", "info", "{n} calls inside another call were merged into it"),
    # links between host and device
    Issue("kernel_before_launch", "info", "{n} device tasks start before the call behind them"),
    Issue("kernel_without_launch", "info", "{n} device tasks were launched before the recording"),
    Issue("launch_without_kernel", "data_loss", "{n} launches have no device task"),
    Issue("shared_correlation", "info", "{n} calls put several tasks on a device (graph replays)"),
    Issue("dangling_flows", "info", "{n} flow arrows lack their other end"),
    Issue("steps_without_device", "data_loss", "{n} steps lost most of their device events"),
    # several ranks
    Issue("unknown_rank", "info", "{n} files have no rank of their own; the order given was used"),
    Issue(
        "earlier_cycles",
        "info",
        "{n} files of earlier cycles, or of cycles that not all ranks recorded, are left out",
    ),
    Issue("unaligned_ranks", "error", "{n} ranks share no collective with the others; clocks kept"),
    Issue(
        "times_in_nanoseconds",
        "error",
        "no operator or call is shorter than 1,000 units: the times may be nanoseconds, "
        "and were read as microseconds",
    ),
    Issue(
        "times_in_longer_units",
        "error",
        "half of the operators and calls are shorter than 0.1 units: the times may be milliseconds "
        "or seconds, and were read as microseconds",
    ),
    Issue("several_processes", "info", "the file holds {n} processes: each counts as a rank"),
    Issue(
        "page_faults",
        "info",
        "{n} page faults a step: the allocator returns memory and fetches it again",
    ),
    Issue(
        "operators_without_shapes",
        "info",
        "{n} operators ran differently in the step recorded for shapes: theirs are unknown",
    ),
    Issue(
        "cpu_taken_away",
        "info",
        "{n} % of the unprofiled steps other processes had the CPU: stop them, or keep cores for "
        "this job (taskset), and record again",
    ),
    Issue(
        "probes_disagree",
        "info",
        "the machine's rates before and after the recording differ by {n} %: it was not quiet; "
        "record again when nothing else runs",
    ),
)
"""Every counter there is, in the order they are reported."""

LEVELS = ("page_faults", "cpu_taken_away", "probes_disagree")
"""Counters of a rate or a share: of several ranks the largest counts, not the sum."""

DISTURBANCES = ("cpu_taken_away", "probes_disagree")
"""Counters that tell a busy machine."""

BY_NAME = {issue.name: issue for issue in DATA_ISSUES}


class Tally:
    """Counts issues by name; a name that is not declared is a bug."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: SupportsInt = 1) -> None:
        """Count *name*; a count of 0 leaves no trace."""
        assert name in BY_NAME, f"undeclared issue {name!r}"
        self._counts[name] += int(count)

    def counts(self) -> dict[str, int]:
        """Return name -> count of what occurred, in the order of `DATA_ISSUES`."""
        return {o.name: self._counts[o.name] for o in DATA_ISSUES if self._counts[o.name]}


def disturbances(warnings: Mapping[str, int]) -> dict[str, int]:
    """Return those of *warnings* that tell a busy machine.

    >>> disturbances({"page_faults": 200, "cpu_taken_away": 8})
    {'cpu_taken_away': 8}
    """
    return {name: warnings[name] for name in DISTURBANCES if name in warnings}


def sentences(warnings: Mapping[str, int]) -> list[str]:
    """Say *warnings* in words, the gravest first.

    >>> sentences({"duplicate_events": 3, "launch_without_kernel": 1})
    ['1 launches have no device task', '3 exact copies of events were dropped']
    """
    gravity = {"error": 0, "data_loss": 1, "info": 2}
    issues = [issue for issue in DATA_ISSUES if issue.name in warnings]
    issues.sort(key=lambda issue: gravity[issue.severity])
    return [issue.sentence.format(n=warnings[issue.name]) for issue in issues]
