"""What a training printed: how long a step took, line by line.

In: the text of a log. Out: seconds per step, from what the lines say of a step (``0.12 s/it``,
``8.3 it/s``, ``step time: 120 ms``), or else from their time stamps and step numbers.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from foretrace.errors import RefusedError

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
Said = tuple[int, int | None, float | str]
"""Number of a line, the step that it is about, and what it says of its time."""


@dataclass(frozen=True)
class Log:
    """Seconds per step as numbered lines give them; ``stride`` steps lie between two lines.

    A text stands where a line names a time that is no number.
    """

    seconds: Sequence[tuple[int, float | str]]
    stride: int
    source: str
    notes: tuple[str, ...] = ()


def read_log(text: str) -> Log | None:
    r"""Return what a log says of its steps; ``None`` where it says nothing.

    A progress bar overwrites its line: each state of it counts as a line.

    >>> read_log("step 10 0.5 s/it\rstep 20 4 it/s").seconds
    [(1, 0.5), (2, 0.25)]
    """
    lines = list(enumerate(re.split(r"\r\n|\r|\n", text), 1))
    said = [
        (at, _step(line), seconds) for at, line in lines if (seconds := _said(line)) is not None
    ]
    stamped = _stamped(lines) if len(said) < FEWEST_LINES else None
    if stamped is not None or not said:
        return stamped
    kept, stride, notes = in_order(said)
    return Log([(at, seconds) for at, _, seconds in kept], stride, "lines of the log", notes)


def in_order(said: Sequence[Said]) -> tuple[list[Said], int, tuple[str, ...]]:
    """Return what counts of lines about numbered steps, how many steps lie between, and notes.

    >>> in_order([(1, 10, 0.5), (2, 10, 0.6), (3, 20, 0.5)])[0]
    [(1, 10, 0.5), (3, 20, 0.5)]

    Raises
    ------
    RefusedError
        The steps go back more often than on.
    """
    kept = _each_step_once(said)
    steps = [step for _, step, _ in kept]
    notes = (*_again(len(said) - len(kept)), *_back(steps))
    return kept, _stride(steps), notes


def _each_step_once(said: Sequence[Said]) -> list[Said]:
    """Keep the first of neighbouring lines about one step, such as those of several ranks."""
    before = [None, *(step for _, step, _ in said)]
    return [
        one for one, last in zip(said, before, strict=False) if one[1] is None or one[1] != last
    ]


def _again(left: int) -> list[str]:
    return [f"{left} lines about the same step as the line before were left out"] if left else []


def _back(steps: Sequence[int | None]) -> list[str]:
    """Say how often the steps begin again, as in every epoch of some logs."""
    known = [step for step in steps if step is not None]
    back = sum(after < before for before, after in itertools.pairwise(known))
    if 2 * back >= max(len(known), 2):
        raise RefusedError(
            f"the steps go back {back} times in {len(known)} lines; give them in order"
        )
    return [f"the step number goes back {back} times: what follows counts as later"] if back else []


def _said(line: str) -> float | str | None:
    """Return the seconds per step that a line names; its text, where that is no number.

    >>> _said("9 it, 0.5 s/it."), _said("step time: 2 min"), _said("step time: 1,234 ms")
    (0.5, 120.0, '1,234')
    """
    if "/" in line and (found := PER_STEP.search(line)):
        return _seconds(found[1], found[2])
    if "/" in line and (found := PER_SECOND.search(line)):
        rate = _seconds(found[1], "s")
        return rate if isinstance(rate, str) else 1 / rate if rate else float("inf")
    if "time" not in line.lower():
        return None
    if found := NAMED[0].search(line):
        return _seconds(found[2], found[1])
    if found := NAMED[1].search(line):
        return _seconds(found[1], found[2] or "s")
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
    found = AT_STEP.search(line)
    return int(found[1] or found[2]) if found else None


def _stride(steps: Sequence[int | None]) -> int:
    """Return how many steps most often lie between two lines; 1 where the lines do not say."""
    gaps = Counter(_gaps(steps))
    return gaps.most_common(1)[0][0] if gaps else 1


def _gaps(steps: Sequence[int | None]) -> list[int]:
    known = [step for step in steps if step is not None]
    return [after - before for before, after in itertools.pairwise(known) if after > before]


def _stamped(lines: Sequence[tuple[int, str]]) -> Log | None:
    """Return the differences of time stamps, where the same number of steps lies between them."""
    found = [
        (at, time, step)
        for at, line in lines
        if (stamp := STAMP.search(line))
        and (time := _time(stamp[0])) is not None
        and (step := _step(line[stamp.end() :])) is not None
    ]
    if len(found) < FEWEST_LINES:
        return None
    stride = _stride([step for *_, step in found])
    seconds = [
        (at, (now - then).total_seconds() / stride)
        for (_, then, before), (at, now, after) in itertools.pairwise(found)
        if after - before == stride
    ]
    left = len(found) - 1 - len(seconds)
    notes = (f"{left} differences of time stamps are not of {stride} steps and were left out",)
    return Log(seconds, stride, "time stamps of the log", notes if left else ())


def _time(stamp: str) -> datetime | None:
    """Return the time of a stamp; ``None`` where there is no such day or hour."""
    try:
        return datetime.fromisoformat(stamp.replace(",", "."))
    except ValueError:
        return None
