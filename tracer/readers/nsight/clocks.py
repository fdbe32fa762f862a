"""Device clocks that disagree with the host's, and steps whose device events were lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.tracer.readers.links import DEVICE_TASKS, is_kind, is_launch, launches_of

if TYPE_CHECKING:
    from foretrace.tracer.data_issues import Tally

TOLERANCE_NS = 50_000
"""A smaller disagreement is left alone: rounding, or two clocks read in turn."""
MIN_WITNESSES = 3
LOST_BELOW = 0.6
"""A step is lost when less than this share of the usual launches has a device task."""
MIN_STEPS = 3


def realign(values: dict[str, Any], tally: Tally) -> int:
    """Move device events onto the host's clock when the recording leaves no other choice.

    Two things cannot be: a task that starts before its call, and a blocking copy to the host that
    ends after its call has returned. A large smallest lag alone proves nothing, since a backlog
    explains it too. Returns the shift in ns that was added to the starts of device events.
    """
    tasks = np.flatnonzero(is_kind(values, *DEVICE_TASKS))
    call = launches_of(values, tasks)
    tasks, call = tasks[call >= 0], call[call >= 0]
    if not len(tasks):
        return 0
    start = values["start_ns"]
    end = start + values["duration_ns"]
    early = start[call] - start[tasks]
    blocking = _blocking_copies(values)[tasks]
    late = (end[tasks] - end[call])[blocking]
    shift = _certain_violation(late) * -1 or _certain_violation(early)
    if shift:
        device = np.flatnonzero(is_kind(values, *DEVICE_TASKS, "gpu_annotation"))
        values["start_ns"] = start.copy()
        values["start_ns"][device] += shift
        tally.add("clock_shift", len(device))
    return shift


def _blocking_copies(values: dict[str, Any]) -> np.ndarray:
    names = values["name"]
    blocking = np.array([n.startswith("Memcpy DtoH") and "Pageable" in n for n in names.categories])
    return blocking[names.codes] & is_kind(values, "memcpy")


def _certain_violation(violation: np.ndarray) -> int:
    """Return the largest violation if enough events agree that there is one."""
    witnesses = np.count_nonzero(violation > TOLERANCE_NS)
    enough = max(MIN_WITNESSES, len(violation) // 100)
    return int(violation.max()) if witnesses >= enough else 0


def lost_steps(values: dict[str, Any], tally: Tally) -> list[str]:
    """Name the numbered ranges ("step 7") most of whose launches have no device task."""
    names = values["name"]
    steps = _steps(values)
    if len(steps) < MIN_STEPS:
        return []
    launching = np.array([is_launch(n) for n in names.categories], bool)
    launches = np.flatnonzero(is_kind(values, "runtime") & launching[names.codes])
    tasks = np.flatnonzero(is_kind(values, *DEVICE_TASKS))
    answered = np.isin(launches, launches_of(values, tasks))
    start = values["start_ns"]
    at = np.searchsorted(start[steps], start[launches], side="right") - 1
    total = np.bincount(at[at >= 0], minlength=len(steps))
    met = np.bincount(at[(at >= 0) & answered], minlength=len(steps))
    lost = (met < LOST_BELOW * np.median(total)) & (met < total)
    tally.add("steps_without_device", np.count_nonzero(lost))
    return [str(names[row]) for row in steps[lost]]


def _steps(values: dict[str, Any]) -> np.ndarray:
    """Return the rows of the numbered range that occurs most often, by start."""
    names = values["name"]
    is_step = np.array([_is_numbered_step(name) for name in names.categories], bool)
    rows = np.flatnonzero(is_kind(values, "annotation") & is_step[names.codes])
    return rows[np.argsort(values["start_ns"][rows], kind="stable")]


def _is_numbered_step(name: str) -> bool:
    return name[-1:].isdigit() and any(word in name.lower() for word in ("step", "iter"))
