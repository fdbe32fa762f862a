"""Lines that a training printed in, seconds per step out.

They say it of a step (``0.12 s/it``, ``8.3 it/s``, ``step time: 120 ms``), or their time stamps and
step numbers do.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from foretrace.errors import RefusedError
from foretrace.job.data_file import numbered_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER = r"(?<![\d.,])(-?\d[\d.,]*(?:[eE][-+]?\d+)?|nan|inf)"
"""Also 1,234 and the like: no number of Python, it is refused then, and not read as 1 or 234."""
_STEP = r"(?:it|iter|iters|iteration|iterations|step|steps|batch|batches)"
UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}
UNITS |= {"m": 60.0, "min": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0}
_UNIT = f"({'|'.join(sorted(UNITS, key=len, reverse=True))})"
PER_STEP = re.compile(rf"{_NUMBER} ?{_UNIT} ?/ ?{_STEP}\b", re.IGNORECASE)
PER_SECOND = re.compile(rf"{_NUMBER} ?{_STEP} ?/ ?(?:s|sec|second)\b", re.IGNORECASE)
NAMED = (
    re.compile(rf"time per {_STEP} ?\((ms|s)\)[:= ]+{_NUMBER}", re.IGNORECASE),
    re.compile(rf"\b{_STEP}[-_ ]?time[:= ]+{_NUMBER}(?: ?{_UNIT}\b|(?![\w.,]))", re.IGNORECASE),
)
"""As Megatron-LM writes it, with the unit first; and as many others do."""
AT_STEP = re.compile(
    r"\b(?:step|iter|iteration|batch)s?\W{0,3}(\d{1,15})(?!\d)|\b(\d{1,15}) ?/ ?\d+\b",
    re.IGNORECASE,
)
STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?")
FEWEST_LINES = 2
Timed = tuple[int, int | None, Any]
"""Number of a line, the step that it is about, and the time that it says."""


@dataclass(frozen=True)
class PrintedTimes:
    """Seconds per step as numbered lines give them; ``stride`` steps lie between two lines.

    A text stands where a line names a time that is no number.
    """

    seconds: Sequence[tuple[int, float | str]]
    stride: int
    source: str
    notes: tuple[str, ...] = ()


def read_printed_times(text: str) -> PrintedTimes | None:
    r"""Return what a log says of the times of its steps; ``None`` where it says nothing.

    A progress bar overwrites its line: each state of it counts as a line.

    >>> read_printed_times("step 10 0.5 s/it\rstep 20 4 it/s").seconds
    [(1, 0.5), (2, 0.25)]
    """
    lines = numbered_lines(text)
    times = [
        (at, _step(line), seconds)
        for at, line in lines
        if (seconds := _step_seconds(line)) is not None
    ]
    stamped = _between_stamps(lines) if len(times) < FEWEST_LINES else None
    if stamped is not None or not times:
        return stamped
    kept, stride, notes = keep_in_order(times)
    return PrintedTimes([(at, s) for at, _, s in kept], stride, "lines of the log", notes)


def keep_in_order(times: Sequence[Timed]) -> tuple[list[Timed], int, tuple[str, ...]]:
    """Return what counts of lines about numbered steps, how many steps lie between, and notes.

    Of neighbouring lines about one step, such as those of several ranks, the first counts.

    >>> keep_in_order([(1, 10, 0.5), (2, 10, 0.6), (3, 20, 0.5)])[0]
    [(1, 10, 0.5), (3, 20, 0.5)]

    Raises
    ------
    RefusedError
        The steps go back more often than on.
    """
    before = [None, *(step for _, step, _ in times)]
    kept = [
        (at, step, seconds)
        for (at, step, seconds), last in zip(times, before, strict=False)
        if step is None or step != last
    ]
    steps = [step for _, step, _ in kept if step is not None]
    notes = (*_note_repeats(len(times) - len(kept)), *_note_steps_back(steps))
    return kept, _stride(steps), notes


def _note_repeats(left: int) -> list[str]:
    return [f"{left} lines about the same step as the line before were left out"] if left else []


def _note_steps_back(steps: Sequence[int]) -> list[str]:
    """Say how often the steps begin again, as in every epoch of some logs."""
    back = sum(after < before for before, after in itertools.pairwise(steps))
    if 2 * back >= max(len(steps), 2):
        raise RefusedError(
            f"the steps go back {back} times in {len(steps)} lines; give them in order"
        )
    return [f"the step number goes back {back} times: what follows counts as later"] if back else []


def _step_seconds(line: str) -> float | str | None:
    """Return the seconds per step that a line names; its text, where that is no number.

    >>> [_step_seconds(f"step {said}") for said in ("0.5 s/it.", "time: 2 min", "time: 1,234 ms")]
    [0.5, 120.0, '1,234']
    """
    if "/" in line and (match := PER_STEP.search(line)):
        return _seconds(match[1], match[2])
    if "/" in line and (match := PER_SECOND.search(line)):
        rate = _seconds(match[1], "s")
        return rate if isinstance(rate, str) else 1 / rate if rate else float("inf")
    if "time" not in line.lower():
        return None
    if match := NAMED[0].search(line):
        return _seconds(match[2], match[1])
    if match := NAMED[1].search(line):
        return _seconds(match[1], match[2] or "s")
    return None


def _seconds(number: str, unit: str) -> float | str:
    try:
        return float(number.rstrip(".,")) * UNITS[unit.lower()]
    except ValueError:
        return number


def _step(line: str) -> int | None:
    """Return the number of the step that a line is about.

    >>> _step("epoch 3 iter: 120 loss 0.1"), _step(" 7/100 [00:01<00:09]"), _step("no number")
    (120, 7, None)
    """
    match = AT_STEP.search(line)
    return int(match[1] or match[2]) if match else None


def _stride(steps: Sequence[int]) -> int:
    """Return how many steps most often lie between two lines; 1 where the lines do not say."""
    gaps = (after - before for before, after in itertools.pairwise(steps))
    most_common = Counter(gap for gap in gaps if gap > 0).most_common(1)
    return most_common[0][0] if most_common else 1


def _between_stamps(lines: Sequence[tuple[int, str]]) -> PrintedTimes | None:
    """Return the differences of time stamps, where the same number of steps lies between them."""
    stamped = [
        (at, time, step)
        for at, line in lines
        if (stamp := STAMP.search(line))
        and (time := _time(stamp[0])) is not None
        and (step := _step(line[stamp.end() :])) is not None
    ]
    if len(stamped) < FEWEST_LINES:
        return None
    stride = _stride([step for *_, step in stamped])
    seconds = [
        (at, (now - then).total_seconds() / stride)
        for (_, then, before), (at, now, after) in itertools.pairwise(stamped)
        if after - before == stride
    ]
    left = len(stamped) - 1 - len(seconds)
    notes = (f"{left} differences of time stamps are not of {stride} steps and were left out",)
    return PrintedTimes(seconds, stride, "time stamps of the log", notes if left else ())


def _time(stamp: str) -> datetime | None:
    """Return the time of a stamp; ``None`` where there is no such day or hour."""
    try:
        return datetime.fromisoformat(stamp.replace(",", "."))
    except ValueError:
        return None
