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

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER = r"(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf)"
_STEP = r"(?:it|iter|iters|iteration|iterations|step|steps|batch|batches)"
UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3}
PER_STEP = re.compile(rf"{_NUMBER} ?(ns|us|µs|ms|s|sec|seconds) ?/ ?{_STEP}\b", re.IGNORECASE)
PER_SECOND = re.compile(rf"{_NUMBER} ?{_STEP} ?/ ?(?:s|sec|second)\b", re.IGNORECASE)
NAMED = (
    re.compile(rf"time per {_STEP} ?\((ms|s)\)[:= ]+{_NUMBER}", re.IGNORECASE),
    re.compile(rf"\b{_STEP}[-_ ]?time[:= ]+{_NUMBER} ?(ms|us|s)?\b", re.IGNORECASE),
)
"""As Megatron-LM writes it, with the unit first; and as many others do."""
AT_STEP = re.compile(
    r"\b(?:step|iter|iteration|batch)s?\W{0,3}(\d+)|\b(\d+) ?/ ?\d+\b", re.IGNORECASE
)
STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?")
FEWEST_LINES = 2


@dataclass(frozen=True)
class Log:
    """Seconds per step as numbered lines give them; ``stride`` steps lie between two lines."""

    seconds: Sequence[tuple[int, float]]
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
    said = [(at, line, seconds) for at, line in lines if (seconds := _said(line)) is not None]
    stamped = _stamped(lines) if len(said) < FEWEST_LINES else None
    if stamped is not None or not said:
        return stamped
    steps = [_step(line) for _, line, _ in said]
    return Log([(at, seconds) for at, _, seconds in said], _stride(steps), "lines of the log")


def _said(line: str) -> float | None:
    """Return the seconds per step that a line names."""
    if found := PER_STEP.search(line):
        return float(found[1]) * UNITS.get(found[2].lower(), 1.0)
    if found := PER_SECOND.search(line):
        rate = float(found[1])
        return 1 / rate if rate else float("inf")
    if found := NAMED[0].search(line):
        return float(found[2]) * UNITS.get(found[1].lower(), 1.0)
    if found := NAMED[1].search(line):
        return float(found[1]) * UNITS.get((found[2] or "s").lower(), 1.0)
    return None


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
        (at, datetime.fromisoformat(stamp[0].replace(",", ".")), step)
        for at, line in lines
        if (stamp := STAMP.search(line)) and (step := _step(line[stamp.end() :])) is not None
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
