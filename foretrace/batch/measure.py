"""The models of a study become recordings, measured one after another with nothing beside them.

Whatever an earlier run measured is kept; what it left half done is measured again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from foretrace.batch.items import Recording, add_digest, list_pairs, make_failed, make_items
from foretrace.errors import ForetraceError, TransformError
from foretrace.tracer.child_process import measuring_environment
from foretrace.tracer.lab.pairs.archive import PAIR
from foretrace.tracer.lab.pairs.campaign import run_one, say
from foretrace.tracer.lab.pairs.worker import CPU_PLAN, CUDA_PLAN, PairPlan, Task
from foretrace.tracer.lab.zoo.named import find_model
from foretrace.tracer.lab.zoo.variants import BY_NAME as CHANGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from foretrace.batch.config import ModelEntry
    from foretrace.batch.items import Item

PAIRS, RECORDINGS = "pairs", "recordings"
"""Folders, inside that of the results, for what is measured."""
RECORDER = (sys.executable, "-m", "foretrace.batch.record_process")


def measure_items(
    entries: Sequence[ModelEntry], scenarios: Sequence[tuple[str, ...]], folder: Path, out: Path
) -> list[Item]:
    """Measure what *entries* ask for, into *out*, and return the items.

    An entry with changes gives a pair for each; without, its recording is asked *scenarios*.
    A user's own file is looked for in *folder*.

    Raises
    ------
    TransformError
        A change is unknown.
    """
    for entry in entries:
        if unknown := [name for name in entry.changes if name not in CHANGES]:
            raise TransformError(f"no change is called {unknown[0]!r}: {', '.join(CHANGES)}")
    items: list[Item] = []
    for entry in entries:
        for name in entry.names:
            if entry.changes:
                items += _pairs(name, entry, out)
            else:
                items += _record_items(name, entry, scenarios, (folder, out))
    return items


def _pairs(name: str, entry: ModelEntry, out: Path) -> Iterator[Item]:
    try:
        model = find_model(name)
    except ForetraceError as error:
        yield make_failed(name, name, (), str(error))
        return
    cpu = entry.device == "cpu"
    for change in (CHANGES[c] for c in entry.changes if CHANGES[c].applies_to(model, cpu=cpu)):
        folder = out / PAIRS / _slug(name) / change.name
        why = (
            None
            if _is_complete(folder, change.name)
            else _measure(name, change.name, entry, folder)
        )
        shown = f"{entry.device}/{name}/{change.name}"
        if why is None:
            yield from list_pairs(folder, f"{change.name}{PAIR}")
        else:
            yield make_failed(shown, name, (change.scenario,), why)


def _measure(name: str, change: str, entry: ModelEntry, folder: Path) -> str | None:
    """Measure one change; return why that failed."""
    shutil.rmtree(folder, ignore_errors=True)
    deadline = time.time() + 60 * entry.minutes
    task = Task(name, [change], entry.device == "cpu", str(folder), deadline, _plan(entry))
    try:
        return run_one(task)
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"


def _plan(entry: ModelEntry) -> PairPlan:
    plan = CPU_PLAN if entry.device == "cpu" else CUDA_PLAN
    if entry.rounds is not None:
        plan = replace(plan, rounds=entry.rounds)
    if entry.calibration_seconds is not None:
        plan = replace(plan, calibration_seconds=entry.calibration_seconds)
    return plan


def _is_complete(folder: Path, change: str) -> bool:
    """Whether the pair and both its compressed recordings are there."""
    try:
        content = json.loads((folder / f"{change}{PAIR}").read_text("utf-8"))
        return all((folder / f"{content[s]['trace']}.xz").is_file() for s in ("before", "after"))
    except (OSError, ValueError, KeyError):
        return False


def _record_items(
    name: str, entry: ModelEntry, scenarios: Sequence[tuple[str, ...]], places: tuple[Path, Path]
) -> list[Item]:
    """Record a job unless that was done; return what is asked about it."""
    folder, out = places
    path = out / RECORDINGS / f"{_slug(name)}.parquet"
    shown = f"{entry.device}/{name}"
    if not path.is_file() and (why := _record(_target(name, folder), entry, path)):
        return [make_failed(shown, name, texts, why) for texts in scenarios]
    return make_items(add_digest(Recording(shown, name, (str(path),))), scenarios)


def _record(name: str, entry: ModelEntry, path: Path) -> str | None:
    """Let a process of its own record the job *name*; return why that failed."""
    say(f"recording {name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(  # noqa: S603 - our own module
            [*RECORDER, name, entry.device, str(path), str(os.getpid())],
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=measuring_environment(cpu=entry.device == "cpu"),
            timeout=60 * entry.minutes,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"recording took more than {entry.minutes:g} min; raise minutes"
    except OSError as error:
        return f"{error.filename or path}: {error.strerror}"
    lines = [text for text in done.stderr.splitlines() if text.strip()]
    return (lines or [f"exit code {done.returncode}"])[-1] if done.returncode else None


def _slug(name: str) -> str:
    return "".join(char if char.isalnum() or char in "-_." else "-" for char in name)


def _target(name: str, folder: Path) -> str:
    """Return *name*, with the path of a user's own file."""
    where, colon, function = name.rpartition(":")
    return f"{folder / where}{colon}{function}" if where.endswith(".py") else name
